"""Values of a trainer's keys: what is refused, and the known names against TRL's and Transformers' own source."""

import ast
import inspect
import textwrap
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from autotools import trainer_keys
from autotools.config import load_config
from autotools.errors import ConfigError
from autotools.trainer_keys import LOSS_TYPES, REPORTERS, check_trainer_key

SECTIONS: Any = {"": "trl:GRPOConfig"}


@pytest.mark.parametrize(
    ("schema", "key", "value", "words"),
    [
        ("GRPOConfig", "num_generations", 0, "must be 2 or more, .* got 0"),
        ("GRPOConfig", "num_generations", 1, "must be 2 or more"),
        ("GRPOConfig", "temperature", 0.0, r"must be above 0: .* got 0\.0"),
        ("GRPOConfig", "temperature", -1.0, "must be above 0"),
        ("GRPOConfig", "temperature", float("inf"), "must be above 0"),
        ("GRPOConfig", "beta", -0.1, r"must be 0 or more: .* got -0\.1"),
        ("GRPOConfig", "loss_type", "foo", "known are grpo, bnpo, dr_grpo, .* got 'foo'"),
        ("GRPOConfig", "num_iterations", 0, "must be 1 or more, got 0"),
        ("GRPOConfig", "steps_per_generation", 0, "must be 1 or more, got 0"),
        ("GRPOConfig", "max_steps", 0, "must be 1 or more, or -1 for num_train_epochs, got 0"),
        ("SFTConfig", "max_steps", 0, "must be 1 or more"),
        ("SFTConfig", "max_steps", -2, "must be 1 or more"),
        ("SFTConfig", "num_train_epochs", 0.0, "must be above 0"),
        ("SFTConfig", "report_to", "wandbb", "unknown 'wandbb'; known are none, all, azure_ml"),
        ("GRPOConfig", "report_to", ["none", "wandb"], "unknown 'none'"),
    ],
)
def test_value_that_no_run_can_use(schema: str, key: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_trainer_key(schema, key, value)


@pytest.mark.parametrize(
    ("schema", "key", "value"),
    [
        ("GRPOConfig", "num_generations", 2),
        ("GRPOConfig", "temperature", 0.01),
        ("GRPOConfig", "beta", 0.0),
        ("GRPOConfig", "loss_type", "bnpo"),
        ("GRPOConfig", "steps_per_generation", None),
        ("GRPOConfig", "max_steps", -1),
        ("SFTConfig", "max_steps", 1),
        ("SFTConfig", "loss_type", "dft"),  # a key of this name with other values
        ("Sampling", "temperature", 0.0),  # greedy, in a section of ours
        *(("SFTConfig", "report_to", value) for value in ("none", "all", ["none"], [], None)),
    ],
)
def test_value_that_a_run_can_use(schema: str, key: str, value: Any) -> None:
    check_trainer_key(schema, key, value)


def test_reporter_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: set[str] = set()
    monkeypatch.setattr(trainer_keys, "find_spec", lambda name: ModuleSpec(name, None) if name in installed else None)
    for name, package in REPORTERS.items():
        with pytest.raises(ValueError, match=f"'{name}' needs the package {package}, which is not installed"):
            check_trainer_key("SFTConfig", "report_to", name)
    installed |= {"wandb", "tensorboardX"}
    check_trainer_key("SFTConfig", "report_to", ["wandb", "tensorboard"])
    with pytest.raises(ValueError, match="'mlflow' needs"):
        check_trainer_key("SFTConfig", "report_to", ["wandb", "mlflow"])


def test_loss_types_are_those_that_trl_compares_with() -> None:
    from trl import GRPOTrainer

    tree = ast.parse(textwrap.dedent(inspect.getsource(GRPOTrainer._compute_loss)))
    compared = [n for n in ast.walk(tree) if isinstance(n, ast.Compare) and ast.unparse(n.left) == "self.loss_type"]
    named = [c.value for n in compared for c in ast.walk(n.comparators[0]) if isinstance(c, ast.Constant)]
    assert set(named) == set(LOSS_TYPES)


def test_reporters_are_those_of_transformers() -> None:
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    assert INTEGRATION_TO_CALLBACK.keys() == REPORTERS.keys()


def test_key_and_source_are_named_and_all_are_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "rl.yaml"
    path.write_text("beta: -0.1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(["--config", str(path), "--temperature", "0"], SECTIONS, prog="x", description="")
    beta, temperature = str(caught.value).splitlines()
    assert beta.startswith(f"{path}: key 'beta': must be 0 or more") and beta.endswith("got -0.1")
    assert temperature.startswith("command line: key 'temperature': must be above 0")
