"""Hub domains: places, persons and companies, to which the records of all other domains point."""

from toolworld.builders import make_resource
from toolworld.catalog import Domain

LOCATION = Domain(
    category="Location",
    resources=(
        make_resource(
            "Location", "place_map", ("place", "spot", "site"), "PLC", ("person", "company"), ("level", "send")
        ),
        make_resource(
            "Location", "road_plan", ("road", "street", "lane"), "RDS", ("place", "company"), ("alert",), by="place"
        ),
    ),
)

COMMUNICATION = Domain(
    category="Communication",
    resources=(
        make_resource(
            "Communication", "person_card", ("person", "friend", "member"), "PRS", ("place", "company"),
            ("score", "send"),
        ),
        make_resource(
            "Communication", "channel_room", ("channel", "group", "thread"), "CHN", ("person", "company"), ("list",),
            by="person",
        ),
    ),
)  # fmt: skip

BUSINESS = Domain(
    category="Business",
    resources=(
        make_resource(
            "Business", "company_info", ("company", "firm", "vendor"), "CMP", ("place", "person"), ("score", "alert")
        ),
        make_resource(
            "Business", "deal_log", ("deal", "contract", "bargain"), "DEA", ("person", "company"), ("price",),
            by="company",
        ),
    ),
)  # fmt: skip
