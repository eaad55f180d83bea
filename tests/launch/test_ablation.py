"""The ablation driver with fake stages: order, sharing, resumption, growth; its table against numbers by hand."""

import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from autotools.errors import AutoToolsError, DataError
from autotools.rundir import write_jsonl
from autotools.schema import Event, EventKind, StopReason, ToolId, Trajectory

ROOT = Path(__file__).resolve().parents[2]


# --- trajectories with known scores ---------------------------------------------------------------------------------


def tool(name: str) -> ToolId:
    return ToolId(category="C", tool="t", api=name)


def played(task: str, right: bool, shown: bool = True, answered: bool = True, unseen: bool = False) -> Trajectory:
    """One target ``a``; one search that shows it or not, and an answer with it or with ``b``."""
    hits = (tool("a"), tool("b")) if shown else (tool("b"),)
    events = (Event(kind=EventKind.SEARCH, text="s", query="q", hits=hits),)
    selection = ((tool("a"),) if right else (tool("b"),)) if answered else None
    return Trajectory(
        task_id=task, query="q", targets=(tool("a"),), events=events, selection=selection, level="I1",
        stop_reason=StopReason.ANSWERED if answered else StopReason.TURN_LIMIT,
        meta={"domain": "unseen"} if unseen else {},
    )  # fmt: skip


def write_predictions(out: Path, seed: int, row: str, trajectories: list[Trajectory]) -> None:
    write_jsonl(out / f"seed{seed}" / "eval" / row / "predictions.jsonl", trajectories)


FAKE = """
import pathlib, sys
if '--dry_run' in sys.argv:  # asked for its keys
    sys.exit()
kind, out, here, row = (sys.argv[1:] + [''])[:4]
with open(pathlib.Path(out) / 'order.txt', 'a') as file:
    file.write(' '.join([kind, pathlib.Path(here).name if kind != 'world' else '', row]).strip() + '\\n')
if (pathlib.Path(out).parent / f'fail_{row or kind}').exists():
    sys.exit(3)
made = {'world': pathlib.Path(out) / 'world', 'rl': pathlib.Path(here) / row, 'evaluate': pathlib.Path(here) / 'eval'}
folder = made.get(kind, pathlib.Path(here) / kind)
folder.mkdir(parents=True)
if kind == 'evaluate':
    for policy in sys.argv[4:]:
        name = policy.partition('=')[0]
        (folder / name).mkdir()
        (folder / name / 'predictions.jsonl').write_bytes((pathlib.Path(out).parent / 'predictions.jsonl').read_bytes())
"""
TABLE = "{a: {label: A, algorithm: grpo}, b: {algorithm: gspo, beta: 0.5}, c: {against: b}}"


@pytest.fixture
def fakes(ablation: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The driver with a script in place of every command; all policies play the same two requests."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    write_jsonl(tmp_path / "predictions.jsonl", [played("t1", True), played("t2", False)])
    ends = {"rl": " {row}", "evaluate": " before={here}/sft {policies}"}
    commands = {kind: f"{{python}} {script} {kind} {{out}} {{here}}" + ends.get(kind, "") for kind in ablation.COMMANDS}
    monkeypatch.setattr(ablation, "COMMANDS", commands)
    (tmp_path / "study.yaml").write_text(f"baseline: a\ntable: {TABLE}\n")
    return ablation


def run(fakes: ModuleType, tmp_path: Path, *argv: str) -> list[str]:
    """Run a study; returns what ran in this call, in order."""
    order = tmp_path / "run" / "order.txt"
    before = order.read_text().splitlines() if order.is_file() else []
    config = ["--config", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "run")]
    try:
        fakes.main([*config, *argv])
    finally:
        ran = order.read_text().splitlines()[len(before) :] if order.is_file() else []
    return ran


def test_seeds_share_what_they_should_and_run_in_order(fakes: ModuleType, tmp_path: Path, capsys: Any) -> None:
    ran = run(fakes, tmp_path, "--seeds", "3")
    assert ran[0] == "world" and ran.count("world") == 1
    assert sorted(ran) == sorted(
        ["world"]
        + [f"{kind} seed{s}" for s in range(3) for kind in ("data", "sft")]
        + [f"rl seed{s} {row}" for s in range(3) for row in "abc"]
        + [f"evaluate seed{s} before={tmp_path}/run/seed{s}/sft" for s in range(3)]
    )
    for seed in range(3):
        mine = [line.split()[0] for line in ran if f"seed{seed}" in line]
        assert mine == ["data", "sft", "rl", "rl", "rl", "evaluate"]
    assert capsys.readouterr().out.split()[-3:] == [f"{tmp_path}/run/ablation.{s}" for s in ("json", "md", "html")]
    content = json.loads((tmp_path / "run" / "ablation.json").read_text())
    assert list(content["rows"]) == ["before", "a", "b", "c"]
    assert {name: row["against"] for name, row in content["rows"].items()} == {
        "before": None, "a": None, "b": "a", "c": "b",
    }  # fmt: skip
    assert content["rows"]["b"]["keys"] == {"algorithm": "gspo", "beta": 0.5}
    assert all(row["wall_s"] > 0 for row in content["rows"].values() if row["label"] != "SFT start")


def test_failed_study_goes_on_where_it_stopped_and_may_grow(fakes: ModuleType, tmp_path: Path) -> None:
    (
        tmp_path / "fail_c"
    ).touch()  # a and b of seed 0 were the step before; c runs beside seed 1's a, which is ended, too
    with pytest.raises(AutoToolsError, match=r"stage seed0_c failed \(exit code 3\)"):
        run(fakes, tmp_path, "--seeds", "2")
    (tmp_path / "fail_c").unlink()
    with pytest.raises(AutoToolsError, match="is in use"):
        run(fakes, tmp_path, "--seeds", "2")
    again = run(fakes, tmp_path, "--seeds", "2", "--resume")
    assert not {"world", "data seed0", "sft seed1", "rl seed0 a", "rl seed0 b"} & set(again) and "rl seed0 c" in again
    assert run(fakes, tmp_path, "--seeds", "2", "--resume") == []
    more = run(fakes, tmp_path, "--seeds", "3", "--resume")
    assert {line.split()[1] for line in more} == {"seed2"}
    # fewer rows: nothing is trained, only the evaluation of those rows is made
    fewer = run(fakes, tmp_path, "--seeds", "3", "--resume", "--rows", "a", "b")
    assert {line.split()[0] for line in fewer} == {"evaluate"} and len(fewer) == 3


def test_what_a_resumption_leaves_out_is_said_first(fakes: ModuleType, tmp_path: Path, capsys: Any) -> None:
    def notes(*argv: str) -> list[str]:
        capsys.readouterr()
        run(fakes, tmp_path, "--resume", *argv)
        return [line.removeprefix("note: ") for line in capsys.readouterr().err.splitlines() if "note: " in line]

    run(fakes, tmp_path, "--seeds", "2")
    assert notes("--seeds", "2") == [] and notes("--seeds", "3") == []  # nothing to do; one more
    fewer = ["--rows", "a", "--seeds", "2"]
    planned = notes(*fewer, "--dry_run")
    assert list(json.loads((tmp_path / "run" / "ablation.json").read_text())["rows"]) == ["before", "a", "b", "c"]
    assert planned == notes(*fewer)
    back = "--rows a b c --seeds 3"
    assert planned[0].startswith("finished rows b, c and seeds 2 will not be in the tables any more; their models are")
    assert planned[0].endswith(f"To have them back: --resume {back}")
    assert planned[1].startswith("seed0_evaluate, seed1_evaluate: finished before with other keys; runs again: ")
    assert len(planned) == 2
    assert list(json.loads((tmp_path / "run" / "ablation.json").read_text())["rows"]) == ["before", "a"]
    notes(*back.split())
    content = json.loads((tmp_path / "run" / "ablation.json").read_text())
    assert (list(content["rows"]), content["seeds"]) == (["before", "a", "b", "c"], 3)
    same = "finished before, but reads what runs again; runs again"
    assert notes("--seeds", "3", "--more", "rl.beta=0.25") == [
        "seed0_a, seed0_c, seed1_a, seed1_c, seed2_a, seed2_c: finished before with other keys; runs again: "
        "--beta 0.25 (before: not given)",
        "seed0_b, seed1_b, seed2_b: finished before with other keys; runs again: --beta 0.25 (before: 0.5)",
        f"seed0_evaluate, seed1_evaluate, seed2_evaluate: {same}",
    ]


def test_rows_that_are_left_out_do_not_outlive_their_start(fakes: ModuleType, tmp_path: Path) -> None:
    """SFT runs again under other keys while only a is chosen: the runs of b and c came from a model that is gone."""
    run(fakes, tmp_path, "--seeds", "2")
    changed = ["--resume", "--more", "sft.max_steps=3", "--seeds"]
    some = run(fakes, tmp_path, *changed, "1", "--rows", "a")
    assert [line.split()[0] for line in some] == ["sft", "rl", "evaluate"]
    rest = run(fakes, tmp_path, *changed, "1")
    assert [line.split()[:3] for line in rest[:2]] == [["rl", "seed0", "b"], ["rl", "seed0", "c"]] and len(rest) == 3
    assert len(run(fakes, tmp_path, *changed, "2")) == 5  # sft, three rows and the evaluation of seed 1


def test_dry_run_ends_with_the_number_of_stages(fakes: ModuleType, tmp_path: Path, capsys: Any) -> None:
    assert run(fakes, tmp_path, "--seeds", "2", "--dry_run") == []
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 13 and err.splitlines()[-1] == (
        "13 stages: 1 world, 2 data sets, 2 SFT runs, 6 RL runs, 2 evaluations; 2 side by side"
    )


def test_what_reads_a_repeated_stage_is_repeated(fakes: ModuleType, tmp_path: Path) -> None:
    run(fakes, tmp_path, "--seeds", "2")
    (tmp_path / "run" / "seed1" / "sft").rmdir()
    again = run(fakes, tmp_path, "--seeds", "2", "--resume")
    assert [line.split()[0] for line in again] == ["sft", "rl", "rl", "rl", "evaluate"]
    assert all("seed1" in line for line in again)
    changed = run(fakes, tmp_path, "--seeds", "2", "--resume", "--more", "rl.beta=0.25")
    assert [line.split()[0] for line in changed] == ["rl"] * 6 + ["evaluate"] * 2


def test_a_kill_after_a_repeated_stage_leaves_no_old_results(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SFT model was made anew, then the driver was killed: the runs from the old one are void."""
    from stage_runner import StageRunner

    run(fakes, tmp_path, "--seeds", "1")
    (tmp_path / "run" / "seed0" / "sft").rmdir()
    run_step = StageRunner.run_step

    def killed_before_rl(self: StageRunner, stages: Any, *rest: Any) -> None:
        if "rl" in stages[0].command:
            raise KeyboardInterrupt
        run_step(self, stages, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StageRunner, "run_step", killed_before_rl)
        run(fakes, tmp_path, "--seeds", "1", "--resume")
    again = run(fakes, tmp_path, "--seeds", "1", "--resume")
    assert [line.split()[0] for line in again] == ["rl", "rl", "rl", "evaluate"]


def test_no_more_stages_than_jobs_side_by_side(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stage_runner import StageRunner

    sizes: list[int] = []
    run_step = StageRunner.run_step
    monkeypatch.setattr(
        StageRunner, "run_step", lambda self, stages, *rest: (sizes.append(len(stages)), run_step(self, stages, *rest))
    )
    run(fakes, tmp_path, "--seeds", "2", "--jobs", "2")
    assert sizes == [1, 2, 2, 2, 2, 2, 2]


# --- the published study --------------------------------------------------------------------------------------------


def test_rows_of_the_papers_study_differ_in_their_switch_only() -> None:
    table = yaml.safe_load((ROOT / "configs" / "ablation" / "paper.yaml").read_text())["table"]
    keys = [{k: v for k, v in row.items() if k != "label"} for row in table.values()]
    base, no_cctd, no_esm, no_tca, *baselines = keys
    assert base == {"algorithm": "toolsearcher", "curriculum.mode": "enforce", "curriculum.fraction": 0.3}
    assert no_cctd == {"algorithm": "toolsearcher"}
    assert no_esm == base | {"credit.esm": False} and no_tca == base | {"credit.tca": False}
    assert baselines == [{"algorithm": name} for name in ("grpo", "gspo", "gdpo", "rloo")]


# --- the table ------------------------------------------------------------------------------------------------------


def test_t_points_and_interval_are_those_of_scipy(ablation: ModuleType) -> None:
    from ablation_table import T_975, t_interval
    from scipy import stats

    assert [round(stats.t.ppf(0.975, free), 3) for free in range(1, 31)] == list(T_975)
    rng = random.Random(3)
    for n in (2, 5, 12):
        values = [rng.gauss(0.5, 0.2) for _ in range(n)]
        low, high = stats.t.interval(0.95, n - 1, loc=sum(values) / n, scale=stats.sem(values))
        assert t_interval(values) == pytest.approx([low, high], abs=2e-4)
    assert t_interval([0.3]) is None


def test_table_by_hand(study_args: Any, tmp_path: Path) -> None:
    """Four requests and one of the test-only domain, two seeds. F1 is 1 where the answer is right and 0 elsewhere."""
    from ablation_table import write_tables

    right = {("a", 0): (1, 1, 0, 0), ("a", 1): (1, 1, 1, 0), ("b", 0): (0, 1, 0, 0), ("b", 1): (0, 1, 0, 0)}
    for (row, seed), marks in right.items():
        tasks = [played(f"t{i}", bool(mark)) for i, mark in enumerate(marks)]
        write_predictions(tmp_path, seed, row, [*tasks, played("u", True, unseen=True)])
    silent = [played(f"t{i}", False, shown=i < 2, answered=i == 0) for i in range(4)]
    for seed in range(2):
        write_predictions(tmp_path, seed, "before", [*silent, played("u", False, unseen=True)])
    path = tmp_path / "study.yaml"
    path.write_text("baseline: b\nseeds: 2\ntable: {a: {label: <A|*>}, b: {label: B}}\n")
    text = write_tables(tmp_path, study_args(path), {"seed0_a": 10.0, "seed1_a": 20.0})
    content = json.loads((tmp_path / "ablation.json").read_text())
    assert content["tasks"] == {"overall": 4, "I1": 4, "unseen": 1}
    a, before = content["rows"]["a"], content["rows"]["before"]
    assert a["wall_s"] == 15 and a["groups"]["unseen"]["f1"]["mean"] == 1
    f1 = a["groups"]["overall"]["f1"]
    assert (f1["mean"], f1["seeds"]) == (0.625, [0.5, 0.75])
    assert f1["seed_interval"] == pytest.approx([0.625 - 12.706 * 0.125, 0.625 + 12.706 * 0.125])
    assert 0 <= f1["task_interval"][0] < 0.625 < f1["task_interval"][1] <= 1  # per task 1, 1, .5, 0
    difference = a["differences"]["overall"]["f1"]
    assert (difference["diff"], difference["higher"], difference["seeds"]) == (0.375, 2, 2)  # .25 and .5
    assert difference["seed_interval"] == pytest.approx([0.375 - 12.706 * 0.125, 0.375 + 12.706 * 0.125])
    # two targets of four were shown, none of them was selected; one request of four was answered
    overall = before["groups"]["overall"]
    assert (overall["srecall"]["mean"], overall["match_given_complete"]["mean"]) == (0.5, 0)
    assert (overall["answered"]["mean"], before["silent_seeds"], before["against"]) == (0.25, 2, None)
    assert overall["match_given_complete"]["task_interval"] is None
    markdown, page = ((tmp_path / f"ablation.{suffix}").read_text() for suffix in ("md", "html"))
    assert "0.625 ± 1.588" in text and "+0.375 " in markdown and "What a small world can show" in markdown
    assert "<td>+0.375</td>" in page and "&lt;A|*&gt;" in page and "<A|*>" not in page and "http" not in page[700:]


def test_one_seed_without_its_baseline_promises_nothing(study_args: Any, tmp_path: Path) -> None:
    """Both differences are left out, by the study's baseline and by a row's own; no seed has a complete request."""
    from ablation_table import write_tables

    for row in ("before", "a", "b", "c"):
        write_predictions(tmp_path, 0, row, [played("t", row == "b", shown=row == "b")])
    path = tmp_path / "study.yaml"
    path.write_text(f"baseline: a\nseeds: 1\ntable: {TABLE}\n")
    alone = "No difference for {}: the row {}, which would be subtracted, is not among the rows; add it to --rows"
    for rows, said in (("c", alone.format("c", "b")), ("b", alone.format("b", "a")), ("a", "")):
        text = write_tables(tmp_path, study_args(path, "--rows", rows), {})
        page, markdown = ((tmp_path / f"ablation.{suffix}").read_text() for suffix in ("html", "md"))
        for shown in (page, markdown):
            assert "requests: 1 seed" in shown and "1 seeds" not in shown and "±" not in shown and "minus" not in shown
            assert "One seed says nothing" in shown and "only where both exclude" not in shown
            assert said in shown and said in text and ("No difference for" in shown) == bool(said)
    write_tables(tmp_path, study_args(path), {})
    markdown = (tmp_path / "ablation.md").read_text()
    assert "over seeds |" not in markdown and "No difference for" not in markdown
    both = markdown.partition("## Difference in match both complete")[2].partition("##")[0]
    assert both.count("no seed to compare") == 2 and " of 0" not in markdown and "1 of 1" in markdown


def test_difference_is_marked_only_where_both_intervals_exclude_zero(ablation: ModuleType) -> None:
    from ablation_table import clear

    over = {"seed_interval": [0.1, 0.3], "task_interval": [0.05, 0.4]}
    assert clear(over) and clear({**over, "task_interval": None})
    assert clear({"seed_interval": [-0.3, -0.1], "task_interval": [-0.4, -0.05]})
    assert not clear({**over, "task_interval": [-0.01, 0.4]})
    assert not clear({**over, "seed_interval": [-0.1, 0.3]})
    assert not clear({**over, "seed_interval": None})


def test_seeds_that_played_other_requests_are_refused(ablation: ModuleType, tmp_path: Path) -> None:
    from ablation_table import read_runs

    write_predictions(tmp_path, 0, "a", [played("t1", True)])
    write_predictions(tmp_path, 1, "a", [played("t2", True)])
    with pytest.raises(DataError, match="do not cover the same tasks"):
        read_runs(tmp_path, ["a"], 2)


# --- for real -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_tiny_real_study_runs_through(tmp_path: Path) -> None:
    """Two rows, one seed, six steps: every command takes what the driver gives it."""
    out = tmp_path / "run"
    more = ["rl.max_steps=6", "rl.save_steps=2", "sft.max_steps=20", "evaluate.limit=20", "data.num_search_demos=400"]
    argv = ["--out", str(out), "--seeds", "1", "--rows", "toolsearcher", "gspo", "--more", *more]
    command = [sys.executable, str(ROOT / "launch" / "ablation.py"), *argv]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    content = json.loads((out / "ablation.json").read_text())
    assert list(content["rows"]) == ["before", "toolsearcher", "gspo"] and content["tasks"]["overall"] <= 20
    assert content["rows"]["gspo"]["against"] == "toolsearcher"
    curriculum = json.loads((out / "seed0" / "toolsearcher" / "run_config.json").read_text())
    assert (curriculum["curriculum"]["mode"], curriculum["max_steps"]) == ("enforce", 6)
