"""Tables of a study: every row's scores on the held-out requests, over seeds and over tasks, and against its baseline.

Two intervals, because two things vary. Over seeds: Student's t on the seeds' means; it is what another training run
would do. Over tasks: bootstrap of the tasks' means over seeds; it is what other requests would do to these very models.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.errors import DataError
from autotools.rundir import write_json, write_text
from evaluation.metrics import bootstrap_interval, mean, paired_bootstrap
from evaluation.report_text import number, table
from evaluation.selection import (
    MATCH_BOTH_COMPLETE,
    MATCH_GIVEN_COMPLETE,
    PER_TASK,
    UNSEEN,
    TaskScore,
    both_complete,
    group_scores,
    read_trajectories,
    score_tasks,
)

if TYPE_CHECKING:
    from ablation import AblationArgs

SHOWN = ("f1", "match", MATCH_GIVEN_COMPLETE, "srecall", "recall", "searches", "useless_searches", "answered")
COMPARED = ("f1", "match", MATCH_BOTH_COMPLETE, "srecall", "searches", "answered")
LOW_ANSWERED = 0.8
# 97.5 % points of Student's t for 1 to 30 degrees of freedom
T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
NOTES = (
    "An interval over seeds says what another training run might give; one over tasks says what other requests might "
    "give for these models. A difference is marked * only where both exclude zero. With many rows and scores some "
    "marks appear by chance: of comparisons without any effect, about one in twenty passes the test over seeds alone.",
    "What a small world can show: whether a setting learns at all, whether it collapses (few requests are answered), "
    "whether it searches more or selects better under exactly these conditions. A model trained from nothing, invented "
    "tools and a budget of minutes cannot show that a method is better for large models, real tools or long training, "
    "nor how large a difference would be there. No clear difference here is no proof that there is none.",
    "Match given complete is a mean over the requests whose targets a policy has seen. A policy that finds more is "
    "judged on harder requests, too; so its difference is taken over the requests that both have seen completely.",
    "All rows of a seed start from the same SFT model and see the same prompts in the same order, with the same number "
    "of steps and rollouts. Learning rate and temperature were not tuned per row, which may favour some of them.",
)


ONE_SEED = (
    "One seed says nothing of what another training run might give: there is no interval over seeds, and no difference "
    "is marked *. An interval over tasks says what other requests might give for these very models. For more seeds: "
    "the same command with --seeds N --resume."
)


def notes(content: Mapping[str, Any]) -> list[str]:
    """How to read the tables of a study, and why a row has no difference."""
    alone: dict[str, list[str]] = {}
    for row in content["rows"].values():
        if row["missing_baseline"]:
            alone.setdefault(row["missing_baseline"], []).append(row["label"])
    found = [
        f"No difference for {', '.join(labels)}: the row {baseline}, which would be subtracted, is not among the rows; "
        "add it to --rows, or name another with --baseline."
        for baseline, labels in alone.items()
    ]
    return found + [ONE_SEED if content["seeds"] == 1 else NOTES[0], *NOTES[1:]]


def t_interval(values: Sequence[float]) -> list[float] | None:
    """95 % interval of the mean of few values, one per seed; None for fewer than two. Over 30 degrees: that of 30."""
    if len(values) < 2:
        return None
    middle, free = sum(values) / len(values), len(values) - 1
    spread = math.sqrt(sum((value - middle) ** 2 for value in values) / free)
    half = T_975[min(free, len(T_975)) - 1] * spread / math.sqrt(len(values))
    return [middle - half, middle + half]


Runs = list[dict[str, TaskScore]]
"""Scores of one row: per seed, by task."""


def _seed_mean(run: Mapping[str, TaskScore], key: str) -> float | None:
    if key == MATCH_GIVEN_COMPLETE:
        return mean([score.values["match"] for score in run.values() if score.complete])
    return mean([score.values[key] for score in run.values()])


def _task_means(runs: Runs, key: str) -> list[float]:
    return [sum(run[task].values[key] for run in runs) / len(runs) for task in runs[0]]


def score_summary(runs: Runs, key: str) -> dict[str, Any]:
    """``{"mean", "seeds": [per seed], "seed_interval", "task_interval"}``; the conditional score has no last one."""
    seeds = [_seed_mean(run, key) for run in runs]
    known = [value for value in seeds if value is not None]
    pair = bootstrap_interval(_task_means(runs, key), seed=0) if key in PER_TASK else None
    return {
        "mean": mean(known),
        "seeds": seeds,
        "seed_interval": t_interval(known),
        "task_interval": list(pair) if pair else None,
    }


def _match_both_complete(a: Mapping[str, TaskScore], b: Mapping[str, TaskScore]) -> tuple[float | None, float | None]:
    shared = both_complete(a.values(), b)
    return mean([a[task].values["match"] for task in shared]), mean([b[task].values["match"] for task in shared])


def score_difference(runs: Runs, other: Runs, key: str) -> dict[str, Any]:
    """Paired by seed and by task: ``{"diff", "higher": seeds above, "seeds": n, "seed_interval", "task_interval"}``."""
    if key == MATCH_BOTH_COMPLETE:
        pairs = [_match_both_complete(a, b) for a, b in zip(runs, other, strict=True)]
    else:
        pairs = [(_seed_mean(a, key), _seed_mean(b, key)) for a, b in zip(runs, other, strict=True)]
    differences = [a - b for a, b in pairs if a is not None and b is not None]
    tasks = paired_bootstrap(_task_means(runs, key), _task_means(other, key), seed=0) if key in PER_TASK else None
    return {
        "diff": mean(differences),
        "higher": sum(d > 0 for d in differences),
        "seeds": len(differences),
        "seed_interval": t_interval(differences),
        "task_interval": tasks["interval"] if tasks else None,
    }


def clear(difference: Mapping[str, Any]) -> bool:
    """Whether every interval that there is excludes zero, and there is one over seeds."""
    pairs = [difference["seed_interval"], difference["task_interval"]]
    known = [pair for pair in pairs if pair]
    return bool(pairs[0]) and all(low > 0 or high < 0 for low, high in known)


def read_runs(out: Path, names: Sequence[str], seeds: int) -> dict[str, list[list[TaskScore]]]:
    """Task scores per row and seed. Raises DataError if the runs do not cover the same tasks."""
    runs = {
        name: [
            score_tasks(read_trajectories(out / f"seed{seed}" / "eval" / name / "predictions.jsonl"))
            for seed in range(seeds)
        ]
        for name in names
    }
    tasks = {tuple(sorted(score.task_id for score in scores)) for row in runs.values() for scores in row}
    if len(tasks) > 1:
        raise DataError(f"{out}: the evaluations of the seeds do not cover the same tasks; run the study with --resume")
    return runs


def summarise(out: Path, args: "AblationArgs", wall_s: Mapping[str, float]) -> dict[str, Any]:
    """The content of ``ablation.json``: per row and group all scores, and differences to the row's baseline."""
    from ablation import START

    rows = args.chosen()
    labels = {START: "SFT start", **{name: row.get("label", name) for name, row in rows.items()}}
    read = read_runs(out, list(labels), args.seeds)
    grouped = {
        name: [
            {group: {score.task_id: score for score in scores} for group, scores in group_scores(run).items()}
            for run in row
        ]
        for name, row in read.items()
    }
    groups = [group for group, scores in grouped[START][0].items() if scores]
    content: dict[str, Any] = {"seeds": args.seeds, "tasks": {g: len(grouped[START][0][g]) for g in groups}, "rows": {}}
    for name, label in labels.items():
        wanted = rows[name].get("against", args.baseline) if name in rows else None
        against = wanted if wanted in rows and wanted != name else None
        runs = {group: [seed[group] for seed in grouped[name]] for group in groups}
        seconds = [wall_s[f"seed{seed}_{name}"] for seed in range(args.seeds) if f"seed{seed}_{name}" in wall_s]
        entry = {
            "label": label,
            "against": against,
            "missing_baseline": wanted if wanted not in (None, name, against) else None,
            "keys": {key: value for key, value in rows.get(name, {}).items() if key not in ("label", "against")},
            "wall_s": mean(seconds),
            "groups": {
                g: {key: score_summary(runs[g], key) for key in (*PER_TASK, MATCH_GIVEN_COMPLETE)} for g in groups
            },
        }
        entry["silent_seeds"] = sum(v < LOW_ANSWERED for v in entry["groups"]["overall"]["answered"]["seeds"])
        if against:
            entry["differences"] = {
                group: {
                    key: score_difference(runs[group], [seed[group] for seed in grouped[against]], key)
                    for key in (*PER_TASK, MATCH_GIVEN_COMPLETE, MATCH_BOTH_COMPLETE)
                }
                for group in groups
            }
        content["rows"][name] = entry
    return content


def _half(summary: Mapping[str, Any]) -> str:
    pair = summary["seed_interval"]
    return number(summary["mean"]) + (f" ± {(pair[1] - pair[0]) / 2:.3f}" if pair else "")


def _pair(pair: Sequence[float] | None) -> str:
    return f"{pair[0]:+.3f} to {pair[1]:+.3f}" if pair else ""


def shown_tables(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What both texts show: ``{"title", "header", "rows"}``."""
    rows = content["rows"]
    unseen = [UNSEEN] if UNSEEN in content["tasks"] else []
    scores = [
        [row["label"], *(_half(row["groups"]["overall"][key]) for key in SHOWN)]
        + [_half(row["groups"][group]["f1"]) for group in unseen]
        + [f"{row['silent_seeds']} of {content['seeds']}", number(row["wall_s"], 0)]
        for row in rows.values()
    ]
    header = ["row", *(key.replace("_", " ") for key in SHOWN), *(f"f1 {group}" for group in unseen)]
    several = content["seeds"] > 1
    over = f"mean over {content['seeds']} seeds, ± half of the 95 % interval over seeds" if several else "1 seed"
    tables = [
        {
            "title": f"Scores on {content['tasks']['overall']} held-out requests: {over}",
            "header": [*header, f"seeds that answer under {LOW_ANSWERED:.0%}", "seconds"],
            "rows": scores,
        }
    ]
    for key in COMPARED:
        lines = []
        for row in rows.values():
            if row["against"]:
                d = row["differences"]["overall"][key]
                mark = "*" if clear(d) else ""
                diff = "" if d["diff"] is None else f"{d['diff']:+.3f}{mark}"
                higher = f"{d['higher']} of {d['seeds']}" if d["seeds"] else "no seed to compare"
                against = rows[row["against"]]["label"]
                intervals = [_pair(d["seed_interval"])] * several + [_pair(d["task_interval"])]
                lines.append([row["label"], against, diff, *intervals, higher])
        if lines:
            header = ["row", "minus", "difference", *["over seeds"] * several, "over tasks", "seeds above"]
            tables.append({"title": f"Difference in {key.replace('_', ' ')}", "header": header, "rows": lines})
    return tables


def write_tables(out: Path, args: "AblationArgs", wall_s: Mapping[str, float]) -> str:
    """Write ``ablation.json``, ``.md`` and ``.html`` into the study's folder; returns the first table as text."""
    from jinja2 import Environment, FileSystemLoader

    content = summarise(out, args, wall_s)
    tables, said = shown_tables(content), notes(content)
    write_json(out / "ablation.json", {**content, "notes": said})
    lines = ["# RL settings in the tool world", ""]
    for shown in tables:
        lines += [f"## {shown['title']}", "", *table(shown["header"], shown["rows"])]
    write_text(out / "ablation.md", "\n".join([*lines, "## How to read this", "", *(f"{n}\n" for n in said)]))
    pages = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    page = pages.get_template("ablation.html.j2").render(tables=tables, notes=said)
    write_text(out / "ablation.html", page)
    alone = [note for note in said if note.startswith("No difference")]
    return "\n".join([*table(tables[0]["header"], tables[0]["rows"]), *alone])
