"""Builders that turn one line of a domain module into the operations of a tool.

Operation names and wordings are shared between tools on purpose (``price_now``, ``alert_on`` ...): a small policy can
then learn object words and function words apart and compose them. At most one of the three wordings of an operation
uses the words of its own documentation, so that a request must be reformulated to be searched for.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotools.schema import ToolParameter
from toolworld.catalog import Operation, Resource

MONTHS = {"January": "2031-01", "February": "2031-02", "March": "2031-03", "April": "2031-04"}
KINDS = ("basic", "plus", "prime")
CURRENCIES = {"EUR": 1.0, "USD": 1.25}  # value of one euro, fixed like the clock
CHANNELS = ("mail", "chat")
FORMATS = ("pdf", "csv")
CURRENCY_HEADER = "X-Currency"

# Wordings of "read now" and "read of a month" per quantity; the first of each three uses the document's words.
QUANTITIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "price": (
        ("the current price of {o}{tail}", "what {o} costs today{tail}", "how much {o} is right now{tail}"),
        ("the past price of {o} in {month}", "what {o} did cost back in {month}", "how much {o} was in {month}"),
    ),
    "score": (
        ("the current score of {o}", "how good {o} is today", "how {o} is rated right now"),
        ("the past score of {o} in {month}", "how good {o} was back in {month}", "how {o} was rated in {month}"),
    ),
    "level": (
        ("the current level of {o}", "how full {o} is today", "how busy {o} is right now"),
        ("the past level of {o} in {month}", "how full {o} was back in {month}", "how busy {o} was in {month}"),
    ),
}


def with_article(noun: str) -> str:
    """``a hotel`` or ``an expo``."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _id(noun: str, location: str, prefix: str) -> ToolParameter:
    return ToolParameter(
        name=f"{noun}_id", location=location, required=True, description=f"id of the {noun}", example=f"{prefix}-001"
    )


def _body(name: str, kind: str, description: str, example: object, enum: tuple[str, ...] = ()) -> ToolParameter:
    return ToolParameter(
        name=name, location="body", type=kind, required=True, description=description, enum=enum, example=example
    )


def _read_pair(noun: str, prefix: str, base: str, quantity: str) -> tuple[Operation, ...]:
    now, past = QUANTITIES[quantity]
    header = ToolParameter(
        name=CURRENCY_HEADER, location="header", description="currency of the price", enum=tuple(CURRENCIES),
        default="EUR", example="USD",
    )  # fmt: skip
    month = ToolParameter(
        name="month", location="query", required=True, description="month", enum=tuple(MONTHS.values()),
        example="2031-03",
    )  # fmt: skip
    key, settings = _id(noun, "path", prefix), {"field": quantity, "id": f"{noun}_id"}
    return (
        Operation(
            api=f"{quantity}_now", kind="now", method="GET", path=f"{base}/{{{noun}_id}}/{quantity}",
            description=f"current {quantity} of {with_article(noun)}",
            parameters=(key, header) if quantity == "price" else (key,),
            response={f"{noun}_id": "string", quantity: "number", "as_of": "string"}, wordings=now, settings=settings,
        ),
        Operation(
            api=f"{quantity}_past", kind="past", method="GET", path=f"{base}/{{{noun}_id}}/{quantity}/past",
            description=f"past {quantity} of {with_article(noun)} in a month", parameters=(key, month),
            response={f"{noun}_id": "string", quantity: "number", "month": "string"}, wordings=past, settings=settings,
        ),
    )  # fmt: skip


def _list_pair(noun: str, prefix: str, base: str) -> tuple[Operation, ...]:
    item = {"id": "string", "name": "string", "kind": "string"}
    return (
        Operation(
            api="list_all", kind="list", method="GET", path=base, description=f"list every {noun} by kind",
            parameters=(
                ToolParameter(name="kind", description="only this kind", enum=KINDS, example="plus"),
                ToolParameter(name="page", type="integer", description="page number", default=1, example=1),
                ToolParameter(name="per_page", type="integer", description="1 to 50 a page", default=10, example=50),
            ),
            response={"items": [item], "page": "integer", "per_page": "integer", "total": "integer"},
            wordings=("a list of every {kind}{o}", "show all {kind}{o} options", "which {kind}{o} entries exist"),
        ),
        Operation(
            api="list_top", kind="top", method="GET", path=f"{base}/top", description=f"list the top {noun} by rank",
            parameters=(ToolParameter(name="n", type="integer", description="how many", default=3, example=5),),
            response={"items": [{"id": "string", "name": "string", "rank": "integer"}]},
            wordings=("a list of the top {n} {o}", "the best {n} {o} options", "the {n} leading {o} entries"),
        ),
    )  # fmt: skip


def _order_pair(noun: str, prefix: str, base: str) -> tuple[Operation, ...]:
    count = _body("count", "integer", "units, 1 to 20", 3)
    response = {"order_id": "string", f"{noun}_id": "string", "count": "integer", "total": "number"}
    settings = {"id": f"{noun}_id"}
    return (
        Operation(
            api="order_new", kind="order_new", method="POST", path=f"{base}/orders", response=response,
            description=f"make a new order for {with_article(noun)}", settings=settings,
            parameters=(_id(noun, "body", prefix), count),
            wordings=("make a new order of {count} for {o}", "reserve {count} at {o}", "get me {count} from {o}"),
        ),
        Operation(
            api="order_edit", kind="order_edit", method="PATCH", path=f"{base}/{{{noun}_id}}/order", response=response,
            description=f"edit the old order for {with_article(noun)}", settings=settings,
            parameters=(_id(noun, "path", prefix), count),
            wordings=("edit the old order for {o} to {count}", "change what I reserved at {o} to {count}",
                      "now I want {count} instead from {o}"),
        ),
    )  # fmt: skip


def _alert_pair(noun: str, prefix: str, base: str) -> tuple[Operation, ...]:
    key, settings = _id(noun, "path", prefix), {"id": f"{noun}_id"}
    response = {f"{noun}_id": "string", "alert": "boolean", "limit": "integer"}
    return (
        Operation(
            api="alert_on", kind="alert_on", method="POST", path=f"{base}/{{{noun}_id}}/alert", response=response,
            description=f"turn on the alert of {with_article(noun)}", settings=settings,
            parameters=(key, _body("limit", "integer", "limit, 1 to 99", 40)),
            wordings=("turn on the alert of {o} at {limit}", "warn me when {o} goes over {limit}",
                      "tell me once {o} passes {limit}"),
        ),
        Operation(
            api="alert_off", kind="alert_off", method="DELETE", path=f"{base}/{{{noun}_id}}/alert", response=response,
            description=f"turn off the alert of {with_article(noun)}", settings=settings, parameters=(key,),
            wordings=("turn off the alert of {o}", "stop the warnings for {o}", "no more notice about {o}"),
        ),
    )  # fmt: skip


def _send_pair(noun: str, prefix: str, base: str) -> tuple[Operation, ...]:
    key, settings = _id(noun, "path", prefix), {"id": f"{noun}_id"}
    return (
        Operation(
            api="send_link", kind="send_link", method="POST", path=f"{base}/{{{noun}_id}}/link", settings=settings,
            description=f"send the link of {with_article(noun)}", response={f"{noun}_id": "string", "link": "string"},
            parameters=(key, _body("channel", "string", "way to send", "mail", CHANNELS)),
            wordings=("send the link of {o} by {channel}", "pass on the address of {o} by {channel}",
                      "share {o} online by {channel}"),
        ),
        Operation(
            api="send_file", kind="send_file", method="POST", path=f"{base}/{{{noun}_id}}/file", settings=settings,
            description=f"send the file of {with_article(noun)}", response={f"{noun}_id": "string", "file": "string"},
            parameters=(key, _body("format", "string", "format of the file", "pdf", FORMATS)),
            wordings=("send the file of {o} as {format}", "pass on the document of {o} as {format}",
                      "export {o} as {format}"),
        ),
    )  # fmt: skip


_PAIRS: dict[str, Callable[[str, str, str], tuple[Operation, ...]]] = {
    "list": _list_pair,
    "order": _order_pair,
    "alert": _alert_pair,
    "send": _send_pair,
}


def _find(noun: str, base: str, links: Sequence[str]) -> Operation:
    item = {"id": "string", "name": "string"} | {f"{link}_id": "string" for link in links}
    name = ToolParameter(name="name", required=True, description=f"name of the {noun}", example="Arlo Besk")
    return Operation(
        api="find", kind="find", method="GET", path=f"{base}/search", description=f"find {with_article(noun)} by name",
        parameters=(name,), response={"items": [item], "total": "integer"},
        wordings=("find {o}", "look up {o}", "which id has {o}"),
    )  # fmt: skip


def _by_link(noun: str, base: str, link: str, link_prefix: str) -> Operation:
    return Operation(
        api=f"by_{link}", kind="by_link", method="GET", path=f"{base}/by_{link}",
        description=f"each {noun} of {with_article(link)}", settings={"link": link},
        parameters=(_id(link, "query", link_prefix),),
        response={"items": [{"id": "string", "name": "string"}], "total": "integer"},
        wordings=("each {o} of {l}", "any {o} tied to {l}", "which {o} belongs to {l}"),
    )  # fmt: skip


HUB_PREFIX = {"place": "PLC", "person": "PRS", "company": "CMP"}


def make_resource(
    category: str,
    tool: str,
    nouns: tuple[str, str, str],
    prefix: str,
    links: tuple[str, ...],
    pairs: tuple[str, ...],
    by: str | None = None,
) -> Resource:
    """One tool: ``find``, the named pairs of near-duplicates, and a lookup by the link ``by`` if given.

    ``nouns`` holds the tool's own word and two words that only users say. ``pairs`` are names of quantities (price,
    score, level) or of pairs (list, order, alert, send). ``links`` are the hub records each record points to.
    """
    noun, base = nouns[0], f"/{category.lower()}/{nouns[0]}"
    operations = [_find(noun, base, links)]
    for pair in pairs:
        two = _read_pair(noun, prefix, base, pair) if pair in QUANTITIES else _PAIRS[pair](noun, prefix, base)
        operations += [replace(one, near_duplicate=other.api) for one, other in (two, two[::-1])]
    if by is not None:
        operations.append(_by_link(noun, base, by, HUB_PREFIX[by]))
    return Resource(
        tool=tool, display_name=tool.replace("_", " ").title(), description=f"everything about {with_article(noun)}",
        noun=noun, synonyms=nouns, id_prefix=prefix, fields={"links": links}, operations=tuple(operations),
    )  # fmt: skip
