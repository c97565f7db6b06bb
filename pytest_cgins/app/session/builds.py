"""The builds of a pytest run: begun before the first item, told of on the terminal, ended with the session."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app.session.collect import CaseItem
from pytest_cgins.app.session.gate import Gate
from pytest_cgins.app.session.livelog import uncaptured
from pytest_cgins.app.session.parametrize import nearest_config
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.progress import Progress, joined
from pytest_cgins.core.case import Case
from pytest_cgins.core.text import counted
from pytest_cgins.run.sandbox.builds import BuildFence
from pytest_cgins.run.sandbox.sandbox import Sandbox

LOOKUP_S = 2.0
"""How long the first item waits at most to have the terminal told how much there is to build."""
REDRAW_S = 0.2


class RunBuilds:
    """The hooks of pytest that concern builds.

    Under xdist every worker builds what the run needs, as far as no other builds it at the moment, and the
    controller says what came of it.
    """

    plugin_name = "cgins-builds"

    def __init__(self, gate: Gate, sandbox: Sandbox | None) -> None:
        self._gate = gate
        self._config = gate.config
        fence = None if sandbox is None else BuildFence(sandbox)
        self.ahead = BuildQueue(jobs=gate.config.getoption("--cgins-jobs"), fence=fence)
        self._is_worker = hasattr(gate.config, "workerinput")
        self._sent: list[Progress] = []
        self._told = True
        self._drawn_at: float | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Begin with the kernels of all items that are selected, in the order of the items."""
        option = session.config.option
        if option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
            return
        files: dict[Path, list[Case]] = {}
        for item in session.items:
            for file, case in cases_of(item):
                files.setdefault(file, []).append(case)
        for file, cases in files.items():
            self._gate.evaluator(file).build_ahead(cases)
        if files or self.ahead.progress().total:  # --cgins-compile-only adds its own
            self._tell_of_begin(self.ahead.looked_up(LOOKUP_S))

    def _tell_of_begin(self, progress: Progress) -> None:
        missing = progress.waiting + len(progress.running)
        if missing and not self._silent:
            self._told = False
            jobs = f", {self.ahead.jobs} at a time" if missing > 1 else ""
            self._reporter.write_line(
                f"cgins: {missing} of {counted(progress.total, 'kernel')} to build{jobs}"
            )

    def show(self, progress: Progress | None) -> bool:
        """While an item waits: how far its builds are, in the line below the cursor; None clears it.

        Returns:
            Whether there is such a line now.
        """
        if self._silent or not sys.__stdout__ or not self._config.get_terminal_writer().hasmarkup:
            return False
        now = time.monotonic()
        if progress is not None and self._drawn_at is not None and now - self._drawn_at < REDRAW_S:
            return True
        if progress is None and self._drawn_at is None:
            return False
        self._drawn_at = None if progress is None else now
        writer = self._config.get_terminal_writer()
        self._draw("" if progress is None else progress.line(writer.fullwidth - 1))
        return progress is not None

    def tell(self, text: str) -> None:
        """What a long step is at, in the line below the cursor; "" clears it."""
        if not self._silent and sys.__stdout__ and self._config.get_terminal_writer().hasmarkup:
            self._draw(text)

    def _draw(self, text: str) -> None:
        writer = self._config.get_terminal_writer()
        column = writer.width_of_current_line % writer.fullwidth
        # Down, write, and back to where pytest goes on; a line feed at the bottom scrolls, so nothing is saved.
        drawing = f"\n{text}\x1b[K\r\x1b[A" + (f"\x1b[{column}C" if column else "")
        with uncaptured(self._config):
            sys.stdout.write(drawing)
            sys.stdout.flush()

    def pytest_runtest_logfinish(self) -> None:
        """Between two items: say it once all builds have ended; without -v it would tear the line of dots."""
        if self._told or self._config.get_verbosity() <= 0:
            return
        progress = self.ahead.progress()
        if progress.done:
            self._tell_of_end(progress)

    def _tell_of_end(self, progress: Progress) -> None:
        if not self._told:
            self._told = True
            self._reporter.ensure_newline()
            self._reporter.write_line(progress.summary())

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End what is still under way: -x, Ctrl-C."""
        self.ahead.close()
        if self._is_worker:
            output = getattr(self._config, "workeroutput")  # noqa: B009 (xdist sets it)
            output["cgins_builds"] = self.ahead.progress().numbers()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Controller: a worker has ended, and says what it built."""
        sent = (getattr(node, "workeroutput", None) or {}).get("cgins_builds")
        if sent:
            self._sent.append(Progress(**sent))

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self) -> None:
        """Say what has not been said yet: of a session that was ended, and of xdist's workers."""
        whole = joined(self._sent)
        self._told = self._told and (self._silent or not whole.built)
        self._tell_of_end(whole if self._sent else self.ahead.progress())

    @property
    def _silent(self) -> bool:
        hidden = self._is_worker or self._config.get_verbosity() < 0
        return hidden or not self._config.pluginmanager.hasplugin("terminalreporter")

    @property
    def _reporter(self) -> pytest.TerminalReporter:
        found = self._config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(found, pytest.TerminalReporter)
        return found


def cases_of(item: pytest.Item) -> Iterator[tuple[Path, Case]]:
    """The case that an item is for, its own or that of the fixture `cgins_case`, and its `cgins.yaml`."""
    if isinstance(item, CaseItem):
        yield item.path, item.case
    elif isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        case = item.callspec.params.get("cgins_case")
        if isinstance(case, Case):
            yield nearest_config(item.path, item.config.rootpath), case
