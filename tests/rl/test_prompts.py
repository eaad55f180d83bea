"""Rows of prompts that pass but would end a run in its middle, or could never be solved."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotools.schema import StopReason, ToolId
from autotools.search.answer import NameIndex
from autotools.search.episode import SearchSettings
from rl.curriculum import Curriculum, CurriculumOptions
from rl.environment import environment_factory, prompt_rows
from rl.prompts import read_prompts

ROW = {"id": "p1", "query": "lyrics", "targets": ["Music.song_box.lyrics"], "level": "I1"}


def read(folder: Path, names: NameIndex, *rows: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    (folder / "rl").mkdir()
    (folder / "rl" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_prompts(folder, names)


def test_targets_get_the_corpus_own_spelling(tmp_path: Path, ten_names: NameIndex) -> None:
    """Found whatever its case, but a search shows the corpus's own id: as written, no rollout could ever see it."""
    twice = ["music.Song_Box.LYRICS", "Music.song_box.lyrics", "Weather.sky.sunset"]
    (row,), rejects = read(tmp_path, ten_names, {**ROW, "targets": twice})
    assert row["targets"] == ["Music.song_box.lyrics", "Weather.sky.sunset"] and not rejects


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"level": 3}, "'level' is not a text"),
        ({"level": ["I1"]}, "'level' is not a text"),
        ({"query": "a \ud800 song"}, "'query' holds half a character"),
        ({"id": "\udc00"}, "'id' holds half a character"),
        ({"level": "\ud800"}, "'level' holds half a character"),
        ({"targets": ["Music.song_box.\ud800"]}, "target not in the corpus"),
    ],
)
def test_what_a_trajectory_could_not_hold_is_set_aside(
    change: dict[str, Any], reason: str, tmp_path: Path, ten_names: NameIndex
) -> None:
    kept, (reject,) = read(tmp_path, ten_names, ROW, {**ROW, **change})
    assert kept == [ROW] and reject["line"] == 2 and reason in reject["reason"]
    json.dumps(reject, ensure_ascii=False).encode()  # it is written, and told


def test_other_columns_of_any_type_do_no_harm(tmp_path: Path, ten_names: NameIndex) -> None:
    """Arrow wants one type per column, and the policy needs none of them."""
    from datasets import Dataset

    rows = [{**ROW, "note": 3}, {**ROW, "note": "x", "level": None}, {**ROW, "note": [{"a": 1}], "reward": {}}]
    rows += [{key: ROW[key] for key in ("id", "query", "targets")}]
    kept, rejects = read(tmp_path, ten_names, *rows)
    assert len(kept) == 4 and not rejects
    curriculum = Curriculum(CurriculumOptions(), SearchSettings())
    environment = environment_factory(lambda *_: [], ten_names, curriculum)()
    for row, level in zip(
        Dataset.from_list(prompt_rows(kept, ten_names, SearchSettings())), ["I1", "", "I1", ""], strict=True
    ):
        environment.reset(**row)
        assert environment.episode is not None
        environment.episode.step("bye")
        trajectory = environment.episode.trajectory()
        assert (trajectory.level, trajectory.stop_reason) == (level, StopReason.EMPTY_ANSWER)
        assert trajectory.targets == (ToolId(category="Music", tool="song_box", api="lyrics"),)
