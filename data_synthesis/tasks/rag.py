"""Selection among given documents: training data of the baseline RAGSFT, under the prompt that RAG is played with."""

from collections.abc import Iterator, Sequence
from typing import Any

from autotools.schema import Task
from autotools.search.answer import NameIndex
from autotools.search.episode import SearchBatch, SearchSettings
from autotools.search.prompt import answer_text
from autotools.search.rag import RagSettings, rag_episodes
from data_synthesis.filters import Ledger
from data_synthesis.inputs import Inputs
from data_synthesis.records import record

CHUNK = 256  # requests per call of the engine: a hundred hits each are kept no longer than needed


def rag_records(
    inputs: Inputs,
    tasks: Sequence[Task],
    search: SearchSettings,
    rag: RagSettings,
    search_batch: SearchBatch,
    ledger: Ledger,
) -> Iterator[dict[str, Any]]:
    """One record per task. Answer: the targets among the documents, in calling order; a model that is taught others
    learns to invent names. Tasks without a target there go to the ledger."""
    names = NameIndex(inputs.by_id)
    for start in range(0, len(tasks), CHUNK):
        some = tasks[start : start + CHUNK]
        for task, episode in zip(some, rag_episodes(some, names, search, rag, search_batch), strict=True):
            shown = set(episode.events[0].hits)
            targets = [str(target) for target in task.targets if target in shown]
            if targets:
                messages = [*episode.messages, {"role": "assistant", "content": answer_text(targets)}]
                yield record(f"rag/{task.id}", "rag", task.suite, messages)
            else:
                problem = (f"no target among the first {rag.documents} documents", task.id)
                ledger.reject("rag", task.suite, task.id, problem)
