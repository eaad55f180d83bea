"""Corpus reading: nothing is lost, nothing bad is kept, errors are one line."""

import gzip
import json
import re

import pytest

from autotools.errors import DataError
from autotools.schema import ToolId, ToolParameter, ToolSpec
from retriever.corpus import load_tools, read_corpus


def _spec(tool: str, api: str) -> ToolSpec:
    return ToolSpec(
        id=ToolId(category="Travel", tool=tool, api=api),
        tool_name="Hotel Desk",
        api_name="Price now",
        description="current price of a hotel",
        tool_description="hotels of the coast",
        parameters=(ToolParameter(name="hotel_id", description="id of the hotel"), ToolParameter(name="page")),
    )


def test_bad_lines_are_rejects_and_counts_add_up(tmp_path, capsys):
    good = _spec("hotel_desk", "price_now").model_dump_json()
    other = _spec("hotel_desk", "price_past").model_dump_json()
    lines = [good, "{not json", "", good, json.dumps({"id": 3}), other, "[1]"]
    file = tmp_path / "tools.jsonl"
    file.write_text("\n".join(lines) + "\n")
    corpus = read_corpus(file)
    assert [spec.id.api for spec in corpus.specs] == ["price_now", "price_past"]
    assert [reject["line"] for reject in corpus.rejects] == [2, 4, 5, 7]
    assert "duplicate id: Travel.hotel_desk.price_now already stands in line 1" in corpus.rejects[1]["reason"]
    assert corpus.read == 6 == len(corpus.specs) + len(corpus.rejects)
    assert load_tools(tmp_path) == list(corpus.specs)
    first = "4 of 6 records set aside; first: line 2: not JSON: Expecting property name enclosed in double quotes"
    assert capsys.readouterr().err.startswith(f"warning: {file}: {first}")
    read_corpus(file)
    assert capsys.readouterr().err == ""  # said once; names and engine read the same corpus


@pytest.mark.parametrize("content", [None, "", "\n\n", "{}\n"])
def test_missing_or_unusable_corpus_is_one_clear_line(tmp_path, content):
    file = tmp_path / "tools.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError) as caught:
        load_tools(file)
    assert "tools.jsonl" in str(caught.value) and "\n" not in str(caught.value)


def _changed(**fields):
    return json.dumps({**_spec("hotel_desk", "price_now").model_dump(mode="json"), **fields}).encode()


@pytest.mark.parametrize(
    "line, reason",
    [
        (_changed().replace(b"coast", b"c\xff\xe9t"), r"not UTF-8: byte 0xff at byte \d+ of the line"),
        (_changed(description="a\0b"), r"NUL character in 'a\?b'"),
        (_changed().replace(b"coast", b"c\0ast"), "not JSON: Invalid control character"),
        (_changed(description="half \ud83d"), "half of a surrogate pair"),
        (_changed(description="x" * 1_000_001), "too long: 1,000,... bytes, the limit is 1,000,000"),
        (_changed(tool_name="n" * 501), "name of 501 characters; the limit is 500"),
        (_changed(id={"category": "A", "tool": "b.c", "api": "d"}), "'A.b.c.d' does not read back"),
        (_changed(id={"category": "", "tool": "b", "api": "d"}), "does not read back"),
        (_changed(response={"k\0": 1}), "NUL character"),
        (b'{"id": ' + b"[" * 100_000, "not JSON"),
        (b'{"id": ' + b"1" * 10_000 + b"}", "not JSON"),
    ],
)
def test_a_bad_record_is_a_reject_with_line_and_reason(tmp_path, line, reason):
    good = _spec("hotel_desk", "other").model_dump_json().encode()
    (tmp_path / "tools.jsonl").write_bytes(b"\xef\xbb\xbf" + good + b"\n\n" + line + b"\n")
    corpus = read_corpus(tmp_path)
    assert [str(spec.id) for spec in corpus.specs] == ["Travel.hotel_desk.other"] and corpus.read == 2
    assert corpus.rejects[0]["line"] == 3 and re.match(f".*{reason}", corpus.rejects[0]["reason"])
    json.dumps(corpus.rejects).encode()


def test_half_a_megabyte_is_a_document(tmp_path):
    (tmp_path / "tools.jsonl").write_bytes(_changed(description="word " * 100_000))
    (spec,) = load_tools(tmp_path)
    assert len(spec.description) == 500_000


@pytest.mark.parametrize("content", [b"\xff\xfe{\0}\0", b"\0" * 100, b"\x1f\x8b\x08 broken"])
def test_a_file_of_other_bytes_is_one_clear_line(tmp_path, content):
    for name in ("tools.jsonl", "tools.jsonl.gz", "tools.json"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError) as caught:
            read_corpus(tmp_path / name)
        assert name in str(caught.value) and "\n" not in str(caught.value)


RAPIDAPI = {
    "tool_name": "Hotel Desk", "title": "Hotel Desk", "name": "Hotel Desk", "tool_description": "hotels of the coast",
    "api_list": [
        {"name": "Price now", "url": "https://x.example/price", "description": "price of a room", "method": "GET",
         "required_parameters": [{"name": "hotel", "type": "STRING"}], "optional_parameters": []},
        "broken",
    ],
}  # fmt: skip


def test_documentation_files_and_folders_are_read_by_the_documentation_readers(tmp_path):
    row = {"category_name": "Travel", "tool_name": "Hotel Desk", "api_name": "Price then", "api_description": "past"}
    folder = tmp_path / "docs" / "Travel"
    folder.mkdir(parents=True)
    (folder / "hotel.json").write_text(json.dumps(RAPIDAPI))
    rows = [row, row, {**row, "api_name": "Price now", "api_description": "of another file"}]
    with gzip.open(folder / "more.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "notes.txt").write_text("nothing")
    (folder / "zipped.json.gz").write_bytes(b"no gzip")
    corpus = read_corpus(tmp_path / "docs")
    assert [str(spec.id) for spec in corpus.specs] == ["Travel.hotel_desk.price_now", "Travel.hotel_desk.price_then"]
    assert corpus.repeated == 1 and corpus.read == 6
    sources = ["Travel/hotel.json", "Travel/more.jsonl.gz", "Travel/zipped.json.gz"]
    assert [reject["source"] for reject in corpus.rejects] == sources
    assert "file cannot be read" in corpus.rejects[2]["reason"]
    assert "already stands in Travel/hotel.json" in corpus.rejects[1]["reason"]
    assert [spec.id.api for spec in load_tools(folder / "hotel.json")] == ["price_now"]
    (tmp_path / "docs" / "manifest.json").write_text("{}")  # now it is a stage's folder, whose corpus is missing
    with pytest.raises(DataError, match="tools.jsonl does not exist"):
        read_corpus(tmp_path / "docs")


def test_a_folder_without_documents_is_one_clear_line(tmp_path):
    with pytest.raises(DataError, match="neither tools.jsonl nor a documentation file"):
        read_corpus(tmp_path)


@pytest.mark.shared
def test_the_real_corpus_is_read_whole(shared_data):
    corpus = read_corpus(shared_data / "sources" / "toolbench_corpus" / "corpus.jsonl.gz")
    assert (len(corpus.specs), corpus.read) == (16_302, 16_305) and len(corpus.categories) == 49
