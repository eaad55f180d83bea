"""A checkpoint in vLLM's offline engine as a policy, with the interface of ``LocalPolicy``. Needs the extra vllm."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotools.chat import ChatRenderer
from autotools.errors import ModelError
from autotools.llm.loading import adapter_config, check_model, is_adapter

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM takes as max_lora_rank


def check_installed() -> None:
    """Raise ModelError where vLLM is not installed."""
    if find_spec("vllm") is None:
        raise ModelError(
            "vLLM is not installed; install the extra 'vllm' on a machine with a GPU, or leave 'vllm:' out"
        )


class VllmPolicy:
    """Greedy turns from token contexts; the engine batches by itself. Loads a full model or a LoRA adapter folder.

    ``options`` go to ``vllm.LLM`` (tensor_parallel_size, max_model_len, gpu_memory_utilization ...). Raises ModelError
    if vLLM is not installed, or cannot load the model; DataError if its run has not finished.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_new_tokens: int = 256,
        dtype: str = "auto",
        seed: int = 0,
        options: dict[str, Any] | None = None,
    ):
        check_installed()
        check_model(path)
        from transformers import AutoTokenizer
        from vllm import LLM, SamplingParams

        folder = Path(path).expanduser()
        name = str(folder) if folder.is_dir() else str(path)
        model, adapter = name, None
        if is_adapter(folder):
            model, adapter, rank = _adapter(folder)
            options = {"enable_lora": True, "max_lora_rank": rank, **(options or {})}
        # generation_config "vllm": the model's own file must not bring sampling or other ends of turn
        settings = {"dtype": dtype, "seed": seed, "generation_config": "vllm", **(options or {})}
        try:
            self.renderer = ChatRenderer(AutoTokenizer.from_pretrained(name))
            self._llm = LLM(model=model, tokenizer=name, **settings)
        except Exception as error:  # vLLM and its parts raise many kinds, among them plain ones
            lines = str(error).strip().splitlines()
            raise ModelError(f"vLLM cannot load '{path}': {lines[0] if lines else type(error).__name__}") from error
        self._adapter = adapter
        self._params = SamplingParams(
            temperature=0.0,
            max_tokens=max_new_tokens,
            stop_token_ids=[self.renderer.end_id],
            detokenize=False,
        )

    def generate(self, contexts: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[list[float]] | None]:
        """New ids per context, up to and including the end-of-turn token, in the order of ``contexts``."""
        if not contexts:
            return [], None
        prompts = [{"prompt_token_ids": list(context)} for context in contexts]
        outputs = self._llm.generate(prompts, self._params, use_tqdm=False, lora_request=self._adapter)
        return [self._ids(output.outputs[0]) for output in outputs], None

    def _ids(self, completion: Any) -> list[int]:
        """With the end-of-turn token whenever the turn ended by it, whether or not this version gives it back."""
        ids, end = list(completion.token_ids), self.renderer.end_id
        if end in ids:
            return ids[: ids.index(end) + 1]
        return [*ids, end] if completion.finish_reason == "stop" else ids


def _adapter(folder: Path) -> tuple[str, Any, int]:
    """(base model, what vLLM wants to hear of the adapter, the least rank it can be told that holds the adapter's)."""
    from vllm.lora.request import LoRARequest

    config = adapter_config(folder)
    base, rank = config["base_model_name_or_path"], int(config.get("r") or 0)
    room = next((size for size in RANKS if size >= rank), RANKS[-1])
    return base, LoRARequest("policy", 1, str(folder)), room
