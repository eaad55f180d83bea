"""``python -m evaluation.report --run OUT``: one self-contained HTML page about a whole run.

Reads only files of the run folder (``world/ data/ sft/ rl/ eval/ summary.json``); what is missing is named on the
page, never guessed. The page needs no network and no JavaScript; every text in it is escaped by the template engine.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import AutoToolsError, DataError
from autotools.rundir import read_jsonl, write_text
from evaluation.report_charts import curve, line_chart
from evaluation.report_sections import comparison, count_blocks, forest, headline, statement, what_ran
from evaluation.report_trajectories import choose, read_rows, view

TEMPLATE = "report.html.j2"
SCORES = (
    ("f1", "F1", "of the final selection"),
    ("precision", "Precision", "of the final selection"),
    ("recall", "Recall", "of the final selection"),
    ("match", "Match", "selection equals the targets"),
    ("srecall", "SRecall", "targets shown by any search"),
    ("match_given_complete", "Match, search complete", "only where all targets were shown"),
    ("searches", "Searches", "per request"),
    ("useless_searches", "Useless searches", "that show no new target"),
    ("answered", "Answered", "share of requests"),
)
LEVEL_SCORES = (("f1", "F1"), ("srecall", "SRecall"), ("match", "Match"))
PAIR_SCORES = (("f1", "F1"), ("match", "Match"), ("srecall", "SRecall"), ("searches", "Searches"))
DATA_DETAILS = ("sft_sources", "read", "kept", "search", "index", "settings")  # stay in the manifest, off the page
CURVES = (  # folder, title, note, {metrics key: name shown}, least range of the value axis
    ("sft", "SFT loss", "Cross-entropy per assistant token.",
     {"loss": "training", "eval_loss": "held-out"}, (0.0, None)),
    ("rl", "Reward parts", "Mean over the rollouts of a step.",
     {"reward": "reward", "reward_f1": "F1", "reward_match": "Match"}, (0.0, 1.0)),
    ("rl", "SRecall", "Share of targets that any search of a rollout has shown.", {"srecall": "SRecall"}, (0.0, 1.0)),
    ("rl", "Searches per rollout", "Sampled rollouts.", {"searches": "searches"}, (0.0, None)),
    ("rl", "Answered share", "Rollouts that end in an answer; below 0.8 warns of collapse.", {"answered": "answered"},
     (0.0, 1.0)),
)  # fmt: skip


@dataclass(kw_only=True)
class ReportArgs:
    """Keys of the command."""

    run: str = field(default="", metadata={"help": "run folder of the whole pipeline (also as a bare word)"})
    out: str = field(default="", metadata={"help": "file to write; default: RUN/report.html"})
    title: str = field(default="From tool documents to a trained tool searcher", metadata={"help": "heading"})
    seed_runs: list[str] = field(
        default_factory=list, metadata={"help": "finished run folders of several seeds, for the table over seeds"}
    )


def read_json(path: Path, problems: list[str]) -> dict[str, Any]:
    """A JSON object, or ``{}`` with the reason added to ``problems``."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(f"{path.parent.name}/{path.name} is missing: the stage that writes it did not finish.")
        return {}
    except (OSError, ValueError) as error:
        problems.append(f"{path.parent.name}/{path.name} cannot be read: {error}")
        return {}
    return value if isinstance(value, dict) else {}


def read_rows_of(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """Rows of a JSONL file, or ``[]`` with the reason added to ``problems``."""
    if not path.is_file():
        problems.append(f"{path.parent.name}/{path.name} is missing: the stage that writes it did not run.")
        return []
    try:
        return [row for row in read_jsonl(path) if isinstance(row, dict)]
    except DataError as error:
        problems.append(f"{path.parent.name}/{path.name}: {str(error).partition(': ')[2] or error}")
        return []


def evaluation_metrics(run: Path, problems: list[str]) -> dict[str, Any]:
    """``metrics.json`` of the evaluation stage, wherever the run keeps it: ``eval/`` or the folder itself."""
    places = [run / "eval" / "metrics.json", run / "metrics.json"]
    found = next((place for place in places if place.is_file()), places[0])
    return read_json(found, problems)


def curves(run: Path, problems: list[str]) -> list[dict[str, Any]]:
    """All charts that the logged metrics allow; what a chart lacks is added to ``problems``."""
    rows = {folder: read_rows_of(run / folder / "metrics.jsonl", problems) for folder in ("sft", "rl")}
    charts = []
    for folder, title, note, keys, (low, high) in CURVES:
        chart = line_chart(title, note, {name: curve(rows[folder], k) for k, name in keys.items()}, low, high)
        if chart:
            charts.append(chart)
        elif rows[folder]:
            problems.append(f"{title}: {folder}/metrics.jsonl has no key {' or '.join(keys)}.")
    return charts


def rollouts(run: Path, problems: list[str]) -> list[dict[str, Any]]:
    """The six rollouts that are shown, ready for the template."""
    raw = read_rows_of(run / "rl" / "trajectories.jsonl", problems)
    rows, bad = read_rows(raw)
    if bad:
        problems.append(f"{bad} of {len(raw)} rows of rl/trajectories.jsonl are not trajectory records.")
    chosen = choose(rows)
    for kind, name in (("success", "a complete success"), ("incomplete", "an incomplete search"),
                       ("wrong", "a wrong selection after complete search")):  # fmt: skip
        if rows and kind not in {row["outcome"] for row in chosen}:
            problems.append(f"No recorded rollout shows {name}.")
    return [view(row) for row in chosen]


def seed_table(runs: Sequence[Path], problems: list[str]) -> dict[str, Any]:
    """One row per finished run: overall F1 of each policy, and paired F1 differences to the policy ``after``."""
    rows = []
    for run in runs:
        metrics = evaluation_metrics(run, problems)
        policies = metrics.get("policies", {})
        if not policies:
            continue
        overall = {name: table["overall"] for name, table in policies.items()}
        rows.append({
            "seed": metrics.get("seed", "?"),
            "f1": {name: row["f1"] for name, row in overall.items()},
            "ci": {name: row["intervals"]["f1"] for name, row in overall.items()},
            "pairs": {
                name: table["overall"]["f1"]
                for name, table in metrics.get("paired", {}).items() if name.startswith("after-")
            },
        })  # fmt: skip
    names = list(dict.fromkeys(name for row in rows for name in row["f1"]))
    pairs = list(dict.fromkeys(name for row in rows for name in row["pairs"]))
    columns = {name: [row["f1"][name] for row in rows if name in row["f1"]] for name in names}
    columns |= {name: [row["pairs"][name]["diff"] for row in rows if name in row["pairs"]] for name in pairs}
    means = {name: sum(values) / len(rows) for name, values in columns.items() if rows and len(values) == len(rows)}
    return {"seed_rows": rows, "seed_policies": names, "seed_pairs": pairs, "seed_means": means}


def gather(run: Path, title: str, seed_runs: Sequence[Path] = ()) -> dict[str, Any]:
    """Everything the template needs, as plain values."""
    lists: dict[str, list[str]] = {
        name: [] for name in ("metrics", "curves", "rollouts", "seeds", "world", "data", "quiet")
    }
    metrics = evaluation_metrics(run, lists["metrics"])
    world = read_json(run / "world" / "manifest.json", lists["world"])
    data = read_json(run / "data" / "manifest.json", lists["data"])
    summary = read_json(run / "summary.json", lists["quiet"]) or {
        "wall_s": read_json(run / "wall.json", lists["quiet"])
    }
    stages = [(name, s) for name, s in summary.get("wall_s", {}).items() if isinstance(s, int | float)]
    table = comparison(metrics)
    stage_records = {
        folder: read_json(run / folder / name, lists["quiet"])
        for folder in ("world", "data", "sft", "sft_longer", "rl", "eval")
        for name in ("run.json" if (run / folder / "run.json").is_file() else "manifest.json",)
    }
    what = what_ran({name: record for name, record in stage_records.items() if record})
    return {
        "title": title,
        "subtitle": f"Run report, {len(table['policies'])} policies compared" if table["policies"] else "Run report",
        "headline": headline(table),
        "forest": forest(table["policies"]),
        "statement": statement(world, table["policies"]),
        "what": what,
        "stages": [*stages, ("sum of the stages", sum(s for _, s in stages))] if stages else [],
        "world": count_blocks(world, "World"),
        "data": count_blocks(data, "Training data", DATA_DETAILS),
        "charts": curves(run, lists["curves"]),
        "scores": SCORES,
        "level_scores": LEVEL_SCORES,
        "pair_scores": PAIR_SCORES,
        **table,
        **seed_table(seed_runs, lists["seeds"]),
        "rollouts": rollouts(run, lists["rollouts"]),
        "problems": {
            "metrics": " ".join(lists["metrics"]) or "The evaluation's metrics.json holds no policies.",
            "world": " ".join(lists["world"]) or "The world's manifest holds no counts.",
            "data": " ".join(lists["data"]) or "The data manifest holds no counts.",
            "stages": "No wall times: summary.json (or wall.json) with wall_s is missing.",
            "curves": lists["curves"],
            "rollouts": lists["rollouts"],
            "seeds": lists["seeds"],
        },
    }


def render(context: Mapping[str, Any]) -> str:
    """The page as HTML text; every value is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(TEMPLATE).render(context)


def main(argv: list[str] | None = None) -> int:
    """Write the report of a run folder; a missing part of the run is named on the page and is not an error."""
    prog = "python -m evaluation.report"
    config = load_config(argv, {"": ReportArgs}, prog=prog, description=__doc__, positional="run")
    args = config.top(ReportArgs)
    run = Path(args.run)
    if not args.run or not run.is_dir():
        raise DataError(f"no run folder {args.run!r}; use: {prog} --run OUT, with the OUT of launch/quickstart.sh")
    out = Path(args.out) if args.out else run / "report.html"
    if config.dry_run:
        print(f"would write {out} from {run}")
        return 0
    try:
        page = render(gather(run, args.title, [Path(path) for path in args.seed_runs]))
    except (KeyError, TypeError, AttributeError) as error:  # a file of another version: say which run, not a traceback
        raise AutoToolsError(f"{run}: a file has an unexpected form ({type(error).__name__}: {error})") from error
    write_text(out, page)
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    run_main(main)
