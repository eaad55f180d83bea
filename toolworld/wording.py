"""How a request is said: sentence templates per shape, and the phrases that name a record.

Test has its own templates and joiners. A quoted id and a name are said differently ("the inn HTL-017", "the inn named
Arlo Besk"): only the second one asks for a search of the tool that finds the id.
"""

import random
from dataclasses import dataclass
from typing import Any

from toolworld.builders import CHANNELS, CURRENCY_HEADER, FORMATS, KINDS, MONTHS
from toolworld.catalog import Operation

# Slots: one {c}; two {a} {b}; chain {c}, or {x} (the named record) and {y} (the clause about "it"); three {c} {b}.
_OPENERS = (
    "please do this: ", "I need this: ", "can you help me: ", "my task today: ", "just one thing: ", "hello, ",
    "a question: ", "quick request: ", "I would like this: ", "now this: ",
)  # fmt: skip
_PAIRS = (
    "{first} and {b}", "{first} and also {b}", "{first}, then {b}", "two things: {first} and {b}",
    "please do this: {first}; and {b}", "I need this: {first}, and also {b}", "first {first}, then {b}",
    "can you help me: {first}, {b}, thanks", "hello, {first} and {b}", "a question: {first}, and {b}",
    "start with this: {first}; next {b}", "quick request: {first}, {b}", "I would like this: {first}; also {b}",
    "now this: {first}, then {b}, please", "one: {first}; two: {b}", "{first}, and when it is done {b}",
)  # fmt: skip
# Test templates are new sentences, mostly of words that train templates use elsewhere: a model trained from nothing
# cannot know a new word (it reads it letter by letter), so the last one of each shape shows what that costs.
_TEST_PAIRS = (
    "please help me: {first}, and now {b}", "two things, please: {first}, then also {b}",
    "my task: {first}; then please {b}", "{first}, after that {b}",
)  # fmt: skip


def _pairs(templates: tuple[str, ...], first: str) -> tuple[str, ...]:
    return tuple(template.replace("{first}", first) for template in templates)


TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "one": {
        "train": (
            "{c}", *(opener + "{c}" for opener in _OPENERS), "{c}, please", "{c}, thanks", "{c} for me",
            "{c}, as soon as possible", "hello, {c}, thanks",
        ),
        "test": (
            "please help me: {c}", "quick question for you: {c}", "today I need this, please: {c}", "{c}, if you can",
        ),
    },
    "chain": {
        "train": (
            "{c}", *(opener + "{c}" for opener in _OPENERS[:8]), "{c}, thanks", "{c}, as soon as possible",
            "take {x}: {y}", "it is about {x}, I need this: {y}", "for {x} please do this: {y}",
            "hello, about {x}: {y}", "we look at {x} now: {y}",
        ),
        "test": (
            "please help me: {c}", "today I need this, please: {c}", "my question about {x}: {y}",
            "think of {x}; could you do this: {y}",
        ),
    },
    "two": {"train": _pairs(_PAIRS, "{a}"), "test": _pairs(_TEST_PAIRS, "{a}")},
    "three": {"train": _pairs(_PAIRS, "{c}"), "test": _pairs(_TEST_PAIRS, "{c}")},
}  # fmt: skip
NAMED = ("named", "called")
BARE_OBJECT = frozenset({"list", "top", "by_link"})  # kinds whose {o} is the word alone, without "the" and a record


def object_phrase(word: str, record: dict[str, Any], rng: random.Random, *, by_id: bool) -> str:
    """``the inn HTL-017`` or ``the inn named Arlo Besk``."""
    return f"the {word} {record['id']}" if by_id else f"the {word} {rng.choice(NAMED)} {record['name']}"


@dataclass(frozen=True)
class Filling:
    """Values drawn for one operation: the arguments without ids, and the words for the slots of its wordings."""

    arguments: dict[str, Any]
    slots: dict[str, Any]


def fill(operation: Operation, rng: random.Random) -> Filling:
    """Draw the free arguments of an operation and how they are said. The kind decides which there are."""
    kind = operation.kind
    if kind == "now":
        in_dollars = any(p.name == CURRENCY_HEADER for p in operation.parameters) and rng.random() < 0.25
        return Filling({CURRENCY_HEADER: "USD"} if in_dollars else {}, {"tail": " in USD" if in_dollars else ""})
    if kind == "past":
        month = rng.choice(list(MONTHS))
        return Filling({"month": MONTHS[month]}, {"month": month})
    if kind == "list":
        chosen = rng.choice((None, *KINDS))
        only = {"kind": chosen} if chosen else {}
        return Filling(only | {"per_page": 50}, {"kind": f"{chosen} " if chosen else ""})
    slot, values = {
        "top": ("n", range(2, 10)),
        "order_new": ("count", range(2, 10)),
        "order_edit": ("count", range(2, 10)),
        "alert_on": ("limit", range(20, 100, 10)),
        "send_link": ("channel", CHANNELS),
        "send_file": ("format", FORMATS),
    }.get(kind, (None, ()))
    if slot is None:
        return Filling({}, {})
    value = rng.choice(values)
    return Filling({slot: value}, {slot: value})
