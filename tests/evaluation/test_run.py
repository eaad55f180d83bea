"""The evaluation command on a made-up world: a scripted policy whose scores are known, and the one-shot baseline."""

import json
import shutil
from pathlib import Path

import pytest

from autotools.config import load_config, run_main
from autotools.errors import ConfigError, DataError, ModelError, RunFolderError
from autotools.rundir import read_jsonl, read_manifest
from autotools.schema import Task, ToolId, Trajectory
from autotools.search.episode import SearchSettings
from evaluation import run
from evaluation.one_shot import choose_k
from evaluation.selection import read_tasks
from evaluation.suites import draw

NOUNS = ("hotel", "train", "museum", "ferry", "tram", "cinema")  # those of nouns_world


def tool(noun: str, verb: str) -> ToolId:
    return ToolId(category="Travel", tool=f"{noun}_desk", api=verb)


@pytest.fixture
def world(nouns_world: Path) -> Path:
    return nouns_world


class Letters:
    """A renderer whose token ids are letters: prompts end with the request, observations are copied as they are."""

    def prompt_ids(self, messages, tools=None):
        return [ord(c) for c in messages[-1]["content"]]

    def between_ids(self, observation, name="search"):
        return [ord(c) for c in f"\x01{observation}\x02"]

    def turn_text(self, ids):
        return "".join(map(chr, ids)).rstrip("\x03"), ids[-1] == 3


class Scripted:
    """Searches for the noun of the request, then answers with that noun's price tool; the museum it never answers."""

    renderer = Letters()

    def __init__(self, source, **settings):
        self.settings = settings
        if source == "nowhere":
            raise ModelError("no model at 'nowhere'")

    def generate(self, contexts):
        turns = []
        for context in contexts:
            text = "".join(map(chr, context))
            noun = next(n for n in NOUNS if n in text.partition("\x01")[0])  # not the observation's
            call = json.dumps({"name": "search", "arguments": {"query": f"{noun} price"}})
            answer = f"<tool_list>{tool(noun, 'price')}</tool_list>"
            search = noun == "museum" or "\x02" not in text
            turns.append([ord(c) for c in (f"<tool_call>\n{call}\n</tool_call>" if search else answer)] + [3])
        return turns, None


@pytest.fixture
def scripted(monkeypatch):
    import autotools.llm.local

    monkeypatch.setattr(autotools.llm.local, "LocalPolicy", Scripted)


def test_whole_command(world, tmp_path, scripted, capsys):
    out = tmp_path / "eval"
    arguments = ["--world", str(world), "--out", str(out), "--policies", "one_shot=bm25", "after=somewhere"]
    assert run.main([*arguments, "--search.max_turns", "3"]) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    set_aside = {"dev.jsonl": 1, "test.jsonl": 1}
    assert metrics["counts"] == {"read": 7, "rejected": 1, "played": 6, "set_aside": set_aside}
    after, one_shot = metrics["policies"]["after"], metrics["policies"]["one_shot"]
    # Five tasks outside the unseen domain; four are solved, the museum is found but never answered.
    assert after["overall"]["n"] == 5 and after["unseen"]["n"] == 1
    assert after["overall"]["f1"] == after["overall"]["answered"] == pytest.approx(0.8)
    assert after["overall"]["srecall"] == 1.0 and after["unseen"]["f1"] == 1.0
    # The museum: two searches, then a call on the last turn, which is no search any more. (4 * 1 + 2) / 5
    assert after["overall"]["searches"] == pytest.approx(6 / 5)
    assert after["overall"]["useless_searches"] == pytest.approx(1 / 5)
    assert one_shot["overall"]["f1"] == 1.0 and metrics["notes"]["one_shot"]["k"] == 1
    assert metrics["paired"]["after-one_shot"]["overall"]["f1"]["diff"] == pytest.approx(-0.2)
    rows = read_jsonl(out / "after" / "predictions.jsonl", Trajectory)
    assert len(rows) == 6 and {row.stop_reason.value for row in rows} == {"answered", "turn_limit"}
    rejected = read_jsonl(out / "rejected.jsonl")
    assert [(r["source"], r["line"]) for r in rejected] == [("test.jsonl", 7), ("dev.jsonl", 7)]
    assert all("moon_desk" in r["reason"] for r in rejected)
    assert read_manifest(out)["counts"]["rejected"] == 1
    assert "after-one_shot" in capsys.readouterr().out


def test_same_inputs_give_the_same_bytes(world, tmp_path, scripted):
    files = []
    for name in ("a", "b"):
        run.main(["--world", str(world), "--out", str(tmp_path / name), "--policies", "x=bm25", "y=model"])
        files.append({p.relative_to(tmp_path / name): p.read_bytes() for p in (tmp_path / name).rglob("*.json*")})
    different = {path for path in files[0] if files[0][path] != files[1][path]}
    assert {str(path) for path in different} <= {"run.json", "run_config.json"}  # those hold the command and the folder


def test_k_of_the_baseline_is_chosen_on_dev():
    class Engine:
        def search_batch(self, queries, categories=None, k=5):
            from autotools.schema import Hit

            return [[Hit(id=tool(n, "price"), score=1.0) for n in NOUNS[:k]] for _ in queries]

    def task(number: int, nouns: tuple[str, ...]) -> Task:
        targets = tuple(tool(n, "price") for n in nouns)
        return Task(id=str(number), suite="s", split="dev", level="I1", query="q", targets=targets)

    # F1 by hand for targets = 2nd and 3rd hit: k=1: 0; k=2: 1/2; k=3: 2*2/5 = 0.8; k=4: 4/6; k=5: 4/7
    k, by_k = choose_k([task(1, NOUNS[1:3])], Engine())
    assert k == 3
    assert by_k == pytest.approx({1: 0, 2: 0.5, 3: 0.8, 4: 2 / 3, 5: 4 / 7})
    # Targets = first hit, and first two hits: k=1 gives (1 + 2/3)/2, k=2 gives (2/3 + 1)/2: the smaller k wins the tie.
    assert choose_k([task(1, NOUNS[:1]), task(2, NOUNS[:2])], Engine())[0] == 1


def test_limit_is_a_seeded_draw(world, tmp_path):
    tasks = read_tasks(world / "tasks" / "test.jsonl")
    drawn = draw(tasks, 3, seed=1)
    assert drawn == draw(tasks, 3, seed=1) and len(drawn) == 3
    assert [tasks.index(t) for t in drawn] == sorted(tasks.index(t) for t in drawn)
    assert any(draw(tasks, 3, seed=s) != drawn for s in range(2, 6))
    assert draw(tasks, 0, seed=1) == draw(tasks, 99, seed=1) == tasks


@pytest.mark.parametrize(
    ("policies", "message"),
    [(["after"], "not of the form"), (["a-b=bm25"], "not of the form"), (["a=bm25", "a=x"], "two policies")],
)
def test_bad_policies(world, tmp_path, policies, message):
    with pytest.raises(ConfigError, match=message):
        run.main(["--world", str(world), "--out", str(tmp_path / "o"), "--policies", *policies])
    assert not (tmp_path / "o").exists()


def test_bad_use_is_said_in_one_line(world, tmp_path, scripted):
    out = str(tmp_path / "o")
    with pytest.raises(DataError, match=r"tools\.jsonl"):
        run.main(["--world", str(tmp_path), "--out", out, "--policies", "a=bm25"])
    with pytest.raises(ConfigError, match="unknown suite 'other'"):
        run.main(["--world", str(world), "--out", out, "--policies", "a=bm25", "--suite", "other"])
    half = tmp_path / "half"
    half.mkdir()
    for source in (str(half), "./nowhere", "runs/no/where"):
        with pytest.raises(DataError, match="policy a: no model at"):
            run.main(["--world", str(world), "--out", out, "--policies", "a=" + source])
    (half / "run_config.json").write_text("{}")
    with pytest.raises(DataError, match="not complete"):
        run.main(["--world", str(world), "--out", out, "--policies", "a=" + str(half)])
    (world / "tasks" / "odd.jsonl").write_text((world / "tasks" / "test.jsonl").read_text().splitlines()[6])
    with pytest.raises(DataError, match="no task has its targets"):
        run.main(["--world", str(world), "--out", out, "--policies", "a=bm25", "--split", "odd"])
    assert not Path(out).exists()  # a second try needs no flag
    with pytest.raises(DataError, match="policy a: no model at 'nowhere'"):
        run.main(["--world", str(world), "--out", out, "--policies", "a=nowhere"])
    with pytest.raises(RunFolderError, match="in use"):
        run.main(["--world", str(world), "--out", out, "--policies", "a=bm25"])
    assert run.main(["--world", str(world), "--out", out, "--policies", "a=bm25", "--overwrite"]) == 0
    assert run.main(["--world", str(world), "--out", str(tmp_path / "p"), "--policies", "a=bm25", "--dry-run"]) == 0
    assert not (tmp_path / "p").exists()


def test_bad_lines_are_set_aside_counted_and_said(world, tmp_path, capsys):
    folder, out = tmp_path / "world", tmp_path / "eval"
    shutil.copytree(world, folder)
    with (folder / "tools.jsonl").open("a") as file:
        file.write("{broken\n")
    path = folder / "tasks" / "test.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{broken", lines[0], '{"id": 3}', *lines[1:]]) + "\n")
    assert run.main(["--world", str(folder), "--out", str(out), "--policies", "a=bm25"]) == 0
    told = capsys.readouterr().err
    assert "tools.jsonl: 1 of 13 records set aside; first: line 13: not JSON" in told
    assert f"warning: 4 tasks left out, see {out}/rejected.jsonl; first: line 2: not JSON" in told
    rejected = [(r["source"], r["line"], r["reason"].partition(":")[0]) for r in read_jsonl(out / "rejected.jsonl")]
    assert rejected == [
        ("test.jsonl", 2, "not JSON"), ("test.jsonl", 3, "duplicate id"), ("test.jsonl", 4, "not a Task"),
        ("test.jsonl", 10, "target not in the corpus"), ("tools.jsonl", 13, "not JSON"),
        ("dev.jsonl", 7, "target not in the corpus"),
    ]  # fmt: skip
    counts = read_manifest(out)["counts"]
    assert (counts["read"], counts["rejected"], counts["played"]) == (10, 4, 6)
    assert counts["set_aside"] == {"dev.jsonl": 1, "test.jsonl": 4, "tools.jsonl": 1}
    path.write_text("{broken\n")
    with pytest.raises(DataError, match=r"test\.jsonl: no tasks; first: line 1: not JSON"):
        run.main(["--world", str(folder), "--out", str(tmp_path / "b"), "--policies", "a=bm25"])


@pytest.mark.parametrize("dry", [[], ["--dry_run"]])
def test_a_dry_run_finds_what_the_run_would(world, tmp_path, dry):
    arguments = ["--world", str(world), "--out", str(tmp_path / "o"), "--policies", "a=bm25", *dry]
    for words, error, message in (
        (["--policies", "a=./none"], DataError, "policy a: no model at './none'"),
        (["--dtype", "float33"], ConfigError, "unknown dtype 'float33'; known: auto, float32"),
        (["--limit", "-4"], ConfigError, r"limit must be 0 \(all\) or more, got -4$"),
        (["--batch_size", "0"], ConfigError, "batch_size must be 1 or more, got 0$"),
        (["--seed", "-1"], ConfigError, "key 'seed': must be 0 or more, got -1"),
        (["--split", "tset"], DataError, "no split 'tset' in .*; there are dev, (odd, )?test$"),
        (["--out", str(world), "--overwrite"], RunFolderError, "was not made by this project"),
        (["--out", str(world / "tools.jsonl")], RunFolderError, "is a file"),
    ):
        with pytest.raises(error, match=message):
            run.main([*arguments, *words])
    assert not (tmp_path / "o").exists()


def test_a_run_that_fails_before_it_plays_leaves_its_folder_free(world, tmp_path, scripted):
    arguments = ["--world", str(world), "--out", str(tmp_path / "o"), "--policies", "a=nowhere"]
    with pytest.raises(SystemExit):
        run_main(lambda: run.main(arguments))
    assert not (tmp_path / "o").exists()


def test_the_shipped_config_loads_by_its_own_schema_and_agrees_with_training():
    import yaml

    root = Path(__file__).parents[2]
    for path in sorted((root / "configs" / "eval").glob("*.yaml")):
        arguments = ["--config", str(path), "--world", "w", "--out", "o", "--policies", "a=bm25"]
        sections = {"": run.EvalArgs, "search": SearchSettings}
        search = load_config(arguments, sections, prog="p", description="d").explicit["search"]
        for other in (root / "configs" / "data" / path.name, root / "configs" / "rl" / "quickstart.yaml"):
            if path.stem == "toolworld" and other.is_file():
                theirs = yaml.safe_load(other.read_text()).get("search", {})
                assert {key: search[key] for key in theirs} == theirs, other.name
