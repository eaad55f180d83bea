"""Chat records -> token ids and labels, by the one renderer (autotools/chat.py), mixed over tasks.

Labels are -100 everywhere but inside assistant turns. A conversation over ``max_length`` is dropped and counted, not
cut: a cut tool conversation would teach to stop in the middle.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.chat import ChatRenderer
from autotools.errors import ConfigError, DataError
from autotools.rundir import read_jsonl

if TYPE_CHECKING:
    from datasets import Dataset


def read_records(data: str | Path, split: str, tasks: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Rows of ``data/sft/<split>.jsonl`` whose task is in ``tasks`` (None: all). Raises DataError if none is left."""
    path = Path(data) / "sft" / f"{split}.jsonl"
    if not path.exists():
        raise DataError(f"no SFT data at {path}; make it with: python -m data_synthesis.build --world DIR --out {data}")
    wanted = set(tasks) if tasks is not None else None
    rows = read_jsonl(path)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not isinstance(row.get("messages"), list) or "task" not in row:
            raise DataError(f"{path}: record {number} is no object with 'task' and 'messages'")
    rows = [row for row in rows if wanted is None or row["task"] in wanted]
    if not rows:
        raise DataError(f"{path} holds no record of the tasks {sorted(wanted or [])}")
    return rows


def encode_records(
    rows: Sequence[dict[str, Any]], renderer: ChatRenderer, max_length: int
) -> tuple[list[dict[str, Any]], Counter]:
    """``[{"task", "input_ids", "labels"}]`` and counts ``{"read", "kept", "too_long"}``; kept + too_long = read."""
    out, counts = [], Counter(read=len(rows))
    for row in rows:
        encoded = renderer.encode(row["messages"], row.get("tools"))
        if len(encoded.token_ids) > max_length:
            counts["too_long"] += 1
            continue
        labels = [i if m else -100 for i, m in zip(encoded.token_ids, encoded.completion_mask, strict=True)]
        out.append({"task": row["task"], "input_ids": encoded.token_ids, "labels": labels})
    counts["kept"] = len(out)
    if not out:
        raise DataError(f"all {len(rows)} records are longer than max_length={max_length}; raise it")
    return out, counts


def check_tasks(rows: Sequence[dict[str, Any]], mixture: dict[str, float]) -> None:
    """Raise ConfigError for a task of ``mixture`` that no row has."""
    for task in mixture:
        if not any(row["task"] == task for row in rows):
            raise ConfigError(f"mixture names task {task!r}, which has no record; there are {_tasks(rows)}")


def mix_tasks(rows: Sequence[dict[str, Any]], mixture: dict[str, float], seed: int) -> "Dataset":
    """Dataset of ``input_ids`` and ``labels``; each task is drawn with its share in ``mixture`` until one runs out.

    Shares count conversations, not tokens. Raises ConfigError for a task without records or a share that is not > 0.
    """
    from datasets import Dataset, interleave_datasets

    if not mixture or any(share <= 0 for share in mixture.values()):
        raise ConfigError(f"mixture {mixture} needs one share > 0 per task, such as {{search: 1.0}}")
    check_tasks(rows, mixture)
    parts = {}
    for task in mixture:
        mine = [{"input_ids": r["input_ids"], "labels": r["labels"]} for r in rows if r["task"] == task]
        parts[task] = Dataset.from_list(mine).shuffle(seed=seed)
    if len(parts) == 1:
        return next(iter(parts.values()))
    total = sum(mixture.values())
    return interleave_datasets(
        list(parts.values()),
        probabilities=[mixture[task] / total for task in parts],
        seed=seed,
        stopping_strategy="first_exhausted",
    )


def _tasks(rows: Sequence[dict[str, Any]]) -> str:
    counts = Counter(row["task"] for row in rows)
    return ", ".join(f"{task} ({n})" for task, n in sorted(counts.items())) or "none"
