"""Keys of ``evaluation.run``, and reading all that they name before anything is played."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.config import Config
from autotools.errors import DataError
from autotools.llm.endpoint import EndpointSettings
from autotools.llm.loading import check_dtype
from autotools.search.answer import NameIndex
from evaluation import suites
from evaluation.policies import BASELINES, Table, check_policies, is_url
from retriever import cpu_threads

if TYPE_CHECKING:
    from retriever.corpus import Corpus
    from retriever.engine import SearchEngine

CHUNK_ROUNDS = 4  # several batches at once, so that each can hold contexts of one length
_HOW_TO_ASK = (
    "concurrency",
    "key_env",
    "attempts",
    "backoff_s",
    "max_backoff_s",
    "attempt_timeout_s",
    "total_timeout_s",
)
MAY_DIFFER = ("out", *(f"endpoint.{key}" for key in _HOW_TO_ASK))  # on resuming: where and how, not what is played


@dataclass(kw_only=True)
class EvalArgs:
    """Keys of the command."""

    out: str = field(metadata={"help": "new folder for predictions and metrics"})
    world: str = field(default="", metadata={"help": "tool world folder (tools.jsonl, tasks/)"})
    corpus: str = field(default="", metadata={"help": "tools.jsonl or documentation; default: the world's"})
    queries: str = field(default="", metadata={"help": "folder of original request files, in place of the world's"})
    suite: str = field(default="toolworld", metadata={"help": "toolworld, stabletoolbench or toollens"})
    split: str = field(default="test", metadata={"help": "train, dev or test; original files: what the suite has"})
    policy: str = field(default="", metadata={"help": "SOURCE of the only policy; its name is made from it"})
    policies: list[str] = field(default_factory=list, metadata={"help": "name=SOURCE, one or several, in order"})
    encoder: str = field(
        default="bm25", metadata={"help": "bm25, hybrid, a recipe or model, or http://HOST:PORT of retriever.serve"}
    )
    index: str | None = field(default=None, metadata={"help": "index folder made by python -m retriever.build"})
    device: str = field(default="auto", metadata={"help": "where the encoder runs: auto | cpu | cuda"})
    threads: int | None = field(default=None, metadata={"help": cpu_threads.HELP + " (dense encoders)"})
    one_shot_k: int = field(
        default=0,
        metadata={"help": "answers of bm25 and one_shot; 0: best on dev, or search.top_k without a dev split"},
    )
    limit: int = field(default=0, metadata={"help": "play only so many tasks, drawn with the seed; 0: all"})
    seed: int = field(default=0, metadata={"help": "seed of the draw and of the bootstrap"})
    batch_size: int = field(default=64, metadata={"help": "contexts per generation batch"})
    chunk: int = field(
        default=0, metadata={"help": "tasks between two writes to disk; 0: four batches, or 4 x endpoint.concurrency"}
    )
    dtype: str = field(default="auto", metadata={"help": "weights' type: auto, float32, bfloat16 ..."})
    vllm: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "arguments of vllm.LLM: --vllm max_model_len=8192 ..."}
    )
    resume: bool = field(default=False, metadata={"help": "play what has no prediction yet, failed requests too"})
    overwrite: bool = field(default=False, metadata={"help": "replace an earlier evaluation in OUT"})

    def __post_init__(self) -> None:
        if self.suite not in suites.SUITES:
            raise ValueError(f"unknown suite {self.suite!r}; known: {', '.join(suites.SUITES)}")
        for name, zero in (("limit", "all"), ("one_shot_k", "by dev"), ("chunk", "four batches")):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 ({zero}) or more, got {getattr(self, name)}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, got {self.batch_size}")
        if not self.world and not (self.corpus and self.queries):
            raise ValueError("name the tools and requests: --world FOLDER, or --corpus FILE and --queries DIR")
        check_dtype(self.dtype)

    @property
    def tools(self) -> str:
        """Where the corpus is."""
        return self.corpus or self.world

    def chunk_of(self, source: str, endpoint: EndpointSettings) -> int:
        """Tasks of this policy between two writes to disk."""
        return self.chunk or CHUNK_ROUNDS * (endpoint.concurrency if is_url(source) else self.batch_size)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What is played, with which tools, on which engine."""

    corpus: "Corpus"
    requests: suites.Requests
    table: Table

    @property
    def set_aside(self) -> list[dict[str, Any]]:
        """Every record that could not be used: of the played split, the corpus, and dev."""
        return [*self.requests.rejected, *self.corpus.rejects, *self.requests.set_aside]


def input_files(args: EvalArgs) -> list[Path]:
    """Files of corpus and requests. Raises DataError or ConfigError where they, the split or the encoder are not there.

    Reads nothing of them: it is what a dry run checks.
    """
    from autotools.docs.forms import walk
    from retriever.corpus import find_corpus
    from retriever.engine import check_encoder

    if not is_url(args.encoder):
        check_encoder(args.encoder)
    tools = find_corpus(args.corpus) if args.corpus else Path(args.world) / "tools.jsonl"
    files = list(walk(tools)) if tools.is_dir() else [tools]
    if not args.queries:
        return [*files, suites.task_file(args.world, args.split)]
    found = suites.suite_files(args.queries, args.suite)
    suites.check_split(args.suite, args.split)
    return files + [file for path in found for file in ([path] if path.is_file() else sorted(_files(path)))]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def read_inputs(args: EvalArgs, config: Config, policies: dict[str, str]) -> Inputs:
    """Read and open everything but the policies' models. What is wrong with it shows before a folder is claimed."""
    from retriever.corpus import read_corpus

    sections = {name: config.section(name) for name in ("search", "rag", "endpoint")}
    check_policies(policies, sections["endpoint"])
    corpus = read_corpus(args.tools)
    names, ids = NameIndex(spec.id for spec in corpus.specs), {spec.id for spec in corpus.specs}
    dev = not args.one_shot_k and any(source in BASELINES for source in policies.values())
    if not args.queries:
        requests = suites.read_world(args.world, args.suite, args.split, names, dev=dev)
    elif args.suite == "toollens":
        requests = suites.read_toollens(args.queries, ids, args.split, dev=dev, seed=args.seed)
    else:
        requests = suites.read_stabletoolbench(args.queries, ids, args.split)
    limits = {"batch_size": args.batch_size, "dtype": args.dtype, "seed": args.seed, "vllm": args.vllm}
    table = Table(engine=open_search(args, corpus), names=names, **sections, **limits)
    return Inputs(corpus=corpus, requests=requests, table=table)


def open_search(args: EvalArgs, corpus: "Corpus") -> "SearchEngine":
    """The engine that policies search with. Raises DataError if it is a server of another corpus."""
    from retriever.engine import open_engine

    if args.encoder == "bm25" and args.index is None:  # a corpus of 16 thousand tools is read once
        from retriever.bm25 import BM25Engine

        return BM25Engine(corpus.specs)
    if not is_url(args.encoder):
        return open_engine(args.tools, args.encoder, index=args.index, device=args.device)
    engine = open_engine(args.encoder)
    there, tools = set(engine.categories), _tools_of(engine.describe())
    if there != set(corpus.categories) or tools not in (None, len(corpus.specs)):
        raise DataError(
            f"the server {args.encoder} has another corpus ({tools} tools, {len(there)} categories) than {args.tools} "
            f"({len(corpus.specs)} tools, {len(corpus.categories)} categories); serve that one"
        )
    return engine


def _tools_of(description: dict[str, Any]) -> int | None:
    """The number of tools in what an engine says of itself, at whatever depth."""
    if isinstance(description.get("tools"), int):
        return description["tools"]
    inner = (_tools_of(value) for value in description.values() if isinstance(value, dict))
    return next((number for number in inner if number is not None), None)
