"""RAG's episode: all documents in the prompt, one turn, and a record that the metrics read like any other."""

import pytest

from autotools.schema import EventKind, Hit, StopReason, Task, ToolId
from autotools.search.answer import NameIndex
from autotools.search.episode import SearchSettings
from autotools.search.prompt import answer_text, call_text
from autotools.search.rag import RagSettings, rag_episodes
from evaluation.selection import score_tasks

TOOLS = [ToolId(category="Travel", tool="desk", api=f"a{i}") for i in range(120)]
NAMES = NameIndex(TOOLS)
REQUEST = "is there a bus?"


def engine(queries, categories, k):
    assert set(categories) == {None}
    return [[Hit(id=i, score=1.0, document=f"{query} " + "x" * 900) for i in TOOLS][:k] for query in queries]


def episode(targets=(TOOLS[0],), **settings):
    task = Task(id="t", suite="s", split="test", level="I2", query=REQUEST, targets=targets)
    return rag_episodes([task], NAMES, SearchSettings(max_turns=8), RagSettings(**settings), engine)[0]


def test_every_name_and_the_request_stay_however_short_the_documents_are_cut():
    system, user = episode(document_chars=30).messages
    lines = user["content"].splitlines()
    assert (system["role"], user["role"]) == ("system", "user") and "<tool_list>" in system["content"]
    assert [line.partition(":")[0] for line in lines[1:101]] == [str(tool) for tool in TOOLS[:100]]
    assert {len(line.partition(": ")[2]) for line in lines[1:101]} == {30}
    assert lines[101:] == ["", f"Request: {REQUEST}"]  # behind the documents: what is cut is never the request
    assert len(episode(documents=3).messages[1]["content"].splitlines()) == 6


def test_the_answer_is_scored_like_that_of_a_search():
    played = episode((TOOLS[0], TOOLS[119]))
    played.step(answer_text([str(TOOLS[0]), str(TOOLS[119])]))
    trajectory = played.trajectory()
    assert [event.kind for event in trajectory.events] == [EventKind.SEARCH, EventKind.ANSWER]
    assert trajectory.found() == {TOOLS[0]} and trajectory.level == "I2" and len(trajectory.events[0].hits) == 100
    values = score_tasks([trajectory])[0].values
    # the second name is right, but no document of it was shown: precision 1/2, recall 1/2 by hand
    assert (values["f1"], values["recall"], values["srecall"], values["searches"]) == (0.5, 0.5, 0.5, 1)


@pytest.mark.parametrize("text", [call_text("bus"), "hm", "<tool_call>{", ""])
def test_there_is_one_turn_only(text):
    played = episode()
    played.step(text)
    assert played.stop_reason is StopReason.TURN_LIMIT or played.stop_reason is StopReason.EMPTY_ANSWER
    assert played.request is None and played.trajectory().selection is None


def test_all_requests_go_out_in_one_call_and_nothing_is_asked_for_nothing():
    calls = []

    def counting(queries, categories, k):
        calls.append((len(queries), k))
        return engine(queries, categories, k)

    tasks = [Task(id=f"t{i}", suite="s", split="dev", level="", query=f"q{i}", targets=(TOOLS[i],)) for i in range(5)]
    episodes = rag_episodes(tasks, NAMES, SearchSettings(), RagSettings(documents=7), counting)
    assert calls == [(5, 7)] and [e.task_id for e in episodes] == [task.id for task in tasks]
    assert all(f"q{i} xx" in e.messages[1]["content"] for i, e in enumerate(episodes))
    assert rag_episodes([], NAMES, SearchSettings(), RagSettings(), counting) == [] and len(calls) == 1


def test_settings_are_at_least_one():
    with pytest.raises(ValueError, match="documents must be 1 or more, got 0"):
        RagSettings(documents=0)
    with pytest.raises(ValueError, match="document_chars must be 1 or more, got -3"):
        RagSettings(document_chars=-3)
