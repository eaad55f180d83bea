"""The files of an embedding model: where they are, what they hash to, what they say about their own use."""

import dataclasses
import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from autotools.errors import ConfigError
from autotools.rundir import sha256_file
from retriever.recipes import Recipe


def weights_folder(recipe: Recipe) -> Path:
    """Local folder of a recipe's weights: its package, its folder, the Hugging Face cache, or a download into that.

    Raises ConfigError with one line that says what to do.
    """
    if recipe.package and (spec := importlib.util.find_spec(recipe.package)) and spec.origin:
        return Path(spec.origin).parent / "model"
    folder = Path(recipe.weights)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{folder} holds no model (no config.json)")
        return folder
    if recipe.weights.count("/") != 1 or folder.is_absolute():
        raise ConfigError(f"encoder {recipe.name}: folder {folder} does not exist")
    from huggingface_hub import snapshot_download

    skip = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.ot", "*.msgpack", "*.gguf"]
    try:
        return Path(snapshot_download(recipe.weights, local_files_only=True, ignore_patterns=skip))
    except Exception:  # not in the cache
        pass
    try:
        return Path(snapshot_download(recipe.weights, ignore_patterns=skip))
    except Exception as error:
        package = f"install the package {recipe.package.replace('_', '-')}, " if recipe.package else ""
        raise ConfigError(
            f"encoder {recipe.name}: {recipe.weights} is not in the local Hugging Face cache and cannot be downloaded "
            f"({type(error).__name__}); {package}run 'hf download {recipe.weights}' where there is a network, "
            f"or name a local copy: {recipe.name}@FOLDER"
        ) from error


_TELLING = re.compile(  # files that decide a vector; not the card, not copies of the weights in other formats
    r"(.*/)?(config|modules|sentence_bert_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json"
    r"|vocab\.txt|merges\.txt|.*\.model|(.*/)?[^/]*\.safetensors|(.*/)?pytorch_model[^/]*\.bin"
)


def weights_hash(folder: Path) -> str:
    """SHA-256 over the names and contents of the files of a model folder that decide its vectors.

    In the Hugging Face cache a large file is a link to a blob that is named by its SHA-256; that name is taken.
    """
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = sorted(name for name in files if _TELLING.fullmatch(name) and not name.startswith(("onnx/", "openvino/")))
    if any(name.endswith(".safetensors") for name in names):
        names = [name for name in names if not name.endswith(".bin")]
    digest = hashlib.sha256()
    for name in names:
        blob = files[name].resolve().name
        known = files[name].is_symlink() and re.fullmatch(r"[0-9a-f]{64}", blob)
        digest.update(f"{name}\t{blob if known else sha256_file(files[name])}\n".encode())
    return digest.hexdigest()


def read_settings(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object of a model folder; empty if the file is missing. Raises ConfigError if it is broken."""
    path = folder / name
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})") from error
    return content if isinstance(content, dict) else {"modules": content}


def settled(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with every open field filled from the model's own files (a folder or hub id without a recipe)."""
    if recipe.pooling is not None:
        return recipe
    if not (folder / "modules.json").is_file():
        raise ConfigError(
            f"{folder} has no modules.json, so how it pools is unknown; name a recipe, as in minilm@{folder}"
        )
    pooling = next(iter(sorted(folder.glob("*_Pooling/config.json"))), None)
    settings = read_settings(pooling.parent, "config.json") if pooling else {}
    legacy = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    modes = [mode for mode, name in legacy.items() if settings.get(f"pooling_mode_{name}")]
    mode = settings.get("pooling_mode") or (modes[0] if len(modes) == 1 else None)
    if mode not in legacy:
        raise ConfigError(f"{folder}: pooling {mode or modes} is not supported; supported: {', '.join(legacy)}")
    prompts = read_settings(folder, "config_sentence_transformers.json").get("prompts") or {}
    length = read_settings(folder, "sentence_bert_config.json").get("max_seq_length") or recipe.max_seq_length
    return dataclasses.replace(
        recipe,
        pooling=mode,
        padding_side=read_settings(folder, "tokenizer_config.json").get("padding_side", "right"),
        query_prompt=prompts.get("query", ""),
        document_prompt=prompts.get("document", prompts.get("passage", "")),
        max_seq_length=min(int(length), 1024),  # one long document would pad its batch
    )
