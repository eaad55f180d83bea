"""What a record must satisfy before a model is trained on it, and the books about what did not.

A filter returns None (good) or ``(reason, detail)``: the reason is counted in the manifest, the detail is for people.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotools.encapsulate import python_name
from autotools.errors import DataError
from autotools.schema import Task, ToolId

Problem = tuple[str, str]


@dataclass(kw_only=True)
class Ledger:
    """Counts per stage what was read, kept and rejected; ``rejects`` becomes ``rejected.jsonl``."""

    read: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    rejects: list[dict[str, Any]] = field(default_factory=list)

    def keep(self, stage: str) -> None:
        """One item of ``stage`` was read and is good."""
        self.read[stage] += 1
        self.kept[stage] += 1

    def reject(self, stage: str, source: str, line: int | str, problem: Problem) -> None:
        """One item of ``stage`` was read and is not used; ``line`` is a line number or, for made items, an id."""
        self.read[stage] += 1
        reason, detail = problem
        self.rejects.append({"stage": stage, "source": source, "line": line, "reason": reason, "detail": detail})

    def counts(self) -> dict[str, Any]:
        """Manifest entry. Raises DataError if kept + rejected is not what was read (an accounting fault of ours)."""
        by_stage: Counter[str] = Counter(row["stage"] for row in self.rejects)
        for stage, read in self.read.items():
            if self.kept[stage] + by_stage[stage] != read:
                raise DataError(f"stage {stage}: kept {self.kept[stage]} + rejected {by_stage[stage]} != read {read}")
        reasons = Counter(f"{row['stage']}: {row['reason']}" for row in self.rejects)
        return {
            "read": dict(sorted(self.read.items())),
            "kept": dict(sorted(self.kept.items())),
            "rejected": dict(sorted(reasons.items())),
        }


def task_problem(task: Task, corpus: Iterable[ToolId] | set[ToolId]) -> Problem | None:
    """A task needs a request, at least one target, unique targets, and every target in the corpus."""
    known = corpus if isinstance(corpus, set) else set(corpus)
    if not task.query.strip():
        return "empty query", task.id
    if not task.targets:
        return "no targets", task.id
    if len(set(task.targets)) != len(task.targets):
        return "repeated target", ", ".join(map(str, task.targets))
    missing = [str(target) for target in task.targets if target not in known]
    return ("target not in corpus", ", ".join(missing)) if missing else None


def source_problem(source: str, name: str) -> Problem | None:
    """A function source must parse and define ``name`` at top level."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return "source does not parse", f"{name}: line {error.lineno}: {error.msg}"
    if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
        return "function not defined", name
    return None


def program_problem(task: Task, names: Mapping[ToolId, str], parameters: Mapping[str, set[str]]) -> Problem | None:
    """A program must parse, call exactly its targets' functions with documented arguments, and finish.

    ``names`` maps tools to function names, ``parameters`` function names to their parameter names. Literal arguments
    must be those of the annotated calls (the paper drops programs whose parameters differ from the solution).
    """
    if not task.program:
        return "no program", task.id
    unverified = [str(target) for target in task.targets if target not in names]
    if unverified:
        return "target without verified function", f"{task.id}: {', '.join(unverified)}"
    try:
        tree = ast.parse(task.program)
    except SyntaxError as error:
        return "program does not parse", f"{task.id}: line {error.lineno}: {error.msg}"
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    if not any(call.func.id == "finish" for call in calls):
        return "program never finishes", task.id
    library = [call for call in calls if call.func.id in parameters]
    called, wanted = {call.func.id for call in library}, {names[target] for target in task.targets}
    if called != wanted:
        return "calls differ from targets", f"{task.id}: calls {sorted(called)}, targets {sorted(wanted)}"
    return next((found for call in library if (found := _call_problem(task, call, names, parameters))), None)


def _call_problem(
    task: Task, call: ast.Call, names: Mapping[ToolId, str], parameters: Mapping[str, set[str]]
) -> Problem | None:
    name = call.func.id
    annotated = [
        {
            python_name(key): value for key, value in known.arguments.items()
        }  # documents name arguments, code spells them
        for known in task.calls
        if names.get(known.tool) == name
    ]
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg not in parameters[name]:
            return "undocumented argument", f"{task.id}: {name}({keyword.arg})"
        if annotated and isinstance(keyword.value, ast.Constant):
            allowed = [arguments.get(keyword.arg) for arguments in annotated]
            if keyword.value.value not in allowed:
                return "argument differs from solution", f"{task.id}: {name}({keyword.arg}={keyword.value.value!r})"
    return None


def message_problem(messages: list[dict[str, Any]]) -> Problem | None:
    """A chat record needs a user turn and ends with a non-empty assistant turn; no message is blank."""
    if not messages or messages[-1]["role"] != "assistant":
        return "no assistant turn at the end", f"{len(messages)} messages"
    if not any(message["role"] == "user" for message in messages):
        return "no user turn", f"{len(messages)} messages"
    blank = [i for i, message in enumerate(messages) if not message.get("content", "").strip()]
    return ("blank message", f"message {blank[0]}") if blank else None
