"""A run must not delete what it is about to read: ``--output_dir runs/data --data runs/data --overwrite``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotools.errors import RunFolderError

_OUTPUTS = ("out", "output_dir")


def refuse_own_inputs(folder: Path | str, config: Mapping[str, Any]) -> None:
    """Raise RunFolderError if a value of ``config`` (dotted keys) names ``folder`` itself or something inside it.

    Values are texts or lists of them, also of the form ``name=PATH`` or ``kind:PATH``. The keys that name the folder
    are left out.
    """
    target = Path(folder).resolve()
    for key, value in config.items():
        if key.rpartition(".")[2] in _OUTPUTS:
            continue
        for text in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(text, str):
                continue
            for name in {text, text.partition("=")[2], text.rpartition(":")[2]} - {""}:
                path = Path(name).expanduser()
                if _exists(path) and (path.resolve() == target or target in path.resolve().parents):
                    raise RunFolderError(
                        f"{folder} is or holds '{name}' (key {key}), which this run reads; --overwrite would delete "
                        "it, so name another folder"
                    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a long text or one with a NUL is no path
        return False
