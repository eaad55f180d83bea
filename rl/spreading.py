"""From events to tokens: which tokens carry which advantage, and which rollouts carry none."""

from collections.abc import Sequence

import numpy as np

from autotools.schema import StopReason, Trajectory


def is_dropped(trajectory: Trajectory) -> bool:
    """Whether a failure of ours ended the rollout: it has no reward, and nobody may learn from it."""
    return trajectory.stop_reason is StopReason.SEARCH_FAILED


def spread_over_tokens(
    spans: Sequence[Sequence[tuple[int, int]]], advantages: np.ndarray, keep: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Event values to token values: spans of B rollouts, [B, E], [B, E] bool, (B, T) -> [B, T] float, [B, T] int.

    Tokens outside every span get 0. A span beyond T is an error of ours and raises ValueError.
    """
    per_token, kept = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    for i, events in enumerate(spans):
        for e, (start, end) in enumerate(events):
            if end > shape[1]:
                raise ValueError(f"event {e} of rollout {i} ends at token {end}, but the batch has {shape[1]}")
            if keep[i, e]:
                per_token[i, start:end] = advantages[i, e]
                kept[i, start:end] = 1
    return per_token, kept
