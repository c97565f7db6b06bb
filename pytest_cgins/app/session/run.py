"""A session with `--cgins`: evaluators, results, exit code, and the same over xdist's workers."""

from __future__ import annotations

import gc
import os
import random
import shlex
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from os.path import relpath
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins import __version__
from pytest_cgins import config as configuration
from pytest_cgins.app.session import coverage, pinning, results
from pytest_cgins.app.session.benchmark_records import BenchmarkRecords
from pytest_cgins.app.session.builds import RunBuilds, cases_of
from pytest_cgins.app.session.collect import CginsFile, GatedItem, left_out
from pytest_cgins.app.session.earlier_verdicts import EarlierVerdicts
from pytest_cgins.app.session.environments import PairedProcesses
from pytest_cgins.app.session.lost_gpus import LostGpus
from pytest_cgins.app.session.parametrize import parametrize
from pytest_cgins.app.session.short_protocol import ShortProtocol
from pytest_cgins.config import ModelEntry
from pytest_cgins.core import documents
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import ConfigError, InfrastructureError, SandboxUnavailable
from pytest_cgins.core.options import BASELINE, PROBE_LEVELS, TIMEOUT_S
from pytest_cgins.core.session_report import Environment, Evaluation, SessionReport, Shard
from pytest_cgins.core.text import UNLIMITED
from pytest_cgins.gate.calibration import Calibrations
from pytest_cgins.gate.elsewhere import HERE, Elsewhere
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.report import document, durations, exit_code, summary, terminal
from pytest_cgins.run import environment
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox.outside import has_gpu
from pytest_cgins.run.sandbox.sandbox import Sandbox

ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Exit codes of a run that was not broken off."""
GIVEN_AGAIN = "strict device no-timing timeout probes isolation sandbox baseline compare suite-tests sanitize env base-env opcheck"
"""Options that a failing item is run again with."""
USUAL = {"device": "auto", "timeout": TIMEOUT_S, "probes": PROBE_LEVELS[0], "isolation": "process"}
BUILDS_POLL_S = 0.1
GC_THRESHOLD = 100_000
"""Objects between two searches for cycles: what is read and found stays, and to look through it takes a fifth of a long run."""
UNISOLATED = (
    "cgins: no isolation: kernels run in pytest's own process. A crash ends the run, and --cgins-timeout and other "
    "limits hold for nothing"
)


class GateSession:
    """The hooks of one pytest process, and what they share.

    Under xdist each worker process has its own evaluators and its reports carry the evaluations; the
    controller collects them, and it alone writes.
    """

    plugin_name = "cgins-session"

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        if config.getoption("--cgins-isolation") == "process" and environment.has_secrets():
            environment.shield()
        self._workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.seed = self._choose_seed()
        self.strict: bool = config.getoption("--cgins-strict")
        self._compile_only: bool = config.getoption("--cgins-compile-only")
        self._evaluators: dict[Path, Evaluator] = {}
        self._cases: dict[Path, tuple[Case, ...]] = {}
        self._results = results.Results()
        self._started_at = datetime.now(timezone.utc)
        self._started = time.monotonic()
        self.report: SessionReport | None = None
        """What was found; None before the end, and in xdist's workers."""
        self._unwritten = ""
        self._next: pytest.Item | None = None
        self.items: tuple[pytest.Item, ...] = ()
        """Those that run, once they are collected."""
        self._sandbox = _sandbox(config)
        self._earlier = EarlierVerdicts(config)
        self.builds = RunBuilds(self, self._sandbox)
        config.pluginmanager.register(self.builds, RunBuilds.plugin_name)
        self.benchmark_records = BenchmarkRecords(self)
        config.pluginmanager.register(self.benchmark_records, BenchmarkRecords.plugin_name)
        given: tuple[int, int] | None = config.getoption("--cgins-shard")
        path = config.getoption("--cgins-durations")
        self._durations_file = Path(config.invocation_params.dir, path) if path else None
        self._durations = _durations(self._durations_file) if self._durations_file and given else None
        digest = self._durations.digest if self._durations else ""
        self._shard = None if given is None else Shard(number=given[0], count=given[1], durations=digest)
        self._coverage = coverage.Coverage(config)
        self._calibrations = Calibrations()
        self._gpus = LostGpus({**_search_path(config), **pinning.of(config)})
        self._environments = PairedProcesses.of_environments(self)
        self._apart = PairedProcesses(self, Elsewhere(at_base=True))
        self._short = ShortProtocol(self)
        config.pluginmanager.register(self._coverage, coverage.Coverage.plugin_name)
        config.add_cleanup(partial(gc.set_threshold, *gc.get_threshold()))
        gc.set_threshold(GC_THRESHOLD)

    @classmethod
    def of(cls, config: pytest.Config) -> GateSession:
        """The session of this process, which runs with `--cgins`."""
        found = config.pluginmanager.get_plugin(cls.plugin_name)
        assert isinstance(found, cls)
        return found

    def _choose_seed(self) -> int:
        if self._workerinput is not None:
            seed: int = self._workerinput["cgins_seed"]
            return seed
        given: int | None = self.config.getoption("--cgins-seed")
        return random.SystemRandom().randrange(2**31) if given is None else given

    # ---- what items and fixtures ask for

    def evaluator(self, file: Path) -> Evaluator:
        """The evaluator of one `cgins.yaml`, made at the first call.

        Raises:
            ConfigError: the file is wrong.
        """
        if file not in self._evaluators:
            pairs = self._environments
            elsewhere = pairs.of_kernel if pairs is not None else HERE
            self._evaluators[file] = self.new_evaluator(file, elsewhere, timing=pairs is None)
        return self._evaluators[file]

    def new_evaluator(
        self, file: Path, elsewhere: Elsewhere, reference: WorkerPool | None = None, *, timing: bool = True
    ) -> Evaluator:
        """An evaluator of one `cgins.yaml`, closed by its owner; arguments are those of `Evaluator`."""
        option = self.config.getoption
        # A source that is missing is an error of its own kernel.
        loaded = configuration.load(file, require_sources=False)
        return Evaluator(
            loaded,
            seed=self.seed,
            device=option("--cgins-device"),
            timing=timing and not option("--cgins-no-timing"),
            timing_options=self._timing_options(loaded),
            timeout_s=option("--cgins-timeout"),
            isolation=option("--cgins-isolation"),
            sandbox=self._sandbox,
            environment=self._gpus.environment,
            probes=option("--cgins-probes"),
            sanitize=option("--cgins-sanitize") or (),
            builds=self.builds.ahead,
            on_build=self.builds.show,
            reference=reference,
            elsewhere=elsewhere,
            known=self._earlier.known,
        )

    def _timing_options(self, loaded: configuration.Config) -> TimingOptions:
        option = self.config.getoption
        return TimingOptions(
            baseline=option("--cgins-baseline") or loaded.baseline or BASELINE,
            tests=self.tests,
            unchanged="unchanged" in option("--cgins-compare"),
            compile="compile" in option("--cgins-compare"),
            noise=self._calibrations.noise,
        )

    def tests(self, *, pairs: bool = False) -> int:
        """Tests of times in the whole suite, whatever part of it this process or this command line runs.

        All files are collected by the time that anything is timed, by every worker of xdist. Pairs of processes test medians
        alone: one test a case.
        """
        given: int = self.config.getoption("--cgins-suite-tests")
        if given:
            return given
        if pairs:
            return sum(len(one.cases()) for one in self._evaluators.values())
        return sum(one.tests() + 2 * len(one.config.whole_models) for one in self._evaluators.values())

    def tell(self, text: str) -> None:
        """Show what a long step is at; "" clears it."""
        self.builds.tell(text)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Know all items that will run."""
        self.items = tuple(session.items)
        # What is collected stays to the end, and is not looked through again.
        gc.freeze()

    def cases(self, file: Path) -> tuple[Case, ...]:
        """The cases of one `cgins.yaml`.

        Raises:
            CginsError: the file or one of its trace packs is wrong.
        """
        if file not in self._cases:
            evaluator = self.evaluator(file)
            evaluator.require_base()
            if not self.config.option.collectonly:
                evaluator.processes.warm()  # its processes import torch while packs are read and tests collected
            self._cases[file] = evaluator.cases()
        return self._cases[file]

    def evaluate(self, file: Path, case: Case) -> Evaluation:
        """Run the gate on a case of a `cgins.yaml`, whose next item's case is prepared meanwhile."""
        evaluator = self.evaluator(file)
        if self._environments is not None:
            return self._environments.evaluation(file, case, together=lambda _: True)
        if not evaluator.pool.is_local and evaluator.is_timed_apart(case):
            return self._apart.evaluation(file, case, together=evaluator.is_timed_apart)
        upcoming = [case for path, case in cases_of(self._next) if path == file] if self._next else []
        found = evaluator.evaluate(case, upcoming=upcoming[0] if upcoming else None)
        gpu = next((one.device_uuid for one in evaluator.environments() if one.device == "cuda"), "")
        return self._gpus.after(found, gpu, lambda: self._evaluated_anew(file, case))

    def _evaluated_anew(self, file: Path, case: Case) -> Evaluation:
        """What new processes find of a case; all others of the session are ended."""
        self._end_processes()
        self._evaluators.clear()
        return self.evaluator(file).evaluate(case)

    def _end_processes(self) -> None:
        for evaluator in self._evaluators.values():
            self._results.add_environments(evaluator.environments())
            evaluator.close()

    def known(self, file: Path, case: Case) -> Evaluation | None:
        """What an earlier run found of a case whose kernel is built; None where `evaluate` has to find out."""
        return self.evaluator(file).known(case) if self._environments is None else None

    def model_items(self, file: pytest.File) -> Iterator[pytest.Item]:
        """One item a whole model of a `cgins.yaml` that this run measures: none beside a second environment."""
        device = self.config.getoption("--cgins-device")
        found = self.evaluator(file.path).config.whole_models if self._environments is None else ()
        for entry in (one for one in found if device in ("auto", one.device)):
            from pytest_cgins.app.session.models import case_of

            find = partial(self._evaluate_model, file.path, entry)
            yield GatedItem.from_parent(
                file, name=case_of(entry).name, kind="model", line=entry.line, find=find, gate=self
            )

    def _evaluate_model(self, file: Path, entry: ModelEntry) -> Evaluation:
        """Measure one of them with its kernels, once no compiler runs."""
        from pytest_cgins.app.session.models import ModelRun

        run = ModelRun(
            self, file, entry, environment=self._gpus.environment, fenced=self._sandbox is not None
        )
        # Its process builds what is missing, and would wait for a compiler that rests.
        while not self.builds.ahead.progress().done:
            time.sleep(BUILDS_POLL_S)
        return run.evaluation()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect other parts before `-k` and `--lf` look: the parts must not hang on what these leave."""
        if self._shard is not None and (others := left_out(items, self._shard, self._durations)):
            config.hook.pytest_deselected(items=others)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Know which item comes next, and report at once what is known of this one."""
        self._next = nextitem
        return self._short.report(item, nextitem) or None

    def files(self) -> tuple[Path, ...]:
        """The `cgins.yaml` files that this process has collected."""
        return tuple(self._evaluators)

    def evaluations(self) -> dict[Path, tuple[Evaluation, ...]]:
        """What was found so far, by `cgins.yaml`."""
        found: dict[Path, list[Evaluation]] = {}
        for evaluation in self._results.evaluations:
            if not evaluation.case.check:  # how an operator is registered says nothing of its kernel's source
                file = Path(self.config.invocation_params.dir, evaluation.config).resolve()
                found.setdefault(file, []).append(evaluation)
        return {file: tuple(some) for file, some in found.items()}

    def environments(self) -> tuple[Environment, ...]:
        """What this process's workers ran on so far, one a device and `cgins.yaml`."""
        return tuple(one for evaluator in self._evaluators.values() for one in evaluator.environments())

    def command(self, item: pytest.Item) -> str:
        """Shell command that runs an item again on the same inputs, from the folder where pytest began."""
        option = self.config.getoption
        words = ["pytest", "--cgins", f"--cgins-seed={self.seed}"]
        for name in GIVEN_AGAIN.split():
            value = "on" * (self._sandbox is not None) if name == "sandbox" else option(f"--cgins-{name}")
            if value and value != USUAL.get(name):
                value = ",".join(value) if isinstance(value, tuple) else value
                words.append(f"--cgins-{name}" if value is True else f"--cgins-{name}={value}")
        path = relpath(item.path, self.config.invocation_params.dir)
        node = item.nodeid.partition("::")[2]
        return shlex.join([*words, f"{path}::{node}"])

    # ---- pytest's hooks

    def pytest_report_header(self) -> list[str]:
        """Say the seed before anything can go wrong, and what protects nothing."""
        lines = [] if self._compile_only else [f"cgins: seed {self.seed}"]
        if lines and self.config.getoption("--cgins-isolation") == "none":
            lines.append(UNISOLATED)
        return lines + (pinning.header(self.config) if lines else [])

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave journals of regeneration alone, wherever they lie: the `cgins.yaml` in one is a proposal's."""
        is_journal = all((collection_path / name).is_file() for name in ("run.json", "events.log"))
        return True if is_journal else None

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Take every `cgins.yaml`."""
        if file_path.name == "cgins.yaml" and not self._compile_only:
            file: pytest.Collector = CginsFile.from_parent(parent, path=file_path, gate=self)
            return file
        return None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run tests that take `cgins_case` once a case."""
        if "cgins_case" in metafunc.fixturenames and not self._compile_only:
            parametrize(metafunc, self)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Send the item's evaluations along with the report of the phase in which they were made."""
        report = yield
        if call.excinfo is not None and isinstance(call.excinfo.value, InfrastructureError):
            results.excuse(item)
        results.attach(item, report, own=isinstance(item, GatedItem))
        if isinstance(item, GatedItem):
            item.locate_skip(report)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take them in."""
        if self._workerinput is None:
            self._earlier.keep(self._results.add(report))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End the workers, settle the exit code, write the document."""
        self._end_processes()
        if self._workerinput is not None:
            sent = [documents.dump_python(environment) for environment in self._results.environments]
            getattr(self.config, "workeroutput")["cgins_environments"] = sent  # noqa: B009 (xdist sets it)
            return
        self._earlier.close(finished=exitstatus in ENDED and not (session.shouldfail or session.shouldstop))
        if exitstatus == pytest.ExitCode.TESTS_FAILED and self._results.only_infrastructure_failed:
            session.exitstatus = exit_code.INFRASTRUCTURE
        unblamed = session.exitstatus in (pytest.ExitCode.OK, exit_code.INFRASTRUCTURE)
        if self.strict and unblamed and summary.ungated(self._results.evaluations):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        gc.freeze()  # so does what was found
        self.report = document.session_report(
            self._results.evaluations,
            self._results.environments,
            version=__version__,
            seed=self.seed,
            started_at=self._started_at,
            seconds=time.monotonic() - self._started,
            exit_status=int(session.exitstatus),
            strict=self.strict,
            compilations=self._results.compilations,
            suite_tests=self.config.getoption("--cgins-suite-tests"),
            shard=self._shard,
            other_failures=max(0, session.testsfailed - self._results.case_failures),
            stopped=bool(session.shouldfail),
        )
        if exitstatus in ENDED and not (self._compile_only or self.config.option.collectonly):
            self.report = self._coverage.examined(self.report)
            if session.exitstatus in (pytest.ExitCode.OK, exit_code.INFRASTRUCTURE):
                session.exitstatus = exit_code.settled(self.report, int(session.exitstatus))
                self.report = replace(self.report, exit_status=int(session.exitstatus))
        self._write(session)
        if self.config.get_verbosity() <= 0:
            self._results.shorten_repeats()

    def _write(self, session: pytest.Session) -> None:
        path = self.config.getoption("--cgins-json")
        # A collection alone has found nothing, and must not replace what a run has.
        if self.report is None or self.config.option.collectonly:
            return
        option = "--cgins-json"
        try:
            if path is not None:
                document.write(self.report, self.config.invocation_params.dir / path)
            if self._durations_file is not None and self._shard is None:
                option = "--cgins-durations"
                durations.write(self._durations_file, self.report.evaluations)
        except OSError as error:
            # Without its report a pipeline would read a stale one: that must not look like success.
            self._unwritten = f"{option} was not written: {error}"
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the section `cgins`."""
        if self._unwritten:
            terminalreporter.write_line(f"cgins: {self._unwritten}", red=True)
        for line in self._earlier.lines():
            terminalreporter.write_line(f"cgins: earlier verdicts: {line}")
        if self.report is None:
            return
        writer = self.config.get_terminal_writer()
        text = terminal.render(
            self.report,
            width=writer.fullwidth if terminalreporter.isatty else UNLIMITED,
            colour=writer.hasmarkup,
            verbosity=self.config.get_verbosity(),
        )
        if text:
            terminalreporter.section("cgins", sep="=")
            terminalreporter.write(text)

    # ---- xdist

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        """Send evaluations along."""
        data = yield
        return None if data is None else results.serialized(data)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Controller: one seed for all workers."""
        node.workerinput["cgins_seed"] = self.seed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Controller: a worker has ended and says what it ran on; one that crashed says nothing."""
        sent = (getattr(node, "workeroutput", None) or {}).get("cgins_environments", [])
        self._results.add_environments(tuple(documents.load_python(Environment, value) for value in sent))


def _sandbox(config: pytest.Config) -> Sandbox | None:
    """The fence around workers that run kernels, and around compilers; None where there is none.

    `auto` is for kernels that a model wrote in this run. What a gate finds in `cgins.yaml` was committed by
    people, who run it outside of the gate as well.

    Raises:
        pytest.UsageError: it is asked for, and this host cannot, or another option runs kernels outside of it.
    """
    if config.getoption("--cgins-sandbox") != "on":
        return None
    if config.getoption("--cgins-isolation") == "none" and not config.getoption("--cgins-compile-only"):
        raise pytest.UsageError(
            "--cgins-sandbox=on and --cgins-isolation=none: pytest's own process cannot be fenced in\n"
            "→ leave one of them out"
        )
    made = Sandbox(devices=has_gpu())
    try:
        made.require()
    except SandboxUnavailable as error:
        raise pytest.UsageError(str(error)) from error
    return made


def _durations(path: Path) -> durations.Durations:
    try:
        return durations.read(path)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from error


def _search_path(config: pytest.Config) -> dict[str, str]:
    """PYTHONPATH of workers: they find modules where pytest's option `pythonpath` has this process find them."""
    folders = [str(folder) for folder in config.getini("pythonpath")]
    own = [os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, [*folders, *own]))} if folders else {}
