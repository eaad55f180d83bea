"""The reachability ceiling: how many targets a searcher can see at all with this engine, k and number of searches.

Separates a failure of the engine from one of the policy. Three searchers, each sees ``turns * k`` results at most:

- ``own_document``: one search per target with the whole text that is indexed for it, ``turns`` searches, k hits each.
  What is missed here stands behind its own near duplicates, or there are more targets than searches.
- ``own_description``: the same with the description alone, as it is shown to the searcher.
- ``user_query``: one search with the request as it is, and its first ``turns * k`` results.

A searcher that words its query better than the document itself could see more; none is known to.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from autotools.schema import Task, ToolId, ToolSpec
from retriever.engine import SearchEngine
from retriever.ranking_metrics import summary
from retriever.render import document_text, short_text


def ceiling(
    engine: SearchEngine,
    tasks: Sequence[Task],
    specs: Mapping[ToolId, ToolSpec],
    *,
    turns: int,
    k: int,
    constrained: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """``{"turns", "k", SEARCHER: summary of {"share", "all"}, "by_request": {task id: {SEARCHER: share}}}``.

    ``share``: share of a request's targets seen; ``all``: 1.0 if all are. ``constrained`` and errors: ``shares_seen``.
    """
    shares = shares_seen(engine, tasks, specs, turns=turns, k=k, constrained=constrained)
    out: dict[str, Any] = {"turns": turns, "k": k}
    for name, values in shares.items():
        out[name] = summary([{"share": share, "all": float(share == 1)} for share in values], seed)
    rows = zip(*shares.values(), strict=True)
    out["by_request"] = {task.id: dict(zip(shares, row, strict=True)) for task, row in zip(tasks, rows, strict=True)}
    return out


def shares_seen(
    engine: SearchEngine,
    tasks: Sequence[Task],
    specs: Mapping[ToolId, ToolSpec],
    *,
    turns: int,
    k: int,
    constrained: bool = False,
) -> dict[str, list[float]]:
    """Per searcher, the share of targets seen of each request, in the order of ``tasks``.

    ``constrained``: each search is in the category of its target (``user_query``, which has none: left out).
    Raises KeyError for a target that ``specs`` does not hold, RetrieverError as the engine does.
    """
    seen: dict[str, list[set[ToolId]]] = {}
    targets = list(dict.fromkeys(target for task in tasks for target in task.targets))
    categories = [target.category for target in targets] if constrained else None
    for name, text_of in (("own_document", document_text), ("own_description", short_text)):
        texts = [text_of(specs[target]) for target in targets]
        hits = engine.search_batch(texts, categories, k)
        shown = {target: {hit.id for hit in found} for target, found in zip(targets, hits, strict=True)}
        seen[name] = [best_searches(task.targets, shown, turns) for task in tasks]
    if not constrained:
        hits = engine.search_batch([task.query for task in tasks], None, turns * k)
        seen["user_query"] = [
            {hit.id for hit in found} & set(task.targets) for task, found in zip(tasks, hits, strict=True)
        ]
    return {
        name: [len(found) / len(set(task.targets)) for task, found in zip(tasks, sets, strict=True)]
        for name, sets in seen.items()
    }


def best_searches(targets: Sequence[ToolId], shown: Mapping[ToolId, set[ToolId]], turns: int) -> set[ToolId]:
    """Targets seen by at most ``turns`` searches, each for one target; the search that shows most new ones comes first.

    ``shown``: per target, what a search for it shows. Exact where there are no more targets than searches; else at
    least 63 % of the best choice (greedy maximum coverage).
    """
    wanted, seen = set(targets), set()
    for _ in range(min(turns, len(wanted))):
        new = max((shown[target] & wanted - seen for target in targets), key=len)
        if not new:
            break
        seen |= new
    return seen
