"""The vocabulary in which the embedded world is written down: one declaration feeds server, documents and tasks.

A domain is one category; it has resources (each is one ``tool`` in the sense of ToolId, with a table of records);
a resource has operations (each is one API). Records, HTTP server, both documentation forms, request wordings,
programs and expected answers are all derived from these declarations.
"""

from dataclasses import dataclass, field
from typing import Any

from autotools.schema import ToolId, ToolParameter


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One API of a resource.

    ``kind`` names the behaviour (``toolworld/operations.py`` implements each kind once).
    ``path`` is the route template below the server root, e.g. ``/hotels/{hotel_id}/rate``.
    ``wordings`` are request clauses with the slot ``{o}`` (the object in the user's words) and optional slots named
    like parameters; the request never quotes the tool's own name.
    ``settings`` parametrises the kind (field to read, enum, paging ...).
    """

    api: str
    kind: str
    description: str
    method: str
    path: str
    parameters: tuple[ToolParameter, ...] = ()
    response: Any = None
    wordings: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    near_duplicate: str = ""  # api of the operation it is easily confused with


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One tool: a table of linked records and the operations on it."""

    tool: str
    display_name: str
    description: str
    noun: str  # the tool's own word, e.g. "hotel"
    synonyms: tuple[str, ...]  # the user's words, e.g. ("hotel", "inn", "lodge")
    id_prefix: str  # ids look like "HTL-017"
    fields: dict[str, Any] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Domain:
    """One category of tools. ``api_key`` is required by the server in header ``X-Api-Key`` when set."""

    category: str
    resources: tuple[Resource, ...]
    api_key: str | None = None
    test_only: bool = False

    def tool_id(self, resource: Resource, operation: Operation) -> ToolId:
        """Id of one operation of this domain."""
        return ToolId.make(self.category, resource.tool, operation.api)
