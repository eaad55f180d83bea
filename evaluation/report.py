"""``python -m evaluation.report --run OUT``: one self-contained HTML page about a whole run, and the same as text.

Reads only files of the run folder (``world/ data/ sft/ rl/ eval/ logs/ summary.json``); what is missing is named on the
page, never guessed. The page needs no network and no JavaScript; every text in it is escaped by the template engine.
``report.md`` beside it is made from the same gathered facts, ``trajectories.html`` from the recorded rollouts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import AutoToolsError, ConfigError, DataError
from autotools.rundir import read_jsonl, write_text
from evaluation.report_charts import SMALL, curve, line_chart
from evaluation.report_sections import comparison, count_blocks, forest, headline, statement, what_ran
from evaluation.report_stages import FOLDERS, inputs_read, stage_table
from evaluation.report_text import markdown
from evaluation.report_trajectories import choose, read_rows, view
from evaluation.trajectory_page import TRAJECTORIES, page_of

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
REPEAT = (
    "To repeat the run: its command with another --out. run_config.json holds every key as it was used and can be "
    "given back with --config; the same seed, versions and inputs give the same numbers on the same kind of machine."
)
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
SMALL_CURVES = (  # the same form
    ("rl", "Useless searches", "Per rollout; they show no new target.", {"useless_searches": "useless searches"},
     (0.0, None)),
    ("rl", "Match given complete", "Only rollouts whose searches showed every target.",
     {"match_given_complete": "Match"}, (0.0, 1.0)),
    ("rl", "Malformed turns", "Per rollout; neither a search nor an answer.", {"malformed_turns": "malformed turns"},
     (0.0, None)),
    ("rl", "Kept token share", "Generated tokens that are in the policy loss.",
     {"credit/kept_token_share": "kept tokens"}, (0.0, 1.0)),
    ("rl", "Groups without contrast", "Share of groups whose rewards are all equal.",
     {"frac_reward_zero_std": "groups"}, (0.0, 1.0)),
    ("rl", "Policy entropy", "Per generated token; near 0 the policy tries nothing new.", {"entropy": "entropy"},
     (0.0, None)),
)  # fmt: skip


@dataclass(kw_only=True)
class ReportArgs:
    """Keys of the command."""

    run: str = field(default="", metadata={"help": "run folder of the whole pipeline (also as a bare word)"})
    out: str = field(
        default="",
        metadata={"help": "page to write, default: RUN/report.html; the text (.md) and trajectories go beside it"},
    )
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


def curves(run: Path, problems: list[str]) -> dict[str, list[dict[str, Any]]]:
    """``charts`` and ``small_charts`` that the logged metrics allow; what a chart lacks is added to ``problems``."""
    rows = {folder: read_rows_of(run / folder / "metrics.jsonl", problems) for folder in ("sft", "rl")}
    charts: dict[str, list[dict[str, Any]]] = {"charts": [], "small_charts": []}
    for name, table, size in (("charts", CURVES, None), ("small_charts", SMALL_CURVES, SMALL)):
        for folder, title, note, keys, (low, high) in table:
            series = {shown: curve(rows[folder], key) for key, shown in keys.items()}
            chart = line_chart(title, note, series, low, high, size)
            if chart:
                charts[name].append(chart)
            elif rows[folder]:
                problems.append(f"{title}: {folder}/metrics.jsonl has no key {' or '.join(keys)}.")
    return charts


def alarms(run: Path, problems: list[str]) -> list[dict[str, Any]] | None:
    """What the RL stage warned about (``rl/alarms.jsonl``), by step; None where nobody watched (older runs)."""
    path = run / "rl" / "alarms.jsonl"
    if not path.is_file():
        return None
    return [row for row in read_rows_of(path, problems) if _is_alarm(row)]


def _is_alarm(row: Mapping[str, Any]) -> bool:
    numbers = all(isinstance(row.get(key, ""), int | float | None) for key in ("step", "value", "threshold"))
    return numbers and isinstance(row.get("tasks"), list) and {"name", "metric", "meaning", "advice"} <= row.keys()


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


def check_seed_runs(folders: Sequence[str]) -> None:
    """Raise DataError for a folder without an evaluation, or one that is named twice and would count twice."""
    seen: dict[Path, str] = {}
    for name in folders:
        run = Path(name)
        if not any((run / place).is_file() for place in ("eval/metrics.json", "metrics.json")):
            state = "holds no eval/metrics.json (is the run finished?)" if run.is_dir() else "does not exist"
            raise DataError(f"seed_runs: {name} {state}")
        if run.resolve() in seen:
            raise DataError(f"seed_runs: {name} is named twice (first as {seen[run.resolve()]}); name each run once")
        seen[run.resolve()] = name


def how_it_ran(run: Path) -> dict[str, Any]:
    """Commands, seed, commit, versions; seconds and memory of the stages; hashes of what they read."""
    quiet: list[str] = []  # a run made stage by stage has no summary and no driver: no fault of the run
    summary = read_json(run / "summary.json", quiet) or {"wall_s": read_json(run / "wall.json", quiet)}
    records = {"whole run": read_json(run / "run.json", quiet)} | {
        folder: read_json(run / folder / name, quiet)
        for folder in FOLDERS
        for name in ("run.json" if (run / folder / "run.json").is_file() else "manifest.json",)
    }
    return {
        "what": what_ran({name: record for name, record in records.items() if record}),
        "stages": stage_table(summary.get("wall_s") or {}, read_json(run / "logs" / "memory.json", quiet)),
        "inputs": inputs_read(run),
        "repeat": REPEAT,
    }


def subtitle(world: Mapping[str, Any], policies: int) -> str:
    """Line below the heading; over real tools it starts with what such a run is worth (``note`` of the manifest)."""
    line = f"Run report, {policies} policies compared" if policies else "Run report"
    return f"{world['note']} {line}." if world.get("note") else line


def gather(run: Path, title: str, seed_runs: Sequence[Path] = (), trajectories: str = "") -> dict[str, Any]:
    """Everything the page and its text version show, as plain values; ``trajectories``: address of that page."""
    lists: dict[str, list[str]] = {name: [] for name in ("metrics", "curves", "rollouts", "seeds", "world", "data")}
    metrics = evaluation_metrics(run, lists["metrics"])
    world = read_json(run / "world" / "manifest.json", lists["world"])
    data = read_json(run / "data" / "manifest.json", lists["data"])
    table = comparison(metrics)
    return {
        "title": title,
        "subtitle": subtitle(world, len(table["policies"])),
        "headline": headline(table),
        "forest": forest(table["policies"]),
        "statement": statement(world, table["policies"]),
        **how_it_ran(run),
        "world": count_blocks(world, "World", ("note",)),
        "data": count_blocks(data, "Training data", DATA_DETAILS),
        **curves(run, lists["curves"]),
        "alarms": alarms(run, lists["curves"]),
        "scores": SCORES,
        "level_scores": LEVEL_SCORES,
        "pair_scores": PAIR_SCORES,
        **table,
        **seed_table(seed_runs, lists["seeds"]),
        "rollouts": rollouts(run, lists["rollouts"]),
        "trajectories": trajectories,
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
    if out.suffix != ".html":
        raise ConfigError(f"out is '{out}'; name a file that ends in .html (the text version goes beside it)")
    beside = "trajectories.html" if out.stem == "report" else f"{out.stem}_trajectories.html"
    check_seed_runs(args.seed_runs)
    if config.dry_run:
        print(f"would write {out}, {out.with_suffix('.md').name} and {beside} from {run}")
        return 0
    recorded = (run / TRAJECTORIES).is_file()
    try:
        facts = gather(run, args.title, [Path(path) for path in args.seed_runs], beside if recorded else "")
        page, text = render(facts), markdown(facts)
        trajectories = page_of(run) if recorded else ""
    except (KeyError, TypeError, AttributeError) as error:  # a file of another version: say which run, not a traceback
        raise AutoToolsError(f"{run}: a file has an unexpected form ({type(error).__name__}: {error})") from error
    write_text(out, page)  # first: where it cannot be written, the error names the file that was asked for
    write_text(out.with_suffix(".md"), text)
    if recorded:
        write_text(out.with_name(beside), trajectories)
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    run_main(main)
