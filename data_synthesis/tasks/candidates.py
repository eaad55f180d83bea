"""Candidate lists for relevance and function learning: targets hidden among hard and easy distractors."""

import random
from collections.abc import Iterable, Sequence

from autotools.schema import ToolId, ToolSpec
from autotools.search.episode import SearchBatch
from retriever.corpus import short_text


class CandidateMaker:
    """Draws candidates from ``specs``; the nearest neighbours of each target (near duplicates) come first in line."""

    def __init__(self, specs: Sequence[ToolSpec], search_batch: SearchBatch, neighbours: int = 3) -> None:
        self._ids = [spec.id for spec in specs]
        texts = [short_text(spec) for spec in specs]
        found = search_batch(texts, [None] * len(texts), neighbours + 1)
        self._near: dict[ToolId, list[ToolId]] = {
            spec.id: [hit.id for hit in hits if hit.id != spec.id][:neighbours]
            for spec, hits in zip(specs, found, strict=True)
        }

    def draw(
        self, targets: Sequence[ToolId], size: int, rng: random.Random, allowed: Iterable[ToolId] | None = None
    ) -> list[ToolId]:
        """``size`` ids (more if there are more targets): all targets, half of the rest near duplicates, rest random.

        The order is a plain shuffle, so a position says nothing about relevance. ``allowed`` limits distractors.
        """
        pool = set(self._ids if allowed is None else allowed) - set(targets)
        room = max(size - len(targets), 0)
        near = [i for i in dict.fromkeys(near for target in targets for near in self._near[target]) if i in pool]
        rng.shuffle(near)
        hard = near[: (room + 1) // 2]
        rest = sorted(pool - set(hard))
        chosen = [*targets, *hard, *rng.sample(rest, min(room - len(hard), len(rest)))]
        rng.shuffle(chosen)
        return chosen
