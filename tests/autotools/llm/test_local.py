"""Batched generation against a plain loop over single, unpadded contexts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import DataError
from autotools.llm.local import LocalPolicy

CONTEXTS = ["hotel", "find a hotel by its name", "a", "sunset hour of a town, and much more of it", "gate"]


@pytest.fixture(scope="module")
def checkpoint(untrained_model: Callable[..., Path]) -> Path:
    return untrained_model(initializer_range=0.5)


@pytest.fixture(scope="module")
def contexts(tiny_tokenizer: Any) -> list[list[int]]:
    return [tiny_tokenizer(text)["input_ids"] for text in CONTEXTS]


def greedy(policy: LocalPolicy, context: list[int], length: int) -> list[int]:
    """One context, no padding, no cache, no generate()."""
    import torch

    ids = list(context)
    for _ in range(length):
        with torch.no_grad():
            ids.append(int(policy.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(context) :]


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_greedy_batches_equal_single_contexts(batch_size: int, checkpoint: Path, contexts: list[list[int]]) -> None:
    policy = LocalPolicy(checkpoint, max_new_tokens=6, batch_size=batch_size)
    turns, logprobs = policy.generate(contexts)
    assert turns == [greedy(policy, context, 6) for context in contexts]
    assert len({tuple(t) for t in turns}) > 1 and logprobs is None
    assert policy.generate([]) == ([], None)


def test_a_turn_ends_with_its_end_of_turn_token(checkpoint: Path, contexts: list[list[int]]) -> None:
    policy = LocalPolicy(checkpoint, max_new_tokens=6)
    free = [greedy(policy, context, 6) for context in contexts]
    policy.tokenizer.eos_token = policy.tokenizer.convert_ids_to_tokens(free[1][2])
    end = policy.tokenizer.eos_token_id
    turns, _ = policy.generate(contexts)
    assert turns == [row[: row.index(end) + 1] if end in row else row for row in free]
    assert len(turns[1]) <= 3 and turns[1][-1] == end


def test_sampling_follows_torchs_seed(checkpoint: Path, contexts: list[list[int]]) -> None:
    import torch

    policy = LocalPolicy(checkpoint, max_new_tokens=6)
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(policy.generate(contexts, temperature=1.0)[0])
    assert runs[0] == runs[1] != runs[2]
    assert policy.generate(contexts, temperature=0.0) == policy.generate(contexts)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither config.json nor adapter_config.json"):
        LocalPolicy(tmp_path)
