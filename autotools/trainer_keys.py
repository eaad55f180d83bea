"""What a trainer's own keys may hold. TRL and Transformers take any value and fail, or train nonsense, much later.

Pure: nothing is imported for a check, so that the driver of a study can ask for every row before hours of training.
"""

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo")
"""Those of GRPOTrainer in trl 1.16; a test reads them out of its source."""
REPORTERS = {
    "azure_ml": "azureml", "clearml": "clearml", "codecarbon": "codecarbon", "comet_ml": "comet_ml",
    "dagshub": "dagshub", "dvclive": "dvclive", "flyte": "flytekit", "kubeflow": "kubeflow", "mlflow": "mlflow",
    "neptune": "neptune", "swanlab": "swanlab", "tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb",
}  # fmt: skip
"""Values of ``report_to`` in Transformers, each with the package that it needs."""

_COUNT = (lambda value: value >= 1, "must be 1 or more")
_RULES: dict[str, dict[str, tuple[Callable[[Any], bool], str]]] = {  # schema ("": every trainer's) -> key -> rule
    "": {
        "max_steps": (lambda value: value == -1 or value >= 1, "must be 1 or more, or -1 for num_train_epochs"),
        "num_train_epochs": (lambda value: value > 0, "must be above 0"),
    },
    "GRPOConfig": {
        "num_generations": (lambda value: value >= 2, "must be 2 or more, for a group is compared with itself"),
        "num_iterations": _COUNT,
        "steps_per_generation": _COUNT,
        "generation_batch_size": _COUNT,
        "temperature": (lambda value: 0 < value < math.inf, "must be above 0: log-probs are divided by it"),
        "beta": (lambda value: 0 <= value < math.inf, "must be 0 or more: below 0 it pushes away from the start"),
        "loss_type": (LOSS_TYPES.__contains__, f"known are {', '.join(LOSS_TYPES)}"),
    },
}


def check_trainer_key(schema: str, key: str, value: Any) -> None:
    """Raise ValueError if the trainer config called ``schema`` (``GRPOConfig``, ``SFTConfig``) cannot use ``value``."""
    if schema not in ("GRPOConfig", "SFTConfig") or value is None:
        return
    if key == "report_to":
        _check_reporters([value] if isinstance(value, str) else value)
    usable, asked = _RULES[""].get(key) or _RULES.get(schema, {}).get(key) or (None, "")
    if usable and not usable(value):
        raise ValueError(f"{asked}, got {value!r}")


def _check_reporters(names: list[str]) -> None:
    if names in (["none"], ["all"]):
        return
    for name in names:
        package = REPORTERS.get(name)
        if package is None:
            raise ValueError(f"unknown {name!r}; known are none, all, {', '.join(REPORTERS)}")
        if find_spec(package) is None and not (name == "tensorboard" and find_spec("tensorboardX")):
            raise ValueError(f"{name!r} needs the package {package}, which is not installed; install it, or pass none")
