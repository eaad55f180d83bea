"""Final selections in every layout that a model writes, against hand-made readings."""

import random
import time

import pytest

from autotools.schema import ToolId
from autotools.search.answer import NameIndex, parse_tool_list
from autotools.search.prompt import answer_text

A = ToolId(category="Travel", tool="hotel_desk", api="find")
B = ToolId(category="Video, Images", tool="clip", api="cut")
C = ToolId(category="Location.Maps", tool="geo", api="near")
D = ToolId(category="Travel", tool="hotel_desk", api="Find")
E = ToolId(category="Weather", tool="sky", api="sunset")
NAMES = NameIndex([A, B, C, D, E])
TEXT = {i: str(i) for i in (A, B, C, D, E)}


def read(block: str) -> tuple[tuple[ToolId, ...], tuple[str, ...]] | None:
    return parse_tool_list(f"<tool_list>{block}</tool_list>", NAMES)


@pytest.mark.parametrize(
    "block",
    [
        "Travel.hotel_desk.find, Weather.sky.sunset",
        "Travel.hotel_desk.find,Weather.sky.sunset",
        "  Travel.hotel_desk.find ,\t Weather.sky.sunset  ",
        "Travel.hotel_desk.find\nWeather.sky.sunset",
        "Travel.hotel_desk.find\r\nWeather.sky.sunset\r\n",
        "Travel.hotel_desk.find; Weather.sky.sunset",
        "- Travel.hotel_desk.find\n- Weather.sky.sunset",
        "* Travel.hotel_desk.find\n• Weather.sky.sunset",
        "1. Travel.hotel_desk.find\n2. Weather.sky.sunset",
        "1) Travel.hotel_desk.find, 2) Weather.sky.sunset",
        "(1) Travel.hotel_desk.find\n(2) Weather.sky.sunset",
        "1.Travel.hotel_desk.find\n12:Weather.sky.sunset",
        '"Travel.hotel_desk.find", "Weather.sky.sunset"',
        "['Travel.hotel_desk.find', 'Weather.sky.sunset']",
        "[`Travel.hotel_desk.find`, `Weather.sky.sunset`]",
        "**Travel.hotel_desk.find**\n**Weather.sky.sunset**.",
        '"Travel.hotel_desk.find".\n"Weather.sky.sunset",',
        "{Travel.hotel_desk.find}, (Weather.sky.sunset)",
        "Travel.hotel_desk.find, Weather.sky.sunset.",
        "Travel.hotel_desk.find, Travel.hotel_desk.find, Weather.sky.sunset, Weather.sky.sunset",
        "Travel.hotel_desk.find, WEATHER.Sky.sunset",
        ",,Travel.hotel_desk.find,,\n\n,Weather.sky.sunset,",
        "+ Travel.hotel_desk.find\n– Weather.sky.sunset",
        "[1] Travel.hotel_desk.find\n[2] Weather.sky.sunset",
        "- 1. Travel.hotel_desk.find\n- [x] Weather.sky.sunset",
        "“Travel.hotel_desk.find”, ‘Weather.sky.sunset’",
        "Travel.hotel_desk.find, and Weather.sky.sunset",
        "tool_list: Travel.hotel_desk.find, Weather.sky.sunset",
        '{"tool_list": ["Travel.hotel_desk.find", "Weather.sky.sunset"]}',
        '```json\n["Travel.hotel_desk.find",\n "Weather.sky.sunset"]\n```',
        "[Travel].[hotel_desk].[find], [Weather].[sky].[sunset]",  # as the paper's prompt writes a name
        "Travel. hotel_desk .find, Weather.sky . sunset",
    ],
)
def test_layouts_of_the_same_two_names(block: str) -> None:
    assert read(block) == ((A, E), ())


@pytest.mark.parametrize(
    ("block", "found", "unknown"),
    [
        ("Video, Images.clip.cut", (B,), ()),
        ("Weather.sky.sunset, Video, Images.clip.cut, Location.Maps.geo.near", (E, B, C), ()),
        ('"Video, Images.clip.cut", "Travel.hotel_desk.find"', (B, A), ()),
        ("Video, Travel.hotel_desk.find", (A,), ("Video",)),
        ("Images.clip.cut", (), ("Images.clip.cut",)),
        ("Travel.hotel_desk.Find", (D,), ()),
        ("travel.hotel_desk.find", (), ("travel.hotel_desk.find",)),  # two tools differ only in case: neither is meant
        ("hotel_desk.find, Weather.sky.sunset", (E,), ("hotel_desk.find",)),
        ("Weather.sky.sunset, nonsense, nonsense", (E,), ("nonsense",)),
        ("Weather.sky.sunset2", (), ("Weather.sky.sunset2",)),
        ("", (), ()),
        (" \n , ; ", (), ()),
        ("<b>Weather.sky.sunset", (), ("b>Weather.sky.sunset",)),
    ],
)
def test_names_are_read_strictly(block: str, found: tuple[ToolId, ...], unknown: tuple[str, ...]) -> None:
    assert read(block) == (found, unknown)


ODD = [
    ToolId(category="(Beta) Maps [old]", tool="geo", api="near"),
    ToolId(category="007.Agents", tool="bond", api="call"),
    ToolId(category="1. Things", tool="geo", api="near"),
    ToolId(category="+ more, and so on", tool="a", api="b"),
    ToolId(category="Monitoring Tools", tool="ping", api="check"),
]


@pytest.mark.parametrize("layout", ["{}", " {} , x", "- {}", "2) {}", '"{}"', "x\n`{}`"])
def test_names_that_begin_or_end_like_layout(layout: str) -> None:
    for tool_id in ODD:
        read = parse_tool_list(f"<tool_list>{layout.format(tool_id)}</tool_list>", NameIndex(ODD))
        assert read == ((tool_id,), ("x",) if "x" in layout else ())


LOGIN = ToolId(category="spotify", tool="spotify", api="login")
FILES = ToolId(category="file_system", tool="file_system", api="show_file")


def test_apps_have_names_of_two_parts() -> None:
    names = NameIndex([LOGIN, FILES, A])
    for block in ("spotify.login, file_system.show_file", "- spotify.spotify.login\n- `File_System.show_file`"):
        assert parse_tool_list(f"<tool_list>{block}</tool_list>", names) == ((LOGIN, FILES), ())
    assert names.find("hotel_desk.find") is None  # its category is not its tool
    twin = ToolId(category="Spotify", tool="spotify", api="login")
    assert NameIndex([LOGIN, twin]).find("spotify.login") is None  # two apps: neither is meant
    dotted = ToolId(category="a.spotify", tool="spotify", api="login")
    assert NameIndex([LOGIN, dotted]).find("a.spotify.spotify.login") == dotted


def test_blocks() -> None:
    assert parse_tool_list("Travel.hotel_desk.find", NAMES) is None
    assert parse_tool_list("", NAMES) is None
    assert parse_tool_list("<tool_list>Weather.sky.sunset", NAMES) == ((E,), ())
    assert parse_tool_list("<tool_list>Travel.hotel_desk.find</tool_list> and Weather.sky.sunset", NAMES) == ((A,), ())
    two = "<tool_list>Travel.hotel_desk.find</tool_list>, no: <tool_list>Weather.sky.sunset</tool_list>"
    assert parse_tool_list(two, NAMES) == ((E,), ())
    assert parse_tool_list(two.replace("</tool_list>, no", ""), NAMES) == ((E,), ())
    assert parse_tool_list(two + "<tool_list></tool_list>", NAMES) == ((), ())


def test_what_the_expert_writes_is_read_back() -> None:
    rng = random.Random(0)
    for _ in range(200):
        chosen = rng.sample([A, B, C, D, E], rng.randint(0, 5))
        assert parse_tool_list(answer_text([TEXT[i] for i in chosen]), NAMES) == (tuple(chosen), ())


def test_index_of_one_corpus() -> None:
    assert len(NAMES) == 5
    assert NAMES.categories == ["Location.Maps", "Travel", "Video, Images", "Weather"]
    assert NAMES.find("Travel.hotel_desk.find") == A
    assert NAMES.find("weather.SKY.sunset") == E
    assert NAMES.find("travel.HOTEL_desk.find") is None and NAMES.find("") is None


def test_a_hostile_answer_is_read_quickly() -> None:
    start = time.perf_counter()
    for block in (
        "," * 20_000,
        "a," * 10_000,
        "<tool_list>" * 5_000,
        "1. " * 10_000,
        " " * 20_000,
        f"[a{' ' * 20_000}. b",
    ):
        read(block)
    assert time.perf_counter() - start < 2.0
