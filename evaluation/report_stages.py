"""What it took to make a run: seconds and memory of each stage, which stages ran side by side, what each one read."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotools.rundir import sha256_file

FOLDERS = ("world", "data", "sft", "sft_longer", "rl", "eval")
"""Stage folders of a run, in the order of the pipeline."""


def stage_table(wall_s: Mapping[str, Any], memory: Mapping[str, Any]) -> dict[str, Any] | None:
    """``rows`` (name, wall_s, peak_gb, names it ran beside) and ``totals`` (name, text); None without any wall time.

    ``wall_s`` is that of ``summary.json``, ``memory`` the content of ``logs/memory.json``: peak resident bytes by
    stage, and ``steps``, lists of stages that run side by side. The whole time is the sum over steps of the longest
    stage; without ``steps`` it is not known, and only the sum over stages is given.
    """
    seconds = {name: float(s) for name, s in wall_s.items() if isinstance(s, int | float)}
    if not seconds:
        return None
    peaks = memory.get("stages") or {}
    steps: list[Sequence[str]] = [step for step in memory.get("steps") or [] if isinstance(step, list)]
    beside = {name: [other for other in step if other != name] for step in steps for name in step}
    rows = [
        {
            "name": name,
            "wall_s": s,
            "peak_gb": peaks[name] / 1e9 if isinstance(peaks.get(name), int | float) else None,
            "beside": beside.get(name, []),
        }
        for name, s in seconds.items()
    ]
    totals = [("Sum over the stages", f"{sum(seconds.values()):.1f} s")]
    if set(seconds) <= set(beside):
        whole = sum(max((seconds.get(name, 0.0) for name in step), default=0.0) for step in steps)
        totals.insert(0, ("From start to end, stages of one step side by side", f"{whole:.1f} s"))
    if isinstance(memory.get("peak_bytes"), int | float):
        totals.append(("Peak memory of all stages running at one time", f"{memory['peak_bytes'] / 1e9:.2f} GB"))
    return {"rows": rows, "totals": totals}


def inputs_read(run: Path) -> list[dict[str, str]]:
    """``stage``, ``name``, ``sha256`` of every input that a finished stage's manifest lists; stages without one: none.

    A name like ``sft/manifest.json`` stands for the whole stage: the manifest is written last and names what it read.
    A manifest that lies in this run with the same hash is named by its stage, whatever the reader called it.
    """
    paths = [run / folder / "manifest.json" for folder in FOLDERS]
    ours = {sha256_file(path): f"{path.parent.name}/{path.name}" for path in paths if path.is_file()}
    rows = []
    for folder in FOLDERS:
        try:
            inputs = json.loads((run / folder / "manifest.json").read_text(encoding="utf-8")).get("inputs")
        except (OSError, ValueError, AttributeError):
            continue  # what is missing is named elsewhere in the report
        for name, digest in inputs.items() if isinstance(inputs, dict) else ():
            rows.append({"stage": folder, "name": ours.get(digest, str(name)), "sha256": str(digest)})
    return rows
