"""Which operation a request means, and what its arguments are: pure functions, no HTTP library inside.

The table matches verb + path to a declared operation (literal segments win over templated ones); `read_arguments`
turns path, query, headers and body into one typed argument dict or into a 422 problem in the style of a web service.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from autotools.errors import ToolWorldError
from autotools.schema import ToolParameter
from toolworld.catalog import Domain, Operation, Resource

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_BODY_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True)
class Problem:
    """A refusal in service style: HTTP status, machine-readable code, message for the caller."""

    status: int
    code: str
    message: str

    def body(self) -> dict[str, Any]:
        """JSON body that every refusal of the world has."""
        return {"error": {"code": self.code, "message": self.message}}


@dataclass(frozen=True)
class Route:
    """One declared operation with its split path template."""

    domain: Domain
    resource: Resource
    operation: Operation
    segments: tuple[str, ...]

    @property
    def verb(self) -> str:
        """HTTP verb in capitals."""
        return self.operation.method.upper()

    def match(self, segments: tuple[str, ...]) -> dict[str, str] | None:
        """Path variables (still text) if the concrete segments fit the template, else None."""
        variables = {}
        for pattern, segment in zip(self.segments, segments, strict=True):
            if name := _VARIABLE.fullmatch(pattern):
                variables[name[1]] = segment
            elif pattern != segment:
                return None
        return None if "" in variables.values() else variables


class RouteTable:
    """All routes of a world. Raises ToolWorldError if two operations claim the same verb and shape."""

    def __init__(self, domains: Iterable[Domain]) -> None:
        self._by_length: dict[int, list[Route]] = {}
        seen: dict[tuple[str, ...], Route] = {}
        for domain in domains:
            for resource in domain.resources:
                for operation in resource.operations:
                    route = Route(domain, resource, operation, tuple(operation.path.strip("/").split("/")))
                    shape = (route.verb, *(_VARIABLE.sub("{}", part) for part in route.segments))
                    if shape in seen:
                        other = seen[shape].operation
                        raise ToolWorldError(
                            f"catalog: {route.verb} {operation.path} ({resource.tool}.{operation.api}) collides with "
                            f"{other.path} ({other.api}); give one of them another path"
                        )
                    seen[shape] = route
                    self._by_length.setdefault(len(route.segments), []).append(route)
        for routes in self._by_length.values():
            # Literal before variable, decided from the left: /hotels/top is never read as hotel_id "top".
            routes.sort(key=lambda r: tuple("{" in part for part in r.segments))

    def find(self, verb: str, raw_path: str) -> tuple[Route, dict[str, str]] | Problem:
        """Route and path variables for a request, or 404 (no such path) / 405 (path exists under other verbs)."""
        segments = tuple(unquote(part) for part in raw_path.strip("/").split("/"))
        verbs = set()
        for route in self._by_length.get(len(segments), ()):
            variables = route.match(segments)
            if variables is None:
                continue
            if route.verb == verb:
                return route, variables
            verbs.add(route.verb)
        if verbs:
            return Problem(405, "method_not_allowed", f"{verb} is not allowed here; use {', '.join(sorted(verbs))}")
        return Problem(404, "unknown_route", f"no such route: {unquote(raw_path)[:200]}")


def read_arguments(
    operation: Operation, variables: Mapping[str, str], query: str, headers: Mapping[str, str], body: bytes
) -> dict[str, Any] | Problem:
    """Typed arguments by documented name, or a 422 that names the parameter, its value and what is expected.

    ``headers`` has lower-case names. Unknown query and body names are refused: a silently ignored argument
    would make a wrongly documented function look right.
    """
    given: dict[str, dict[str, Any]] = {"path": dict(variables), "header": {}}
    given["query"] = dict(parse_qsl(query, keep_blank_values=True))
    content = _read_body(body)
    if isinstance(content, Problem):
        return content
    given["body"] = content
    declared = operation.parameters
    for place in ("query", "body"):
        known = {p.name for p in declared if p.location == place}
        if extra := sorted(set(given[place]) - known):
            return _refuse(f"unknown {place} parameter {extra[0]!r}; known: {', '.join(sorted(known)) or 'none'}")
    given["header"] = {p.name: headers[p.name.lower()] for p in declared if p.name.lower() in headers}
    arguments: dict[str, Any] = dict(variables)
    for parameter in declared:
        values = given[parameter.location]
        if parameter.name not in values or values[parameter.name] in (None, ""):
            if parameter.required or parameter.location == "path":
                return _refuse(f"{parameter.location} parameter {parameter.name!r} is required")
            continue
        value = _typed(parameter, values[parameter.name])
        if isinstance(value, Problem):
            return value
        arguments[parameter.name] = value
    return arguments


def _refuse(message: str) -> Problem:
    return Problem(422, "invalid_request", message)


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _read_body(body: bytes) -> dict[str, Any] | Problem:
    if not body:
        return {}
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return _refuse(f"body is not JSON: {str(error)[:200]}")
    if not isinstance(content, dict):
        return _refuse(f"body must be a JSON object, not {type(content).__name__}")
    return content


def _typed(parameter: ToolParameter, value: Any) -> Any:
    """The value in its declared type; text from path, query and headers is converted, JSON values are only checked."""
    kind = parameter.type
    bad = _refuse(f"{parameter.location} parameter {parameter.name!r} must be {kind}, got {str(value)[:100]!r}")
    if parameter.location == "body":
        if not isinstance(value, _BODY_TYPES.get(kind, (object,))) or (isinstance(value, bool) and kind != "boolean"):
            return bad
    elif kind == "integer":
        if not _INTEGER.fullmatch(value):
            return bad
        value = int(value)
    elif kind == "number":
        try:
            value = float(value)
        except ValueError:
            return bad
        if not math.isfinite(value):
            return bad
    elif kind == "boolean":
        if value not in ("true", "false"):
            return bad
        value = value == "true"
    elif kind == "array":
        value = value.split(",")
    if parameter.enum and value not in parameter.enum:
        return _refuse(
            f"{parameter.location} parameter {parameter.name!r} must be one of "
            f"{', '.join(map(str, parameter.enum))}, got {str(value)[:100]!r}"
        )
    return value
