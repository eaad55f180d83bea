"""Shared nouns of the whole project: what is read from files or the network, as frozen pydantic models.

One file, so that a field never means two things. In-process batches (tensors, spans) live beside their users.
"""

import re
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from autotools.errors import ToolIdError

_NOT_NAME = re.compile(r"[^A-Za-z0-9_一-龥^]")


def standardise(name: str) -> str:
    """Standard form of a tool or API name (rule of ToolBench: keep letters, digits, ``_``, CJK; lower case).

    Every other character becomes ``_``, runs of ``_`` collapse, the ends are stripped, and a leading digit
    gets the prefix ``get_``.
    """
    text = re.sub(r"_+", "_", _NOT_NAME.sub("_", name)).lower().strip("_")
    return f"get_{text}" if text[:1].isdigit() else text


class _Noun(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolId(_Noun):
    """The only key of a tool: raw category + standardised tool name + standardised API name.

    ``str(tool_id)`` is ``category.tool.api``; it is shown to the model and accepted from it.
    """

    category: str
    tool: str
    api: str

    def __str__(self) -> str:
        return f"{self.category}.{self.tool}.{self.api}"

    def __lt__(self, other: "ToolId") -> bool:
        return str(self) < str(other)

    def __eq__(self, other: object) -> bool:
        # As pydantic's, and several times as fast: each search of RL compares its hits with the targets.
        if other.__class__ is not ToolId:
            return NotImplemented
        return self.api == other.api and self.tool == other.tool and self.category == other.category

    @classmethod
    def make(cls, category: str, tool_name: str, api_name: str) -> "ToolId":
        """Build an id from display names; the category is kept as it is, the names are standardised."""
        return cls(category=category, tool=standardise(tool_name), api=standardise(api_name))

    @classmethod
    def parse(cls, text: str) -> "ToolId":
        """Read ``category.tool.api``. Raises ToolIdError naming the text if it has not three non-empty parts."""
        parts = text.strip().rsplit(".", 2)
        if len(parts) != 3 or not all(parts):
            raise ToolIdError(f"not a tool id: {text!r}; expected 'category.tool.api'")
        return cls(category=parts[0], tool=parts[1], api=parts[2])


class ToolParameter(_Noun):
    """One input of a tool. ``type`` is a JSON-schema type name; ``location`` is where HTTP carries it."""

    name: str
    location: Literal["path", "query", "header", "body"] = "query"
    type: str = "string"
    required: bool = False
    description: str = ""
    enum: tuple[Any, ...] = ()
    default: Any = None
    example: Any = None


class ToolSpec(_Noun):
    """One documented tool as data. ``response`` is a type template (``{"price": "number"}``), never a payload."""

    id: ToolId
    tool_name: str
    api_name: str
    description: str = ""
    tool_description: str = ""
    method: str = "GET"
    server: str = ""
    path: str = ""
    parameters: tuple[ToolParameter, ...] = ()
    response: Any = None
    notes: tuple[str, ...] = ()


class Hit(_Noun):
    """One search result. ``document`` is the text shown for it; ``id`` travels beside, never parsed back."""

    id: ToolId
    score: float
    document: str = ""


class ToolCall(_Noun):
    """A call with concrete arguments. An argument value ``"$k.path"`` refers to the k-th earlier call's result."""

    tool: ToolId
    arguments: dict[str, Any] = Field(default_factory=dict)


class Task(_Noun):
    """A user request with its known solution. ``targets`` are unique and in calling order.

    ``level`` is ``I1`` (one tool), ``I2`` (several, one category), ``I3`` (several categories) or another suite's
    group name. ``program`` and ``answer`` are None where the suite has none.
    """

    id: str
    suite: str
    split: str
    level: str
    query: str
    targets: tuple[ToolId, ...]
    calls: tuple[ToolCall, ...] = ()
    program: str | None = None
    answer: Any = None
    template: str = ""
    meta: dict[str, Any] = Field(default_factory=dict)


class Message(_Noun):
    """One chat message; ``tool_calls`` are OpenAI-style dicts ``{"type": "function", "function": {...}}``."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    name: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain dict for chat templates; empty optional fields are left out."""
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            out["tool_calls"] = [dict(call) for call in self.tool_calls]
        if self.name is not None:
            out["name"] = self.name
        return out


class EventKind(StrEnum):
    """What an assistant turn was. Everything but SEARCH and ANSWER is a fault of the policy, told back to it."""

    SEARCH = "search"
    ANSWER = "answer"
    EMPTY_ANSWER = "empty_answer"  # neither a call nor a tool list: ends the trajectory without a selection
    MALFORMED_CALL = "malformed_call"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    UNKNOWN_CATEGORY = "unknown_category"
    OVER_LIMIT = "over_limit"  # a call on the last turn, or one whose observation no budget was left for
    TRUNCATED = "truncated"  # the turn was cut before it ended


class StopReason(StrEnum):
    """Why a trajectory ended."""

    ANSWERED = "answered"
    EMPTY_ANSWER = "empty_answer"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TRUNCATED_TURN = "truncated_turn"
    SEARCH_FAILED = "search_failed"  # our fault, not the policy's: the rollout is dropped from training


class Event(_Noun):
    """One assistant turn plus its observation: the unit of credit."""

    kind: EventKind
    text: str
    query: str | None = None
    category: str | None = None
    hits: tuple[ToolId, ...] = ()
    observation: str | None = None
    extra_calls: int = 0


class Trajectory(_Noun):
    """The ordered record of one rollout. ``selection`` is None when the policy never answered.

    ``selection`` holds the ids it named that exist in the corpus; ``unknown_names`` the ones that do not.
    """

    task_id: str
    query: str
    targets: tuple[ToolId, ...]
    events: tuple[Event, ...]
    selection: tuple[ToolId, ...] | None = None
    unknown_names: tuple[str, ...] = ()
    stop_reason: StopReason
    level: str = ""
    meta: dict[str, Any] = Field(default_factory=dict)

    def first_found(self) -> list[list[ToolId]]:
        """Per event, the targets that this event is the first of the trajectory to show (order of ``targets``)."""
        return [[self.targets[i] for i in new] for new in self.first_found_at()]

    def first_found_at(self) -> list[list[int]]:
        """``first_found`` as positions in ``targets``; of a target that stands there twice, the first position.

        In RL this runs over all hits of all rollouts, so texts are compared first: few hits are targets.
        """
        unseen: dict[str, list[int]] = {}
        for position, target in enumerate(self.targets):
            unseen.setdefault(target.api, []).append(position)
        out = []
        for event in self.events:
            new = []
            for hit in event.hits:
                if hit.api in unseen:
                    same = [i for i in unseen[hit.api] if self.targets[i] == hit]
                    new += same[:1]
                    unseen[hit.api] = [i for i in unseen[hit.api] if i not in same]
            out.append(sorted(new) if len(new) > 1 else new)
        return out

    def found(self) -> set[ToolId]:
        """Targets that any search of the trajectory has shown."""
        return {t for event in self.events for t in event.hits} & set(self.targets)


class VerifiedFunction(_Noun):
    """A Python function made from one tool document, and what its verification showed.

    ``verified`` means: called in a child process with fresh arguments, and the value equalled the service's record.
    """

    tool: ToolId
    name: str
    source: str
    verified: bool = False
    checks: int = 0
    reason: str = ""
