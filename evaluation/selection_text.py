"""What ``python -m evaluation.selection`` prints."""

from typing import Any

from evaluation.engine_scores import CEILINGS, CONFUSION, SAME
from evaluation.selection import MATCH_BOTH_COMPLETE, OVERALL, text_differences, text_table

SHOWN_MISSING = 10
COMPARED = ("f1", "match", "srecall", MATCH_BOTH_COMPLETE)
BESIDE = ("recall", "srecall", *CEILINGS, *SAME, *CONFUSION)


def print_result(result: dict[str, Any]) -> None:
    """Print all tables to stdout."""
    print(text_table(result["groups"]))
    print(f"\nby number of targets\n{text_table(result['by_num_targets'])}")
    print(f"\n{_counts_text(result)}")
    for other, table in result["paired"].items():
        print(f"\ndifference to {other}, paired by task, 95 % interval")
        if missing := result["paired_missing"][other]:
            print(f"{len(missing)} tasks without a prediction there{_named(missing)}")
        print("\n".join(text_differences(table, key) for key in COMPARED))
    retriever = result["retriever"]
    print(f"\nbeside the retriever{_limits_text(retriever['ceiling'])}")
    if "groups" in retriever:
        columns = [key for key in BESIDE if key in retriever["groups"][OVERALL]]
        print(text_table(retriever["groups"], columns))
        print(f"\n{text_table(retriever['by_num_targets'], columns)}")
    for name in ("ceiling", "confusion"):
        if isinstance(retriever[name], str):
            print(f"{name}: {retriever[name]}")


def _counts_text(result: dict[str, Any]) -> str:
    counts, missing = result["counts"], result["missing"]
    if not result["tasks"]:
        return f"{counts['predictions']} predictions, no --tasks: a task without a row cannot be seen"
    text = f"{counts['tasks']} tasks of {result['tasks']}, {len(missing)} without a prediction"
    return text + (_named(missing) if missing else "")


def _named(missing: dict[str, str]) -> str:
    rest = len(missing) - SHOWN_MISSING
    named = [f"{task} ({reason})" for task, reason in list(missing.items())[:SHOWN_MISSING]]
    return " (they count as failed): " + ", ".join(named) + (f" and {rest} more" if rest > 0 else "")


def _limits_text(ceiling: Any) -> str:
    if isinstance(ceiling, str):
        return ""
    return f": ceiling of {ceiling['turns']} searches of {ceiling['k']} hits ({ceiling['from']})"
