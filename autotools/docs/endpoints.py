"""Reader of AutoTools' endpoint files: one service per file, with its ``endpoints``. Key names differ by file.

Category and tool are the file's stem; ``tmdb_rest`` holds further endpoints of ``tmdb``.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autotools.docs import AUTH_NOTE
from autotools.docs.files import first_keys, read_json, stem_of, suffix_of
from autotools.docs.openapi import body_parameters, is_true, response_template
from autotools.docs.openapi_schema import References
from autotools.docs.reading import (
    Reading,
    as_dict,
    as_list,
    as_text,
    first_paragraph,
    json_type,
    plain,
    shown,
    split_address,
    template_of,
    template_of_words,
    tool_id,
    with_path_variables,
    without_key_value,
)
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolParameter, ToolSpec

FORM = "endpoints"
_KEY_HEADERS = ("x-rapidapi-key", "x-api-key", "authorization")
_LOCATIONS = {"optional": "query", "required": "query", "path": "path", "header": "header", "body": "body"}


def matches(path: Path, head: str) -> bool:
    """One JSON object with ``endpoints`` and ``servers``."""
    whole = {"endpoints", "servers"}.issubset(first_keys(head))
    return suffix_of(path) == ".json" and head.lstrip().startswith("{") and whole


def read(path: Path) -> Reading:
    """One ToolSpec per endpoint; lines are places in the list. Raises DataError if there is no ``endpoints`` list."""
    document = as_dict(read_json(path))
    endpoints = document.get("endpoints")
    if not isinstance(endpoints, list):
        raise DataError(f"{path}: 'endpoints' is missing or no list")
    reading = Reading(source=path.name, form=FORM, documents=1)
    service = _Service(document, stem_of(path).removesuffix("_rest"))
    for number, endpoint in enumerate(endpoints, start=1):
        reading.attempt(number, service.specs, endpoint)
    return reading


def _listed(endpoint: Any) -> list[dict[str, Any]]:
    fields = as_dict(endpoint)
    return [as_dict(entry) for key in ("parameters", "params") for entry in as_list(fields.get(key))]


class _Service:
    def __init__(self, document: dict[str, Any], name: str) -> None:
        self.name, self.notes = name, []
        self.description = first_paragraph(document.get("description"))
        address = as_text(as_dict(next(iter(as_list(document.get("servers"))), None)).get("url"))
        if address and "://" not in address:
            self.notes.append("server without scheme; https is taken")
            address = f"https://{address}"
        self.address = address.rstrip("/")
        key = next((header for header in as_dict(document.get("headers")) if header.lower() in _KEY_HEADERS), None)
        self.key = shown(key, 60) if key else ""
        listed = [entry for endpoint in as_list(document["endpoints"]) for entry in _listed(endpoint)]
        # "query" beside "optional" is how the weather, music and game files write "required"
        self.query_is_required = any(as_text(entry.get("in")).lower() == "optional" for entry in listed)

    def specs(self, endpoint: Any) -> list[ToolSpec]:
        """The one spec of an endpoint. Raises ToolDocError (``reason: detail``)."""
        if not isinstance(endpoint, dict):
            raise ToolDocError(f"endpoint is not an object: {shown(endpoint)}")
        notes = list(self.notes)
        server, path = self._address(as_text(endpoint.get("url")))
        parameters = with_path_variables(path, self._parameters(endpoint, notes), notes)
        body = []
        if endpoint.get("requestBody") is not None:
            body = body_parameters(as_dict(endpoint["requestBody"]), References(endpoint), notes)
        description = as_text(endpoint.get("description"), notes)
        response = self._response(endpoint, notes)
        if not description:
            notes.append("no description")
        if self.key:
            notes.append(f"{AUTH_NOTE} (header {self.key})")
        spec = ToolSpec(
            id=tool_id(self.name, self.name, endpoint.get("name")),
            tool_name=self.name,
            api_name=as_text(endpoint.get("name")),
            description=description,
            tool_description=self.description,
            method=as_text(endpoint.get("method")).upper()[:20] or "GET",
            server=server,
            path=path,
            parameters=(*parameters, *body),
            response=response,
            notes=tuple(notes),
        )
        return [spec]

    def _address(self, url: str) -> tuple[str, str]:
        """(server, path). One file has a sentence where a URL should be; such an endpoint cannot be called."""
        server, path = split_address(url)
        if not path and not server:
            raise ToolDocError(f"not an address: {shown(url)}")
        own, base = split_address(self.address) if self.address.startswith("http") else ("", "")
        if server in ("", own) and own and (path + "/").startswith(base + "/"):
            return self.address, path.removeprefix(base)
        return server or own, path

    def _parameters(self, endpoint: dict[str, Any], notes: list[str]) -> Iterable[ToolParameter]:
        out: dict[tuple[str, str], ToolParameter] = {}
        for entry in _listed(endpoint):
            name, place = as_text(entry.get("name")), as_text(entry.get("in")).lower()
            if not name:
                notes.append("parameter without name left out")
                continue
            parameter = self._parameter(name, place, entry, notes)
            if out.setdefault((name, parameter.location), parameter) is not parameter:
                notes.append(f"parameter {name[:60]!r} is listed twice; the first one counts")
        return out.values()

    def _parameter(self, name: str, place: str, entry: dict[str, Any], notes: list[str]) -> ToolParameter:
        required = place in ("required", "path") or is_true(entry.get("required"))
        if place == "query" and "required" not in entry and self.query_is_required:
            notes.append("query parameters beside optional ones are read as required")
            required = True
        schema = as_dict(entry.get("schema"))
        parameter = ToolParameter(
            name=name,
            location=_LOCATIONS.get(place, "query"),
            type=json_type(schema.get("type"), notes),
            required=required,
            description=as_text(entry.get("description"), notes) or as_text(schema.get("description"), notes),
            enum=tuple(plain(value) for value in as_list(schema.get("enum"))),
            default=plain(schema.get("default")),
            example=plain(schema.get("example")),
        )
        return without_key_value(parameter, notes)

    def _response(self, endpoint: dict[str, Any], notes: list[str]) -> Any:
        """A recorded payload, an OpenAPI response object, or a skeleton: a type template of whichever is there."""
        if isinstance(payload := endpoint.get("response"), dict | list):
            return template_of(payload)
        if isinstance(documented := endpoint.get("responses"), dict):
            return response_template(documented, References(endpoint), notes)
        shapes = (template_of_words(endpoint.get(key), notes) for key in ("response_shape", "_responses_json"))
        return next((shape for shape in shapes if shape is not None), None)
