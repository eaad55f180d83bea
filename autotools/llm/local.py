"""A local transformers checkpoint as a policy, greedy or sampling. The only module here that loads torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotools.chat import ChatRenderer
from autotools.errors import ModelError
from autotools.llm.loading import load_model


class LocalPolicy:
    """Batched generation from token contexts. Loads a full model or a PEFT adapter folder saved by our trainers.

    Raises ModelError if ``path`` holds no model that can be loaded, DataError if its run has not finished.
    """

    def __init__(self, path: str | Path, *, max_new_tokens: int = 256, batch_size: int = 64, dtype: str = "auto"):
        import torch

        self.model, self.tokenizer = load_model(path, dtype)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model.to(self.device).eval()
        self.renderer = ChatRenderer(self.tokenizer)
        self.max_new_tokens, self.batch_size = max_new_tokens, batch_size
        self._path, self._longest = path, getattr(self.model.config, "max_position_embeddings", None)

    def generate(
        self, contexts: Sequence[Sequence[int]], *, temperature: float = 0.0
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """New ids per context, up to and including the end-of-turn token; greedy unless ``temperature`` > 0.

        Contexts are batched by length, so that little is spent on padding; the result keeps their order. Raises
        ModelError for a context that the model was not made for: what it says there means nothing.
        """
        longest = max(map(len, contexts), default=0)
        if self._longest is not None and longest > self._longest:
            raise ModelError(
                f"a context has {longest} tokens, model '{self._path}' takes {self._longest}; give it fewer or shorter "
                "documents (search.document_chars, search.max_turns; for RAG rag.documents, rag.document_chars)"
            )
        order = sorted(range(len(contexts)), key=lambda i: len(contexts[i]))
        out: list[list[int]] = [[] for _ in contexts]
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            for i, ids in zip(rows, self._generate_batch([contexts[i] for i in rows], temperature), strict=True):
                out[i] = ids
        return out, None

    def _generate_batch(self, contexts: list[Sequence[int]], temperature: float) -> list[list[int]]:
        import torch

        width = max(len(c) for c in contexts)
        pad, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        ids = torch.full((len(contexts), width), pad)
        mask = torch.zeros_like(ids)
        for row, context in enumerate(contexts):
            ids[row, width - len(context) :] = torch.tensor(list(context))
            mask[row, width - len(context) :] = 1
        sampling: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        with torch.no_grad():
            new = self.model.generate(
                input_ids=ids.to(self.device),
                attention_mask=mask.to(self.device),
                max_new_tokens=self.max_new_tokens,
                pad_token_id=pad,
                eos_token_id=end,
                **sampling,
            )[:, width:].tolist()
        return [row[: row.index(end) + 1] if end in row else row for row in new]
