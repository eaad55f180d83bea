"""Thin TRL wrapper of the shared search episode: what ``GRPOTrainer(environment_factory=...)`` asks for.

TRL keeps instances in a pool and reuses them: ``reset`` starts a new episode. Our trainer plays ``episode`` itself;
``search`` also works under an unmodified GRPOTrainer, and its signature is the tool schema that TRL would render.
"""

from collections.abc import Callable
from typing import Any

from autotools.schema import ToolId
from autotools.search.answer import NameIndex
from autotools.search.episode import Episode, SearchBatch, SearchSettings
from autotools.search.prompt import call_text, prompt_messages
from rl.curriculum import Curriculum


class SearchEnvironment:
    """One rollout's environment over a search engine."""

    def __init__(self, search_batch: SearchBatch, names: NameIndex, curriculum: Curriculum):
        self._search_batch, self._names, self._curriculum = search_batch, names, curriculum
        self.episode: Episode | None = None

    def reset(self, **row: Any) -> None:
        """Start the episode of a data row with ``id``, ``query``, ``targets`` (texts) and ``level``.

        It is played under the curriculum's phase of now, whose number stays in its ``meta``.
        """
        phase = self._curriculum.phase
        self.episode = Episode(
            row["query"],
            self._names,
            phase.settings,
            task_id=row["id"],
            targets=[ToolId.parse(t) for t in row["targets"]],
            level=row.get("level", ""),
            meta={"phase": phase.number} if phase.number else None,
            enforce_category=phase.enforce,
        )

    def search(self, query: str, category: str = ""):  # -> str; written out, TRL would put it into the tool schema
        """
        Search the tool corpus. Returns the names and descriptions of the best matching tools.

        Args:
            query: What the tool should do, in a few words.
            category: Search only inside this category; leave it out to search everywhere.
        """
        if self.episode is None:
            raise RuntimeError("search() before reset()")
        self.episode.play(call_text(query, category or None), self._search_batch)
        return self.episode.events[-1].observation or ""


def environment_factory(
    search_batch: SearchBatch, names: NameIndex, curriculum: Curriculum
) -> Callable[[], SearchEnvironment]:
    """Factory for TRL; all environments share the engine and the curriculum."""
    return lambda: SearchEnvironment(search_batch, names, curriculum)


def prompt_rows(rows: list[dict[str, Any]], names: NameIndex, settings: SearchSettings) -> list[dict[str, Any]]:
    """RL data rows with the ``prompt`` column that TRL requires; what the policy reads is the episode's own prompt."""
    categories = names.categories if settings.offer_categories else ()
    return [{**row, "prompt": prompt_messages(row["query"], categories)} for row in rows]
