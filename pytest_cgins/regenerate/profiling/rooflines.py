"""Cases against the peaks of their device: by work over time, and by counters where ncu has read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_cgins.core.model import Evaluation
from pytest_cgins.regenerate.profiling import gaps
from pytest_cgins.regenerate.profiling.model import (
    EVIDENCE_VERSION,
    CaseProfile,
    RooflineEvidence,
    RooflineRow,
)

NO_COUNTERS = (
    "gaps: no counters of these cases, so compute and memory come from work over time, and latency has no data (0.5 "
    "stands for it) → cgins evidence profile KERNEL, where ncu may read counters"
)
NO_PEAKS = "peaks: this device's are not known → cgins calibrate --peaks, with nothing else on it"


def evidence(
    kernel: str, evaluations: Iterable[Evaluation], profiles: Sequence[CaseProfile] = ()
) -> RooflineEvidence:
    """The rooflines of timed cases.

    Args:
        kernel: its name.
        evaluations: of its cases, timed.
        profiles: of an earlier `cgins evidence profile`; those of other builds are passed over.
    """
    by_case = {(one.case, one.key): one for one in profiles}
    rows = tuple(_row(one, by_case) for one in evaluations)
    degraded = []
    if any(row.gaps is not None and row.gaps.source != "ncu" for row in rows):
        degraded.append(NO_COUNTERS)
    if any(row.median_ns_per_call is not None and row.roofline is None for row in rows):
        degraded.append(
            f"{NO_PEAKS}; or nobody knows the op's work: say it with work: {{flops: …, bytes: …}}"
        )
    return RooflineEvidence(version=EVIDENCE_VERSION, kernel=kernel, rows=rows, degraded=tuple(degraded))


def _row(one: Evaluation, profiles: Mapping[tuple[str, str], CaseProfile]) -> RooflineRow:
    key = one.tested.build if one.tested is not None else ""
    measured = one.measurement
    roofline = measured.roofline if measured is not None else None
    profile = profiles.get((one.case.name, key))
    found = gaps.of_counters(profile.kernels) if profile is not None and profile.kernels else None
    if found is None and roofline is not None:
        found = gaps.of_roofline(roofline)
    notes = [note for note in (measured.notes if measured is not None else ()) if "roofline" in note]
    message = one.verdict.message.partition("\n")[0] if measured is None else "; ".join(notes)
    return RooflineRow(
        case=one.case.name,
        key=key,
        status=one.verdict.status.value,
        message=message,
        median_ns_per_call=measured.kernel.median_ns_per_call if measured is not None else None,
        roofline=roofline,
        gaps=found,
        near_peak=gaps.near_peak(roofline) if roofline is not None else None,
    )
