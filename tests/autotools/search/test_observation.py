"""What the policy is shown: every hit keeps its name, documents are cut, never names."""

from autotools.schema import Hit, ToolId
from autotools.search.observation import NOTHING_FOUND, ONE_CALL_NOTE, hits_text, unknown_category_text

FIND = ToolId(category="Travel", tool="hotel_desk", api="find")
SUN = ToolId(category="Weather", tool="sky", api="sunset")
HITS = [Hit(id=FIND, score=2.0, document="find a hotel by its name"), Hit(id=SUN, score=1.0, document="x" * 50)]


def test_one_line_per_hit_with_the_document_cut() -> None:
    assert hits_text(HITS, 24).splitlines() == [
        "Travel.hotel_desk.find: find a hotel by its name",
        "Weather.sky.sunset: " + "x" * 23 + "…",
    ]


def test_names_survive_any_budget() -> None:
    for chars in range(30):
        lines = hits_text(HITS, chars).splitlines()
        assert [line.partition(":")[0] for line in lines] == ["Travel.hotel_desk.find", "Weather.sky.sunset"]
        assert all(len(line.partition(": ")[2]) <= max(chars, 1) for line in lines)


def test_a_cut_leaves_no_blank_before_the_ellipsis() -> None:
    assert hits_text(HITS[:1], 6) == "Travel.hotel_desk.find: find…"


def test_no_document_no_hits_and_the_note() -> None:
    bare = Hit(id=FIND, score=1.0)
    assert hits_text([bare], 10) == "Travel.hotel_desk.find"
    assert hits_text([], 10) == NOTHING_FOUND
    assert hits_text([bare], 10, ONE_CALL_NOTE) == f"Travel.hotel_desk.find\n{ONE_CALL_NOTE}"
    assert hits_text([], 10, ONE_CALL_NOTE) == f"{NOTHING_FOUND}\n{ONE_CALL_NOTE}"


def test_unknown_category_names_near_ones() -> None:
    text = unknown_category_text("Traveling", ["Music", "Travel", "Weather"])
    assert "'Traveling'" in text and "Did you mean: Travel" in text
    assert "Did you mean" not in unknown_category_text("qqq", ["Music"])
    assert len(unknown_category_text("z" * 10_000, [])) < 200
