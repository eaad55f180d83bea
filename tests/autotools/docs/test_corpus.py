"""API corpus reader: made-up odd rows by hand, then the real corpus against the keys that its own file gives."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.corpus import matches, read, read_api_corpus
from autotools.docs.files import head_of
from autotools.docs.reading import MAX_TEXT_CHARS
from autotools.errors import DataError
from autotools.schema import ToolId


def row(**changes: Any) -> dict[str, Any]:
    return {
        "docid": 7, "category_name": "News_Media", "tool_name": "Daily News!", "api_name": "/v1/Top-Stories",
        "api_description": "top stories", "method": "get", "std_key": "ignored",
        "required_parameters": [{"name": "day", "type": "NUMBER", "description": "which day", "default": ""}],
        "optional_parameters": [{"name": "lang", "type": "ENUM", "description": "", "default": "en"}],
    } | changes  # fmt: skip


def corpus_file(folder: Path, *lines: Any, name: str = "corpus.jsonl") -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path, content = folder / name, "\n".join(texts).encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_row_becomes_a_spec(tmp_path: Path, name: str) -> None:
    found = read_api_corpus(corpus_file(tmp_path, row(template_response='{"a": "str"}'), name=name))
    (spec,) = found.specs
    assert str(spec.id) == "News_Media.daily_news.v1_top_stories"
    assert (spec.tool_name, spec.api_name, spec.method) == ("Daily News!", "/v1/Top-Stories", "GET")
    assert [(p.name, p.type, p.required, p.default) for p in spec.parameters] == [
        ("day", "number", True, None), ("lang", "string", False, "en"),
    ]  # fmt: skip
    assert spec.response == {"a": "string"} and spec.notes == ()
    assert (found.read, found.rejects, found.repaired) == (1, [], {})
    path = tmp_path / name
    assert matches(path, head_of(path)) and not matches(tmp_path / "a.json", head_of(path))


def test_unusable_rows_are_set_aside_with_line_and_reason(tmp_path: Path) -> None:
    bad: list[tuple[Any, str]] = [
        ("{broken", "not JSON"),
        ("[1]", "not a tool document"),
        ("[" * 5000 + "]" * 5000, "not JSON"),
        (row(api_name=None), "not a tool document"),
        ({k: v for k, v in row().items() if k != "tool_name"}, "not a tool document"),
        (row(required_parameters="day"), "not a tool document"),
        (row(tool_name=" -/- "), "empty name"),
        (row(category_name=" "), "empty name"),
        (row(tool_name="RAPIDAPI_KEY_PLACEHOLDER"), "name was a secret"),
        (row(tool_name="daily news", api_name="v1 top_stories"), "another document of an id that was read before"),
    ]
    found = read_api_corpus(corpus_file(tmp_path, row(), "", *(line for line, _ in bad), row(docid=8)))
    assert [(r["line"], r["reason"]) for r in found.rejects] == [(n + 3, why) for n, (_, why) in enumerate(bad)]
    assert found.rejects[-1]["detail"] == "News_Media.daily_news.v1_top_stories"
    assert {r["source"] for r in found.rejects} == {"corpus.jsonl"}
    assert (len(found.specs), found.repeated, len(found.rejects), found.read) == (1, 1, 10, 12)


def test_odd_but_usable_rows_are_mended_and_counted(tmp_path: Path) -> None:
    parameters = [
        {"name": "", "type": "STRING"}, {"type": "STRING"}, {"name": "q", "type": "", "description": "x" * 5000},
        {"name": "api_key", "type": "STRING", "default": "abc"}, {"name": "q", "type": "NUMBER"},
    ]  # fmt: skip
    wide = {f"k{n}": {"inner": {"leaf": "str"}} for n in range(600)}  # 22,000 characters
    rows = [
        row(api_name="a", api_description=None),
        row(api_name="b", api_description="y" * (MAX_TEXT_CHARS + 1)),
        row(api_name="c", required_parameters=parameters),
        row(api_name="d", template_response='{"cut": "st'),
        row(api_name="e", template_response=wide),
        row(api_name="f", template_response={"k": "z" * 30_000, "s": ["list of int with length 9"], "n": "NoneType"}),
    ]
    found = read_api_corpus(corpus_file(tmp_path, *rows))
    by_api = {spec.id.api: spec for spec in found.specs}
    assert (by_api["a"].description, len(by_api["b"].description)) == ("", MAX_TEXT_CHARS)
    assert [(p.name, len(p.description)) for p in by_api["c"].parameters] == [
        ("q", MAX_TEXT_CHARS), ("api_key", 0), ("lang", 0),
    ]  # fmt: skip
    assert by_api["c"].parameters[1].default is None
    assert by_api["d"].response is None
    assert by_api["e"].response == {f"k{n}": {"inner": "object"} for n in range(600)}
    assert by_api["f"].response == {"k": "string", "s": ["integer"], "n": "null"}
    assert Counter(found.repaired) == {
        "no description": 1, "description cut to … characters": 2, "parameter without name left out": 1,
        "parameter without type": 1, "parameter … is listed twice; the first one counts": 1,
        "value of the key … left out": 1, "response is cut JSON and left out": 1, "response template cut at depth …": 1,
    }  # fmt: skip


def test_a_file_without_anything_usable_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no usable API document; line 1: not JSON"):
        read_api_corpus(corpus_file(tmp_path, "{"))
    with pytest.raises(DataError, match="the file is empty"):
        read_api_corpus(corpus_file(tmp_path, ""))
    with pytest.raises(DataError, match="cannot read"):
        read_api_corpus(tmp_path / "none.jsonl")
    (tmp_path / "not.gz").write_text("plain text")
    with pytest.raises(DataError, match="cannot read"):
        read_api_corpus(tmp_path / "not.gz")
    whole = corpus_file(tmp_path, row(), name="whole.jsonl.gz").read_bytes()
    (tmp_path / "half.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot read"):
        read_api_corpus(tmp_path / "half.jsonl.gz")


@pytest.mark.shared
def test_real_corpus_agrees_with_its_own_keys(shared_data: Path) -> None:
    path = shared_data / "sources" / "toolbench_corpus" / "corpus.jsonl.gz"
    found = read(path)
    assert matches(path, head_of(path)) and found.repeated == 0
    rows = [json.loads(line) for line in gzip.open(path, "rt", encoding="utf-8")]
    assert found.read == len(rows) == 16_305 == len(found.specs) + len(found.rejects)
    assert Counter(r["reason"] for r in found.rejects) == {"name was a secret": 3}
    rejected = {r["line"] for r in found.rejects}
    used = [r for number, r in enumerate(rows, 1) if number not in rejected]
    keys = [ToolId(category=c, tool=t, api=a) for c, t, a in (r["std_key"].split("/") for r in used)]
    differ = [(str(key), str(spec.id)) for key, spec in zip(keys, found.specs, strict=True) if key != spec.id]
    assert sorted(differ) == [  # keys made of function names, where `id` is reserved
        ("Data.instagram_downloader.is_id", "Data.instagram_downloader.id"),
        ("Entertainment.ten_secretAPI_KEY_PLACEHOLDER.agen_mega_singapore",
         "Entertainment.ten_secrets_about_mega888_ios_download_that_has_never_been_revealed_for_the_past_years"
         ".agen_mega_singapore"),
        ("Gaming.chess_puzzles_v2.is_id", "Gaming.chess_puzzles_v2.id"),
    ]  # fmt: skip
    for wanted, spec in zip(used, found.specs, strict=True):
        required = list(dict.fromkeys(p["name"].strip() for p in wanted["required_parameters"]))
        named = [p["name"].strip() for p in wanted["optional_parameters"]]
        optional = dict.fromkeys(name for name in named if name not in required)
        assert [(p.name, p.required) for p in spec.parameters] == [(n, n in required) for n in (*required, *optional)]
