"""Candidate lists for relevance and function learning: targets hidden among hard and easy distractors."""

import random
from collections.abc import Sequence

from autotools.schema import ToolId, ToolSpec
from autotools.search.episode import SearchBatch
from retriever.corpus import short_text


class CandidateMaker:
    """Draws candidates among ``specs``; the nearest neighbours of each (its near duplicates) are the hard ones."""

    def __init__(self, specs: Sequence[ToolSpec], search_batch: SearchBatch, neighbours: int = 3) -> None:
        self._ids = sorted(spec.id for spec in specs)  # a fixed order, so that equal draws pick equal tools
        self._texts = {spec.id: short_text(spec) for spec in specs}
        self._search_batch, self._neighbours = search_batch, neighbours
        self._near: dict[ToolId, list[ToolId]] = {}

    def near(self, tool: ToolId) -> list[ToolId]:
        """Nearest neighbours among the own tools, searched when first asked for: of a large corpus few are needed."""
        if tool not in self._near:
            (hits,) = self._search_batch([self._texts[tool]], [None], self._neighbours + 1)
            found = [hit.id for hit in hits if hit.id != tool and hit.id in self._texts]
            self._near[tool] = found[: self._neighbours]
        return self._near[tool]

    def draw(self, targets: Sequence[ToolId], size: int, rng: random.Random) -> list[ToolId]:
        """``size`` ids: all targets, half of the rest near duplicates, the rest random tools.

        More than ``size`` if there are more targets, fewer if there are fewer tools. The order is a plain shuffle,
        so that a position says nothing about relevance.
        """
        size = min(max(size, len(targets)), len(self._ids))
        near = [i for i in dict.fromkeys(near for target in targets for near in self.near(target))]
        rng.shuffle(near)
        chosen = dict.fromkeys(targets)
        hard_end = len(chosen) + (size - len(chosen) + 1) // 2
        for tool in near:
            if len(chosen) < hard_end:
                chosen[tool] = None
        while len(chosen) < size:  # drawing again beats copying a corpus of 16k tools for every record
            chosen[rng.choice(self._ids)] = None
        order = list(chosen)
        rng.shuffle(order)
        return order
