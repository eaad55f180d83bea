"""The embedded world as one object: domains, records, tools as ToolSpecs, and figures about the catalog."""

from collections.abc import Iterator
from dataclasses import dataclass

from autotools.schema import ToolId, ToolSpec
from toolworld.catalog import Domain, Operation, Resource
from toolworld.domains import DOMAINS
from toolworld.records import Record, State, Tables

STOP_WORDS = frozenset("a an the of in for".split())


@dataclass(frozen=True)
class Ref:
    """One tool of the world with the declarations it comes from."""

    id: ToolId
    domain: Domain
    resource: Resource
    operation: Operation

    @property
    def function(self) -> str:
        """Name of the tool as a function of a program."""
        return f"{self.id.tool}_{self.id.api}"

    @property
    def good_query(self) -> str:
        """Words of the document without stop words: what an ideal search would ask."""
        return " ".join(w for w in self.operation.description.split() if w not in STOP_WORDS)

    @property
    def key(self) -> str | None:
        """Name of the parameter that takes an id which only another tool yields, else None."""
        return next((p.name for p in self.operation.parameters if p.required and p.name.endswith("_id")), None)


class World:
    """Everything derived from the declarations and one seed."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.domains: tuple[Domain, ...] = DOMAINS
        self.tables: Tables = self.initial_state().tables
        self.refs: dict[ToolId, Ref] = {ref.id: ref for ref in self._all_refs()}
        self.by_noun: dict[str, Resource] = {r.noun: r for domain in DOMAINS for r in domain.resources}

    def _all_refs(self) -> Iterator[Ref]:
        for domain in self.domains:
            for resource in domain.resources:
                for operation in resource.operations:
                    yield Ref(domain.tool_id(resource, operation), domain, resource, operation)

    def initial_state(self) -> State:
        """State of a session that has changed nothing yet."""
        return State(self.seed)

    def tools(self) -> list[tuple[Domain, Resource, Operation]]:
        """All tools in catalog order."""
        return [(ref.domain, ref.resource, ref.operation) for ref in self.refs.values()]

    def tool_specs(self) -> list[ToolSpec]:
        """All tools as ToolSpecs straight from the declarations (the build writes the ones read from OpenAPI)."""
        return [
            ToolSpec(
                id=ref.id, tool_name=ref.resource.display_name, api_name=ref.operation.api,
                description=ref.operation.description, tool_description=ref.resource.description,
                method=ref.operation.method, path=ref.operation.path, parameters=ref.operation.parameters,
                response=ref.operation.response,
            )
            for ref in self.refs.values()
        ]  # fmt: skip

    def records(self, resource: Resource) -> list[Record]:
        """Records of a resource in id order."""
        return list(self.tables[resource.tool].values())

    def near_duplicates(self) -> list[tuple[ToolId, ToolId]]:
        """Pairs of tools that differ in function but hardly in wording (each pair once)."""
        pairs = []
        for ref in self.refs.values():
            if ref.operation.near_duplicate:
                other = ToolId(category=ref.id.category, tool=ref.id.tool, api=ref.operation.near_duplicate)
                pairs.append(tuple(sorted((ref.id, other))))
        return sorted(set(pairs))

    def dependency_share(self) -> float:
        """Share of tools with a required id that only another tool yields, in [0, 1]."""
        return sum(ref.key is not None for ref in self.refs.values()) / len(self.refs)


def build_world(seed: int = 0) -> World:
    """The world of a seed: the declarations are fixed, the records and (through them) tasks depend on the seed."""
    return World(seed)
