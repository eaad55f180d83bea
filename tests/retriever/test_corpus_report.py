"""Corpus report: planted duplicates and collisions are found, near duplicates equal scikit-learn's."""

import json
import random

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from autotools.errors import DataError
from autotools.schema import ToolId, ToolParameter, ToolSpec
from retriever.corpus_report import main, near_duplicates, report


def _spec(category, tool, api, description="", parameters=()):
    return ToolSpec(
        id=ToolId(category=category, tool=tool, api=api), tool_name=tool, api_name=api, description=description,
        parameters=tuple(ToolParameter(name=name) for name in parameters),
    )  # fmt: skip


SPECS = [
    _spec("Travel", "hotels", "find", "find a hotel in a town by its stars", ["town", "stars"]),
    _spec("Travel", "inns", "find", "find a hotel in a town by its stars", ["town", "stars"]),  # exact copy
    _spec("Food", "inns", "find", "find a hotel in a town by its star", ["town", "stars"]),  # near copy
    _spec("Food", "Inns", "Find", "", ["meal"]),  # differs from the one before in case only
    _spec("Food", "cook", "get_call", "get"),
    _spec("Food", "bake", "get_call", "get"),  # equal, but one word is no copy
    _spec("Music", "songs", "lyrics", "words of a song that somebody sings", ["song"]),
]


def test_planted_faults_are_found():
    out = report(SPECS, near=0.8)
    assert out["tools"] == 7
    assert out["exact_duplicates"] == {"tools": 2, "groups": [["Travel.hotels.find", "Travel.inns.find"]]}
    assert [pair[:2] for pair in out["near_duplicates"]["pairs"]] == [["Food.inns.find", "Travel.hotels.find"]]
    assert out["empty_descriptions"] == ["Food.Inns.Find"]
    assert out["categories"] == {"Food": 4, "Travel": 2, "Music": 1}
    assert out["collisions"] == {
        "api_names": {"find": 3, "get_call": 2},
        "tool_names": [["Food.inns.find", "Travel.inns.find"]],
        "ids": [["Food.Inns.Find", "Food.inns.find"]],
    }
    assert out["lengths"]["words"]["max"] == 9 and out["lengths"]["characters"]["min"] == 0
    assert out["lengths"]["parameters"]["mean"] == pytest.approx(8 / 7, abs=0.05)


@pytest.mark.parametrize("near", [0.5, 0.8, 1.0])
def test_near_duplicates_equal_scikit_learn(near):
    rng = random.Random(0)
    words = [f"w{number}" for number in range(30)]
    documents = [(f"d{n:03}", [rng.choice(words) for _ in range(rng.randint(3, 8))]) for n in range(700)]
    weights = TfidfVectorizer(analyzer=lambda body: body, smooth_idf=False).fit_transform([b for _, b in documents])
    cosines = (weights @ weights.T).toarray()
    close = [(i, j) for i in range(700) for j in range(i + 1, 700) if cosines[i, j] >= near - 1e-9]
    expected = {(documents[i][0], documents[j][0]) for i, j in close}
    out = near_duplicates(documents, near)
    assert expected and {tuple(pair[:2]) for pair in out["pairs"]} == expected
    assert out["tools"] == len({name for pair in expected for name in pair})
    assert near_duplicates(documents[:1], near) == {"tools": 0, "pairs": []}


def test_command_writes_the_report(tmp_path, capsys):
    file = tmp_path / "tools.jsonl"
    file.write_text("".join(spec.model_dump_json() + "\n" for spec in SPECS) + "{broken\n")
    assert main([str(file), "--out", str(tmp_path / "report.json")]) == 0
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["records"] == {"read": 8, "kept": 7, "repeated": 0, "rejected": {"not JSON": 1}}
    assert "exact copy" in capsys.readouterr().out
    assert main([str(file), "--dry_run"]) == 0
    with pytest.raises(DataError, match="none does not exist"):
        main([str(tmp_path / "none"), "--dry_run"])
