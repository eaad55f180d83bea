"""What a run's settings have in common with the paper's 7B run and with its official code: computed, row by row.

Sources: arXiv 2609.30906, and the code that goes with it, as summarised in the project's design notes (sections 1.7, 2
and 9 of ``toolsearcher.md``); "verl" marks defaults of its framework that its scripts leave alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from autotools.config import Config
from rl.credit_options import PAPER, REFERENCE, CreditOptions

if TYPE_CHECKING:
    from rl.plan import Sizes

UNSAID = None
"""The source does not say; such a row counts neither as equal nor as different."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row. A tuple in ``paper`` or ``reference`` lists equally good values; numbers are equal within 1e-9."""

    name: str
    ours: Any
    paper: Any = UNSAID
    reference: Any = UNSAID

    def differs(self, source: str) -> bool | None:
        """Whether this run differs from ``paper`` or ``reference``; None where the source does not say."""
        theirs = getattr(self, source)
        if theirs is UNSAID:
            return None
        choices: Sequence[Any] = theirs if isinstance(theirs, tuple) else (theirs,)
        return not any(_same(self.ours, choice) for choice in choices)


def _same(a: Any, b: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (a, b))
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b)) if numbers else a == b


def _name(path: str) -> str:
    return str(path).rstrip("/").rpartition("/")[2]


def settings(config: Config, trl_args: Any, sizes: "Sizes") -> list[Setting]:
    """All rows for a resolved config; ``sizes`` holds what follows from it (``rl/plan.py``)."""
    return [*_scale(config, trl_args, sizes), *_optimiser(config, trl_args), *_method(config), *_credit(config)]


def _scale(config: Config, trl_args: Any, sizes: "Sizes") -> list[Setting]:
    from rl.train import RLArgs

    args, search = config.top(RLArgs), config.section("search")
    small, lora = "qwen2.5-7b-instruct", config.section("lora").r
    return [
        Setting(name="start model", ours=_name(args.model).lower(), paper=small, reference=small),
        Setting(name="trained weights", ours=f"LoRA r {lora}" if lora else "all", paper="all", reference="all"),
        Setting(name="GPUs", ours=sizes.gpus, paper=8, reference=8),
        Setting(name="prompts per step", ours=sizes.prompts_per_generation, paper=256, reference=256),
        Setting(name="rollouts per prompt", ours=trl_args.num_generations, paper=5, reference=5),
        Setting(name="updates per generation", ours=sizes.updates_per_generation, paper=1, reference=1),
        Setting(name="optimiser steps", ours=sizes.steps, paper=56, reference=56),
        Setting(name="turns", ours=search.max_turns, paper=8, reference=8),
        Setting(name="hits per search", ours=search.top_k, paper=5, reference=5),
        Setting(name="tokens after the prompt", ours=search.total_tokens, paper=5000, reference=5000),
        # min(5000, what is left) there: no limit of a turn's own
        Setting(name="tokens per turn", ours=search.turn_tokens, reference=5000),
        Setting(
            name="text of a search's hits",
            ours=f"{search.top_k} x {search.document_chars} characters",
            paper="768 tokens",
            reference="768 tokens",
        ),
        Setting(name="search engine", ours=_engine(args.encoder), paper="qwen3-0.6b", reference="qwen3-0.6b"),
    ]


def _engine(encoder: str) -> str:
    return _name(encoder).lower().replace("qwen3-embedding-", "qwen3-")


def _optimiser(config: Config, trl_args: Any) -> list[Setting]:
    ours_corrects = bool(trl_args.use_vllm and trl_args.vllm_importance_sampling_correction)
    schedule = getattr(trl_args.lr_scheduler_type, "value", trl_args.lr_scheduler_type)
    return [
        Setting(name="learning rate", ours=trl_args.learning_rate, paper=1e-6, reference=1e-6),
        Setting(name="warm-up (share, or steps)", ours=trl_args.warmup_steps, paper=0.285, reference=0.285),
        Setting(name="schedule", ours=schedule, reference="constant_with_warmup"),  # verl
        Setting(name="weight decay", ours=trl_args.weight_decay, reference=0.01),  # verl
        Setting(name="KL weight (k3)", ours=trl_args.beta, paper=0.001, reference=0.001),
        Setting(name="clip", ours=trl_args.epsilon, reference=0.2),  # verl
        Setting(name="dual clip (delta)", ours=trl_args.delta or "none", reference=3.0),  # verl
        # the official code averages over the tokens of a micro-batch, then over micro-batches: TRL's bnpo
        Setting(name="loss average", ours=trl_args.loss_type, reference="bnpo"),
        Setting(name="gradient norm limit", ours=trl_args.max_grad_norm, reference=1.0),  # verl
        Setting(name="temperature", ours=trl_args.temperature, reference=1.0),  # verl
        Setting(name="top_p", ours=trl_args.top_p, reference=1.0),  # verl
        Setting(name="bf16", ours=bool(trl_args.bf16), reference=True),
        Setting(name="correction for the engine's log-probs", ours=ours_corrects, reference=False),
    ]


def _method(config: Config) -> list[Setting]:
    from rl.train import RLArgs

    args, search, reward = config.top(RLArgs), config.section("search"), config.section("reward")
    curriculum = config.section("curriculum")
    on = curriculum.mode != "off"
    switch = f"first {curriculum.fraction:g}" if on else "none"
    return [
        Setting(name="algorithm", ours=args.algorithm, paper="toolsearcher", reference="toolsearcher"),
        Setting(name="category curriculum", ours=switch, paper="first 0.3", reference="none"),
        Setting(name="category argument", ours=on or search.category_argument, paper=True, reference=True),
        Setting(name="categories in the prompt", ours=on or search.offer_categories, paper=True, reference=True),
        Setting(name="selection reward", ours=reward.selection, reference="match"),
        Setting(name="format bonus", ours=reward.format_bonus, reference=0.1),
    ]


def _credit(config: Config) -> list[Setting]:
    from rl.train import RLArgs

    credit = config.section("credit")
    rows = [
        Setting(
            name=f"credit.{item.name}",
            ours=getattr(credit, item.name),
            paper=getattr(PAPER, item.name),
            reference=getattr(REFERENCE, item.name),
        )
        for item in fields(CreditOptions)
    ]
    return [*rows, Setting(name="mask_kl", ours=config.top(RLArgs).mask_kl, reference=True)]


def difference_table(rows: Sequence[Setting]) -> str:
    """Plain text: the rows that differ from the paper or the official code, then how many agree."""
    differing = [row for row in rows if row.differs("paper") or row.differs("reference")]
    cells = [("setting", "this run", "paper", "official code")]
    for row in differing:
        marks = ["" if row.differs(source) else " (same)" for source in ("paper", "reference")]
        sources = ["not said" if value is UNSAID else _text(value) for value in (row.paper, row.reference)]
        marks = [mark if value != "not said" else "" for mark, value in zip(marks, sources, strict=True)]
        cells.append((row.name, _text(row.ours), sources[0] + marks[0], sources[1] + marks[1]))
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    for source, label in (("paper", "the paper"), ("reference", "the official code")):
        said = [row for row in rows if row.differs(source) is not None]
        lines.append(f"{sum(not row.differs(source) for row in said)} of {len(said)} settings as in {label}")
    return "\n".join(lines if differing else lines[1:])


def _text(value: Any) -> str:
    return " or ".join(map(_text, value)) if isinstance(value, tuple) else str(value)
