"""What a trajectory says of itself, against a plain loop; ids as keys."""

import pickle
import random

import pytest

from autotools.schema import Event, EventKind, StopReason, ToolId, Trajectory

# two tools share an api name, so that a comparison of api names alone is not enough
IDS = [ToolId(category="C", tool=f"t{i // 2}", api=f"a{i % 3}") for i in range(12)]


def trajectory(targets: list[ToolId], shown: list[list[ToolId]]) -> Trajectory:
    events = [Event(kind=EventKind.SEARCH, text="", query="q", hits=tuple(hits)) for hits in shown]
    return Trajectory(
        task_id="x", query="q", targets=tuple(targets), events=tuple(events), stop_reason=StopReason.TURN_LIMIT
    )


def plain_loop(targets: list[ToolId], shown: list[list[ToolId]]) -> list[list[str]]:
    seen: list[str] = []
    out = []
    for hits in shown:
        names = {str(hit) for hit in hits}
        new = [str(t) for t in dict.fromkeys(targets) if str(t) in names and str(t) not in seen]
        seen += new
        out.append(new)
    return out


def test_first_found_by_hand() -> None:
    a, b, c = IDS[0], IDS[1], IDS[2]
    record = trajectory([b, a, b], [[c, a, b, a], [b], []])
    assert record.first_found() == [[b, a], [], []] and record.first_found_at() == [[0, 1], [], []]
    assert trajectory([], [[a]]).first_found() == [[]]


def test_first_found_equals_the_plain_loop() -> None:
    rng = random.Random(0)
    for _ in range(300):
        targets = rng.choices(IDS, k=rng.randint(0, 5))  # may repeat
        shown = [rng.choices(IDS, k=rng.randint(0, 6)) for _ in range(rng.randint(0, 5))]
        record = trajectory(targets, shown)
        assert [[str(t) for t in new] for new in record.first_found()] == plain_loop(targets, shown)
        assert [[targets[i] for i in new] for new in record.first_found_at()] == record.first_found()


def test_ids_are_keys() -> None:
    first, second = IDS[0], ToolId(category="C", tool="t0", api="a0")
    assert first is not second and first == second and hash(first) == hash(second)
    assert pickle.loads(pickle.dumps(first)) == first
    for other in (
        ToolId(category="D", tool="t0", api="a0"),
        ToolId(category="C", tool="t1", api="a0"),
        ToolId(category="C", tool="t0", api="a1"),
    ):
        assert first != other and len({first, second, other}) == 2
    assert first != str(first) and str(first) != first
    with pytest.raises(ValueError, match="frozen"):
        first.api = "a9"  # type: ignore[misc]
