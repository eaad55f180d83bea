"""The one search episode that demonstrations, RL and evaluation share: a state machine over assistant turns.

An episode speaks text and ids of tools; tokens are the business of ``rollout.py``. One turn goes: ``step(text)``;
then, if ``request`` is set, the caller searches (all episodes of a turn in one batch) and hands the hits to
``observe``; then ``accept`` (the observation is shown) or ``refuse`` (no budget is left for it, so it never was).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotools.schema import Event, EventKind, Hit, StopReason, ToolId, Trajectory
from autotools.search.answer import NameIndex, parse_tool_list
from autotools.search.observation import ONE_CALL_NOTE, hits_text, unknown_category_text
from autotools.search.parser import ParsedTurn, parse_turn
from autotools.search.prompt import GLOBAL_SEARCH_TOOL, SEARCH_TOOL, prompt_messages

SearchBatch = Callable[[Sequence[str], Sequence[str | None], int], list[list[Hit]]]


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Config section ``search``: the same for every stage of a run."""

    top_k: int = field(default=5, metadata={"help": "hits per search"})
    max_turns: int = field(default=8, metadata={"help": "assistant turns per episode, the answer included"})
    turn_tokens: int = field(default=256, metadata={"help": "new tokens per assistant turn"})
    total_tokens: int = field(default=5000, metadata={"help": "tokens after the prompt, observations included"})
    document_chars: int = field(default=600, metadata={"help": "characters of each hit's document in an observation"})
    category_argument: bool = field(default=True, metadata={"help": "the search tool has the argument category"})
    offer_categories: bool = field(default=False, metadata={"help": "list the categories in the prompt"})

    def __post_init__(self) -> None:
        for name in ("top_k", "max_turns", "turn_tokens", "total_tokens", "document_chars"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        if self.offer_categories and not self.category_argument:
            raise ValueError("offer_categories needs category_argument: a search could not name what is offered")


class Episode:
    """One request being worked on. ``done`` once ``stop_reason`` is set.

    ``tools`` is what the chat template gets. ``enforce_category`` (training only, it looks at ``targets``): searches
    stay inside the targets' categories; ``enforced`` counts those that had to be moved there.
    """

    def __init__(
        self,
        request: str,
        names: NameIndex,
        settings: SearchSettings,
        *,
        task_id: str = "",
        targets: Sequence[ToolId] = (),
        level: str = "",
        meta: dict[str, Any] | None = None,
        enforce_category: bool = False,
    ):
        self.task_id, self.user_request, self.level = task_id, request, level
        self.targets = tuple(dict.fromkeys(targets))
        self.meta = meta or {}
        self.settings, self.names = settings, names
        self.enforce_category, self.enforced = enforce_category, 0
        self.tools: list[dict[str, Any]] | None = [SEARCH_TOOL if settings.category_argument else GLOBAL_SEARCH_TOOL]
        self.messages = prompt_messages(request, names.categories if settings.offer_categories else ())
        self.num_prompt_messages = len(self.messages)
        self.events: list[Event] = []
        self.selection: tuple[ToolId, ...] | None = None
        self.unknown_names: tuple[str, ...] = ()
        self.stop_reason: StopReason | None = None
        self.request: tuple[str, str | None] | None = None
        self.observation: str | None = None
        self._turn: ParsedTurn | None = None
        self._hits: tuple[ToolId, ...] = ()

    @property
    def done(self) -> bool:
        return self.stop_reason is not None

    def step(self, text: str, finished: bool = True) -> None:
        """Take the policy's next turn. ``finished`` is False if generation was cut before its end-of-turn token."""
        if self.done or self._turn is not None:
            raise RuntimeError("step() called on an episode that is done or waits for observe()")
        turn = parse_turn(text)
        self.messages.append({"role": "assistant", "content": text})
        if turn.kind is EventKind.ANSWER and (finished or "</tool_list>" in turn.text.rpartition("<tool_list>")[2]):
            self.selection, self.unknown_names = parse_tool_list(turn.text, self.names) or ((), ())
            self._end(turn, StopReason.ANSWERED)
        elif not finished:
            self._end(turn, StopReason.TRUNCATED_TURN, EventKind.TRUNCATED)
        elif turn.kind is EventKind.EMPTY_ANSWER:
            self._end(turn, StopReason.EMPTY_ANSWER)
        elif len(self.events) + 1 >= self.settings.max_turns:
            kind = EventKind.OVER_LIMIT if turn.kind is EventKind.SEARCH else turn.kind
            self._end(turn, StopReason.TURN_LIMIT, kind)
        else:
            self._await_observation(turn)

    def _await_observation(self, turn: ParsedTurn) -> None:
        if not self.settings.category_argument:  # an argument that the tool does not have is ignored
            turn = replace(turn, category=None)
        self._turn, self._hits = turn, ()
        if turn.kind is not EventKind.SEARCH:
            self.observation = f"Error: {turn.problem}"
        elif turn.category is not None and turn.category not in self.names.categories:
            self.observation = "Error: " + unknown_category_text(turn.category, self.names.categories)
            self._turn = replace(turn, kind=EventKind.UNKNOWN_CATEGORY)
        else:
            if self.enforce_category:
                self._turn = turn = replace(turn, category=self._category_inside(turn.category))
            self.request = (turn.query or "", turn.category)

    def _category_inside(self, chosen: str | None) -> str | None:
        """``chosen`` if a target has it; else the category of the first target that no search has shown yet.

        With targets of several categories the policy's choice among them counts; only a missing or wrong one is
        replaced. When all targets were shown, the first target's category is taken.
        """
        if not self.targets or any(target.category == chosen for target in self.targets):
            return chosen
        self.enforced += 1
        shown = {hit for event in self.events for hit in event.hits}
        return next((t for t in self.targets if t not in shown), self.targets[0]).category

    def observe(self, hits: Sequence[Hit]) -> None:
        """Take the result of ``request``."""
        if self.request is None or self._turn is None:
            raise RuntimeError("observe() called, but no search is awaited")
        note = ONE_CALL_NOTE if self._turn.extra_calls else ""
        self.observation = hits_text(hits, self.settings.document_chars, note)
        self._hits = tuple(hit.id for hit in hits)
        self.request = None

    def fail(self) -> None:
        """The search of ``request`` broke down: its hits are unknown, so the episode must not be learnt from."""
        if self.request is None or self._turn is None:
            raise RuntimeError("fail() called, but no search is awaited")
        self._end(self._turn, StopReason.SEARCH_FAILED)
        self._turn = self.request = None

    def accept(self) -> None:
        """The pending observation is shown to the policy; the next turn may come."""
        turn = self._pending()
        self._record(turn, turn.kind, self._hits, self.observation)
        self.messages.append({"role": "tool", "name": "search", "content": self.observation or ""})
        self._turn = self.observation = None

    def refuse(self) -> None:
        """The pending observation does not fit the token budget: it was never shown, and the episode ends."""
        self._end(self._pending(), StopReason.TOKEN_LIMIT, EventKind.OVER_LIMIT)
        self._turn = self.observation = None

    def _pending(self) -> ParsedTurn:
        if self._turn is None or self.request is not None:
            raise RuntimeError("no observation is pending")
        return self._turn

    def _end(self, turn: ParsedTurn, reason: StopReason, kind: EventKind | None = None) -> None:
        self._record(turn, kind or turn.kind, (), None)
        self.stop_reason = reason

    def _record(self, turn: ParsedTurn, kind: EventKind, hits: tuple[ToolId, ...], shown: str | None) -> None:
        self.events.append(
            Event(
                kind=kind,
                text=turn.text,
                query=turn.query,
                category=turn.category,
                hits=hits,
                observation=shown,
                extra_calls=turn.extra_calls,
            )
        )

    def play(self, text: str, search_batch: SearchBatch) -> None:
        """One whole turn for a single episode without a token budget (demonstrations, tests)."""
        self.step(text)
        if self.request is not None:
            query, category = self.request
            self.observe(search_batch([query], [category], self.settings.top_k)[0])
        if not self.done:
            self.accept()

    def trajectory(self) -> Trajectory:
        """The record of the finished episode. Raises RuntimeError while it still runs."""
        if self.stop_reason is None:
            raise RuntimeError(f"episode {self.task_id!r} is not finished")
        return Trajectory(
            task_id=self.task_id,
            query=self.user_request,
            targets=self.targets,
            events=tuple(self.events),
            selection=self.selection,
            unknown_names=self.unknown_names,
            stop_reason=self.stop_reason,
            level=self.level,
            meta=self.meta,
        )
