"""What one real quickstart leaves behind: the summary, a page that needs nothing else, and a gain that is real."""

import html.parser
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

LEVELS = ("overall", "I1", "I2", "I3")
SCORES = ("f1", "recall", "precision", "match", "srecall", "n")
STAGES = ("world", "data", "sft", "rl", "sft_longer", "evaluate", "report")
POLICIES = ("bm25_oneshot", "before", "sft_longer", "after")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def summary(quickstart_run: Any) -> dict[str, Any]:
    return json.loads((quickstart_run.folder / "summary.json").read_text(encoding="utf-8"))


def test_summary_has_exactly_the_agreed_keys(summary: dict[str, Any]) -> None:
    assert set(summary) == {"wall_s", "eval", "world", "functions", "seed"}
    assert set(summary["wall_s"]) == set(STAGES)
    assert set(summary["world"]) == {"tools", "tasks", "programs_verified"}
    assert set(summary["functions"]) == {"total", "verified"}
    assert set(summary["eval"]) == set(POLICIES)
    for policy in summary["eval"].values():
        assert set(policy) == set(LEVELS)
        assert all(set(level) == set(SCORES) for level in policy.values())
        assert policy["overall"]["n"] == sum(policy[level]["n"] for level in LEVELS[1:])
    assert summary["seed"] == 0


def test_time_and_memory_are_told(quickstart_run: Any, summary: dict[str, Any]) -> None:
    assert all(seconds > 0 for seconds in summary["wall_s"].values())
    for stage, seconds in summary["wall_s"].items():
        assert not quickstart_run.stderr or f"{stage}: done in {seconds:.1f} s" in quickstart_run.stderr
    memory = json.loads((quickstart_run.folder / "logs" / "memory.json").read_text(encoding="utf-8"))
    assert set(memory["stages"]) == set(STAGES)
    assert 0 < memory["peak_bytes"] < 4e9
    assert quickstart_run.stdout.splitlines()[-1].endswith("quickstart/report.html")


def test_every_program_and_function_is_verified(quickstart_run: Any, summary: dict[str, Any]) -> None:
    world = quickstart_run.folder / "world"
    tasks = [task for split in ("train", "dev", "test") for task in rows(world / "tasks" / f"{split}.jsonl")]
    assert summary["world"] == {
        "tools": len(rows(world / "tools.jsonl")), "tasks": len(tasks), "programs_verified": len(tasks),
    }  # fmt: skip
    assert summary["world"]["tools"] >= 96 and len(tasks) >= 3000
    functions = rows(world / "functions.jsonl")
    assert summary["functions"] == {"total": len(functions), "verified": len(functions)}
    assert len(functions) == summary["world"]["tools"]


def test_the_gain_is_real(summary: dict[str, Any]) -> None:
    f1 = {name: summary["eval"][name]["overall"]["f1"] for name in POLICIES}
    assert f1["after"] - f1["before"] > 0.1
    assert f1["after"] > f1["sft_longer"]
    assert f1["before"] > f1["bm25_oneshot"]


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def by_hand(folder: Path, policy: str) -> dict[str, float]:
    """Mean scores over the test tasks of the known domains, from the prediction file and nothing of ours.

    A selected tool counts only if some search has shown it; whoever did not answer has 0.
    """
    tasks = {task["id"]: task for task in rows(folder / "world" / "tasks" / "test.jsonl")}
    scores: dict[str, list[float]] = {name: [] for name in SCORES[:-1]}
    for row in rows(folder / "eval" / policy / "predictions.jsonl"):
        task = tasks.pop(row["task_id"])
        if task["meta"]["domain"] == "unseen":
            continue
        targets = {json.dumps(tool, sort_keys=True) for tool in task["targets"]}
        shown = {json.dumps(tool, sort_keys=True) for event in row["events"] for tool in event["hits"]}
        chosen = {json.dumps(tool, sort_keys=True) for tool in row["selection"] or ()}
        right, named = len(chosen & shown & targets), len(chosen) + len(set(row["unknown_names"]))
        scores["precision"].append(right / named if named else 0.0)
        scores["recall"].append(right / len(targets))
        scores["f1"].append(2 * right / (named + len(targets)))
        scores["match"].append(float(right == named == len(targets)))
        scores["srecall"].append(len(shown & targets) / len(targets))
    assert not tasks, "every test task has a prediction"
    return {name: mean(values) for name, values in scores.items()}


@pytest.mark.parametrize("policy", POLICIES)
def test_scores_of_the_summary_by_hand(policy: str, quickstart_run: Any, summary: dict[str, Any]) -> None:
    told = summary["eval"][policy]["overall"]
    assert by_hand(quickstart_run.folder, policy) == pytest.approx({name: told[name] for name in SCORES[:-1]})


def test_no_training_record_is_a_test_task(quickstart_run: Any) -> None:
    folder = quickstart_run.folder
    test = {task["query"] for task in rows(folder / "world" / "tasks" / "test.jsonl")}
    trained = {row["query"] for row in rows(folder / "data" / "rl" / "train.jsonl")}
    trained |= {message["content"] for row in rows(folder / "data" / "sft" / "train.jsonl")
                for message in row["messages"] if message["role"] == "user"}  # fmt: skip
    assert not test & trained


LOADING = {"src", "srcset", "poster", "background", "href", "xlink:href", "data", "action"}


class _Outside(html.parser.HTMLParser):
    """Collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("script", "iframe", "object", "embed"):
            self.loads.append(tag)
        found = [value for name, value in attrs if name in LOADING and value]
        self.loads += [value for value in found if not value.startswith(("#", "data:"))]


def test_report_needs_nothing_else(quickstart_run: Any) -> None:
    page = (quickstart_run.folder / "report.html").read_text(encoding="utf-8")
    reader = _Outside()
    reader.feed(page)
    assert {link.partition("#")[0] for link in reader.loads} == {"trajectories.html"}  # a link, loaded on a click only
    assert "@import" not in page and "url(" not in page
    assert {"svg", "table"} <= reader.tags
    assert "is missing" not in page
    text = (quickstart_run.folder / "report.md").read_text(encoding="utf-8")
    for stage, peak in json.loads((quickstart_run.folder / "logs" / "memory.json").read_text())["stages"].items():
        if stage != "report":  # the report cannot know its own
            assert f"{peak / 1e9:.2f}" in page and re.search(rf"\| {stage} +\| .* \| +{peak / 1e9:.2f} \|", text), stage


def test_every_recorded_token_is_on_the_trajectory_page(quickstart_run: Any) -> None:
    page = (quickstart_run.folder / "trajectories.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    shown = [[data["strings"][t] for t in event["tokens"]] for step in data["steps"] for group in step["groups"]
             for rollout in group["rollouts"] for event in rollout["events"]]  # fmt: skip
    recorded = rows(quickstart_run.folder / "rl" / "trajectories.jsonl")
    assert shown == [event["tokens"] for row in recorded for event in row["credit"]]
    assert len(recorded) >= 100 and not re.search(r"https?:", page)


def test_a_finished_run_is_not_overwritten(quickstart_run: Any) -> None:
    before = (quickstart_run.folder / "summary.json").stat().st_mtime_ns
    done = quickstart_run.shell(f"python launch/quickstart.py --out {quickstart_run.folder}", 60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: run folder ") and done.stderr.count("\n") == 1
    assert (quickstart_run.folder / "summary.json").stat().st_mtime_ns == before
