"""Domains of work and infrastructure: finance (API key), education, weather, logistics, energy (test only)."""

from toolworld.builders import make_resource
from toolworld.catalog import Domain

FINANCE = Domain(
    category="Finance",
    api_key="finance-demo-key",  # a fixed value of an invented service, not a secret
    resources=(
        make_resource(
            "Finance", "stock_ticker", ("stock", "share", "equity"), "STK", ("company", "place"), ("price", "alert")
        ),
        make_resource(
            "Finance",
            "loan_office",
            ("loan", "credit", "mortgage"),
            "LNS",
            ("person", "company"),
            ("send",),
            by="person",
        ),
    ),
)

EDUCATION = Domain(
    category="Education",
    resources=(
        make_resource(
            "Education", "course_hub", ("course", "class", "lesson"), "CRS", ("place", "person"), ("price", "list")
        ),
        make_resource(
            "Education", "book_shelf", ("book", "novel", "volume"), "BKS", ("person", "company"), ("send",), by="person"
        ),
    ),
)

WEATHER = Domain(
    category="Weather",
    resources=(
        make_resource(
            "Weather", "station_net", ("station", "sensor", "outpost"), "STN", ("place", "company"), ("level", "list")
        ),
        make_resource(
            "Weather", "storm_watch", ("storm", "gale", "tempest"), "STM", ("place", "person"), ("alert",), by="place"
        ),
    ),
)

LOGISTICS = Domain(
    category="Logistics",
    resources=(
        make_resource(
            "Logistics", "parcel_track", ("parcel", "package", "shipment"), "PCL", ("person", "place"),
            ("order", "send"),
        ),
        make_resource(
            "Logistics", "depot_yard", ("depot", "warehouse", "store"), "DPT", ("place", "company"), ("level",),
            by="company",
        ),
    ),
)  # fmt: skip

ENERGY = Domain(
    category="Energy",
    test_only=True,
    resources=(
        make_resource(
            "Energy", "meter_base", ("meter", "gauge", "counter"), "MTR", ("place", "person"), ("level", "alert")
        ),
        make_resource(
            "Energy", "plant_grid", ("plant", "turbine", "generator"), "PLT", ("place", "company"), ("order",),
            by="company",
        ),
    ),
)  # fmt: skip
