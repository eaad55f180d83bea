"""Corpus reading: nothing is lost, nothing bad is kept, errors are one line."""

import json

import pytest

from autotools.errors import DataError
from autotools.schema import ToolId, ToolParameter, ToolSpec
from retriever.corpus import document_text, load_tools, read_corpus


def _spec(tool: str, api: str) -> ToolSpec:
    return ToolSpec(
        id=ToolId(category="Travel", tool=tool, api=api),
        tool_name="Hotel Desk",
        api_name="Price now",
        description="current price of a hotel",
        tool_description="hotels of the coast",
        parameters=(ToolParameter(name="hotel_id", description="id of the hotel"), ToolParameter(name="page")),
    )


def test_bad_lines_are_rejects_and_counts_add_up(tmp_path):
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


@pytest.mark.parametrize("content", [None, "", "\n\n", "{}\n"])
def test_missing_or_unusable_corpus_is_one_clear_line(tmp_path, content):
    file = tmp_path / "tools.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError) as caught:
        load_tools(file)
    assert "tools.jsonl" in str(caught.value) and "\n" not in str(caught.value)


def test_document_text_names_come_first():
    assert document_text(_spec("hotel_desk", "price_now")) == (
        "hotel_desk price_now\nHotel Desk: Price now\ncurrent price of a hotel\nhotels of the coast\n"
        "parameters: hotel_id (id of the hotel), page"
    )
