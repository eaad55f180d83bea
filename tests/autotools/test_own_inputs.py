"""``--overwrite`` of a folder that the run itself reads is refused, and nothing is deleted."""

from pathlib import Path

import pytest

from autotools import rundir
from autotools.errors import RunFolderError


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder of ours, ``runs/data`` below the working folder, with a world inside."""
    monkeypatch.chdir(tmp_path)
    folder = rundir.open_run("runs/data", {}, seed=0).path
    (folder / "world").mkdir()
    (folder / "world" / "tools.jsonl").write_text("{}\n")
    return folder


@pytest.mark.parametrize(
    "config",
    [
        {"data": "runs/data"},
        {"data": "{here}/runs/data"},
        {"data": "./runs/../runs/data/"},
        {"stage": {"tools": "runs/data/world"}},
        {"policies": ["one=bm25", "b=runs/data"]},
        {"policies": {"a": "rag:vllm:runs/data/world"}},
    ],
)
def test_what_is_read_is_not_deleted(data: Path, tmp_path: Path, config: dict) -> None:
    config = {k: v.format(here=tmp_path) if isinstance(v, str) else v for k, v in config.items()}
    for claim in (rundir.check_run, lambda *a, **k: rundir.open_run(*a, seed=0, **k)):
        with pytest.raises(RunFolderError, match=r"runs/data is or holds '.*' \(key .*\), which this run reads"):
            claim("runs/data", {"out": "runs/data", **config}, overwrite=True)
    assert (data / "world" / "tools.jsonl").exists()


def test_a_link_to_the_folder_is_the_folder(data: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data)
    with pytest.raises(RunFolderError, match="is or holds 'link'"):
        rundir.check_run("runs/data", {"output_dir": "runs/data", "data": "link"}, overwrite=True)


def test_other_values_are_no_inputs(data: Path) -> None:
    others = {"tools": "runs", "model": "Qwen/Qwen2.5", "note": "x" * 5000, "odd": "a\0b", "none": None, "n": [1, "w"]}
    rundir.open_run("runs/data", {"output_dir": "runs/data", "out": "runs/data", **others}, seed=0, overwrite=True)
    assert not (data / "world").exists()
