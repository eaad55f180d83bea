"""One sentence-transformers model under a recipe: tokens in, unit vectors out, with checks of what fails silently.

Its own ``encode`` batches by number of texts; here texts are sorted by length and batched by padded TOKENS (up to
three times faster on a CPU), and lengths, end tokens and truncations are seen on the way. Not safe for two threads at
once (the tokenizer then raises "Already borrowed"); ``Encoder`` holds the lock.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from autotools.errors import ConfigError, RetrieverError
from retriever.recipes import Recipe

MAX_CHARS_PER_TOKEN = 64  # a text is cut to that many characters per token before it is tokenised (1 MB documents)
_NORM_TOLERANCE = 1e-3


class EmbeddingModel:
    """``recipe`` must be settled. ``counts`` gets ``truncated`` and ``encoder_batches``.

    Raises RetrieverError if the files cannot be loaded or do not fit the recipe.
    """

    def __init__(
        self, recipe: Recipe, folder: Path, *, device: str, dtype: str, max_seq_length: int, counts: Counter[str]
    ) -> None:
        self.recipe, self.folder, self.device, self.dtype = recipe, folder, device, dtype
        self.max_seq_length, self.counts = max_seq_length, counts
        self.model = self._load()
        self._check()

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._pooling().pooling_output_dimension

    def encode(
        self, texts: Sequence[str], batch_tokens: int, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Unit vectors, float32 [n, dim], same order, of texts that already carry their prompt.

        Raises RetrieverError as ``token_ids``, and if a vector is not of length 1 (NaN, zero).
        """
        ids = self.token_ids(texts)
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        for batch in batches_by_tokens([len(row) for row in ids], batch_tokens):
            out[batch] = self._forward([ids[number] for number in batch])
            self.counts["encoder_batches"] += 1
            if progress:
                progress(len(batch))
        return out

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, cut to ``max_seq_length`` (special tokens stay); cuts are counted.

        Raises RetrieverError if a text does not end with the recipe's end token.
        """
        if not texts:
            return []
        tokenizer, limit = self.model.tokenizer, self.max_seq_length
        cut = [text.encode("utf-8", "replace").decode()[: limit * MAX_CHARS_PER_TOKEN] for text in texts]
        ids: list[list[int]] = tokenizer(cut, add_special_tokens=True, truncation=False, verbose=False)["input_ids"]
        long = [number for number, row in enumerate(ids) if len(row) > limit or len(cut[number]) < len(texts[number])]
        if long:
            again = tokenizer([cut[number] for number in long], truncation=True, max_length=limit)["input_ids"]
            for number, row in zip(long, again, strict=True):
                ids[number] = row
        self.counts["truncated"] += len(long)
        end = self.recipe.end_id
        for text, row in zip(texts, ids, strict=True):
            if not row or (end is not None and row[-1] != end):
                raise RetrieverError(
                    f"tokenizer of {self.recipe.name} ends {text[:40]!r} with id {row[-1] if row else None}, but "
                    f"pooling reads the end token {end}; use the model's original tokenizer.json, which adds it"
                )
        return ids

    def _forward(self, ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Vectors of one padded batch. The mask comes from the lengths: the pad id may be a real last token."""
        import torch

        left = self.recipe.padding_side == "left"
        features = padded(ids, self.model.tokenizer.pad_token_id or 0, left)
        if left and "roberta" not in self.model[0].config.model_type:
            # Positions count from the first real token; RoBERTa models derive theirs from the padding themselves.
            features["position_ids"] = (features["attention_mask"].cumsum(1) - 1).clip(0)
        tensors = {name: torch.from_numpy(value).to(self.device) for name, value in features.items()}
        with torch.inference_mode():
            for module in self.model:
                if type(module).__name__ != "Normalize":  # done below in float32, not in the model's dtype
                    tensors = module(tensors)
            vectors = torch.nn.functional.normalize(tensors["sentence_embedding"].float(), dim=1).cpu().numpy()
        norms = np.linalg.norm(vectors, axis=1)
        if not (np.abs(norms - 1) < _NORM_TOLERANCE).all():
            raise RetrieverError(
                f"{self.recipe.name} in {self.dtype} on {self.device} gave a vector of length {norms.min():.4g} "
                "instead of 1 (NaN or zero); use dtype float32"
            )
        return vectors

    # --- loading --------------------------------------------------------------------------------------------------

    def _load(self) -> Any:
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        kwargs = {"model_kwargs": {"dtype": getattr(torch, self.dtype), "attn_implementation": "sdpa"}}
        kwargs["processor_kwargs"] = {"padding_side": self.recipe.padding_side}
        try:
            with _quiet_loading():
                if (self.folder / "modules.json").is_file():
                    model = SentenceTransformer(str(self.folder), device=self.device, local_files_only=True, **kwargs)
                else:
                    first = Transformer(str(self.folder), **kwargs)
                    modules = [first, Pooling(first.get_embedding_dimension(), self.recipe.pooling)]
                    model = SentenceTransformer(modules=modules, device=self.device)
        except Exception as error:  # a broken file raises whatever its parser raises
            what = " ".join(str(error).split())[:300]
            raise RetrieverError(f"cannot load the model in {self.folder}: {type(error).__name__}: {what}") from error
        return model.eval()

    def _check(self) -> None:
        """Compare the loaded model with the recipe; mark special tokens of the vocabulary as unsplittable."""
        name, pooling = self.recipe.name, self._pooling()
        if pooling.pooling_mode != self.recipe.pooling or not pooling.include_prompt:
            raise RetrieverError(
                f"recipe {name} pools by {self.recipe.pooling}, but the files of {self.folder.name} say "
                f"{pooling.pooling_mode} (include_prompt {pooling.include_prompt}); these are other weights"
            )
        tokenizer = self.model.tokenizer
        if unknown := [token for token in self.recipe.special_tokens if token not in tokenizer.get_vocab()]:
            raise RetrieverError(f"recipe {name} needs {unknown[0]!r}, which the tokenizer does not know")
        if self.recipe.special_tokens:
            tokenizer.add_tokens(list(self.recipe.special_tokens), special_tokens=True)
        positions = getattr(self.model[0].config, "max_position_embeddings", None) or self.max_seq_length
        if self.max_seq_length > positions:
            raise ConfigError(f"max_seq_length {self.max_seq_length} is more than the {positions} positions of {name}")

    def _pooling(self) -> Any:
        found = [module for module in self.model if type(module).__name__ == "Pooling"]
        if len(found) != 1:
            raise RetrieverError(f"expected one pooling module in {self.folder.name}, found {len(found)}")
        return found[0]


@contextmanager
def _quiet_loading() -> Iterator[None]:
    """No progress bar for a load of a second; what the process had is put back."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def resolve_device(device: str) -> str:
    """``auto`` -> ``cuda`` if there is one, else ``cpu``. Raises ConfigError for CUDA where there is none."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {device!r} was asked for, but there is no CUDA device; use --device cpu or auto")
    return device


def padded(ids: Sequence[Sequence[int]], pad_id: int, left: bool) -> dict[str, np.ndarray]:
    """``input_ids`` and ``attention_mask``, int64 [n, longest], padded on one side."""
    width = max(len(row) for row in ids)
    tokens = np.full((len(ids), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(ids), width), dtype=np.int64)
    for number, row in enumerate(ids):
        part = slice(width - len(row), width) if left else slice(0, len(row))
        tokens[number, part], mask[number, part] = row, 1
    return {"input_ids": tokens, "attention_mask": mask}


def batches_by_tokens(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Numbers of the texts, longest first, cut so that (texts x longest) of a batch is at most ``budget``."""
    out: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if out and (len(out[-1]) + 1) * lengths[out[-1][0]] <= budget:
            out[-1].append(number)
        else:
            out.append([number])
    return out
