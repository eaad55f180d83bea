"""Which six rollouts the report shows, and what it shows of each: queries, hits, first-found targets and credit."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from autotools.schema import EventKind, Trajectory
from evaluation.selection import score_trajectory

OUTCOMES = {
    "success": "complete success",
    "wrong": "complete search, wrong selection",
    "incomplete": "incomplete search",
    "unanswered": "complete search, no answer",
}
SLOTS = [
    ("late", "success"), ("early", "incomplete"), ("late", "wrong"),
    ("early", "success"), ("late", "incomplete"), ("early", "wrong"),
]  # fmt: skip


def outcome(trajectory: Trajectory) -> str:
    """Key of OUTCOMES: what happened in the rollout."""
    if not set(trajectory.targets) <= trajectory.found():
        return "incomplete"
    if trajectory.selection is None:
        return "unanswered"
    return "success" if score_trajectory(trajectory)["match"] == 1 else "wrong"


def read_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Recorder rows with a parsed ``trajectory`` and its ``outcome``; the second value counts rows not understood."""
    kept: list[dict[str, Any]] = []
    for row in rows:
        try:
            trajectory = Trajectory.model_validate(row["trajectory"])
            step = int(row["step"])
        except (ValidationError, KeyError, TypeError, ValueError):
            continue
        kept.append({**row, "step": step, "trajectory": trajectory, "outcome": outcome(trajectory)})
    return kept, len(rows) - len(kept)


def choose(rows: Sequence[dict[str, Any]], count: int = 6) -> list[dict[str, Any]]:
    """At most ``count`` rows, one request each, by a fixed rule (so nothing is picked by eye).

    Slots alternate between the last and the first third of the steps and between success, incomplete search and wrong
    selection. A slot takes the rollout with most targets, then the latest (or earliest) step, then file order. A slot
    that nothing fits widens to any step, then to any outcome. The result is ordered by step.
    """
    if not rows:
        return []
    first, last = min(r["step"] for r in rows), max(r["step"] for r in rows)
    third = (last - first) / 3
    chosen: list[dict[str, Any]] = []

    def pick(time: str, kind: str | None, anywhere: bool) -> dict[str, Any] | None:
        used = {row["trajectory"].task_id for row in chosen}
        fits = [
            row
            for row in rows
            if row["trajectory"].task_id not in used
            and (kind is None or row["outcome"] == kind)
            and (anywhere or (row["step"] >= last - third if time == "late" else row["step"] <= first + third))
        ]
        sign = 1 if time == "late" else -1
        return max(fits, key=lambda row: (len(row["trajectory"].targets), sign * row["step"]), default=None)

    for time, kind in SLOTS[:count]:
        found = pick(time, kind, False)
        if found:
            chosen.append(found)
    for time, kind in SLOTS:  # the outcomes that must be seen, from any step, before anything else fills the rest
        if len(chosen) < count and kind not in {row["outcome"] for row in chosen}:
            chosen += [row for row in [pick(time, kind, True)] if row]
    while len(chosen) < count:
        found = pick("late", None, True)
        if found is None:
            break
        chosen.append(found)
    return sorted(chosen, key=lambda row: row["step"])


def view(row: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the template shows of one rollout; ids as text, marks as booleans."""
    trajectory: Trajectory = row["trajectory"]
    targets, first_found = set(trajectory.targets), trajectory.first_found()
    credit = row.get("credit") or []
    aligned = len(credit) == len(trajectory.events)
    events = []
    for number, event in enumerate(trajectory.events):
        part = credit[number] if aligned else {}
        events.append({
            "number": number + 1,
            "kind": event.kind.value.replace("_", " "),
            "is_search": event.kind is EventKind.SEARCH,
            "is_fault": event.kind not in (EventKind.SEARCH, EventKind.ANSWER),
            "query": event.query,
            "category": event.category,
            "hits": [
                {"id": str(hit), "target": hit in targets, "first": hit in first_found[number]} for hit in event.hits
            ],
            "first": [str(tool) for tool in first_found[number]],
            "advantage": part.get("advantage"),
            "kept": part.get("kept"),
            "z": [(str(name), float(value)) for name, value in (part.get("z") or {}).items()],
            "text": event.text,
            "observation": event.observation,
        })  # fmt: skip
    shown = {hit for event in trajectory.events for hit in event.hits}
    selection = [
        {"id": str(t), "target": t in targets and t in shown, "shown": t in shown} for t in trajectory.selection or ()
    ]
    selection += [{"id": name, "target": False, "shown": False} for name in trajectory.unknown_names]
    return {
        "task_id": trajectory.task_id, "query": trajectory.query, "level": trajectory.level, "step": row["step"],
        "group": row.get("group"), "rollout": row.get("rollout"), "outcome": OUTCOMES[row["outcome"]],
        "good": row["outcome"] == "success", "events": events, "answered": trajectory.selection is not None,
        "targets": [
            {"id": str(t), "found": t in shown, "selected": t in set(trajectory.selection or ())}
            for t in trajectory.targets
        ],
        "selection": selection, "stop": trajectory.stop_reason.value.replace("_", " "), "has_credit": aligned,
        "rewards": sorted((str(k), v) for k, v in (row.get("rewards") or {}).items()),
        "scores": score_trajectory(trajectory),
    }  # fmt: skip
