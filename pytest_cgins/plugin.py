"""pytest's door: options, marker and fixtures. What they do is in `pytest_cgins.app.session`.

This module is imported in every run of pytest where pytest-cgins is installed, so it imports nothing but
pytest; the rest comes in only with `--cgins`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_cgins.core.device import DEVICES
from pytest_cgins.core.options import (
    BASELINE,
    COMPARISONS,
    FIXTURES,
    POLICIES,
    PROBE_LEVELS,
    PROVIDERS,
    SANITIZERS,
    TIMEOUT_S,
    above_zero,
    described,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_cgins.app.session.benchmark import Benchmark
    from pytest_cgins.app.session.fixtures import CaseUnderTest
    from pytest_cgins.app.session.remote import RemoteKernel

NEEDS_CGINS = "needs --cgins"
OPTIONS = f"""
--cgins  gate the kernels of every cgins.yaml
--cgins-json PATH  write everything that was found to PATH as JSON
--cgins-seed N  seed of the fresh inputs (default: a new one each run)
--cgins-strict  fail cases that a forged answer would pass (WEAK), and kernels whose contract covers no case
--cgins-device  run the cases of this device only (default: all, absent devices are skipped)
--cgins-jobs N  parallel builds (default: one per core, as memory allows)
--cgins-no-timing  check answers, do not time kernels
--cgins-compare WHAT[,WHAT]  time more than the kernel, its base revision and torch: compile (torch.compile too);
    unchanged (a kernel that did not change against a second build of itself)
--cgins-suite-tests N  number of tests on time in the whole suite, if several runs are one suite; they share the chance
    of a false alarm (default: those of the cgins.yaml files of this run)
--cgins-shard I/N  gate part I of N of the cases, for N machines; `cgins merge` joins their reports
--cgins-durations PATH  write how long cases took to PATH; with --cgins-shard, cut parts by it that take about as long
    as each other
--cgins-log-level  show the gate's own messages from this level on (default: %(default)s; -vv shows builds, -vvv
    everything)
--cgins-timeout SECONDS  limit for one request to a worker process (default: %(default)s)
--cgins-probes {"|".join(PROBE_LEVELS)}  probes for kernels that only seem right; fast skips those that need more
    reference results (default: %(default)s)
--cgins-sanitize TOOL[,TOOL]  run CUDA kernels under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
    (without a value: all four)
--cgins-opcheck  check how kernels that are torch operators are registered: schema, autograd, fake tensors,
    torch.compile, CUDA graphs
--cgins-isolation process|none  process: run kernels in worker processes; none: in pytest's own, for debuggers
    (default: %(default)s)
--cgins-sandbox auto|on|off  isolate workers and compilers: no network, read-only files, no view of other processes;
    auto: for generated kernels (default: %(default)s)
--cgins-allow-fewer  do not fail in CI if there are fewer cases than at the base revision, or if none ran
--cgins-allow-weaker  do not fail in CI if settings of the gate are weaker than at the base revision; only effective on
    the command line and in $PYTEST_ADDOPTS
--cgins-compile-only  build every CUDA kernel for each architecture, run none, and fail if spills or registers grew
--cgins-arch ARCH[,ARCH]  with --cgins-compile-only: architectures to build for, e.g. sm_80,sm_90a (default: those of
    cgins.yaml, else of $CGINS_CUDA_ARCHS, else sm_80,sm_90a,sm_100)
--cgins-baseline REV  commit to compare cases, builds and times with; merge-base: the last commit that HEAD shares with
    the default branch; none: no comparison (default: gate.baseline of cgins.yaml, else {BASELINE})
--cgins-base-env ENV  compare with the kernels of ENV, another environment: a virtual environment, NAME=VALUE, a wheel,
    a library, a folder to import from, the root of a container, or several of them in one string
--cgins-env ENV  build and run the kernels under test in ENV, not in this environment
--cgins-store PATH  take verdicts of unchanged cases from PATH, a folder or s3://BUCKET/FOLDER
--cgins-store-write PATH  keep verdicts of cases that ran, for --cgins-store; on the default branch only
--cgins-store-days N  age from which none is taken (default: 7)
--cgins-resume  go on with a run that was killed: take over what it had verified
--cgins-history PATH  append the times of this run to PATH, as JSON lines for `cgins history`; on the default branch
    only
--cgins-history-always  append to the history on other branches and in pull requests too
--cgins-regenerate WHAT[,WHAT]  after the tests, have a language model rewrite kernels that failed or are slow, and
    propose what the gate accepts: failed, slow, or names of kernels (without a value: failed,slow)
--cgins-llm PROVIDER[:PLACE]  provider of the language model: {", ".join(PROVIDERS)}; PLACE is the URL of compatible,
    or a folder (default: llm of cgins.yaml)
--cgins-model NAME  model for every role
--cgins-policy {"|".join(POLICIES)}  how --cgins-regenerate searches for a faster kernel (default: llm.policy of
    cgins.yaml, else refine)
--cgins-budget KEY=N[,...]  limits of --cgins-regenerate, before llm.budget of cgins.yaml
--cgins-runs PATH  folder for journals of --cgins-regenerate (default: .cgins/runs)
--cgins-executor EXECUTOR  where --cgins-regenerate tries candidates: local, on all GPUs of this machine (the default); ray or
    ray=ADDRESS, on the nodes of a Ray cluster
--cgins-pr auto|draft|off  open draft pull requests for proposals; auto: if there is a token and a GitHub remote;
    draft: always, and say why if one cannot be opened; off: never (default: %(default)s)
"""
"""As the help shows them; a line that is further in goes on with the one before."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option group `cgins`."""
    group = parser.getgroup("cgins", "kernel regression gate")
    settings: dict[str, dict[str, Any]] = {
        "--cgins-seed": {"type": whole_number(0, 2**63 - 1)},
        "--cgins-device": {"choices": ("auto", *DEVICES), "default": "auto"},
        "--cgins-jobs": {"type": whole_number(1), "default": 0},
        "--cgins-compare": {"type": _words_of(COMPARISONS), "default": ()},
        "--cgins-suite-tests": {"type": whole_number(1), "default": 0},
        "--cgins-shard": {"type": _shard},
        "--cgins-log-level": {"choices": ("debug", "info", "warning", "error"), "default": "warning"},
        "--cgins-timeout": {"type": above_zero, "default": TIMEOUT_S},
        "--cgins-sanitize": {"nargs": "?", "type": _words_of(SANITIZERS), "const": SANITIZERS},
        "--cgins-store-days": {"type": above_zero, "default": 7.0},
        "--cgins-regenerate": {"nargs": "?", "const": "failed,slow"},
    }
    for line in OPTIONS.strip().replace("\n    ", " ").split("\n"):
        name, told = described(line, settings.get(line.split()[0], {}))
        # One that is nothing but a name and a text is a flag.
        group.addoption(name, **(told if len(told) > 1 else {**told, "action": "store_true"}))


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and, with `--cgins`, the session."""
    config.addinivalue_line(
        "markers",
        "cgins(kernel=None, op=None, implementation=None): a test of kernels in cgins.yaml; "
        "the arguments choose the cases of cgins_case and the kernel of cgins_kernel",
    )
    if config.getoption("--cgins"):
        from pytest_cgins.app.session.collect import take_from_above
        from pytest_cgins.app.session.livelog import LiveLog
        from pytest_cgins.app.session.run import GateSession

        take_from_above(config)
        config.pluginmanager.register(LiveLog(config), LiveLog.plugin_name)
        gate = GateSession(config)
        config.pluginmanager.register(gate, GateSession.plugin_name)
        if config.getoption("--cgins-compile-only"):
            from pytest_cgins.app.session.compile_only import CompileOnly

            config.pluginmanager.register(CompileOnly(gate, gate.builds), CompileOnly.plugin_name)
        elif config.getoption("--cgins-arch"):
            raise pytest.UsageError("--cgins-arch goes with --cgins-compile-only")
        if config.getoption("--cgins-regenerate") and not hasattr(config, "workerinput"):
            from pytest_cgins.app.session.regenerate import Regeneration

            config.pluginmanager.register(Regeneration(config, gate), Regeneration.plugin_name)
        if config.getoption("--cgins-history-always") and not config.getoption("--cgins-history"):
            raise pytest.UsageError("--cgins-history-always goes with --cgins-history PATH")
        if config.getoption("--cgins-history") and not hasattr(config, "workerinput"):
            from pytest_cgins.app.session.history import SessionHistory

            config.pluginmanager.register(SessionHistory(config), SessionHistory.plugin_name)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say how kernels are gated to who runs plain pytest beside them."""
    if config.getoption("--cgins") or not (config.rootpath / "cgins.yaml").is_file():
        return []
    return ["cgins.yaml found; `pytest --cgins` gates its kernels"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs the gate when the gate is off."""
    if config.getoption("--cgins"):
        return
    for item in items:
        if item.get_closest_marker("cgins") or not FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.skip(reason=NEEDS_CGINS))


@pytest.fixture
def cgins_case(request: pytest.FixtureRequest) -> CaseUnderTest:
    """One case of the nearest cgins.yaml; the test runs once for each that the marker `cgins` leaves."""
    _require_gate(request)
    from pytest_cgins.app.session.fixtures import case_under_test

    return case_under_test(request)


@pytest.fixture
def cgins_kernel(request: pytest.FixtureRequest) -> RemoteKernel:
    """The kernel that the marker `cgins` names, as a callable; it runs in a worker process."""
    _require_gate(request)
    from pytest_cgins.app.session.remote import remote_kernel

    return remote_kernel(request)


@pytest.fixture
def cgins_benchmark(request: pytest.FixtureRequest) -> Benchmark:
    """Times a callable of yours, in this process: `cgins_benchmark(fn, *args)`."""
    _require_gate(request)
    from pytest_cgins.app.session.benchmark import Benchmark

    return Benchmark(request.node, lock_wait_s=request.config.getoption("--cgins-timeout"))


@pytest.fixture
def cgins_record(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Record trace packs under `tmp_path`, or where an absolute path says; takes what `pytest_cgins.record` takes."""
    _require_gate(request)
    from pytest_cgins.recording.record import record

    return lambda name, **options: record(tmp_path / name, **options)


def _require_gate(request: pytest.FixtureRequest) -> None:
    # A fixture can be asked for by name while the test runs, which no skip mark foresees.
    if not request.config.getoption("--cgins"):
        pytest.skip(NEEDS_CGINS)


def _words_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def words(text: str) -> tuple[str, ...]:
        given = tuple(text.split(","))
        if not set(given) <= set(known):
            raise ValueError(text)
        return given

    return words


def _shard(text: str) -> tuple[int, int]:
    number, count = map(int, text.split("/"))
    if not 1 <= number <= count:
        raise ValueError(text)
    return number, count
