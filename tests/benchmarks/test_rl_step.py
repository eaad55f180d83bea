"""The step benchmark: its stopwatch against sums on paper, and its timers against the code that they are put around."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
BENCH = runpy.run_path(str(ROOT / "benchmarks" / "rl_step.py"), run_name="rl_step")
KEYS = ["--data", "D", "--tools", "W", "--model", "M", "--output_dir", "O"]


class Clock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


def test_a_part_does_not_hold_the_parts_inside_it() -> None:
    clock = Clock()
    watch = BENCH["Stopwatch"](clock)
    search = watch.timed(lambda: clock.work(2), "search")

    def credit(fails: bool = False) -> str:
        clock.work(1)
        search()
        clock.work(4)
        if fails:
            raise ValueError
        return "done"

    timed = watch.timed(credit, "credit")
    clock.work(100)
    watch.start()  # what came before is forgotten
    clock.work(8)
    assert timed() == "done"
    with pytest.raises(ValueError):
        timed(True)  # a part that fails is closed, too
    search()
    clock.work(16)
    watch.stop()
    measured = {part: seconds for part, seconds in watch.seconds.items() if seconds}
    assert measured == {"credit": 10, "search": 6, BENCH["OTHER"]: 24} and watch.total == 40
    assert watch.calls["search"] == 3 and watch.calls["credit"] == 2


def test_a_function_may_belong_to_the_part_that_called_it() -> None:
    clock = Clock()
    watch = BENCH["Stopwatch"](clock)
    forward = watch.timed(lambda: clock.work(1), BENCH["OTHER"], {"rewards": "figures"})
    forward()
    watch.timed(forward, "rewards")()
    watch.stop()
    assert watch.seconds["figures"] == 1 == watch.seconds[BENCH["OTHER"]] and watch.seconds["rewards"] == 0


def test_every_timer_finds_what_it_is_put_around(monkeypatch: pytest.MonkeyPatch) -> None:
    import rl.run
    from training import runtime

    for module, name in ((rl.run, "_trainer"), (rl.run, "alarm_callback"), (runtime, "metrics_callback")):
        monkeypatch.setattr(module, name, getattr(module, name))
    parts = set()

    class Watch(BENCH["Stopwatch"]):
        def patch(self, owner: Any, names: str, part: str, inside: dict[str, str] | None = None) -> None:
            assert all(callable(getattr(owner, name)) for name in names.split())
            parts.update([part, *(inside or {}).values()])

    BENCH["put_timers"](Watch(), 0)
    assert parts | {"metrics file, alarms"} == set(BENCH["PARTS"])


def test_keys_of_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert BENCH["main"]([*KEYS, "--steps", "6", "--row", "no_esm", "--dry_run"]) == 0
    said = capsys.readouterr().out
    for words in (
        "--num_iterations 2",
        "--max_steps 6",
        "--credit.esm false",
        "--curriculum.mode enforce",
        "--model M",
    ):
        assert words in said
    assert "label" not in said and "--data.expert" not in said
    with pytest.raises(ConfigError, match="no row 'no_such'"):
        BENCH["main"]([*KEYS, "--row", "no_such", "--dry_run"])
    with pytest.raises(ConfigError, match="warm_up is 9 of 6 steps"):
        BENCH["main"]([*KEYS, "--steps", "6", "--warm_up", "9"])
