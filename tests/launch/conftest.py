"""Makes the scripts in launch/ importable the way ``python launch/quickstart.py`` sees them."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
