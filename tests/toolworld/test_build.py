"""The build writes a complete folder, rejects what does not hold, and refuses a used folder."""

import dataclasses
import json
from pathlib import Path

import pytest

from autotools.docs.openapi import read_openapi
from autotools.encapsulate import encapsulate, library_source
from autotools.errors import RunFolderError
from autotools.program import ProgramResult, ProgramRunner
from autotools.rundir import read_jsonl, read_manifest
from autotools.schema import Task, ToolSpec, VerifiedFunction
from toolworld.build import build, main, run_programs
from toolworld.documents import openapi_document
from toolworld.server import WorldServer
from toolworld.tasks import make_tasks
from toolworld.world import build_world

SIZES = {"train": 60, "dev": 20, "test": 60, "unseen": 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("world")
    build(out, 0, SIZES)
    return out


def test_folder_is_complete_and_every_claim_held(folder: Path) -> None:
    counts = read_manifest(folder)["counts"]
    assert counts["tasks"] == counts["programs_verified"] == 150 and counts["rejected"] == 0
    assert counts["functions"] == {"total": 108, "verified": 108}
    assert len(read_jsonl(folder / "tasks" / "train.jsonl", Task)) == 60
    assert len(read_jsonl(folder / "tasks" / "test.jsonl", Task)) == 70
    assert all(f.checks >= 3 for f in read_jsonl(folder / "functions.jsonl", VerifiedFunction))
    assert len(list((folder / "rapidapi").glob("*/*.json"))) == 24
    assert len(list((folder / "markdown").glob("*/*.md"))) == 24


def test_tools_are_those_of_the_catalog(folder: Path) -> None:
    read = {spec.id: spec for spec in read_jsonl(folder / "tools.jsonl", ToolSpec)}
    for spec in build_world(0).tool_specs():
        other = read[spec.id]
        assert (other.description, other.method, other.path) == (spec.description, spec.method, spec.path)
        assert sorted(p.name for p in other.parameters) == sorted(p.name for p in spec.parameters)
    assert len(read) == 108


def test_same_seed_same_bytes(folder: Path, tmp_path: Path) -> None:
    build(tmp_path, 0, SIZES)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes(), path.name


def test_requests_are_logged_per_task(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    task = read_jsonl(folder / "tasks" / "test.jsonl", Task)[0]
    calls = [line for line in lines if line["task"] == task.id]
    assert len(calls) == len(task.calls) and all(line["status"] == 200 for line in calls)


def test_wrong_answers_and_broken_programs_are_rejected() -> None:
    world = build_world(0)
    good, wrong, broken, idle = make_tasks(world, 0, {"train": 4})
    tasks = [
        good,
        wrong.model_copy(update={"answer": "something else"}),
        broken.model_copy(update={"program": broken.program.replace("r0 = ", "r0 = no_such_")}),
        idle.model_copy(update={"program": "pass"}),
    ]
    library = library_source(encapsulate(read_openapi(openapi_document(world))))
    keys = {d.category: d.api_key for d in world.domains if d.api_key}
    with WorldServer(world) as server, ProgramRunner(library, server.base_url, keys) as runner:
        kept, rejected = run_programs(tasks, runner)
    assert kept == [good]
    assert [row["line"] for row in rejected] == [2, 3, 4] and all(row["reason"] for row in rejected)


def test_a_child_killed_from_outside_costs_no_task_but_a_deadly_program_is_rejected() -> None:
    world = build_world(0)
    good, deadly = make_tasks(world, 0, {"train": 2})
    deadly = deadly.model_copy(update={"program": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"})

    class KilledOnce(ProgramRunner):
        """The first run ends as if somebody had killed the child in the middle."""

        def run(self, program: str, session: str, timeout_s: float = 10) -> ProgramResult:
            result = super().run(program, session, timeout_s)
            return dataclasses.replace(result, status="died") if session == good.id else result

    library = library_source(encapsulate(read_openapi(openapi_document(world))))
    keys = {d.category: d.api_key for d in world.domains if d.api_key}
    with WorldServer(world) as server, KilledOnce(library, server.base_url, keys) as runner:
        kept, rejected = run_programs([good, deadly], runner)
    assert kept == [good]
    assert [row["id"] for row in rejected] == [deadly.id] and rejected[0]["reason"].startswith("died")


def test_used_folder_is_refused(folder: Path) -> None:
    with pytest.raises(RunFolderError):
        main(["--out", str(folder)])


def test_dry_run_writes_nothing(tmp_path: Path, capsys) -> None:
    assert main(["--out", str(tmp_path / "w"), "--dry_run"]) == 0
    assert not (tmp_path / "w").exists() and "seed 0" in capsys.readouterr().out
    (tmp_path / "mine").write_text("")
    for words in ([str(tmp_path), "--overwrite"], [str(tmp_path / "mine")]):  # refused as the run would be
        with pytest.raises(RunFolderError):
            main(["--out", *words, "--dry_run"])
