"""Credit of the groups in a file: ``python -m rl.credit GROUPS.json [--preset reference]``.

GROUPS.json is a list of groups, or an object with such a list under "groups". A group is {"id", "targets": [name],
"rollouts": [{"events": [[name, ...], ...], "answered": bool, "selection_reward": number}]}: the names that each search
showed, whether an answer followed the searches, and its reward. Other keys are ignored.

Prints [{"id", "rollouts": [{"advantages": [...], "mask": [...]}]}] as JSON, one number per search and one for the
answer where there is one; mask 0 = not in the policy loss.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config
from autotools.errors import DataError
from rl.credit import event_credit, first_found, pack_rollouts
from rl.credit_options import PRESETS, CreditOptions, preset

MAX_REWARD = 1e100  # its square is still a number; NaN and infinity fail the comparison, too


@dataclass(frozen=True, kw_only=True)
class CreditArgs:
    """Keys of the command."""

    groups: str = field(metadata={"help": "JSON file of groups of rollouts"})
    preset: str = field(default="ours", metadata={"help": " | ".join(PRESETS)})


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns 0. Raises ConfigError for an unknown preset, DataError for a file that cannot be used."""
    config = load_config(
        argv, {"": CreditArgs}, prog="python -m rl.credit", description=__doc__ or "", positional="groups"
    )
    args = config.top(CreditArgs)
    options = preset(args.preset)
    groups, warnings = read_groups(args.groups)
    for line in warnings:
        print(f"warning: {line}", file=sys.stderr)
    if config.dry_run:
        count = sum(len(group["rollouts"]) for group in groups)
        print(f"would print the credit ({args.preset}) of {count} rollouts in {len(groups)} groups of {args.groups}")
        return 0
    print(json.dumps(credit_of_groups(groups, options)))
    return 0


def credit_of_groups(groups: list[dict[str, Any]], options: CreditOptions) -> list[dict[str, Any]]:
    """Checked groups (``read_groups``) -> the rows that the command prints; all groups are one batch."""
    rows = [
        (
            first_found(r["events"], g["targets"]) + [[]] * r["answered"],
            len(g["targets"]),
            r["answered"],
            r["reward"],
            n,
        )
        for n, g in enumerate(groups)
        for r in g["rollouts"]
    ]
    credit = event_credit(pack_rollouts(*zip(*rows, strict=True)), options)
    printed = iter(
        {
            "advantages": (credit.advantages[i, : len(row[0])] + 0.0).tolist(),  # + 0.0: no "-0.0" in the output
            "mask": credit.keep[i, : len(row[0])].astype(int).tolist(),
        }
        for i, row in enumerate(rows)
    )
    return [{"id": g["id"], "rollouts": [next(printed) for _ in g["rollouts"]]} for g in groups]


def read_groups(path: str | Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The file's groups, checked, and one warning per group whose targets repeat (each target then counts once).

    Raises DataError, one line that names the file and the group, for anything that cannot be used.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a JSON file of groups: {error}") from error
    listed = content.get("groups") if isinstance(content, dict) else content
    if not isinstance(listed, list):
        raise DataError(f'{path}: expected a list of groups, or an object with such a list under "groups"')
    if not listed:
        raise DataError(f"{path}: no groups in it")
    groups, warnings, names = [], [], set()
    for number, raw in enumerate(listed):
        name = raw.get("id", number) if isinstance(raw, dict) else number
        where = f"{path}: group {_short(name)}"
        groups.append(group := _group(raw, name, where))
        if str(name) in names:
            raise DataError(f"{where}: the id stands twice in the file")
        names.add(str(name))
        if twice := [t for t in group["targets"] if raw["targets"].count(t) > 1]:
            warnings.append(f"{where}: target {twice[0]!r} is listed more than once; it counts once")
    return groups, warnings


def _group(raw: Any, name: Any, where: str) -> dict[str, Any]:
    """One group with distinct targets and checked rollouts."""
    _require(isinstance(raw, dict), where, f"expected an object, found {_short(raw)}")
    for key in ("id", "targets", "rollouts"):
        _require(key in raw, where, f"key {key!r} is missing")
    targets, rollouts = raw["targets"], raw["rollouts"]
    _require(_is_names(targets), where, f"targets must be a list of names, found {_short(targets)}")
    _require(bool(targets), where, "it has no targets")
    _require(isinstance(rollouts, list), where, f"rollouts must be a list, found {_short(rollouts)}")
    _require(bool(rollouts), where, "it has no rollouts")
    checked = [_rollout(rollout, f"{where}, rollout {number}") for number, rollout in enumerate(rollouts)]
    return {"id": name, "targets": list(dict.fromkeys(targets)), "rollouts": checked}


def _rollout(raw: Any, where: str) -> dict[str, Any]:
    _require(isinstance(raw, dict), where, f"expected an object, found {_short(raw)}")
    for key in ("events", "answered", "selection_reward"):
        _require(key in raw, where, f"key {key!r} is missing")
    events, answered, reward = raw["events"], raw["answered"], raw["selection_reward"]
    _require(isinstance(events, list), where, f"events must be a list of lists of names, found {_short(events)}")
    for number, shown in enumerate(events):
        _require(_is_names(shown), where, f"event {number} must be a list of names, found {_short(shown)}")
    _require(isinstance(answered, bool), where, f"answered must be true or false, found {_short(answered)}")
    is_number = isinstance(reward, int | float) and not isinstance(reward, bool) and abs(reward) < MAX_REWARD
    _require(is_number, where, f"selection_reward must be a finite number, found {_short(reward)}")
    return {"events": events, "answered": answered, "reward": float(reward)}


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)


def _require(holds: bool, where: str, problem: str) -> None:
    if not holds:
        raise DataError(f"{where}: {problem}")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
