"""Expected bodies and answers of calls, read straight from the records.

Independent of ``operations.execute`` on purpose: the build compares what the server answers with what stands here.
"""

from typing import Any

from toolworld.builders import CURRENCIES, CURRENCY_HEADER
from toolworld.records import CLOCK, Record
from toolworld.world import Ref, World

# Where the answer to a request stands in the body of a call; "*" means: of every item. None: the quantity read.
_RESULT: dict[str, tuple[str | int, ...] | None] = {
    "find": ("items", 0, "id"), "list": ("items", "*", "id"), "top": ("items", "*", "id"),
    "by_link": ("items", "*", "id"), "now": None, "past": None, "order_new": ("total",), "order_edit": ("total",),
    "alert_on": ("limit",), "alert_off": ("limit",), "send_link": ("link",), "send_file": ("file",),
}  # fmt: skip


def expected_body(world: World, ref: Ref, record: Record | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """Body of a successful call in a fresh session.

    ``record`` is the record that the call names, or the hub record of a lookup by link; None for lists.
    """
    rows, kind = world.records(ref.resource), ref.operation.kind
    if kind == "list":
        fits = [row for row in rows if arguments.get("kind") in (None, row["kind"])]
        page, size = arguments.get("page", 1), arguments.get("per_page", 10)
        items = _items([row for i, row in enumerate(fits) if i // size == page - 1], "id", "name", "kind")
        return {"items": items, "page": page, "per_page": size, "total": len(fits)}
    if kind == "top":
        best = {row["rank"]: row for row in rows}
        return {"items": _items([best[i + 1] for i in range(arguments.get("n", 3))], "id", "name", "rank")}
    assert record is not None, ref.id
    if kind == "find":
        links = [f"{link}_id" for link in ref.resource.fields["links"]]
        return {"items": _items([record], "id", "name", *links), "total": 1}
    if kind == "by_link":
        items = _items([row for row in rows if row[ref.key] == record["id"]], "id", "name")
        return {"items": items, "total": len(items)}
    return {ref.key: record["id"]} | _values(ref, record, arguments)


def _items(rows: list[Record], *names: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def _values(ref: Ref, record: Record, arguments: dict[str, Any]) -> dict[str, Any]:
    field = ref.operation.settings.get("field", "")
    match ref.operation.kind:
        case "now" if field == "price":
            rate = CURRENCIES[arguments.get(CURRENCY_HEADER, "EUR")]
            return {field: round(record[field] * rate, 2), "as_of": CLOCK}
        case "now":
            return {field: record[field], "as_of": CLOCK}
        case "past":
            return {field: record["past"][arguments["month"]][field], "month": arguments["month"]}
        case "order_new" | "order_edit" as kind:
            # Every record starts with one open order, so the first new one of a session is its second.
            number, count = 2 if kind == "order_new" else 1, arguments["count"]
            return {"order_id": f"{record['id']}/{number}", "count": count, "total": count * record["price"]}
        case "alert_on":
            return {"alert": True, "limit": arguments["limit"]}
        case "alert_off":
            return {"alert": False, "limit": record["alert_limit"]}
        case "send_link":
            return {"link": f"{arguments['channel']}/{record['id']}/{record['size']}"}
        case "send_file":
            return {"file": f"{record['id']}-{record['size']}.{arguments['format']}"}
    raise AssertionError(f"no answer for kind {ref.operation.kind!r}")


def _result_keys(ref: Ref) -> tuple[str | int, ...]:
    return _RESULT[ref.operation.kind] or (ref.operation.settings["field"],)


def expected(world: World, ref: Ref, record: Record | None, arguments: dict[str, Any]) -> Any:
    """Answer to a request whose last call is this one: the part of ``expected_body`` that was asked for."""
    value: Any = expected_body(world, ref, record, arguments)
    keys = _result_keys(ref)
    if "*" in keys:
        return [item[keys[-1]] for item in value[keys[0]]]
    for key in keys:
        value = value[key]
    return value


def result_expression(ref: Ref, variable: str) -> str:
    """Python expression that reads the answer of ``ref`` from the result held by ``variable``."""
    keys = _result_keys(ref)
    if "*" in keys:
        return f'[item["{keys[-1]}"] for item in {variable}["{keys[0]}"]]'
    return variable + "".join(f"[{_quoted(key)}]" for key in keys)


def reference_expression(value: str) -> str:
    """Python form of an argument reference: ``$0.items.0.id`` becomes ``r0["items"][0]["id"]``."""
    first, *rest = value[1:].split(".")
    return f"r{first}" + "".join(f"[{_quoted(int(k) if k.isdigit() else k)}]" for k in rest)


def _quoted(key: str | int) -> str:
    return str(key) if isinstance(key, int) else f'"{key}"'
