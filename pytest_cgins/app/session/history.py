"""`--cgins-history`: a session's times go into a file that trends are read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.app.session.run import ENDED, GateSession
from pytest_cgins.core.errors import HistoryError
from pytest_cgins.core.text import counted
from pytest_cgins.report import history, history_file
from pytest_cgins.report.git_branch import place


class SessionHistory:
    """Appends after the session, from the process that holds all results; says in any case what it did."""

    plugin_name = "cgins-history"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._said = ""
        self._failed = False

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Append, once the report is settled. A history is no gate: what goes wrong is said and fails nothing."""
        option = self._config.getoption
        report = GateSession.of(self._config).report
        if report is None or self._config.option.collectonly or option("--cgins-compile-only"):
            return
        name: str = option("--cgins-history")
        if exitstatus not in ENDED:
            self._said = f"not appended to {name}: the run was broken off"
            return
        folder = self._config.invocation_params.dir
        where = place(folder)
        if where.refusal and not option("--cgins-history-always"):
            self._said = f"not appended to {name}: {where.refusal} (--cgins-history-always appends anyway)"
            return
        if not (found := tuple(history.entries(report, where.head))):
            self._said = f"nothing to append to {name}: no case was timed"
            return
        try:
            repaired = history_file.append(Path(folder, name), found)
        except (HistoryError, OSError) as error:
            self._said, self._failed = f"not appended to {name}: {error}", True
            return
        cases = counted(len(found), "case")
        self._said = f"{cases} appended to {name}" + (f"; {repaired}" if repaired else "")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say so."""
        if self._said:
            terminalreporter.write_line(f"cgins: history: {self._said}", red=self._failed)
