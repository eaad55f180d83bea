"""Decide which functions are verified: called in the child process, and the value equals the world's record.

A function is never verified by its looks, by the absence of an exception, or by a single lucky constant: every
case of its tool must give the recorded value, each in a session of its own, so that writes do not meet.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from autotools.encapsulate import python_name, signature_problems
from autotools.program import ProgramRunner
from autotools.schema import ToolId, ToolSpec, VerifiedFunction

# Numbers, not random names: the request log of a build must be the same bytes for the same seed.
_RUNS = itertools.count()


class Case(NamedTuple):
    """One check of a tool: arguments by documented name, and the value that the world's records say comes back."""

    arguments: dict[str, Any]
    expected: Any


def verify(
    functions: Sequence[VerifiedFunction],
    cases: Mapping[ToolId, Sequence[Case | tuple[dict[str, Any], Any]]],
    runner: ProgramRunner,
    specs: Sequence[ToolSpec] = (),
    session: str | None = None,
) -> list[VerifiedFunction]:
    """The same functions, in order, with ``verified``, ``checks`` (cases that held) and ``reason`` filled in.

    ``cases`` must come from the records, not from the service. With ``specs``, a function is also compared with its
    document, and the value with the documented response template. ``session`` starts the names of the server
    sessions; None makes one that no earlier run of this process had, whose writes would be met again. Give one if
    the server's log must be the same from run to run, or if several processes share a server. Raises SandboxError if
    the tool server or the child fails (a failure of ours is not a verdict on the function).
    """
    documents = {spec.id: spec for spec in specs}
    session = session or f"verify-{next(_RUNS)}"
    return [_verify_one(f, cases.get(f.tool, ()), runner, documents, session) for f in functions]


def _verify_one(
    function: VerifiedFunction,
    cases: Sequence[Any],
    runner: ProgramRunner,
    documents: Mapping[ToolId, ToolSpec],
    session: str,
) -> VerifiedFunction:
    checks = 0
    reason = function.reason if not function.source else ""
    spec = documents.get(function.tool)
    if not reason and documents:
        problems = signature_problems(function.source, spec) if spec else ["the tool has no document"]
        reason = "; ".join(problems)
    if not reason and not cases:
        reason = "no case to check it with"
    for number, (arguments, expected) in enumerate(cases if not reason else ()):
        reason = _check(function, dict(arguments), expected, f"{session}-{function.name}-{number}", runner, spec)
        if reason:
            break
        checks += 1
    return function.model_copy(update={"verified": not reason, "checks": checks, "reason": reason})


def _check(
    function: VerifiedFunction,
    arguments: dict[str, Any],
    expected: Any,
    session: str,
    runner: ProgramRunner,
    spec: ToolSpec | None,
) -> str:
    """Empty if the call gives the expected value, else what went wrong."""
    named = {python_name(name): value for name, value in arguments.items()}
    result = runner.call(function.name, named, session)
    if result.status == "died":  # a child killed from outside is not the function's fault; a deadly one dies again
        result = runner.call(function.name, named, f"{session}-again")
    if result.status != "ok":
        return f"call with {_short(arguments)}: {result.status}: {result.error}"
    if difference := first_difference(json.loads(json.dumps(expected)), result.answer):
        return f"call with {_short(arguments)}: {difference}"
    if spec is not None and spec.response is not None:
        if mismatch := template_mismatch(spec.response, result.answer):
            return f"call with {_short(arguments)}: response is not as documented: {mismatch}"
    return ""


def first_difference(expected: Any, got: Any, where: str = "value") -> str:
    """First place where two JSON values differ, or empty. Numbers may differ by 1e-9 relative; bools are no numbers."""
    if isinstance(expected, bool) or isinstance(got, bool):
        same = expected is got
    elif isinstance(expected, (int, float)) and isinstance(got, (int, float)):
        same = math.isclose(expected, got, rel_tol=1e-9, abs_tol=1e-12)
    elif isinstance(expected, dict) and isinstance(got, dict):
        if set(expected) != set(got):
            return f"{where} has keys {sorted(got)}, the record has {sorted(expected)}"
        return next((d for k in expected if (d := first_difference(expected[k], got[k], f"{where}.{k}"))), "")
    elif isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            return f"{where} has {len(got)} items, the record has {len(expected)}"
        pairs = enumerate(zip(expected, got, strict=True))
        return next((d for i, (a, b) in pairs if (d := first_difference(a, b, f"{where}[{i}]"))), "")
    else:
        same = type(expected) is type(got) and expected == got
    return "" if same else f"{where} is {_short(got)}, the record says {_short(expected)}"


_PYTHON = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def template_mismatch(template: Any, value: Any, where: str = "value") -> str:
    """First place where a value does not fit a type template, or empty. Every documented field must be there."""
    if isinstance(template, dict):
        if not isinstance(value, dict):
            return f"{where} is no object"
        if missing := sorted(set(template) - set(value)):
            return f"{where} lacks {missing[0]!r}"
        return next((m for k in template if (m := template_mismatch(template[k], value[k], f"{where}.{k}"))), "")
    if isinstance(template, (list, tuple)):
        if not isinstance(value, list):
            return f"{where} is no list"
        if not template:
            return ""
        return next((m for i, v in enumerate(value) if (m := template_mismatch(template[0], v, f"{where}[{i}]"))), "")
    kinds = _PYTHON.get(template)
    if kinds is None or value is None:
        return ""
    fits = isinstance(value, kinds) and (template == "boolean" or not isinstance(value, bool))
    return "" if fits else f"{where} is {type(value).__name__}, documented as {template}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:197] + "..."
