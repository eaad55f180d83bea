"""What ``retriever.evaluate`` prints: scores by encoder, Recall by group and encoder, and what was not run."""

from collections.abc import Mapping, Sequence
from typing import Any

Results = Mapping[str, Mapping[str, Any]]


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
    if results:
        console.print(_scores(results, common["k"]))
        console.print(_groups(results, 5 if 5 in common["k"] else common["k"][0]))
    for name, why in failed.items():
        _say(console, f"not run: {name}: {why['reason']}\n  {why['command']}")


def _columns(results: Results) -> dict[str, Mapping[str, Any]]:
    """Column title -> figures: each encoder, then each with the category given."""
    out = dict(results)
    out |= {f"{name} (category)": part["constrained"] for name, part in results.items() if "constrained" in part}
    return out


def _scores(results: Results, ks: Sequence[int]) -> Any:
    columns = _columns(results)
    table = _table("score ± half the 95 % interval", ["all requests", *columns])
    table.add_row("searches", *(str(part["overall"]["n"]) for part in columns.values()))
    for score in ("recall", "ndcg", "comp"):
        table.add_section()
        for k in ks:
            table.add_row(f"{score}@{k}", *(_cell(part["overall"], f"{score}@{k}") for part in columns.values()))
    table.add_section()
    table.add_row("mrr", *(_cell(part["overall"], "mrr") for part in columns.values()))
    table.add_section()
    limits = next(iter(columns.values()))["ceiling"]
    table.add_row(f"targets seen in {limits['turns']} x {limits['k']} hits,", *("" for _ in columns))
    searchers = {"own_document": "their text", "own_description": "their description", "user_query": "the request"}
    for key, words in searchers.items():
        shares = [part["ceiling"].get(key) for part in columns.values()]
        table.add_row(f"  searching with {words}", *(_cell(share, "share") if share else "-" for share in shares))
    return table


def _groups(results: Results, k: int) -> Any:
    columns = _columns(results)
    first = next(iter(results.values()))
    table = _table(f"recall@{k} by group", ["requests", *columns])
    for kind in ("by_group", "by_num_targets"):
        table.add_section()
        for group in first[kind]:
            unit = "" if kind == "by_group" else " target" if group == "1" else " targets"
            parts = [part[kind].get(group) for part in columns.values()]
            cells = [f"{_cell(part, f'recall@{k}')} n {part['n']}" if part else "-" for part in parts]
            table.add_row(f"{group}{unit}", *cells)
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
