"""Pieces of a request: one tool with quoted ids, or a finder followed by the tool that needs the found id."""

import random
from dataclasses import dataclass, field
from typing import Any

from autotools.schema import ToolCall
from toolworld.answers import expected
from toolworld.catalog import Resource
from toolworld.records import SHOWN_RECORDS, Record
from toolworld.wording import BARE_OBJECT, fill, object_phrase
from toolworld.world import Ref, World


@dataclass(frozen=True)
class Chain:
    """A finder and a tool that needs an id of what it finds: its own id (``link`` None) or a link id."""

    finder: Ref
    user: Ref
    link: str | None

    @property
    def same_category(self) -> bool:
        """True for level I2, False for I3."""
        return self.finder.id.category == self.user.id.category


@dataclass
class Piece:
    """One part of a request with its solution. ``named`` and ``about_it`` are the two halves of a split sentence."""

    refs: list[Ref]
    calls: list[ToolCall]
    text: str
    answer: Any
    record: Record | None
    clauses: list[str] = field(default_factory=list)
    named: str = ""
    about_it: str = ""


def all_chains(world: World) -> list[Chain]:
    """Every chain of the world, in catalog order."""
    finders = [ref for ref in world.refs.values() if ref.operation.kind == "find"]
    chains = []
    for finder in finders:
        for user in world.refs.values():
            noun = user.key.removesuffix("_id") if user.key else None
            if noun == finder.resource.noun:
                chains.append(Chain(finder, user, None))
            elif noun in finder.resource.fields["links"] and user.resource is not finder.resource:
                chains.append(Chain(finder, user, noun))
    return chains


def pick_record(world: World, resource: Resource, rng: random.Random, shown: bool) -> Record:
    """A record that requests of this split may name: train and the others never share one."""
    rows = world.records(resource)
    return rng.choice(rows[:SHOWN_RECORDS] if shown else rows[SHOWN_RECORDS:])


def single_piece(world: World, ref: Ref, rng: random.Random, shown: bool) -> Piece:
    """One tool; ids it needs are quoted in the request. ``shown``: whether train may show the named record."""
    filling, kind = fill(ref.operation, rng), ref.operation.kind
    word, wording = rng.choice(ref.resource.synonyms), rng.choice(ref.operation.wordings)
    said = plain = {"o": word, "l": ""}
    record, arguments = None, dict(filling.arguments)
    if kind == "by_link":
        hub = world.by_noun[ref.operation.settings["link"]]
        hub_word, record = rng.choice(hub.synonyms), pick_record(world, hub, rng, shown)
        said = {"o": word, "l": object_phrase(hub_word, record, rng, by_id=True)}
        plain, arguments = {"o": word, "l": f"the {hub_word}"}, {ref.key: record["id"]}
    elif kind not in BARE_OBJECT:
        record = pick_record(world, ref.resource, rng, shown)
        said = {"o": object_phrase(word, record, rng, by_id=kind != "find"), "l": ""}
        plain = {"o": f"the {word}", "l": ""}
        arguments = {"name": record["name"]} if kind == "find" else {ref.key: record["id"]} | arguments
    return Piece(
        refs=[ref],
        calls=[ToolCall(tool=ref.id, arguments=arguments)],
        text=wording.format(**said, **filling.slots),
        answer=expected(world, ref, record, arguments),
        record=record,
        clauses=[wording.format(**plain, **filling.slots)],
    )


def chain_piece(world: World, chain: Chain, rng: random.Random, shown: bool) -> Piece:
    """Two tools: the request names a record, the second tool needs its id (or the id of a record it points to)."""
    found = pick_record(world, chain.finder.resource, rng, shown)
    finder_word = rng.choice(chain.finder.resource.synonyms)
    named = object_phrase(finder_word, found, rng, by_id=False)
    filling, operation = fill(chain.user.operation, rng), chain.user.operation
    wording, word = rng.choice(operation.wordings), rng.choice(chain.user.resource.synonyms)
    record, hub_word = found, ""
    if chain.link is not None:
        hub = world.by_noun[chain.link]
        record, hub_word = world.tables[hub.tool][found[f"{chain.link}_id"]], rng.choice(hub.synonyms)
        if operation.kind != "by_link":
            hub_word = word  # the tool's object is the hub itself: one word for it

    def say(record_phrase: str, its: str) -> str:
        """The clause with the named record put in as ``record_phrase``; ``its`` joins the hub word to it."""
        target = record_phrase if chain.link is None else its.format(hub_word)
        if operation.kind == "by_link":
            return wording.format(o=word, l=target, **filling.slots)
        return wording.format(o=target, l="", **filling.slots)

    source = "$0.items.0.id" if chain.link is None else f"$0.items.0.{chain.link}_id"
    plain = f"the {hub_word or finder_word}"
    return Piece(
        refs=[chain.finder, chain.user],
        calls=[
            ToolCall(tool=chain.finder.id, arguments={"name": found["name"]}),
            ToolCall(tool=chain.user.id, arguments={chain.user.key: source} | filling.arguments),
        ],
        text=say(named, f"the {{}} of {named}"),
        answer=expected(world, chain.user, record, filling.arguments),
        record=found,
        clauses=[" ".join(named.split()[:3]), say(plain, "the {}")],
        named=named,
        about_it=say("it", "its {}"),
    )
