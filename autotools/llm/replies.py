"""What an OpenAI-compatible endpoint says and is told, against the text of a turn that the search episode reads.

A reply's calls are written out in the one textual form of a call, so that they pass the same rules as sampled text: a
second call in a turn, arguments that are no JSON or an unknown tool are observations, never errors of ours.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotools.search.episode import Episode
from autotools.search.observation import ONE_CALL_NOTE

OPEN, CLOSE = "<tool_call>", "</tool_call>"
CHARS_PER_TOKEN = 16  # more than the text of any budget that a server kept to
MALFORMED = "malformed_arguments"  # servers refuse a history whose arguments are no JSON object


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call as the endpoint gave it; ``arguments`` is text that should be a JSON object, and need not be."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One assistant turn. ``finished`` is False if the length limit cut it; token counts are None where not told."""

    content: str
    calls: tuple[Call, ...] = ()
    finished: bool = True
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def read_reply(answer: Any) -> Reply:
    """The first choice of a chat completion. Raises ValueError if this is none, or a filter cut it."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise ValueError(f"no chat completion: {_shown(answer)}")
    reason = choice.get("finish_reason")
    if reason == "content_filter":
        raise ValueError("the endpoint's content filter cut the answer")
    raw_calls = message.get("tool_calls") or ([{"function": message["function_call"]}] if _legacy(message) else [])
    if not isinstance(raw_calls, list):
        raise ValueError(f"tool_calls is no list: {_shown(raw_calls)}")
    usage = answer.get("usage") if isinstance(answer.get("usage"), dict) else {}
    return Reply(
        content=_encodable(_content(message)),
        calls=tuple(_call(raw, number) for number, raw in enumerate(raw_calls)),
        finished=reason != "length",
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def turn_text(reply: Reply) -> str:
    """The turn as text: the content, then each call as ``<tool_call>`` block with its arguments as an object.

    Arguments that are no JSON object stay the text they are. Markup inside a call is escaped: it cannot end the block.
    """
    parts = [reply.content] if reply.content.strip() else []
    for call in reply.calls:
        arguments = _object(call.arguments)
        value = {"name": call.name, "arguments": call.arguments if arguments is None else arguments}
        body = _encodable(json.dumps(value, ensure_ascii=False)).replace("<", "\\u003c")
        parts.append(f"{OPEN}\n{body}\n{CLOSE}")
    return "\n".join(parts)


def within(reply: Reply, tokens: int) -> Reply:
    """The reply of a server that ignored the limit, cut as sampling here would have been; any other as it is."""
    limit = CHARS_PER_TOKEN * tokens
    if len(reply.content) + sum(len(call.name) + len(call.arguments) for call in reply.calls) <= limit:
        return reply
    return replace(reply, content=turn_text(reply)[:limit], calls=(), finished=False)


@dataclass(kw_only=True)
class Conversation:
    """The messages of one episode as the endpoint is told them. ``used``: tokens after the prompt so far.

    Tokens are those that the endpoint reports; where it reports none, a quarter of the bytes is taken for them.
    """

    episode: Episode
    messages: list[dict[str, Any]]
    used: int = 0
    _prompt_tokens: int | None = field(default=None, repr=False)

    @classmethod
    def of(cls, episode: Episode) -> "Conversation":
        return cls(episode=episode, messages=[dict(message) for message in episode.messages])

    def body(self) -> dict[str, Any]:
        """The request for the next turn; the model's name is the endpoint's business. Greedy."""
        tools = {"tools": self.episode.tools} if self.episode.tools else {}  # servers refuse an empty list
        return {"messages": self.messages, **tools, "temperature": 0, "max_tokens": self._room()}

    def _room(self) -> int:
        """Tokens that the next turn may have."""
        settings = self.episode.settings
        return max(1, min(settings.turn_tokens, settings.total_tokens - self.used))

    def take(self, reply: Reply) -> None:
        """Step the episode with a reply, and remember the turn as the endpoint wants to be reminded of it."""
        reply = within(reply, self._room())
        text = turn_text(reply)
        if reply.prompt_tokens is not None and reply.completion_tokens is not None:
            self._prompt_tokens = reply.prompt_tokens if self._prompt_tokens is None else self._prompt_tokens
            self.used = reply.prompt_tokens - self._prompt_tokens + reply.completion_tokens
        else:
            self.used += guessed_tokens(text)
        self.messages.append(_remembered(reply, number=len(self.messages)))
        self.episode.step(text, reply.finished)

    def show(self) -> bool:
        """Show the pending observation; False (and the episode ends) if the token budget has no room for it."""
        observation = self.episode.observation or ""
        cost = guessed_tokens(observation)
        if self.used + cost + 2 > self.episode.settings.total_tokens:  # as in search.rollout: room for a shortest turn
            self.episode.refuse()
            return False
        self.used += cost
        for number, call in enumerate(self.messages[-1]["tool_calls"]):
            text = ONE_CALL_NOTE if number else observation
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        self.episode.accept()
        return True


def guessed_tokens(text: str) -> int:
    """A quarter of the bytes, rounded up: what English text needs with the vocabularies of today's models."""
    return -(-len(text.encode("utf-8")) // 4)


def _remembered(reply: Reply, number: int) -> dict[str, Any]:
    """An assistant message whose calls are JSON, whatever the model wrote: else the next request would be refused."""
    content, calls = reply.content, reply.calls
    thinking, mark, body = content.rpartition("</think>")
    if not calls and OPEN in body:  # a server without a tool parser: the call stands in the text
        said, _, rest = body.partition(OPEN)
        content = thinking + mark + said
        calls = tuple(_textual(block) for block in rest.split(OPEN))
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [_told(call, f"call_{number}_{i}") for i, call in enumerate(calls)]
    return message


def _told(call: Call, spare_id: str) -> dict[str, Any]:
    arguments = call.arguments
    if _object(arguments) is None:
        arguments = json.dumps({MALFORMED: arguments}, ensure_ascii=False)
    function = {"name": call.name or "search", "arguments": arguments}
    return {"id": call.id or spare_id, "type": "function", "function": function}


def _textual(block: str) -> Call:
    body = block.partition(CLOSE)[0].strip()
    value = _object(body) or {}
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str) or arguments is None:
        return Call(id="", name="", arguments=body)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Call(id="", name=name, arguments=text)


def _call(raw: Any, number: int) -> Call:
    function = raw.get("function") if isinstance(raw, dict) else None
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some servers send the object itself
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    name = function.get("name")
    given = raw.get("id") if isinstance(raw, dict) else None
    return Call(
        id=given if isinstance(given, str) else "",
        name=_encodable(name) if isinstance(name, str) else "",
        arguments=_encodable(arguments),
    )


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts: Sequence[Any] = content if isinstance(content, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    refusal = message.get("refusal")
    return "".join(text for text in texts if isinstance(text, str)) or (refusal if isinstance(refusal, str) else "")


def _legacy(message: dict[str, Any]) -> bool:
    return isinstance(message.get("function_call"), dict)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _shown(value: Any) -> str:
    return repr(value)[:200]
