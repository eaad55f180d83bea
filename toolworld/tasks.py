"""Requests with known solutions: seeded drawing of train, dev and test, and the checks that keep the splits apart."""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from autotools.encapsulate import python_name
from autotools.errors import ToolWorldError
from autotools.schema import Task, ToolCall, ToolId
from toolworld.answers import reference_expression, result_expression
from toolworld.pieces import Chain, Piece, all_chains, chain_piece, single_piece
from toolworld.wording import TEMPLATES
from toolworld.world import Ref, World

SIZES = {"train": 3000, "dev": 200, "test": 400, "unseen": 80}  # "unseen" = test tasks of the test-only domain
LEVEL_SHARES = {"I1": 0.45, "I2": 0.35, "I3": 0.20}
THREE_TARGETS = 0.2  # share of I3
CHAIN_SHARE = 0.5  # share of I2 that is a dependent chain; the others are two independent tools
HELD_OUT = 0.25  # share of tool pairs that only test shows
MAX_TRIES = 2000


def held_out(pair: Iterable[ToolId], seed: int) -> bool:
    """Whether a pair of tools is reserved for test: a seeded hash of the two names, in any order."""
    text = f"{seed}|" + "|".join(sorted(map(str, pair)))
    return hashlib.sha256(text.encode()).digest()[0] < 256 * HELD_OUT


@dataclass(frozen=True)
class _Part:
    """One part of the task set: which tools and pairs it may draw."""

    name: str
    split: str
    domain: str

    @property
    def test(self) -> bool:
        return self.split == "test"


class _Drawer:
    """Draws tasks of one part. Level and number of targets are decided outside the rejection loop: inside it, tasks
    with few targets would survive more often and skew the set."""

    def __init__(self, world: World, part: _Part, seed: int) -> None:
        self.world, self.part, self.seed = world, part, seed
        self.rng = random.Random(f"tasks-{seed}-{part.name}")
        self.unseen = {d.category for d in world.domains if d.test_only}
        self.singles = [ref for ref in world.refs.values() if self._single_ok(ref)]
        chains = [chain for chain in all_chains(world) if self._pair_ok(chain.finder, chain.user)]
        self.chains = {"I2": [c for c in chains if c.same_category], "I3": [c for c in chains if not c.same_category]}
        self.pairs = [
            (a, b) for a in self.singles for b in self.singles
            if a.id.category == b.id.category and a.id != b.id and self._pair_ok(a, b)
        ]  # fmt: skip

    def _single_ok(self, ref: Ref) -> bool:
        return (ref.id.category in self.unseen) == (self.part.domain == "unseen")

    def _pair_ok(self, a: Ref, b: Ref) -> bool:
        """Pairs of the unseen domain never occur in train, so all of them are free for its own tasks."""
        touches = a.id.category in self.unseen or b.id.category in self.unseen
        if self.part.domain == "unseen" or touches:
            return touches and self.part.domain == "unseen"
        return held_out((a.id, b.id), self.seed) == self.part.test

    def draw(self, level: str, shape: str) -> tuple[str, list[Piece]]:
        """One candidate request: template id and pieces (two pieces for the shapes two and three)."""
        rng, shown = self.rng, self.part.split == "train"
        if shape == "one":
            return shape, [single_piece(self.world, rng.choice(self.singles), rng, shown)]
        if shape == "two":
            return shape, [single_piece(self.world, ref, rng, shown) for ref in rng.choice(self.pairs)]
        chain = rng.choice(self.chains[level])
        pieces = [chain_piece(self.world, chain, rng, shown)]
        if shape == "three":
            third = self._third(chain)
            if third is None:
                return shape, []
            pieces.append(single_piece(self.world, third, rng, shown))
        return shape, pieces

    def _third(self, chain: Chain) -> Ref | None:
        used = {chain.finder.id.category, chain.user.id.category}
        # With the unseen domain in the chain, the third tool may be any known one.
        fits = [
            ref for ref in self.world.refs.values()
            if ref.id.category not in used | self.unseen
            and (self.part.domain == "unseen"
                 or (self._pair_ok(chain.finder, ref) and self._pair_ok(chain.user, ref)))
        ]  # fmt: skip
        return self.rng.choice(fits) if fits else None

    def tasks(self, count: int, seen_queries: set[str]) -> Iterator[Task]:
        """``count`` tasks with the fixed shares of levels and shapes; queries are unique in the whole set."""
        for index, (level, shape) in enumerate(self._plan(count)):
            for _ in range(MAX_TRIES):
                shape, pieces = self.draw(level, shape)
                if not pieces or _clash(pieces):
                    continue
                task = self._assemble(index, level, shape, pieces)
                if task.query not in seen_queries:
                    seen_queries.add(task.query)
                    yield task
                    break
            else:
                raise ToolWorldError(
                    f"could not draw {self.part.name} task {index} ({level}, {shape}) in {MAX_TRIES} tries; "
                    "ask for fewer tasks"
                )

    def _plan(self, count: int) -> list[tuple[str, str]]:
        i2, i3 = round(count * LEVEL_SHARES["I2"]), round(count * LEVEL_SHARES["I3"])
        chains, threes = round(i2 * CHAIN_SHARE), round(i3 * THREE_TARGETS)
        plan = [("I1", "one")] * (count - i2 - i3) + [("I2", "chain")] * chains + [("I2", "two")] * (i2 - chains)
        plan += [("I3", "three")] * threes + [("I3", "chain")] * (i3 - threes)
        self.rng.shuffle(plan)
        return plan

    def _assemble(self, index: int, level: str, shape: str, pieces: list[Piece]) -> Task:
        templates = TEMPLATES[shape]["test" if self.part.test else "train"]
        number = self.rng.randrange(len(templates))
        first = pieces[0]
        slots = {"c": first.text, "a": first.text, "b": pieces[-1].text, "x": first.named, "y": first.about_it}
        refs, calls = _joined(pieces)
        clauses = [clause for piece in pieces for clause in piece.clauses]
        names = [str(ref.id) for ref in refs]
        meta: dict[str, Any] = {
            "domain": self.part.domain, "num_targets": len(refs), "shape": shape,
            "records": [piece.record["id"] for piece in pieces if piece.record],
            "clauses": dict(zip(names, clauses, strict=True)),
            "objects": {str(ref.id): ref.resource.noun for ref in refs},
            "good_query": {str(ref.id): ref.good_query for ref in refs},
        }  # fmt: skip
        answers = [piece.answer for piece in pieces]
        return Task(
            id=f"world-{self.part.name}-{index:05d}", suite="toolworld", split=self.part.split, level=level,
            query=templates[number].format(**slots), targets=tuple(ref.id for ref in refs), calls=tuple(calls),
            program=make_program(refs, calls, [len(piece.refs) for piece in pieces]),
            answer=answers[0] if len(answers) == 1 else answers,
            template=f"{shape}-{'test' if self.part.test else 'train'}-{number}", meta=meta,
        )  # fmt: skip


def _clash(pieces: list[Piece]) -> bool:
    """Two pieces on one record could change each other's answer, and would blur what the request asks for."""
    records = [piece.record["id"] for piece in pieces if piece.record]
    return len(set(records)) < len(records)


def _joined(pieces: list[Piece]) -> tuple[list[Ref], list[ToolCall]]:
    """References count calls from the start of the task; only the first piece has any, so none needs moving."""
    return [ref for piece in pieces for ref in piece.refs], [call for piece in pieces for call in piece.calls]


def make_program(refs: list[Ref], calls: list[ToolCall], lengths: list[int]) -> str:
    """Python text that makes the calls and ends with ``finish(value)``; ``lengths`` are calls per answer part."""
    lines, parts, end = [], [], 0
    for index, (ref, call) in enumerate(zip(refs, calls, strict=True)):
        values = [f"{python_name(name)}={_argument(value)}" for name, value in call.arguments.items()]
        lines.append(f"r{index} = {ref.function}({', '.join(values)})")
    for length in lengths:
        end += length
        parts.append(result_expression(refs[end - 1], f"r{end - 1}"))
    value = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    return "\n".join([*lines, f"finish({value})"]) + "\n"


def _argument(value: Any) -> str:
    if isinstance(value, str) and value.startswith("$"):
        return reference_expression(value)
    return json.dumps(value, ensure_ascii=False)


def make_tasks(world: World, seed: int = 0, sizes: dict[str, int] | None = None) -> list[Task]:
    """All tasks of a world: train, dev, test, and the test tasks of the unseen domain (meta ``domain`` = unseen).

    Raises ToolWorldError if a size cannot be reached or the splits overlap.
    """
    sizes = SIZES if sizes is None else sizes
    seen: set[str] = set()
    tasks: list[Task] = []
    for name, count in sizes.items():
        part = _Part(name, "test" if name == "unseen" else name, "unseen" if name == "unseen" else "seen")
        tasks += _Drawer(world, part, seed).tasks(count, seen)
    check_splits(tasks, world, seed)
    return tasks


def check_splits(tasks: list[Task], world: World, seed: int) -> None:
    """Raise ToolWorldError unless test is really new: templates, tool pairs, named records and one domain."""
    unseen = {domain.category for domain in world.domains if domain.test_only}
    templates: dict[bool, set[str]] = {True: set(), False: set()}
    records: dict[bool, set[str]] = {True: set(), False: set()}
    for task in tasks:
        test, domain = task.split == "test", task.meta["domain"]
        templates[test].add(task.template)
        records[task.split == "train"].update(task.meta["records"])
        touches = {target.category for target in task.targets} & unseen
        if bool(touches) != (domain == "unseen") or (touches and not test):
            raise ToolWorldError(f"{task.id}: {sorted(touches)} does not fit split {task.split!r}, domain {domain!r}")
        for pair in combinations(task.targets, 2):
            if domain == "seen" and held_out(pair, seed) != test:
                raise ToolWorldError(f"{task.id}: the pair {pair[0]}, {pair[1]} does not belong in {task.split!r}")
    _disjoint("sentence templates of test and train/dev", templates)
    _disjoint("records of train and dev/test", records)
    queries = [task.query for task in tasks]
    if len(set(queries)) < len(queries):
        raise ToolWorldError(f"{len(queries) - len(set(queries))} requests occur twice")


def _disjoint(what: str, sets: dict[bool, set[str]]) -> None:
    if both := sets[True] & sets[False]:
        raise ToolWorldError(f"{what} overlap: {sorted(both)[:3]}")
