"""The one place that turns messages and tools into token ids and masks.

A conversation is tokenised piece by piece: prompt, assistant turn, what stands between two turns. The pieces are the
same in SFT (known turns), RL (sampled turns) and evaluation, so the model meets the same ids everywhere, and the ids
it sampled are never re-tokenised. Templates that take the thinking out of earlier turns (Qwen3) work, too: here a turn
stays as it was when it was the newest one. Options of the template (``enable_thinking``) must be the same everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autotools.errors import DataError

_MARK = "\ue000probe"  # a private-use character: nothing else that is rendered holds it
_PROBE = [{"role": "user", "content": "probe"}, {"role": "assistant", "content": _MARK}]


@dataclass(kw_only=True, slots=True)
class TokenizedTrajectory:
    """``token_ids``: whole conversation; ``completion_mask``: True where the assistant wrote (end-of-turn included).

    ``spans``: ``(start, end)`` of each assistant turn in ``token_ids``, in order; True exactly inside them.
    """

    token_ids: list[int]
    completion_mask: list[bool]
    spans: list[tuple[int, int]]


class ChatRenderer:
    """Renders with a Hugging Face tokenizer's own chat template."""

    def __init__(self, tokenizer: Any, template_options: dict[str, Any] | None = None):
        self.tokenizer = tokenizer
        self._options = template_options or {}
        self.end_of_turn = tokenizer.eos_token
        self.end_id = tokenizer.eos_token_id
        self._between = lru_cache(maxsize=4096)(self._between_uncached)

    def _text(self, messages: Sequence[dict[str, Any]], tools: Any = None, generate: bool = False) -> str:
        return self.tokenizer.apply_chat_template(
            list(messages), tools=tools, add_generation_prompt=generate, tokenize=False, **self._options
        )

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def prompt_ids(self, messages: Sequence[dict[str, Any]], tools: Any = None) -> list[int]:
        """Ids up to and including the generation prompt."""
        return self._ids(self._text(messages, tools, generate=True))

    def between_ids(self, observation: str, name: str = "search") -> list[int]:
        """Ids that stand between an assistant turn's end-of-turn token and the next assistant turn."""
        return list(self._between(observation, name))

    def _between_uncached(self, observation: str, name: str) -> tuple[int, ...]:
        return tuple(self._ids(self._after_turn([{"role": "tool", "name": name, "content": observation}])))

    def _after_turn(self, messages: Sequence[dict[str, Any]]) -> str:
        """Text from the end of an assistant turn to the next one's begin, where ``messages`` stand between the two.

        Raises DataError for a template that does not show an assistant turn with its end-of-turn token.
        """
        if not self.end_of_turn:
            raise DataError("this tokenizer names no end-of-turn token (eos_token in tokenizer_config.json)")
        full = self._text([*_PROBE, *messages], generate=True)
        end = _MARK + self.end_of_turn
        if end not in full:
            raise DataError(f"this chat template does not end an assistant turn with {self.end_of_turn!r}")
        return full.partition(end)[2]

    def turn_text(self, ids: Sequence[int]) -> tuple[str, bool]:
        """Text of a sampled turn without its end-of-turn token, and whether that token was there."""
        skip = {self.end_id, self.tokenizer.pad_token_id}
        text = self.tokenizer.decode([i for i in ids if i not in skip], skip_special_tokens=False)
        return text, self.end_id in ids

    def encode(self, messages: Sequence[dict[str, Any]], tools: Any = None) -> TokenizedTrajectory:
        """Ids and mask of a known conversation.

        Raises DataError if there is no assistant message, or if a turn does not begin as the generation prompt does.
        """
        ids: list[int] = []
        mask: list[bool] = []
        spans: list[tuple[int, int]] = []
        last = None
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self._text(messages[:i], tools, generate=True)
            after = self._text(messages[: i + 1], tools)
            end = after.find(self.end_of_turn, len(before))
            if not after.startswith(before) or end < 0:
                raise DataError(f"this chat template does not begin message {i} as its generation prompt does")
            gap = before if last is None else self._after_turn(messages[last + 1 : i])
            for text, is_turn in ((gap, False), (after[len(before) : end + len(self.end_of_turn)], True)):
                piece = self._ids(text)
                if is_turn:
                    spans.append((len(ids), len(ids) + len(piece)))
                ids += piece
                mask += [is_turn] * len(piece)
            last = i
        if not spans:
            raise DataError("a conversation without an assistant message has nothing to learn")
        return TokenizedTrajectory(token_ids=ids, completion_mask=mask, spans=spans)
