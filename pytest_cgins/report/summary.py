"""From evaluations to the few numbers and lines that a person reads first. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from pytest_cgins.core.session_report import Compilation, Evaluation, SessionReport
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.timing_verdict import fails
from pytest_cgins.report import times

_WORST_FIRST = (
    Status.INCORRECT, Status.SUSPECT, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.BUILD_ERROR,
    Status.BELOW_FLOOR, Status.SLOWER, Status.RESOURCES, Status.INFRASTRUCTURE, Status.TRACE_DRIFT,
    Status.WEAK, Status.INCONCLUSIVE, Status.SKIPPED, Status.NEW, Status.SAME, Status.PASSED, Status.FASTER,
)  # fmt: skip


def rank(status: Status) -> int:
    """Place of a status in the order from worst, 0, to best."""
    return _WORST_FIRST.index(status)


def several_configs(found: Iterable[Evaluation | Compilation]) -> bool:
    """Whether more than one `cgins.yaml` is among them, so that names alone may mean several things."""
    return len({file(one) for one in found}) > 1


def file(one: Evaluation | Compilation) -> str:
    """Path of its `cgins.yaml`."""
    return one.config or "cgins.yaml"


def names(report: SessionReport) -> Callable[[Evaluation], str]:
    """What a reader knows cases by: labels, behind the `cgins.yaml` that has them where there are several."""
    if several_configs(report.evaluations):
        return lambda one: f"{file(one)}::{one.label}"
    return lambda one: one.label


def seeds(report: SessionReport) -> tuple[int, ...]:
    """The seed of the fresh inputs; several where runs that had their own were merged."""
    return tuple(dict.fromkeys(one.seed for one in report.merged)) or (report.seed,)


def by_implementation(evaluations: Iterable[Evaluation]) -> dict[tuple[str, str, str], list[Evaluation]]:
    """Evaluations by kernel, implementation and device.

    The kernel is behind its `cgins.yaml` where there are several, for it is another one in each. The device is a type,
    or the model where a merged report has several.
    """
    evaluations = tuple(evaluations)
    several = several_configs(evaluations)
    groups: dict[tuple[str, str, str], list[Evaluation]] = {}
    for evaluation in evaluations:
        groups.setdefault(implementation_of(evaluation, several=several), []).append(evaluation)
    return groups


def implementation_of(evaluation: Evaluation, *, several: bool) -> tuple[str, str, str]:
    """Kernel, implementation and device as in `by_implementation`; `several`: whether there is more than one `cgins.yaml`."""
    case = evaluation.case
    kernel = f"{file(evaluation)}::{case.kernel}" if several else case.kernel
    return kernel, case.implementation, evaluation.device_name or case.device.split(":")[0]


def device_name(evaluation: Evaluation, report: SessionReport) -> str:
    """Model of the device that a case ran on; "" where the report does not say."""
    kind = evaluation.case.device.partition(":")[0]
    models = {environment.device_name for environment in report.environments if environment.device == kind}
    return evaluation.device_name or (models.pop() if len(models) == 1 else "")


def worst_first(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """By status; then slow cases by how slow they are, wrong ones by their share of the tolerance."""
    return sorted(evaluations, key=lambda one: (rank(one.verdict.status), -times.excess(one), one.label))


def label(one: Evaluation | Compilation) -> str:
    """What a reader knows a case or a build by."""
    return one.label if isinstance(one, Evaluation) else one.name


def outcome(evaluation: Evaluation | Compilation, *, strict: bool) -> str:
    """`pass`, `fail`, `error` or `skip`: a `WEAK` case fails under `--cgins-strict`, a time as `gate.fail_on` says."""
    status = evaluation.verdict.status
    if status.outcome in ("error", "skip") or isinstance(evaluation, Compilation):
        return status.outcome
    return "fail" if fails(status, evaluation.fail_on) or (strict and status is Status.WEAK) else "pass"


def weak(evaluations: Iterable[Evaluation]) -> tuple[tuple[Evaluation, tuple[str, ...]], ...]:
    """The `WEAK` cases, each with the forgeries that no rule refused."""
    return tuple(
        (evaluation, tuple(power.forgery for power in powers if not power.caught))
        for evaluation in evaluations
        if evaluation.verdict.status is Status.WEAK
        for powers in [evaluation.correctness.power if evaluation.correctness is not None else ()]
    )


def status_counts(results: Iterable[Evaluation | Compilation]) -> list[tuple[Status, int]]:
    """How many ended how, worst first."""
    counts = Counter(result.verdict.status for result in results)
    return sorted(counts.items(), key=lambda pair: rank(pair[0]))


def skips(evaluations: Iterable[Evaluation]) -> tuple[tuple[str, int], ...]:
    """Reasons of `SKIPPED` cases and how many have each, most frequent first."""
    counts = Counter(
        evaluation.verdict.message or evaluation.verdict.reason.value
        for evaluation in evaluations
        if evaluation.verdict.status is Status.SKIPPED
    )
    return tuple(counts.most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ungated:
    """A kernel implementation of which every case was skipped, because its contract covers none.

    It is named as in `by_implementation`.
    """

    kernel: str
    implementation: str
    device: str
    cases: int
    message: str
    """The most frequent reason, one line."""


def ungated(evaluations: Iterable[Evaluation]) -> tuple[Ungated, ...]:
    """Implementations that no case gates although their device is there, by first evaluation."""
    skipped = (Status.SKIPPED, Reason.CONTRACT)
    return tuple(
        Ungated(
            kernel=kernel, implementation=implementation, device=device, cases=len(members),
            message=Counter(member.verdict.message.partition("\n")[0] for member in members).most_common(1)[0][0],
        )
        for (kernel, implementation, device), members in by_implementation(evaluations).items()
        if all((member.verdict.status, member.verdict.reason) == skipped for member in members)
    )  # fmt: skip


def notes(evaluations: Iterable[Evaluation]) -> tuple[tuple[str, int], ...]:
    """What checks and timings want known, and for how many cases, most frequent first."""
    counts: Counter[str] = Counter()
    for evaluation in evaluations:
        for part in (evaluation.correctness, evaluation.measurement):
            counts.update(part.notes if part is not None else ())
    return tuple(counts.most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class Excused:
    """A probe that cgins.yaml excuses a kernel from."""

    kernel: str
    probe: str
    reason: str
    """Why, as the user wrote it."""
    cases: int
    """Cases in which it was not looked for."""


def excused(evaluations: Iterable[Evaluation]) -> tuple[Excused, ...]:
    """Exceptions from probes that were made use of, by kernel and probe."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for evaluation in evaluations:
        for probe in evaluation.correctness.probes if evaluation.correctness is not None else ():
            if probe.outcome == "excused":
                counts[evaluation.case.kernel, probe.name, probe.message] += 1
    return tuple(
        Excused(kernel=kernel, probe=probe, reason=reason, cases=cases)
        for (kernel, probe, reason), cases in sorted(counts.items())
    )


def probes_not_run(evaluations: Iterable[Evaluation]) -> tuple[tuple[str, int], ...]:
    """Probes that did not apply, with why, and to how many cases; most frequent first."""
    counts = Counter(
        f"{probe.name}: {probe.message}"
        for evaluation in evaluations
        for probe in (evaluation.correctness.probes if evaluation.correctness is not None else ())
        if probe.outcome == "not-run"
    )
    return tuple(counts.most_common())


def build_seconds(evaluations: Iterable[Evaluation]) -> float:
    """Time spent in compilers: of each kernel once, however many cases or processes report it."""
    longest: dict[tuple[str, str, str, str], float] = {}
    for evaluation in evaluations:
        case, device = evaluation.case, evaluation.device_name or evaluation.case.device
        key = (case.kernel, case.implementation, device, evaluation.kernel_digest)
        longest[key] = max(longest.get(key, 0.0), evaluation.build_seconds)
    return sum(longest.values())


_REGRESSED = (Status.SLOWER, Status.BELOW_FLOOR, Status.RESOURCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Cases and builds of a report by outcome: `total` is the sum of passed, failed, errors and skipped ones."""

    total: int
    """All of them."""
    passed: int
    """Those that pytest passes: `WEAK` and `INCONCLUSIVE` ones too, unless they were made to fail."""
    failed: int
    """Those that a kernel failed."""
    regressed: int
    """Failed ones whose time or resources did it: `SLOWER`, `BELOW_FLOOR`, `RESOURCES`."""
    errors: int
    """`TRACE_DRIFT` and `INFRASTRUCTURE`."""
    skipped: int
    """Those that nothing gated."""
    weak: int
    """`WEAK` ones, whether they passed or failed."""
    verdict: str
    """Worst status of all; "" if there is none."""

    def lines(self) -> str:
        """`name=number` a line, as scripts read it."""
        return "".join(f"{name}={number}\n" for name, number in asdict(self).items())


def counts(report: SessionReport) -> Counts:
    """Count; under `--cgins-strict` a `WEAK` case failed."""
    results: list[Evaluation | Compilation] = [*report.evaluations, *report.compilations]
    outcomes = Counter(outcome(result, strict=report.strict) for result in results)
    return Counts(
        total=len(results),
        passed=outcomes["pass"],
        failed=outcomes["fail"],
        errors=outcomes["error"],
        skipped=outcomes["skip"],
        weak=sum(result.verdict.status is Status.WEAK for result in results),
        regressed=sum(
            result.verdict.status in _REGRESSED and outcome(result, strict=report.strict) == "fail"
            for result in results
        ),
        verdict=min((result.verdict.status for result in results), key=rank).value if results else "",
    )
