"""What the tools of the world do: one pure function per kind of operation, over plain records and a session state.

No HTTP in here: types, enums and unknown names are checked before (``toolworld/routes.py``), keys as well. Ranges and
existence are checked here, because they need the records.
"""

from collections.abc import Callable
from typing import Any

from toolworld.builders import CURRENCIES, CURRENCY_HEADER
from toolworld.catalog import Domain, Operation, Resource
from toolworld.records import CLOCK, Record, State

Reply = tuple[int, dict[str, Any]]
Kind = Callable[[State, Resource, Operation, dict[str, Any]], Reply]


class _Refused(Exception):
    """Ends an operation with an error reply."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.reply: Reply = (status, {"error": {"code": code, "message": message}})


def execute(state: State, domain: Domain, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    """Answer one call: (HTTP status, JSON body). Only ``state.changes`` may be changed, and only by non-GET kinds.

    Errors are replies, not exceptions: 404 for an unknown id, 422 for a missing argument or a value out of range;
    their body is ``{"error": {"code", "message"}}``. Raises KeyError for a kind that nothing implements.
    """
    kind = KINDS[operation.kind]
    try:
        missing = [p.name for p in operation.parameters if p.required and arguments.get(p.name) in (None, "")]
        if missing:
            raise _Refused(422, "invalid_request", f"parameter {missing[0]!r} is required")
        return kind(state, resource, operation, arguments)
    except _Refused as refused:
        return refused.reply


def _record(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Record:
    value = arguments[operation.settings["id"]]
    record = state.tables[resource.tool].get(value)
    if record is None:
        raise _Refused(404, "not_found", f"no {resource.noun} has the id {value!r}")
    return record


def _in_range(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise _Refused(422, "invalid_request", f"parameter {name!r} must be {low} to {high}, got {value}")
    return value


def _rows(state: State, resource: Resource) -> list[Record]:
    return list(state.tables[resource.tool].values())


def _pick(record: Record, *names: str) -> dict[str, Any]:
    return {name: record[name] for name in names}


def _find(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    wanted = arguments["name"].casefold().strip()
    shown = ("id", "name", *(f"{link}_id" for link in resource.fields["links"]))
    items = [_pick(row, *shown) for row in _rows(state, resource) if row["name"].casefold() == wanted]
    return 200, {"items": items, "total": len(items)}


def _now(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    record, quantity = _record(state, resource, operation, arguments), operation.settings["field"]
    value = record[quantity]
    if quantity == "price":
        value = round(value * CURRENCIES[arguments.get(CURRENCY_HEADER) or "EUR"], 2)
    return 200, {operation.settings["id"]: record["id"], quantity: value, "as_of": CLOCK}


def _past(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    record, quantity = _record(state, resource, operation, arguments), operation.settings["field"]
    month = arguments["month"]
    if month not in record["past"]:
        raise _Refused(422, "invalid_request", f"parameter 'month' must be one of {', '.join(record['past'])}")
    return 200, {operation.settings["id"]: record["id"], quantity: record["past"][month][quantity], "month": month}


def _list(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    page = _in_range("page", arguments.get("page", 1), 1, 1000)
    per_page = _in_range("per_page", arguments.get("per_page", 10), 1, 50)
    wanted = arguments.get("kind")
    rows = [row for row in _rows(state, resource) if wanted is None or row["kind"] == wanted]
    items = [_pick(row, "id", "name", "kind") for row in rows[(page - 1) * per_page : page * per_page]]
    return 200, {"items": items, "page": page, "per_page": per_page, "total": len(rows)}


def _top(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    count = _in_range("n", arguments.get("n", 3), 1, 20)
    rows = sorted(_rows(state, resource), key=lambda row: row["rank"])
    return 200, {"items": [_pick(row, "id", "name", "rank") for row in rows[:count]]}


def _by_link(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    field = f"{operation.settings['link']}_id"
    # Links of a table cover all hub records, so an id without any row is an id that does not exist.
    items = [_pick(row, "id", "name") for row in _rows(state, resource) if row[field] == arguments[field]]
    if not items:
        raise _Refused(404, "not_found", f"no {operation.settings['link']} has the id {arguments[field]!r}")
    return 200, {"items": items, "total": len(items)}


def _order(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    record = _record(state, resource, operation, arguments)
    count = _in_range("count", arguments["count"], 1, 20)
    key, edit = ("orders", resource.tool, record["id"]), operation.kind == "order_edit"
    # The newest order of a record is its open one; every record starts with one order.
    counts = list(state.changes.get(key, (record["order_count"],)))
    counts = [*counts[:-1], count] if edit else [*counts, count]
    state.changes[key] = tuple(counts)
    body = {"order_id": f"{record['id']}/{len(counts)}", operation.settings["id"]: record["id"], "count": count}
    return 200, body | {"total": count * record["price"]}


def _alert(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    record, on = _record(state, resource, operation, arguments), operation.kind == "alert_on"
    key = ("alert", resource.tool, record["id"])
    before = state.changes.get(key, record["alert_limit"])
    if not on and before is None:
        raise _Refused(404, "not_found", f"the alert of {record['id']} is already off")
    state.changes[key] = _in_range("limit", arguments["limit"], 1, 99) if on else None
    limit = state.changes[key] if on else before
    return 200, {operation.settings["id"]: record["id"], "alert": on, "limit": limit}


def _send(state: State, resource: Resource, operation: Operation, arguments: dict[str, Any]) -> Reply:
    record = _record(state, resource, operation, arguments)
    if operation.kind == "send_link":
        what, value = "link", f"{arguments['channel']}/{record['id']}/{record['size']}"
    else:
        what, value = "file", f"{record['id']}-{record['size']}.{arguments['format']}"
    key = ("sent", resource.tool, record["id"])
    state.changes[key] = (*state.changes.get(key, ()), value)
    return 200, {operation.settings["id"]: record["id"], what: value}


KINDS: dict[str, Kind] = {
    "find": _find, "now": _now, "past": _past, "list": _list, "top": _top, "by_link": _by_link,
    "order_new": _order, "order_edit": _order, "alert_on": _alert, "alert_off": _alert,
    "send_link": _send, "send_file": _send,
}  # fmt: skip
