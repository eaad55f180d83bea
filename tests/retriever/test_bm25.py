"""BM25 engine against a plain re-computation of the Lucene formula in Python floats, and against laws it must keep."""

import math
import random
from collections import Counter

import bm25s
import numpy as np
import pytest

from autotools.errors import ConfigError, RetrieverError, UnknownCategoryError
from autotools.schema import ToolId, ToolSpec
from retriever.bm25 import BM25Engine, singular, tie_key, tokenize
from retriever.corpus import document_text
from retriever.engine import SearchEngine, open_engine

WORDS = "price hotel room flight alert list send link file order forecast now past top new edit on off city".split()


def _corpus(size: int, seed: int) -> list[ToolSpec]:
    rng = random.Random(seed)
    specs = []
    for number in range(size):
        words = [rng.choice(WORDS) for _ in range(rng.randint(1, 9))]
        tool_id = ToolId(category=rng.choice("ABC"), tool=f"t{number}", api="_".join(words[:2]))
        specs.append(ToolSpec(id=tool_id, tool_name="x", api_name="y", description=" ".join(words)))
    return specs


def _brute_force(specs: list[ToolSpec], query: str) -> dict[str, float]:
    """Lucene BM25, k1 1.5, b 0.75: idf = ln(1 + (N - df + .5) / (df + .5)); tf / (tf + k1 (1 - b + b len/avg))."""
    docs = [Counter(tokenize(document_text(spec))) for spec in specs]
    average = sum(sum(doc.values()) for doc in docs) / len(docs)
    out = {}
    for spec, doc in zip(specs, docs, strict=True):
        total = 0.0
        for word in tokenize(query):
            frequency = sum(word in other for other in docs)
            if doc[word]:
                idf = math.log(1 + (len(docs) - frequency + 0.5) / (frequency + 0.5))
                total += idf * doc[word] / (doc[word] + 1.5 * (1 - 0.75 + 0.75 * sum(doc.values()) / average))
        if total > 0:
            out[str(spec.id)] = total
    return out


def _expected(specs: list[ToolSpec], query: str, category: str | None, k: int) -> list[str]:
    scores = _brute_force(specs, query)
    if category:
        scores = {i: s for i, s in scores.items() if i.startswith(category + ".")}
    return sorted(scores, key=lambda i: (-round(scores[i], 6), tie_key(i)))[:k]


def _queries(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [
        " ".join(rng.choice([*WORDS, "unknownword", "the"]) for _ in range(rng.randint(1, 6))) for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_equals_brute_force_with_and_without_category(seed):
    specs = _corpus(60, seed)
    engine = BM25Engine(specs)
    queries = _queries(40, seed)
    rng = random.Random(seed)
    categories = [rng.choice(["A", "B", "C", None]) for _ in queries]
    for k in (1, 5, 100):
        for query, category, hits in zip(queries, categories, engine.search_batch(queries, categories, k), strict=True):
            assert [str(hit.id) for hit in hits] == _expected(specs, query, category, k)
            scores = _brute_force(specs, query)
            assert all(math.isclose(hit.score, scores[str(hit.id)], abs_tol=1e-5) for hit in hits)


def test_order_of_corpus_queries_and_words_does_not_matter():
    specs = _corpus(60, 7)
    shuffled = random.Random(1).sample(specs, len(specs))
    queries = _queries(30, 7)
    straight = BM25Engine(specs).search_batch(queries)
    assert BM25Engine(shuffled).search_batch(queries) == straight
    assert BM25Engine(specs).search_batch(queries[::-1])[::-1] == straight
    assert BM25Engine(specs).search_batch([" ".join(q.split()[::-1]) for q in queries]) == straight
    assert BM25Engine(specs, cache_size=2).search_batch(queries * 2) == straight * 2


def test_no_fillers_for_unknown_or_empty_queries():
    engine = BM25Engine(_corpus(20, 0))
    assert engine.search_batch(["zzz qqq", "", "the of a", "?!"]) == [[], [], [], []]
    assert engine.search_batch([]) == []
    hits = engine.search_batch(["hotel"], k=20)[0]
    holders = [spec for spec in engine.specs if "hotel" in tokenize(document_text(spec))]
    assert 0 < len(hits) == len(holders) < 20 and all(hit.score > 0 for hit in hits)


def test_ties_are_fixed_and_favour_no_side_of_a_pair():
    pairs = [(f"t{n}", api) for n in range(200) for api in ("alert_off", "alert_on")]
    specs = [
        ToolSpec(id=ToolId(category="A", tool=t, api=api), tool_name=t, api_name="same", description="common text")
        for t, api in pairs
    ]
    hits = BM25Engine(specs).search_batch(["common"], k=400)[0]
    place = {str(hit.id): rank for rank, hit in enumerate(hits)}
    off_first = sum(place[f"A.t{n}.alert_off"] < place[f"A.t{n}.alert_on"] for n in range(200))
    assert len(set(hit.score for hit in hits)) == 1
    assert 60 < off_first < 140  # alphabetical order would give 200; a fair coin leaves 60..140 once in 10^8


def test_bad_requests_are_typed():
    engine = BM25Engine(_corpus(20, 0))
    with pytest.raises(RetrieverError, match="k must be 1 or more, got 0"):
        engine.search_batch(["hotel"], k=0)
    with pytest.raises(RetrieverError, match="2 queries but 1 categories"):
        engine.search_batch(["hotel", "room"], ["A"])
    specs = [ToolSpec(id=ToolId(category="Travel", tool="inn", api="price"), tool_name="inn", api_name="price")]
    with pytest.raises(UnknownCategoryError, match="'travle'; close names: Travel"):
        BM25Engine(specs).search_batch(["inn"], ["travle"])
    with pytest.raises(RetrieverError, match="occurs twice"):
        BM25Engine(specs * 2)
    with pytest.raises(RetrieverError, match="no document holds a word"):
        BM25Engine([])


@pytest.mark.parametrize(
    "text, words",
    [
        ("getUserInfo", ["get", "user", "info"]),
        ("hotel_desk price_now", ["hotel", "desk", "price", "now"]),
        ("HTTPServer v2", ["http", "server", "v2"]),
        ("Prices of the cities, on/off", ["price", "city", "on", "off"]),
        ("what's the bus status", ["bus", "status"]),
    ],
)
def test_tokenizer_splits_identifiers_and_keeps_telling_words(text, words):
    assert tokenize(text) == words


def test_singular_hand_worked():
    words = {"prices": "price", "cities": "city", "courses": "course", "gas": "gas", "class": "class", "bus": "bus"}
    assert {word: singular(word) for word in words} == words


def test_open_engine(tmp_path):
    (tmp_path / "tools.jsonl").write_text("".join(spec.model_dump_json() + "\n" for spec in _corpus(10, 0)))
    engine = open_engine(tmp_path)
    assert isinstance(engine, SearchEngine) and set(engine.categories) <= {"A", "B", "C"}
    with pytest.raises(ConfigError, match="known: bm25"):
        open_engine(tmp_path, "bm52")


def test_large_corpus_equals_bm25s_scores_sorted():
    """Above a few hundred tools candidates are cut by blocks, and common words are stored in full: both must be exact.

    Oracle: bm25s's own scores of every document, rounded and sorted whole. Scores repeat, so ties cross every cut.
    """
    specs = _corpus(3000, 5)
    engine = BM25Engine(specs)
    peer = bm25s.BM25(method="lucene", k1=1.5, b=0.75, dtype="float64", backend="numpy")
    peer.index([tokenize(document_text(spec)) for spec in specs], show_progress=False)
    names = [str(spec.id) for spec in specs]
    rng = random.Random(5)
    stored_in_full = [isinstance(rows, slice) for rows, _ in engine._weights._postings.values()]
    assert any(stored_in_full) and not all(stored_in_full)
    for query in _queries(25, 5):
        known = peer.get_tokens_ids(sorted(tokenize(query)))
        scores = np.round(peer.get_scores_from_ids(known), 6) if known else np.zeros(len(specs))
        order = sorted(np.flatnonzero(scores > 0).tolist(), key=lambda row: (-scores[row], tie_key(names[row])))
        for k in (1, 5, 45, 47, 500, 4000):
            assert [str(hit.id) for hit in engine.search_batch([query], k=k)[0]] == [names[row] for row in order[:k]]
        category = rng.choice("ABC")
        inside = [names[row] for row in order if names[row].startswith(f"{category}.")]
        assert [str(hit.id) for hit in engine.search_batch([query], [category], k=7)[0]] == inside[:7]


def test_scores_that_are_ties_only_after_rounding_are_ordered_by_the_hash():
    specs = _corpus(2000, 6)
    engine = BM25Engine(specs)
    rng = random.Random(6)
    nearly_equal = np.array([1 + 4e-7 * rng.random() for _ in specs])
    engine._weights.scores = lambda words: nearly_equal
    expected = sorted((str(spec.id) for spec in specs), key=tie_key)[:20]
    assert [str(hit.id) for hit in engine.search_batch(["hotel"], k=20)[0]] == expected


def test_counters_and_prefetch():
    engine = BM25Engine(_corpus(20, 0))
    engine.prefetch(["hotel"])
    assert set(engine.counters().values()) == {0}
    engine.search_batch(["hotel", "room", "hotel"], ["A", None, "A"])
    engine.search_batch(["hotel", "hotel"], ["A", None])
    assert engine.counters() == {"calls": 2, "queries": 5, "distinct": 4, "cache_hits": 1, "encoder_batches": 0}


def test_a_query_of_100_kilobytes_is_searched():
    engine = BM25Engine(_corpus(200, 0))
    assert engine.search_batch(["hotel " * 17_000])[0][0].id == engine.search_batch(["hotel"])[0][0].id
    assert engine.search_batch(["\0\ud83d" * 1000]) == [[]]
