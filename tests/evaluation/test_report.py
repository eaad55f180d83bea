"""The report of a made-up run, read by a real HTML parser: self-contained, inert, and complete."""

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from autotools.errors import AutoToolsError, DataError
from evaluation import report
from evaluation.report_charts import curve, line_chart, moving_average, nice_ticks
from evaluation.report_sections import count_blocks
from evaluation.report_trajectories import choose, read_rows, view

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr", "path", "circle"}
FETCHING = {"src", "srcset", "data", "action", "poster", "background"}  # href is checked apart


class Page(HTMLParser):
    """Collects tags, attributes and text, and fails on a tag that is closed wrongly."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.pieces = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
            self.open.pop()

    def handle_data(self, data):
        self.pieces.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.pieces))


@pytest.fixture(scope="module")
def page(made_run) -> Page:
    assert report.main(["--run", str(made_run), "--seed_runs", str(made_run)]) == 0
    return Page((made_run / "report.html").read_text(encoding="utf-8"))


def test_nothing_is_fetched_and_nothing_runs(page):
    assert not {"script", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), f"<{tag} {name}>"
        assert name not in FETCHING, f"<{tag} {name}={value!r}>"
        if name in ("href", "xlink:href"):
            assert value.startswith(("data:", "#")), value
    # The style sheet cannot load anything either.
    assert not re.search(r"url\(|@import", "".join(page.pieces))


def test_hostile_text_is_shown_as_text(made_run, tmp_path):
    # In the run's first step the request, the query, the raw turn, the observation, a reward's name, a name in the
    # selection and the command are all hostile: the parser must see every one of them as text and no such tag.
    run = tmp_path / "run"
    shutil.copytree(made_run, run)
    lines = (run / "rl" / "trajectories.jsonl").read_text().splitlines(keepends=True)
    (run / "rl" / "trajectories.jsonl").write_text(lines[0])
    report.main(["--run", str(run)])
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    assert page.tags.count("article") == 1 and not {"script", "img"} & set(page.tags)
    evil = '<script>alert("x")</script> & <img src=http://evil.example/x.png>'
    assert page.text.count(evil) >= 3 + 5  # three commands; request, query, turn, observation, reward at the least
    assert f"“{evil}”" in page.text


def test_every_section_has_its_content(page):
    text = page.text
    pieces = "What ran|rl command|torch 2.13.0|64.2|130.6|108|3,100|functions verified|Is searching needed?|one shot f1"
    pieces += "|SFT loss|SRecall|Searches per rollout|Answered share|after − before|n = 26|Unseen: a domain"
    pieces += "|Six whole trajectories|cannot show|Several seeds|" + "0" * 40
    for piece in pieces.split("|"):
        assert piece in text, piece
    assert page.tags.count("article") == 6
    assert page.tags.count("figure") == 5
    for outcome in ("complete success", "incomplete search", "complete search, wrong selection"):
        assert outcome in text


def test_numbers_on_the_page_are_those_of_the_metrics_file(page, made_run):
    metrics = json.loads((made_run / "eval" / "metrics.json").read_text())
    for table in metrics["policies"].values():
        for group in ("overall", "I1", "I2", "I3", "unseen"):
            low, high = table[group]["intervals"]["f1"]
            assert f"{table[group]['f1']:.3f}" in page.text and f"{low:.2f} to {high:.2f}" in page.text
    assert f"{metrics['paired']['after-before']['overall']['f1']['diff']:+.3f}" in page.text


def test_targets_are_marked_by_more_than_colour(page):
    assert "target, first found here" in page.text
    style = next(piece for piece in page.pieces if ".hits li.t" in piece)
    assert 'content:"✓"' in style and "text-decoration:underline" in style


@pytest.mark.parametrize("missing", ["world", "sft", "rl", "eval", "summary.json", "all"])
def test_a_missing_part_is_named_and_not_fatal(made_run, tmp_path, missing):
    run = tmp_path / "run"
    shutil.copytree(made_run, run)
    for path in list(run.iterdir()):
        if missing in ("all", path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert report.main(["--run", str(run)]) == 0
    text = Page((run / "report.html").read_text(encoding="utf-8")).text
    expected = {"world": "world/manifest.json is missing", "sft": "sft/metrics.jsonl is missing",
                "rl": "rl/trajectories.jsonl is missing", "eval": "eval/metrics.json is missing",
                "summary.json": "No wall times", "all": "eval/metrics.json is missing"}  # fmt: skip
    assert expected[missing] in text


def test_broken_files_are_named(made_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(made_run, run)
    (run / "world" / "manifest.json").write_text("{")
    (run / "rl" / "trajectories.jsonl").write_text('{"step": 1}\n{"step": 2, "trajectory": {}}\n')
    (run / "rl" / "metrics.jsonl").write_text('{"step": 1, "other": 2}\n')
    report.main(["--run", str(run)])
    text = Page((run / "report.html").read_text(encoding="utf-8")).text
    assert "world/manifest.json cannot be read" in text
    assert "2 of 2 rows of rl/trajectories.jsonl are not trajectory records" in text
    assert "rl/metrics.jsonl has no key srecall" in text
    (run / "eval" / "metrics.json").write_text('{"policies": {"a": {"overall": {"f1": "x"}}}}')
    with pytest.raises(AutoToolsError, match="unexpected form"):
        report.main(["--run", str(run)])
    with pytest.raises(DataError, match="no run folder"):
        report.main(["--run", str(tmp_path / "nowhere")])


def test_the_same_run_gives_the_same_bytes(made_run, tmp_path):
    for name in ("a.html", "b.html"):
        report.main(["--run", str(made_run), "--out", str(tmp_path / name)])
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_choice_of_six(made_run):
    rows, bad = read_rows([json.loads(line) for line in (made_run / "rl" / "trajectories.jsonl").open()])
    assert bad == 0
    chosen = choose(rows)
    assert len(chosen) == 6 and len({row["trajectory"].task_id for row in chosen}) == 6
    assert {row["outcome"] for row in chosen} >= {"success", "incomplete", "wrong"}
    steps = [row["step"] for row in chosen]
    assert steps == sorted(steps) and steps[0] <= 15 and steps[-1] >= 31  # first and last third of 45 steps
    only_wrong = [row for row in rows if row["outcome"] == "wrong"][:4]
    assert len(choose(only_wrong)) == len({row["trajectory"].task_id for row in only_wrong})
    assert choose([]) == []


def test_credit_that_does_not_fit_the_events_is_not_shown(made_run):
    rows, _ = read_rows([json.loads(line) for line in (made_run / "rl" / "trajectories.jsonl").open()])
    assert view(rows[0])["has_credit"]
    cut = view({**rows[0], "credit": rows[0]["credit"][:-1]})
    assert not cut["has_credit"] and all(event["advantage"] is None for event in cut["events"])


def test_axis_and_curve_arithmetic():
    assert nice_ticks(0, 1) == [0, 0.5, 1.0] and nice_ticks(0, 9) == [0, 5, 10]
    assert nice_ticks(3, 3)[0] <= 3 < nice_ticks(3, 3)[-1]
    for low, high in ((0, 0.013), (-2.2, 7), (1e-6, 2e-6), (120, 4500)):
        ticks = nice_ticks(low, high)
        assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 7
    assert moving_average([0, 3, 6, 9], 3) == [1.5, 3, 6, 7.5] and moving_average([1, 5], 1) == [1, 5]
    assert curve([{"step": 2, "x": 1}, {"x": 3}, {"step": 4, "x": "nan"}, {"step": 5}], "x") == [(2, 1), (2, 3)]
    chart = line_chart("t", "n", {"a": [(0, 0.0), (10, 1.0), (20, float("inf"))]}, 0.0, 1.0)
    assert chart["lines"][0]["smooth"] == "M40.0,190.0L348.0,12.0"  # bottom left to top right of the 360 x 214 drawing
    assert line_chart("t", "n", {"a": [(0, float("nan"))]}) is None


def test_manifest_blocks():
    counts = {"tools": 1234, "share": 0.25, "functions": {"total": 3, "verified": 2}, "by": {"a": {"x": 1, "y": 2.5}},
              "deep": {"a": {"b": {"c": True}}}}  # fmt: skip
    blocks = count_blocks(
        {"stage": "s", "counts": counts, "extra": {"k": None}, "hidden": {"k": 1}}, "World", ["hidden"]
    )
    assert [(b["title"], b["columns"], b["rows"]) for b in blocks] == [
        ("World", None, [("tools", ["1,234"]), ("share", ["0.250"]), ("functions total", ["3"]),
                         ("functions verified", ["2"])]),
        ("By", ["a"], [("x", ["1"]), ("y", ["2.500"])]),
        ("Deep", None, [("a b c", ["yes"])]),
        ("Extra", None, [("k", ["–"])]),
    ]  # fmt: skip
