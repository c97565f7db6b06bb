"""What a report of a proposal tells, as plain texts that nobody has escaped: for markdown and for a terminal alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pytest_cgins.core.device import device_of
from pytest_cgins.core.figures import percent, ratio, speedup, time_ns
from pytest_cgins.core.model import Environment, Evaluation, SessionReport, Status
from pytest_cgins.core.text import counted
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.regenerate.model import Goal
from pytest_cgins.regenerate.proposal.model import Before, Proposal
from pytest_cgins.regenerate.targets import is_of
from pytest_cgins.report import times

NOTHING = "–"
OWN_WORDS = "Notes, messages and what a search found are the run's own words: nobody has checked them."
COLUMNS = (
    "case", "before", "after", "time before", "time after", "time vs base (95%)", "speed vs torch", "quartiles",
    "worst error / allowed", "probes", "share of peak",
)  # fmt: skip
_GOALS: dict[Goal, str] = {
    "repair": "A kernel that the gate refused, repaired.",
    "optimise": "A kernel that was right and too slow, made faster.",
    "generate": "A kernel for an op that had none.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case of the acceptance."""

    own: bool
    """Whether it is the target's; else its kernel shares a file with it."""
    cells: tuple[str, ...]
    """One for each of `COLUMNS`."""


def goal(proposal: Proposal) -> str:
    """What was reached, in a sentence."""
    return _GOALS[proposal.goal]


def has_own_words(proposal: Proposal) -> bool:
    """Whether the run says anything that does not follow from the rest."""
    messages = [*(one.message for one in proposal.before), *(one.message for one in proposal.attempts)]
    return any((proposal.notes, proposal.search, proposal.sandbox_note, *messages))


def rows(proposal: Proposal, evidence: SessionReport) -> tuple[Row, ...]:
    """The target's cases first."""
    before = {one.case: one for one in proposal.before}
    found = [
        Row(own=is_of(one.case, proposal.target), cells=_cells(one, before.get(one.case.name)))
        for one in evidence.evaluations
    ]
    return tuple(sorted(found, key=lambda row: (not row.own, row.cells[0])))


def kept_columns(found: tuple[Row, ...]) -> tuple[int, ...]:
    """Indices of columns that say something of some case."""
    return tuple(
        index
        for index in range(len(COLUMNS))
        if any(row.cells[index] != NOTHING for row in found) or index < 3
    )


def _cells(one: Evaluation, before: Before | None) -> tuple[str, ...]:
    timing, test = one.measurement, times.comparison(one)
    share = one.correctness.share if one.correctness is not None else None
    peak = times.share_of_peak(timing)
    was = before.kernel_ns_per_call if before is not None else None
    return (
        one.case.name,
        NOTHING if before is None else before.status.value,
        one.verdict.status.value,
        NOTHING if was is None else time_ns(was),
        NOTHING if timing is None else time_ns(timing.kernel.median_ns_per_call),
        NOTHING if test is None else interval(test),
        NOTHING if timing is None else speedup(timing.speedup_vs_torch),
        NOTHING if timing is None else f"{ratio(timing.speedup_low)}..{ratio(timing.speedup_high)}",
        NOTHING if share is None else ratio(share),
        _probes(one),
        NOTHING if peak is None else percent(peak),
    )


def _probes(one: Evaluation) -> str:
    """`17 held, 2 excused`: what did not apply is not counted."""
    found = Counter(
        probe.outcome for probe in (one.correctness.probes if one.correctness is not None else ())
    )
    told = [f"{found[outcome]} {outcome}" for outcome in ("held", "tripped", "excused") if found[outcome]]
    return ", ".join(told) or NOTHING


def facts(proposal: Proposal, evidence: SessionReport) -> list[tuple[str, str]]:
    """What was done, how, and at what cost: pairs of a word and a text."""
    target, cost = proposal.target, proposal.cost
    tokens = f"{counted(cost.prompt_tokens, 'token', grouped=True)} asked ({cost.cached_tokens:,} cached), {cost.answer_tokens:,} answered"
    paid = "price unknown" if cost.usd is None else f"{cost.usd:.4f} USD"
    seed = proposal.held_out_seed
    return [
        ("kernel", f"{target.kernel}, {target.implementation} on {target.device} ({target.contract})"),
        ("op", target.op),
        ("files", ", ".join(_file(proposal, path) for path in proposal.files)),
        ("base commit", proposal.base_commit or "none: no repository, or changes that were not committed"),
        ("times vs base", evidence.base_revision or "the base revision, where there is one"),
        ("attempts", _attempts(proposal)),
        ("models", f"{', '.join(proposal.models) or 'not named'} through {proposal.provider}"),
        ("cost", f"{tokens}{' (estimated)' * cost.estimated}, {paid}, {cost.seconds:.0f} s of answers"),
        ("sandbox", "on" if proposal.sandbox else f"OFF: {proposal.sandbox_note}"),
        ("memcheck", _memcheck(proposal)),
        ("held-out inputs", f"seed {seed}, drawn after the candidate was there"),
        ("devices", "; ".join(_device(one) for one in proposal.environments) or NOTHING),
        ("made by", f"pytest-cgins {proposal.cgins}, run {proposal.run_id}, {proposal.created_at}"),
    ]


def wrong_before(proposal: Proposal) -> list[tuple[str, str]]:
    """Failures of before: `case: STATUS (reason)` and the message."""
    failed = [one for one in proposal.before if one.status.outcome in ("fail", "error")]
    return [(f"{one.case}: {one.status.value} ({one.reason.value})", one.message) for one in failed]


def notes(proposal: Proposal, evidence: SessionReport) -> list[str]:
    """What a reader must not miss."""
    said = list(proposal.notes)
    if not proposal.sandbox:
        said.append(f"The sandbox was off: {proposal.sandbox_note}")
    undecided = sum(one.verdict.status is Status.INCONCLUSIVE for one in evidence.evaluations)
    if undecided:
        said.append(f"Times of {counted(undecided, 'case was', 'cases were')} left open by noise")
    foreign = [one for one in evidence.evaluations if not is_of(one.case, proposal.target)]
    failing = [one.case.name for one in foreign if one.verdict.status.outcome in ("fail", "error")]
    said += [f"{name} fails, as it did before: it shares a file with this kernel" for name in failing]
    return said


def _file(proposal: Proposal, path: str) -> str:
    return f"{path} (new)" if path in proposal.created else path


def _attempts(proposal: Proposal) -> str:
    """`3: build-error, failed, accepted`."""
    return f"{len(proposal.attempts)}: {', '.join(one.outcome for one in proposal.attempts) or 'none'}"


def _memcheck(proposal: Proposal) -> str:
    if proposal.sanitized:
        return "run; nothing found"
    return "not run" if device_of(proposal.target.device).is_cuda else "not run: no GPU"


def _device(one: Environment) -> str:
    versions = [("torch", one.torch), ("CUDA", one.cuda), ("driver", one.driver), ("Triton", one.triton)]
    return ", ".join([one.device_name, *(f"{name} {version}" for name, version in versions if version)])
