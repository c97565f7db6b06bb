"""What a search came to, as a document: `summary.json` of its target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pytest_cgins.core.document_base import Document
from pytest_cgins.regenerate.attempt import Kind, Outcome, Target
from pytest_cgins.regenerate.conversation import Role
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.methods.classes import Tried
from pytest_cgins.regenerate.methods.definition import Axis
from pytest_cgins.regenerate.profiling.evidence_documents import Ratio
from pytest_cgins.regenerate.search.verifiers import Score

SUMMARY_VERSION = 1

Against = Literal["base", "torch", "compile"]
"""The incumbent, torch eager, torch.compile."""
AGAINST: tuple[Against, ...] = ("base", "torch", "compile")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTimes(Document):
    """The accepted kernel in one case, as its acceptance measured it."""

    case: str
    """Its name."""
    before_ns_per_call: float | None
    """Median of the incumbent, in the same blocks; None if it was not timed beside it."""
    after_ns_per_call: float
    """Median of the accepted kernel."""
    ratios: tuple[Ratio, ...]
    """Times of the others over the kernel's; `base` is the incumbent."""
    share_before: float | None
    """Share of the peak that bounds the case, of the incumbent; None where no peak is known."""
    share_after: float | None
    """The same of the accepted kernel."""
    gflops_before: float | None = None
    """Operations of the call over the incumbent's time, in GFLOP/s; None where nobody counts them."""
    gflops_after: float | None = None
    """The same of the accepted kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(Document):
    """Geometric mean over cases of another arm's time over the kernel's: above 1 the kernel is faster."""

    against: Against
    """The arm."""
    ratio: float
    """The mean of the cases' ratios."""
    low: float
    """Lower end of its interval. At 95% at least: the cases' intervals are made so wide that all hold at once; with few
    blocks the least."""
    high: float
    """Upper end of it."""
    cases: int
    """Cases that have the arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline(Document):
    """What was won, by fresh blocks on inputs that nobody knew before."""

    number: int
    """The accepted candidate."""
    cases: tuple[CaseTimes, ...]
    """Those that were timed."""
    untimed: tuple[str, ...]
    """Names of those that were not."""
    means: tuple[Mean, ...]
    """Against each arm that there was."""
    share_before: float | None
    """Share of peak of the incumbent, median over the cases; None where no peak is known."""
    share_after: float | None
    """The same of the accepted kernel."""
    gflops_before: float | None = None
    """GFLOP/s of the incumbent, median over the cases; None where nobody counts operations."""
    gflops_after: float | None = None
    """The same of the accepted kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Document):
    """One line of the timeline."""

    number: int
    """1-based."""
    round: int
    """Of the policy, 1-based."""
    branch: int
    """Which of those that were asked for at once."""
    kind: Kind
    """What was asked for."""
    parent: int
    """Whose sources were shown; 0 for the incumbent."""
    model: str
    """Who was asked; "" for a person or an agent."""
    temperature: float | None
    """None: the provider's default."""
    profiled: bool
    """Whether the prompt had figures of profilers."""
    variant: str
    """What was to differ from the others of its round; "" if nothing."""
    methods: tuple[str, ...]
    """Ids of the methods that the answer names."""
    without: str
    """For `ablate`: the method that was to be left out."""
    rank: float | None
    """How likely it is right, as verifiers thought; None where nobody was asked."""
    outcome: Outcome
    """What became of it."""
    reason: str
    """Code of what decided."""
    message: str
    """The same in words, first line."""
    time_ratio: float | None
    """Its time over the incumbent's, geometric mean over the cases; None where it is not right."""
    became_champion: bool
    """Whether it was proven faster than the best one until then."""
    seconds: float
    """From the question to the outcome, its acceptance among it."""
    prompt_tokens: int
    """Of all roles that were asked about it."""
    answer_tokens: int
    """Likewise."""
    usd: float | None
    """Likewise; None where a model has no price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Document):
    """One step of the policy."""

    number: int
    """1-based."""
    decided: str
    """What the policy asked for, in words."""
    candidates: tuple[int, ...]
    """Their numbers."""
    tried: int
    """How many of them were run."""
    right: int
    """How many of them were right."""
    time_ratio: float | None
    """The best one's time over the incumbent's; None if none was right."""
    champion: int | None
    """Who became champion last in it; None if nobody did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck(Document):
    """What profilers found in a kernel of the search."""

    number: int
    """The candidate; 0 for the incumbent."""
    was_champion: bool
    """Whether it was the best one for a while; the incumbent was."""
    case: str
    """Name of the case, the heaviest one."""
    gaps: Gaps
    """How far it is from the peaks, an axis; None where nobody measured."""
    largest: Axis | None
    """The axis with the largest gap; None where nothing was measured."""
    near_peak: str
    """Why there is little left to win; "" where there is."""
    degraded: tuple[str, ...]
    """What could not be had, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation(Document):
    """A champion without one of its methods."""

    number: int
    """The candidate."""
    champion: int
    """Whose method was to be left out."""
    method: str
    """Its id."""
    found: Literal["slower", "not-proven", "wrong", "no-answer"]
    """Without it: proven slower; not so; not right any more; nothing that could be tried."""
    slowdown: float | None
    """Time without it over time with it, geometric mean over the cases; None where it was not timed."""
    low: float | None
    """Lower end of its interval, as that of `Mean`."""
    high: float | None
    """Upper end of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief(Document):
    """A method that answers named, and what came of it."""

    method: str
    """Its id."""
    axis: Axis | None
    """What it is for; None of a method of the project's own."""
    expected: str
    """The figure that spoke for it when it was first named; "" where the prompt had none."""
    candidates: tuple[int, ...]
    """Those that added it."""
    time_ratio: float | None
    """Time with it, and all that was added with it, over time before, of the best one; None if none was right."""
    outcome: Literal["kept", "dropped", "lost"]
    """It is in the best kernel; a candidate with it was right; none was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Document):
    """How often it was true that an axis holds a kernel back."""

    axis: Axis
    """Which."""
    candidates: int
    """Those that added a method for it."""
    right: int
    """How many of them were proven faster than the best one until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrospective(Document):
    """What was believed, and what came of it."""

    beliefs: tuple[Belief, ...] = ()
    """What was kept first, each by its gain."""
    diagnoses: tuple[Diagnosis, ...] = ()
    """By axis."""
    never_named: tuple[str, ...] = ()
    """Methods that prompts offered and no answer took, in the order in which they were first offered."""
    lost: dict[str, int] = field(default_factory=dict)
    """How many candidates were not right, by the code of what decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifiers(Document):
    """How often verifiers were right, by what the gate found of what was tried."""

    ranked: int
    """Candidates that they gave an opinion on."""
    score: Score
    """Counts of those that were tried."""
    precision: float | None
    """Of those that they said are right, the share that was; None where there were none."""
    recall: float | None
    """Of those that were right, the share that they said so of; None where there were none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Document):
    """What answers took."""

    role: Role | Literal["all"]
    """Who was asked."""
    requests: int
    """Answers, and requests that were lost and took something."""
    prompt_tokens: int
    """Tokens of prompts."""
    answer_tokens: int
    """Tokens of answers."""
    usd: float
    """Of those that have a price."""
    unpriced: int
    """Requests of models without a price."""
    seconds: float
    """How long answers were awaited, one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSummary(Document):
    """What one search asked, tried, found and cost."""

    version: int
    """Of this document: 1."""
    run: str
    """The run's id."""
    target: Target
    """What was to become faster."""
    policy: str
    """How it was searched for."""
    provider: str
    """Who was asked."""
    device_name: str
    """What candidates ran on; "" if none did."""
    state: Literal["accepted", "failed", "waiting", "stopped", "under-way"]
    """What became of it."""
    ended: str
    """Why it ended, or ended for now, in a line; "" if that is not known."""
    remedy: str
    """What to do about that; "" where there is nothing to say."""
    right: int
    """Candidates that were right: so many shared the chance of a false alarm when the best one was measured again."""
    headline: Headline | None
    """None where nothing was accepted."""
    rounds: tuple[Round, ...]
    """In order."""
    candidates: tuple[Candidate, ...]
    """In order of their numbers."""
    drift: tuple[Bottleneck, ...]
    """Of all that were profiled, in order: where the bottleneck went."""
    methods: tuple[Tried, ...]
    """What became of methods; those that worked first."""
    ablations: tuple[Ablation, ...]
    """In order."""
    verifiers: Verifiers | None
    """None where no candidate was ranked."""
    costs: tuple[Cost, ...]
    """By role, and of all of them together."""
    retrospective: Retrospective = field(default_factory=Retrospective)
    """Empty in summaries of older versions."""
