"""The rules of the alarms, what each means and what to try, and their thresholds (config section ``alarms``)."""

from dataclasses import dataclass, field
from typing import Literal

from autotools.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Rule:
    """``option``: the field of AlarmOptions with the threshold ("" for broken). ``at_once``: no mean, every step.

    ``kinds``: begin of the names of the figures that divide the metric; an alarm names the largest of them.
    """

    name: str
    metric: str
    side: Literal["above", "below", "rise", "fall", "broken"]
    option: str = ""
    at_once: bool = False
    kinds: str = ""
    meaning: str
    advice: str


RULES = (
    Rule(
        name="answered", metric="answered", side="below", option="answered", kinds="stop/",
        meaning="sampled rollouts stop answering; event credit alone does not push towards an answer",
        advice="beta 0.04 with mask_kl false, credit.useless_cost 0.1 or credit.unanswered_cost",
    ),
    Rule(
        name="answered_falls", metric="answered", side="fall", option="answered_fall", kinds="stop/",
        meaning="the share of rollouts that answer is well below its best",
        advice="the same as for answered, or a lower learning rate",
    ),
    Rule(
        name="turns_used_up", metric="searches_at_limit", side="above", option="turns_used_up",
        meaning="rollouts search until their last turn, without an answer or for requests with fewer targets",
        advice="credit.useless_cost 0.1; a larger search.max_turns if requests have nearly that many targets",
    ),
    Rule(
        name="no_finds", metric="srecall", side="below", option="finds",
        meaning="searches show almost no target, so neither searches nor answers can earn anything",
        advice="more SFT on search demonstrations, easier prompts, a larger search.top_k; data and tools of one corpus",
    ),
    Rule(
        name="zero_variance", metric="frac_reward_zero_std", side="above", option="zero_variance",
        meaning="almost no group has rewards that differ, so answers teach nothing",
        advice="reward.selection f1, a higher temperature, more generations, or prompts of another difficulty",
    ),
    Rule(
        name="zero_call", metric="zero_call", side="above", option="zero_call",
        meaning="rollouts answer without any search",
        advice="read some with python -m rl.show; more SFT, beta > 0, a lower learning rate",
    ),
    Rule(
        name="nothing_kept", metric="credit/kept_token_share", side="below", option="kept_tokens",
        meaning="almost every event is removed from the loss: the steps change nothing",
        advice="more generations or a better start; credit.mastered and credit.incomplete_selection say what is cut",
    ),
    Rule(
        name="faults", metric="fault_share", side="above", option="faults", kinds="faults/",
        meaning="many turns are neither a search nor an answer",
        advice="faults/* say of which kind; a shorter search.turn_tokens cuts turns, a better start helps",
    ),
    Rule(
        name="faults_rise", metric="fault_share", side="rise", option="faults_rise", kinds="faults/",
        meaning="turns that are neither a search nor an answer grow more frequent",
        advice="a lower learning rate or beta > 0; faults/* say of which kind",
    ),
    Rule(
        name="truncated", metric="truncated", side="above", option="truncated",
        meaning="rollouts end because tokens ran out: a cut turn, or an observation that found no room",
        advice="larger search.total_tokens or turn_tokens, or smaller search.document_chars or top_k",
    ),
    Rule(
        name="kl", metric="kl", side="above", option="kl",
        meaning="the policy has moved far from its start",
        advice="a larger beta or a lower learning rate",
    ),
    Rule(
        name="drift", metric="sampling/sampling_logp_difference/mean", side="above", option="drift",
        meaning="the engine that samples gives other log-probs than the model that is trained",
        advice="the same dtype for both, vllm_importance_sampling_correction true, fewer updates per generation",
    ),
    Rule(
        name="clipped", metric="clip_ratio/region_mean", side="above", option="clipped",
        meaning="many tokens are clipped: the updates of one generation move the policy too far",
        advice="a lower learning rate, fewer num_iterations or a smaller steps_per_generation",
    ),
    Rule(
        name="dropped", metric="dropped_share", side="above", option="dropped", at_once=True,
        meaning="failed searches dropped rollouts; they are in no mean and no loss",
        advice="the warnings on stderr name the failure; max_dropped_share stops the run at too many",
    ),
    Rule(
        name="outside_corpus", metric="outside_corpus", side="above", option="outside_corpus", at_once=True,
        meaning="searches show tools that the corpus of this run does not have: another or a stale index",
        advice="build the index from the same tools.jsonl, or start the search server with it",
    ),
    Rule(
        name="no_number", metric="grad_norm", side="broken", at_once=True,
        meaning="the gradient is not a number; the weights may be lost",
        advice="go back to a checkpoint; a lower learning rate, max_grad_norm, fp32 or bf16 instead of fp16",
    ),
)  # fmt: skip

NO_SHARES = ("kl", "drift")
"""Thresholds that are differences of log-probs, and so have no upper end."""


@dataclass(frozen=True, kw_only=True)
class AlarmOptions:
    """Config section ``alarms``. Shares are of rollouts unless said otherwise; an alarm warns and stops nothing."""

    window: int = field(default=5, metadata={"help": "logged steps whose mean is compared with a threshold"})
    off: list[str] = field(default_factory=list, metadata={"help": "names of alarms that are not wanted"})
    answered: float = field(default=0.8, metadata={"help": "lowest share of sampled rollouts that answer"})
    answered_fall: float = field(default=0.15, metadata={"help": "how far that share may fall below its best"})
    turns_used_up: float = field(default=0.5, metadata={"help": "highest share that searches to its last turn in vain"})
    finds: float = field(default=0.1, metadata={"help": "lowest SRecall: share of the targets that searches show"})
    zero_variance: float = field(default=0.8, metadata={"help": "highest share of groups whose rewards are all equal"})
    zero_call: float = field(default=0.2, metadata={"help": "highest share without any call"})
    kept_tokens: float = field(default=0.02, metadata={"help": "lowest share of generated tokens in the policy loss"})
    faults: float = field(default=0.2, metadata={"help": "highest share of turns that are no search and no answer"})
    faults_rise: float = field(default=0.1, metadata={"help": "how far that share may rise above its lowest"})
    truncated: float = field(default=0.1, metadata={"help": "highest share that ends because tokens ran out"})
    kl: float = field(default=0.5, metadata={"help": "highest KL to the start policy per token (logged if beta > 0)"})
    drift: float = field(
        default=0.1, metadata={"help": "highest mean difference of sampling and training log-probs (vLLM)"}
    )
    clipped: float = field(default=0.3, metadata={"help": "highest share of clipped tokens"})
    dropped: float = field(default=0.0, metadata={"help": "highest share that failed searches drop, of any step"})
    outside_corpus: float = field(default=0.0, metadata={"help": "highest share of hits that the corpus lacks"})

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigError(f"alarms.window is {self.window}; it is a number of steps, at least 1")
        known = [rule.name for rule in RULES]
        if unknown := [name for name in self.off if name not in known]:
            raise ConfigError(f"alarms.off: no alarm is called {unknown[0]!r}; known: {', '.join(known)}")
        for option in (rule.option for rule in RULES if rule.option):
            value = getattr(self, option)
            if option not in NO_SHARES and not 0 <= value <= 1:
                raise ConfigError(f"alarms.{option} is {value}; it is a share, from 0 to 1 (alarms.off ends an alarm)")
            if value < 0:
                raise ConfigError(f"alarms.{option} is {value}; it must be 0 or more (alarms.off ends an alarm)")
