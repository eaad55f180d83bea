"""What the text of Python functions says about the service that they call: by ``ast``; never imported, never run."""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from autotools.docs.reading import clean, plain
from autotools.errors import ToolDocError


@dataclass(frozen=True, kw_only=True)
class Argument:
    """``type`` is the annotation as text; ``default`` counts only where ``required`` is False."""

    name: str
    type: str
    required: bool
    default: Any = None


@dataclass(frozen=True, kw_only=True)
class SourceFunction:
    """``url`` is the template assigned to ``url``, arguments in braces; ``query`` maps an argument to its key.

    ``description`` and ``texts`` (argument -> text) come from the docstring; ``text`` is the function itself.
    """

    name: str
    arguments: tuple[Argument, ...]
    description: str
    texts: dict[str, str]
    url: str
    query: dict[str, str]
    text: str


def parse(source: str) -> ast.Module:
    """Syntax tree. Raises ToolDocError (``source does not parse: ...``)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in text that is not ours
            return ast.parse(source)
    except SyntaxError as error:
        raise ToolDocError(f"source does not parse: {error.msg} (line {error.lineno})") from error
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes, lone surrogates, deep nesting
        raise ToolDocError(f"source does not parse: {error}") from error


def literal(node: ast.AST | None) -> Any:
    """Value of a literal as JSON can hold it; None where there is none or it is no literal."""
    if node is None:
        return None
    try:
        return plain(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def literal_text(text: str) -> Any:
    """Value of the text of a literal (``['a', 'b']``), else None."""
    try:
        return literal(parse(text.strip()).body[0].value)  # type: ignore[attr-defined]
    except (ToolDocError, IndexError, AttributeError):  # broken, empty, a statement
        return None


def assigned(body: Iterable[ast.stmt]) -> dict[str, ast.expr]:
    """Name -> value expression of the plain assignments of a body; the last one counts."""
    out = {}
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            out[statement.targets[0].id] = statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            out[statement.target.id] = statement.value
    return out


def source_functions(source: str) -> Iterator[SourceFunction]:
    """The functions at the top level, in order. Raises ToolDocError if the source does not parse."""
    lines = re.split(r"\r\n|\r|\n", source)
    for node in parse(source).body:
        if isinstance(node, ast.FunctionDef):
            listed = tuple(arguments(node))
            names = [argument.name for argument in listed]
            description, texts = docstring_parts(ast.get_docstring(node, clean=False) or "", names)
            url = _url_template(assigned(node.body).get("url"))
            yield SourceFunction(
                name=node.name, arguments=listed, description=description, texts=texts,
                url=url, query=_query(node), text="\n".join(lines[node.lineno - 1 : node.end_lineno]),
            )  # fmt: skip


def docstring_parts(text: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Description and text per name of ToolBench's docstrings; names are matched without a leading ``is_``.

    The description stands in quotes, its further lines begin with two tabs. Then one ``name: text`` per parameter,
    indented by four or eight blanks; further lines of a text are not indented so. Parameters without text are missing.
    """
    by_text = {name.removeprefix("is_"): name for name in names} | {name: name for name in names}
    if not by_text:
        return _unquoted(text), {}
    words = "|".join(map(re.escape, sorted(by_text, key=len, reverse=True)))
    parts = re.split(rf"^ {{4,8}}({words}): ", text, flags=re.M)
    texts = {by_text[name]: " ".join(words.split()) for name, words in zip(parts[1::2], parts[2::2], strict=True)}
    return _unquoted(parts[0]), texts


def without_parameter(text: str, name: str) -> str | None:
    """A function's text without one parameter and the dict entries that hold it; None if it is used elsewhere, too.

    Formatting is that of ``ast.unparse``: comments are gone.
    """
    try:
        node = parse(text).body[0]
        if not isinstance(node, ast.FunctionDef):
            return None
        _drop_argument(node.args, name)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Dict):
                pairs = zip(inner.keys, inner.values, strict=True)
                kept = [(key, value) for key, value in pairs if not (isinstance(value, ast.Name) and value.id == name)]
                inner.keys, inner.values = [key for key, _ in kept], [value for _, value in kept]
        out = clean(ast.unparse(node))
        used = name in out and any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))
        return None if used else out
    except (ToolDocError, IndexError, RecursionError):
        return None


def _drop_argument(given: ast.arguments, name: str) -> None:
    positional = [*given.posonlyargs, *given.args]
    first_default = len(positional) - len(given.defaults)
    given.defaults = [
        default
        for argument, default in zip(positional[first_default:], given.defaults, strict=True)
        if argument.arg != name
    ]
    given.posonlyargs = [a for a in given.posonlyargs if a.arg != name]
    given.args = [a for a in given.args if a.arg != name]
    kept = [(a, default) for a, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if a.arg != name]
    given.kwonlyargs, given.kw_defaults = [a for a, _ in kept], [default for _, default in kept]


def arguments(node: ast.FunctionDef) -> Iterator[Argument]:
    """Named arguments of a function in order (no ``*args``, ``**more``)."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    padding: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    defaults = [*padding, *given.defaults, *given.kw_defaults]
    for argument, default in zip([*positional, *given.kwonlyargs], defaults, strict=True):
        yield Argument(
            name=argument.arg,
            type=_annotation(argument.annotation),
            required=default is None,
            default=literal(default),
        )


def _annotation(node: ast.expr | None) -> str:
    """As text, without ``Optional[...]``."""
    try:
        text = ast.unparse(node).strip("'\"") if node else ""
    except RecursionError:
        return ""
    found = re.fullmatch(r"(?:typing\.)?Optional\[(.*)\]", text, re.S)
    return found[1] if found else text


def _url_template(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
            parts.append("{" + part.value.id + "}")
    return "".join(parts)


def _query(node: ast.FunctionDef) -> dict[str, str]:
    """Argument -> key of ``querystring = {'key': argument}`` and ``querystring['key'] = argument``."""
    out = {}
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Assign):
            continue
        target = inner.targets[0]
        pairs: list[tuple[Any, Any]] = []
        if isinstance(target, ast.Name) and target.id == "querystring" and isinstance(inner.value, ast.Dict):
            pairs = list(zip(inner.value.keys, inner.value.values, strict=True))
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            pairs = [(target.slice, inner.value)] if target.value.id == "querystring" else []
        for key, value in pairs:
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(value, ast.Name):
                out.setdefault(value.id, key.value)
    return out


def _unquoted(text: str) -> str:
    """Text in quotes, further lines without their two tabs."""
    text = re.sub(r"^\t\t", "", text.strip(), flags=re.M)
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] == '"' else text.strip('"').strip()
