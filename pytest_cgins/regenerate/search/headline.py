"""Before and after: the accepted kernel against the incumbent and torch, by the blocks of its acceptance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.model import Evaluation
from pytest_cgins.regenerate.model import Attempt, Target
from pytest_cgins.regenerate.profiling import bench
from pytest_cgins.regenerate.search.summary_model import AGAINST, Against, CaseTimes, Headline, Mean
from pytest_cgins.regenerate.targets import is_of
from pytest_cgins.report import times
from pytest_cgins.timing.sequential import COVERAGE, median_interval


def headline(target: Target, attempts: Iterable[Attempt]) -> Headline | None:
    """Of the accepted one; None if there is none."""
    accepted = next((one for one in attempts if one.outcome == "accepted" and one.trials), None)
    if accepted is None:
        return None
    own = [one for one in accepted.trials[-1].evaluations if is_of(one.case, target)]
    timed = [(one, one.measurement) for one in own if one.measurement is not None]
    cases = tuple(_case(one, measured) for one, measured in timed)
    return Headline(
        number=accepted.number,
        cases=cases,
        untimed=tuple(one.case.name for one in own if one.measurement is None),
        means=tuple(_means(timed)),
        share_before=_median(one.share_before for one in cases),
        share_after=_median(one.share_after for one in cases),
    )


def pooled(cases: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Lower end, geometric mean and upper end of ratios, from the logarithms of each case's blocks.

    Each case's interval is so wide that all hold at once with at least the chance of a single one (Boole's inequality);
    then the mean lies between the means of their ends.
    """
    coverage = 1 - (1 - COVERAGE) / len(cases)
    ends = zip(*(median_interval(logs, coverage) for logs in cases), strict=True)
    low, middle, high = (math.exp(math.fsum(end) / len(cases)) for end in ends)
    return low, middle, high


def _case(one: Evaluation, measured: Measurement) -> CaseTimes:
    compared = times.comparison(one) is not None
    before = measured.base.median_ns_per_call if compared and measured.base is not None else None
    after = measured.kernel.median_ns_per_call
    share = times.share_of_peak(measured)
    return CaseTimes(
        case=one.case.name,
        before_ns_per_call=before,
        after_ns_per_call=after,
        ratios=tuple(
            found
            for against in AGAINST
            for found in bench.ratios(measured)
            if found.against == against and (compared or against != "base")
        ),
        # The same work in another time.
        share_before=None if share is None or before is None else share * after / before,
        share_after=share,
    )


def _means(timed: Sequence[tuple[Evaluation, Measurement]]) -> Iterable[Mean]:
    for against in AGAINST:
        cases = [logs for one, measured in timed if (logs := _logs(one, measured, against))]
        if cases:
            low, ratio, high = pooled(cases)
            yield Mean(against=against, ratio=ratio, low=low, high=high, cases=len(cases))


def _logs(one: Evaluation, measured: Measurement, against: Against) -> list[float]:
    if against == "base" and times.comparison(one) is None:
        return []
    return bench.log_ratios(measured, against)


def _median(shares: Iterable[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return median(known) if known else None
