"""The report as plain Markdown for terminals (``report.md``): the facts that ``evaluation.report.gather`` collected.

Nothing is computed here but text. Recorded text may hold anything: control characters (a terminal would obey them) are
replaced, and what Markdown or HTML would take for markup is escaped.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NONE = "–"
_MARKUP = re.compile(r"([\\`<\[|])")


def plain(value: Any) -> str:
    """One line of text that neither a terminal nor a Markdown reader takes for an instruction."""
    text = re.sub(r"\s+", " ", "" if value is None else str(value)).strip()
    text = "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in text)
    return _MARKUP.sub(r"\\\1", text)


def number(value: float | None, digits: int = 3) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    return number(value) + (f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else "")


def difference(cell: Mapping[str, Any] | None) -> str:
    """A paired difference; ``*`` where its interval excludes zero."""
    if not cell or cell["diff"] is None:
        return NONE
    low, high = cell["interval"]
    return f"{cell['diff']:+.3f}{'*' if low > 0 or high < 0 else ''} ({low:+.2f} to {high:+.2f})"


def _width(text: str) -> int:
    """Columns in a terminal: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Lines of a Markdown table whose columns also line up in a terminal; columns of numbers stand right."""
    body = [[plain(cell) or NONE for cell in row] for row in rows]
    cells = [[plain(name) for name in header], *body]
    widths = [max(3, *(_width(row[i]) for row in cells)) for i in range(len(header))]
    right = [i > 0 and all(row[i][0] in "0123456789+-–" for row in body) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        gaps = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        padded = (gap + cell if r else cell + gap for cell, gap, r in zip(row, gaps, right, strict=True))
        return "| " + " | ".join(padded) + " |"

    rule = "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True))
    return [line(cells[0]), f"|{rule}|", *map(line, body), ""]


def markdown(facts: Mapping[str, Any]) -> str:
    """The whole report as Markdown text; ``facts`` is the value of ``evaluation.report.gather``."""
    lines = [f"# {plain(facts['title'])}", "", plain(facts["subtitle"]), ""]
    if facts["headline"]:
        lines += [" ".join(plain(facts["headline"][part]) for part in ("lead", "value", "tail")), ""]
    for sentence in facts["statement"]:
        lines += [plain(sentence), ""]
    for part in (_what_ran, _counts, _curves, _scores, _seeds, _rollouts):
        lines += part(facts)
    return "\n".join(lines).rstrip() + "\n"


def _what_ran(facts: Mapping[str, Any]) -> list[str]:
    lines = ["## What ran", ""]
    lines += [f"- {plain(name)}: {plain(value)}" for name, value in facts["what"]] or ["No run.json was found."]
    lines += ["", plain(facts["repeat"]), "", "## Time and memory", ""]
    stages = facts["stages"]
    if stages:
        rows = [
            (r["name"], number(r["wall_s"], 1), number(r["peak_gb"], 2), ", ".join(r["beside"])) for r in stages["rows"]
        ]
        lines += table(("Stage", "Wall time, s", "Peak memory, GB", "Ran beside"), rows)
        lines += [*(f"- {plain(name)}: {plain(value)}" for name, value in stages["totals"]), ""]
    else:
        lines += [plain(facts["problems"]["stages"]), ""]
    if facts["inputs"]:
        lines += ["## What each stage read (SHA-256, from the manifests)", ""]
        lines += table(("Stage", "Input", "SHA-256"), [(r["stage"], r["name"], r["sha256"]) for r in facts["inputs"]])
    return lines


def _counts(facts: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, title in (("world", "The tools and requests"), ("data", "The training data")):
        lines += [f"## {title}", ""]
        for block in facts[key]:
            lines += [f"### {plain(block['title'])}", ""]
            lines += table(("", *(block["columns"] or ("value",))), [(name, *values) for name, values in block["rows"]])
        if not facts[key]:
            lines += [plain(facts["problems"][key]), ""]
    return lines


def _curves(facts: Mapping[str, Any]) -> list[str]:
    rows = [
        (f"{chart['title']}: {line['name']}", number(line["first"]), number(line["last"]))
        for chart in (*facts["charts"], *facts["small_charts"])
        for line in chart["lines"]
    ]
    lines = ["## Training curves", ""]
    if rows:
        lines += ["Moving average over a tenth of the steps.", ""]
        lines += table(("Curve", "start", "end"), rows)
    lines += [line for problem in facts["problems"]["curves"] for line in (plain(problem), "")]
    return lines + _alarms(facts["alarms"])


def _alarms(alarms: Sequence[Mapping[str, Any]] | None) -> list[str]:
    if alarms is None:
        return []
    lines = ["## Alarms of the RL stage", ""]
    for a in alarms:
        tasks = f" For example {', '.join(a['tasks'])}." if a["tasks"] else ""
        value = f"{a['metric']} {number(a['value'])} (threshold {number(a['threshold'], 2)})"
        lines.append(plain(f"- step {a['step']}, {a['name']}: {value}: {a['meaning']}.{tasks} Try: {a['advice']}."))
    return [*lines, *([] if alarms else ["None was raised."]), ""]


def _scores(facts: Mapping[str, Any]) -> list[str]:
    policies, pairs, main = facts["policies"], facts["pairs"], facts["main_pair"]
    if not policies:
        return ["## Before and after", "", plain(facts["problems"]["metrics"]), ""]
    names = [policy["name"] for policy in policies]
    lines = ["## Before and after", ""]
    lines += [f"All test requests outside the unseen domain (n = {policies[0]['overall']['n']}), 95 % intervals.", ""]
    rows = [
        (name, *(with_interval(p["overall"][key], p["overall"]["intervals"].get(key)) for p in policies))
        for key, name, _ in facts["scores"]
    ]
    lines += table(("Score", *names), [*rows, ("Missing", *(p["overall"]["missing"] for p in policies))])
    for key, name in facts["level_scores"]:
        rows = []
        for group in facts["groups"]:
            cells = [p["table"].get(group) for p in policies]
            shown = [with_interval(c[key], c["intervals"].get(key)) if c else NONE for c in cells]
            last = [difference(pairs[main].get(group, {}).get(key))] if main else []
            rows.append((f"{group} (n = {policies[0]['table'][group]['n']})", *shown, *last))
        lines += [f"### {name} per level", "", *table(("Level", *names, *([main] if main else [])), rows)]
    if pairs:
        rows = [
            (name, *(difference(t["overall"][key]) for key, _ in facts["pair_scores"])) for name, t in pairs.items()
        ]
        lines += ["### Paired differences, overall (* the interval excludes zero)", ""]
        lines += table(("Runs", *(name for _, name in facts["pair_scores"])), rows)
    return lines


def _seeds(facts: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if facts["seed_rows"]:
        policies, pairs = facts["seed_policies"], facts["seed_pairs"]
        rows = [
            (row["seed"], *(with_interval(row["f1"].get(n), row["ci"].get(n)) for n in policies),
             *(difference(row["pairs"].get(n)) for n in pairs))
            for row in facts["seed_rows"]
        ]  # fmt: skip
        if len(rows) > 1:
            rows.append(("Mean", *(number(facts["seed_means"].get(name)) for name in (*policies, *pairs))))
        lines += ["## Several seeds: F1", "", *table(("Seed", *policies, *pairs), rows)]
    return lines + [line for problem in facts["problems"]["seeds"] for line in (plain(problem), "")]


def _rollouts(facts: Mapping[str, Any]) -> list[str]:
    lines = ["## Six whole trajectories from training", ""]
    if facts["trajectories"]:
        lines += [f"All recorded ones: {plain(facts['trajectories'])}. +: a target; credit per event.", ""]
    for one in facts["rollouts"]:
        place = "" if one["group"] is None else f", group {one['group'] + 1}, rollout {one['rollout'] + 1}"
        lines += [f"### Step {one['step']}{place}: {plain(one['outcome'])}", "", plain(one["query"]), ""]
        for target in one["targets"]:
            found = "found" if target["found"] else "never found"
            lines.append(f"- target {plain(target['id'])}: {found}, {'' if target['selected'] else 'not '}selected")
        for event in one["events"]:
            value = event["advantage"]
            credit = NONE if value is None else f"{value:+.2f}" if event["kept"] else "removed"
            query = "" if event["query"] is None else f" “{plain(event['query'])}”"
            lines.append(f"- {event['number']}. {plain(event['kind'])}{query}, credit {credit}")
            lines += [f"  - {'+ ' if hit['target'] else ''}{plain(hit['id'])}" for hit in event["hits"]]
        chosen = ", ".join(f"{'+ ' if s['target'] else ''}{plain(s['id'])}" for s in one["selection"])
        lines += [f"- answer: {chosen or ('named no tool' if one['answered'] else 'none')}", ""]
    return lines + [line for problem in facts["problems"]["rollouts"] for line in (plain(problem), "")]
