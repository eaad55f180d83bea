"""Domains of free time: travel, food, events, sports."""

from toolworld.builders import make_resource
from toolworld.catalog import Domain

TRAVEL = Domain(
    category="Travel",
    resources=(
        make_resource(
            "Travel", "hotel_desk", ("hotel", "inn", "lodge"), "HTL", ("place", "company"), ("price", "order")
        ),
        make_resource(
            "Travel", "tour_board", ("tour", "trip", "outing"), "TRS", ("place", "person"), ("list",), "place"
        ),
    ),
)

FOOD = Domain(
    category="Food",
    resources=(
        make_resource("Food", "recipe_box", ("recipe", "dish", "meal"), "RCP", ("person", "place"), ("score", "list")),
        make_resource(
            "Food", "diner_guide", ("diner", "cafe", "bistro"), "DNR", ("place", "company"), ("order",), by="place"
        ),
    ),
)

EVENTS = Domain(
    category="Events",
    resources=(
        make_resource(
            "Events", "concert_hall", ("concert", "gig", "show"), "CNC", ("place", "person"), ("order", "send")
        ),
        make_resource(
            "Events", "expo_floor", ("expo", "fair", "exhibit"), "EXP", ("place", "company"), ("list",), by="company"
        ),
    ),
)

SPORTS = Domain(
    category="Sports",
    resources=(
        make_resource(
            "Sports", "club_stats", ("club", "squad", "crew"), "CLB", ("company", "person"), ("score", "list")
        ),
        make_resource(
            "Sports", "match_center", ("match", "game", "fixture"), "MTC", ("place", "person"), ("alert",), by="place"
        ),
    ),
)
