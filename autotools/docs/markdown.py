"""Reader of free Markdown pages, one per tool, as people write them; what is guessed is written into the notes.

A section is an API if it names a request (``GET /path``) or lists parameters. Parameters stand in a table or a bullet
list, all together or under headings such as "Query parameters". Everything else on the page is prose.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.docs import AUTH_NOTE, with_unique_ids
from autotools.docs.files import stem_of, suffix_of, text_of
from autotools.docs.markdown_blocks import Block, blocks, code_spans, plain
from autotools.docs.markdown_parameters import Listed, is_parameter_table, listed_in_item, listed_in_table
from autotools.docs.reading import Reading, path_variables, with_path_variables
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolId, ToolParameter, ToolSpec, standardise

FORM = "markdown"
_REQUEST = re.compile(r"[*`\s]*(GET|POST|PUT|PATCH|DELETE)[*`\s:]+(https?://[^\s/`*]+)?(/[^\s`*?#]*)")
_BEFORE_REQUEST = re.compile(r"[*_\s]*(?:endpoint|request|route|url)[*_\s]*:[*_\s]*", re.I)
_CURL_VERB = re.compile(r"(?:-X|--request)[ =]?\s*['\"]?([A-Z]+)")
_CURL_URL = re.compile(r"(https?://[^\s/'\"]+)(/[^\s'\"?#]*)")
_LABELS = {  # what a heading or a bold line announces -> the part of a section that follows
    "parameters": "", "arguments": "", "inputs": "", "path parameters": "path", "query parameters": "query",
    "query": "query", "headers": "header", "header parameters": "header", "request headers": "header",
    "body": "body", "body parameters": "body", "body fields": "body", "request body": "body", "json body": "body",
}  # fmt: skip
_OTHER_LABELS = {
    "response": "response", "returns": "response", "response shape": "response", "result": "response",
    "example": "example", "example call": "example", "example request": "example", "errors": "errors",
    "error codes": "errors", "possible errors": "errors",
}  # fmt: skip
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_MAX_DEPTH = 12  # of a response template


@dataclass
class _Section:
    title: str
    text: list[str] = field(default_factory=list)  # raw paragraphs outside of labelled parts
    listed: list[Listed] = field(default_factory=list)
    request: tuple[str, str, str] | None = None  # verb, server, path
    says_parameters: bool = False
    curl: str = ""
    response: Any = None

    @property
    def is_api(self) -> bool:
        return bool(self.request or self.listed or self.says_parameters)


def matches(path: Path, head: str) -> bool:
    """A page with a heading that names a request or lists parameters somewhere (other pages are prose)."""
    if suffix_of(path) != ".md" or not re.search(r"^#", head, re.M):
        return False
    page = blocks(head)
    return any(_request(block.text) or (_label(block) or "").startswith("parameters:") for block in page)


def read(path: Path) -> Reading:
    """The APIs of one page; the folder is the category, the file's stem the tool. Raises DataError if it has none."""
    reading = Reading(source=path.name, form=FORM, documents=1)
    try:
        specs = read_markdown(text_of(path), path.resolve().parent.name, stem_of(path))
    except ToolDocError as error:
        raise DataError(f"{path}: {error}") from error
    for number, spec in enumerate(specs, start=1):
        reading.keep(number, spec)
    return reading


def read_markdown(text: str, category: str, tool: str = "") -> list[ToolSpec]:
    """One ToolSpec per API of a page, in page order; ``category`` is the folder that the page lies in.

    The first heading is the tool's display name; ``tool`` (e.g. the file name) makes the id, else that heading does.
    ``notes`` name what the page does not say and what was taken instead. Equal ids get ``_v2``, ``_v3``.
    Raises ToolDocError if there is no category, no heading, no API, or a name without a letter or digit.
    """
    if not category.strip():
        raise ToolDocError("Markdown page without category; pass the name of the folder that it lies in")
    page = blocks(text.encode("utf-8", "replace").decode("utf-8"))  # half surrogates are no text
    start = next((i for i, block in enumerate(page) if block.kind == "heading" and plain(block.text)), None)
    if start is None:
        raise ToolDocError(f"Markdown page (category {category!r}): no heading; the first one must name the tool")
    name = plain(page[start].text)
    intro, *sections = _sections(name, page[start + 1 :])
    apis = [section for section in sections if section.is_api]
    if not apis:
        raise ToolDocError(f"Markdown page {name!r} (category {category!r}): no section has a request or parameters")
    if not standardise(tool or name):
        raise ToolDocError(f"Markdown page {name!r} (category {category!r}): the name holds no letter or digit")
    general = [intro, *(section for section in sections if not section.is_api)]
    shared = {
        "tool_name": name,
        "tool_description": _description(intro),
        "server": next((url for s in general for t in s.text if (url := _base_url(t))), ""),
    }
    key = next((key for s in general for t in s.text if (key := _key_header(t))), "")
    return with_unique_ids(_spec(section, category, tool or name, shared, key) for section in apis)


def _sections(name: str, page: list[Block]) -> list[_Section]:
    """The page cut at headings that are no labels; the first section is what stands below the tool's name."""
    sections = [_Section(name)]
    part = ""  # "", "parameters:LOCATION", "response", "example", "errors"
    for block in page:
        label = _label(block)
        if label is not None:
            part = label
            sections[-1].says_parameters |= part.startswith("parameters:") and part != "parameters:header"
        elif block.kind == "heading":
            sections.append(_Section(_title(block.text)))
            sections[-1].request = _request(block.text)
            part = ""
        else:
            _add(sections[-1], block, part)
    return sections


def _label(block: Block) -> str | None:
    """The part that a heading or a line of its own announces; None if the block is content."""
    if block.kind not in ("heading", "paragraph") or len(block.text) > 60:
        return None
    words = plain(block.text).lower().strip(" .:")
    marked = block.kind == "heading" or block.text.rstrip("* ").endswith(":") or block.text.startswith(("**", "__"))
    if not marked:
        return None
    return f"parameters:{_LABELS[words]}" if words in _LABELS else _OTHER_LABELS.get(words)


def _title(text: str) -> str:
    """Name of an API in its heading: without the request that some authors put beside it."""
    found = _REQUEST.search(text)
    rest = plain(text[: found.start()] + text[found.end() :]).strip(" -–—:()") if found else plain(text)
    return rest or plain(text)


def _add(section: _Section, block: Block, part: str) -> None:
    if block.kind == "fence":
        _add_fence(section, block, part)
    elif block.kind == "table":
        if part in ("", "example") or part.startswith("parameters:"):
            if is_parameter_table(block.rows):
                section.listed += listed_in_table(block.rows, part.partition(":")[2])
    elif block.kind == "item" and (listed := _listed(block.text, part)):
        section.listed.append(listed)
    elif request := (_request(block.text) if part == "" else None):
        section.request = section.request or request
    elif part == "":
        section.text.append(block.text)
    elif part == "example" and "curl" in block.text:
        section.curl = section.curl or block.text


def _listed(text: str, part: str) -> Listed | None:
    if part == "" or part.startswith("parameters:"):
        return listed_in_item(text, part.partition(":")[2], sure=part.startswith("parameters:"))
    return None


def _add_fence(section: _Section, block: Block, part: str) -> None:
    content = block.text.strip()
    if request := _request(content.split("\n", 1)[0]):
        section.request = section.request or request
    elif content.startswith("curl") or "curl " in content[:200]:
        section.curl = section.curl or content
    elif part == "response" or (part in ("", "example") and section.response is None and content[:1] in "{["):
        try:
            section.response = _template(json.loads(content), 0)
        except (ValueError, RecursionError):
            pass  # not a JSON example: an author's sketch


def _request(text: str) -> tuple[str, str, str] | None:
    """``GET /path`` at the start of a line (also behind "Endpoint:") or alone in a code span."""
    before = _BEFORE_REQUEST.match(text)
    found = _REQUEST.match(text, before.end() if before else 0)
    if found is None:
        found = next((m for span in code_spans(text) if (m := _REQUEST.match(span))), None)
    if found is None:
        return None
    return found[1], found[2] or "", re.sub(r"/:(\w+)", r"/{\1}", found[3])  # /pets/:id is another way to write {id}


def _spec(section: _Section, category: str, tool: str, shared: dict[str, str], key: str) -> ToolSpec:
    if not standardise(section.title):
        raise ToolDocError(f"Markdown page {shared['tool_name']!r}: heading {section.title!r} holds no letter or digit")
    notes: list[str] = []
    verb, server, path = _request_or_guess(section, notes)
    parameters = _parameters(section, verb, path, notes)
    description = _description(section)
    if not description:
        notes.append("the page does not describe this API")
    if key := next((k for t in section.text if (k := _key_header(t))), key):
        notes.append(f"{AUTH_NOTE} ({key})")
    return ToolSpec(
        id=ToolId(category=category, tool=standardise(tool), api=standardise(section.title)),
        tool_name=shared["tool_name"],
        api_name=section.title,
        description=description,
        tool_description=shared["tool_description"],
        method=verb,
        server=server or shared["server"],
        path=path,
        parameters=tuple(parameters),
        response=section.response,
        notes=tuple(notes),
    )


def _request_or_guess(section: _Section, notes: list[str]) -> tuple[str, str, str]:
    if section.request:
        return section.request
    url, verb = _CURL_URL.search(section.curl), _CURL_VERB.search(section.curl)
    if url:
        notes.append("the request is taken from the example call; ids in its path may be those of the example")
        return verb[1] if verb else "GET", url[1], url[2]
    notes.append("the page names no request; GET and an empty path are guessed")
    return "GET", "", ""


def _parameters(section: _Section, verb: str, path: str, notes: list[str]) -> list[ToolParameter]:
    variables = path_variables(path)
    out: dict[tuple[str, str], ToolParameter] = {}
    for listed in section.listed:
        parameter = listed.parameter(verb, variables, notes)
        if (parameter.name, parameter.location) in out:
            notes.append(f"parameter {parameter.name!r} is listed twice; the first one counts")
            continue
        out[parameter.name, parameter.location] = parameter
    return list(with_path_variables(path, out.values(), notes))


def _description(section: _Section) -> str:
    """First paragraph that is neither an address nor about the API key."""
    texts = (t for t in section.text if not _base_url(t) and not re.search(r"api[ -]?key", t, re.I))
    return next((words for t in texts if (words := plain(t))), "")


def _base_url(text: str) -> str:
    found = re.search(r"(?:base url|server|host)\b[^h]{0,20}(https?://[^\s<>`*)]+)", text, re.I)
    return found[1].rstrip("/.") if found else ""


def _key_header(text: str) -> str:
    """``header X-Api-Key`` if the paragraph asks for an API key, else empty."""
    if not re.search(r"api[ -]?key", text, re.I) or re.search(r"\b(no|not|without)\b", text, re.I):
        return ""
    header = next((span for span in code_spans(text) if re.fullmatch(r"[\w-]*key[\w-]*", span, re.I)), "")
    return f"header {header}" if header else "how it is sent is not said"


def _template(value: Any, depth: int) -> Any:
    """Type template of a JSON example; type names stand for themselves."""
    if depth > _MAX_DEPTH:
        return "object"
    if isinstance(value, dict):
        return {str(k): _template(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_template(value[0], depth + 1)] if value else []
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "integer" if isinstance(value, int) else "number"
    return value if value in _TYPES else (None if value is None else "string")
