"""The tiny tokenizer writes what the Qwen2.5 template writes, and turns constant text into single tokens."""

import random
from pathlib import Path
from typing import Any

import pytest

from autotools.schema import ToolSpec
from autotools.search.prompt import (
    GLOBAL_SEARCH_TOOL,
    SEARCH_TOOL,
    SYSTEM_TEXT,
    answer_text,
    call_text,
    prompt_messages,
)
from training.tiny import (
    TinyConfig,
    answered_names,
    build_model,
    build_tokenizer,
    frequent_words,
    longest_first,
    qwen_template,
    template_constants,
    tool_id_pieces,
)

SMALL = TinyConfig(hidden_size=32, intermediate_size=64, num_layers=1, num_heads=2)


def ids(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "find a hotel by its name",
        "Hotel\t\n\n  two  blanks ",
        "Straße 中文 🙂 é\u2028\x00\ufffd",
        call_text('with "quotes" \\ é'),
        answer_text(["Travel.hotel_desk.find", "Unknown.tool.name"]),
        "<|im_start|>user\n<|im_end|><|endoftext|>",
        "<tool_call></tool_list>",
    ],
)
def test_any_text_comes_back(text: str, tiny_tokenizer: Any) -> None:
    assert tiny_tokenizer.decode(ids(tiny_tokenizer, text)) == text


def test_random_texts_come_back(tiny_tokenizer: Any) -> None:
    rng = random.Random(0)
    for _ in range(300):
        text = "".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(160, 0xD800)])) for _ in range(20))
        assert tiny_tokenizer.decode(ids(tiny_tokenizer, text)) == text


def test_template_is_qwens(tiny_tokenizer: Any) -> None:
    from trl.chat_template_utils import qwen2_5_chat_template

    assert tiny_tokenizer.chat_template == qwen2_5_chat_template == qwen_template()


def test_constants_are_single_tokens(tiny_tokenizer: Any, ten_tools: list[ToolSpec]) -> None:
    for text in ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "</tool_list>", "\n</tool_response>"):
        assert len(ids(tiny_tokenizer, text)) == 1, text
    for spec in ten_tools:
        assert len(ids(tiny_tokenizer, str(spec.id))) == 2, spec.id  # Travel.hotel_desk + .find
    messages = prompt_messages("hotel")
    prompt = tiny_tokenizer.apply_chat_template(
        messages, tools=[SEARCH_TOOL], add_generation_prompt=True, tokenize=False
    )
    assert SYSTEM_TEXT in prompt
    # start, system text, end, newline; start, "user\n", request, end, newline; start, "assistant\n"
    plain = len(ids(tiny_tokenizer, "hotel"))
    assert len(ids(tiny_tokenizer, prompt)) <= 11 + plain
    bare = len(ids(tiny_tokenizer, call_text("x"))) - len(ids(tiny_tokenizer, "x"))
    assert bare == 2  # what stands before and after the query


def test_curriculum_prompts_are_short_if_asked_for(ten_tools: list[ToolSpec], tiny_tokenizer: Any) -> None:
    """Per prompt the pieces of test_constants_are_single_tokens, plus three listed names and what stands between."""
    config = TinyConfig(curriculum_prompts=True)
    pieces = tool_id_pieces(str(spec.id) for spec in ten_tools)
    texts = [spec.description for spec in ten_tools] + ["Music Travel, Weather"]
    forms = build_tokenizer(texts, pieces, config)
    extra = set(forms.get_vocab()) - set(build_tokenizer(texts, pieces, TinyConfig()).get_vocab())
    assert len(extra) == 4  # text before the list, after it, tool without categories, call between query and category
    prompts = [
        (prompt_messages("hotel", ["Music", "Travel", "Weather"]), SEARCH_TOOL),
        (prompt_messages("hotel"), GLOBAL_SEARCH_TOOL),
        (prompt_messages("hotel"), SEARCH_TOOL),
    ]
    for messages, tool in prompts:
        keys = {"tools": [tool], "add_generation_prompt": True, "tokenize": False}
        prompt = forms.apply_chat_template(messages, **keys)
        assert prompt == tiny_tokenizer.apply_chat_template(messages, **keys)
        assert len(ids(forms, prompt)) <= 24
        assert forms.decode(ids(forms, prompt)) == prompt
    assert len(ids(forms, prompt)) == len(ids(tiny_tokenizer, prompt))


def test_markup_is_kept_by_decoding_without_special_tokens(tiny_tokenizer: Any) -> None:
    text = call_text("hotel") + answer_text(["a.b.c"])
    assert tiny_tokenizer.decode([*ids(tiny_tokenizer, text), tiny_tokenizer.eos_token_id], True) == text


def test_tool_id_pieces_share_their_parts() -> None:
    assert tool_id_pieces(["A.b.c", "A.b.d", "A.x.c"]) == ["A.b", ".c", ".d", "A.x"]


def test_frequent_words() -> None:
    texts = ["the cat and the dog", "the cat", "a-b 12"]
    # by count, then by letter; a blank before a word belongs to it; single letters and digits are no words
    assert frequent_words(texts, 100) == [" cat", "the", " and", " dog", " the", "a-"]
    assert frequent_words(texts, 2) == [" cat", "the"]
    assert frequent_words(texts, 0) == []
    assert frequent_words(texts, 100) == frequent_words(texts[::-1], 100)  # order of the texts does not matter


def test_same_texts_same_tokenizer(ten_tools: list[ToolSpec]) -> None:
    texts = [spec.description for spec in ten_tools]
    first, second = (build_tokenizer(texts, ["Travel.x"], SMALL) for _ in range(2))
    assert first.get_vocab() == second.get_vocab()


def test_same_seed_same_weights(tiny_tokenizer: Any) -> None:
    states = [build_model(tiny_tokenizer, SMALL, seed).state_dict() for seed in (3, 3, 4)]
    assert all((states[0][name] == states[1][name]).all() for name in states[0])
    assert any((states[0][name] != states[2][name]).any() for name in states[0])


def test_model_fits_its_tokenizer(tiny_tokenizer: Any) -> None:
    model = build_model(tiny_tokenizer, SMALL, 0)
    assert model.config.vocab_size == len(tiny_tokenizer)
    assert model.config.eos_token_id == tiny_tokenizer.eos_token_id
    assert model.get_input_embeddings().weight.std().item() == pytest.approx(0.08, rel=0.1)


def test_tokenizer_survives_saving(tiny_tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tiny_tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = f"<|im_start|>assistant\n{call_text('hotel  é')}<|im_end|>\n{answer_text(['Travel.hotel_desk.find'])}"
    assert ids(loaded, text) == ids(tiny_tokenizer, text)
    assert loaded.decode(ids(loaded, text)) == text
    assert (loaded.eos_token, loaded.pad_token, loaded.padding_side) == ("<|im_end|>", "<|endoftext|>", "left")
    assert loaded.chat_template == tiny_tokenizer.chat_template


def test_only_the_most_answered_names_become_tokens(ten_tools: list[ToolSpec]) -> None:
    everything = [spec.id for spec in ten_tools]
    one, two, three = everything[3], everything[7], everything[1]
    texts = [answer_text([str(one), str(two)]), f"{three}: shown", answer_text([str(two), "No.such.tool"])]
    assert answered_names(texts, everything, 2) == [two, one]
    assert answered_names(texts, everything, 1) == [two]
    assert answered_names(texts, everything, -1) == everything
    assert answered_names([], everything, 5) == []


def test_constant_texts_of_one_length_have_one_order(tiny_tokenizer: Any) -> None:
    """Two have 16 characters; sorted by length alone they came as the hashes of a process had them."""
    pieces = template_constants(tiny_tokenizer, curriculum_prompts=True)
    assert len({len(piece) for piece in pieces}) < len(pieces)
    assert pieces == longest_first(pieces) == longest_first(reversed(pieces))
    assert longest_first(["b", "ccc", "a", "dd"]) == ["ccc", "dd", "a", "b"]
