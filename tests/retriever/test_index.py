"""Index on disk: what is reused, resumed and refused; the encoder gives a known function of the text."""

import errno
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotools.errors import RetrieverError
from autotools.schema import ToolId, ToolSpec
from retriever import index as index_module
from retriever import index_writing
from retriever.index import arrange, load_index, refuse_stale, stale_fields
from retriever.index_writing import build_index

DIM = 16
_FORK = multiprocessing.get_context("fork")


def vector_of(text: str) -> np.ndarray:
    """The oracle: a unit vector from the text's hash."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).standard_normal(DIM)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


class FakeEncoder:
    """What ``build_index`` needs of an Encoder. ``before`` is called before each block and may stop the build."""

    device, dim = "cpu", DIM

    def __init__(self, before: Callable[[], None] = lambda: None, **identity: Any) -> None:
        self.identity = {
            "weights_sha256": "w1",
            "dtype": "float32",
            "pooling": "mean",
            "max_seq_length": 64,
            **identity,
        }
        self.before, self.encoded = before, 0

    def describe(self) -> dict[str, Any]:
        return {"encoder": "fake", **self.identity, "query_prompt": "q: "}

    def counters(self) -> dict[str, int]:
        return {"truncated": 0}

    def encode_documents(self, texts: list[str], progress: Any = None) -> np.ndarray:
        self.before()
        self.encoded += len(texts)
        return np.stack([vector_of(text) for text in texts])


def _specs(count: int, seed: int = 0) -> list[ToolSpec]:
    rng = random.Random(seed)
    return [
        ToolSpec(
            id=ToolId(category=rng.choice(["A", "A-B", "B"]), tool=f"t{number}", api="go"),
            tool_name=f"t {number}", api_name="go", description=f"does {number} " * rng.randint(1, 5),
        )
        for number in range(count)
    ]  # fmt: skip


def _edited(specs: list[ToolSpec], number: int, text: str = "quite another text") -> list[ToolSpec]:
    return [*specs[:number], specs[number].model_copy(update={"description": text}), *specs[number + 1 :]]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _left_beside(folder: Path) -> set[str]:
    return {path.name for path in folder.parent.iterdir()} - {folder.name, f".{folder.name}.lock"}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_writing, "BLOCK_TEXTS", {"cpu": 10})


# --- building -----------------------------------------------------------------------------------------------------


def test_rows_are_sorted_into_categories_and_hold_the_right_vectors(tmp_path: Path) -> None:
    documents = arrange(_specs(50))
    summary = build_index(documents, FakeEncoder(), tmp_path / "x")
    assert (summary.documents, summary.embedded, summary.reused, summary.fresh) == (50, 50, 0, False)
    stored = load_index(tmp_path / "x")
    assert np.array_equal(stored.matrix, np.stack([vector_of(text) for text in documents.texts]))
    for name, (start, stop) in stored.manifest["categories"].items():
        assert all(tool_id.startswith(f"{name}.t") for tool_id in stored.ids[start:stop])
    assert sorted(stored.ids) == sorted(str(spec.id) for spec in _specs(50))
    assert stale_fields(stored, documents, FakeEncoder().identity) == []
    assert _left_beside(tmp_path / "x") == set()


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    specs = _specs(50)
    shuffled = random.Random(3).sample(specs, len(specs))
    build_index(arrange(specs), FakeEncoder(), tmp_path / "x")
    build_index(arrange(shuffled), FakeEncoder(), tmp_path / "sub" / "y")
    assert _files(tmp_path / "x") == _files(tmp_path / "sub" / "y")
    assert str(tmp_path) not in (tmp_path / "x" / "manifest.json").read_text()
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    assert manifest["matrix_sha256"] == hashlib.sha256((tmp_path / "x" / "embeddings.npy").read_bytes()).hexdigest()
    assert {"format", "documents", "dim", "dtype", "normalised", "template", "texts_sha256", "rows_sha256", "encoder",
            "categories", "versions"} <= set(manifest)  # fmt: skip


def test_an_edit_embeds_only_what_changed(tmp_path: Path) -> None:
    specs = _specs(50)
    build_index(arrange(specs), FakeEncoder(), tmp_path / "x")
    assert build_index(arrange(specs), FakeEncoder(), tmp_path / "x").fresh
    changed = _edited(specs, 7)[3:] + _specs(52)[50:]
    encoder = FakeEncoder()
    summary = build_index(arrange(changed), encoder, tmp_path / "x")
    assert (encoder.encoded, summary.embedded, summary.reused, summary.documents) == (3, 3, 46, 49)
    build_index(arrange(changed), FakeEncoder(), tmp_path / "new")
    assert _files(tmp_path / "x") == _files(tmp_path / "new")


def test_other_settings_reuse_nothing(tmp_path: Path) -> None:
    documents = arrange(_specs(30))
    build_index(documents, FakeEncoder(), tmp_path / "x")
    encoder = FakeEncoder(weights_sha256="w2")
    assert build_index(documents, encoder, tmp_path / "x").reused == 0 and encoder.encoded == 30


def test_equal_texts_are_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retriever.index.document_texts", lambda specs: [f"text {n // 4}" for n in range(len(specs))])
    documents, encoder = arrange(_specs(20)), FakeEncoder()
    summary = build_index(documents, encoder, tmp_path / "x")
    assert (encoder.encoded, summary.embedded, summary.repeated, summary.documents) == (5, 5, 15, 20)
    expected = np.stack([vector_of(f"text {n // 4}") for n in range(20)])
    assert np.array_equal(load_index(tmp_path / "x").matrix, expected)


def test_bad_corpora_are_refused() -> None:
    with pytest.raises(RetrieverError, match="empty corpus"):
        arrange([])
    with pytest.raises(RetrieverError, match="tool id .*t3.go occurs twice"):
        arrange([*_specs(5), _specs(5)[3]])


# --- interruptions ------------------------------------------------------------------------------------------------


def test_an_interrupted_build_continues(tmp_path: Path) -> None:
    documents, blocks = arrange(_specs(55)), iter([None, None, KeyboardInterrupt])

    def stop() -> None:
        if error := next(blocks):
            raise error

    with pytest.raises(KeyboardInterrupt):
        build_index(documents, FakeEncoder(stop), tmp_path / "x")
    assert not (tmp_path / "x").exists()
    encoder = FakeEncoder()
    summary = build_index(documents, encoder, tmp_path / "x")
    assert (encoder.encoded, summary.resumed, summary.embedded) == (35, 20, 35)
    build_index(documents, FakeEncoder(), tmp_path / "y")
    assert _files(tmp_path / "x") == _files(tmp_path / "y") and _left_beside(tmp_path / "x") == {"y", ".y.lock"}


def test_a_killed_build_continues_and_its_lock_is_gone(tmp_path: Path) -> None:
    documents = arrange(_specs(55))
    slow = FakeEncoder(lambda: time.sleep(0.2))
    child = _FORK.Process(target=build_index, args=(documents, slow, tmp_path / "x"))
    child.start()
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob(".x.building/*.npz"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.join(30)
    (next(tmp_path.glob(".x.building/*.npz"))).write_bytes(b"half")  # a damaged block counts as not there
    encoder = FakeEncoder()
    build_index(documents, encoder, tmp_path / "x")
    assert 0 < encoder.encoded <= 45
    assert np.array_equal(load_index(tmp_path / "x").matrix, np.stack([vector_of(text) for text in documents.texts]))


def test_blocks_of_other_settings_are_not_used(tmp_path: Path) -> None:
    documents = arrange(_specs(25))
    for error in (KeyboardInterrupt, None):
        blocks = iter([None, error, None])

        def stop(blocks: Iterator[Any] = blocks) -> None:
            if raised := next(blocks):
                raise raised

        encoder = FakeEncoder(stop, weights_sha256="w1" if error else "w2")
        if error:
            with pytest.raises(KeyboardInterrupt):
                build_index(documents, encoder, tmp_path / "x")
        else:
            assert build_index(documents, encoder, tmp_path / "x").resumed == 0


def test_a_build_killed_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    documents = arrange(_specs(20))
    build_index(documents, FakeEncoder(), tmp_path / "x")
    (tmp_path / "x").rename(tmp_path / ".x.old")
    (tmp_path / ".x.new").mkdir()
    (tmp_path / ".x.new" / "embeddings.npy").write_bytes(b"half")
    assert build_index(documents, FakeEncoder(), tmp_path / "x").fresh
    assert _left_beside(tmp_path / "x") == set()


# --- two processes ------------------------------------------------------------------------------------------------


def _build_and_report(documents: Any, folder: Path, start: Any, results: Any) -> None:
    encoder = FakeEncoder(lambda: time.sleep(0.05))
    start.wait(30)
    results.put((build_index(documents, encoder, folder), encoder.encoded))


def test_of_several_processes_one_builds(tmp_path: Path) -> None:
    documents = arrange(_specs(60))
    start, results = _FORK.Barrier(4), _FORK.Queue()
    children = [
        _FORK.Process(target=_build_and_report, args=(documents, tmp_path / "x", start, results)) for _ in range(4)
    ]
    for child in children:
        child.start()
    found = [results.get(timeout=60) for _ in children]
    for child in children:
        child.join(30)
    assert sorted(encoded for _, encoded in found) == [0, 0, 0, 60]
    assert sorted(summary.fresh for summary, _ in found) == [False, True, True, True]
    assert len(load_index(tmp_path / "x").ids) == 60


def test_readers_see_one_whole_index_while_it_is_replaced(tmp_path: Path) -> None:
    versions = [arrange(_specs(30)), arrange(_edited(_specs(30), 4))]
    right = {d.texts_sha256: np.stack([vector_of(text) for text in d.texts]) for d in versions}
    build_index(versions[0], FakeEncoder(), tmp_path / "x")
    done, seen, reads = threading.Event(), set(), 0

    def rebuild() -> None:
        number = 0
        while number < 40 or (len(seen) < 2 and number < 2000):
            number += 1
            build_index(versions[number % 2], FakeEncoder(), tmp_path / "x")
        done.set()

    writer = threading.Thread(target=rebuild)
    writer.start()
    while not done.is_set():
        stored = load_index(tmp_path / "x")
        assert np.array_equal(stored.matrix, right[stored.manifest["texts_sha256"]])
        seen.add(stored.manifest["texts_sha256"])
        reads += 1
    writer.join(30)
    assert reads > 5 and len(seen) == 2


def test_a_matrix_of_another_index_than_the_manifest_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rebuilds during one read: the matrix is mapped between them, all hashes are those of the first index."""
    first, second = arrange(_specs(30)), arrange(_edited(_specs(30), 4))
    for name, documents in (("x", first), ("again", first), ("other", second)):
        build_index(documents, FakeEncoder(), tmp_path / name)
    load, swapped = np.load, []

    def load_between_two_rebuilds(*args: Any, **kwargs: Any) -> Any:
        if swapped:
            return load(*args, **kwargs)
        swapped.append(True)
        (tmp_path / "x").rename(tmp_path / "gone")
        (tmp_path / "other").rename(tmp_path / "x")
        matrix = load(*args, **kwargs)
        (tmp_path / "x").rename(tmp_path / "other")
        (tmp_path / "again").rename(tmp_path / "x")
        return matrix

    monkeypatch.setattr(index_module.np, "load", load_between_two_rebuilds)
    stored = load_index(tmp_path / "x")
    assert swapped and stored.manifest["texts_sha256"] == first.texts_sha256
    assert np.array_equal(stored.matrix, np.stack([vector_of(text) for text in first.texts]))


def test_an_index_replaced_while_its_matrix_is_hashed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = arrange(_specs(30)), arrange(_edited(_specs(30), 4))
    build_index(first, FakeEncoder(), tmp_path / "x")
    build_index(second, FakeEncoder(), tmp_path / "other")
    digest, waiting = index_module.sha256_file, ["matrix"]

    def gone_then_replaced(path: Path) -> str:
        if path.name == "embeddings.npy" and waiting:
            waiting.pop()
            (tmp_path / "x").rename(tmp_path / "gone")
            try:
                return digest(path)  # there is no such file at this instant
            finally:
                (tmp_path / "other").rename(tmp_path / "x")
        return digest(path)

    monkeypatch.setattr(index_module, "sha256_file", gone_then_replaced)
    assert load_index(tmp_path / "x").manifest["texts_sha256"] == second.texts_sha256
    assert not waiting


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["weights_sha256", "dtype", "pooling", "max_seq_length"])
def test_each_changed_setting_is_named_with_the_command(tmp_path: Path, field: str) -> None:
    documents = arrange(_specs(20))
    build_index(documents, FakeEncoder(), tmp_path / "x")
    other = FakeEncoder(**{field: "other"}).identity
    with pytest.raises(RetrieverError, match=rf"is stale: encoder\.{field}: .*'other' now\. Rebuild it: COMMAND"):
        refuse_stale(load_index(tmp_path / "x"), documents, other, "COMMAND")


def test_changed_documents_and_template_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = _specs(20)
    build_index(arrange(specs), FakeEncoder(), tmp_path / "x")
    stored, identity = load_index(tmp_path / "x"), FakeEncoder().identity
    changed = arrange(_edited(specs, 5)[1:])
    with pytest.raises(RetrieverError, match=r"documents: 1 changed, 0 added, 1 removed, first [AB-]+\.t5\.go"):
        refuse_stale(stored, changed, identity, "COMMAND")
    refuse_stale(stored, arrange(specs[::-1]), identity, "COMMAND")  # the order of the file does not matter
    monkeypatch.setattr("retriever.index.TEMPLATE_VERSION", "other/9")
    with pytest.raises(RetrieverError, match="template: .* in the index, 'other/9' now"):
        refuse_stale(stored, arrange(specs), identity, "COMMAND")


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))


def _edit(**changes: Any) -> Callable[[Path], None]:
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("embeddings.npy", _truncate, "broken"),
        ("embeddings.npy", _flip, "not the file that was written"),
        ("embeddings.npy", lambda path: path.write_bytes(b""), "broken"),
        ("embeddings.npy", Path.unlink, "broken"),
        ("rows.jsonl", _truncate, "not the file that was written"),
        ("rows.jsonl", Path.unlink, "broken"),
        ("manifest.json", _truncate, "cannot be read"),
        ("manifest.json", Path.unlink, "not complete"),
        ("manifest.json", _edit(stage="data"), "is not an index"),
        ("manifest.json", _edit(format=99), "format is 99"),
        ("manifest.json", _edit(dim=99), "expected float32"),
    ],
)
def test_a_damaged_index_is_refused_and_can_be_built_again(
    tmp_path: Path, name: str, damage: Callable[[Path], Any], message: str
) -> None:
    documents = arrange(_specs(20))
    build_index(documents, FakeEncoder(), tmp_path / "x")
    right = _files(tmp_path / "x")
    damage(tmp_path / "x" / name)
    with pytest.raises(RetrieverError, match=message):
        load_index(tmp_path / "x")
    if message != "is not an index":  # then the folder may be somebody's work, and is left alone
        build_index(documents, FakeEncoder(), tmp_path / "x")
        assert _files(tmp_path / "x") == right
    else:
        with pytest.raises(RetrieverError, match=message):
            build_index(documents, FakeEncoder(), tmp_path / "x")


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thesis.tex").write_text("mine")
    with pytest.raises(RetrieverError, match="holds other files"):
        build_index(arrange(_specs(5)), FakeEncoder(), tmp_path / "x")
    assert _files(tmp_path / "x") == {"thesis.tex": b"mine"}
    (tmp_path / "y").write_text("a file")
    with pytest.raises(RetrieverError, match="is not a folder"):
        build_index(arrange(_specs(5)), FakeEncoder(), tmp_path / "y")
    with pytest.raises(RetrieverError, match="does not exist"):
        load_index(tmp_path / "none")


# --- full disk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["matrix", "block", "no room"])
def test_a_full_disk_leaves_the_old_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    specs = _specs(40)
    build_index(arrange(specs), FakeEncoder(), tmp_path / "x")
    before = _files(tmp_path / "x")

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    name = {"matrix": "save", "block": "savez"}.get(where)
    with monkeypatch.context() as patch:
        if name:
            patch.setattr(index_writing.np, name, full)
        else:
            patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
        with pytest.raises(RetrieverError, match="cannot write index .* it continues"):
            build_index(arrange(_edited(specs, 3)), FakeEncoder(), tmp_path / "x")
    assert _files(tmp_path / "x") == before
    assert _left_beside(tmp_path / "x") <= {".x.building"}
    assert not list(tmp_path.glob(".x.building/*.half"))
    assert build_index(arrange(_edited(specs, 3)), FakeEncoder(), tmp_path / "x").documents == 40


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("mount"), reason="mounting a small disk needs root")
def test_a_really_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.decode()}")
    try:
        with pytest.raises(RetrieverError, match="MB are free"):
            build_index(arrange(_specs(2000)), FakeEncoder(), small / "x")
        monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**40, 0, 2**40))
        with pytest.raises(RetrieverError, match=r"cannot write index .*No space left.* it continues"):
            build_index(arrange(_specs(2000)), FakeEncoder(), small / "x")
        assert not (small / "x").exists() and not (small / ".x.new").exists()
        shutil.rmtree(small / ".x.building")
        assert build_index(arrange(_specs(50)), FakeEncoder(), small / "x").documents == 50
        load_index(small / "x")
    finally:
        subprocess.run(["umount", str(small)], check=True)
