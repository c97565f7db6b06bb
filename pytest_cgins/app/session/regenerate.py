"""`--cgins-regenerate`: after the tests, kernels that failed or are slow are given to a language model."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins import config as configuration
from pytest_cgins.app.session import pinning, publish
from pytest_cgins.core.errors import CginsError, SandboxUnavailable
from pytest_cgins.core.options import BASELINE
from pytest_cgins.regenerate import run, run_setup
from pytest_cgins.regenerate import targets as choice
from pytest_cgins.regenerate.project_copy import head

if TYPE_CHECKING:
    from pytest_cgins.app.session.run import GateSession
    from pytest_cgins.config import Config
    from pytest_cgins.config.llm import LlmSettings
    from pytest_cgins.core.session_report import Evaluation
    from pytest_cgins.run.sandbox.sandbox import Sandbox


class Regeneration:
    """pytest's hooks around a run; on xdist's controller or in the one process, never in a worker."""

    plugin_name = "cgins-regeneration"

    def __init__(self, config: pytest.Config, gate: GateSession) -> None:
        self._config = config
        self._gate = gate
        self._session: pytest.Session | None = None
        self._sandbox = _sandbox(config)
        wanted: str = config.getoption("--cgins-regenerate")
        self._wanted = tuple(word for word in wanted.split(",") if word)

    def pytest_report_header(self) -> list[str]:
        """Say what protects nothing."""
        return [] if self._sandbox is not None else [run_setup.UNFENCED]

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep it for its exit code."""
        self._session = session

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find out before the first test whether anybody can be asked."""
        if session.config.option.collectonly:
            return
        try:
            for file in self._gate.files():
                self._settings(configuration.load(file, require_traces=False, require_sources=False))
        except CginsError as error:
            raise pytest.UsageError(str(error)) from error

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Regenerate, below the gate's own section."""
        if self._config.option.collectonly or exitstatus not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
        ):
            return
        for file, evaluations in self._gate.evaluations().items():
            try:
                self._of_file(file, evaluations, terminalreporter)
            except CginsError as error:
                terminalreporter.write_line(f"cgins: not regenerated: {error}", red=True)
                self._exit(pytest.ExitCode.TESTS_FAILED)
            except KeyboardInterrupt:
                # Also of all files that would follow, and not with a traceback that hides what is kept.
                terminalreporter.write_line("cgins: interrupted")
                self._exit(pytest.ExitCode.INTERRUPTED)
                return

    def _of_file(
        self, file: Path, evaluations: tuple[Evaluation, ...], terminalreporter: pytest.TerminalReporter
    ) -> None:
        loaded = configuration.load(file, require_traces=False, require_sources=False)
        wanted = choice.choose(loaded, evaluations, self._wanted)
        if not wanted:
            return
        settings = self._settings(loaded)
        terminalreporter.section("cgins: regenerate", sep="=")
        record = self._record(loaded)
        # A repair ends with the kernel that is right, unless a search was asked for by name.
        goes_on = bool(self._config.getoption("--cgins-policy")) and bool(record["timing"])
        with run.begin(loaded, settings, wanted, evaluations, record=record, goes_on=goes_on) as journal:
            ran = run_setup.carry_out(
                journal,
                loaded,
                settings,
                sandbox=self._sandbox,
                workers=pinning.of(self._config),
                file=sys.stdout,
            )
        if ran is None:
            raise KeyboardInterrupt
        if any(result.state == "waiting" for result in ran.results):
            self._exit(run_setup.EXIT_WAITING)
        for line in publish.of_run(journal.record, ran, file):
            terminalreporter.write_line(f"cgins: {line}")

    def _record(self, loaded: Config) -> dict[str, object]:
        option = self._config.getoption
        return {
            "llm": option("--cgins-llm") or "",
            "model": option("--cgins-model") or "",
            "budget": option("--cgins-budget") or "",
            "seed": self._gate.seed,
            "baseline": option("--cgins-baseline") or loaded.baseline or BASELINE,
            "base_commit": head(loaded.root),
            "executor": option("--cgins-executor") or "",
            "sandbox": self._sandbox is not None,
            "timing": not option("--cgins-no-timing"),
            "compile": "compile" in option("--cgins-compare"),
            "timeout_s": option("--cgins-timeout"),
            "command": shlex.join(["pytest", *self._config.invocation_params.args]),
            "pull_requests": option("--cgins-pr"),
        }

    def _exit(self, code: int) -> None:
        # What the gate found stays the exit code of a run that ended by itself: a proposal mends no working tree.
        if self._session is not None:
            self._session.exitstatus = code

    def _settings(self, loaded: Config) -> LlmSettings:
        option = self._config.getoption
        asked = run_setup.RunOptions(
            llm=option("--cgins-llm") or "",
            model=option("--cgins-model") or "",
            policy=option("--cgins-policy") or "",
            budget=option("--cgins-budget") or "",
            runs=option("--cgins-runs") or "",
            executor=option("--cgins-executor") or "",
            here=self._config.invocation_params.dir,
        )
        return run_setup.settings_of(loaded, asked)


def _sandbox(config: pytest.Config) -> Sandbox | None:
    try:
        return run_setup.sandbox_of(config.getoption("--cgins-sandbox"))
    except SandboxUnavailable as error:
        raise pytest.UsageError(f"--cgins-regenerate: {error}") from error
