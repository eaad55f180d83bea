"""What a policy's source means, checked before anything is played, and opened when its turn comes."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from autotools.errors import ConfigError, DataError, ProviderError
from autotools.llm.endpoint import EndpointSettings, check_url, read_key, split_url
from autotools.llm.loading import check_model
from autotools.schema import Task, Trajectory
from autotools.search.answer import NameIndex
from autotools.search.episode import Episode, SearchSettings
from autotools.search.rag import RagSettings, rag_episodes

if TYPE_CHECKING:
    from retriever.engine import SearchEngine

BASELINES = ("bm25", "one_shot")
RAG, VLLM = "rag:", "vllm:"
FORMS = "name=bm25, name=one_shot, name=CHECKPOINT, name=vllm:CHECKPOINT or name=http://HOST:PORT/v1 (rag:... for RAG)"
_HOST_PORT = re.compile(r"[A-Za-z0-9_.-]+:\d+(/|#|$)")
_NAME = re.compile(r"[A-Za-z0-9_.]+")


def is_url(source: str) -> bool:
    """Whether a source is the address of an endpoint."""
    return source.removeprefix(RAG).startswith(("http://", "https://"))


def model_path(source: str) -> str:
    """Folder or hub name of a source that is a checkpoint, without what is said before it."""
    return source.removeprefix(RAG).removeprefix(VLLM)


def parse_policies(texts: Sequence[str], single: str = "") -> dict[str, str]:
    """``["before=runs/sft"]`` -> ``{"before": "runs/sft"}``, in order; ``single`` is one source without a name.

    Raises ConfigError for a bad or double name, or if there is no policy or both forms are used.
    """
    if single and texts:
        raise ConfigError("--policy and --policies are two forms of the same; pass one of them")
    if single:
        return {derived_name(single): single}
    policies: dict[str, str] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        if not equals or not source or not _NAME.fullmatch(name):
            raise ConfigError(f"policy {text!r} is not of the form {FORMS} (in a name: letters, digits, _ .)")
        if name in policies:
            raise ConfigError(f"two policies are called {name!r}; give each its own name")
        policies[name] = source
    if not policies:
        raise ConfigError("no policies; pass --policy SOURCE, or --policies name=bm25 name=CHECKPOINT ...")
    return policies


def derived_name(source: str) -> str:
    """A name for a source: the model's of an endpoint or else its host and port, the last folder of a path."""
    text = model_path(source)
    if is_url(source):
        address, model = split_url(text)
        text = model or re.sub(r"/v\d+$", "", address.partition("://")[2])
    else:
        text = Path(text).name or text
    text = f"rag_{text}" if source.startswith(RAG) else text
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("_.") or "policy"


def check_policies(policies: dict[str, str], endpoint: EndpointSettings) -> None:
    """Raise DataError for a source that is no model, or one of our runs that has not finished, ConfigError for a key
    that is not set or an address that is none. Asks no endpoint."""
    for label, source in policies.items():
        try:
            if source in BASELINES:
                continue
            model = source.removeprefix(RAG)
            if is_url(model):
                check_url(model)
                read_key(endpoint)
                continue
            if model in BASELINES:
                raise ConfigError(f"policy {label}: {source!r} needs a model that reads the documents: rag:CHECKPOINT")
            if _HOST_PORT.match(model):
                raise ConfigError(f"policy {label}: {model!r} reads like an address; write http://{model}")
            if model.startswith(VLLM):
                from autotools.llm.offline import check_installed

                check_installed()
            check_model(model_path(source))
        except DataError as error:
            raise DataError(f"policy {label}: {error}") from error


def fingerprint(source: str) -> str:
    """What a resumed run must find again behind a source: hash of a checkpoint's manifest, or of its files' sizes."""
    folder = Path(model_path(source)).expanduser()
    if source in BASELINES or is_url(source) or not folder.is_dir():
        return source
    manifest = folder / "manifest.json"
    sizes = sorted((path.name, path.stat().st_size) for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(manifest.read_bytes() if manifest.is_file() else repr(sizes).encode()).hexdigest()


# --- players ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Played:
    """Trajectories of the tasks that have one, and by task id why another has none."""

    trajectories: list[Trajectory]
    failed: dict[str, str] = field(default_factory=dict)


class Player(Protocol):
    """Plays tasks. ``note``: what it is, for metrics.json."""

    note: dict[str, Any]

    def play(self, tasks: Sequence[Task]) -> Played:
        """Trajectories of all tasks, in order, but for those whose request failed."""
        ...


@dataclass(frozen=True, kw_only=True)
class Table:
    """What every player plays on: the engine, the names of its corpus, the rules, and how to open models."""

    engine: "SearchEngine"
    names: NameIndex
    search: SearchSettings
    rag: RagSettings = RagSettings()
    endpoint: EndpointSettings = EndpointSettings()
    batch_size: int = 64
    dtype: str = "auto"
    seed: int = 0
    vllm: dict[str, Any] = field(default_factory=dict)

    def episodes(self, tasks: Sequence[Task], rag: bool = False) -> Sequence[Episode]:
        """One fresh episode per task, with ``rag`` one that is given its documents. Raises RetrieverError."""
        if rag:
            return rag_episodes(tasks, self.names, self.search, self.rag, self.engine.search_batch)
        return [
            Episode(t.query, self.names, self.search, task_id=t.id, targets=t.targets, level=t.level, meta=t.meta)
            for t in tasks
        ]


class OneShotPlayer:
    """One search with the raw request; see ``evaluation.one_shot``."""

    def __init__(self, engine: "SearchEngine", shown: int, k: int, note: dict[str, Any]):
        self._engine, self._shown, self._k, self.note = engine, shown, k, note

    def play(self, tasks: Sequence[Task]) -> Played:
        """As ``Player.play``; nothing can fail for one request alone."""
        from evaluation.one_shot import one_shot

        return Played(trajectories=one_shot(tasks, self._engine, self._shown, self._k))


class TokenPlayer:
    """A model in this process: transformers, or vLLM's offline engine."""

    def __init__(self, source: str, table: Table, rag: bool):
        self._table, self._rag = table, rag
        path = model_path(source)
        if source.startswith(VLLM):
            from autotools.llm.offline import VllmPolicy

            options = {"dtype": table.dtype, "seed": table.seed, "options": table.vllm}
            self._policy: Any = VllmPolicy(path, max_new_tokens=table.search.turn_tokens, **options)
            self.note = {"kind": "checkpoint in vLLM, greedy"}
        else:
            from autotools.llm.local import LocalPolicy

            limits = {"max_new_tokens": table.search.turn_tokens, "batch_size": table.batch_size}
            self._policy = LocalPolicy(path, dtype=table.dtype, **limits)
            self.note = {"kind": "checkpoint, greedy"}
        self.note["kind"] += _documents_given(rag, table)

    def play(self, tasks: Sequence[Task]) -> Played:
        """As ``Player.play``; a failure of the model or the engine is raised."""
        from autotools.search.rollout import run_episodes

        episodes = self._table.episodes(tasks, self._rag)
        run_episodes(self._policy.generate, episodes, self._policy.renderer, self._table.engine.search_batch)
        return Played(trajectories=[episode.trajectory() for episode in episodes])


class EndpointPlayer:
    """A model behind an OpenAI-compatible endpoint."""

    def __init__(self, source: str, table: Table, rag: bool):
        from autotools.llm.endpoint import ChatEndpoint

        self._table, self._rag = table, rag
        self._endpoint = ChatEndpoint(source, table.endpoint, seed=table.seed)
        self._answers = 0
        self.note = {"kind": "endpoint, greedy" + _documents_given(rag, table), "model": self._endpoint.model}

    def play(self, tasks: Sequence[Task]) -> Played:
        """As ``Player.play``. Raises ProviderError if the endpoint has never answered, so that nobody waits for all."""
        from autotools.llm.chat_rollout import run_chats

        episodes = self._table.episodes(tasks, self._rag)
        failed = run_chats(self._endpoint.complete, episodes, self._table.engine.search_batch)
        self._answers += sum(len(episode.events) > self._rag for episode in episodes)  # RAG's search is ours
        if failed and not self._answers:
            reason = next(iter(failed.values()))
            raise ProviderError(f"endpoint {self._endpoint.url} answered none of {len(failed)} requests ({reason})")
        return Played(
            trajectories=[episode.trajectory() for i, episode in enumerate(episodes) if i not in failed],
            failed={tasks[i].id: reason for i, reason in failed.items()},
        )


def _documents_given(rag: bool, table: Table) -> str:
    return f", RAG with {table.rag.documents} documents of one search with the raw request" if rag else ""


def open_model(source: str, table: Table, label: str) -> Player:
    """The player of a source other than a baseline. Raises DataError or ProviderError that name the policy."""
    try:
        player = EndpointPlayer if is_url(source) else TokenPlayer
        return player(source.removeprefix(RAG), table, source.startswith(RAG))
    except (DataError, ProviderError) as error:
        raise type(error)(f"policy {label}: {error}") from error
