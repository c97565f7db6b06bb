"""Messages of the package while pytest runs: past its capture of output, at once, from xdist's workers too."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import pytest

from pytest_cgins.core import logs, waiting
from pytest_cgins.report import escape


class LiveLog:
    """Prints what `--cgins-log-level` and `-vv` ask for, past pytest's capture of output.

    A worker process of xdist has no terminal: it writes to its stderr, which is the controller's. Messages are in
    pytest's own section "Captured log" of a failure besides.
    """

    plugin_name = "cgins-live-log"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
        # Nothing is captured yet.
        self._stderr = -1 if self._workerinput is None else os.dup(2)
        self._by_threads: deque[str] = deque()
        self._waited: list[waiting.Waited] = []
        waiting.forget()
        wanted = logs.levels(config.getoption("--cgins-log-level"), config.get_verbosity())
        self._lines = logs.Lines(self._write, wanted)
        self._lines.open()

    def _write(self, line: str) -> None:
        line = escape.lines(line)
        if self._workerinput is not None:
            # The controller's dots may be in this line of the terminal.
            begin = "\n" if self._workerinput.get("cgins_one_stream") else ""
            os.write(self._stderr, f"{begin}{line}\n".encode(errors="backslashreplace"))
        elif threading.current_thread() is not threading.main_thread():
            # Of a build in the background: only the main thread may touch pytest's capture.
            self._by_threads.append(line)
        else:
            self._pass_on_what_threads_wrote()
            self._show(line)

    def _pass_on_what_threads_wrote(self) -> None:
        while self._by_threads:
            self._show(self._by_threads.popleft())

    def _show(self, line: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or self._pytest_shows_them():
            return
        writer = self._config.get_terminal_writer()
        with uncaptured(self._config):
            if writer.hasmarkup:  # builds are told of below the cursor, and drawn anew soon
                sys.stdout.write("\x1b[J")
            reporter.ensure_newline()
            if writer.width_of_current_line:  # xdist's dots
                reporter.write_line("")
            reporter.write_line(line)
            writer.flush()  # a pipe, such as that of a CI job's log, is buffered

    def _pytest_shows_them(self) -> bool:
        """Whether pytest's own live log prints each message; it does not see those of xdist's workers."""
        if not self._config.pluginmanager.hasplugin("logging"):
            return False
        live = self._config.getini("log_cli") or self._config.getoption("--log-cli-level") is not None
        return bool(live and not getattr(self._config.option, "numprocesses", None))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Between two phases of an item is the main thread's moment for what others said."""
        report = yield
        self._pass_on_what_threads_wrote()
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Show the rest; as a worker, send what was waited for."""
        self._pass_on_what_threads_wrote()
        if self._workerinput is not None:
            sent = [asdict(one) for one in waiting.waited()]
            getattr(self._config, "workeroutput")["cgins_waited"] = sent  # noqa: B009 (xdist sets it)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Controller: say whether stderr comes out where the dots do."""
        node.workerinput["cgins_one_stream"] = _one_stream()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Controller: a worker has ended, and says what it waited for."""
        sent = (getattr(node, "workeroutput", None) or {}).get("cgins_waited", [])
        self._waited += [waiting.Waited(**one) for one in sent]

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what the run waited for."""
        lines = waiting.summary([*waiting.waited(), *self._waited])
        if lines and self._config.get_verbosity() >= 0:
            terminalreporter.ensure_newline()
            for line in lines:
                terminalreporter.write_line(f"cgins: {line}")

    def pytest_unconfigure(self) -> None:
        """Leave the loggers as they were."""
        self._lines.close()
        if self._stderr >= 0:
            os.close(self._stderr)


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Let output through to the terminal meanwhile."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    return nullcontext() if capture is None else capture.global_and_fixture_disabled()


def _one_stream() -> bool:
    try:
        return os.path.samestat(os.fstat(1), os.fstat(2))
    except OSError:
        return False
