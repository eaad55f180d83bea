"""The one way to load a model with its tokenizer, for SFT, RL and evaluation: whatever is wrong with it is one line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotools.chat import ChatRenderer
from autotools.errors import DataError, ModelError
from autotools.rundir import refuse_half

DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
ADAPTER = "adapter_config.json"
_CONFIGS = ("config.json", ADAPTER)
_FILES = (*_CONFIGS, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_WEIGHTS = re.compile(r".+\.safetensors|(pytorch|adapter)_model.*\.bin")
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_GENERATION_TAG = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")  # Transformers' own, unknown to jinja2


def check_dtype(dtype: str) -> None:
    """Raise ValueError for a type of weights that torch does not have."""
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")


def check_model(source: str | Path) -> None:
    """What can be known without loading. Raises ModelError for a folder without a model, with a part missing (weights,
    tokenizer, chat template) or with a damaged file, DataError for one whose run has not finished.

    A name of the hub passes. "runs/sft" reads like one, too; where its first folder exists here, a folder was meant,
    and the hub is not asked (several tries with growing waits).
    """
    path = Path(source).expanduser()
    if str(source) and path.is_dir():
        refuse_half(path)
        if not any((path / name).is_file() for name in _CONFIGS):
            raise ModelError(f"no model at '{source}': neither {' nor '.join(_CONFIGS)} is there")
        if damage := _damaged(path) or _missing(path) or _unusable(path):
            raise ModelError(f"model '{source}' cannot be loaded: {damage}")
        if is_adapter(source):
            _check_base(source)
    elif str(source) and path.exists():
        raise ModelError(f"no model at '{source}': this is a file; name the folder that holds the model")
    else:
        written_as_path = str(source).startswith((".", "~", "/")) or len(path.parts) > 2
        if not str(source) or written_as_path or (path.parent.name and path.parent.is_dir()):
            raise ModelError(f"no model at '{source}': there is no such folder")


def is_adapter(source: str | Path) -> bool:
    """Whether ``source`` is a folder with a PEFT adapter, which needs its base model."""
    return (Path(source).expanduser() / ADAPTER).is_file()


def adapter_config(folder: str | Path) -> dict[str, Any]:
    """The adapter's settings (r, lora_alpha, base_model_name_or_path ...). Raises ModelError if no base is named."""
    path = Path(folder).expanduser() / ADAPTER
    config = json.loads(path.read_text(encoding="utf-8"))
    if not config.get("base_model_name_or_path"):
        raise ModelError(f"{path} names no base model; merge the adapter into its model first")
    return config


def _check_base(source: str | Path) -> None:
    try:
        check_model(adapter_config(source)["base_model_name_or_path"])
    except DataError as error:
        raise type(error)(f"adapter '{source}' cannot be loaded without its base model: {error}") from error


def load_model(source: str | Path, dtype: str = "auto") -> tuple[Any, Any]:
    """``(model, tokenizer)``; the tokenizer pads on the left. ``source``: folder (full model or adapter) or hub name.

    Raises ModelError naming the folder and, where one is damaged, the file; DataError if its run has not finished.
    """
    from transformers import AutoModelForCausalLM

    return _load(source, lambda name: AutoModelForCausalLM.from_pretrained(name, dtype=dtype))


def load_adapter(source: str | Path, dtype: str = "auto") -> tuple[Any, Any]:
    """``(peft.PeftModel, tokenizer)`` of a folder with an adapter, ready to be trained. Raises as ``load_model``."""

    def load(name: str) -> Any:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM
        from transformers.integrations import is_deepspeed_zero3_enabled

        base = AutoModelForCausalLM.from_pretrained(adapter_config(name)["base_model_name_or_path"], dtype=dtype)
        # ZeRO-3 gathers parameters of one type only (as TRL does where it adds an adapter itself)
        same_type = {"autocast_adapter_dtype": False} if is_deepspeed_zero3_enabled() else {}
        return PeftModel.from_pretrained(base, name, is_trainable=True, **same_type)

    return _load(source, load)


def _load(source: str | Path, load: Callable[[str], Any]) -> tuple[Any, Any]:
    from transformers import AutoTokenizer

    check_model(source)
    folder = Path(source).expanduser()
    name = str(folder) if folder.is_dir() else str(source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
        ChatRenderer(tokenizer).between_ids("probe")  # a template that does not render is said before a run begins
        model = load(name)
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
                if not isinstance(json.loads(path.read_text(encoding="utf-8")), dict):
                    raise ValueError("not a JSON object")
            else:
                with safe_open(path, "np"):
                    pass
        except (OSError, ValueError, SafetensorError) as error:
            return f"{path.name} is damaged ({' '.join(str(error).split())})"
    return ""


def _missing(folder: Path) -> str:
    """Which part of the model is not there. Transformers makes an empty tokenizer where there are no files for one."""
    names = {path.name for path in folder.iterdir()}
    if not any(map(_WEIGHTS.fullmatch, names)):
        return "no weights are there (*.safetensors or pytorch_model.bin)"
    for index in folder.glob("*.index.json"):
        shards = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
        if lost := sorted(shards - names):
            return f"{lost[0]} is not there, which {index.name} names"
    if not names.intersection(_VOCABULARIES):
        return "no tokenizer is there (tokenizer.json); copy the files of the model's tokenizer into the folder"
    if not (_template(folder) or (folder / "additional_chat_templates").is_dir()):
        return "no chat template is there (chat_template.jinja); take an instruction-tuned model, or add its template"
    return ""


def _template(folder: Path) -> str:
    """The text of the chat template, "" if there is none; of several named ones, the default one or the first."""
    for name in (*_TEMPLATES, "tokenizer_config.json"):
        if (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8")
            found = text if name.endswith(".jinja") else json.loads(text).get("chat_template")
            if isinstance(found, list):  # several, each with a name
                named = {row.get("name"): row.get("template") for row in found if isinstance(row, dict)}
                found = named.get("default") or next(iter(named.values()), "")
            if found and isinstance(found, str):
                return found
    return ""


def _unusable(folder: Path) -> str:
    """Why tokenizer or chat template, which are there, cannot be used; without Transformers, whose import is slow."""
    from jinja2 import Environment, TemplateError
    from tokenizers import Tokenizer

    try:
        Environment(extensions=["jinja2.ext.loopcontrols"]).parse(_GENERATION_TAG.sub("", _template(folder)))
    except TemplateError as error:
        return f"its chat template is damaged ({error})"
    if (folder / "tokenizer.json").is_file():
        try:
            Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing narrower
            return f"tokenizer.json is damaged ({error})"
    return ""
