"""Builds a tokenizer and a randomly initialised Qwen2-type model small enough to learn on one CPU core in a minute.

What makes it work (measured, docs/log.md): ``initializer_range`` 0.08 instead of 0.02, and constant text of the chat
template and of the call format as single tokens. The added tokens are not special, so the rendered text stays byte
for byte that of the Qwen2.5 template, and decoding keeps it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autotools.schema import ToolId
from autotools.search.answer import NameIndex, parse_tool_list
from autotools.search.prompt import GLOBAL_SEARCH_TOOL, SEARCH_TOOL, answer_text, call_text, prompt_messages

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

END, START, PAD = "<|im_end|>", "<|im_start|>", "<|endoftext|>"
_WORD = re.compile(r" ?[^\W\d_]+-?")
_PROBE = "\ue000"  # private-use character: no template or JSON escape touches it


@dataclass(frozen=True, kw_only=True)
class TinyConfig:
    """Config section ``tiny``: used when ``model`` is ``tiny``."""

    hidden_size: int = field(default=96, metadata={"help": "width; 4 heads"})
    intermediate_size: int = field(default=192, metadata={"help": "width of the feed-forward layers"})
    num_layers: int = field(default=2, metadata={"help": "transformer layers"})
    num_heads: int = field(default=4, metadata={"help": "attention heads"})
    initializer_range: float = field(default=0.08, metadata={"help": "0.02 does not leave the plateau on this size"})
    max_words: int = field(default=1000, metadata={"help": "most frequent words that become single tokens"})
    max_names: int = field(
        default=-1, metadata={"help": "tool names whose parts become tokens, most often answered first; -1: all"}
    )
    max_position_embeddings: int = field(default=4096, metadata={"help": "longest context in tokens"})
    curriculum_prompts: bool = field(
        default=False, metadata={"help": "constant text of the curriculum's two prompts as single tokens, too"}
    )

    def __post_init__(self) -> None:
        least = {"num_layers": 1, "num_heads": 1, "intermediate_size": 1, "max_words": 0, "max_position_embeddings": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be {low} or more, got {getattr(self, name)}")
        step = 2 * self.num_heads  # rotary embeddings turn pairs
        if self.hidden_size < step or self.hidden_size % step:
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of 2 x num_heads = {step}: each head needs an even "
                "width"
            )
        if not self.initializer_range > 0:
            raise ValueError(f"initializer_range must be above 0, got {self.initializer_range}")


def qwen_template() -> str:
    """The Qwen2.5 chat template as TRL ships it (TRL compares templates by equality to know how to parse turns)."""
    from trl.chat_template_utils import qwen2_5_chat_template

    return qwen2_5_chat_template


def tool_id_pieces(ids: Iterable[str]) -> list[str]:
    """``Travel.hotel_desk`` and ``.price_now`` for each ``Travel.hotel_desk.price_now``: shared parts stay shared.

    The dot stays with the API name, so that a name like ``find`` does not cut the word in ordinary text.
    """
    pieces: dict[str, None] = {}
    for text in ids:
        head, _, api = text.rpartition(".")
        pieces[head] = None
        pieces[f".{api}"] = None
    return list(pieces)


def answered_names(texts: Iterable[str], ids: Sequence[ToolId], limit: int) -> list[ToolId]:
    """All ``ids`` for a negative ``limit``, else those that the answers among ``texts`` name most often.

    A corpus of 16 thousand tools would make a vocabulary that is nearly all names, most of them never trained.
    """
    if limit < 0:
        return list(ids)
    index = NameIndex(ids)
    answers = (parse_tool_list(text, index) for text in texts)
    counts = Counter(tool for answer in answers if answer for tool in answer[0])
    return sorted(counts, key=lambda tool: (-counts[tool], str(tool)))[:limit]


def template_constants(tokenizer: Any, curriculum_prompts: bool = False) -> list[str]:
    """Text that every conversation repeats: what stands between special tokens and our probe in rendered chats.

    With ``curriculum_prompts`` also that of the prompt that lists categories, and of the tool without categories. A
    tiny model cannot read such a prompt otherwise: a thousand tokens of single bytes instead of a dozen.
    """
    turns = [{"role": "assistant", "content": _PROBE}, {"role": "tool", "name": "search", "content": _PROBE}]
    forms = [(prompt_messages(_PROBE), SEARCH_TOOL)]
    if curriculum_prompts:
        forms += [(prompt_messages(_PROBE, [_PROBE]), SEARCH_TOOL), (prompt_messages(_PROBE), GLOBAL_SEARCH_TOOL)]
    chats = [
        tokenizer.apply_chat_template([*start, *turns], tools=[tool], add_generation_prompt=True, tokenize=False)
        for start, tool in forms
    ]
    calls = [call_text(_PROBE), *([call_text(_PROBE, _PROBE)] if curriculum_prompts else [])]
    text = END.join([*chats, *calls, answer_text([_PROBE, _PROBE])])
    pieces = re.split("|".join(map(re.escape, (START, END, _PROBE))), text)
    return longest_first({p for p in pieces if len(p) > 2})


def longest_first(texts: Iterable[str]) -> list[str]:
    """By length, then by text: a set has another order in each process, and token ids decide the first weights."""
    return sorted(texts, key=lambda text: (-len(text), text))


def frequent_words(texts: Iterable[str], limit: int) -> list[str]:
    """The ``limit`` most frequent words of ``texts``, each with the blank before it where it has one."""
    counts = Counter(word for text in texts for word in _WORD.findall(text))
    ranked = sorted((word for word in counts if len(word) > 1), key=lambda word: (-counts[word], word))
    return ranked[:limit]


def build_tokenizer(texts: Sequence[str], constants: Sequence[str], config: TinyConfig) -> "PreTrainedTokenizerBase":
    """Byte alphabet plus whole words of ``texts``, ``constants`` and the template's own constants as single tokens.

    No learned merges: those would add hundreds of word fragments that only make the output layer slower. Any text
    still encodes, byte by byte, and decodes to itself.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([PAD, START, END, *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([PAD, START, END])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=END, pad_token=PAD, padding_side="left", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = qwen_template()
    added = [
        *template_constants(tokenizer, config.curriculum_prompts),
        *constants,
        *frequent_words(texts, config.max_words),
    ]
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in dict.fromkeys(added)])
    return tokenizer


def build_model(tokenizer: "PreTrainedTokenizerBase", config: TinyConfig, seed: int) -> "PreTrainedModel":
    """Randomly initialised Qwen2 model for ``tokenizer``; same seed, same weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_heads,
            max_position_embeddings=config.max_position_embeddings,
            initializer_range=config.initializer_range,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
