"""Parts of the report that turn run files into table rows and sentences. Numbers come from the files only."""

from collections.abc import Mapping, Sequence
from typing import Any

MANIFEST_KEYS = {"stage", "inputs", "counts", "seed", "versions"}
TALLY = {"total", "verified", "read", "kept", "rejected"}  # a mapping of these few stays one line each
TITLES = {  # of blocks whose key says too little on a page; any other key is shown as it is
    "search": "Is searching needed? One BM25 search with the raw request",
    "by_level": "Tasks by split and level",
    "sft": "Chat records by task",
    "rl": "RL prompts by level",
    "expert": "The noisy expert that wrote the demonstrations",
}
FAVOURITE_PAIRS = ("after-before", "after-sft_longer", "after-bm25_oneshot", "after-bm25")


def comparison(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """``policies`` (name, table, overall), ``groups`` (levels, then unseen), ``pairs`` and the pair shown per level."""
    policies = [
        {"name": name, "table": table, "overall": table["overall"]}
        for name, table in metrics.get("policies", {}).items()
        if "overall" in table
    ]
    pairs = dict(metrics.get("paired", {}))
    main = next((name for name in FAVOURITE_PAIRS if name in pairs), next(iter(pairs), None))
    groups = [g for g in (policies[0]["table"] if policies else {}) if g != "overall"]
    return {"policies": policies, "pairs": pairs, "main_pair": main, "groups": groups}


def headline(table: Mapping[str, Any]) -> dict[str, str] | None:
    """The main result as one sentence in three pieces, or None without a paired difference."""
    if not table["main_pair"]:
        return None
    cell = table["pairs"][table["main_pair"]]["overall"]["f1"]
    names = [policy["name"] for policy in table["policies"]]
    later, earlier = next(
        ((a, b) for a in names for b in names if f"{a}-{b}" == table["main_pair"]), (table["main_pair"], "")
    )
    f1 = {policy["name"]: policy["overall"]["f1"] for policy in table["policies"]}
    if cell["diff"] is None or f1.get(later) is None or f1.get(earlier) is None:
        return None
    low, high = cell["interval"]
    clear = "the interval excludes zero" if low > 0 or high < 0 else "the interval includes zero: no clear difference"
    return {
        "lead": f"“{later}” has F1 {f1[later]:.3f}, “{earlier}” {f1[earlier]:.3f}: a difference of",
        "value": f"{cell['diff']:+.3f}",
        "tail": f" per request (95 % interval {low:+.3f} to {high:+.3f}; {clear}).",
    }


def forest(policies: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Positions in percent of the axis 0 to 1 for the interval picture of overall F1; None without a value."""
    rows = []
    for policy in policies:
        value, pair = policy["overall"]["f1"], policy["overall"]["intervals"]["f1"]
        if value is None or not pair:
            continue
        rows.append({
            "name": policy["name"], "value": value, "at": f"{100 * value:.2f}", "left": f"{100 * pair[0]:.2f}",
            "width": f"{100 * (pair[1] - pair[0]):.2f}", "ci": f"{pair[0]:.2f} to {pair[1]:.2f}",
        })  # fmt: skip
    return {"rows": rows, "ticks": [(25 * i, f"{0.25 * i:g}") for i in range(5)]} if rows else None


def statement(world: Mapping[str, Any], policies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Plain words on what this run can and cannot show; a manifest with a ``note`` is one of real tools."""
    if world.get("note"):
        return [
            "It can show that every stage takes these tools and requests: read, set aside with a reason, counted, "
            "trained on, scored. The intervals cover the sampling of test requests in this one run.",
        ]
    size = flatten(world.get("counts", {})).get("tools")
    tested = f"{policies[0]['overall']['n']} test requests" if policies else "the test requests"
    return [
        "It can show that the whole path works on something that can be checked: an invented world"
        f"{f' of {size} tools' if size else ''} whose answers are known, a small model trained from nothing, and "
        f"{tested} built from sentence templates and tool combinations that training never saw. A gain here is a gain "
        "in searching and selecting under these conditions.",
        "It cannot show that one training method beats another in general, nor that the gain carries over to large "
        "models or to real tools; words and single tools are shared between training and test. The intervals cover the "
        "sampling of test requests in this one run. They do not cover the spread between training seeds, which may "
        "be larger: compare several seeds before drawing a conclusion.",
    ]


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mapping -> ``{"outer inner": value}``, names with blanks for underscores."""
    out: dict[str, Any] = {}
    for key, item in value.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(item, Mapping):
            out.update(flatten(item, f"{name} "))
        else:
            out[name] = item
    return out


def shown(value: Any) -> str:
    """A value as short text: broken numbers to three decimals, lists joined."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value)
    return str(value)


def count_blocks(manifest: Mapping[str, Any], title: str, leave_out: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Tables of a stage manifest: its plain counts under ``title``, then one per mapping in its counts or beside them.

    A block is ``{"title", "columns": names or None, "rows": [(name, [texts])]}``; a mapping of mappings with scalar
    values becomes a table, the longer list of names going down. New keys of a stage thus appear without a change here.
    """
    parts = {**manifest.get("counts", {}), **{k: v for k, v in manifest.items() if k not in MANIFEST_KEYS}}
    parts = {name: value for name, value in parts.items() if name not in leave_out}
    plain = {name: value for name, value in parts.items() if not isinstance(value, Mapping)}
    small = {name: value for name, value in parts.items() if isinstance(value, Mapping) and set(value) <= TALLY}
    blocks = [_block(title, {**flatten(plain), **flatten(small)})]
    for name, value in parts.items():
        if isinstance(value, Mapping) and name not in small:
            blocks.append(_block(TITLES.get(name, name.replace("_", " ").capitalize()), value))
    return [block for block in blocks if block["rows"]]


def _block(title: str, content: Mapping[str, Any]) -> dict[str, Any]:
    inner = [value for value in content.values() if isinstance(value, Mapping)]
    if inner and len(inner) == len(content) and not any(isinstance(v, Mapping) for one in inner for v in one.values()):
        keys = list(dict.fromkeys(key for one in inner for key in one))
        table = {name: {key: one.get(key) for key in keys} for name, one in content.items()}
        if len(keys) > len(table):  # the longer list goes down: a page is narrow
            table = {key: {name: one[key] for name, one in table.items()} for key in keys}
        columns = [str(column).replace("_", " ") for column in next(iter(table.values()))]
        rows = [(str(name).replace("_", " "), [shown(v) for v in one.values()]) for name, one in table.items()]
        return {"title": title, "columns": columns, "rows": rows}
    return {"title": title, "columns": None, "rows": [(name, [shown(v)]) for name, v in flatten(content).items()]}


def what_ran(records: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Command of each stage, then seed, commit and versions, said once where all stages agree."""
    rows = [(f"{stage} command", str(record["command"])) for stage, record in records.items() if "command" in record]
    for key in ("seed", "commit"):
        values = {stage: str(record[key]) for stage, record in records.items() if key in record}
        distinct = sorted(set(values.values()))
        if len(distinct) == 1:
            rows.append((key, distinct[0]))
        elif distinct:
            rows.append((key, "; ".join(f"{stage} {value}" for stage, value in values.items())))
    versions = {k: v for record in records.values() for k, v in (record.get("versions") or {}).items()}
    if versions:
        rows.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    started = sorted(str(record["started"]) for record in records.values() if "started" in record)
    return [*rows, ("first stage started", started[0])] if started else rows
