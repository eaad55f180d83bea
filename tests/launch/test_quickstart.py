"""The quickstart driver with a pipeline of small fake stages: refusals, order, resumption, and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotools import rundir
from autotools.errors import AutoToolsError
from autotools.rundir import write_json, write_jsonl, write_manifest

ROOT = Path(__file__).resolve().parents[2]
DRIVER = [sys.executable, str(ROOT / "launch" / "quickstart.py")]


def run_driver(*argv: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DRIVER, *argv], cwd=cwd, capture_output=True, text=True, timeout=60)


def test_dry_run_prints_the_commands_and_makes_nothing(tmp_path: Path) -> None:
    done = run_driver("--dry-run", "--out", "run", "--seed", "7", "--more", "rl.max_steps=5", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
    assert done.stderr == "checking the keys of --more (rl.max_steps)\n"
    assert [line.split()[:3] for line in lines] == [
        ["python", "-m", "toolworld.build"],
        ["python", "-m", "data_synthesis.build"],
        ["accelerate", "launch", "--config_file"],
        lines[3].split()[:3],  # the launcher of rl may change
        ["python", "training/sft.py", "--config"],  # without accelerate's process, which holds half a gigabyte
        ["python", "-m", "evaluation.run"],
        ["python", "-m", "evaluation.report"],
    ]
    assert "rl/train.py" in lines[3] and lines[3].endswith("--seed 7 --max_steps 5")
    assert f"--out {tmp_path / 'run' / 'world'} --seed 7" in lines[0]
    assert all(line.endswith("--seed 7") for line in (lines[1], lines[2], lines[4]))


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--sed", "1"], "error: command line: unknown key 'sed'; did you mean 'seed'?\n"),
        (["--config", "none.yaml"], "error: none.yaml: cannot read this config file (No such file or directory)\n"),
        (["--seed", "x"], "error: command line: key 'seed': 'x' is not int"),
        (["--seed", "-1"], "error: command line: key 'seed': must be 0 or more, got -1\n"),
        (["--sft", "nosuch.yaml"], "error: nosuch.yaml: there is no such config file, neither here nor in "),
        (["--more", "rll.max_steps=5"], "error: key 'more' names the stage 'rll'; stages are world, data, sft, rl"),
        (["--out", "README.md"], f"error: {ROOT}/README.md is a file; a run needs a folder, so name another\n"),
        (["--out", "README.md", "--overwrite"], f"error: {ROOT}/README.md is a file; a run needs a folder"),
        (["--out", "docs", "--overwrite"], f"error: {ROOT}/docs was not made by this project (no run.json); --overwri"),
        (["--resume", "--overwrite"], "error: --resume and --overwrite exclude each other"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry_run"]], ids=["run", "dry_run"])
def test_bad_use_is_one_line(
    quickstart: ModuleType, dry: list[str], argv: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as leave:
        quickstart.run_main(lambda: quickstart.main([*argv, *dry]))
    said = capfd.readouterr()
    assert leave.value.code == 2
    assert said.err.startswith(line) and said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("sft.max_step=5", "error: stage sft: unknown key 'max_step'; did you mean 'max_steps'?\n"),
        ("evaluate.limit=x", "error: stage evaluate: key 'limit': 'x' is not int"),
    ],
)
def test_keys_of_stages_are_checked_and_that_is_said(key: str, line: str) -> None:
    """Asking a stage takes seconds, for it imports its libraries."""
    done = run_driver("--more", key)
    said, error = done.stderr.splitlines(keepends=True)
    assert (done.returncode, done.stdout, said) == (2, "", f"checking the keys of --more ({key.partition('=')[0]})\n")
    assert error.startswith(line)


def test_a_dry_run_over_a_finished_run_still_prints_the_commands(tmp_path: Path) -> None:
    rundir.open_run(tmp_path / "run", {"seed": 0}, seed=0)
    done = run_driver("--dry_run", "--out", str(tmp_path / "run"))
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 7
    assert done.stderr == (
        f"note: run folder {tmp_path}/run is in use; pass --resume to continue it, --overwrite to start anew, or name "
        "another\n"
    )
    done = run_driver("--dry_run", "--out", str(tmp_path / "run"), "--resume")
    assert done.returncode == 2 and "config differs in" in done.stderr


def test_used_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("mine")
    done = run_driver("--out", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: run folder {tmp_path} is in use; pass --resume")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["keep.txt"]


# --- a pipeline of fakes ------------------------------------------------------------------------------------------

FAKE = """
import pathlib, sys
name, out = sys.argv[1], pathlib.Path(sys.argv[2])
with (out / 'order.txt').open('a') as file:
    file.write(name + '\\n')
(out / name).mkdir()
print('hello from', name)
if (out.parent / ('fail_' + name)).exists():
    print((out.parent / ('fail_' + name)).read_text() or 'bad luck'); sys.exit(3)
"""


@pytest.fixture
def fakes(quickstart: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The driver with a pipeline of scripts that note their name; evaluation and world results stand ready."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    rows = (("one",), ("two", "three"), ("report",))
    pipeline = tuple(tuple((name, f"{{python}} {script} {name} {{out}}") for name in step) for step in rows)
    monkeypatch.setattr(quickstart, "PIPELINE", pipeline)
    return quickstart


def prepare_results(out: Path) -> dict[str, float]:
    scores = {"f1": 0.5, "recall": 0.6, "precision": 0.4, "match": 0.3, "srecall": 0.7, "n": 10}
    write_jsonl(out / "world" / "functions.jsonl", [{"verified": True}, {"verified": False}, {"verified": True}])
    counts = {"tools": 3, "tasks": 9, "programs_verified": 9, "more": 1}
    write_manifest(out / "world", stage="toolworld", inputs=[], counts=counts, seed=4)
    table = {level: {**scores, "answered": 1.0} for level in ("overall", "I1", "I2", "I3", "unseen")}
    write_json(out / "eval" / "metrics.json", {"policies": {"before": table, "after": table}})
    write_manifest(out / "eval", stage="eval", inputs=[], counts={}, seed=4)
    return scores


def run_fakes(quickstart: ModuleType, out: Path, *argv: str) -> int:
    """Run the driver, putting the stages' results into the folder as soon as it is claimed."""
    claim = rundir.open_run

    def claim_and_fill(path: Path, *args: object, **kwargs: object) -> object:
        run = claim(path, *args, **kwargs)
        prepare_results(path)
        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rundir, "open_run", claim_and_fill)
        return quickstart.main(["--out", str(out), "--seed", "4", *argv])


def order(out: Path) -> list[str]:
    return (out / "order.txt").read_text().split()


def test_a_resumed_run_tells_the_time_of_the_whole_run(fakes: ModuleType, tmp_path: Path, capfd: Any) -> None:
    out = tmp_path / "run"
    run_fakes(fakes, out)
    assert re.search(r"^\d+ s in all, \d+\.\d\d GB peak memory$", capfd.readouterr().err, re.M)
    for name, wall_s in (("one", 100.0), ("two", 7.0), ("three", 200.0), ("report", 40.0)):
        mark = out / "logs" / f"{name}.done.json"
        mark.write_text(json.dumps({**json.loads(mark.read_text()), "wall_s": wall_s}))
    run_fakes(fakes, out, "--resume")  # two and three ran side by side: 100 + 200 + 40
    told = r"^\d s since --resume, the stages of the whole run 340 s, \d+\.\d\d GB peak memory$"
    assert re.search(told, capfd.readouterr().err, re.M)


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 128 + signal.SIGTERM, "terminated")],
)
def test_an_interrupted_run_ends_with_how_to_go_on(
    fakes: ModuleType, tmp_path: Path, capfd: Any, number: int, code: int, line: str
) -> None:
    (tmp_path / "fake.py").write_text(f"import os, signal, time; os.kill({os.getpid()}, {number}); time.sleep(30)")
    with pytest.raises(SystemExit) as leave:
        fakes.run_main(lambda: run_fakes(fakes, tmp_path / "run"))
    assert leave.value.code == code
    assert capfd.readouterr().err.splitlines()[-1] == f"{line}; go on with the same command and --resume"


def test_a_killed_stage_says_so_also_behind_a_launcher(quickstart: ModuleType, tmp_path: Path, capfd: Any) -> None:
    """kill -9 as the kernel does it for want of memory; accelerate hides it behind exit code 1 and a traceback."""
    from stage_runner import Stage, StageError, StageRunner

    (tmp_path / "killed.py").write_text("import os; os.kill(os.getpid(), 9)")
    launcher = [str(Path(sys.executable).with_name("accelerate")), "launch", "--config_file"]
    launcher.append(str(ROOT / "configs" / "accelerate" / "cpu.yaml"))
    for name, first in (("plain", [sys.executable]), ("launched", launcher)):
        runner = StageRunner(tmp_path / "logs", tmp_path)
        with pytest.raises(StageError, match=rf"^stage {name} failed \(killed by signal 9; out of memory\?\); its out"):
            runner.run_step([Stage(name, (*first, "killed.py"))])
    assert "Traceback" in (tmp_path / "logs" / "launched.log").read_text()
    assert "Traceback" not in capfd.readouterr().err


def test_signals_are_read_from_launchers(quickstart: ModuleType) -> None:
    from stage_runner import _signal

    several = ["traceback : Signal 9 (SIGKILL) received by PID 4711", "exitcode: -9"]
    assert (_signal(1, several), _signal(1, ["Traceback"]), _signal(137, []), _signal(-15, [])) == (9, 0, 9, 15)


def test_summary_holds_exactly_the_agreed_keys(fakes: ModuleType, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    assert run_fakes(fakes, out) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary) == ["wall_s", "eval", "world", "functions", "seed"]
    assert set(summary["wall_s"]) == {"one", "two", "three", "report"}
    assert all(0 < seconds < 30 for seconds in summary["wall_s"].values())
    scores = {"f1": 0.5, "recall": 0.6, "precision": 0.4, "match": 0.3, "srecall": 0.7, "n": 10}
    levels = {level: scores for level in ("overall", "I1", "I2", "I3")}
    assert summary["eval"] == {"before": levels, "after": levels}
    assert summary["world"] == {"tools": 3, "tasks": 9, "programs_verified": 9}
    assert summary["functions"] == {"total": 3, "verified": 2}
    assert summary["seed"] == 4
    assert order(out)[0] == "one" and set(order(out)[1:3]) == {"two", "three"} and order(out)[3:] == ["report"]
    assert (out / "logs" / "two.log").read_text().splitlines()[1] == "hello from two"
    assert capsys.readouterr().out.split() == [str(out / "report.md"), str(out / "report.html")]
    assert json.loads((out / "run.json").read_text())["seed"] == 4
    memory = json.loads((out / "logs" / "memory.json").read_text())
    assert 1e6 < memory["peak_bytes"] < 1e9


def test_failed_stage_stops_the_run_and_resume_goes_on_from_there(fakes: ModuleType, tmp_path: Path) -> None:
    out, flaw = tmp_path / "run", tmp_path / "fail_three"
    flaw.touch()
    how = (
        r"stage three failed \(exit code 3\); its output is in .*three\.log; go on with the same command and --resume$"
    )
    with pytest.raises(AutoToolsError, match=how):
        run_fakes(fakes, out)
    assert "report" not in order(out)
    flaw.unlink()
    with pytest.raises(AutoToolsError, match="is in use"):
        fakes.main(["--out", str(out), "--seed", "4"])
    with pytest.raises(AutoToolsError, match=r"config differs in \[seed\]"):
        fakes.main(["--out", str(out), "--seed", "5", "--resume"])
    before = order(out)
    assert run_fakes(fakes, out, "--resume") == 0
    again = order(out)[len(before) :]
    assert "one" not in again and "three" in again and again[-1] == "report"
    before = order(out)
    assert run_fakes(fakes, out, "--resume") == 0
    assert order(out) == before  # everything was done
    assert set(json.loads((out / "summary.json").read_text())["wall_s"]) == {"one", "two", "three", "report"}


def test_a_stage_that_says_why_it_failed_is_quoted_in_one_line(
    fakes: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fail_one").write_text(
        "noise\nerror: unknown key 'max_step'; did you mean 'max_steps'?\nTraceback: more noise"
    )
    with pytest.raises(AutoToolsError, match=r"stage one failed \(exit code 3\): unknown key 'max_step'; did you mean"):
        run_fakes(fakes, tmp_path / "run")
    assert "noise" not in capfd.readouterr().err


def test_a_kill_after_a_repeated_stage_does_not_bring_old_results_back(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stage one ran again, the driver was killed before two: what two and three made from the old one is void."""
    from stage_runner import StageRunner

    out, run_step = tmp_path / "run", StageRunner.run_step
    run_fakes(fakes, out)
    (out / "one").rmdir()
    (out / "report").rmdir()  # no folder of a stage's own to the driver; the fake wants to make it

    def killed_at_two(self: StageRunner, stages: Any, *rest: Any) -> None:
        if stages[0].name == "two":
            raise KeyboardInterrupt
        run_step(self, stages, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StageRunner, "run_step", killed_at_two)
        run_fakes(fakes, out, "--resume")
    before = order(out)
    assert before[-1] == "one"
    run_fakes(fakes, out, "--resume")
    assert set(order(out)[len(before) :]) == {"two", "three", "report"}


# --- the runner -----------------------------------------------------------------------------------------------------


def test_memory_is_that_of_the_whole_process_tree(quickstart: ModuleType, tmp_path: Path) -> None:
    from stage_runner import Stage, StageRunner

    child = "data = bytearray(120_000_000); import time; time.sleep(1.5)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    runner = StageRunner(tmp_path / "logs", tmp_path)
    runner.run_step([Stage("big", (sys.executable, "-c", code))])
    assert 120e6 < runner.memory["big"] < 220e6
    assert runner.memory["big"] == runner.peak_bytes
    assert 1.5 < runner.wall_s["big"] < 20


def test_changed_config_file_makes_a_stage_run_again(quickstart: ModuleType, tmp_path: Path) -> None:
    from stage_runner import Stage, StageRunner

    (tmp_path / "a.yaml").write_text("x: 1\n")
    stage = Stage("s", (sys.executable, "-c", "", "--config", "a.yaml"))
    StageRunner(tmp_path / "logs", tmp_path).run_step([stage])
    assert StageRunner(tmp_path / "logs", tmp_path).is_done(stage)
    assert not StageRunner(tmp_path / "logs", tmp_path).is_done(Stage("s", (*stage.command, "--seed", "1")))
    (tmp_path / "a.yaml").write_text("x: 2\n")
    assert not StageRunner(tmp_path / "logs", tmp_path).is_done(stage)


def test_changed_corpus_or_request_file_makes_the_import_run_again(quickstart: ModuleType, tmp_path: Path) -> None:
    """Same command, other bytes: a file inside the folder of queries, a new one there, the corpus itself."""
    from stage_runner import StageRunner

    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries"
    (queries / "colt").mkdir(parents=True)
    corpus.write_text("{}\n")
    (queries / "colt" / "queries.jsonl").write_text("{}\n")
    args = quickstart.QuickstartArgs(source="real", corpus=str(corpus), queries=str(queries))

    def done() -> bool:
        (world,), *_ = quickstart.stage_table(args, tmp_path)
        return StageRunner(tmp_path / "logs", tmp_path).is_done(world)

    def finish() -> None:
        (world,), (data,), *_ = quickstart.stage_table(args, tmp_path)
        assert (world.reads, data.reads) == ((corpus, queries), ())
        runner = StageRunner(tmp_path / "logs", tmp_path)
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "world").mkdir(exist_ok=True)
        marks = {"wall_s": 1.0, "peak_bytes": 1, "peak_so_far": 1}
        write_json(runner.done_mark(world), {**runner._identity(world), **marks})

    finish()
    assert done()
    for change in (queries / "colt" / "queries.jsonl", queries / "new.json", corpus):
        change.write_text("{} \n")
        assert not done(), change
        finish()
        assert done()


def test_only_an_interrupted_stage_of_the_same_command_goes_on(quickstart: ModuleType, tmp_path: Path) -> None:
    from stage_runner import Stage, StageError, StageRunner

    logs, made = tmp_path / "logs", tmp_path / "s"
    code = "import sys, time; time.sleep(0.3); print(sys.argv[1:]); sys.exit('--resume' not in sys.argv)"
    stage = Stage("s", (sys.executable, "-c", code), made, resumes=True)
    with pytest.raises(StageError):
        StageRunner(logs, tmp_path).run_step([stage])
    assert not StageRunner(logs, tmp_path).continues(stage)  # it left no checkpoint
    state = made / "checkpoint-2" / "trainer_state.json"
    write_json(state, {"global_step": 2, "max_steps": 4})
    started = json.loads((logs / "s.started.json").read_text())["time"]
    os.utime(state, (started + 100, started + 100))  # the checkpoint was reached after 100 s
    other = Stage("s", (*stage.command, "--seed", "1"), made, resumes=True)
    assert not StageRunner(logs, tmp_path).continues(other)
    assert not StageRunner(logs, tmp_path).continues(Stage("s", stage.command, made))
    runner = StageRunner(logs, tmp_path)
    assert runner.continues(stage)
    runner.run_step([stage], continued=["s"])
    assert 100.3 < runner.wall_s["s"] < 120
    assert (logs / "s.log").read_text().splitlines()[-1] == "['--resume', 'true']"
    runner.forget([stage])
    assert not runner.continues(stage) and not runner.is_done(stage)
