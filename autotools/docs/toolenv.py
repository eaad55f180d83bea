"""Reader of ToolBench's crawled tools: one function per API in ``api.py``, documents beside or in the same row.

Two forms: rows of JSON lines (``category``, ``tool``, ``api_docs``, ``api_py``, ``response_example``), and a file
``tools/<Category>/<tool>/api.py`` with ``tools/<Category>/<tool>.json`` and
``response_examples/<Category>/<tool>.json`` where those exist. The functions call the network: their text is read,
never run.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from autotools.docs import AUTH_NOTE, rapidapi
from autotools.docs.corpus import object_specs
from autotools.docs.files import first_keys, json_lines, parse_json, suffix_of, text_of
from autotools.docs.python_source import Argument, SourceFunction, source_functions, without_parameter
from autotools.docs.reading import (
    Reading,
    as_dict,
    as_list,
    as_text,
    json_type,
    path_variables,
    split_address,
    template_of_words,
    tool_id,
    with_path_variables,
    without_key_value,
)
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolParameter, ToolSpec, standardise

FORM = "toolenv"
CODE_ONLY_NOTE = "no API document; read from the function"
CUT_NOTE = "response is cut JSON and left out"  # of templates.py
KEY_ARGUMENT = "toolbench_rapidapi_key"

_RESERVED = ("from", "class", "return", "false", "true", "id", "and")  # ToolBench puts is_ before these
_KEY_IN_CODE = re.compile(
    r"(API_?KEY|TOKEN|SECRET)_?PLACEHOLDER|[?&](api_?key|api_?token|access_?token|key|token|secret)=[\w-]{8,}", re.I
)


class FunctionPair(NamedTuple):
    """An API and the function that calls it; ``source`` is None where ``reason`` says why."""

    spec: ToolSpec
    source: str | None
    reason: str


_Api = tuple[ToolSpec, SourceFunction | None, str]


@dataclass(frozen=True, kw_only=True)
class _Tool:
    line: int
    category: str
    tool: str
    documents: Reading
    source: str
    examples: dict[str, tuple[str, Any]]  # function name -> API name, skeleton of the response


def matches(path: Path, head: str) -> bool:
    """Packed rows, or an ``api.py`` of the crawl."""
    if path.name == "api.py":
        return KEY_ARGUMENT in head
    return suffix_of(path) == ".jsonl" and {"category", "tool", "api_docs"} <= set(first_keys(head))


def read(path: Path) -> Reading:
    """One ToolSpec per function and per document without one; the document comes first, the code adds the address.

    APIs without a document have CODE_ONLY_NOTE. ``documents`` counts tools. Raises DataError if the file is unreadable.
    """
    reading = Reading(source=path.name, form=FORM)
    deque(_apis(path, reading), maxlen=0)
    return reading


def read_functions(path: Path) -> Iterator[FunctionPair]:
    """The APIs that ``read`` keeps, in its order, each with its function, stripped of the key that the crawl used.

    No source: there is no function of that name, its URL uses a name that it does not have, or a key stands in it.
    """
    for spec, function, absent in _apis(path, Reading(source=path.name, form=FORM)):
        yield FunctionPair(spec, *(_stripped(function) if function else (None, absent)))


def function_name(name: str) -> str:
    """Name of an API or parameter as ToolBench's code writes it: ``Id`` -> ``is_id``."""
    standard = standardise(name)
    return f"is_{standard}" if standard in _RESERVED else standard


def _apis(path: Path, reading: Reading) -> Iterator[_Api]:
    """What was kept in ``reading``, each with its function, or None and the reason."""
    if path.name == "api.py":
        yield from _read_tool(_of_folder(path), reading)
        return
    for line, text in json_lines(path):
        try:
            tool = _of_row(line, text)
        except ToolDocError as error:
            reason, _, detail = str(error).partition(": ")
            reading.reject(line, reason, detail)
            continue
        yield from _read_tool(tool, reading)


def _of_row(line: int, text: str) -> _Tool:
    row = as_dict(parse_json(text))
    parts = PurePosixPath(as_text(row.get("path"))).parts
    category = as_text(row.get("category")) or (parts[-3] if len(parts) > 2 else "")
    tool = as_text(row.get("tool")) or (parts[-2] if len(parts) > 2 else "")
    if not category or not standardise(tool) or not isinstance(row.get("api_py"), str):
        raise ToolDocError("not a crawled tool: 'category', 'tool' and the text 'api_py' are needed")
    documents = Reading(source="api_docs", form=FORM)
    for document in as_list(row.get("api_docs")):
        documents.attempt(line, object_specs, document)
    return _Tool(
        line=line, category=category, tool=tool, documents=documents, source=row["api_py"],
        examples=_examples(row.get("response_example")),
    )  # fmt: skip


def _of_folder(path: Path) -> _Tool:
    folder = path.resolve().parent
    category, tool = folder.parent.name, folder.name
    if not category or not standardise(tool):
        raise DataError(f"{path}: not a crawled tool; it must lie in a folder CATEGORY/TOOL")
    documents = Reading(source=f"{tool}.json", form=FORM)
    beside = folder.with_name(f"{tool}.json")
    if beside.is_file():
        try:
            documents = rapidapi.read_document(parse_json(text_of(beside)), category, source=beside.name)
        except ToolDocError as error:  # a broken or fetched-by-pointer document does not cost the functions
            documents.reject(1, f"document {beside.name!r} cannot be read", error)
    recorded = folder.parents[2] / "response_examples" / category / f"{tool}.json"
    try:
        examples = _examples(parse_json(text_of(recorded))) if recorded.is_file() else {}
    except ToolDocError:  # empty files are common
        examples = {}
    return _Tool(
        line=1, category=category, tool=tool, documents=documents, source=text_of(path), examples=examples,
    )  # fmt: skip


def _examples(recorded: Any) -> dict[str, tuple[str, Any]]:
    entries = [as_dict(entry) for entry in as_list(as_dict(recorded).get("api_list"))]
    return {function_name(as_text(e.get("name"))): (as_text(e.get("name")), e.get("schema")) for e in entries}


def _read_tool(tool: _Tool, reading: Reading) -> Iterator[_Api]:
    reading.documents += 1
    reading.repeated += tool.documents.repeated
    for row in tool.documents.rejects:
        reading.reject(tool.line, row["reason"], row["detail"])
    try:
        functions, problem = list(source_functions(tool.source)), ""
    except ToolDocError as error:
        functions, problem = [], str(error)
    if not functions and not tool.documents.specs and not tool.documents.rejects:
        reason, _, detail = (problem or "no function in the source").partition(": ")
        reading.reject(tool.line, reason, f"{tool.category}/{tool.tool}: {detail}")
        return
    by_name: dict[str, list[SourceFunction]] = {}
    for function in functions:
        by_name.setdefault(function.name, []).append(function)
    absent = problem.partition(": ")[0] or "no function of that name"
    for spec in tool.documents.specs:
        named = by_name.pop(function_name(spec.id.api), [])
        function = next((f for f in named if f.description == spec.description), named[0] if named else None)
        yield from _kept(reading, tool, function, absent, _documented, spec)
        _reject_others(reading, tool, named)
    for named in by_name.values():
        yield from _kept(reading, tool, named[0], "", _from_function)
        _reject_others(reading, tool, named)


def _reject_others(reading: Reading, tool: _Tool, named: list[SourceFunction]) -> None:
    for function in named[1:]:
        reading.reject(tool.line, "two functions of one name, one was read", function.name)


def _kept(
    reading: Reading, tool: _Tool, function: SourceFunction | None, absent: str, make: Any, *args: Any
) -> Iterator[_Api]:
    before = len(reading.specs)
    reading.attempt(tool.line, make, tool, function, *args)
    if len(reading.specs) > before:
        yield reading.specs[-1], function, absent


def _documented(tool: _Tool, function: SourceFunction | None, spec: ToolSpec) -> list[ToolSpec]:
    """The document, with address and places of parameters from the code."""
    notes, changes = list(spec.notes), {}
    if not function:
        notes.append("no function of this API in api.py")
    else:
        given = {function_name(p.name): p.name for p in spec.parameters}
        wanted = [a.name for a in function.arguments if a.name != KEY_ARGUMENT]
        for name in (name for name in given if name not in wanted):
            notes.append(f"its function lacks the parameter {given[name]!r}")
        for name in (name for name in wanted if name not in given):
            notes.append(f"its function has a parameter {name!r} that the document lacks")
        server, path = _address(function, given, notes)
        if not spec.path:  # the packed documents have none, those of whole tool files do
            parameters = _placed(path, spec.parameters, notes)
            changes = {"server": server, "path": path, "parameters": parameters}
        notes += _key_notes(function)
    if spec.response is None and (example := tool.examples.get(function_name(spec.id.api))):
        changes["response"] = template_of_words(example[1], notes)
        notes = [note for note in notes if note != CUT_NOTE] + ["response of the recorded example"]
    return [spec.model_copy(update=changes | {"notes": tuple(notes)})]


def _from_function(tool: _Tool, function: SourceFunction) -> list[ToolSpec]:
    notes = [CODE_ONLY_NOTE]
    api, skeleton = tool.examples.get(function.name, (_without_is(function.name), None))
    names = {a.name: function.query.get(a.name) or _without_is(a.name) for a in function.arguments}
    for variable in path_variables(function.url):  # {startDate} of an argument startdate
        if (name := function_name(variable)) in names and name not in function.query:
            names[name] = _without_is(variable)
    server, path = _address(function, names, notes)
    listed = [_parameter(a, names[a.name], function, notes) for a in function.arguments if a.name != KEY_ARGUMENT]
    title = next((spec.tool_name for spec in tool.documents.specs), tool.tool)
    notes += [] if function.description else ["no description"]
    notes += _key_notes(function)
    spec = ToolSpec(
        id=tool_id(tool.category, title, api),
        tool_name=title,
        api_name=api,
        description=as_text(function.description, notes),
        server=server,
        path=path,
        parameters=_placed(path, listed, notes),
        response=template_of_words(skeleton, notes),
        notes=tuple(notes),
    )
    return [spec]


def _parameter(argument: Argument, name: str, function: SourceFunction, notes: list[str]) -> ToolParameter:
    parameter = ToolParameter(
        name=as_text(name),
        type=json_type(argument.type, notes),
        required=argument.required,
        description=as_text(function.texts.get(argument.name), notes),
        default=argument.default,
    )
    return without_key_value(parameter, notes)


def _without_is(name: str) -> str:
    bare = name.removeprefix("is_")
    return bare if bare in _RESERVED else name


def _address(function: SourceFunction, names: dict[str, str], notes: list[str]) -> tuple[str, str]:
    """(server, path) of the function's URL, arguments by their documented names."""

    def renamed(found: re.Match[str]) -> str:
        return "{" + names.get(found[1], names.get(function_name(found[1]), found[1])) + "}"

    try:
        return split_address(re.sub(r"\{(\w+)\}", renamed, function.url))
    except ToolDocError as error:
        notes.append(f"url left out: '{str(error)[:80]}'")
        return "", ""


def _placed(path: str, parameters: Any, notes: list[str]) -> tuple[ToolParameter, ...]:
    in_path = path_variables(path)
    moved = (
        p.model_copy(update={"location": "path", "required": True}) if p.name in in_path else p for p in parameters
    )
    return with_path_variables(path, moved, notes)


def _key_notes(function: SourceFunction) -> list[str]:
    needed = any(argument.name == KEY_ARGUMENT for argument in function.arguments)
    return [f"{AUTH_NOTE} (header X-RapidAPI-Key)"] if needed else []


def _stripped(function: SourceFunction) -> tuple[str | None, str]:
    """The function's text without the key, or None and the reason."""
    names = {argument.name for argument in function.arguments}
    if unknown := [name for name in path_variables(function.url) if name not in names]:
        return None, f"its URL uses {unknown[0]!r}, which the function does not have"
    source = without_parameter(function.text, KEY_ARGUMENT)
    if source is None:
        return None, "the key of the crawl cannot be taken out"
    values = (ToolParameter(name=a.name, default=a.default) for a in function.arguments if a.name != KEY_ARGUMENT)
    if _KEY_IN_CODE.search(source) or any(without_key_value(p, []) != p for p in values):
        return None, "a key stands in its code"
    return source, ""
