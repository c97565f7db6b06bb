"""Messages of the package while pytest runs: in this process at once, from xdist's workers with their reports."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from typing import Any

import pytest

from pytest_cgins import logs


class LiveLog:
    """Prints what `--cgins-log-level` and `-vv` ask for, past pytest's capture of output.

    A worker process of xdist has no terminal: its lines wait for the next report, and the controller
    prints them. They are in pytest's own section "Captured log" of a failure besides.
    """

    plugin_name = "cgins-live-log"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._waiting: list[str] = []
        self._by_threads: deque[str] = deque()
        wanted = logs.levels(config.getoption("--cgins-log-level"), config.get_verbosity())
        self._lines = logs.Lines(self._write, wanted)
        self._lines.open()

    def _write(self, line: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            # Of a build in the background: only the main thread may touch pytest's capture.
            self._by_threads.append(line)
            return
        self._pass_on_what_threads_wrote()
        self._put(line)

    def _pass_on_what_threads_wrote(self) -> None:
        while self._by_threads:
            self._put(self._by_threads.popleft())

    def _put(self, line: str) -> None:
        if self._is_worker:
            self._waiting.append(line)
            return
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if capture is None:
            self._show([line])
        else:
            with capture.global_and_fixture_disabled():
                self._show([line])

    def _show(self, lines: list[str]) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or self._pytest_shows_them():
            return
        reporter.ensure_newline()
        if self._config.get_terminal_writer().width_of_current_line:  # xdist's dots
            reporter.write_line("")
        for line in lines:
            reporter.write_line(line)

    def _pytest_shows_them(self) -> bool:
        """Whether pytest's own live log prints each message; it does not see those of xdist's workers."""
        if not self._config.pluginmanager.hasplugin("logging"):
            return False
        live = self._config.getini("log_cli") or self._config.getoption("--log-cli-level") is not None
        return bool(live and not getattr(self._config.option, "numprocesses", None))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Worker: send along what was said until now."""
        report = yield
        self._pass_on_what_threads_wrote()
        if self._waiting:
            report.__dict__["cgins_log"], self._waiting = self._waiting, []
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Controller: print what came along."""
        if not self._is_worker:
            lines: list[str] = report.__dict__.get("cgins_log", [])
            if lines:
                self._show(lines)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Show, or send as a worker, what no report took, such as the end of worker processes."""
        self._pass_on_what_threads_wrote()
        if self._is_worker:
            getattr(self._config, "workeroutput")["cgins_log"] = self._waiting  # noqa: B009 (xdist sets it)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Controller: print that."""
        lines = (getattr(node, "workeroutput", None) or {}).get("cgins_log", [])
        if lines:
            self._show(lines)

    def pytest_unconfigure(self) -> None:
        """Leave the loggers as they were."""
        self._lines.close()
