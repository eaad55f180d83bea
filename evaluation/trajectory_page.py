"""``python -m evaluation.trajectory_page --run OUT``: every recorded training event on one self-contained HTML page.

Reads ``rl/trajectories.jsonl`` (rl/recorder.py writes it) and walks by step, group and rollout: query, hits,
first-found targets, z-scores, advantage, kept or removed, and the very tokens that were trained with it. The page needs
no network; its only script is ours, named by hash in the Content-Security-Policy, so that nothing else can ever run.

Size: text that occurs twice is stored once, and above ``LIMIT_BYTES`` of data the older steps are thinned (the page
says so). What reaches the page at all is bounded by the run's ``record_every`` and ``record_groups``.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autotools.config import load_config, run_main
from autotools.errors import DataError
from autotools.rundir import write_text
from autotools.schema import EventKind, Trajectory
from evaluation.report_trajectories import OUTCOMES, outcome
from evaluation.selection import score_trajectory

TRAJECTORIES = "rl/trajectories.jsonl"
LIMIT_BYTES = 5_000_000


@dataclass(kw_only=True)
class PageArgs:
    """Keys of the command."""

    run: str = field(default="", metadata={"help": f"run folder that holds {TRAJECTORIES} (also as a bare word)"})
    out: str = field(default="", metadata={"help": "file to write; default: RUN/trajectories.html"})
    title: str = field(default="Trajectories of the RL stage", metadata={"help": "heading"})
    max_bytes: int = field(default=LIMIT_BYTES, metadata={"help": "data above this size: older steps are thinned"})


class Strings:
    """Texts by number: tool ids, tokens and observations come back in almost every rollout."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """Number of ``text``, -1 for None."""
        return -1 if text is None else self._numbers.setdefault(text, len(self._numbers))

    def texts(self) -> list[str]:
        return list(self._numbers)


# --- reading --------------------------------------------------------------------------------------------------------


def read_recorded(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Rows of the recorder with a parsed ``trajectory``, by (step, group, rollout), and how many lines were unusable.

    A run that was killed and resumed may have recorded a step twice (the later row counts) or left half a line.
    Raises DataError if the file cannot be read.
    """
    rows: dict[tuple[int, int, int], dict[str, Any]] = {}
    bad = 0
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            for line in lines:
                try:
                    row = json.loads(line)
                    key = (int(row["step"]), int(row["group"]), int(row["rollout"]))
                    rows[key] = {**row, "trajectory": Trajectory.model_validate(row["trajectory"])}
                except (ValueError, KeyError, TypeError, ValidationError):
                    bad += 1
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror}); the RL stage writes it") from error
    return [rows[key] for key in sorted(rows)], bad


# --- what the page holds --------------------------------------------------------------------------------------------


def _credit(row: Mapping[str, Any], count: int) -> list[Mapping[str, Any]]:
    """The credit of each event; empty mappings where it does not fit the events."""
    credit = row.get("credit")
    fits = isinstance(credit, list) and len(credit) == count and all(isinstance(one, dict) for one in credit)
    return credit if fits else [{}] * count


def _events(row: Mapping[str, Any], strings: Strings) -> list[dict[str, Any]]:
    trajectory: Trajectory = row["trajectory"]
    number = strings.number
    events = []
    parts = zip(trajectory.events, trajectory.first_found(), _credit(row, len(trajectory.events)), strict=True)
    for event, found, credit in parts:
        tokens, span = credit.get("tokens"), credit.get("span")
        shown = tokens is not None and span is not None and span[1] - span[0] == len(tokens)
        events.append({
            "kind": number(event.kind.value),
            "query": number(event.query),
            "category": number(event.category),
            "hits": [number(str(hit)) for hit in event.hits],
            "first": [trajectory.targets.index(target) for target in found],
            "adv": credit.get("advantage"),
            "kept": bool(credit.get("kept")),
            "z": [[number(name), value] for name, value in (credit.get("z") or {}).items()],
            "span": span if shown else None,
            "tokens": [number(token) for token in tokens] if shown else None,
            "text": -1 if shown else number(event.text),
            "obs": number(event.observation),
        })  # fmt: skip
    return events


def _selection(trajectory: Trajectory, strings: Strings) -> list[list[Any]] | None:
    """Names of the answer with a verdict: target, other, unseen (no search showed it) or unknown (no such tool)."""
    if trajectory.selection is None:
        return None
    shown = {hit for event in trajectory.events for hit in event.hits}
    verdicts = [
        [strings.number(str(t)), "unseen" if t not in shown else "target" if t in trajectory.targets else "other"]
        for t in trajectory.selection
    ]
    return verdicts + [[strings.number(name), "unknown"] for name in trajectory.unknown_names]


def _rollout(row: Mapping[str, Any], strings: Strings) -> dict[str, Any]:
    trajectory: Trajectory = row["trajectory"]
    events = _events(row, strings)
    z = row.get("z") or {
        name: value for one in _credit(row, len(events)) for name, value in (one.get("z") or {}).items()
    }
    rewards = row.get("rewards") or {}
    kind = outcome(trajectory)
    return {
        "rollout": row["rollout"],
        "outcome": strings.number(OUTCOMES[kind]),
        "good": kind == "success",
        "stop": strings.number(trajectory.stop_reason.value.replace("_", " ")),
        "f1": score_trajectory(trajectory)["f1"] if trajectory.selection is not None else None,
        "reward": sum(rewards.values()) if rewards else None,
        "rewards": [[strings.number(name), value] for name, value in rewards.items()],
        "z": [z.get(str(target)) for target in trajectory.targets] if z else None,
        "selection": _selection(trajectory, strings),
        "events": events,
    }


def page_data(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows of ``read_recorded`` -> ``{"scale", "strings", "steps": [{"step", "groups": [{..., "rollouts"}]}]}``.

    ``scale`` is the largest size of a kept advantage (1 if there is none); texts are numbers into ``strings``.
    """
    strings = Strings()
    steps: dict[int, dict[int, dict[str, Any]]] = {}
    for row in rows:
        trajectory: Trajectory = row["trajectory"]
        groups = steps.setdefault(row["step"], {})
        group = groups.setdefault(row["group"], {
            "group": row["group"],
            "task": strings.number(trajectory.task_id),
            "query": strings.number(trajectory.query),
            "level": strings.number(trajectory.level),
            "targets": [strings.number(str(target)) for target in trajectory.targets],
            "rollouts": [],
        })  # fmt: skip
        group["rollouts"].append(_rollout(row, strings))
    listed = [{"step": step, "groups": list(groups.values())} for step, groups in steps.items()]
    events = [e for step in listed for g in step["groups"] for r in g["rollouts"] for e in r["events"]]
    sizes = [abs(event["adv"]) for event in events if event["adv"] is not None and event["kept"]]
    return {"scale": max(sizes, default=0) or 1, "strings": strings.texts(), "steps": listed}


def encode(data: Mapping[str, Any]) -> str:
    """Compact ASCII JSON that is inert inside a script element: no ``<``, ``>`` or ``&`` can close or open anything."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def thin(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One round of thinning: every second step of the older half goes; at the last, groups of the only step left."""
    steps = sorted({row["step"] for row in rows})
    half = (len(steps) + 1) // 2
    kept = {*steps[:half:2], *steps[half:]} if len(steps) > 2 else {steps[-1]}
    if len(steps) > 1:
        return [row for row in rows if row["step"] in kept]
    groups = sorted({row["group"] for row in rows})
    return [row for row in rows if row["group"] in groups[: (len(groups) + 1) // 2]]


def fit(rows: Sequence[dict[str, Any]], max_bytes: int) -> tuple[list[dict[str, Any]], str]:
    """The rows that fit into ``max_bytes`` of JSON (at least one group) and that JSON."""
    kept = list(rows)
    while True:
        text = encode(page_data(kept))
        fewer = thin(kept) if kept and len(text) > max_bytes else kept
        if len(fewer) == len(kept):
            return kept, text
        kept = fewer


# --- the page -------------------------------------------------------------------------------------------------------


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def notes(rows: Sequence[dict[str, Any]], kept: Sequence[dict[str, Any]], bad: int) -> list[str]:
    """What the reader must know about the data: nothing there, thinned, unusable lines, old recordings."""
    out = []
    if not rows:
        out.append(f"{TRAJECTORIES} holds no trajectory (record_every 0, or RL did not reach a recorded step).")
    if len(kept) < len(rows):
        steps = [len({row["step"] for row in some}) for some in (kept, rows)]
        out.append(
            f"Thinned to keep this file small: {steps[0]} of {steps[1]} recorded steps and {len(kept)} of {len(rows)} "
            f"rollouts are shown, fewer of the older ones; all are in {TRAJECTORIES}."
        )
    if bad:
        out.append(f"{bad} lines of {TRAJECTORIES} are not trajectory records and are left out.")
    events = [one for row in kept for one in _credit(row, len(row["trajectory"].events))]
    if any("tokens" not in event for event in events):
        out.append("Some events were recorded without token texts (older recorder): their turn is shown as one text.")
    return out


def render(rows: Sequence[dict[str, Any]], bad: int, title: str, max_bytes: int = LIMIT_BYTES) -> str:
    """The page as HTML text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    folder = Path(__file__).parent
    style, script = (folder.joinpath(f"trajectory_page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    kept, data = fit(rows, max_bytes)
    environment = Environment(
        loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    searches = sum(e.kind is EventKind.SEARCH for row in kept for e in row["trajectory"].events)
    subtitle = f"{len({row['step'] for row in kept})} steps, {len(kept)} rollouts, {searches} searches, as recorded"
    return environment.get_template("trajectory_page.html.j2").render(
        title=title, subtitle=subtitle, notes=notes(rows, kept, bad), footer=f"Made from {TRAJECTORIES}.",
        script_hash=_hash(script), style_hash=_hash(style),
        script=Markup(script), style=Markup(style), data=Markup(data),
    )  # fmt: skip


def page_of(run: Path, title: str = PageArgs.title, max_bytes: int = LIMIT_BYTES) -> str:
    """The page of a run folder as text. Raises DataError without recordings."""
    rows, bad = read_recorded(run / TRAJECTORIES)
    return render(rows, bad, title, max_bytes)


def main(argv: list[str] | None = None) -> int:
    """Write the trajectory page of a run folder."""
    prog = "python -m evaluation.trajectory_page"
    config = load_config(argv, {"": PageArgs}, prog=prog, description=__doc__ or "", positional="run")
    args = config.top(PageArgs)
    if not args.run or not Path(args.run).is_dir():
        raise DataError(f"no run folder {args.run!r}; use: {prog} --run OUT, with the OUT of launch/quickstart.sh")
    out = Path(args.out) if args.out else Path(args.run) / "trajectories.html"
    if config.dry_run:
        print(f"would write {out} from {Path(args.run) / TRAJECTORIES}")
        return 0
    write_text(out, page_of(Path(args.run), args.title, args.max_bytes))
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    run_main(main)
