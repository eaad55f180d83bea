"""The switch from searching inside categories to searching everywhere: when, with which prompt, and what is saved."""

import json
from pathlib import Path

import pytest

from autotools.errors import ConfigError
from autotools.search.answer import NameIndex
from autotools.search.episode import SearchSettings
from autotools.search.prompt import GLOBAL_SEARCH_TOOL, SEARCH_TOOL, prompt_messages
from rl.curriculum import STATE, Curriculum, CurriculumOptions
from rl.environment import environment_factory

ROW = {"id": "p1", "query": "lyrics please", "targets": ["Music.song_box.lyrics"], "level": "I1"}


def make(mode: str = "offer", fraction: float = 0.3, **settings: int) -> Curriculum:
    return Curriculum(CurriculumOptions(mode=mode, fraction=fraction), SearchSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fraction", "total", "first_of_two"),
    [(0.3, 10, 3), (0.3, 56, 17), (0.3, 1, 0), (0.5, 3, 2), (0.5, 5, 2), (0, 4, 0), (1, 4, None)],
)  # 0.3 * 56 = 16.8; halves go to the even number, as Python rounds
def test_when_it_switches(fraction: float, total: int, first_of_two: int | None) -> None:
    curriculum = make(fraction=fraction)
    numbers = [curriculum.begin(step, total).number for step in range(total)]
    switch = total if first_of_two is None else first_of_two
    assert numbers == [1] * switch + [2] * (total - switch)
    assert curriculum.switch_step == switch


@pytest.mark.parametrize("fraction", [-0.1, 1.1])
def test_a_share_is_a_share(fraction: float) -> None:
    with pytest.raises(ConfigError, match=f"curriculum.fraction is {fraction}"):
        CurriculumOptions(fraction=fraction)


def test_off_changes_nothing() -> None:
    settings = SearchSettings(top_k=2)
    curriculum = Curriculum(CurriculumOptions(), settings)
    for step in (0, 9):
        phase = curriculum.begin(step, 10)
        assert (phase.number, phase.settings, phase.enforce) == (0, settings, False)


@pytest.mark.parametrize("mode", ["offer", "enforce"])
def test_what_an_episode_of_each_phase_looks_like(mode: str, ten_names: NameIndex) -> None:
    asked: list[str | None] = []

    def search_batch(queries, categories, k):
        asked.extend(categories)
        return [[]] * len(queries)

    curriculum = make(mode, 0.5, top_k=2)
    environment = environment_factory(search_batch, ten_names, curriculum)()
    seen = []
    for step in (0, 1):
        curriculum.begin(step, 2)
        environment.reset(**ROW)
        episode = environment.episode
        assert episode is not None and episode.settings.top_k == 2 and episode.meta == {"phase": step + 1}
        seen.append((list(episode.messages), episode.tools))
        environment.search("lyrics")
        environment.search("lyrics", "Travel")
    assert seen[0] == (prompt_messages("lyrics please", ["Music", "Travel", "Weather"]), [SEARCH_TOOL])
    assert seen[1] == (prompt_messages("lyrics please"), [GLOBAL_SEARCH_TOOL])
    first = ["Music", "Music"] if mode == "enforce" else [None, "Travel"]
    assert asked == [*first, None, None]


def saved(folder: Path, curriculum: Curriculum | None) -> Path:
    states = {STATE: {"args": {}, "attributes": curriculum.state()}} if curriculum else {}
    (folder / "trainer_state.json").write_text(json.dumps({"stateful_callbacks": states}))
    return folder


def test_state_goes_through_a_checkpoint(tmp_path: Path) -> None:
    before, after = make("enforce", 0.5), make("enforce", 0.5)
    before.begin(3, 10)
    after.restore(saved(tmp_path, before))
    assert after.state() == before.state() == {"mode": "enforce", "fraction": 0.5, "total_steps": 10, "phase": 1}
    assert after.phase == before.phase and after.switch_step == 5
    assert after.begin(5, 10).number == 2
    with pytest.raises(ConfigError, match="max_steps is 20, but the curriculum began with 10"):
        after.begin(6, 20)


@pytest.mark.parametrize(
    ("other", "key"),
    [(make("offer", 0.5), "curriculum.mode is offer"), (make("enforce", 0.4), "curriculum.fraction is 0.4"),
     (make("off"), "curriculum.mode is off")],
)  # fmt: skip
def test_another_curriculum_is_refused(other: Curriculum, key: str, tmp_path: Path) -> None:
    before = make("enforce", 0.5)
    before.begin(0, 10)
    with pytest.raises(ConfigError, match=key):
        other.restore(saved(tmp_path, before))


def test_a_checkpoint_without_a_curriculum_goes_on_without_one(tmp_path: Path) -> None:
    make("off").restore(saved(tmp_path, None))
    with pytest.raises(ConfigError, match="curriculum.mode is offer, but .* was made with off"):
        make("offer").restore(saved(tmp_path, None))


def test_transformers_saves_the_state_with_its_own() -> None:
    from transformers.trainer_callback import TrainerState

    from rl.curriculum import curriculum_callback

    curriculum = make("offer", 0.5)
    callback = curriculum_callback(curriculum)
    curriculum.begin(7, 10)
    state = TrainerState(stateful_callbacks=[callback])
    assert state.stateful_callbacks == {STATE: {"args": {}, "attributes": curriculum.state()}}


def test_every_category_of_the_targets_may_be_chosen(ten_names: NameIndex) -> None:
    """Two categories: the policy's own choice among them is not touched, in either order."""
    asked: list[str | None] = []

    def search_batch(queries, categories, k):
        asked.extend(categories)
        return [[]] * len(queries)

    curriculum = make("enforce", 1)
    environment = environment_factory(search_batch, ten_names, curriculum)()
    environment.reset(**{**ROW, "targets": ["Weather.sky.sunset", "Music.radio.stream"]})
    for category in ("Music", "Weather", "Travel", "Music"):
        environment.search("x", category)
    assert asked == ["Music", "Weather", "Weather", "Music"]
