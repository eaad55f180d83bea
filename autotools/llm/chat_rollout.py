"""Plays many episodes at once behind a chat endpoint: the turn loop of ``search.rollout`` without tokens of our own."""

from collections.abc import Callable, Sequence
from typing import Any

from autotools.llm.replies import Conversation, Reply
from autotools.search.episode import Episode, SearchBatch

Complete = Callable[[Sequence[dict[str, Any]]], list[Reply | str]]
"""(request bodies) -> per request a reply, or the reason why there is none."""


def run_chats(complete: Complete, episodes: Sequence[Episode], search_batch: SearchBatch) -> dict[int, str]:
    """Play all episodes to their end; all requests of a turn go out together, then all searches in one call.

    Returns, by position, why an episode has no end: its request failed for good, so nothing is known about its answer.
    Raises RetrieverError as the engine does.
    """
    conversations = [Conversation.of(episode) for episode in episodes]
    failed: dict[int, str] = {}
    live = list(range(len(episodes)))
    while live:
        replies = complete([conversations[i].body() for i in live])
        for i, reply in zip(live, replies, strict=True):
            if isinstance(reply, str):
                failed[i] = reply
            else:
                conversations[i].take(reply)
        asking = [i for i in live if episodes[i].request is not None]
        if asking:
            queries, categories = zip(*(episodes[i].request or ("", None) for i in asking), strict=True)
            results = search_batch(queries, categories, episodes[asking[0]].settings.top_k)
            for i, hits in zip(asking, results, strict=True):
                episodes[i].observe(hits)
        live = [i for i in live if i not in failed and not episodes[i].done and conversations[i].show()]
    return failed
