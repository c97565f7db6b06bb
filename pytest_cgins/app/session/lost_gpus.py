"""A GPU that is lost in the middle of a session costs its case a second try on another one, and is used no more.

Asked is only after a case that a lost GPU would explain. Each worker of xdist finds out for itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from pytest_cgins.core.device import device_of
from pytest_cgins.core.failure_kinds import MAY_BE_THE_DEVICES
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.run import gpu_check
from pytest_cgins.run.visible_gpus import VARIABLE, list_gpus, usable

logger = logging.getLogger(__name__)


class LostGpus:
    """What a pytest process knows of them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        """The same, with another GPU once theirs is lost."""
        self._lost: dict[str, str] = {}

    def after(self, found: Evaluation, gpu: str, again: Callable[[], Evaluation]) -> Evaluation:
        """What was found of a case; if its GPU is lost, what is found of it on another one, by processes that have `environment`.

        `gpu` is the UUID of what it ran on; "" if that is not known.
        """
        may_be = device_of(found.case.device).is_cuda and found.verdict.status in MAY_BE_THE_DEVICES
        if not (may_be and gpu):
            return found
        why = gpu_check.ask(self.environment).error
        if not why:
            return found
        self._lost[gpu] = why
        told = f"{gpu} is lost ({why}); dmesg names its Xid"
        other = self._another()
        if other is None:
            message = f"{told}, and no other GPU is visible\n→ reset it or take it out of CUDA_VISIBLE_DEVICES, and run again"
            return replace(found, verdict=_infrastructure(message))
        logger.warning(
            "%s: %s is tried again on %s, which has the rest of its session", told, found.case.name, other
        )
        self.environment[VARIABLE] = other
        second = again()
        verdict = second.verdict
        if verdict.status in MAY_BE_THE_DEVICES and (why := gpu_check.ask(self.environment).error):
            message = f"{told}, and so is {other} ({why}), on which the case was tried again\n→ the kernel may be what ends them"
            return replace(second, verdict=_infrastructure(message))
        return replace(
            second, verdict=replace(verdict, message=f"{verdict.message}\n{told}: tried again on {other}")
        )

    def _another(self) -> str | None:
        """The next visible GPU that computes, as an entry for CUDA_VISIBLE_DEVICES."""
        for entry in usable(os.environ.get(VARIABLE), list_gpus()):
            state = gpu_check.ask({VARIABLE: entry})
            if not state.error and state.uuid not in self._lost:
                return entry
        return None


def _infrastructure(message: str) -> Verdict:
    return Verdict(status=Status.INFRASTRUCTURE, reason=Reason.DEVICE_ABSENT, message=message, numbers={})
