"""A hand-made world of ten tools and a few tasks, so that these tests do not depend on the tool world's build."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotools.schema import Task, ToolCall, ToolId, ToolParameter, ToolSpec, VerifiedFunction

TOOLS = [
    ("Travel", "hotel_desk", "find", "find a hotel by name", ("name",)),
    ("Travel", "hotel_desk", "price_now", "current price of a hotel", ("hotel_id",)),
    ("Travel", "hotel_desk", "price_past", "past price of a hotel", ("hotel_id", "month")),
    ("Travel", "flight_board", "price_now", "current price of a flight", ("flight_id",)),
    ("Travel", "flight_board", "price_past", "past price of a flight", ("flight_id", "month")),
    ("Weather", "station_net", "level_now", "current level of a station", ("station_id",)),
    ("Weather", "station_net", "level_past", "past level of a station", ("station_id", "month")),
    ("Weather", "storm_watch", "alert_on", "turn on the alert of a storm", ("storm_id",)),
    ("Weather", "storm_watch", "alert_off", "turn off the alert of a storm", ("storm_id",)),
    ("Music", "song_box", "find", "find a song by name", ("name",)),  # no train task uses this category
]
OBJECTS = {"hotel": "inn", "flight": "plane", "station": "post", "storm": "gale", "song": "tune"}


def specs() -> list[ToolSpec]:
    return [
        ToolSpec(
            id=ToolId(category=category, tool=tool, api=api),
            tool_name=tool.replace("_", " "),
            api_name=api,
            description=description,
            path=f"/{tool}/{api}",
            parameters=tuple(ToolParameter(name=name, required=True) for name in parameters),
            response={"value": "string"},
        )
        for category, tool, api, description, parameters in TOOLS
    ]


def functions() -> list[VerifiedFunction]:
    out = []
    for spec in specs():
        name = f"{spec.id.tool}_{spec.id.api}"
        arguments = ", ".join(f"{p.name}: str" for p in spec.parameters)
        body = f'    """{spec.description}"""\n    return _request({spec.path!r})\n'
        source = f"def {name}({arguments}) -> dict:\n{body}"
        out.append(VerifiedFunction(tool=spec.id, name=name, source=source, verified=True, checks=1))
    return out


def task(task_id: str, split: str, *numbers: int) -> Task:
    """A task whose targets are ``TOOLS[numbers]``. Three kinds of query per target can be told apart by their words."""
    chosen = [specs()[number] for number in numbers]
    nouns = [spec.description.split(" by ")[0].split()[-1] for spec in chosen]
    calls = [ToolCall(tool=spec.id, arguments={p.name: "X1" for p in spec.parameters}) for spec in chosen]
    program = "".join(
        f"r{i} = {spec.id.tool}_{spec.id.api}({', '.join(f'{p.name}={chr(34)}X1{chr(34)}' for p in spec.parameters)})\n"
        for i, spec in enumerate(chosen)
    )
    return Task(
        id=task_id,
        suite="toolworld",
        split=split,
        level="I1" if len(numbers) == 1 else "I2",
        query=f"{task_id}: " + " and ".join(f"what about the {OBJECTS[noun]} X1" for noun in nouns),
        targets=tuple(spec.id for spec in chosen),
        calls=tuple(calls),
        program=program + "finish(r0)\n",
        answer=1,
        meta={
            "clauses": {
                str(s.id): f"what the {OBJECTS[n]} costs in January" for s, n in zip(chosen, nouns, strict=True)
            },
            "objects": {str(s.id): n for s, n in zip(chosen, nouns, strict=True)},
            "good_query": {str(s.id): s.description for s in chosen},
        },
    )


@pytest.fixture
def toy() -> SimpleNamespace:
    """The makers of this file (test modules cannot import a conftest under --import-mode=importlib)."""
    return SimpleNamespace(specs=specs(), functions=functions(), task=task)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """World folder: 24 train, 6 dev, 2 test tasks."""
    folder = tmp_path / "world"
    (folder / "tasks").mkdir(parents=True)
    pairs = [(0, 1), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7), (6, 8), (7, 0)]
    train = [task(f"train-{n}", "train", *((n % 9,) if n < 16 else pairs[n - 16])) for n in range(24)]
    dev = [task(f"dev-{n}", "dev", *((n,) if n < 4 else pairs[n])) for n in range(6)]
    test = [task("test-0", "test", 9), task("test-1", "test", 0, 9)]
    rows = {"tools": specs(), "functions": functions(), "tasks/train": train, "tasks/dev": dev, "tasks/test": test}
    for name, items in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(item.model_dump_json() + "\n" for item in items))
    (folder / "manifest.json").write_text(json.dumps({"stage": "toolworld"}))
    return folder
