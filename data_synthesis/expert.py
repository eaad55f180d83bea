"""The declared noisy expert that plays search demonstrations.

Its parameters (``ExpertSettings``) stand in the manifest beside its own score, so that "before" in a report is a known
quantity and never a secretly crippled one. It is imperfect on purpose: SFT on it leaves room that RL can win.
It plays through ``autotools.search.Episode``, so prompt, call, observation and answer text exist only there.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

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
        draw = rng.random()
        if draw < self.settings.own_words:
            clause = task.meta.get("clauses", {}).get(str(target), task.query)
            return content_words(clause) or self.good_query(task, target)
        if draw < self.settings.own_words + self.settings.object_only:
            return task.meta.get("objects", {}).get(str(target)) or self._specs[target].tool_name
        return self.good_query(task, target)

    def good_query(self, task: Task, target: ToolId) -> str:
        """A query in the documents' own words."""
        return task.meta.get("good_query", {}).get(str(target)) or short_text(self._specs[target])

    def prompt_settings(self, draw: float) -> SearchSettings:
        """Which prompt a demonstration has: ``draw`` in [0, 1) decides among ours and the curriculum's two."""
        share = self.settings.curriculum_prompts
        if draw < share:
            return replace(self.search, category_argument=True, offer_categories=True)
        return (
            replace(self.search, category_argument=False, offer_categories=False) if draw < 2 * share else self.search
        )

    def play(self, task: Task, rng: random.Random, search: SearchSettings | None = None) -> Episode:
        """A finished episode. Per target: query, search, pick, perhaps stop; then the answer.

        Where categories are listed (``search``: another prompt than ours), each search names one.
        """
        episode = Episode(
            task.query, self._names, search or self.search, task_id=task.id, targets=task.targets, level=task.level,
            meta={"template": task.template},
        )  # fmt: skip
        known: dict[str, tuple[ToolId, ...]] = {}
        picks: dict[ToolId, None] = {}
        for target in task.targets:
            query, category = self.query(task, target, rng), self._category(episode, target, rng)
            hits = self._ask(episode, known, query, category)
            if not hits and rng.random() < self.settings.retry:
                hits = self._ask(episode, known, self.good_query(task, target), category)
            if hits:
                picks[self._pick(target, hits, rng)] = None
            if rng.random() >= self.settings.go_on:
                break
        episode.play(answer_text([str(pick) for pick in picks]), self._search_batch)
        return episode

    def _category(self, episode: Episode, target: ToolId, rng: random.Random) -> str | None:
        if not episode.settings.offer_categories:
            return None
        return target.category if rng.random() < self.settings.right_category else rng.choice(self._names.categories)

    def _ask(
        self, episode: Episode, known: dict[str, tuple[ToolId, ...]], query: str, category: str | None
    ) -> tuple[ToolId, ...]:
        """Hits of ``query``. One that was asked before is not asked again: its hits are still to be seen.

        Nothing, if only the turn of the answer is left.
        """
        if query not in known:
            if len(episode.events) >= self.search.max_turns - 1:
                return ()
            episode.play(call_text(query, category), self._search_batch)
            known[query] = episode.events[-1].hits
        return known[query]

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
