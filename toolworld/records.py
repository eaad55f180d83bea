"""Seeded, linked records of every tool, and the state a server session works on."""

import random
from functools import lru_cache
from typing import Any

from toolworld.builders import KINDS, MONTHS
from toolworld.catalog import Domain, Resource

CLOCK = "2031-05-14T09:00:00"  # the world's frozen now
RECORDS_PER_TOOL = 40
SHOWN_RECORDS = 28  # only the first 28 of a tool occur in train requests; dev and test use the others

# Invented words, so that a record name never looks like a word of a request or of a document.
NAME_WORDS = (
    "Arlo Besk Corvi Dalu Emrik Fenzo Garu Hidlu Ibex Jorun Kelmo Lunda Mirek Nolva Orbin Pasco Quilo Runno Sarvo Tavi "
    "Ulmo Vento Wexla Xandu Yorvi Zelko Amrin Bodu Caliv Denvo Elsu Farko Gilma Horvu Irsa Jaluk Korda Lemvi Mosku "
    "Narvi Olpen Pirgu Qanta Rovik Selmu Tordi Ungar Valdo Wirsa Xelmi Yandu Zorba Askil Brovo Cundi Drosk Epsil Fjalu "
    "Grinu Hokva"
).split()

Record = dict[str, Any]
Tables = dict[str, dict[str, Record]]  # tool -> id -> record


def make_tables(domains: tuple[Domain, ...], seed: int) -> Tables:
    """Records of all tools: unique two-word names, one link id per declared link, values for every quantity.

    Every record has ``id name kind price score level rank size order_count alert_limit past`` and ``<hub>_id`` for
    each link; ``past[quantity][month]`` is the value of a month. ``rank`` is a permutation (1 is best), so a top-n
    list has no ties.
    """
    rng = random.Random(f"records-{seed}")
    resources = [resource for domain in domains for resource in domain.resources]
    names = [f"{a} {b}" for a in NAME_WORDS for b in NAME_WORDS if a != b]
    rng.shuffle(names)
    hubs = {resource.noun: resource.id_prefix for resource in resources}
    tables: Tables = {}
    for resource in resources:
        table = _make_table(rng, resource, names, hubs)
        tables[resource.tool] = {record["id"]: record for record in table}
    return tables


def _make_table(rng: random.Random, resource: Resource, names: list[str], hubs: dict[str, str]) -> list[Record]:
    numbers = range(1, RECORDS_PER_TOOL + 1)
    ranks = rng.sample(numbers, RECORDS_PER_TOOL)
    # Each hub record is linked exactly once per table, so that a lookup by link never comes back empty.
    links = {link: rng.sample(numbers, RECORDS_PER_TOOL) for link in resource.fields["links"]}
    table = []
    for index, number in enumerate(numbers):
        record = {
            "id": f"{resource.id_prefix}-{number:03d}",
            "name": names.pop(),
            "kind": rng.choice(KINDS),
            **_quantities(rng),
            "rank": ranks[index],
            "size": rng.randint(10, 900),
            "order_count": rng.randint(1, 9),
            "alert_limit": rng.randint(10, 90),
            "past": {month: _quantities(rng) for month in MONTHS.values()},
        }
        record |= {f"{link}_id": f"{hubs[link]}-{order[index]:03d}" for link, order in links.items()}
        table.append(record)
    return table


def _quantities(rng: random.Random) -> dict[str, float]:
    return {"price": rng.randint(20, 2000) / 2, "score": rng.randint(1, 100), "level": rng.randint(0, 100)}


class State:
    """What one session sees: the shared records, which nothing changes, and the session's own changes.

    ``changes`` maps (what, tool, record id) to the new value. Only the seed and the changes are pickled; tables are
    rebuilt (once per process), which keeps a fresh copy per session cheap.
    """

    def __init__(self, seed: int, changes: dict[tuple[str, str, str], Any] | None = None) -> None:
        self.seed = seed
        self.tables = _world_tables(seed)
        self.changes = dict(changes or {})

    def copy(self) -> "State":
        """Independent state with the same changes."""
        return State(self.seed, self.changes)

    def __reduce__(self) -> tuple[type, tuple[int, dict[tuple[str, str, str], Any]]]:
        return State, (self.seed, self.changes)


@lru_cache(maxsize=8)
def _world_tables(seed: int) -> Tables:
    from toolworld.domains import DOMAINS

    return make_tables(DOMAINS, seed)
