"""How fast the incumbent is, case by case, against torch and what the device reaches."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.model import Evaluation
from pytest_cgins.regenerate.prompts import blocks
from pytest_cgins.regenerate.prompts.context import Context

_MOST_CASES = 16


def described(context: Context) -> str:
    """A table; "" if nothing was timed."""
    parts = [_table("The source before all attempts", context.evaluations)]
    last = next((one for one in reversed(context.attempts) if one.trials), None)
    if last is not None:
        parts.append(_table(f"Attempt {last.number}", last.trials[-1].evaluations))
    return blocks.section("Times", [part for part in parts if part])


def _table(title: str, evaluations: Sequence[Evaluation]) -> str:
    timed = [(one, one.measurement) for one in evaluations if one.measurement is not None]
    if not timed:
        return ""
    # The slowest against torch first: there is the most to gain.
    timed.sort(key=lambda pair: (pair[1].speedup_vs_torch, pair[0].case.name))
    lines = [_row(one, measured) for one, measured in timed[:_MOST_CASES]]
    if len(timed) > _MOST_CASES:
        lines.append(f"and {len(timed) - _MOST_CASES} more that stand better against torch")
    return blocks.data(f"{title}: median µs a call, torch's eager µs, what bounds it", "\n".join(lines))


def _row(evaluation: Evaluation, it: Measurement) -> str:
    said = (
        f"{blocks.one_line(evaluation.case.signature, 80)} {evaluation.verdict.status.value}: "
        f"{it.kernel.median_ns_per_call / 1e3:.4g}, "
        f"torch {it.torch.median_ns_per_call / 1e3:.4g} ({it.speedup_vs_torch:.3g}× torch's speed)"
    )
    if it.base is not None:
        said += f", base revision {it.base.median_ns_per_call / 1e3:.4g}"
    roofline = it.roofline
    if roofline is not None:
        said += (
            f"; {roofline.nbytes} B, {roofline.flops} flop; {roofline.share_of_bandwidth:.1%} of copy bandwidth, "
            f"{roofline.share_of_compute:.1%} of matrix peak, bound by {roofline.bound}"
        )
    return f"{said}; {it.cache} cache"
