"""The search command: one query, lines of stdin, a prompt; tables and JSON; bad use is one line."""

import io
import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest

from autotools.errors import ConfigError, DataError, UnknownCategoryError
from autotools.schema import ToolId, ToolSpec
from retriever.search import main

PRICE, FIND, TUNE = "Travel.inn.price_now", "Travel.inn.find", "Music.box.find_tune"


@pytest.fixture
def tools(tmp_path):
    texts = {
        PRICE: "current price of an inn",
        FIND: "find an inn by name",
        TUNE: "find a tune [bold]by[/bold] name",
    }
    specs = [
        ToolSpec(id=ToolId.parse(text), tool_name="inn", api_name="x", description=about)
        for text, about in texts.items()
    ]
    (tmp_path / "tools.jsonl").write_text("".join(spec.model_dump_json() + "\n" for spec in specs))
    return str(tmp_path)


def test_best_hit_comes_first(tools, capsys):
    assert main(["inn price", "--tools", tools, "--k", "2"]) == 0
    out = capsys.readouterr().out
    assert 0 < out.index(PRICE) < out.index(FIND)
    assert main(["[weather]", "--tools", tools]) == 0
    assert "no tool matches '[weather]'" in capsys.readouterr().out
    assert main(["tune", "--tools", tools]) == 0
    assert "[bold]by[/bold]" in capsys.readouterr().out  # a document is text, never markup


def test_bad_use(tools, tmp_path):
    with pytest.raises(ConfigError, match="missing key 'tools'"):
        main(["price"])
    with pytest.raises(UnknownCategoryError, match="close names: Travel"):
        main(["price", "--tools", tools, "--category", "travel"])
    with pytest.raises(DataError, match="does not exist"):
        main(["price", "--tools", str(tmp_path / "none.jsonl")])
    with pytest.raises(ConfigError, match="k must be 1 or more, not 0"):
        main(["price", "--tools", tools, "--k", "0"])
    with pytest.raises(DataError, match="nowhere does not exist"):
        main(["price", "--tools", "nowhere", "--dry_run"])
    assert main(["price", "--tools", tools, "--dry_run"]) == 0
    with pytest.raises(ConfigError, match="takes one value .*quote a text of several words: 'inn price'"):
        main(["inn", "price", "--tools", tools])
    for empty in ([""], [" "], ["--query", ""]):
        with pytest.raises(ConfigError, match="the query is empty"):
            main([*empty, "--tools", tools])


def test_lines_of_stdin_as_json(tools, capsys, monkeypatch):
    lines = (
        "find by name\n\n:category Travel\n:k 1\nfind by name\n:category\n:k 7\n nothing-of-the-sort\n:quit\nprice\n"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert main(["--tools", tools, "--json"]) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())  # nothing after :quit
    assert {hit["id"] for hit in first["results"]} == {FIND, TUNE}
    assert (second["category"], second["k"], [hit["id"] for hit in second["results"]]) == ("Travel", 1, [FIND])
    assert third == {"query": "nothing-of-the-sort", "category": None, "k": 7, "results": []}


@pytest.mark.parametrize(
    ("line", "error", "what"),
    [
        (":category Travle", UnknownCategoryError, "close names: Travel"),
        (":k none", ConfigError, ":k needs a whole number"),
        (":k 0", ConfigError, ":k needs a whole number"),
        (":sort", ConfigError, "unknown command :sort"),
    ],
)
def test_a_bad_line_of_a_script_ends_it(tools, capsys, monkeypatch, line, error, what):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"price\n{line}\nprice\n"))
    with pytest.raises(error, match=what):
        main(["--tools", tools, "--json"])
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_prompt_on_a_terminal_survives_mistakes_and_ends_on_ctrl_d(tools):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "retriever.search", "--tools", tools]
    environment = os.environ | {"TERM": "dumb", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen, end = "", time.monotonic() + 60

    def wait_for(text):
        nonlocal seen
        while text not in seen:
            assert time.monotonic() < end, seen
            if select.select([ours], [], [], 0.5)[0]:
                try:
                    seen += os.read(ours, 4096).decode()
                except OSError:  # the other side is closed
                    assert text in seen, seen
        before, _, seen = seen.partition(text)
        return before

    try:
        wait_for("> ")
        os.write(ours, b":category Travle\n")
        wait_for("close names: Travel")
        wait_for("> ")
        os.write(ours, b":category Music\n")
        wait_for("> ")
        os.write(ours, b"find by name\n")
        wait_for(TUNE)
        assert FIND not in wait_for("> ")
        os.write(ours, b"\x04")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
