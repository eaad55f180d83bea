"""Task set: shares, splits that are really apart, wording, and programs that give the records' answer."""

import random
from collections import Counter
from itertools import combinations

import pytest

from autotools.errors import ToolWorldError
from autotools.schema import Task
from toolworld.operations import execute
from toolworld.tasks import LEVEL_SHARES, SIZES, check_splits, held_out, make_tasks
from toolworld.wording import TEMPLATES
from toolworld.world import World, build_world

SEED = 0


@pytest.fixture(scope="module")
def world() -> World:
    return build_world(SEED)


@pytest.fixture(scope="module")
def tasks(world: World) -> list[Task]:
    return make_tasks(world, SEED)


def test_sizes_and_level_shares(tasks: list[Task]) -> None:
    assert len(tasks) == sum(SIZES.values()) >= 3600
    assert len({task.id for task in tasks}) == len(tasks)
    for split in ("train", "dev", "test"):
        levels = Counter(task.level for task in tasks if task.split == split)
        for level, share in LEVEL_SHARES.items():
            assert levels[level] / levels.total() == pytest.approx(share, abs=0.01)
    three = [len(task.targets) == 3 for task in tasks if task.level == "I3" and task.split == "train"]
    assert sum(three) / len(three) == pytest.approx(0.2, abs=0.01)


def test_levels_mean_what_they_say(tasks: list[Task]) -> None:
    for task in tasks:
        categories = {target.category for target in task.targets}
        assert len(set(task.targets)) == len(task.targets) == task.meta["num_targets"]
        assert [call.tool for call in task.calls] == list(task.targets)
        depends = any(str(v).startswith("$") for call in task.calls for v in call.arguments.values())
        match task.level:
            case "I1":
                assert len(task.targets) == 1
            case "I2":
                assert len(task.targets) == 2 and len(categories) == 1
            case "I3":
                assert len(categories) >= 2 and depends


def test_same_seed_same_tasks_other_seed_other_tasks(world: World) -> None:
    small = {"train": 40, "test": 20, "unseen": 10}
    first, again, other = (make_tasks(world, seed, small) for seed in (5, 5, 6))
    assert first == again and first != other


def test_splits_are_apart_recounted(world: World, tasks: list[Task]) -> None:
    """Not by ``check_splits``: counted anew from targets, templates and texts."""
    pairs = {"train": set(), "dev": set(), "test": set()}
    for task in tasks:
        pairs[task.split].update(frozenset(map(str, pair)) for pair in combinations(task.targets, 2))
    assert not pairs["test"] & (pairs["train"] | pairs["dev"])
    assert pairs["dev"] and pairs["test"]
    templates = {s: {t.template for t in tasks if t.split == s} for s in pairs}
    assert not templates["test"] & (templates["train"] | templates["dev"])
    energy = [task for task in tasks if any(t.category == "Energy" for t in task.targets)]
    assert {task.split for task in energy} == {"test"} and {task.meta["domain"] for task in energy} == {"unseen"}
    shown = " ".join(task.query for task in tasks if task.split == "train")
    new = {record for task in tasks if task.split != "train" for record in task.meta["records"]}
    names = [r["name"] for table in world.tables.values() for r in table.values() if r["id"] in new]
    assert names and not [name for name in names if name in shown]


def test_every_known_tool_occurs_in_train(world: World, tasks: list[Task]) -> None:
    count = Counter(target for task in tasks if task.split == "train" for target in task.targets)
    known = [ref.id for ref in world.refs.values() if not ref.domain.test_only]
    assert min(count[tool] for tool in known) >= 8


@pytest.mark.parametrize("what", ["pair", "template", "domain", "record", "twice"])
def test_check_splits_catches_a_leak(world: World, tasks: list[Task], what: str) -> None:
    train = next(t for t in tasks if t.split == "train" and len(t.targets) == 2)
    test = next(t for t in tasks if t.split == "test" and t.meta["domain"] == "seen" and len(t.targets) == 2)
    unseen = next(t for t in tasks if t.meta["domain"] == "unseen")
    leak = {
        "pair": train.model_copy(update={"targets": test.targets}),
        "template": train.model_copy(update={"template": test.template}),
        "domain": unseen.model_copy(update={"split": "train", "template": train.template}),
        "record": train.model_copy(update={"meta": train.meta | {"records": ["HTL-040"]}}),
        "twice": train,
    }[what]
    rest = tasks if what == "twice" else [t for t in tasks if t is not train]
    if what == "record":
        rest = [*rest, test.model_copy(update={"query": "x", "meta": test.meta | {"records": ["HTL-040"]}})]
    check_splits(tasks, world, SEED)
    with pytest.raises(ToolWorldError):
        check_splits([*rest, leak], world, SEED)


def test_held_out_is_symmetric_and_about_a_quarter(world: World) -> None:
    ids = list(world.refs)
    share = [held_out((a, b), SEED) for a, b in combinations(ids, 2)]
    assert sum(share) / len(share) == pytest.approx(0.25, abs=0.02)
    assert all(held_out((a, b), 1) == held_out((b, a), 1) for a, b in combinations(ids[:20], 2))


def test_template_counts_and_no_template_in_both_splits() -> None:
    for shape, split in TEMPLATES.items():
        assert len(set(split["train"])) == 16 and len(set(split["test"])) == 4, shape
        assert not set(split["train"]) & set(split["test"])


def test_request_hides_ids_that_must_be_found(world: World, tasks: list[Task]) -> None:
    """An id is in the text exactly if no finder is called for it; tool names never are."""
    for task in tasks:
        for call in task.calls:
            for name, value in call.arguments.items():
                if str(value).startswith("$"):
                    assert world.refs[task.targets[0]].operation.kind == "find"
                elif name.endswith("_id") or name == "name":
                    assert value in task.query
        assert "_" not in task.query and "{" not in task.query


def test_programs_give_the_answers_of_the_records(world: World, tasks: list[Task]) -> None:
    for task in random.Random(1).sample(tasks, 600):
        assert run_in_process(world, task) == task.answer, task.query


def run_in_process(world: World, task: Task):
    """Our own templates only; model-written programs always run in a child process."""
    state, answers = world.initial_state(), []

    def function(ref):
        def call(**arguments):
            named = {{"x_currency": "X-Currency"}.get(k, k): v for k, v in arguments.items()}
            status, body = execute(state, ref.domain, ref.resource, ref.operation, named)
            assert status == 200, body
            return body

        return call

    names = {ref.function: function(ref) for ref in world.refs.values()}
    exec(task.program, names | {"finish": answers.append})
    assert len(answers) == 1
    return answers[0]


def test_meta_speaks_of_every_target_and_quotes_no_record(world: World, tasks: list[Task]) -> None:
    documented = {str(ref.id): set(ref.operation.description.split()) for ref in world.refs.values()}
    names = {record["name"] for table in world.tables.values() for record in table.values()}
    for task in tasks:
        ids = [str(target) for target in task.targets]
        for key in ("clauses", "objects", "good_query"):
            assert list(task.meta[key]) == ids
        for tool in ids:
            assert set(task.meta["good_query"][tool].split()) <= documented[tool]
            assert task.meta["objects"][tool] in documented[tool]
            words = task.meta["clauses"][tool].split()
            assert not any(f"{a} {b}" in names for a, b in zip(words, words[1:], strict=False))
            assert not any("-0" in word for word in words)
