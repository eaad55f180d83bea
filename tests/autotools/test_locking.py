"""One process in a run folder: two locks of one process exclude each other as those of two processes do."""

import os
from pathlib import Path

import pytest

from autotools.errors import RunFolderError
from autotools.locking import only_process


def test_the_second_is_refused_by_pid_until_the_first_has_gone(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    with only_process(folder):
        for name in (folder, f"{folder}/", folder.parent / "x" / ".." / "a"):
            with pytest.raises(RunFolderError, match=f"a is in use by the process with pid {os.getpid()};"):
                with only_process(name):
                    pass
        with only_process(tmp_path / "runs" / "b"):
            pass
    assert list(folder.parent.iterdir()) == []
    (folder.parent / ".a.lock").write_text("99999999")  # what a killed process has left
    with pytest.raises(ZeroDivisionError):
        with only_process(folder):
            assert (folder.parent / ".a.lock").read_text() == str(os.getpid())
            raise ZeroDivisionError
    with only_process(folder):
        pass
    assert list(folder.parent.iterdir()) == []


def test_a_folder_that_cannot_be_locked_is_left_to_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with only_process(tmp_path / "file" / "a"):
        pass
