"""The query and document side of an embedding model: what is encoded once, what is remembered, what is counted.

Encoding is the cost of a dense search (about 1,000 times that of searching 16,000 documents), so repeated queries are
encoded once per call and found in an LRU cache afterwards. A key holds everything that decides a query's vector.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotools.errors import ConfigError
from retriever.embedding import EmbeddingModel, resolve_device
from retriever.model_files import settled, weights_folder, weights_hash
from retriever.recipes import Recipe, recipe_for

DTYPES = ("float32", "bfloat16", "float16")
BATCH_TOKENS = {"cpu": 2048, "cuda": 65_536}  # larger batches are slower on a CPU, smaller ones on a GPU
CACHE_BYTES = 256 * 2**20
COUNTERS = ("calls", "queries", "distinct", "cache_hits", "encoded", "encoder_batches", "truncated")


class Encoder:
    """One model in one dtype on one device. The weights are loaded when the first text is encoded.

    ``device``: ``auto`` (CUDA if there is one), ``cpu``, ``cuda``. ``dtype``: ``auto`` is float32 on a CPU and the
    recipe's on CUDA; both sides of a search must use the same. ``cache_bytes`` bounds the memory of remembered
    queries. Raises ConfigError if the weights cannot be had; encoding raises RetrieverError.
    """

    def __init__(
        self,
        recipe: Recipe | str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        max_seq_length: int | None = None,
        batch_tokens: int | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        recipe = recipe_for(recipe) if isinstance(recipe, str) else recipe
        if dtype not in ("auto", *DTYPES):
            raise ConfigError(f"unknown dtype {dtype!r}; known: auto, {', '.join(DTYPES)}")
        self.folder = weights_folder(recipe)
        self.recipe = settled(recipe, self.folder)
        self.weights_sha256 = weights_hash(self.folder)
        self.device = resolve_device(device)
        on_cpu = self.device == "cpu"
        self.dtype = ("float32" if on_cpu else recipe.gpu_dtype) if dtype == "auto" else dtype
        self.max_seq_length = max_seq_length or self.recipe.max_seq_length
        self.batch_tokens = batch_tokens or BATCH_TOKENS["cpu" if on_cpu else "cuda"]
        self.counts: Counter[str] = Counter()
        self._cache: OrderedDict[tuple[str, ...], np.ndarray] = OrderedDict()
        self._cache_limit, self._cache_size = cache_bytes, 0
        self._lock = threading.RLock()
        self._model: EmbeddingModel | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Everything beside the text that decides a DOCUMENT vector; an index of another identity is stale."""
        recipe = self.recipe
        return {
            "weights_sha256": self.weights_sha256,
            "dtype": self.dtype,
            "pooling": recipe.pooling,
            "padding_side": recipe.padding_side,
            "end_id": recipe.end_id,
            "special_tokens": list(recipe.special_tokens),
            "max_seq_length": self.max_seq_length,
            "document_prompt": recipe.document_prompt,
        }

    def describe(self) -> dict[str, Any]:
        """For manifests: names, the identity and the query side. No path of this machine."""
        local = Path(self.recipe.weights).is_dir()
        weights = self.recipe.name if local else self.recipe.weights
        names = {"encoder": self.recipe.name, "weights": weights}
        return {**names, **self.identity, "query_prompt": self.recipe.query_prompt}

    @property
    def model(self) -> EmbeddingModel:
        """The loaded model."""
        with self._lock:
            if self._model is None:
                self._model = EmbeddingModel(
                    self.recipe, self.folder, device=self.device, dtype=self.dtype,
                    max_seq_length=self.max_seq_length, counts=self.counts,
                )  # fmt: skip
            return self._model

    @property
    def dim(self) -> int:
        """Length of a vector. Loads the model."""
        return self.model.dim

    def encode_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Unit vectors, float32 [n, dim], same order. ``progress`` is told after each batch how many it held."""
        prompted = [f"{self.recipe.document_prompt}{text}" for text in texts]
        with self._lock:
            return self.model.encode(prompted, self.batch_tokens, progress)

    def document_tokens(self, texts: Sequence[str]) -> int:
        """Tokens that ``encode_documents`` would put through the model, padding aside."""
        with self._lock:
            return sum(map(len, self.model.token_ids([f"{self.recipe.document_prompt}{text}" for text in texts])))

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Unit vectors, float32 [n, dim], same order; repeated queries are encoded once, remembered ones not at all."""
        with self._lock:
            keys = {query: self._key(query) for query in queries}
            found = {query: self._cache[key] for query, key in keys.items() if key in self._cache}
            for query in found:
                self._cache.move_to_end(keys[query])
            missing = [query for query in keys if query not in found]
            if missing:
                prompted = [f"{self.recipe.query_prompt}{query}" for query in missing]
                vectors = self.model.encode(prompted, self.batch_tokens)
                self._remember([keys[query] for query in missing], vectors)
                found.update(zip(missing, vectors, strict=True))
            self.counts += Counter(
                calls=1, queries=len(queries), distinct=len(keys), encoded=len(missing),
                cache_hits=len(keys) - len(missing),
            )  # fmt: skip
            if not found:
                return np.empty((0, self.dim), dtype=np.float32)
            return np.stack([found[query] for query in queries])

    def counters(self) -> dict[str, int]:
        """What has been done since the start. ``distinct`` (per call) = ``cache_hits`` + ``encoded``."""
        return {name: self.counts[name] for name in COUNTERS}

    def _key(self, query: str) -> tuple[str, ...]:
        settings = f"{self.recipe.query_prompt}\x00{self.max_seq_length}"
        return (self.weights_sha256, self.dtype, settings, query)

    def _remember(self, keys: Sequence[tuple[str, ...]], vectors: np.ndarray) -> None:
        for key, vector in zip(keys, vectors, strict=True):
            self._cache[key] = vector.copy()  # a view would keep the whole batch alive
            self._cache_size += _bytes(key, vector)
        while self._cache and self._cache_size > self._cache_limit:
            key, vector = self._cache.popitem(last=False)
            self._cache_size -= _bytes(key, vector)


def _bytes(key: tuple[str, ...], vector: np.ndarray) -> int:
    return (
        vector.nbytes + 2 * len(key[-1]) + 300
    )  # of the tuple, the array and the entry; the key's other parts are few
