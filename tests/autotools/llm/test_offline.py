"""vLLM's offline engine is not installed here: how it would be asked, with a stand-in, and what is said without it."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from autotools.errors import DataError, ModelError
from autotools.llm import offline
from autotools.llm.offline import VllmPolicy, check_installed


@dataclass
class Params:
    temperature: float
    max_tokens: int
    stop_token_ids: list[int]
    detokenize: bool


class Engine:
    """The part of ``vllm.LLM`` that is used; its completions repeat the prompt's last token."""

    made: list[dict[str, Any]] = []
    asked: list[tuple[list[Any], Any, Any]] = []
    ends = "none"

    def __init__(self, **settings):
        if settings["model"].endswith("broken"):
            raise RuntimeError("no kernel image\nmore lines")
        Engine.made.append(settings)

    def generate(self, prompts, params, use_tqdm, lora_request):
        Engine.asked.append((prompts, params, lora_request))
        outputs = []
        for prompt in prompts:
            ids = (prompt["prompt_token_ids"][-1],) * 2
            end, reason = params.stop_token_ids[0], "length" if self.ends == "none" else "stop"
            ids = {"none": ids, "given": (*ids, end), "left out": ids}[self.ends]
            outputs.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, finish_reason=reason)]))
        return outputs


@pytest.fixture
def vllm(monkeypatch):
    lora = ModuleType("vllm.lora.request")
    lora.LoRARequest = lambda *values: values
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = Engine, Params
    for name, value in {"vllm": module, "vllm.lora": ModuleType("vllm.lora"), "vllm.lora.request": lora}.items():
        monkeypatch.setitem(sys.modules, name, value)
    monkeypatch.setattr(offline, "find_spec", lambda name: object())
    Engine.made, Engine.asked = [], []


@pytest.fixture
def model(tmp_path: Path, tiny_tokenizer: Any) -> Path:
    folder = tmp_path / "model"
    tiny_tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    save_file({"weight": np.zeros(1)}, folder / "model.safetensors")
    return folder


@pytest.mark.skipif(offline.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_one_line_says_what_to_do(model):
    for make in (check_installed, lambda: VllmPolicy(model)):
        with pytest.raises(ModelError, match="vLLM is not installed; install the extra 'vllm' .* or leave 'vllm:' out"):
            make()


@pytest.mark.parametrize("ends", ["none", "given", "left out"])
def test_greedy_turns_end_with_the_end_of_turn_token_if_they_ended(vllm, model, monkeypatch, ends):
    monkeypatch.setattr(Engine, "ends", ends)
    policy = VllmPolicy(model, max_new_tokens=7, seed=3, options={"max_model_len": 99})
    turns, logprobs = policy.generate([[5, 6], [7]])
    end = [policy.renderer.end_id] if ends != "none" else []
    assert turns == [[6, 6, *end], [7, 7, *end]] and logprobs is None
    prompts, params, lora = Engine.asked[0]
    assert prompts == [{"prompt_token_ids": [5, 6]}, {"prompt_token_ids": [7]}] and lora is None
    assert (params.temperature, params.max_tokens, params.stop_token_ids) == (0.0, 7, [policy.renderer.end_id])
    settings = {"dtype": "auto", "seed": 3, "generation_config": "vllm", "max_model_len": 99}
    assert Engine.made == [{"model": str(model), "tokenizer": str(model), **settings}]
    assert policy.generate([]) == ([], None) and len(Engine.asked) == 1


def test_an_adapter_is_loaded_over_its_base_model(vllm, model):
    (model / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "base/model", "r": 20}))
    VllmPolicy(model).generate([[1]])
    made = Engine.made[0]
    assert (made["model"], made["enable_lora"], made["max_lora_rank"]) == ("base/model", True, 32)
    assert Engine.asked[0][2] == ("policy", 1, str(model))
    (model / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="names no base model; merge the adapter"):
        VllmPolicy(model)


def test_what_cannot_be_loaded_is_one_line(vllm, model, tmp_path):
    broken = model.rename(tmp_path / "broken")
    with pytest.raises(ModelError, match=r"vLLM cannot load '.*broken': no kernel image$"):
        VllmPolicy(broken)
    (broken / "run_config.json").write_text("{}")
    with pytest.raises(DataError, match="not complete"):
        VllmPolicy(broken)
    with pytest.raises(ModelError, match="no model at"):
        VllmPolicy(tmp_path / "runs" / "none")
