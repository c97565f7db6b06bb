"""A case whose verdict an earlier run found is reported without pytest's three phases, which take milliseconds a case."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from pytest_cgins.app.session import results
from pytest_cgins.app.session.collect import CaseItem
from pytest_cgins.app.session.gate import Gate

PHASES: tuple[Literal["setup", "call", "teardown"], ...] = ("setup", "call", "teardown")
SKIPPING = ("skip", "skipif", "xfail")
"""Markers by which pytest may not run an item, or have it fail."""
PASSIVE = frozenset({"_pytest", "_hypothesis_pytestplugin", "pytest_benchmark", "pytest_cgins", "xdist"})
"""Packages whose hooks of a phase do nothing to a case of ours but what those markers say."""


class ShortProtocol:
    """Makes the reports of such a case, the same that its phases would make."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        option = gate.config.getoption
        self._shows_phases: bool = option("setupshow") or option("setuponly") or option("setupplan")
        self._is_hooked: dict[Path, bool] = {}

    def report(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Report the item if that is all there is to do; False where it has to go through the phases.

        The last case of a file does: with it goes what folders and files have set up for those before.
        """
        if not isinstance(item, CaseItem) or nextitem is None or nextitem.parent is not item.parent:
            return False
        if self._shows_phases or self._needs_phases(item):
            return False
        evaluation = self._gate.known(item.path, item.case)
        if evaluation is None:
            return False
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        results.keep(item, item.path, evaluation)
        for phase in PHASES:
            call = pytest.CallInfo.from_call(_nothing, phase)
            hook.pytest_runtest_logreport(report=hook.pytest_runtest_makereport(item=item, call=call))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _needs_phases(self, item: CaseItem) -> bool:
        """Whether somebody may skip the item in a phase, or does something else there."""
        if item.path not in self._is_hooked:
            self._is_hooked[item.path] = any(
                implementation.function.__module__.partition(".")[0] not in PASSIVE
                for phase in PHASES
                for implementation in getattr(item.ihook, f"pytest_runtest_{phase}").get_hookimpls()
            )
        return self._is_hooked[item.path] or any(mark.name in SKIPPING for mark in item.iter_markers())


def _nothing() -> None:
    """Of a phase in which nothing is left to do."""
