"""Plays many episodes at once with a token-level generate function: the turn loop of RL and evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotools.chat import ChatRenderer
from autotools.errors import RetrieverError, RetrieverUnavailable, UnknownCategoryError
from autotools.search.episode import Episode, SearchBatch

Generate = Callable[[list[list[int]]], tuple[list[list[int]], list[list[float]] | None]]
"""(contexts) -> (new ids per context, end-of-turn token included; their sampling log-probs or None)."""
OnFailure = Callable[[list[int], RetrieverError], None]
"""(indices of the episodes whose search failed, why): called instead of raising."""


@dataclass(kw_only=True, slots=True)
class Rollout:
    """Tokens of one episode. ``spans[e]`` is event e's ``(start, end)`` in ``completion_ids``; ``mask`` is 1 inside."""

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def add_turn(self, ids: list[int], logprobs: list[float] | None) -> None:
        start = len(self.completion_ids)
        self.completion_ids += ids
        self.mask += [1] * len(ids)
        self.logprobs += logprobs if logprobs is not None else [0.0] * len(ids)
        self.spans.append((start, start + len(ids)))

    def add_context(self, ids: list[int]) -> None:
        self.completion_ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)


def start_rollouts(episodes: Sequence[Episode], renderer: ChatRenderer) -> list[Rollout]:
    """Rollouts that hold the prompts of ``episodes``."""
    return [Rollout(prompt_ids=renderer.prompt_ids(e.messages, e.tools)) for e in episodes]


def take_turns(
    episodes: Sequence[Episode],
    rollouts: Sequence[Rollout],
    live: Sequence[int],
    turns: list[list[int]],
    logprobs: list[list[float]] | None,
    renderer: ChatRenderer,
    search_batch: SearchBatch,
    on_failure: OnFailure | None = None,
) -> list[int]:
    """Apply one generated turn to each episode in ``live``; returns the indices that go on.

    All searches of the turn go to the engine in one call. A retriever failure is never an empty result: it propagates,
    or, with ``on_failure``, ends the episodes that it hit (``Episode.fail``).
    """
    for position, i in enumerate(live):
        room = episodes[i].settings.total_tokens - len(rollouts[i].completion_ids)
        ids = turns[position][:room]
        rollouts[i].add_turn(ids, logprobs[position][:room] if logprobs is not None else None)
        episodes[i].step(*renderer.turn_text(ids))
    asking = [i for i in live if episodes[i].request is not None]
    if asking:
        _search(episodes, asking, search_batch, on_failure)
    going_on = []
    for i in live:
        if episodes[i].done:
            continue
        between = renderer.between_ids(episodes[i].observation or "")
        # A turn needs room for at least one token and its end: otherwise the observation was never shown.
        if len(rollouts[i].completion_ids) + len(between) + 2 > episodes[i].settings.total_tokens:
            episodes[i].refuse()
            continue
        rollouts[i].add_context(between)
        episodes[i].accept()
        going_on.append(i)
    return going_on


def _search(
    episodes: Sequence[Episode], asking: list[int], search_batch: SearchBatch, on_failure: OnFailure | None
) -> None:
    """One call for all queries. If it fails, halves are tried, so that one bad query costs one rollout only.

    Not where the engine is away: nothing is known about any query then. A category that the engine does not have, but
    our corpus has, means two corpora in one run: that is always raised.
    """
    queries, categories = zip(*(episodes[i].request for i in asking), strict=True)
    try:
        results = search_batch(queries, categories, episodes[asking[0]].settings.top_k)
    except RetrieverError as error:
        if on_failure is None or isinstance(error, UnknownCategoryError):
            raise
        if len(asking) > 1 and not isinstance(error, RetrieverUnavailable):
            middle = len(asking) // 2
            _search(episodes, asking[:middle], search_batch, on_failure)
            _search(episodes, asking[middle:], search_batch, on_failure)
            return
        for i in asking:
            episodes[i].fail()
        on_failure(asking, error)
        return
    for i, hits in zip(asking, results, strict=True):
        episodes[i].observe(hits)


def run_episodes(
    generate: Generate, episodes: Sequence[Episode], renderer: ChatRenderer, search_batch: SearchBatch
) -> list[Rollout]:
    """Play all episodes to their end; their records are in ``episode.trajectory()`` afterwards."""
    rollouts = start_rollouts(episodes, renderer)
    live = list(range(len(episodes)))
    while live:
        turns, logprobs = generate([rollouts[i].prompt_ids + rollouts[i].completion_ids for i in live])
        live = take_turns(episodes, rollouts, live, turns, logprobs, renderer, search_batch)
    return rollouts
