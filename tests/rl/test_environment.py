"""The environment under TRL's own rules: its method is our tool schema, and reset makes an instance new."""

from collections.abc import Sequence
from typing import Any

import pytest

from autotools.schema import EventKind, Hit, ToolId, ToolSpec
from autotools.search.answer import NameIndex
from autotools.search.episode import SearchSettings
from autotools.search.prompt import SEARCH_TOOL, prompt_messages
from rl.curriculum import Curriculum, CurriculumOptions
from rl.environment import SearchEnvironment, environment_factory, prompt_rows

ROW = {"id": "p1", "query": "lyrics please", "targets": ["Music.song_box.lyrics"], "level": "I1", "prompt": []}


@pytest.fixture
def environment(ten_tools: list[ToolSpec], ten_names: NameIndex) -> SearchEnvironment:
    def search_batch(queries: Sequence[str], categories: Sequence[str | None], k: int) -> list[list[Hit]]:
        hits = [Hit(id=s.id, score=1.0, document=s.description) for s in ten_tools if s.id.category in categories]
        return [hits[:k]] * len(queries)

    curriculum = Curriculum(CurriculumOptions(), SearchSettings(top_k=2))
    return environment_factory(search_batch, ten_names, curriculum)()


def test_schema_that_trl_renders_is_the_one_we_prompt_with() -> None:
    from transformers.utils import get_json_schema

    assert get_json_schema(SearchEnvironment.search) == SEARCH_TOOL


def test_trl_sees_one_tool_and_no_reward() -> None:
    import inspect

    public = {n for n, _ in inspect.getmembers(SearchEnvironment, inspect.isfunction) if not n.startswith("_")}
    assert public == {"reset", "search"}


def test_reset_starts_anew(environment: SearchEnvironment) -> None:
    with pytest.raises(RuntimeError, match="reset"):
        environment.search("x")
    assert environment.reset(**ROW) is None  # a text would be appended to the prompt
    assert environment.search("lyrics", "Music").splitlines()[0] == "Music.song_box.lyrics: lyrics of a song"
    episode = environment.episode
    assert episode is not None
    assert (episode.task_id, episode.level) == ("p1", "I1")
    assert episode.targets == (ToolId(category="Music", tool="song_box", api="lyrics"),)
    assert [e.kind for e in episode.events] == [EventKind.SEARCH]
    assert len(episode.events[0].hits) == 2
    environment.reset(**{**ROW, "id": "p2"})
    assert environment.episode is not None
    assert environment.episode.task_id == "p2" and environment.episode.events == []


def test_search_without_a_category(environment: SearchEnvironment) -> None:
    environment.reset(**ROW)
    environment.search('a "quoted" é')
    assert environment.episode is not None
    assert environment.episode.events[0].query == 'a "quoted" é'
    assert environment.episode.events[0].category is None


def test_prompt_rows(ten_names: NameIndex) -> None:
    rows: list[dict[str, Any]] = [{"id": "p1", "query": "x", "targets": [], "level": ""}]
    assert prompt_rows(rows, ten_names, SearchSettings())[0]["prompt"] == prompt_messages("x")
    offered = prompt_rows(rows, ten_names, SearchSettings(offer_categories=True))[0]
    assert offered["prompt"] == prompt_messages("x", ["Music", "Travel", "Weather"])
    assert "prompt" not in rows[0]
