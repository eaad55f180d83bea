"""A corpus of any size for benchmarks: the declared tools, then near-duplicates of them over 49 categories.

Documents only; nothing serves these tools. Category sizes fall like Zipf's law, APIs per tool nearly like ToolBench's
(most tools have one or two, a few have dozens). A copy keeps the words of its original and changes some: another noun,
verb, scope or remark, so that near-duplicates are many and equal texts rare.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from autotools.categories import TOOLBENCH_CATEGORIES
from autotools.errors import ConfigError
from autotools.schema import ToolId, ToolParameter, ToolSpec
from toolworld.builders import with_article
from toolworld.catalog import Operation, Resource

if TYPE_CHECKING:
    from toolworld.world import World

ZIPF = 1.0  # size of the r-th category ~ 1/r; the largest then holds 22 % of all (ToolBench: 19 %)
MAX_APIS = 60  # of one tool
TAIL = 0.95  # exponent of APIs per tool
_BRAND = ("al", "bre", "cor", "dax", "el", "fin", "gro", "hy", "ix", "jo", "ku", "lum", "mer", "no", "op", "pri",
          "qua", "ri", "sol", "tra", "ur", "ve", "wi", "xy", "yo", "zen")  # fmt: skip
_KINDS = ("api", "hub", "data", "pro", "live", "lite", "cloud", "now", "feed", "box", "desk", "base", "lab", "plus")
_SCOPES = (
    "", "", "", "in bulk", "for one day", "for one week", "near a place", "of a country", "with details",
    "without details", "as plain text", "with its history", "in a currency", "for a team", "by language",
    "for a season", "by postcode", "sorted by date", "sorted by rank", "by external id", "from the archive",
    "for mobile apps", "on a map",
)  # fmt: skip
_REMARKS = (
    "", "", "", "", "updated every hour", "needs a plan", "at most {n} calls a minute", "returns at most {n} entries",
    "version {n}", "cached for {n} minutes", "covers {n} countries", "still experimental",
)  # fmt: skip
_VERBS = {
    "find": ("find", "search", "look up", "get"), "list": ("list", "show", "get", "return"),
    "send": ("send", "share", "deliver"), "make": ("make", "create", "place"), "edit": ("edit", "change", "update"),
    "turn": ("turn", "switch"), "current": ("current", "latest", "get the current", "live"),
    "past": ("past", "historical", "get the past", "earlier"), "each": ("each", "every", "get each"),
}  # fmt: skip
_EXTRA = tuple(
    ToolParameter(name=name, type=kind, description=description)
    for name, kind, description in (
        ("lang", "string", "language of the answer"), ("limit", "integer", "at most this many"),
        ("offset", "integer", "how many to skip"), ("units", "string", "metric or imperial"),
        ("region", "string", "two-letter code of a country"), ("fields", "string", "which fields to return"),
    )
)  # fmt: skip


def scaled_specs(world: "World", num_tools: int, seed: int = 0) -> Iterator[ToolSpec]:
    """``num_tools`` tools with unique ids: the declared ones, then copies. A longer corpus starts with the shorter one.

    Raises ConfigError if ``num_tools`` is smaller than the declared world.
    """
    declared = world.tool_specs()
    if num_tools < len(declared):
        raise ConfigError(f"num_tools is {num_tools}; the declared tools alone are {len(declared)}, give that or more")
    return itertools.islice(itertools.chain(declared, _copies(world, declared, seed)), num_tools)


def _copies(world: "World", declared: Sequence[ToolSpec], seed: int) -> Iterator[ToolSpec]:
    rng = random.Random(seed)
    resources = [resource for domain in world.domains for resource in domain.resources]
    nouns = sorted({word for resource in resources for word in resource.synonyms})
    categories = list(TOOLBENCH_CATEGORIES)
    weights = list(itertools.accumulate((rank + 1) ** -ZIPF for rank in range(len(categories))))
    names = {str(spec.id.tool) for spec in declared}
    # every category occurs, also in a small corpus
    for category in itertools.chain(categories, iter(lambda: rng.choices(categories, cum_weights=weights)[0], None)):
        resource = rng.choice(resources)
        yield from _tool(category, resource, rng.choice([*resource.synonyms, rng.choice(nouns)]), names, rng)


def _tool(category: str, resource: Resource, noun: str, names: set[str], rng: random.Random) -> Iterator[ToolSpec]:
    """One new tool of ``category`` with copies of operations of ``resource``, about ``noun`` instead of its own."""
    brand = "".join(rng.choices(_BRAND, k=rng.randint(2, 3)))
    parts = [brand, noun, rng.choice(_KINDS)][: rng.randint(2, 3)]
    name = "_".join(parts)
    while name in names:
        name = f"{'_'.join(parts)}_{rng.randint(2, 9999)}"
    names.add(name)
    about = _about(resource.description, resource.noun, noun)
    described = f"{name.replace('_', ' ')}: {about} {rng.choice(_SCOPES)}".strip()
    seen: set[str] = set()
    for _ in range(min(MAX_APIS, int(rng.paretovariate(TAIL)))):
        operation = rng.choice(resource.operations)
        scope = rng.choice(_SCOPES)
        api = "_".join([operation.api.replace(resource.noun, noun), *scope.split()])
        if api in seen:
            api = f"{api}_v{len(seen) + 1}"
        seen.add(api)
        yield ToolSpec(
            id=ToolId(category=category, tool=name, api=api),
            tool_name=name.replace("_", " ").title(),
            api_name=api,
            description=_description(operation, resource.noun, noun, scope, brand, rng),
            tool_description=described,
            method=operation.method,
            path=f"/{category.lower()}/{name}/{api}" + ("/{" + f"{noun}_id" + "}" if _has_path_id(operation) else ""),
            parameters=tuple(_parameters(operation, resource.noun, noun, rng)),
            response=operation.response,
        )


def _description(operation: Operation, old: str, noun: str, scope: str, brand: str, rng: random.Random) -> str:
    """The original's sentence with another noun, perhaps another verb, a scope, the brand and a remark."""
    words = _about(operation.description, old, noun).split()
    words[0] = rng.choice(_VERBS.get(words[0], (words[0],)))
    text = " ".join([*words, scope] if scope else words)
    if rng.random() < 0.4:
        text += f" from {brand.title()}"
    if remark := rng.choice(_REMARKS).format(n=rng.choice((5, 10, 20, 30, 50, 60, 100, 120, 200, 500))):
        text += f"; {remark}"
    return text if rng.random() < 0.5 else text[0].upper() + text[1:] + "."


def _about(text: str, old: str, noun: str) -> str:
    return text.replace(with_article(old), with_article(noun)).replace(old, noun)


def _has_path_id(operation: Operation) -> bool:
    return any(p.location == "path" for p in operation.parameters)


def _parameters(operation: Operation, old: str, noun: str, rng: random.Random) -> Iterator[ToolParameter]:
    yield from (_renamed(p, old, noun) for p in operation.parameters)
    taken = {p.name for p in operation.parameters}
    for extra in rng.sample(_EXTRA, k=rng.choice((0, 0, 1, 2))):
        if extra.name not in taken:
            yield extra


@lru_cache(maxsize=20_000)
def _renamed(parameter: ToolParameter, old: str, noun: str) -> ToolParameter:
    name = f"{noun}_id" if parameter.name == f"{old}_id" else parameter.name
    described = _about(parameter.description, old, noun)
    return parameter.model_copy(update={"name": name, "description": described})


def write_scaled(out: Path, specs: Iterator[ToolSpec], num_tools: int, seed: int) -> dict[str, int]:
    """Write ``tools.jsonl`` and ``manifest.json`` to ``out``; returns the counts that the manifest holds."""
    from rich.console import Console
    from rich.progress import track

    from autotools.rundir import write_jsonl, write_manifest

    categories: Counter[str] = Counter()

    def counted() -> Iterator[ToolSpec]:
        for spec in track(specs, "tools", total=num_tools, console=Console(stderr=True), transient=True):
            categories[spec.id.category] += 1
            yield spec

    write_jsonl(out / "tools.jsonl", counted())
    counts = {"tools": categories.total(), "categories": len(categories), "largest": max(categories.values())}
    write_manifest(out, stage="toolworld-scaled", inputs=[], counts=counts, seed=seed)
    return counts
