"""BM25 over tool documents: bm25s weighs the words; here are identifier-aware tokens, categories and a fixed tie order.

Contract: a hit always has score > 0 (bm25s would pad with score-0 fillers, which a policy would be trained on), so a
query without any known word gives an empty list. Idf is that of the whole corpus, with a category filter, too.
Leaves out: stemming beyond plurals, phrases, spelling.
"""

import hashlib
import re
from collections import Counter, OrderedDict
from collections.abc import Sequence

import bm25s
import numpy as np
from bm25s.stopwords import STOPWORDS_EN_PLUS

from autotools.errors import RetrieverError
from autotools.schema import Hit, ToolSpec
from retriever.categories import wanted_categories
from retriever.corpus import TEMPLATE_VERSION, document_texts, short_text

METHOD, K1, B = "lucene", 1.5, 0.75  # the Lucene variant never gives a common word zero or negative weight
SCORE_DECIMALS = 6  # scores equal to this many decimals are ties
BLOCK = 64  # documents whose best score stands for them in the first cut
COMMON = 8  # a word in more than one of so many documents is common
TOKENIZER_VERSION = "identifier-split+plural-s/1"

# These small words tell near-duplicate tools apart (alert_on / alert_off, price_now / price_before, list_all).
_MEANINGFUL = {
    "above", "after", "all", "before", "below", "between", "down", "few", "more", "most", "no", "not", "now",
    "off", "on", "out", "over", "under", "until", "up",
}  # fmt: skip
STOP_WORDS = frozenset(STOPWORDS_EN_PLUS) - _MEANINGFUL

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def tokenize(text: str) -> list[str]:
    """Words of a text or identifier: ``getUserInfo``, ``hotel_desk`` and ``HTTPServer`` split, lower case.

    English stop words go (the few that distinguish tools stay), plural endings are stripped by ``singular``.
    """
    words = (part.lower() for word in _WORD.findall(text) for part in _CAMEL.split(word))
    return [singular(word) for word in words if word not in STOP_WORDS]


def singular(word: str) -> str:
    """Strip an English plural ending: Harman's S-stemmer (1991), for words over three letters only."""
    if len(word) <= 3 or not word.endswith("s"):
        return word
    if word.endswith("ies") and not word.endswith(("aies", "eies")):
        return word[:-3] + "y"
    if word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1]
    return word if word.endswith(("us", "ss")) else word[:-1]


def tie_key(tool_id: str) -> str:
    """Pseudo-random but fixed order among equal scores: hash of the id.

    Alphabetical order would systematically favour one member of every near-duplicate pair (``alert_off`` before
    ``alert_on``), and a policy can learn that instead of searching well.
    """
    return hashlib.blake2b(tool_id.encode(), digest_size=8).hexdigest()


class BM25Engine:
    """Exact top-k search over a fixed set of tools; safe to call inside every rollout turn.

    Results do not depend on the order of ``specs``. Repeated (query, category, k) come from an LRU cache.
    Raises RetrieverError if ``specs`` is empty, holds an id twice, or no document has a word.
    """

    def __init__(self, specs: Sequence[ToolSpec], cache_size: int = 50_000) -> None:
        ids = [str(spec.id) for spec in specs]
        if twice := [name for name, number in Counter(ids).items() if number > 1]:
            raise RetrieverError(f"tool id {twice[0]} occurs twice in the corpus; drop one (load_tools does)")
        tokens = [tokenize(text) for text in document_texts(specs)]
        if not any(tokens):
            raise RetrieverError(f"cannot index {len(ids)} tools: no document holds a word")
        self.specs = tuple(specs)
        self._weights = _Weights(tokens)
        self._tie_rank = np.empty(len(ids), dtype=np.int64)
        self._tie_rank[sorted(range(len(ids)), key=lambda i: tie_key(ids[i]))] = np.arange(len(ids))
        self._members = _rows_by_category(specs)
        self._texts = [short_text(spec) for spec in specs]
        self._cache: OrderedDict[tuple[str, str | None, int], tuple[Hit, ...]] = OrderedDict()
        self._cache_size = cache_size
        self._counters = dict.fromkeys(("calls", "queries", "distinct", "cache_hits", "encoder_batches"), 0)

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories a search may be restricted to, sorted."""
        return tuple(sorted(self._members))

    def describe(self) -> dict[str, str | int | float]:
        """What decides its results beside the documents; goes into manifests."""
        return {
            "engine": "bm25",
            "bm25s": bm25s.__version__,
            "method": METHOD,
            "k1": K1,
            "b": B,
            "tokenizer": TOKENIZER_VERSION,
            "template": TEMPLATE_VERSION,
            "tools": len(self.specs),
        }

    def counters(self) -> dict[str, int]:
        """Work so far. ``distinct``: different keys per call, summed; ``cache_hits``: those that were in the cache."""
        return dict(self._counters)

    def prefetch(self, queries: Sequence[str]) -> None:
        """Nothing to do: there is no encoder whose work could be done ahead."""

    def search_batch(
        self, queries: Sequence[str], categories: Sequence[str | None] | None = None, k: int = 5
    ) -> list[list[Hit]]:
        """Best ``k`` tools per query, one list per query, same order; fewer when fewer score above 0.

        ``categories[i]`` restricts query i to one raw category (None: whole corpus). Order: rounded score
        descending, then ``tie_key``. Raises UnknownCategoryError (lists close names), RetrieverError on k < 1 or
        lengths that differ.
        """
        wanted = wanted_categories(queries, categories, k, self._members)
        found: dict[tuple[str, str | None], tuple[Hit, ...]] = {}
        for key in dict.fromkeys(zip(queries, wanted, strict=True)):
            found[key] = self._cached(*key, k)
        self._counters["calls"] += 1
        self._counters["queries"] += len(queries)
        self._counters["distinct"] += len(found)
        return [list(found[key]) for key in zip(queries, wanted, strict=True)]

    def _cached(self, query: str, category: str | None, k: int) -> tuple[Hit, ...]:
        key = (query, category, k)
        hits = self._cache.get(key)
        if hits is None:
            hits = self._cache[key] = self._search(query, category, k)
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        else:
            self._counters["cache_hits"] += 1
            self._cache.move_to_end(key)
        return hits

    def _search(self, query: str, category: str | None, k: int) -> tuple[Hit, ...]:
        # Sorted: a sum of floats depends on its order, and word order must not decide a tie.
        all_scores = self._weights.scores(sorted(tokenize(query)))
        if all_scores is None:
            return ()
        members = None if category is None else self._members[category]
        scores = all_scores if members is None else all_scores[members]
        rows = np.flatnonzero(scores >= _lower_bound(scores, k) - 10.0**-SCORE_DECIMALS)
        rounded = np.round(scores[rows], SCORE_DECIMALS)
        rows, rounded = rows[rounded > 0], rounded[rounded > 0]
        if members is not None:
            rows = members[rows]
        order = np.lexsort((self._tie_rank[rows], -rounded))[:k]
        return tuple(
            Hit(id=self.specs[row].id, score=score, document=self._texts[row])
            for row, score in zip(rows[order].tolist(), rounded[order].tolist(), strict=True)
        )


def _lower_bound(scores: np.ndarray, k: int) -> float:
    """A value that at least ``k`` scores reach, close to the k-th best: rounding and sorting all is the slow part.

    It is the k-th best of the maxima of blocks: each of k blocks then holds such a score.
    """
    blocks = len(scores) // BLOCK
    if blocks <= k:
        return 0.0
    maxima = scores[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
    return float(np.partition(maxima, -k)[-k])


class _Weights:
    """BM25 weight of every (word, document), as bm25s computes it, stored by word.

    A common word has a weight (mostly 0) for every document instead of a list of rows: adding that is several times
    faster.
    """

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        index = bm25s.BM25(method=METHOD, k1=K1, b=B, dtype="float64", backend="numpy")
        index.index(documents, show_progress=False)
        starts = index.scores["indptr"].tolist()
        # intp: numpy would convert any other index type at every use
        all_rows, all_weights = index.scores["indices"].astype(np.intp), index.scores["data"]
        self._postings: dict[str, tuple[np.ndarray | slice, np.ndarray]] = {}
        for word, number in index.vocab_dict.items():
            if number + 1 >= len(starts):  # bm25s adds the empty word to the vocabulary
                continue
            part = slice(starts[number], starts[number + 1])
            rows, weights = all_rows[part], all_weights[part]
            if len(rows) * COMMON > len(documents):
                full = np.zeros(len(documents))
                full[rows] = weights
                self._postings[word] = (slice(None), full)
            else:
                self._postings[word] = (rows, weights)
        self._num_documents = len(documents)

    def scores(self, words: Sequence[str]) -> np.ndarray | None:
        """Sum of the weights of ``words`` per document [n], float64; None if no word is known.

        bm25s's own loop adds with ``np.add.at``, which allows for a row that occurs twice and is several times slower;
        in one posting list a row occurs once.
        """
        postings = [self._postings[word] for word in words if word in self._postings]
        if not postings:
            return None
        scores = np.zeros(self._num_documents)
        for rows, weights in postings:
            scores[rows] += weights
        return scores


def _rows_by_category(specs: Sequence[ToolSpec]) -> dict[str, np.ndarray]:
    rows: dict[str, list[int]] = {}
    for row, spec in enumerate(specs):
        rows.setdefault(spec.id.category, []).append(row)
    return {category: np.array(members, dtype=np.int64) for category, members in rows.items()}
