"""Checks of single functions: fresh arguments for every tool, and the body that the records say comes back."""

import random

from autotools.schema import ToolId
from autotools.verify import Case
from toolworld.answers import expected_body
from toolworld.builders import CURRENCIES, CURRENCY_HEADER
from toolworld.pieces import single_piece
from toolworld.world import World

CASES_PER_TOOL = 3


def verification_cases(world: World, seed: int, count: int = CASES_PER_TOOL) -> dict[ToolId, list[Case]]:
    """``count`` drawn calls per tool, plus calls that set every optional parameter once (paging, header)."""
    rng = random.Random(f"cases-{seed}")
    cases: dict[ToolId, list[Case]] = {}
    for ref in world.refs.values():
        cases[ref.id] = []
        for _ in range(count):
            piece = single_piece(world, ref, rng, shown=rng.random() < 0.5)
            drawn = piece.calls[0].arguments
            variants = [drawn]
            if ref.operation.kind == "list":
                variants.append({"page": rng.randint(2, 3), "per_page": rng.randint(3, 9)})
            if any(p.name == CURRENCY_HEADER for p in ref.operation.parameters):
                variants.append(drawn | {CURRENCY_HEADER: rng.choice(list(CURRENCIES))})
            for arguments in variants:
                cases[ref.id].append(Case(arguments, expected_body(world, ref, piece.record, arguments)))
    return cases
