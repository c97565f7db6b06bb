"""Failures in pytest's own list that repeat a cause: one line each, which names the case that has it at length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cgins.core.model import Compilation, Evaluation
from pytest_cgins.report import escape
from pytest_cgins.report.causes import cause_of
from pytest_cgins.report.failure import headline

if TYPE_CHECKING:
    from _pytest._io import TerminalWriter


@dataclass(slots=True)
class _Repeat:
    """Stands for the message of a failure, as pytest's terminal shows it."""

    text: str
    reprcrash: Any
    """Where it was raised, with the text: the short summary has that, and `--tb=line`."""

    def __str__(self) -> str:
        return self.text

    def toterminal(self, writer: TerminalWriter) -> None:
        """Write it."""
        writer.line(self.text)


class Repeats:
    """The failures of cases and builds so far, by cause."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, ...], str] = {}
        self._repeated: list[tuple[pytest.TestReport, str]] = []

    def add(self, report: pytest.TestReport, failed: Evaluation | Compilation) -> None:
        """Take the failed report of a case or build."""
        first = self._first.setdefault(cause_of(failed), report.nodeid)
        if first != report.nodeid:
            self._repeated.append((report, f"{headline(failed)} [as {first}, numbers aside]"))

    def shorten(self) -> None:
        """Have the terminal show one line of each; documents that pytest's plugins write have been told before."""
        for report, told in self._repeated:
            crash: Any = getattr(report.longrepr, "reprcrash", None)
            text = escape.lines(told)
            if crash is not None:
                crash = type(crash)(path=crash.path, lineno=crash.lineno, message=text)
            report.longrepr = _Repeat(text, crash)  # type: ignore[assignment]
