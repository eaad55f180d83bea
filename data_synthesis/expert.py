"""The declared noisy expert that plays search demonstrations.

Its parameters (``ExpertSettings``) stand in the manifest beside its own score, so that "before" in a report is a known
quantity and never a secretly crippled one. It is imperfect on purpose: SFT on it leaves room that RL can win.
It plays through ``autotools.search.Episode``, so prompt, call, observation and answer text exist only there.
"""

import random
from collections.abc import Sequence

from autotools.schema import Task, ToolId, ToolSpec, Trajectory
from autotools.search.answer import NameIndex
from autotools.search.episode import Episode, SearchBatch, SearchSettings
from autotools.search.prompt import answer_text, call_text
from data_synthesis.settings import ExpertSettings
from evaluation.metrics import mean, selection_scores, srecall
from retriever.bm25 import STOP_WORDS
from retriever.corpus import short_text


def content_words(clause: str) -> str:
    """The clause without stop words and without values (names, ids, numbers: words with a capital or a digit).

    What is left are the user's own words for the thing and the deed. Empty if nothing is left.
    """
    words = [word.strip(".,;:!?\"'()") for word in clause.split()]
    return " ".join(w for w in words if w and w.islower() and w.isalpha() and w not in STOP_WORDS)


class Expert:
    """Plays one request after the other; all chance comes from the ``rng`` handed to ``play``."""

    def __init__(
        self, settings: ExpertSettings, search: SearchSettings, specs: Sequence[ToolSpec], search_batch: SearchBatch
    ) -> None:
        self.settings, self.search, self._search_batch = settings, search, search_batch
        self._specs = {spec.id: spec for spec in specs}
        self._names = NameIndex(self._specs)

    def query(self, task: Task, target: ToolId, rng: random.Random) -> str:
        """The words it searches ``target`` with; hints come from ``task.meta``, else from request and document."""
        spec = self._specs[target]
        good = task.meta.get("good_query", {}).get(str(target)) or short_text(spec)
        draw = rng.random()
        if draw < self.settings.own_words:
            return content_words(task.meta.get("clauses", {}).get(str(target), task.query)) or good
        if draw < self.settings.own_words + self.settings.object_only:
            return task.meta.get("objects", {}).get(str(target)) or spec.tool_name
        return good

    def play(self, task: Task, rng: random.Random) -> Episode:
        """A finished episode. Per target: query, search, pick, perhaps stop; then the answer.

        A query that was asked before is not asked again: its hits are still known.
        """
        episode = Episode(
            task.query, self._names, self.search, task_id=task.id, targets=task.targets, level=task.level,
            meta={"template": task.template},
        )  # fmt: skip
        known: dict[str, Sequence[ToolId]] = {}
        picks: dict[ToolId, None] = {}
        for target in task.targets:
            query = self.query(task, target, rng)
            if query not in known:
                if len(known) >= self.search.max_turns - 1:  # the last turn is the answer's
                    break
                episode.play(call_text(query), self._search_batch)
                known[query] = episode.events[-1].hits
            if known[query]:
                picks[self._pick(target, known[query], rng)] = None
            if rng.random() >= self.settings.go_on:
                break
        episode.play(answer_text([str(pick) for pick in picks]), self._search_batch)
        return episode

    def _pick(self, target: ToolId, hits: Sequence[ToolId], rng: random.Random) -> ToolId:
        if target in hits and rng.random() < self.settings.right_pick:
            return target
        return rng.choice(hits)


def expert_scores(trajectories: Sequence[Trajectory]) -> dict[str, float | int | None]:
    """Mean F1, recall, precision, match and SRecall of the expert, grounded (it only ever names what was shown)."""
    rows = [selection_scores(t.selection or (), t.targets) for t in trajectories]
    out: dict[str, float | int | None] = {name: mean([row[name] for row in rows]) for name in rows[0]} if rows else {}
    out["srecall"] = mean([srecall(t.found(), t.targets) for t in trajectories])
    out["searches"] = mean([len(t.events) - 1 for t in trajectories])
    return {**{k: round(v, 4) if v is not None else None for k, v in out.items()}, "n": len(rows)}
