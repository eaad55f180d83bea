"""The third documentation form: one free Markdown page per tool, each as another author would write it.

Same declarations as the OpenAPI and RapidAPI forms. What varies is drawn per page from the world's seed: the order of
things, tables or bullets, inline code or a curl example, one list of parameters or one per location. Like the other
forms, a page never holds an API key or a record.
"""

import json
import random
import shlex
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from autotools.docs.markdown_blocks import escape
from autotools.schema import ToolParameter
from toolworld.catalog import Domain, Operation, Resource
from toolworld.documents import KEY_HEADER, tool_host

_LOCATION_TITLES = {"path": "Path parameters", "query": "Query parameters", "header": "Headers", "body": "Request body"}
_ERRORS = {"401": "the API key is missing or wrong", "404": "there is no such id", "422": "a value is not allowed"}


@dataclass(frozen=True)
class _Style:
    """How one author writes."""

    listing: str  # "table", "bullets" or "grouped" (a table per location)
    title: str  # "code", "plain" or "words" (``price now``)
    request: str  # "code", "bold", "fence" or "endpoint"
    labels: str  # "headings" or "bold"
    description_first: bool
    fenced_example: bool
    error_table: bool

    @classmethod
    def draw(cls, rng: random.Random) -> "_Style":
        return cls(
            listing=rng.choice(("table", "bullets", "grouped")),
            title=rng.choice(("code", "plain", "words")),
            request=rng.choice(("code", "bold", "fence", "endpoint")),
            labels=rng.choice(("headings", "bold")),
            description_first=rng.random() < 0.5,
            fenced_example=rng.random() < 0.5,
            error_table=rng.random() < 0.5,
        )


def markdown_documents(world: Any) -> dict[str, str]:
    """One page per resource: relative path ``Category/tool.md`` -> text. The same world gives the same pages."""
    sections: dict[str, list[str]] = {}
    for domain, resource, operation in world.tools():
        path = f"{domain.category}/{resource.tool}.md"
        style = _Style.draw(random.Random(f"{world.seed}:{path}"))
        if path not in sections:
            sections[path] = _opening(domain, resource, style)
        sections[path] += _operation(domain, resource, operation, style)
    return {path: "\n\n".join(parts) + "\n" for path, parts in sections.items()}


def _opening(domain: Domain, resource: Resource, style: _Style) -> list[str]:
    title = escape(resource.display_name)
    parts = [f"# {title}" if style.title != "words" else f"{title}\n{'=' * len(title)}", escape(resource.description)]
    parts.append(f"Base URL: <https://{tool_host(resource)}>")
    if domain.api_key:
        key = f"Every call needs your API key in the header `{KEY_HEADER}`."
        parts += ["## Authentication", key] if style.labels == "headings" else [key]
    elif style.description_first:
        parts.append("No API key is needed.")
    return parts


def _operation(domain: Domain, resource: Resource, operation: Operation, style: _Style) -> list[str]:
    title = {"code": f"`{operation.api}`", "plain": escape(operation.api), "words": operation.api.replace("_", " ")}
    told = [_request(operation, style), escape(operation.description)]
    parts = [f"## {title[style.title]}", *(told[::-1] if style.description_first else told)]
    parts += _parameters(operation.parameters, style)
    parts += _example(domain, resource, operation, style)
    if operation.response:
        parts += [_label("Response", style), f"```json\n{json.dumps(operation.response, indent=2)}\n```"]
    return parts + _errors(domain, style)


def _label(text: str, style: _Style) -> str:
    return f"### {text}" if style.labels == "headings" else f"**{text}**"


def _request(operation: Operation, style: _Style) -> str:
    request = f"{operation.method} {operation.path}"
    return {
        "code": f"`{request}`",
        "bold": f"**{operation.method}** `{operation.path}`",
        "fence": f"```http\n{request} HTTP/1.1\n```",
        "endpoint": f"Endpoint: `{request}`",
    }[style.request]


# --- parameters ---------------------------------------------------------------------------------------------------


def _parameters(parameters: tuple[ToolParameter, ...], style: _Style) -> list[str]:
    if not parameters:
        return []
    if style.listing == "bullets":
        return [_label("Parameters", style), "\n".join(_bullet(p) for p in parameters)]
    if style.listing == "table":
        head = ("Name", "In", "Type", "Required", "Description")
        rows = [(f"`{p.name}`", p.location, p.type, "yes" if _required(p) else "no", _meaning(p)) for p in parameters]
        return [_label("Parameters", style), _table(head, rows)]
    parts = []
    for location, title in _LOCATION_TITLES.items():
        if here := [p for p in parameters if p.location == location]:
            rows = [(f"`{p.name}`", p.type, _meaning(p), "required" if _required(p) else "optional") for p in here]
            parts += [_label(title, style), _table(("Field", "Type", "Meaning", "Needed"), rows)]
    return parts


def _required(parameter: ToolParameter) -> bool:
    return parameter.required or parameter.location == "path"


def _bullet(p: ToolParameter) -> str:
    attributes = f"{p.type}, {p.location}, {'required' if _required(p) else 'optional'}"
    return f"- `{p.name}` ({attributes}): {_meaning(p)}"


def _meaning(p: ToolParameter) -> str:
    """The description, then what values there are: ``how many; default: `3`; example: `5` ``."""
    parts = [escape(p.description)] if p.description else []
    if p.enum:
        parts.append("one of " + ", ".join(f"`{_text(value)}`" for value in p.enum))
    if p.default is not None:
        parts.append(f"default: `{_text(p.default)}`")
    if p.example is not None:
        parts.append(f"example: `{_text(p.example)}`")
    return "; ".join(parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# --- example and errors -------------------------------------------------------------------------------------------


def _example(domain: Domain, resource: Resource, operation: Operation, style: _Style) -> list[str]:
    values = {p.name: p.example if p.example is not None else p.default for p in operation.parameters}
    place = {p.name: p.location for p in operation.parameters}
    path = operation.path
    for name, value in values.items():
        path = path.replace("{" + name + "}", quote(_text(value), safe=""))
    query = urlencode({n: _text(v) for n, v in values.items() if place[n] == "query" and v is not None})
    url = f"https://{tool_host(resource)}{path}" + (f"?{query}" if query else "")
    words = ["curl", "-X", operation.method, url]
    headers = {n: _text(v) for n, v in values.items() if place[n] == "header"}
    for name, value in (headers | ({KEY_HEADER: "YOUR_KEY"} if domain.api_key else {})).items():
        words += ["-H", f"{name}: {value}"]
    if body := {n: v for n, v in values.items() if place[n] == "body"}:
        words += ["-d", json.dumps(body)]
    if style.fenced_example:
        return [_label("Example", style), f"```bash\n{shlex.join(words)}\n```"]
    return [_label("Example", style), f"Try `{shlex.join(words)}` in a shell."]


def _errors(domain: Domain, style: _Style) -> list[str]:
    errors = {status: why for status, why in _ERRORS.items() if status != "401" or domain.api_key}
    if style.error_table:
        return [_label("Errors", style), _table(("Status", "Meaning"), [(s, why) for s, why in errors.items()])]
    return [_label("Errors", style), "\n".join(f"- `{status}`: {why}" for status, why in errors.items())]
