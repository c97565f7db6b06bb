"""`--cgins-regenerate`: after the tests, kernels that failed or are slow are given to a language model."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins import config as configuration
from pytest_cgins.calibration import Calibrations
from pytest_cgins.config.llm_override import overridden
from pytest_cgins.errors import CginsError, ConfigError, SandboxUnavailable
from pytest_cgins.execute.sandbox.fence import Sandbox
from pytest_cgins.execute.sandbox.outside import has_gpu
from pytest_cgins.options import BASELINE
from pytest_cgins.regenerate import targets as choice
from pytest_cgins.regenerate.project_copy import head
from pytest_cgins.session import pinning
from pytest_cgins.timing_stage import TimingOptions

if TYPE_CHECKING:
    from pytest_cgins.config import Config
    from pytest_cgins.config.llm import LlmSettings
    from pytest_cgins.model import Evaluation
    from pytest_cgins.regenerate.journal import Journal
    from pytest_cgins.regenerate.run import Ran
    from pytest_cgins.session.run import GateSession

EXIT_WAITING = 7
"""Exit code when a run stopped because its answers come by hand and are not there yet."""

UNFENCED = "cgins: no sandbox: kernels that a model wrote run with all that you may do (--cgins-sandbox=off)"


class Regeneration:
    """pytest's hooks around a run; on xdist's controller or in the one process, never in a worker."""

    plugin_name = "cgins-regeneration"

    def __init__(self, config: pytest.Config, gate: GateSession) -> None:
        self._config = config
        self._gate = gate
        self._session: pytest.Session | None = None
        self._sandbox = sandbox(config)
        wanted: str = config.getoption("--cgins-regenerate")
        self._wanted = tuple(word for word in wanted.split(",") if word)

    def pytest_report_header(self) -> list[str]:
        """Say what protects nothing."""
        return [] if self._sandbox is not None else [UNFENCED]

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
                self._settings(configuration.load(file))
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

    def _of_file(
        self, file: Path, evaluations: tuple[Evaluation, ...], terminalreporter: pytest.TerminalReporter
    ) -> None:
        from pytest_cgins.regenerate import run

        loaded = configuration.load(file)
        wanted = choice.choose(loaded, evaluations, self._wanted)
        if not wanted:
            return
        settings = self._settings(loaded)
        terminalreporter.section("cgins: regenerate", sep="=")
        with run.begin(loaded, settings, wanted, evaluations, record=self._record(loaded)) as journal:
            ran = self._worked(journal, loaded, settings)
        if ran is not None:
            self._settle(ran)

    def _worked(self, journal: Journal, loaded: Config, settings: LlmSettings) -> Ran | None:
        """What came of it; None after Ctrl-C."""
        from pytest_cgins.regenerate import run
        from pytest_cgins.regenerate.shown import Shown

        shown = Shown(journal.folder, writer=self._config.get_terminal_writer())
        conditions = run.Conditions(
            sandbox=self._sandbox,
            environment=pinning.of(self._config),
            noise=TimingOptions(noise=Calibrations().noise),
            on_event=shown.event,
        )
        try:
            with shown:
                ran = run.Run(journal, loaded, settings, conditions).work()
        except KeyboardInterrupt:
            shown.interrupted()
            self._exit(pytest.ExitCode.INTERRUPTED)
            return None
        shown.summary(ran)
        return ran

    def _record(self, loaded: Config) -> dict[str, object]:
        option = self._config.getoption
        return {
            "llm": option("--cgins-llm") or "",
            "model": option("--cgins-model") or "",
            "seed": self._gate.seed,
            "baseline": option("--cgins-baseline") or loaded.baseline or BASELINE,
            "base_commit": head(loaded.root),
            "sandbox": self._sandbox is not None,
            "timing": not option("--cgins-no-timing"),
            "timeout_s": option("--cgins-timeout"),
            "command": shlex.join(["pytest", *self._config.invocation_params.args]),
        }

    def _settle(self, ran: Ran) -> None:
        if any(result.state == "waiting" for result in ran.results):
            self._exit(EXIT_WAITING)

    def _exit(self, code: int) -> None:
        # What the gate found stays the exit code of a run that ended by itself: a proposal mends no working tree.
        if self._session is not None:
            self._session.exitstatus = code

    def _settings(self, loaded: Config) -> LlmSettings:
        option = self._config.getoption
        settings = overridden(
            loaded.llm,
            llm=option("--cgins-llm") or "",
            model=option("--cgins-model") or "",
            root=loaded.root,
            here=self._config.invocation_params.dir,
        )
        if settings is None:
            raise ConfigError(
                f"--cgins-regenerate: {loaded.file} does not say who is asked",
                remedy="add a section llm to it, or give --cgins-llm=PROVIDER --cgins-model=NAME",
            )
        runs = option("--cgins-runs")
        return replace(settings, runs=self._config.invocation_params.dir / runs) if runs else settings


def sandbox(config: pytest.Config) -> Sandbox | None:
    """The fence around candidates; None where the user wants none.

    Raises:
        pytest.UsageError: this host cannot make one, and the user did not say that it may be left out.
    """
    if config.getoption("--cgins-sandbox") == "off":
        return None
    made = Sandbox(devices=has_gpu())
    try:
        made.require()
    except SandboxUnavailable as error:
        raise pytest.UsageError(f"--cgins-regenerate: {error}") from error
    return made
