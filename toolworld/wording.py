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
TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "one": {
        "train": (
            "{c}", "please do this: {c}", "I need this: {c}", "can you help me: {c}", "my task today: {c}",
            "just one thing: {c}", "{c}, please", "{c}, thanks",
        ),
        "test": ("here is my wish: {c}", "could you do this: {c}", "{c}, if you can"),
    },
    "chain": {
        "train": (
            "{c}", "please do this: {c}", "I need this: {c}", "can you help me: {c}", "{c}, thanks",
            "take {x}: {y}", "it is about {x}, I need this: {y}", "for {x} please do this: {y}",
        ),
        "test": ("here is my wish: {c}", "{c}, if you can", "think of {x}; could you do this: {y}"),
    },
    "two": {
        "train": (
            "{a} and {b}", "{a} and also {b}", "{a}, then {b}", "two things: {a} and {b}",
            "please do this: {a}; and {b}",
            "I need this: {a}, and also {b}", "first {a}, then {b}", "can you help me: {a}, {b}, thanks",
        ),
        "test": ("here are my wishes: {a} plus {b}", "{a}, after that {b}", "could you do both: {a} as well as {b}"),
    },
    "three": {
        "train": (
            "{c} and {b}", "{c} and also {b}", "{c}, then {b}", "two things: {c} and {b}",
            "please do this: {c}; and {b}",
            "I need this: {c}, and also {b}", "first {c}, then {b}", "can you help me: {c}, {b}, thanks",
        ),
        "test": ("here are my wishes: {c} plus {b}", "{c}, after that {b}", "could you do both: {c} as well as {b}"),
    },
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
