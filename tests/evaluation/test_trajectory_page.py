"""The trajectory page in a real browser: keys, buttons, address, exactly the recorded tokens, no error, no request."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import DataError
from autotools.rundir import write_jsonl
from evaluation import trajectory_page

EVIL = '</script><script>document.title="pwned"</script><!--<script><img src=http://evil.example/x onerror=alert(1)>'


class Browser:
    """Headless Chromium over the DevTools protocol on two pipes: real key presses, and every error and request seen."""

    def __init__(self, binary: str, profile: Path):
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"]
        # Chromium reads commands from descriptor 3 and answers on 4; the shell puts ours there.
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, binary, *flags, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest, self.events = 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._from, 1 << 16)
            assert piece, "Chromium ended"
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, address: str, width: int = 1280, height: int = 900) -> None:
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        limit = time.monotonic() + 30
        while self.js("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < limit, "the page did not load"
            time.sleep(0.02)

    def js(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, *keys: str) -> None:
        for key in keys:
            extra = {"text": key} if len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **extra)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def complaints(self) -> list[Any]:
        """Exceptions, console and log entries (also of the Content-Security-Policy), and requests but for files."""
        bad = [e for e in self.events if e["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")]
        bad += [e for e in self.events if e["method"] == "Log.entryAdded"]
        sent = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return bad + [e for e in sent if not e["params"]["request"]["url"].startswith(("file:", "data:,", "about:"))]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._to)
        os.close(self._from)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium where there is one; CI must have it."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        reason = "no Chromium on this machine: the trajectory page is not opened"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    browser = Browser(binary, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


# --- a small recording ------------------------------------------------------------------------------------------------

TOOLS = [{"category": "Travel", "tool": "desk", "api": name} for name in ("a", "b", "c")]
NAMES = ["Travel.desk.a", "Travel.desk.b", "Travel.desk.c"]


def row(step: int, group: int, rollout: int, evil: str = "", tokens: bool = True) -> dict[str, Any]:
    """Two searches (the first finds target a: advantage 1.5; the second finds nothing: removed) and an answer."""
    query = evil or f"request {step}.{group}"
    say = f"say {step}.{group}.{rollout}"
    turns = [["<call>\n", say, evil or " é", "<end>"], ["<call>\n", " again", "<end>"], ["<list>", "Travel", "<end>"]]
    events = [
        {"kind": "search", "text": "".join(turns[0]), "query": evil or say, "hits": [TOOLS[2], TOOLS[0]],
         "observation": evil or "two tools"},
        {"kind": "search", "text": "".join(turns[1]), "query": "again", "hits": [TOOLS[0]], "observation": "one tool"},
        {"kind": "answer", "text": "".join(turns[2])},
    ]  # fmt: skip
    trajectory = {"task_id": f"t{step}.{group}", "query": query, "targets": TOOLS[:2], "events": events, "level": "I2",
                  "selection": [TOOLS[0], TOOLS[1]], "unknown_names": [evil or "no.such.tool"],
                  "stop_reason": "answered"}  # fmt: skip
    credit = [
        {"advantage": 1.5, "kept": True, "z": {NAMES[0]: 1.5}},
        {"advantage": 0.0, "kept": False, "z": {}},
        {"advantage": -0.5, "kept": True, "z": {}},
    ]
    if tokens:
        for event, turn, start in zip(credit, turns, (0, 20, 40), strict=True):
            event.update(span=[start, start + len(turn)], tokens=turn)
    return {"step": step, "group": group, "rollout": rollout, "trajectory": trajectory, "credit": credit,
            "rewards": {"selection": 0.4, evil or "format": 0.1}, "z": {NAMES[0]: 1.5, NAMES[1]: -0.25}}  # fmt: skip


def write_run(folder: Path, rows: list[dict[str, Any]]) -> Path:
    write_jsonl(folder / "rl" / "trajectories.jsonl", rows)
    return folder


def made(folder: Path, *argv: str) -> Path:
    assert trajectory_page.main(["--run", str(folder), *argv]) == 0
    return folder / "trajectories.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 0, 5, 10; two groups; three rollouts. The path has a blank, as a user's may."""
    rows = [row(step, group, rollout) for step in (0, 5, 10) for group in range(2) for rollout in range(3)]
    return made(write_run(tmp_path_factory.mktemp("a run") / "out put", rows))


SHOWN = """[...document.querySelectorAll('.event')].map((event) => ({
  head: event.querySelector('p').textContent.trim(),
  hits: [...event.querySelectorAll('.hits li')].map((hit) => hit.textContent.trim()),
  credit: event.querySelector('.credit').textContent,
  tokens: [...event.querySelectorAll('.t')].map((token) => [token.textContent, token.className, token.title])}))"""


def test_an_event_is_shown_whole(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri() + "#step=5&group=2&rollout=3")
    first, second, answer = browser.js(SHOWN)
    assert first["head"] == "1. search “say 5.1.2”" and second["head"] == "2. search “again”"
    assert first["hits"] == ["·Travel.desk.c", "✓Travel.desk.a target, first found here"]
    assert second["hits"] == ["✓Travel.desk.a target, seen before"]
    assert answer["hits"] == ["✓Travel.desk.a target", "✗Travel.desk.b never shown by a search",
                              "✗no.such.tool no such tool"]  # fmt: skip
    assert first["credit"] == "advantage +1.50 keptz +1.50 Travel.desk.a"
    assert second["credit"] == "advantage 0.00 removed" and answer["credit"] == "advantage −0.50 kept"
    # Exactly the recorded tokens, by number in the completion; a line end is visible and still breaks the line.
    assert [t[0] for t in first["tokens"]] == ["<call>↵\n", "say 5.1.2", " é", "<end>"]
    assert [t[2] for t in second["tokens"]] == [f"token {i}: removed" for i in (20, 21, 22)]
    assert {t[1] for t in first["tokens"]} == {"t plus l4"} and {t[1] for t in answer["tokens"]} == {"t minus l2"}
    assert {t[1] for t in second["tokens"]} == {"t removed"}
    table = browser.js("document.querySelector('#request table').innerText").replace("\t", " ")
    assert re.search(r"Travel\.desk\.a\s+seen by 3 of 3\s+✓ e1\s+z \+1\.50", table), table
    assert re.search(r"Travel\.desk\.b\s+seen by 0 of 3\s+✗\s+z −0\.25", table), table
    assert browser.js("document.querySelector('h2').textContent") == "request 5.1"
    assert browser.complaints() == []


def test_credit_can_be_read_without_colour(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri())
    look = """(name) => { const s = getComputedStyle(document.querySelector('#events .' + name));
      return [s.borderBottomStyle, parseInt(s.borderBottomWidth), s.backgroundImage === 'none']; }"""
    plus, minus, removed = (browser.js(f"({look})('{name}')") for name in ("plus", "minus", "removed"))
    assert plus == ["solid", 5, True] and minus == ["dashed", 2, True]
    assert removed[1:] == [0, False]  # hatched
    signs = browser.js("[...document.querySelectorAll('#events .sign')].map((sign) => sign.textContent)")
    assert signs == ["▲▲▲▲", "╱╱", "▼▼"]


def test_keys_buttons_and_address(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri())

    def place() -> str:
        shown = browser.js("document.querySelector('.event .mono').textContent").removeprefix("“say ").removesuffix("”")
        step, group, rollout = map(int, shown.split("."))
        assert browser.js("location.hash") == f"#step={step}&group={group + 1}&rollout={rollout + 1}"
        return shown

    walk = [("Home", "0.0.0"), ("ArrowLeft", "0.0.0"), ("ArrowRight", "5.0.0"), ("ArrowDown", "5.1.0"),
            ("ArrowDown", "5.1.0"), ("j", "5.1.1"), ("j", "5.1.2"), ("j", "5.1.2"), ("k", "5.1.1"), ("3", "5.1.2"),
            ("9", "5.1.2"), ("ArrowRight", "10.1.2"), ("1", "10.1.0"), ("ArrowUp", "10.0.0"), ("x", "10.0.0"),
            ("Home", "0.0.0"), ("End", "10.0.0")]  # fmt: skip
    assert place() == "10.0.0"  # the newest step comes first
    for key, expected in walk:
        browser.press(key)
        assert place() == expected, key
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", modifiers=1)  # Alt+left is the browser's
    assert place() == "10.0.0"
    browser.js("document.querySelector('[data-move=step][data-by=\"-1\"]').click()")
    assert place() == "5.0.0"
    browser.js("document.querySelectorAll('#request thead button')[1].click()")
    assert place() == "5.0.1"
    browser.js("(s => { s.value = 1; s.dispatchEvent(new Event('change')) })(document.getElementById('group'))")
    assert place() == "5.1.1"
    browser.js("location.hash = '#step=0&group=1&rollout=2'")  # a link, or an address typed by hand
    limit = time.monotonic() + 10
    while browser.js("document.querySelector('h2').textContent") != "request 0.0" and time.monotonic() < limit:
        time.sleep(0.02)
    assert place() == "0.0.1"
    browser.open(page.as_uri() + "#step=7&group=x")  # no such place: the default
    assert place() == "10.0.0"
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1280, 480])
def test_the_page_fits_its_window(browser: Browser, page: Path, width: int) -> None:
    browser.open(page.as_uri(), width=width)
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    for name in ("bar", "keys"):
        assert browser.js(f"document.getElementById('{name}').getBoundingClientRect().height > 10")


def test_hostile_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    page = made(write_run(tmp_path, [row(0, 0, 0, evil=EVIL)]), "--title", EVIL)
    source = page.read_text(encoding="utf-8")
    assert source.count("<script") == 2 and source.lower().count("</script") == 2 and "<img" not in source
    browser.open(page.as_uri())
    assert browser.js("document.querySelector('h2').textContent") == EVIL
    assert browser.js("document.title") == EVIL  # as text, not "pwned"
    assert browser.js("document.querySelectorAll('img, script').length") == 2
    assert EVIL in [token[0] for token in browser.js(SHOWN)[0]["tokens"]]
    assert browser.complaints() == []


def test_a_script_that_is_not_ours_cannot_run(browser: Browser, page: Path, tmp_path: Path) -> None:
    """The policy in the page's head does what it says, and the test would see a breach."""
    text = page.read_text(encoding="utf-8").replace("</main>", "<script>document.title = 'pwned'</script></main>")
    (tmp_path / "x.html").write_text(text + '<img src="http://127.0.0.1:9/x.png">', encoding="utf-8")
    browser.open((tmp_path / "x.html").as_uri())
    assert browser.js("document.title") != "pwned" and browser.complaints()


def test_nothing_outside_is_named(page: Path) -> None:
    assert not re.search(r"https?:|url\(|@import|\bfetch\(|XMLHttpRequest|innerHTML|eval\(", page.read_text("utf-8"))


# --- the data behind it -----------------------------------------------------------------------------------------------


def test_recordings_without_tokens_still_show(browser: Browser, tmp_path: Path) -> None:
    page = made(write_run(tmp_path, [row(0, 0, 0, tokens=False)]))
    browser.open(page.as_uri())
    assert [t[:2] for t in browser.js(SHOWN)[1]["tokens"]] == [["<call>↵\n again<end>", "t removed"]]
    assert "without token texts" in browser.js("document.body.textContent")
    assert browser.complaints() == []


def test_no_rows_at_all(browser: Browser, tmp_path: Path) -> None:
    browser.open(made(write_run(tmp_path, [])).as_uri())
    assert "holds no trajectory" in browser.js("document.body.innerText") and browser.complaints() == []
    with pytest.raises(DataError, match="the RL stage writes it"):
        trajectory_page.main(["--run", str(tmp_path / "rl")])
    with pytest.raises(DataError, match="no run folder"):
        trajectory_page.main(["--run", str(tmp_path / "nowhere")])


def test_a_step_recorded_twice_counts_once_and_half_a_line_is_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [row(0, 0, 0), row(5, 0, 0), row(5, 0, 1)])
    again = json.dumps({**row(5, 0, 0), "rewards": {"selection": 9.0}})
    with (folder / "rl" / "trajectories.jsonl").open("a") as file:
        file.write(f'{again}\n[]\n{{"step": 1, "trajectory": {{}}}}\n{again[:100]}')
    rows, bad = trajectory_page.read_recorded(folder / "rl" / "trajectories.jsonl")
    assert [(r["step"], r["rollout"]) for r in rows] == [(0, 0), (5, 0), (5, 1)] and bad == 3
    assert rows[1]["rewards"] == {"selection": 9.0}
    assert "3 lines of rl/trajectories.jsonl" in made(folder).read_text(encoding="utf-8")


def test_the_older_steps_are_thinned_and_the_page_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [row(step, 0, rollout) for step in range(40) for rollout in range(2)])
    rows, _ = trajectory_page.read_recorded(folder / "rl" / "trajectories.jsonl")
    whole = len(trajectory_page.encode(trajectory_page.page_data(rows)))
    kept, text = trajectory_page.fit(rows, whole // 2)
    steps = sorted({r["step"] for r in kept})
    assert len(text) <= whole // 2 and len(steps) >= 10
    assert steps[0] == 0 and steps[-5:] == [35, 36, 37, 38, 39]
    assert all(sum(r["step"] == step for r in kept) == 2 for step in steps)  # whole groups
    gaps = [b - a for a, b in zip(steps, steps[1:], strict=False)]
    assert gaps == sorted(gaps, reverse=True)
    assert trajectory_page.fit(rows, whole) == (rows, trajectory_page.encode(trajectory_page.page_data(rows)))
    source = made(folder, "--max_bytes", str(whole // 2)).read_text(encoding="utf-8")
    assert f"{len(steps)} of 40 recorded steps and {len(kept)} of 80 rollouts" in source
    one_step = [row for row in rows if row["step"] == 3]
    groups = [{**one_step[0], "group": group} for group in range(8)]
    assert [r["group"] for r in trajectory_page.fit(groups, 10)[0]] == [0]  # never less than one group


def test_the_json_is_inert_and_whole() -> None:
    data = {"strings": [EVIL, "\u2028", "\ud800", "a&b"]}
    text = trajectory_page.encode(data)
    assert not set("<>&\u2028") & set(text) and text.isascii() and json.loads(text) == data
