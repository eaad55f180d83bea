"""The config grammar, against hand-written command lines and files, and against argparse-free readings of values."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from autotools.config import Config, file_problems, load_config, run_main
from autotools.errors import ConfigError, DataError
from autotools.rundir import open_run, write_jsonl


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Top:
    out: str = field(metadata={"help": "where to write"})
    seed: int = 0
    learning_rate: float = 1e-4
    ks: list[int] = field(default_factory=lambda: [1, 5])
    names: list[str] = field(default_factory=list)
    mode: Literal["fast", "slow"] = "fast"
    colour: Colour = Colour.RED
    flag: bool = False
    tag: str | None = None
    limit: int | None = 7
    extra: dict[str, Any] = field(default_factory=dict)
    report_to: None | str | list[str] = "none"
    pad: int | str | None = "auto"
    path: Path = Path("a")


@dataclass
class Second:
    seed: int = 0
    width: int = 4

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width {self.width} must be 1 or more")


@dataclass
class Search:
    top_k: int = 5
    weight: float = 0.5


@dataclass
class Inner:
    depth: int = 1


SECTIONS = {"": (Top, Second), "search": Search, "search.inner": Inner}


def load(*argv: str, **more: Any) -> Config:
    return load_config(list(argv), SECTIONS, prog="x", description="d", **more)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("--seed 3", "seed", 3),
        ("--limit=-3", "limit", -3),
        ("--limit -3", "limit", -3),
        ("--seed 1e3", "seed", 1000),
        ("--learning-rate 1e-3", "learning_rate", 0.001),
        ("--learning_rate 2", "learning_rate", 2.0),
        ("--ks 1 5 10", "ks", [1, 5, 10]),
        ("--ks 3", "ks", [3]),
        ("--ks [2,4]", "ks", [2, 4]),
        ("--ks", "ks", []),
        ("--names a=b c=d", "names", ["a=b", "c=d"]),
        ("--names 1 2", "names", ["1", "2"]),
        ("--mode slow", "mode", "slow"),
        ("--colour blue", "colour", Colour.BLUE),
        ("--flag", "flag", True),
        ("--flag false", "flag", False),
        ("--flag=no", "flag", False),
        ("--tag 007", "tag", "007"),
        ("--tag null", "tag", None),
        ("--tag None", "tag", None),
        ("--tag none", "tag", "none"),
        ("--tag a:b", "tag", "a:b"),
        ("--limit none", "limit", None),
        ('--extra {"a":1e-3}', "extra", {"a": 0.001}),
        ("--extra a=1 b.c=x", "extra", {"a": 1, "b.c": "x"}),
        ("--report_to none", "report_to", "none"),
        ("--report_to a b", "report_to", ["a", "b"]),
        ("--pad 16", "pad", 16),
        ("--pad auto", "pad", "auto"),
        ("--path b/c", "path", Path("b/c")),
        ("--seed 1 --seed 2", "seed", 2),
    ],
)
def test_value_on_the_command_line(words: str, key: str, value: Any) -> None:
    built = load("--out", "o", *words.split()).top(Top)
    assert getattr(built, key) == value
    assert type(getattr(built, key)) is type(value)


def test_later_wins_and_every_source_is_used(tmp_path: Path) -> None:
    a = write(tmp_path / "a.yaml", "out: a\nseed: 1\nsearch:\n  top_k: 1\n  inner: {depth: 4}\nlearning_rate: 5e-3\n")
    b = write(tmp_path / "b.json", '{"seed": 2, "search": {"weight": 0.25}}')
    config = load("--config", a, "--config", b, "--search.top-k", "9", "--local_rank=1", "--dry-run")
    top, search = config.top(Top), config.section("search")
    assert (top.out, top.seed, top.learning_rate) == ("a", 2, 0.005)
    assert config.top(Second).seed == 2  # a key that two dataclasses share goes to both
    assert (search.top_k, search.weight, config.section("search.inner").depth) == (9, 0.25, 4)
    assert config.dry_run
    assert config.explicit == {
        "out": "a",
        "seed": 2,
        "learning_rate": 0.005,
        "search": {"top_k": 9, "inner": {"depth": 4}, "weight": 0.25},
    }


def test_defaults_of_an_entry_yield_to_set_keys() -> None:
    config = load("--out", "o", "--width", "8")
    assert config.top(Second, width=2, seed=5) == Second(seed=5, width=8)
    assert config.top(Second) == Second(seed=0, width=8)


def test_all_problems_of_one_parse_are_shown_together(tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", "learn_rate: 1\nmode: medium\nsearch: {topk: 3}\nserch: {top_k: 1}\n")
    with pytest.raises(ConfigError) as caught:
        load("--config", path, "--sed", "1", "--seed", "yes", "--top_k", "3", "--learning_rate", "fast")
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{path}: unknown key 'learn_rate'; did you mean 'learning_rate'?"
    assert lines[1].startswith(f"{path}: key 'mode': 'medium' is not one of 'fast', 'slow'")
    assert lines[2] == f"{path}: unknown key 'search.topk'; did you mean 'search.top_k'?"
    assert lines[3] == f"{path}: unknown key 'serch'; did you mean 'search'?"
    assert lines[4] == "command line: unknown key 'sed'; did you mean 'seed'?"
    assert lines[5].startswith("command line: key 'seed': True is a truth value; expected int")
    assert lines[6] == "command line: unknown key 'top_k'; did you mean 'search.top_k'?"
    assert lines[7].startswith("command line: key 'learning_rate': 'fast' is not float")
    assert lines[8] == "missing key 'out' (where to write); pass --out or set it in a --config file"
    assert len(lines) == 9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: 1\nseed: 2\n", "key 'seed' stands twice (line 2)"),
        ("- a\n", "holds 'key: value' lines, this one is a list"),
        ("a: [1\n", "not valid YAML"),
        (None, "cannot read this config file (No such file or directory)"),
    ],
)
def test_bad_file_names_the_file(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "bad.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load("--out", "o", "--config", str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--out"], "key 'out': needs a value (str)"),
        (["--out", "a", "b"], "key 'out': takes one value (str), got 2; quote a text of several words: 'a b'"),
        (["--out", "a", "--seed", "-1"], "command line: key 'seed': must be 0 or more, got -1"),
        (["--out", "a", "--seed", str(2**32)], "key 'seed': must be 4294967295 or less, got 4294967296"),
        (["--out", "a", "--learning_rate", "nan"], "key 'learning_rate': nan is not a number to compute with"),
        (["--out", "a", "--learning_rate=-1"], "key 'learning_rate': must be 0 or more, got -1.0"),
        (["--out", "a", "--learning_rate", "inf"], "key 'learning_rate': must be finite, got inf"),
        (["--out", "a", "--search.weight", "nan"], "key 'search.weight': nan is not a number"),
        (["--out", "a", "--search", "5"], "section 'search' needs keys (such as search.top_k), got 5"),
        (["stray", "--out", "a"], "unexpected 'stray'"),
        (["--out", "a", "--config"], "--config needs a file name"),
        (["--out", "a", "--width", "0"], "Second: width 0 must be 1 or more"),
    ],
)
def test_bad_command_line(argv: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(*argv)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_values_are_checked_in_files_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "search: 5\nseed: -1\nlearning_rate: .nan\nout: o\n")
    with pytest.raises(ConfigError) as caught:
        load("--config", path)
    assert str(caught.value).splitlines() == [
        f"{path}: section 'search' needs keys (such as search.top_k), got 5",
        f"{path}: key 'seed': must be 0 or more, got -1",
        f"{path}: key 'learning_rate': nan is not a number to compute with",
    ]


def test_positional_words_fill_the_named_key() -> None:
    assert load("here", "--seed", "1", positional="out").top(Top).out == "here"


def test_resolved_config_read_back_is_the_same(tmp_path: Path) -> None:
    config = load("--out", "o", "--colour", "blue", "--search.weight", "1e-7", "--extra", "a=[1,2]", "--limit", "null")
    path = write(tmp_path / "config.json", json.dumps(config.resolved()))
    again = load("--config", path)
    assert again.resolved() == config.resolved()
    assert again.top(Top) == config.top(Top)
    assert again.section("search") == Search(top_k=5, weight=1e-7)


def test_yaml_truth_words_never_become_numbers_or_text(tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", "out: no\nseed: yes\n")
    problems = file_problems(path, SECTIONS)
    assert len(problems) == 2 and all("truth value" in line for line in problems)


def test_lazy_schema_is_not_imported_for_help(tmp_path: Path) -> None:
    script = (
        "import sys; from autotools.config import load_config\n"
        "try: load_config(['--help'], {'': 'trl:GRPOConfig'}, prog='x', description='d')\n"
        "except SystemExit as leave: print(leave.code, sorted({'torch', 'trl', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.endswith("0 []\n")
    assert "every field of trl.GRPOConfig" in done.stdout


def test_help_shows_keys_with_default_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leave:
        load("--nonsense", "--help")
    text = capsys.readouterr().out
    assert leave.value.code == 0
    for part in ("--out str  (required)", "where to write", "--search.top_k int  (default 5)", "--dry_run"):
        assert part in text


def test_library_schema_uses_its_own_keys(tmp_path: Path) -> None:
    sections = {"": "transformers:TrainingArguments"}
    argv = ["--learning_rate", "1e-3", "--lr_scheduler_type", "cosine", "--save_strategy", "no", "--use_cpu"]
    config = load_config([*argv, "--output_dir", str(tmp_path)], sections, prog="x", description="d")
    path = write(tmp_path / "config.json", json.dumps(config.resolved()))
    again = load_config(["--config", path], sections, prog="x", description="d")
    from transformers import TrainingArguments

    built = again.top(TrainingArguments, bf16=False)
    assert (built.learning_rate, built.lr_scheduler_type.value, built.save_strategy.value) == (0.001, "cosine", "no")
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        load_config(["--learn_rate", "1"], sections, prog="x", description="d")


def test_secrets_are_not_written(tmp_path: Path) -> None:
    config = load_config(["--hub_token", "abc"], {"": "transformers:TrainingArguments"}, prog="x", description="d")
    assert "hub_token" not in config.resolved()


def _fail(error: BaseException) -> Any:
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("main", "code", "err"),
    [
        (lambda: 0, 0, ""),
        (lambda: None, 0, ""),
        (lambda: 3, 3, ""),
        (_fail(DataError("a.jsonl: empty")), 2, "error: a.jsonl: empty\n"),
        (_fail(ConfigError("one\ntwo")), 2, "error: one\nerror: two\n"),
        (_fail(KeyboardInterrupt()), 130, "interrupted\n"),
        (_fail(KeyboardInterrupt("go on with --resume")), 130, "go on with --resume\n"),
        (_fail(OSError(errno.EROFS, "Read-only file system", "runs/x")), 2, "error: runs/x: Read-only file system\n"),
        (_fail(OSError(errno.ENOSPC, "No space left")), 2, "error: cannot write: No space left\n"),
    ],
)
def test_exit_codes(main: Any, code: int, err: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leave:
        run_main(main)
    assert (leave.value.code, capsys.readouterr().err) == (code, err)


def test_a_full_disk_is_said_with_the_run_folder_when_no_file_is_known(tmp_path: Path, capsys: Any) -> None:
    """What the libraries that save a model raise: an OSError without a name, or errors of their own."""
    full = OSError(errno.ENOSPC, "No space left on device")
    rust = Exception('Error while serializing: Os { code: 28, message: "No space left on device" }')
    torch = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 451584 vs 451472")
    for number, error in enumerate((full, rust, torch)):

        def work(number: int = number, error: Exception = error) -> int:
            run = open_run(tmp_path / str(number), {}, seed=0)
            run.log({"step": 1})
            raise error

        with pytest.raises(SystemExit) as leave:
            run_main(work)
        err = capsys.readouterr().err
        assert leave.value.code == 2 and err.startswith(f"error: {tmp_path / str(number)}: ") and err.count("\n") == 1
    with pytest.raises(Exception, match="serializing"):  # no run folder: not known to be about a disk of ours
        run_main(_fail(rust))


@pytest.mark.parametrize("error", [DataError("no model"), KeyboardInterrupt(), ZeroDivisionError(), SystemExit(143)])
def test_a_command_that_fails_before_any_work_leaves_its_folder_free(tmp_path: Path, error: BaseException) -> None:
    def start(work: bool) -> None:
        run = open_run(tmp_path / "runs" / "a", {"b": 1}, seed=0)
        write_jsonl(run.path / "rejected.jsonl", [{"reason": "x"}])
        if work:
            run.log({"step": 1})
        raise error

    with pytest.raises((SystemExit, ZeroDivisionError)):
        run_main(lambda: start(False))
    assert not (tmp_path / "runs" / "a").exists()
    with pytest.raises((SystemExit, ZeroDivisionError)):
        run_main(lambda: start(True))
    assert sorted(p.name for p in (tmp_path / "runs" / "a").iterdir()) == [
        "metrics.jsonl", "rejected.jsonl", "run.json", "run_config.json",
    ]  # fmt: skip


def test_a_resumed_or_finished_run_keeps_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "a"
    open_run(path, {}, seed=0)
    with pytest.raises(SystemExit):
        run_main(lambda: open_run(path, {}, seed=0, resume=True) and _fail(DataError("x"))())
    with pytest.raises(SystemExit):
        run_main(lambda: open_run(tmp_path / "b", {}, seed=0) and 0)
    assert (path / "run.json").is_file() and (tmp_path / "b" / "run.json").is_file()


def test_defects_keep_their_traceback() -> None:
    with pytest.raises(ConnectionRefusedError):
        run_main(_fail(ConnectionRefusedError(errno.ECONNREFUSED, "refused")))


@pytest.mark.parametrize(("ranks", "code"), [("2", 3), ("1", -6)])
def test_a_rank_leaves_without_the_interpreters_clean_up(ranks: str, code: int) -> None:
    """An object that aborts when the interpreter takes it down, as a running thread of a C++ library does."""
    program = """
import atexit, os
from autotools.config import run_main

class Thread:
    def __del__(self, abort=os.abort):
        abort()

thread = Thread()
atexit.register(print, "handlers ran")
run_main(lambda: print("all written") or 3)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "WORLD_SIZE": ranks}, capture_output=True, text=True
    )
    assert done.returncode == code
    assert done.stdout == "all written\nhandlers ran\n"
