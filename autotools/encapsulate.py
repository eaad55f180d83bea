"""Tool documents -> Python functions, deterministically and without a language model.

Every function only builds a request and hands it to ``_request``, which the runtime provides
(`autotools/program.py`); keys and hosts therefore never stand in a source. A finished source is parsed again with
`ast` and compared with the document: names, order, defaults, annotations, and where each value travels.
"""

import ast
import json
import keyword
import re
from collections.abc import Iterable, Sequence
from typing import Any

from autotools.docs import AUTH_NOTE
from autotools.errors import ToolDocError
from autotools.schema import ToolParameter, ToolSpec, VerifiedFunction

_PYTHON_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
}
_NOT_IDENTIFIER = re.compile(r"\W+", re.ASCII)
_VARIABLE = re.compile(r"\{([^{}]+)\}")
# Names that a function body needs, or that a program must still be able to reach.
_RESERVED = {"_request", "finish", "json", "ToolError"}


def python_name(name: str) -> str:
    """Python identifier for a documented name; valid identifiers stay as they are (``X-Units`` -> ``x_units``).

    Keywords get ToolBench's prefix ``is_``, leading digits ``get_``.
    """
    text = name
    if not (name.isidentifier() and name.isascii()):
        text = _NOT_IDENTIFIER.sub("_", name).strip("_").lower() or "value"
        text = f"get_{text}" if text[0].isdigit() else text
    return f"is_{text}" if keyword.iskeyword(text) or text in _RESERVED else text


def function_name(spec: ToolSpec) -> str:
    """Name under which programs call a tool: ``{tool}_{api}`` of its id, e.g. ``hotel_desk_price_now``."""
    return python_name(f"{spec.id.tool}_{spec.id.api}")


def ordered_parameters(spec: ToolSpec) -> list[tuple[str, ToolParameter]]:
    """(argument name, parameter) as they stand in the signature: required first, otherwise in document order.

    A name used in two locations gets the location as suffix the second time.
    """
    named: list[tuple[str, ToolParameter]] = []
    taken: set[str] = set()
    for parameter in sorted(spec.parameters, key=lambda p: not _required(p)):
        base = name = python_name(parameter.name)
        count = 1
        while name in taken:
            name = f"{base}_{parameter.location}" + (f"_{count}" if count > 1 else "")
            count += 1
        taken.add(name)
        named.append((name, parameter))
    return named


def encapsulate(specs: Sequence[ToolSpec]) -> list[VerifiedFunction]:
    """One function per document, in order, none of them verified yet.

    A document that cannot become a function (no path, unknown verb, source and document disagree) yields an entry
    with empty source and the reason. Raises ToolDocError if two tools would get the same function name.
    """
    functions, names = [], {}
    for spec in specs:
        name = function_name(spec)
        if name in names:
            raise ToolDocError(f"tools {names[name]} and {spec.id} both become function {name!r}; rename one of them")
        names[name] = spec.id
        problems = _document_problems(spec)
        source = "" if problems else function_source(spec)
        problems = problems or signature_problems(source, spec)
        reason = "; ".join(problems) or "not yet called"
        functions.append(VerifiedFunction(tool=spec.id, name=name, source="" if problems else source, reason=reason))
    return functions


def library_source(functions: Iterable[VerifiedFunction]) -> str:
    """One Python text with all functions that have a source, ready for `ProgramRunner`."""
    return "\n\n".join(function.source for function in functions if function.source)


def function_source(spec: ToolSpec) -> str:
    """Python text of one function: typed signature, docstring, one call of ``_request``."""
    named = ordered_parameters(spec)
    arguments = [
        f"{name}: {annotation(p)}" if _required(p) else f"{name}: {annotation(p)} | None = None" for name, p in named
    ]
    lines = [f"def {function_name(spec)}({', '.join(arguments)}) -> {_return_type(spec.response)}:"]
    lines += [f'    """{_docstring(spec, named)}"""']
    fields = [f"{spec.method.upper()!r}", f"{spec.path!r}"]
    for location in ("path", "query", "header", "body"):
        items = [f"{p.name!r}: {name}" for name, p in named if p.location == location]
        if items:
            fields.append(f"{location}={{{', '.join(items)}}}")
    if needs_key(spec):
        fields.append(f"auth={spec.id.category!r}")
    lines.append(f"    return _request({', '.join(fields)})")
    return "\n".join(lines) + "\n"


def annotation(parameter: ToolParameter) -> str:
    """Python type of a parameter; unknown document types become ``object``."""
    return _PYTHON_TYPES.get(parameter.type, "object")


def needs_key(spec: ToolSpec) -> bool:
    """Whether the document asks for an API key (the readers leave a note)."""
    return any(note.startswith(AUTH_NOTE) for note in spec.notes)


def signature_problems(source: str, spec: ToolSpec) -> list[str]:
    """Differences between a function's source and its document; empty if they agree.

    Looks only at the parsed source, never at how it was made, so that it also judges functions of other origin.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        return [f"source does not parse: {error}"]
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        return ["source must be exactly one function"]
    function = tree.body[0]
    found = function.args
    problems = [] if function.name == function_name(spec) else [f"function is named {function.name!r}"]
    if found.vararg or found.kwarg or found.kwonlyargs or found.posonlyargs:
        problems.append("only plain arguments are allowed")
    first_default = len(found.args) - len(found.defaults)
    types = [ast.unparse(a.annotation) if a.annotation else "" for a in found.args]
    got = [(a.arg, kind, i < first_default) for i, (a, kind) in enumerate(zip(found.args, types, strict=True))]
    want = []
    for name, p in ordered_parameters(spec):
        want.append((name, annotation(p) + ("" if _required(p) else " | None"), _required(p)))
    problems += [f"documented but not in the signature: {item}" for item in want if item not in got]
    problems += [f"in the signature but not documented: {item}" for item in got if item not in want]
    if not problems and got != want:
        problems.append("arguments are in another order than documented")
    if not ast.get_docstring(function):
        problems.append("no docstring")
    return problems + _transport_problems(function, spec)


def _transport_problems(function: ast.FunctionDef, spec: ToolSpec) -> list[str]:
    """Each documented parameter must travel in its own location, under its documented name, from its own argument."""
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    calls = [c for c in calls if c.func.id == "_request"]
    if len(calls) != 1:
        return [f"{len(calls)} calls of _request instead of 1"]
    target = [a.value if isinstance(a, ast.Constant) else None for a in calls[0].args]
    problems = [] if target == [spec.method.upper(), spec.path] else [f"requests {target}, not the documented route"]
    sent = set()
    for item in calls[0].keywords:
        if isinstance(item.value, ast.Dict):
            for key, value in zip(item.value.keys, item.value.values, strict=True):
                sent.add((item.arg, key.value if isinstance(key, ast.Constant) else None, ast.unparse(value)))
    wanted = {(p.location, p.name, name) for name, p in ordered_parameters(spec)}
    return problems + [f"travels wrongly or not at all: {item}" for item in sorted(sent ^ wanted, key=str)]


def _required(parameter: ToolParameter) -> bool:
    return parameter.required or parameter.location == "path"


def _document_problems(spec: ToolSpec) -> list[str]:
    problems = []
    if not spec.path.startswith("/") or spec.path.startswith("//"):
        problems.append(f"path {spec.path!r} does not start with one '/'")
    if spec.method.upper() not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        problems.append(f"unknown verb {spec.method!r}")
    variables = set(_VARIABLE.findall(spec.path))
    declared = {p.name for p in spec.parameters if p.location == "path"}
    problems += [f"path variable {name!r} is not documented" for name in sorted(variables - declared)]
    return problems + [f"path parameter {name!r} is not in {spec.path!r}" for name in sorted(declared - variables)]


def _return_type(response: Any) -> str:
    if isinstance(response, dict):
        return "dict"
    return "list" if isinstance(response, list) else "object"


def _docstring(spec: ToolSpec, named: list[tuple[str, ToolParameter]]) -> str:
    lines = [_plain(spec.description) or f"{_plain(spec.api_name)} of {_plain(spec.tool_name)}", ""]
    if named:
        lines.append("    Args:")
    for name, p in named:
        need = "required" if _required(p) else "optional"
        about = f"        {name} ({_plain(p.type)}, {need}): {_plain(p.description)}".rstrip()
        lines.append(about + (f" [one of: {', '.join(_plain(str(v)) for v in p.enum)}]" if p.enum else ""))
    shape = json.dumps(spec.response, ensure_ascii=False) if spec.response is not None else "JSON value"
    lines += ["    Returns:", f"        {_plain(shape)}"]
    # Document text is foreign: it must not be able to end the string literal or escape out of it.
    return ("\n".join(lines) + "\n    ").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _plain(text: str) -> str:
    """One line of printable characters (a null byte, for one, makes a source unreadable to Python)."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
