"""Expected answer of one call, read straight from the records.

Independent of ``operations.execute`` on purpose: the build compares what the server answers with what stands here.
"""

from typing import Any

from toolworld.builders import CURRENCIES, CURRENCY_HEADER
from toolworld.records import Record
from toolworld.world import Ref, World


def expected(world: World, ref: Ref, record: Record | None, arguments: dict[str, Any]) -> Any:
    """Answer of a call on ``record`` (the record it names, or the hub record of a lookup by link; None for lists)."""
    rows = world.records(ref.resource)
    match ref.operation.kind:
        case "list":
            return [row["id"] for row in rows if arguments.get("kind") in (None, row["kind"])]
        case "top":
            return [row["id"] for row in sorted(rows, key=lambda row: row["rank"])[: arguments["n"]]]
    assert record is not None, ref.id
    match ref.operation.kind:
        case "find":
            return record["id"]
        case "by_link":
            return [row["id"] for row in rows if row[ref.key] == record["id"]]
        case "now":
            return round(record[ref.operation.settings["field"]] * CURRENCIES[arguments.get(CURRENCY_HEADER, "EUR")], 2)
        case "past":
            return record["past"][arguments["month"]][ref.operation.settings["field"]]
        case "order_new" | "order_edit":
            return arguments["count"] * record["price"]
        case "alert_on":
            return arguments["limit"]
        case "alert_off":
            return record["alert_limit"]
        case "send_link":
            return f"{arguments['channel']}/{record['id']}/{record['size']}"
        case "send_file":
            return f"{record['id']}-{record['size']}.{arguments['format']}"
    raise AssertionError(f"no answer for kind {ref.operation.kind!r}")


# Where the answer stands in the body of a call: the tail of the program.
RESULT_KEYS: dict[str, tuple[str | int, ...]] = {
    "find": ("items", 0, "id"), "order_new": ("total",), "order_edit": ("total",), "alert_on": ("limit",),
    "alert_off": ("limit",), "send_link": ("link",), "send_file": ("file",),
}  # fmt: skip


def result_expression(ref: Ref, variable: str) -> str:
    """Python expression that reads the answer of ``ref`` from the result held by ``variable``."""
    kind = ref.operation.kind
    if kind in ("list", "top", "by_link"):
        return f'[item["id"] for item in {variable}["items"]]'
    keys = RESULT_KEYS.get(kind) or (ref.operation.settings["field"],)
    return variable + "".join(f"[{_quoted(key)}]" for key in keys)


def reference_expression(value: str) -> str:
    """Python form of an argument reference: ``$0.items.0.id`` becomes ``r0["items"][0]["id"]``."""
    first, *rest = value[1:].split(".")
    return f"r{first}" + "".join(f"[{_quoted(int(k) if k.isdigit() else k)}]" for k in rest)


def _quoted(key: str | int) -> str:
    return str(key) if isinstance(key, int) else f'"{key}"'
