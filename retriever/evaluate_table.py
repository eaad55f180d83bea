"""What ``retriever.evaluate`` prints: scores by encoder, Recall by group and encoder, and what was not run."""

from collections.abc import Mapping, Sequence
from typing import Any

Results = Mapping[str, Mapping[str, Any]]
SEARCHERS = {
    "own_document": "seen by document", "own_description": "seen by description", "user_query": "seen by request",
}  # fmt: skip


def print_results(results: Results, failed: Mapping[str, Mapping[str, str]], common: Mapping[str, Any]) -> None:
    """Print to stdout. ``results``: what ``evaluate`` gives, by encoder; ``failed``: reason and command, by encoder."""
    from rich.console import Console

    console = Console()
    corpus, files = common["corpus"], common["requests"]
    kept, read = sum(row["kept"] for row in files), sum(row["read"] for row in files)
    dangling = {target for row in files for target in row["dangling"]}
    _say(console, f"{corpus['tools']:,} tools in {corpus['categories']} categories; {kept} of {read} requests")
    if kept < read:
        _say(console, f"{read - kept} requests set aside; {len(dangling)} targets are not in the corpus")
    inside = {name: result["constrained"] for name, result in results.items() if "constrained" in result}
    for scope, parts in (("whole corpus", results), ("in the category of the targets", inside)):
        if parts:
            console.print(_scores(scope, parts, common["k"]))
            console.print(_groups(scope, parts, 5 if 5 in common["k"] else common["k"][0]))
    for name, why in failed.items():
        _say(console, f"not run: {name}: {why['reason']}\n  {why['command']}")


def _scores(scope: str, results: Results, ks: Sequence[int]) -> Any:
    first = next(iter(results.values()))
    table = _table(f"{scope}: {first['overall']['n']} searches, ± half the 95 % interval", ["score", *results])
    for score in ("recall", "ndcg", "comp"):
        table.add_section()
        for k in ks:
            table.add_row(f"{score}@{k}", *(_cell(part["overall"], f"{score}@{k}") for part in results.values()))
    table.add_section()
    table.add_row("mrr", *(_cell(part["overall"], "mrr") for part in results.values()))
    table.add_section()
    for searcher, label in SEARCHERS.items():
        shares = [part["ceiling"].get(searcher) for part in results.values()]
        if any(shares):
            table.add_row(label, *(_cell(share, "share") if share else "-" for share in shares))
    turns, hits = first["ceiling"]["turns"], first["ceiling"]["k"]
    table.caption = f"seen by: share of targets among {turns} x {hits} hits, searching with that text"
    return table


def _groups(scope: str, results: Results, k: int) -> Any:
    first = next(iter(results.values()))
    table = _table(f"recall@{k}, {scope}", ["requests", "n", *results])
    for kind in ("by_group", "by_num_targets"):
        table.add_section()
        for group, part in first[kind].items():
            unit = "" if kind == "by_group" else " target" if group == "1" else " targets"
            cells = [_cell(result[kind][group], f"recall@{k}") for result in results.values()]
            table.add_row(f"{group}{unit}", str(part["n"]), *cells)
    return table


def _table(title: str, columns: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    return table


def _cell(part: Mapping[str, Any], column: str) -> str:
    low, high = part["intervals"][column]
    return f"{part[column]:.3f} ±{(high - low) / 2:.2f}".replace("±0.", "±.")


def _say(console: Any, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
