"""Kinds of operations: hand-made records, service-style errors, sessions that keep their own changes."""

import pytest

from autotools.schema import ToolId
from toolworld.operations import KINDS, execute
from toolworld.world import World, build_world


@pytest.fixture(scope="module")
def world() -> World:
    return build_world(0)


@pytest.fixture
def call(world: World):
    """Call a tool by name on one session; the hotel and its company carry hand-set values."""
    state = world.initial_state()
    hotel = state.tables["hotel_desk"]["HTL-001"] | {"price": 100.0, "order_count": 4, "alert_limit": 30, "size": 7}
    state.tables = state.tables | {"hotel_desk": state.tables["hotel_desk"] | {"HTL-001": hotel}}

    def run(tool: str, /, **arguments):
        ref = world.refs[ToolId.parse(tool)]
        named = {key.replace("X_", "X-"): value for key, value in arguments.items()}
        return execute(state, ref.domain, ref.resource, ref.operation, named)

    return run


def test_price_in_two_currencies(call) -> None:
    assert call("Travel.hotel_desk.price_now", hotel_id="HTL-001")[1]["price"] == 100.0
    status, body = call("Travel.hotel_desk.price_now", hotel_id="HTL-001", X_Currency="USD")
    assert (status, body["price"], body["as_of"]) == (200, 125.0, "2031-05-14T09:00:00")


def test_orders_add_and_edit_the_newest(call) -> None:
    assert call("Travel.hotel_desk.order_edit", hotel_id="HTL-001", count=2)[1] == {
        "order_id": "HTL-001/1", "hotel_id": "HTL-001", "count": 2, "total": 200.0,
    }  # fmt: skip
    assert call("Travel.hotel_desk.order_new", hotel_id="HTL-001", count=3)[1]["order_id"] == "HTL-001/2"
    edited = call("Travel.hotel_desk.order_edit", hotel_id="HTL-001", count=5)[1]
    assert (edited["order_id"], edited["total"]) == ("HTL-001/2", 500.0)


def test_alert_off_tells_the_old_limit_and_only_once(call) -> None:
    name, key = "Finance.stock_ticker.alert_off", {"stock_id": "STK-002"}
    assert call("Finance.stock_ticker.alert_on", **key, limit=77)[1]["limit"] == 77
    assert call(name, **key)[1] == {"stock_id": "STK-002", "alert": False, "limit": 77}
    assert call(name, **key)[0] == 404
    assert call("Finance.stock_ticker.alert_on", **key, limit=5)[0] == 200


def test_find_ignores_case_and_yields_links(call, world: World) -> None:
    record = world.tables["tour_board"]["TRS-005"]
    status, body = call("Travel.tour_board.find", name=record["name"].upper())
    assert status == 200 and body["total"] == 1
    assert body["items"][0] == {k: record[k] for k in ("id", "name", "place_id", "person_id")}
    assert call("Travel.tour_board.find", name="Nobody Here") == (200, {"items": [], "total": 0})


def test_pages_together_are_the_whole_list(call, world: World) -> None:
    pages = [call("Travel.tour_board.list_all", page=p, per_page=7)[1]["items"] for p in range(1, 8)]
    assert [item["id"] for page in pages for item in page] == list(world.tables["tour_board"])
    kinds = [call("Travel.tour_board.list_all", kind=k)[1]["total"] for k in ("basic", "plus", "prime")]
    assert sum(kinds) == len(world.tables["tour_board"])


def test_top_is_ordered_by_rank(call) -> None:
    items = call("Sports.club_stats.list_top", n=4)[1]["items"]
    assert [item["rank"] for item in items] == [1, 2, 3, 4]
    assert len(call("Sports.club_stats.list_top")[1]["items"]) == 3


@pytest.mark.parametrize(
    ("name", "arguments", "status", "words"),
    [
        ("Travel.hotel_desk.price_now", {"hotel_id": "HTL-999"}, 404, ("hotel", "HTL-999")),
        ("Travel.hotel_desk.price_now", {}, 422, ("hotel_id",)),
        ("Travel.hotel_desk.price_past", {"hotel_id": "HTL-001", "month": "2030-12"}, 422, ("month",)),
        ("Travel.hotel_desk.order_new", {"hotel_id": "HTL-001", "count": 21}, 422, ("count", "21")),
        ("Travel.tour_board.list_all", {"per_page": 51}, 422, ("per_page", "51")),
        ("Travel.tour_board.list_top", {"n": 0}, 422, ("n", "0")),
        ("Travel.tour_board.by_place", {"place_id": "HTL-001"}, 404, ("place", "HTL-001")),
        ("Sports.match_center.alert_on", {"match_id": "MTC-001", "limit": 100}, 422, ("limit", "100")),
    ],
)
def test_errors_in_service_style(call, name, arguments, status, words) -> None:
    got, body = call(name, **arguments)
    assert got == status and set(body) == {"error"} and set(body["error"]) == {"code", "message"}
    assert all(word in body["error"]["message"] for word in words)


def test_refused_calls_change_nothing_and_reads_never_do(world: World) -> None:
    state = world.initial_state()
    for ref in world.refs.values():
        if ref.operation.method == "GET" or ref.operation.kind == "alert_on":
            arguments = {p.name: p.example for p in ref.operation.parameters} | {"limit": 1000}
            execute(state, ref.domain, ref.resource, ref.operation, arguments)
    assert state.changes == {}


def test_every_kind_is_implemented_and_used(world: World) -> None:
    assert {ref.operation.kind for ref in world.refs.values()} == set(KINDS)
