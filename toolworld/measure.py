"""Is searching needed? Figures about a task set that the build prints: what one search with the raw request reaches.

A deliberately small BM25 of its own: this package lies below ``retriever``, and the figure must not move when the
retriever is improved.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from statistics import mean, median

from autotools.schema import Task, ToolId, ToolSpec

_STOP = frozenset("a an the of in for to is at by it and i me my this that what which how do did".split())
K1, B = 1.5, 0.75


def words(text: str) -> list[str]:
    """Lower-case words without stop words; ids such as ``hotel_desk.price_now`` fall into their words."""
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _STOP]


class SmallBM25:
    """BM25 (Robertson, k1 1.5, b 0.75) over ``id: description``; ties are ordered by a hash, never by name."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self.ids = [spec.id for spec in specs]
        self.docs = [Counter(words(f"{spec.id}: {spec.description}")) for spec in specs]
        self.length = mean(doc.total() for doc in self.docs)
        known = Counter(word for doc in self.docs for word in doc)
        self.idf = {w: math.log(1 + (len(specs) - n + 0.5) / (n + 0.5)) for w, n in known.items()}

    def top(self, query: str, k: int) -> list[ToolId]:
        """The best ``k`` tools for a query."""
        asked = [word for word in words(query) if word in self.idf]
        scored = []
        for tool, doc in zip(self.ids, self.docs, strict=True):
            norm = K1 * (1 - B + B * doc.total() / self.length)
            score = sum(self.idf[w] * doc[w] * (K1 + 1) / (doc[w] + norm) for w in asked)
            scored.append((-score, hashlib.sha256(f"{tool}|{query}".encode()).hexdigest(), tool))
        return [tool for _, _, tool in sorted(scored, key=lambda item: item[:2])[:k]]


def _f1(answer: Sequence[ToolId], targets: Sequence[ToolId]) -> float:
    return 2 * len(set(answer) & set(targets)) / (len(answer) + len(targets))


def one_shot_f1(tasks: Sequence[Task], engine: SmallBM25, max_k: int = 5) -> tuple[float, int]:
    """Mean F1 in [0, 1] of answering with the top k of one raw-request search, for the best k of 1..max_k; that k."""
    ranked = [(engine.top(task.query, max_k), task.targets) for task in tasks]
    return max((mean(_f1(hits[:k], targets) for hits, targets in ranked), k) for k in range(1, max_k + 1))


def searches_needed(task: Task, descriptions: dict[ToolId, str], engine: SmallBM25, k: int = 3) -> int:
    """Searches until all targets were seen, if each search asks for a target in its document's own words.

    Greedy: a target that an earlier search has already shown is not searched for.
    """
    seen: set[ToolId] = set()
    count = 0
    for target in task.targets:
        if target not in seen:
            count += 1
            seen.update(engine.top(descriptions[target], k))
    return count


def search_figures(tasks: Sequence[Task], specs: Sequence[ToolSpec]) -> dict[str, dict[str, float]]:
    """Per level: ``n``, ``one_shot_f1`` with its ``best_k``, and ``median_searches`` of the ideal searcher."""
    engine = SmallBM25(specs)
    descriptions = {spec.id: spec.description for spec in specs}
    figures: dict[str, dict[str, float]] = {}
    for level in sorted({task.level for task in tasks}):
        chosen = [task for task in tasks if task.level == level]
        f1, k = one_shot_f1(chosen, engine)
        needed = median(searches_needed(task, descriptions, engine) for task in chosen)
        figures[level] = {"n": len(chosen), "one_shot_f1": round(f1, 3), "best_k": k, "median_searches": needed}
    return figures
