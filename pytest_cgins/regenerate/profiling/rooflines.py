"""How far cases are from the peaks of their device: by work over time, and by counters where ncu has read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pytest_cgins.core.measurement import Roofline
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate.profiling import evidence_documents

NEAR_PEAK = 0.85
"""Share of a peak from which there is little left to win."""
_COMPUTE = ("tensor_pct", "fp32_pct", "sm_pct")


def near_peak(found: Roofline) -> bool:
    """Whether the greater of both shares is at the peak: a kernel that is bound by memory never uses all arithmetic."""
    return max(found.share_of_compute, found.share_of_bandwidth) >= NEAR_PEAK


def of_counters(kernels: Sequence[evidence_documents.ProfiledKernel]) -> evidence_documents.Gaps | None:
    """Gaps of a call by ncu, each kernel by its share of the time; None where counters for two axes are missing.

    Δc = max(0, 1 − max(tensor, fp32, multiprocessor)), Δm = max(0, 1 − DRAM), Δl = the greatest stall; 0.5 without one.
    """
    by_kernel = [(one.time_share, {metric.name: metric.value for metric in one.metrics}) for one in kernels]
    compute = _weighted(by_kernel, lambda name: name in _COMPUTE)
    memory = _weighted(by_kernel, lambda name: name == "dram_pct")
    stall = _weighted(by_kernel, lambda name: name.startswith("stall_"))
    if compute is None or memory is None:
        return None
    return evidence_documents.Gaps(
        compute=max(0.0, 1 - compute / 100),
        memory=max(0.0, 1 - memory / 100),
        latency=evidence_documents.NO_LATENCY_DATA if stall is None else stall / 100,
        latency_known=stall is not None,
        source="ncu",
    )


def of_roofline(found: Roofline) -> evidence_documents.Gaps:
    """Gaps by work over time; of latency nothing is known."""
    return evidence_documents.Gaps(
        compute=max(0.0, 1 - found.share_of_compute),
        memory=max(0.0, 1 - found.share_of_bandwidth),
        latency=evidence_documents.NO_LATENCY_DATA,
        latency_known=False,
        source="roofline",
    )


def gaps(
    profile: evidence_documents.CaseProfile | None, found: Roofline | None
) -> evidence_documents.Gaps | None:
    """By counters, else by the roofline; None without either."""
    counted = of_counters(profile.kernels) if profile is not None else None
    return of_roofline(found) if counted is None and found is not None else counted


def _weighted(
    kernels: Sequence[tuple[float, Mapping[str, float]]], is_meant: Callable[[str], bool]
) -> float | None:
    """Mean by weight of each kernel's greatest figure of those that are meant; None where no kernel has any."""
    found = [
        (weight, [value for name, value in values.items() if is_meant(name)]) for weight, values in kernels
    ]
    known = [(weight, max(values)) for weight, values in found if values]
    whole = sum(weight for weight, _ in known)
    return sum(weight * value for weight, value in known) / whole if whole > 0 else None


NO_COUNTERS = (
    "gaps: no counters of these cases, so compute and memory come from work over time, and latency has no data (0.5 "
    "stands for it) → cgins evidence profile KERNEL, where ncu may read counters"
)
NO_PEAKS = "peaks: this device's are not known → cgins calibrate --peaks, with nothing else on it"


def evidence(
    kernel: str, evaluations: Iterable[Evaluation], profiles: Sequence[evidence_documents.CaseProfile] = ()
) -> evidence_documents.RooflineEvidence:
    """The rooflines of timed cases.

    Args:
        kernel: its name.
        evaluations: of its cases, timed.
        profiles: of an earlier `cgins evidence profile`; those of other builds are passed over.
    """
    by_case = {(profile.case, profile.key): profile for profile in profiles}
    rows = tuple(_row(evaluation, by_case) for evaluation in evaluations)
    degraded = []
    if any(row.gaps is not None and row.gaps.source != "ncu" for row in rows):
        degraded.append(NO_COUNTERS)
    if any(row.median_ns_per_call is not None and row.roofline is None for row in rows):
        degraded.append(
            f"{NO_PEAKS}; or nobody knows the op's work: say it with work: {{flops: …, bytes: …}}"
        )
    return evidence_documents.RooflineEvidence(
        version=evidence_documents.EVIDENCE_VERSION, kernel=kernel, rows=rows, degraded=tuple(degraded)
    )


def _row(
    one: Evaluation, profiles: Mapping[tuple[str, str], evidence_documents.CaseProfile]
) -> evidence_documents.RooflineRow:
    key = one.tested.build if one.tested is not None else ""
    measured = one.measurement
    roofline = measured.roofline if measured is not None else None
    profile = profiles.get((one.case.name, key))
    notes = [note for note in (measured.notes if measured is not None else ()) if "roofline" in note]
    message = one.verdict.message.partition("\n")[0] if measured is None else "; ".join(notes)
    return evidence_documents.RooflineRow(
        case=one.case.name,
        key=key,
        status=one.verdict.status.value,
        message=message,
        median_ns_per_call=measured.kernel.median_ns_per_call if measured is not None else None,
        roofline=roofline,
        gaps=gaps(profile, roofline),
        near_peak=near_peak(roofline) if roofline is not None else None,
    )
