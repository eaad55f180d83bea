"""Makes the scripts in launch/ importable the way ``python launch/quickstart.py`` sees them."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OF_A_STUDY = ("ablation", "ablation_checks", "ablation_table", "driver", "stage_runner", "guard")


@pytest.fixture
def quickstart(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module launch/quickstart.py, imported anew, so that a test may change its pipeline."""
    monkeypatch.syspath_prepend(str(ROOT / "launch"))
    names = ("quickstart", "driver", "stage_runner", "guard")
    for name in names:
        sys.modules.pop(name, None)
    yield importlib.import_module("quickstart")
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def ablation(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """launch/ablation.py as ``python launch/ablation.py`` sees it, imported anew: its commands may be changed."""
    monkeypatch.syspath_prepend(str(ROOT / "launch"))
    before = dict(os.environ)
    for name in OF_A_STUDY:
        sys.modules.pop(name, None)
    yield importlib.import_module("ablation")
    for name in OF_A_STUDY:
        sys.modules.pop(name, None)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def study_args(ablation: ModuleType) -> Callable[..., Any]:
    """(file of a study, words of a command line) -> its AblationArgs."""
    from autotools.config import load_config

    def load(path: Path, *argv: str) -> Any:
        config = load_config(["--config", str(path), *argv], {"": ablation.AblationArgs}, prog="x", description="")
        return config.top(ablation.AblationArgs)

    return load
