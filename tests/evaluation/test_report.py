"""The report of a made-up run, read by a real HTML parser: self-contained, inert, and complete."""

import hashlib
import json
import re
import shutil
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from autotools.errors import AutoToolsError, DataError, WriteError
from autotools.rundir import write_manifest
from evaluation import report
from evaluation.report_charts import curve, line_chart, moving_average, nice_ticks
from evaluation.report_sections import count_blocks
from evaluation.report_stages import inputs_read, stage_table
from evaluation.report_text import plain
from evaluation.report_text import table as text_table
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
            assert value.startswith(("data:", "#", "trajectories.html")), value
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
    pieces = "What ran|rl command|torch 2.13.0|64.2|108|3,100|functions verified|Is searching needed?|one shot f1"
    pieces += "|SFT loss|SRecall|Searches per rollout|Answered share|after − before|n = 26|Unseen: a domain"
    pieces += "|136.1 s|181.1 s|3.70 GB|sft_longer|declared.json|quickstart.py --seed 0|All recorded trajectories"
    pieces += "|Six whole trajectories|cannot show|Several seeds|" + "0" * 40
    for piece in pieces.split("|"):
        assert piece in text, piece
    assert page.tags.count("article") == 6
    assert page.tags.count("figure") == 5 + 6
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
    assert expected[missing] in text and expected[missing] in (run / "report.md").read_text(encoding="utf-8")
    assert ("All recorded trajectories" in text) == (missing not in ("rl", "all"))


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
    for name in ("a", "b"):
        report.main(["--run", str(made_run), "--out", str(tmp_path / name / "report.html")])
    for name in ("report.html", "report.md", "trajectories.html"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_names_of_what_lies_beside_the_page(made_run, tmp_path, capsys):
    report.main(["--run", str(made_run), "--out", str(tmp_path / "seed1.html")])
    assert {p.name for p in tmp_path.iterdir()} == {"seed1.html", "seed1.md", "seed1_trajectories.html"}
    assert 'href="seed1_trajectories.html#step=' in (tmp_path / "seed1.html").read_text(encoding="utf-8")
    with pytest.raises(AutoToolsError, match="ends in .html"):
        report.main(["--run", str(made_run), "--out", str(tmp_path / "x.md")])


def test_a_run_over_real_tools_says_once_what_it_is_worth(made_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(made_run, run)
    manifest = json.loads((run / "world" / "manifest.json").read_text())
    (run / "world" / "manifest.json").write_text(json.dumps({**manifest, "note": "Plumbing check, not a result."}))
    report.main(["--run", str(run)])
    texts = [Page((run / "report.html").read_text("utf-8")).text, (run / "report.md").read_text("utf-8")]
    assert [text.count("Plumbing check, not a result.") for text in texts] == [1, 1]
    assert not any("an invented world" in text for text in texts)


# --- time, memory, inputs ---------------------------------------------------------------------------------------------


def test_stage_times_by_hand():
    memory = {"peak_bytes": 3e9, "stages": {"a": 1e9, "c": 2.5e8}, "steps": [["a"], ["b", "c"]]}
    table = stage_table({"a": 2.0, "b": 5.0, "c": 3.5}, memory)
    assert [(r["name"], r["wall_s"], r["peak_gb"], r["beside"]) for r in table["rows"]] == [
        ("a", 2.0, 1.0, []), ("b", 5.0, None, ["c"]), ("c", 3.5, 0.25, ["b"]),
    ]  # fmt: skip
    assert [value for _, value in table["totals"]] == ["7.0 s", "10.5 s", "3.00 GB"]
    assert [value for _, value in stage_table({"a": 2.0, "b": 5.0}, {})["totals"]] == ["7.0 s"]  # steps not known
    assert stage_table({}, memory) is None


def test_inputs_are_those_of_the_manifests(tmp_path):
    (tmp_path / "file").write_text("x")
    write_manifest(tmp_path / "data", stage="data", inputs=[tmp_path / "file"], counts={}, seed=0)
    write_manifest(tmp_path / "rl", stage="rl", inputs=[tmp_path / "data"], counts={}, seed=0)
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "manifest.json").write_text("{")
    digest = hashlib.sha256((tmp_path / "data" / "manifest.json").read_bytes()).hexdigest()
    assert inputs_read(tmp_path) == [
        {"stage": "data", "name": "file", "sha256": hashlib.sha256(b"x").hexdigest()},
        {"stage": "rl", "name": "data/manifest.json", "sha256": digest},
    ]


# --- the text version -------------------------------------------------------------------------------------------------


def test_text_holds_the_facts_of_the_page(made_run, tmp_path):
    run = str(made_run)
    shutil.copytree(run, tmp_path / "other")
    report.main(["--run", run, "--seed_runs", run, str(tmp_path / "other"), "--out", str(tmp_path / "r.html")])
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    metrics = json.loads((made_run / "eval" / "metrics.json").read_text())
    for name, table in metrics["policies"].items():
        assert name in text
        for group in ("overall", "I1", "I2", "I3", "unseen"):
            low, high = table[group]["intervals"]["f1"]
            assert f"{table[group]['f1']:.3f} ({low:.2f} to {high:.2f})" in text
    assert f"{metrics['paired']['after-before']['overall']['f1']['diff']:+.3f}" in text
    row = json.loads((made_run / "rl" / "metrics.jsonl").read_text().splitlines()[-1])
    for title, key in (("Useless searches: useless searches", "useless_searches"),
                       ("Match given complete: Match", "match_given_complete"),
                       ("Malformed turns: malformed turns", "malformed_turns"),
                       ("Kept token share: kept tokens", "credit/kept_token_share"),
                       ("Groups without contrast: groups", "frac_reward_zero_std")):  # fmt: skip
        assert re.search(rf"\| {title} +\| +{row[key]:.3f} \| +{row[key]:.3f} \|", text), title  # constant in the run
    pieces = ["136.1 s", "181.1 s", "3.70 GB", "ab" * 32, "quickstart.py --seed 0", "torch 2.13.0", "Several seeds"]
    pieces += ["r_trajectories.html", "| functions verified", "cannot show", "0" * 40]
    assert [piece for piece in pieces if piece not in text] == []
    assert text.count("\n### Step ") == 6 and text.endswith("\n") and "\n\n\n" not in text


def test_text_tables_are_read_back_by_a_markdown_parser(made_run):
    report.main(["--run", str(made_run)])
    text = (made_run / "report.md").read_text(encoding="utf-8")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    columns, rows = 0, 0
    for token in tokens:
        rows += token.type == "tr_open"
        columns += token.type in ("th_open", "td_open")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = [line for line in lines if set(line) <= set("|-:")]
    assert rows == len(lines) - len(rules) > 50  # every line of a table was taken as a row of one
    assert columns == sum(len(re.findall(r"(?<!\\)\|", line)) - 1 for line in lines if line not in rules)
    assert not [token for token in tokens if token.type == "html_block"]
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} == {"text"}  # the hostile texts gave no tag, link, code or emphasis


def test_text_cannot_drive_a_terminal_or_break_a_table():
    assert plain("a\x1b[31mb\r\nc\u202ed") == "a\ufffd\\[31mb c\ufffdd"
    assert plain("x|y <b> `c` \\") == "x\\|y \\<b> \\`c\\` \\\\"
    lines = text_table(("n", "v", "t"), [("ab", "1.5", "left"), ("宽", "–", "")])
    assert lines == ["| n   |   v | t    |", "|-----|----:|------|", "| ab  | 1.5 | left |", "| 宽  |   – | –    |", ""]


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


# --- bad use ----------------------------------------------------------------------------------------------------------


def test_folders_of_seeds_must_be_finished_runs_and_each_once(made_run, tmp_path):
    run, out = str(made_run), ["--out", str(tmp_path / "r.html")]
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(made_run)
    for folders, words in (
        ([run, "NOSUCH"], "seed_runs: NOSUCH does not exist"),
        ([str(tmp_path / "empty")], r"seed_runs: .*empty holds no eval/metrics\.json"),
        ([run, f"{run}/"], "is named twice"),
        ([run, str(tmp_path / "link")], "is named twice"),
    ):
        for dry in ([], ["--dry_run"]):
            with pytest.raises(DataError, match=words):
                report.main(["--run", run, "--seed_runs", *folders, *out, *dry])
    assert not (tmp_path / "r.html").exists()


def test_a_page_that_cannot_be_written_is_one_line_with_the_name_that_was_given(made_run):
    with pytest.raises(WriteError, match=r"^/proc/r\.html: cannot write \(No such file or directory\)$"):
        report.main(["--run", str(made_run), "--out", "/proc/r.html"])
