"""Config keys of data synthesis. Imports nothing heavy, so that ``--help`` is quick."""

from dataclasses import dataclass, field

from autotools.errors import ConfigError


@dataclass(kw_only=True)
class BuildArgs:
    """Top-level keys. A ``num_`` of -1 means all there are."""

    world: str = field(metadata={"help": "tool world folder (python -m toolworld.build)"})
    out: str = field(metadata={"help": "data folder to write"})
    seed: int = field(default=0, metadata={"help": "seed of every draw"})
    overwrite: bool = field(default=False, metadata={"help": "replace an earlier data folder"})
    num_search_demos: int = field(default=8000, metadata={"help": "search demonstrations in train"})
    num_relevance: int = field(default=-1, metadata={"help": "relevance records in train"})
    num_function: int = field(default=-1, metadata={"help": "function records in train"})
    num_rag: int = field(
        default=0, metadata={"help": "records that select among given documents, for the baseline RAGSFT; 0: none"}
    )
    num_rl_prompts: int = field(default=-1, metadata={"help": "RL prompts in train"})
    num_candidates: int = field(default=8, metadata={"help": "candidate tools in relevance and function records"})
    max_query_chars: int = field(default=-1, metadata={"help": "leave out longer requests; -1: no limit"})
    dev_functions: float = field(default=0.1, metadata={"help": "share of functions whose understanding record is dev"})

    def __post_init__(self) -> None:
        if self.num_candidates < 1 or not 0 <= self.dev_functions < 1:
            raise ConfigError("num_candidates must be 1 or more, dev_functions at least 0 and below 1")
        if self.num_search_demos < 0:
            raise ConfigError(f"num_search_demos is {self.num_search_demos}; give the number of demonstrations")


@dataclass(frozen=True, kw_only=True)
class ExpertSettings:
    """Config section ``expert``: probabilities per target, drawn independently."""

    own_words: float = field(default=0.35, metadata={"help": "query = content words of the user's clause"})
    object_only: float = field(default=0.15, metadata={"help": "query = the tool's noun alone"})
    right_pick: float = field(default=0.65, metadata={"help": "picks the target if it was shown, else any hit"})
    go_on: float = field(default=0.75, metadata={"help": "goes on to the next target"})
    retry: float = field(default=0.0, metadata={"help": "asks a good query after a search that showed nothing"})
    curriculum_prompts: float = field(
        default=0.0, metadata={"help": "demonstrations under each of the curriculum's two prompts; the rest: as ever"}
    )
    right_category: float = field(
        default=0.65, metadata={"help": "names the target's category where categories are listed, else any"}
    )

    def __post_init__(self) -> None:
        for name in ("own_words", "object_only", "right_pick", "go_on", "retry", "right_category"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"expert.{name} is {getattr(self, name)}; a probability lies between 0 and 1")
        if not 0 <= self.curriculum_prompts <= 0.5:
            raise ConfigError(
                f"expert.curriculum_prompts is {self.curriculum_prompts}; two prompts share 1, so up to 0.5"
            )
        if self.own_words + self.object_only > 1:
            raise ConfigError("expert.own_words + expert.object_only exceed 1; the rest is the share of good queries")
