"""BM25 over tool documents: bm25s scores, this file adds identifier-aware tokens, categories and a fixed tie order.

Contract: a hit always has score > 0 (bm25s would pad with score-0 fillers, which a policy would be trained on), so a
query without any known word gives an empty list. Idf is that of the whole corpus, with a category filter, too.
Leaves out: stemming beyond plurals, phrases, spelling.
"""

import difflib
import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence

import bm25s
import numpy as np
from bm25s.stopwords import STOPWORDS_EN_PLUS

from autotools.errors import RetrieverError, UnknownCategoryError
from autotools.schema import Hit, ToolSpec
from retriever.corpus import TEMPLATE_VERSION, document_texts, short_text

METHOD, K1, B = "lucene", 1.5, 0.75  # the Lucene variant never gives a common word zero or negative weight
SCORE_DECIMALS = 6  # scores equal to this many decimals are ties
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
        self._ids = [str(spec.id) for spec in specs]
        if len(set(self._ids)) != len(self._ids):
            twice = next(i for i in self._ids if self._ids.count(i) > 1)
            raise RetrieverError(f"tool id {twice} occurs twice in the corpus; drop one (load_tools does)")
        tokens = [tokenize(text) for text in document_texts(specs)]
        if not any(tokens):
            raise RetrieverError(f"cannot index {len(self._ids)} tools: no document holds a word")
        self.specs = tuple(specs)
        self._bm25 = bm25s.BM25(method=METHOD, k1=K1, b=B, dtype="float64", backend="numpy")
        self._bm25.index(tokens, show_progress=False)
        by_tie = sorted(range(len(self._ids)), key=lambda i: tie_key(self._ids[i]))
        self._tie_rank = np.empty(len(self._ids), dtype=np.int64)
        self._tie_rank[by_tie] = np.arange(len(self._ids))
        self._members = _rows_by_category(specs)
        self._texts = [short_text(spec) for spec in specs]
        self._cache: OrderedDict[tuple[str, str | None, int], tuple[Hit, ...]] = OrderedDict()
        self._cache_size = cache_size

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

    def search_batch(
        self, queries: Sequence[str], categories: Sequence[str | None] | None = None, k: int = 5
    ) -> list[list[Hit]]:
        """Best ``k`` tools per query, one list per query, same order; fewer when fewer score above 0.

        ``categories[i]`` restricts query i to one raw category (None: whole corpus). Order: rounded score
        descending, then ``tie_key``. Raises UnknownCategoryError (lists close names), RetrieverError on k < 1 or
        lengths that differ.
        """
        if k < 1:
            raise RetrieverError(f"k must be 1 or more, got {k}")
        wanted = [None] * len(queries) if categories is None else list(categories)
        if len(wanted) != len(queries):
            raise RetrieverError(f"{len(queries)} queries but {len(wanted)} categories; give one (or None) per query")
        for category in set(wanted):
            self._check_category(category)
        return [list(self._cached(query, category, k)) for query, category in zip(queries, wanted, strict=True)]

    def _check_category(self, category: str | None) -> None:
        if category is None or category in self._members:
            return
        lowered = {name.lower(): name for name in self.categories}
        close = [lowered[name] for name in difflib.get_close_matches(category.lower(), lowered, n=3, cutoff=0.5)]
        hint = f"close names: {', '.join(close)}" if close else f"known: {', '.join(self.categories)}"
        raise UnknownCategoryError(f"unknown category {category!r}; {hint}")

    def _cached(self, query: str, category: str | None, k: int) -> tuple[Hit, ...]:
        key = (query, category, k)
        hits = self._cache.get(key)
        if hits is None:
            hits = self._cache[key] = self._search(query, category, k)
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return hits

    def _search(self, query: str, category: str | None, k: int) -> tuple[Hit, ...]:
        # Sorted: a sum of floats depends on its order, and word order must not decide a tie.
        token_ids = self._bm25.get_tokens_ids(sorted(tokenize(query)))
        if not token_ids:
            return ()
        scores = np.round(self._bm25.get_scores_from_ids(token_ids), SCORE_DECIMALS)
        rows = np.flatnonzero(scores > 0)
        if category is not None:
            rows = np.intersect1d(rows, self._members[category], assume_unique=True)
        if len(rows) > k:  # cut to the k-th score first, ties included: sorting 16k rows per query is the slow part
            rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
        order = rows[np.lexsort((self._tie_rank[rows], -scores[rows]))][:k]
        return tuple(Hit(id=self.specs[i].id, score=float(scores[i]), document=self._texts[i]) for i in order)


def _rows_by_category(specs: Sequence[ToolSpec]) -> dict[str, np.ndarray]:
    rows: dict[str, list[int]] = {}
    for row, spec in enumerate(specs):
        rows.setdefault(spec.id.category, []).append(row)
    return {category: np.array(members, dtype=np.int64) for category, members in rows.items()}
