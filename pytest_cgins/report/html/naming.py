"""What the page calls cases and devices, where a report has several of the same name."""

from __future__ import annotations

from dataclasses import replace

from pytest_cgins.core.model import Evaluation, SessionReport
from pytest_cgins.report import summary
from pytest_cgins.report.junit import device_name
from pytest_cgins.report.trend import Trend


class Names:
    """Names in one report."""

    def __init__(self, report: SessionReport) -> None:
        self._report = report
        self.case = summary.names(report)
        """A case's name; with the model of its device, and its `cgins.yaml`, where there are several."""

    def device(self, evaluation: Evaluation) -> str:
        """`cuda:0`, or its model where there are several."""
        return evaluation.device_name or evaluation.case.device

    def own(self, trend: Trend | None, evaluation: Evaluation) -> Trend | None:
        """A case's trend without what other models of devices took; None if nothing is left."""
        model = device_name(evaluation, self._report.environments)
        if trend is None or not model:
            return trend
        kept = [one for one in trend.segments if one.hard.parts.get("device") == model]
        told = [
            replace(
                one,
                hard_changes=before.hard.changes_to(one.hard) if before else (),
                soft_changes=before.soft.changes_to(one.soft) if before else (),
            )
            for before, one in zip([None, *kept], kept, strict=False)
        ]
        return replace(trend, segments=tuple(told)) if told else None
