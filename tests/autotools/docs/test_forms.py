"""The registry of documentation forms and its command, on files of several forms and on all real samples."""

import gzip
import json
from pathlib import Path

import pytest

from autotools.docs import forms
from autotools.docs.__main__ import main
from autotools.docs.files import head_of
from autotools.errors import ConfigError, DataError
from autotools.rundir import read_jsonl
from autotools.schema import ToolSpec

OPENAPI = {"openapi": "3.0.0", "info": {"title": "T"}, "paths": {"/a/{id}": {"get": {"operationId": "a"}}}}
TOOL = {"tool_description": "t", "name": "t", "api_list": [{"name": "a", "description": "d"}, {"name": ""}, "x"]}
ROW = {
    "category_name": "C", "tool_name": "t", "api_name": "a", "api_description": "d",
    "required_parameters": [{"name": "q", "type": "STRING"}],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of four forms, and some that are none."""
    root = tmp_path / "documents"
    (root / "C").mkdir(parents=True)
    (root / ".hidden").mkdir()
    (root / ".hidden" / "spec.json").write_text(json.dumps(OPENAPI))
    (root / "C" / "t.json").write_text(json.dumps(TOOL))
    (root / "spec.json").write_text(json.dumps(OPENAPI))
    rows = [json.dumps(ROW), "{broken", json.dumps(ROW), json.dumps(ROW | {"api_name": "b"})]
    (root / "rows.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    (root / "C" / "page.md").write_text("# Page\n\n## Get\n\n`GET /x/{y}`\n\ntext\n")
    (root / "notes.md").write_text("# Notes\n\nnothing to call\n")
    (root / "picture.png").write_bytes(b"\x89PNG\x00")
    (root / "half.json.gz").write_bytes(gzip.compress(json.dumps(OPENAPI).encode())[:30])
    return root


def test_every_module_named_is_there_and_keeps_the_contract() -> None:
    modules = forms.forms()  # a missing module is an ImportError here
    assert len(modules) == len(forms.NAMES) == 12
    for form, module in modules.items():
        assert module.FORM == form and module.matches.__doc__ and module.read.__doc__
        for name in ("a.json", "a.jsonl", "a.csv", "a.md", "api.py"):
            for head in ("", "[", "{", "[]", "{}", "\x00", "null", '{"a": [', "text"):
                assert module.matches(Path(name), head) is False


def test_a_form_is_found_by_content(folder: Path) -> None:
    found = {path.relative_to(folder).as_posix(): path for path in forms.walk(folder)}
    assert list(found) == [
        "C/page.md", "C/t.json", "half.json.gz", "notes.md", "picture.png", "rows.jsonl.gz", "spec.json",
    ]  # fmt: skip
    detected = {name: forms.detect(path) for name, path in found.items() if name != "half.json.gz"}
    assert {name: module and module.FORM for name, module in detected.items()} == {
        "C/page.md": "markdown", "C/t.json": "rapidapi", "notes.md": None, "picture.png": None,
        "rows.jsonl.gz": "corpus", "spec.json": "openapi",
    }  # fmt: skip
    with pytest.raises(DataError, match="half.json.gz: cannot read"):
        forms.detect(found["half.json.gz"])


def test_keys_far_from_the_beginning_are_found(tmp_path: Path) -> None:
    late = {"components": {"schemas": {f"s{n}": {"type": "string"} for n in range(500)}}} | OPENAPI
    (tmp_path / "late.json").write_text(json.dumps(late))
    long = {"docid": "x" * 9_000} | ROW
    (tmp_path / "late.jsonl").write_text("{broken\n\n" + json.dumps(long) + "\n")
    assert forms.read_file(tmp_path / "late.json").form == "openapi"
    found = forms.read_file(tmp_path / "late.jsonl")
    assert (found.form, found.read, len(found.specs)) == ("corpus", 2, 1)


def test_read_file_says_what_is_wrong(folder: Path) -> None:
    with pytest.raises(DataError, match="notes.md has no known form; name one of openapi, rapidapi"):
        forms.read_file(folder / "notes.md")
    with pytest.raises(DataError, match="no form 'nothing'; known are openapi"):
        forms.read_file(folder / "spec.json", "nothing")
    with pytest.raises(DataError, match="none.json is not a file"):
        forms.read_file(folder / "none.json")
    with pytest.raises(DataError, match="does not exist"):
        forms.walk(folder / "none")


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_accounts_for_every_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out, rejects = tmp_path / "tools.jsonl", tmp_path / "rejected.jsonl"
    assert main([str(folder), "--out", str(out), "--rejects", str(rejects)]) == 0
    shown = capsys.readouterr().out
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    assert cells == [  # file, form, read, kept, repeated, rejected, repaired
        ["C/page.md", "markdown", "1", "1", "0", "0", "1"],
        ["C/t.json", "rapidapi", "3", "1", "0", "2", "0"],
        ["rows.jsonl.gz", "corpus", "4", "2", "1", "1", "0"],
        ["spec.json", "openapi", "1", "1", "0", "0", "1"],
        ["all", "", "9", "5", "1", "3", "2"],
    ]
    for line in (
        "  1 x empty name", "  1 x API is not an object", "  1 x not JSON", "  2 x path variable … is not declared",
        "  1 x no description", "as one corpus: 4 tools; 0 repeat a document of another file, 1 clash",
        "files that could not be read (1):", "half.json.gz: cannot read", "files of no known form (2):", "  notes.md",
        "  picture.png",
    ):  # fmt: skip
        assert line in shown
    specs = read_jsonl(out, ToolSpec)
    assert [str(s.id) for s in specs] == ["C.page.get", "C.t.a", "C.t.b", "T.t.a"]
    rows = read_jsonl(rejects)
    assert [(r["source"], r["line"]) for r in rows] == [
        ("C/t.json", 2), ("C/t.json", 3), ("rows.jsonl.gz", 2), ("rows.jsonl.gz", 0),
    ]  # fmt: skip
    assert rows[-1]["detail"] == "C.t.a (first in C/t.json)"
    with pytest.raises(ConfigError, match="exists; give another name, or --overwrite"):
        main([str(folder), "--out", str(out)])
    assert main([str(folder / "spec.json"), "--out", str(out), "--overwrite"]) == 0
    assert len(read_jsonl(out, ToolSpec)) == 1


def test_nothing_to_read_is_one_error(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, part in ((tmp_path / "none", "does not exist"), (folder / "notes.md", "1 of no known form")):
        with pytest.raises(DataError, match=part):
            main([str(path)])
    with pytest.raises(DataError, match="no tool documentation in 1 files .*half.json.gz: cannot read"):
        main([str(folder / "half.json.gz")])
    with pytest.raises(ConfigError, match="no form 'x'; known are openapi"):
        main([str(folder), "--form", "x"])
    for key in ("--out", "--rejects"):
        for words in ([str(folder)], [str(folder / "spec.json")]):
            with pytest.raises(ConfigError, match=f"{key} .*spec.json is one of the files that are read"):
                main([*words, key, str(folder / "C" / ".." / "spec.json"), "--overwrite"])
    (folder / "empty.json").write_text(json.dumps(TOOL | {"api_list": [{"name": ""}, "x"]}))
    out, rejects = tmp_path / "none.jsonl", tmp_path / "rejects.jsonl"
    with pytest.raises(DataError, match="empty.json: none of 2 documents gives a tool; why stands above"):
        main([str(folder / "empty.json"), "--out", str(out), "--rejects", str(rejects)])
    assert not out.exists() and len(read_jsonl(rejects)) == 2 and "1 x empty name" in capsys.readouterr().out
    (folder / "empty.json").unlink()
    assert main([str(folder), "--dry_run", "--out", str(tmp_path / "t.jsonl")]) == 0
    assert "would look at 7 files" in capsys.readouterr().out and not (tmp_path / "t.jsonl").exists()


def test_a_form_can_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "plain.txt").write_text(json.dumps(ROW))
    assert main([str(folder / "plain.txt"), "--form", "corpus"]) == 0
    assert "corpus" in capsys.readouterr().out
    with pytest.raises(DataError, match="is missing or not an object"):
        main([str(folder / "plain.txt"), "--form", "openapi"])


# --- real samples -------------------------------------------------------------------------------------------------

REAL = {  # what lies below a folder: form, number of its files
    "autotools/tools": ("endpoints", 4),
    "autotools/tools_doc_only": ("endpoints", 3),
    "sources/restbench": ("openapi", 2),
    "sources/stabletoolbench": ("query_objects", 6),
    "sources/toolbench_queries": ("query_objects", 9),
    "sources/toolbench_corpus": ("corpus", 1),
    "sources/toolbench_toolenv": ("toolenv", 2),
    "sources/colt": ("colt", 2),
    "sources/toolalpaca": ("toolalpaca", 4),
    "sources/tooleyes": ("tooleyes", 1),
    "sources/apibank": ("apibank", 5),
}


@pytest.mark.shared
def test_every_real_file_has_the_form_of_its_folder_or_none(shared_data: Path) -> None:
    found: dict[str, list[str]] = {}
    for path in forms.walk(shared_data):
        module = forms.detect(path)
        if module is None:
            continue
        name = path.relative_to(shared_data).as_posix()
        folder = next((folder for folder in REAL if name.startswith(f"{folder}/")), name)
        head = head_of(path)
        matching = [form for form, other in forms.forms().items() if other.matches(path, head)]
        assert matching == [module.FORM], name  # no file is two forms, and the beginning is enough for all of them
        found.setdefault(folder, []).append(module.FORM)
    assert {folder: ("/".join(sorted(set(names))), len(names)) for folder, names in found.items()} == REAL
