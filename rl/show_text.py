"""Recorded groups as lines for a terminal: what was asked, found, credited and answered. No mark is a colour alone.

Recorded text may hold anything, so control characters (a terminal would obey them) are replaced, and nothing is taken
for markup.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from autotools.schema import EventKind, Trajectory
from evaluation.report_trajectories import OUTCOMES, outcome
from evaluation.selection import score_trajectory

LEGEND = "* target, first found   + target   ! never shown   ? no such tool   - other"
RED, GREEN, DIM = "red", "green", "dim"
Row = Mapping[str, Any]


def clean(text: Any) -> str:
    """One line without control characters."""
    one = " ".join(str(text).split())
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in one)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def reward_parts(row: Row) -> dict[str, float]:
    """The named parts; empty where none was recorded (predictions, dropped rollouts)."""
    parts = row.get("rewards")
    named = parts.items() if isinstance(parts, Mapping) else ()
    return {name: float(value) for name, value in named if isinstance(value, int | float)}


# --- the list -------------------------------------------------------------------------------------------------------


COLUMNS = ("step", "group", "n", "reward", "F1", "SRec", "answ", "targets")
WIDTHS = (5, 5, 3, 6, 4, 4, 4, 7)


def group_line(rows: Sequence[Row], width: int) -> str:
    """One line on a group: its place, rollouts, mean reward, F1 and SRecall, how many answered, targets, request."""
    first: Trajectory = rows[0]["trajectory"]
    rewards = [sum(parts.values()) for parts in map(reward_parts, rows) if parts]
    scores = [score_trajectory(row["trajectory"]) for row in rows]
    mean = {name: sum(s[name] for s in scores) / len(scores) for name in ("srecall", "f1")}
    answered = sum(s["answered"] for s in scores)
    cells = (
        rows[0]["step"], rows[0]["group"] + 1, len(rows), f"{sum(rewards) / len(rewards):.2f}" if rewards else "-",
        f"{mean['f1']:.2f}", f"{mean['srecall']:.2f}", f"{answered:.0f}", len(first.targets),
    )  # fmt: skip
    return _line(cells, clean(first.query), width)


def list_head(width: int) -> str:
    """The line above the groups."""
    return _line(COLUMNS, "request", width)


def _line(cells: Sequence[Any], request: str, width: int) -> str:
    columns = " ".join(f"{cell!s:>{size}}" for cell, size in zip(cells, WIDTHS, strict=True))
    return f"{columns}  {_cut(request, max(10, width - len(columns) - 2))}"


# --- one group ------------------------------------------------------------------------------------------------------


def group_head(rows: Sequence[Row]) -> list[Text]:
    """Request and targets; by how many rollouts each was found, and the z-scores of those that did and did not."""
    first: Trajectory = rows[0]["trajectory"]
    n = len(rows)
    head = f"step {rows[0]['step']}, group {rows[0]['group'] + 1}: task {clean(first.task_id)}"
    head += f", level {clean(first.level)}" if first.level else ""
    lines = [Text(f"{head}, {n} rollout{'s' * (n > 1)}", "bold"), Text(clean(first.query))]
    for number, target in enumerate(first.targets, 1):
        finders = [target in row["trajectory"].found() for row in rows]
        text = Text(f"  target {number}  {clean(target)}", GREEN if any(finders) else RED)
        lines.append(text.append(f"  found by {sum(finders)} of {n}", DIM))
        zs = []
        for word, wanted in (("found it", True), ("did not", False)):
            those = {_z(row, str(target)) for row, found in zip(rows, finders, strict=True) if found == wanted}
            if len(those) == 1 and (value := those.pop()) is not None:
                zs.append(f"{value:+.2f} where a rollout {word}")
        if zs:
            lines.append(Text(f"            z {', '.join(zs)}", DIM))
    return [*lines, Text(LEGEND, DIM)]


def _z(row: Row, target: str) -> float | None:
    value = (row.get("z") or {}).get(target)
    return float(value) if isinstance(value, int | float) else None


def rollout_lines(row: Row, width: int) -> list[Text]:
    """One rollout: outcome and reward, then each event with its credit, hits or chosen names."""
    trajectory: Trajectory = row["trajectory"]
    lines = _rollout_head(row)
    credit, found = row.get("credit"), trajectory.first_found()
    fits = isinstance(credit, list) and len(credit) == len(trajectory.events)
    for number, event in enumerate(trajectory.events):
        part = credit[number] if fits and isinstance(credit[number], Mapping) else {}
        lines.append(_event_line(number + 1, event, part, width))
        before = {hit for earlier in trajectory.events[:number] for hit in earlier.hits}
        for hit in event.hits:
            first = hit in found[number]
            mark = "*" if first else "+" if hit in trajectory.targets else "-"
            again = "  (shown before)" if hit in before and mark == "-" else ""
            lines.append(Text(f"      {mark} {clean(hit)}{again}", GREEN if first else "" if mark == "+" else DIM))
        if event.kind is EventKind.ANSWER:
            lines += _answer_lines(trajectory)
        elif event.kind is EventKind.SEARCH and not event.hits:
            lines.append(Text("      no hits", DIM))
        elif event.kind is not EventKind.SEARCH:
            lines.append(Text("      " + _cut(clean(event.text), max(20, width - 6)), RED))
    return lines


def _rollout_head(row: Row) -> list[Text]:
    trajectory: Trajectory = row["trajectory"]
    kind, f1 = outcome(trajectory), score_trajectory(trajectory)["f1"]
    head = Text(f"rollout {row['rollout'] + 1}  ", "bold").append(OUTCOMES[kind], GREEN if kind == "success" else RED)
    head.append(f"  F1 {f1:.2f}, stop: {trajectory.stop_reason.value.replace('_', ' ')}")
    parts = reward_parts(row)
    if not parts:
        return [head]
    terms = " + ".join(f"{clean(name)} {value:.2f}" for name, value in parts.items())
    return [head, Text(f"  reward {sum(parts.values()):.2f} = {terms}", DIM)]


def _event_line(number: int, event: Any, credit: Mapping[str, Any], width: int) -> Text:
    what = f"  {number} {event.kind.value.replace('_', ' ')}"
    if event.query is not None:
        what += f" “{_cut(clean(event.query), max(12, width - 36))}”"
    if event.category:
        what += f" in {_cut(clean(event.category), 20)}"
    if event.extra_calls:
        what += f" (+{event.extra_calls} calls not executed)"
    text = Text(what)
    value = credit.get("advantage")
    if isinstance(value, int | float):
        kept = bool(credit.get("kept"))
        text.append(
            f"  {value:+.2f} {'kept' if kept else 'removed'}", ("green" if value >= 0 else "red") if kept else DIM
        )
    return text


def _answer_lines(trajectory: Trajectory) -> list[Text]:
    shown = {hit for event in trajectory.events for hit in event.hits}
    lines = []
    for tool in trajectory.selection or ():
        mark = "!" if tool not in shown else "+" if tool in trajectory.targets else "-"
        lines.append(Text(f"      {mark} {clean(tool)}", GREEN if mark == "+" else RED))
    lines += [Text(f"      ? {clean(name)}", RED) for name in trajectory.unknown_names]
    missed = [t for t in trajectory.targets if t not in (trajectory.selection or ())]
    lines += [Text(f"      missing: {clean(tool)}", DIM) for tool in missed]
    return lines if lines else [Text("      named no tool", RED)]
