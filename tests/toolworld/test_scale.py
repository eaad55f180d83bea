"""Scaled corpora: sizes, uniqueness, repeatability, how alike the copies are, and that BM25 can search them."""

import runpy
from collections import Counter
from pathlib import Path

import pytest

from autotools.categories import TOOLBENCH_CATEGORIES
from autotools.errors import ConfigError
from autotools.rundir import read_manifest
from autotools.schema import ToolSpec
from retriever.bm25 import BM25Engine
from retriever.corpus import document_texts, load_tools
from toolworld.build import main
from toolworld.scale import scaled_specs
from toolworld.world import World, build_world


@pytest.fixture(scope="module")
def world() -> World:
    return build_world(0)


@pytest.fixture(scope="module")
def specs(world: World) -> list[ToolSpec]:
    return list(scaled_specs(world, 2000))


def test_declared_tools_come_first_and_ids_are_unique(world: World, specs: list[ToolSpec]) -> None:
    assert specs[:108] == world.tool_specs()
    assert len({str(spec.id) for spec in specs}) == 2000
    assert all(all(str(spec.id).rsplit(".", 2)) for spec in specs)


def test_a_longer_corpus_starts_with_the_shorter_one(world: World, specs: list[ToolSpec]) -> None:
    assert list(scaled_specs(world, 500)) == specs[:500]
    assert list(scaled_specs(world, 500, seed=1))[108:] != specs[108:500]


def test_categories_are_skewed_and_all_there(specs: list[ToolSpec]) -> None:
    counts = Counter(spec.id.category for spec in specs)
    assert set(counts) == set(TOOLBENCH_CATEGORIES)
    ranked = [n for _, n in counts.most_common()]
    assert 0.12 < ranked[0] / len(specs) < 0.32  # Zipf: 0.22
    assert sum(ranked[:10]) > 0.5 * len(specs) > 20 * sum(ranked[-10:]) / 2
    apis = sorted(Counter((spec.id.category, spec.id.tool) for spec in specs[108:]).values())
    assert apis[len(apis) // 2] <= 2 and max(apis) > 20


def test_near_duplicates_are_many_and_equal_texts_rare(specs: list[ToolSpec]) -> None:
    descriptions = Counter(spec.description for spec in specs)
    assert len(descriptions) > 0.95 * len(specs)
    assert len(set(document_texts(specs))) == len(specs)
    bags = [frozenset(spec.description.lower().strip(".").split()) for spec in specs]
    sample = bags[108:308]
    close = sum(max(len(a & b) / len(a | b) for b in bags if b is not a) >= 0.5 for a in sample)
    assert close > 0.8 * len(sample)  # nearly each has another one that shares half of its words


def test_bm25_indexes_it_and_finds_a_declared_tool(world: World, specs: list[ToolSpec]) -> None:
    engine = BM25Engine(specs)
    assert engine.categories == tuple(sorted(TOOLBENCH_CATEGORIES))
    asked = [ref for ref in world.refs.values() if ref.operation.kind == "past"]
    hits = engine.search_batch([f"{ref.resource.display_name} {ref.operation.description}" for ref in asked], k=5)
    assert all(ref.id in [hit.id for hit in found] for ref, found in zip(asked, hits, strict=True))


def test_command_writes_documents_only_and_the_same_bytes(tmp_path: Path, specs: list[ToolSpec], capsys) -> None:
    for name in ("a", "b"):
        assert main(["--out", str(tmp_path / name), "--num_tools", "2000"]) == 0
    assert "2000 tools in 49 categories" in capsys.readouterr().out
    assert {p.name for p in (tmp_path / "a").iterdir()} == {
        "tools.jsonl", "manifest.json", "run.json", "run_config.json",
    }  # fmt: skip
    for name in ("tools.jsonl", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert load_tools(tmp_path / "a") == specs
    assert read_manifest(tmp_path / "a")["counts"]["tools"] == 2000


@pytest.mark.parametrize("number", [-1, 1, 107])
def test_too_few_are_refused_before_a_folder_is_made(tmp_path: Path, number: int) -> None:
    with pytest.raises(ConfigError, match=f"{number};"):
        main(["--out", str(tmp_path / "w"), "--num_tools", str(number)])
    assert not (tmp_path / "w").exists()


def test_benchmark_prints_one_row_per_size(capsys) -> None:
    main = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "world_scale.py"))["main"]
    assert main(["200", "1000"]) == 0
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == ["200", "1,000"]
    assert all(float(row[6]) > 1 for row in rows)  # faster than scoring in plain Python
    assert main(["many"]) == 2 and "'many'" in capsys.readouterr().err
