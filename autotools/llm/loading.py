"""The one way to load a model with its tokenizer, for SFT, RL and evaluation: whatever is wrong with it is one line."""

import json
from pathlib import Path
from typing import Any

from autotools.errors import ModelError
from autotools.rundir import refuse_half

DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
_CONFIGS = ("config.json", "adapter_config.json")
_FILES = (*_CONFIGS, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def check_dtype(dtype: str) -> None:
    """Raise ValueError for a type of weights that torch does not have."""
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")


def check_model(source: str | Path) -> None:
    """What can be known without loading. Raises ModelError for a folder without a model or with a damaged file of one,
    DataError for one whose run has not finished.

    A name of the hub passes. "runs/sft" reads like one, too; where its first folder exists here, a folder was meant,
    and the hub is not asked (several tries with growing waits).
    """
    path = Path(source).expanduser()
    if str(source) and path.is_dir():
        refuse_half(path)
        if not any((path / name).is_file() for name in _CONFIGS):
            raise ModelError(f"no model at '{source}': neither {' nor '.join(_CONFIGS)} is there")
        if damage := _damaged(path):
            raise ModelError(f"model '{source}' cannot be loaded: {damage}")
    elif str(source) and path.exists():
        raise ModelError(f"no model at '{source}': this is a file; name the folder that holds the model")
    else:
        written_as_path = str(source).startswith((".", "~", "/")) or len(path.parts) > 2
        if not str(source) or written_as_path or (path.parent.name and path.parent.is_dir()):
            raise ModelError(f"no model at '{source}': there is no such folder")


def load_model(source: str | Path, dtype: str = "auto") -> tuple[Any, Any]:
    """``(model, tokenizer)``; the tokenizer pads on the left. ``source``: folder (full model or adapter) or hub name.

    Raises ModelError naming the folder and, where one is damaged, the file; DataError if its run has not finished.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    check_model(source)
    folder = Path(source).expanduser()
    name = str(folder) if folder.is_dir() else str(source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    except Exception as error:  # each library has errors of its own for damaged files, and one raises Exception itself
        lines = str(error).strip().splitlines()
        raise ModelError(f"model '{source}' cannot be loaded: {lines[0] if lines else type(error).__name__}") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def _damaged(folder: Path) -> str:
    """The first file of the folder's model that cannot be read, and why; empty if all can. Weights stay on disk."""
    from safetensors import SafetensorError, safe_open

    texts = [path for path in folder.glob("*.json") if path.name in _FILES or path.name.endswith(".index.json")]
    for path in sorted([*texts, *folder.glob("*.safetensors")]):
        try:
            if path.suffix == ".json":
                json.loads(path.read_text(encoding="utf-8"))
            else:
                with safe_open(path, "np"):
                    pass
        except (OSError, ValueError, SafetensorError) as error:
            return f"{path.name} is damaged ({' '.join(str(error).split())})"
    return ""
