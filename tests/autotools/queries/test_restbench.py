"""RestBench in both forms and AutoTools-Eval: hand-made records, then the real files against plain counts."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.openapi import read_openapi
from autotools.errors import DataError
from autotools.queries import RequestFile, dangling, read_autotools, read_restbench
from autotools.schema import ToolId, ToolSpec, standardise


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def reasons(found: RequestFile) -> list[tuple[int, str]]:
    return [(r["line"], r["reason"]) for r in found.rejects]


def spec(method: str, path: str, api: str, tool: str = "films") -> ToolSpec:
    id_ = ToolId(category="Film", tool=tool, api=api)
    return ToolSpec(id=id_, tool_name=tool, api_name=api, method=method, path=path)


SPECS = [
    spec("GET", "/search/person", "find"),
    spec("GET", "/person/{person_id}/credits", "credits"),
    spec("POST", "/search/person", "add"),
    spec("GET", "/both", "one"),
    spec("GET", "/both/", "two"),
]


def test_first_form_keeps_order_and_repetition(tmp_path: Path) -> None:
    path = write(tmp_path / "tmdb.json", [
        {"query": "who\nplays ",
         "solution": ["GET /person/{id}/credits", "get /search/person/", "GET /person/{person_id}/credits"]},
        {"query": "b", "solution": ["POST /search/person", "GET /nobody/{x}"]},
        {"query": "c", "solution": ["GET /both"]},
        {"query": "d", "solution": ["/search/person"]},
        {"query": "e", "solution": ["GET search"]},
        {"query": "f", "solution": [["GET /search/person", 2]]},
        {"query": "g", "solution": []},
        {"query": 5, "solution": ["GET /search/person"]},
    ])  # fmt: skip
    found = read_restbench(path, SPECS)
    (line, first), (_, second) = found.tasks
    assert (line, first.id, first.suite, first.level) == (1, "restbench/tmdb/1", "restbench", "tmdb")
    assert first.query == "who plays" and [t.api for t in first.targets] == ["credits", "find"] and first.calls == ()
    assert first.meta["solution"] == [["Film.films.credits", 1], ["Film.films.find", 1], ["Film.films.credits", 1]]
    assert found.repaired == {"path variable has another name in the document": 1}
    assert [str(t) for t in second.targets] == ["Film.films.add", "restbench.tmdb.get_nobody_x"]
    assert [(str(r.target), r.example) for r in dangling(found, {s.id for s in SPECS})] == [
        ("restbench.tmdb.get_nobody_x", "restbench/tmdb/2")
    ]
    assert reasons(found) == [
        (3, "endpoint of two tools"), (4, "solution entry is not METHOD /path"),
        (5, "solution entry is not METHOD /path"), (6, "solution entry is not METHOD /path"),
        (7, "request without targets"), (8, "request is not text"),
    ]  # fmt: skip
    assert found.rejects[0]["detail"] == "GET /both: Film.films.one, Film.films.two"
    unresolved = read_restbench(path)  # without the document: every endpoint dangles, none is dropped
    assert [[str(t) for t in task.targets] for _, task in unresolved.tasks][1:] == [
        ["restbench.tmdb.post_search_person", "restbench.tmdb.get_nobody_x"], ["restbench.tmdb.get_both"],
    ]  # fmt: skip


def test_autotools_forms_of_solution_and_candidates(tmp_path: Path) -> None:
    base = {"dataset": "food", "query": "a meal"}
    path = write(tmp_path / "autotools_eval.json", [
        base | {"qid": "q0", "solution": [["GET_b", 3], ["GET_a", 1], ["GET_b", 2]], "api_list": ["GET_b", "GET_a"]},
        base | {"qid": 1, "solution": ["GET_a", "GET_a"], "api_list": {"GET_c": "https://host/c", "GET_a": ""}},
        base | {"qid": "q0", "dataset": "music", "solution": ["GET_a"],
                "api_list": [{"api_name": "GET_z", "category_name": "movie", "tool_name": "x"}, {"url": ""}]},
        base | {"qid": "q0", "solution": ["GET_a"]},
        base | {"qid": "q3", "solution": [["GET_a", 0]]},
        base | {"qid": "q4", "solution": [["GET_a", True]]},
        base | {"qid": "q5", "solution": [["GET_a"]]},
        base | {"qid": "q6", "solution": ["GET_a", "//"]},
        base | {"qid": "q7", "solution": ["GET_a"], "dataset": None},
        base | {"qid": "q8", "solution": "GET_a"},
    ])  # fmt: skip
    found = read_autotools(path)
    assert [(line, t.id, t.level) for line, t in found.tasks] == [
        (1, "autotools_eval/food/q0", "food"), (2, "autotools_eval/food/1", "food"),
        (3, "autotools_eval/music/q0", "music"),
    ]  # fmt: skip
    first, second, third = (task for _, task in found.tasks)
    assert [str(t) for t in first.targets] == ["food.food.get_b", "food.food.get_a"]
    assert first.meta == {
        "solution": [["food.food.get_b", 3], ["food.food.get_a", 1], ["food.food.get_b", 2]],
        "candidates": ["food.food.get_a", "food.food.get_b"],  # not in the file's order, which tells the solution
    }
    assert second.meta["solution"] == [["food.food.get_a", 1]] * 2 and len(second.targets) == 1
    assert second.meta["candidates"] == ["food.food.get_a", "food.food.get_c"]
    assert third.meta["candidates"] == ["music.music.get_z"]
    assert found.repaired == {
        "candidate without a name left out": 1, "a tool of the solution is not in its api_list; kept": 1,
    }  # fmt: skip
    assert reasons(found) == [
        (4, "id of an earlier request"), (5, "count of a solution entry is no number above 0"),
        (6, "count of a solution entry is no number above 0"),
        (7, "solution entry is neither a name nor a pair of name and count"), (8, "target without names"),
        (9, "request without dataset"), (10, "request without targets"),
    ]  # fmt: skip
    with pytest.raises(DataError, match="not a list of requests"):
        read_autotools(write(tmp_path / "x.json", {"solution": []}))


# --- real samples -------------------------------------------------------------------------------------------------

FILES = {"autotools_eval": ("autotools_eval", 40), "tmdb": ("restbench", 50), "spotify": ("restbench", 28)}
SERVERS = {"tmdb": "https://api.themoviedb.org/3", "spotify": "https://api.spotify.com/v1"}


def endpoint_names(shared_data: Path) -> set[ToolId]:
    """Every endpoint of the documentation files, by a few lines of plain Python; ``tmdb_rest`` belongs to tmdb."""
    out = set()
    for path in (shared_data / "autotools").glob("tools*/*.json"):
        tool = path.stem.removesuffix("_rest")
        content = json.loads(path.read_text(encoding="utf-8"))
        out |= {ToolId(category=tool, tool=tool, api=standardise(e["name"])) for e in content["endpoints"]}
    return out


@pytest.mark.shared
@pytest.mark.parametrize("stem", FILES)
def test_autotools_files_against_a_plain_count(shared_data: Path, stem: str) -> None:
    suite, number = FILES[stem]
    path = shared_data / "autotools/eval" / f"{stem}.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    found = read_autotools(path, suite=suite)
    assert (found.read, len(found.tasks), len(rows)) == (number,) * 3
    assert found.repaired.total() == (5 if stem == "autotools_eval" else 0)  # the five that the data's README tells of
    for row, (_, task) in zip(rows, found.tasks, strict=True):
        pairs = [entry if isinstance(entry, list) else [entry, 1] for entry in row["solution"]]
        solution = [(f"{row['dataset']}.{row['dataset']}.{name.lower()}", n) for name, n in pairs]
        assert [tuple(pair) for pair in task.meta["solution"]] == solution
        assert [str(t) for t in task.targets] == list(dict.fromkeys(name for name, _ in solution))
        assert len(task.meta["candidates"]) == len(row["api_list"])
    assert dangling(found, endpoint_names(shared_data)) == []


@pytest.mark.shared
def test_autotools_targets_are_the_ids_of_the_endpoint_reader(shared_data: Path) -> None:
    from autotools.docs import endpoints

    ids = {
        spec.id
        for path in sorted((shared_data / "autotools").glob("tools*/*.json"))
        for spec in endpoints.read(path).specs
    }
    found = [
        read_autotools(shared_data / "autotools/eval" / f"{stem}.json", suite=suite)
        for stem, (suite, _) in FILES.items()
    ]
    assert dangling(found, ids) == []
    assert dangling(found, ids - {ToolId(category="tmdb", tool="tmdb", api="get_search_person")})[0].requests == sum(
        "get_search_person" in {t.api for t in task.targets} for part in found for _, task in part.tasks
    )  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("stem", SERVERS)
def test_first_form_made_from_the_urls_finds_every_endpoint(shared_data: Path, tmp_path: Path, stem: str) -> None:
    """The renamed files still hold verb and URL: without the server that is RestBench's own form."""
    renamed = shared_data / "autotools/eval" / f"{stem}.json"
    rows = json.loads(renamed.read_text(encoding="utf-8"))
    first_form = [{"query": r["query"], "solution": [u.replace(SERVERS[stem], "") for u in r["url"]]} for r in rows]
    with gzip.open(shared_data / "sources/restbench/specs" / f"{stem}_oas.json.gz") as file:
        document = json.load(file)
    specs = read_openapi(document)
    found = read_restbench(write(tmp_path / f"{stem}.json", first_form), specs)
    assert found.rejects == [] and not found.repaired and dangling(found, {s.id for s in specs}) == []
    place = {str(s.id): f"{s.method} {s.path}" for s in specs}
    named = read_autotools(renamed, suite="restbench")
    for row, (_, task), (_, other) in zip(first_form, found.tasks, named.tasks, strict=True):
        assert [place[name] for name, _ in task.meta["solution"]] == [entry.strip() for entry in row["solution"]]
        assert len(task.targets) == len(other.targets)
        if stem == "tmdb":  # its operationIds are the names that AutoTools took
            assert [t.api for t in task.targets] == [t.api for t in other.targets]
