"""Grounding, fixed denominators and groups, on trajectories whose scores were worked out by hand."""

import re

import pytest

from autotools.errors import ConfigError, DataError
from autotools.rundir import write_jsonl
from autotools.schema import Event, EventKind, StopReason, Task, ToolId, Trajectory
from evaluation import selection


def tool(name: str) -> ToolId:
    return ToolId(category="Cat", tool="box", api=name)


def play(task: str, targets: str, searches: list[str], answer: str | None, *, unknown: tuple[str, ...] = (),
         level: str = "I2", meta: dict | None = None) -> Trajectory:  # fmt: skip
    """``targets``, hits of each search and ``answer`` are strings of one-letter tools."""
    events = [
        Event(kind=EventKind.SEARCH, text="call", query="q", hits=tuple(tool(c) for c in hits)) for hits in searches
    ]
    events.append(Event(kind=EventKind.ANSWER if answer is not None else EventKind.OVER_LIMIT, text="end"))
    return Trajectory(
        task_id=task, query="q", targets=tuple(tool(c) for c in targets), events=tuple(events),
        selection=None if answer is None else tuple(tool(c) for c in answer), unknown_names=unknown, level=level,
        stop_reason=StopReason.TURN_LIMIT if answer is None else StopReason.ANSWERED, meta=meta or {},
    )  # fmt: skip


def task(name: str, level: str = "I2", meta: dict | None = None) -> Task:
    return Task(id=name, suite="s", split="test", level=level, query="q", targets=(tool("a"),), meta=meta or {})


def test_a_name_no_search_has_shown_is_wrong_but_counts_in_the_size():
    # Targets a b; search shows a x; answer a b: b is right but was never shown. P = 1/2, R = 1/2, no match.
    scores = selection.score_trajectory(play("t", "ab", ["ax"], "ab"))
    assert (scores["precision"], scores["recall"], scores["f1"], scores["match"]) == (0.5, 0.5, 0.5, 0.0)
    # Once a later search shows b, the same answer is a full match.
    assert selection.score_trajectory(play("t", "ab", ["ax", "b"], "ab"))["match"] == 1.0
    # A search after which nothing was found grounds nothing, not even a guessed target.
    assert selection.score_trajectory(play("t", "a", [""], "a"))["f1"] == 0.0


def test_unknown_names_cost_precision():
    prediction = selection.grounded_prediction(play("t", "a", ["a"], "a", unknown=("Cat.box.zzz", "nonsense")))
    assert len(prediction) == 3 and "Cat.box.a" in prediction
    # An unknown name can be spelled like a target's id only if the corpus lacks it: it must still be no hit.
    assert selection.score_trajectory(play("t", "a", ["a"], "", unknown=("Cat.box.a",)))["f1"] == 0.0


def test_scores_of_one_trajectory():
    scores = selection.score_trajectory(play("t", "abc", ["ax", "ax", "b"], "ax"))
    expected = {"precision": 1 / 2, "recall": 1 / 3, "f1": 2 / 5, "match": 0.0, "srecall": 2 / 3, "searches": 3.0,
                "useless_searches": 1.0, "answered": 1.0}  # fmt: skip
    assert scores == pytest.approx(expected) and set(scores) == set(selection.PER_TASK)
    silent = selection.score_trajectory(play("t", "ab", ["ab"], None))
    assert silent["answered"] == silent["f1"] == silent["match"] == 0.0 and silent["srecall"] == 1.0


def test_missing_and_unanswered_tasks_stay_in_the_denominator():
    tasks = [task("one"), task("two"), task("three"), task("four")]
    rows = [play("one", "a", ["a"], "a"), play("two", "a", ["a"], None)]
    overall = selection.metrics_table(selection.score_tasks(rows, tasks), seed=0)["overall"]
    assert (overall["n"], overall["missing"], overall["f1"], overall["answered"]) == (4, 2, 0.25, 0.25)
    assert overall["srecall"] == 0.5
    assert (overall["complete"], overall["match_given_complete"]) == (2, 0.5)


def test_unseen_domain_is_apart_and_means_are_pooled():
    rows = [
        play("1", "a", ["a"], "a", level="I1"),
        play("2", "a", ["a"], "a", level="I1"),
        play("3", "a", ["a"], "a", level="I1"),
        play("4", "a", ["x"], "x", level="I3"),
        play("5", "a", ["x"], "x", level="I3", meta={"domain": "unseen"}),
    ]
    table = selection.metrics_table(selection.score_tasks(rows), seed=0)
    assert {name: row["n"] for name, row in table.items()} == {"overall": 4, "I1": 3, "I2": 0, "I3": 1, "unseen": 1}
    assert table["overall"]["f1"] == 0.75  # over tasks, not the mean of the two levels (0.5)
    assert table["I2"]["f1"] is None and table["I2"]["intervals"]["f1"] is None
    assert table["unseen"]["f1"] == 0.0
    summary = selection.summary_form(table)
    assert set(summary["overall"]) == {"f1", "recall", "precision", "match", "srecall", "n"}


def test_another_suite_has_the_groups_that_its_tasks_name():
    rows = [play("1", "a", ["a"], "a", level="G3_instruction"), play("2", "a", ["x"], "x", level="G1_tool")]
    table = selection.metrics_table(selection.score_tasks(rows), seed=0)
    assert {name: row["n"] for name, row in table.items()} == {"overall": 2, "G1_tool": 1, "G3_instruction": 1}
    heads = [line[:21].split() for line in selection.text_table(table).splitlines() if line[0] != " "]
    assert heads == [["group", "n"], ["overall", "2"], ["G1_tool", "1"], ["G3_instruction", "1"]]  # n stands in line


def test_several_suites_are_groups_of_their_own():
    tasks = [task("1", "G1"), task("2", "G1"), task("3", "lens").model_copy(update={"suite": "other"})]
    table = selection.metrics_table(selection.score_tasks([play("1", "a", ["a"], "a")], tasks), seed=0)
    assert {name: (row["n"], row["f1"]) for name, row in table.items()} == {
        "overall": (3, pytest.approx(1 / 3)), "other": (1, 0), "other/lens": (1, 0), "s": (2, 0.5), "s/G1": (2, 0.5),
    }  # fmt: skip


def test_groups_by_number_of_targets():
    rows = [play("1", "a", ["a"], "a"), play("2", "abc", ["ab"], "ab"), play("3", "b", ["x"], "x", level="I3"),
            play("4", "abb", ["a"], "a"), play("5", "a", ["a"], "a", meta={"domain": "unseen"})]  # fmt: skip
    groups = selection.target_groups(selection.score_tasks(rows))
    assert {name: [s.task_id for s in members] for name, members in groups.items()} == {
        "1 target": ["1", "3"], "2 targets": ["4"], "3 targets": ["2"],
    }  # fmt: skip
    table = selection.table_of(groups, seed=0)
    assert table["1 target"]["f1"] == 0.5 and table["3 targets"]["srecall"] == pytest.approx(2 / 3)


def test_groups_come_from_the_task_file_when_it_is_given():
    scores = selection.score_tasks([play("one", "a", ["a"], "a")], [task("one", "I3", {"domain": "unseen"})])
    assert selection.group_scores(scores)["overall"] == [] and len(selection.group_scores(scores)["unseen"]) == 1


def test_paired_differences():
    old = selection.score_tasks([play(str(i), "a", ["a"], "x" if i % 2 else "a") for i in range(40)])
    new = selection.score_tasks([play(str(i), "a", ["a"], "a") for i in reversed(range(40))])  # order must not matter
    result = selection.compare({"before": old, "after": new}, seed=0)
    assert list(result["paired"]) == ["after-before"]
    cell = result["paired"]["after-before"]["overall"]["f1"]
    assert cell["diff"] == 0.5 and 0.3 < cell["interval"][0] < 0.5 < cell["interval"][1] < 0.7
    assert result["paired"]["after-before"]["I1"]["f1"] == {"diff": None, "interval": None}
    with pytest.raises(DataError, match=r"same tasks .* \(--tasks\) one that is missing counts as failed"):
        selection.paired_table(new, old[1:], seed=0)


def test_finding_more_hard_tasks_is_no_worse_selection():
    """Both select all of the easy tasks; one finds hard tasks as well and gets half right (Simpson's paradox)."""
    timid = [play(str(i), "a", ["a"], "a") for i in range(10)] + [play(f"h{i}", "ab", ["a"], "a") for i in range(10)]
    bold = timid[:10] + [play(f"h{i}", "ab", ["ab"], "ab" if i % 2 else "a") for i in range(10)]
    runs = {name: selection.score_tasks(rows) for name, rows in (("timid", timid), ("bold", bold))}
    result = selection.compare(runs, seed=0)
    given = {name: result["policies"][name]["overall"]["match_given_complete"] for name in runs}
    assert given == {"timid": 1.0, "bold": 0.75}
    cell = result["paired"]["bold-timid"]["overall"]["match_both_complete"]
    assert cell["diff"] == 0.0 and cell["n"] == 10
    worse = [*bold[:9], play("9", "a", ["a"], "x"), *bold[10:]]  # one of the ten easy ones
    cell = selection.paired_table(selection.score_tasks(worse), runs["timid"], seed=0)["overall"]["match_both_complete"]
    assert cell["diff"] == pytest.approx(-0.1) and cell["n"] == 10
    nobody = selection.score_tasks([play(row.task_id, "a", ["x"], "a") for row in timid])
    cell = selection.paired_table(nobody, runs["timid"], seed=0)["overall"]["match_both_complete"]
    assert cell == {"diff": None, "interval": None, "n": 0}


def test_bad_files_of_predictions():
    row = play("one", "a", ["a"], "a")
    with pytest.raises(DataError, match="two predictions for task 'one'"):
        selection.score_tasks([row, row])
    with pytest.raises(DataError, match="not in the task file, first 'one'"):
        selection.score_tasks([row], [task("two")])


def test_command(tmp_path, capsys):
    rows = [play(str(i), "ab", ["ab"], "a", level="I2") for i in range(10)]
    better = [play(str(i), "ab", ["ab"], "ab", level="I2") for i in range(10)]
    write_jsonl(tmp_path / "a.jsonl", better)
    write_jsonl(tmp_path / "b.jsonl", rows)
    assert selection.main([str(tmp_path / "a.jsonl"), "--baseline", str(tmp_path / "b.jsonl")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^overall +10 +1\.000 +1\.000", out, re.M)
    assert "overall   f1 +0.333 [+0.333 +0.333]" in out
    with pytest.raises(ConfigError, match="no prediction file"):
        selection.main([])
    (tmp_path / "c.jsonl").write_text('{"task_id": 1}\n')
    with pytest.raises(DataError, match=r"c\.jsonl:1: not a Trajectory"):
        selection.main([str(tmp_path / "c.jsonl")])


def test_a_bad_baseline_is_an_error_before_any_table(tmp_path, capsys):
    write_jsonl(tmp_path / "eval" / "after" / "predictions.jsonl", [play("t1", "a", ["a"], "a")])
    predictions = str(tmp_path / "eval" / "after" / "predictions.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"a": \n')
    for baseline, words in (("none.jsonl", "cannot read"), ("bad.jsonl", r"bad\.jsonl:1: not JSON")):
        with pytest.raises(DataError, match=words):
            selection.main([predictions, "--baseline", str(tmp_path / baseline)])
    with pytest.raises(DataError, match=r"eval is a folder; name .*eval/after/predictions\.jsonl$"):
        selection.main([str(tmp_path / "eval")])
    with pytest.raises(DataError, match=r"is a folder, and no predictions\.jsonl is in it"):
        selection.main([str(tmp_path)])
    assert capsys.readouterr().out == ""
    assert selection.main([predictions]) == 0
