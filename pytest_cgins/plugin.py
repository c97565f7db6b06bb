"""pytest's door: options, marker and fixtures. What they do is in `pytest_cgins.app.session`.

This module is imported in every run of pytest where pytest-cgins is installed, so it imports nothing but
pytest; the rest comes in only with `--cgins`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_cgins.core.device import DEVICES
from pytest_cgins.core.options import (
    BASELINE,
    COMPARISONS,
    FIXTURES,
    POLICIES,
    PROBE_LEVELS,
    SANITIZERS,
    TIMEOUT_S,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_cgins.app.session.benchmark import Benchmark
    from pytest_cgins.app.session.fixtures import CaseUnderTest, Recorder
    from pytest_cgins.app.session.remote import RemoteKernel

NEEDS_CGINS = "needs --cgins"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option group `cgins`."""
    group = parser.getgroup("cgins", "kernel regression gate")
    group.addoption("--cgins", action="store_true", help="gate the kernels of every cgins.yaml")
    group.addoption("--cgins-json", metavar="PATH", help="write everything that was found to PATH as JSON")
    group.addoption(
        "--cgins-seed", type=_seed, metavar="N", help="seed of the fresh inputs (default: a new one each run)"
    )
    group.addoption(
        "--cgins-strict",
        action="store_true",
        help="fail cases that cannot tell a forged answer (WEAK), and kernels whose contract covers no case",
    )
    group.addoption(
        "--cgins-device",
        choices=("auto", *DEVICES),
        default="auto",
        help="run the cases of this device only (default: all, absent devices are skipped)",
    )
    group.addoption(
        "--cgins-jobs",
        type=_jobs,
        default=0,
        metavar="N",
        help="kernels that are built at the same time (default: one a core, as memory allows)",
    )
    group.addoption("--cgins-no-timing", action="store_true", help="check answers, do not time kernels")
    group.addoption(
        "--cgins-compare",
        type=_comparisons,
        default=(),
        metavar="WHAT[,WHAT]",
        help="time more than the kernel, its base revision and torch: compile (torch.compile too); unchanged (a kernel "
        "that did not change against a second build of itself)",
    )
    group.addoption(
        "--cgins-suite-tests",
        type=_jobs,
        default=0,
        metavar="N",
        help="tests of times that share the chance of a false alarm, where several runs are one suite (default: those "
        "of the cgins.yaml files of this run)",
    )
    group.addoption(
        "--cgins-shard",
        type=_shard,
        metavar="I/N",
        help="part I of N of the cases, by turns, for N machines; `cgins merge` joins their reports",
    )
    group.addoption(
        "--cgins-log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="show the gate's own messages from this level on (default: %(default)s; -vv shows builds, "
        "-vvv everything)",
    )
    group.addoption(
        "--cgins-timeout",
        type=_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="limit for one request to a worker process (default: %(default)s)",
    )
    group.addoption(
        "--cgins-probes",
        choices=PROBE_LEVELS,
        default=PROBE_LEVELS[0],
        help="look for kernels that only seem right: full; fast leaves out what needs another answer of torch; "
        "off (default: %(default)s)",
    )
    group.addoption(
        "--cgins-sanitize",
        nargs="?",
        type=_sanitizers,
        const=SANITIZERS,
        metavar="TOOL[,TOOL]",
        help="run CUDA kernels under compute-sanitizer: memcheck, racecheck, initcheck, synccheck (default: all "
        "four, once the option is given)",
    )
    group.addoption(
        "--cgins-isolation",
        choices=("process", "none"),
        default="process",
        help="where kernels run: in worker processes, or for debuggers in pytest's own (default: %(default)s)",
    )
    group.addoption(
        "--cgins-sandbox",
        choices=("auto", "on", "off"),
        default="auto",
        help="fence workers and compilers in: no network, read-only files, no view of other processes; auto: for generated "
        "kernels (default: %(default)s)",
    )
    group.addoption(
        "--cgins-allow-fewer",
        action="store_true",
        help="do not fail in CI when there are fewer cases than at the base revision, or none that ran",
    )
    group.addoption(
        "--cgins-allow-weaker",
        action="store_true",
        help="do not fail in CI when settings of the gate are weaker than at the base revision; counts on the command line and in "
        "$PYTEST_ADDOPTS alone",
    )
    group.addoption(
        "--cgins-compile-only",
        action="store_true",
        help="build every CUDA kernel for each architecture, run none, and fail where spills or registers grew",
    )
    group.addoption(
        "--cgins-arch",
        metavar="ARCH[,ARCH]",
        help="architectures to build for, such as sm_80,sm_90a (default: those of cgins.yaml, else of "
        "$CGINS_CUDA_ARCHS, else sm_80,sm_90a,sm_100)",
    )
    group.addoption(
        "--cgins-baseline",
        metavar="REV",
        help="commit whose cases, builds and times are compared with; merge-base: where HEAD left the default branch; "
        f"none: with nothing (default: gate.baseline of cgins.yaml, else {BASELINE})",
    )
    group.addoption(
        "--cgins-history",
        metavar="PATH",
        help="append the times of this run to PATH, as JSON lines for `cgins history`; on the default branch only",
    )
    group.addoption(
        "--cgins-history-always",
        action="store_true",
        help="append to the history on other branches and in pull requests too",
    )
    group.addoption(
        "--cgins-regenerate",
        nargs="?",
        const="failed,slow",
        metavar="WHAT[,WHAT]",
        help="after the tests have a language model write the kernels anew that failed or are slow, and propose what the "
        "gate accepts: failed, slow, or names of kernels (default: failed,slow, once the option is given)",
    )
    group.addoption(
        "--cgins-llm",
        metavar="PROVIDER[:PLACE]",
        help="who is asked: openai, gemini, ollama, compatible:URL, replay:FOLDER, exchange:FOLDER (default: llm of "
        "cgins.yaml)",
    )
    group.addoption("--cgins-model", metavar="NAME", help="model that is asked in every role")
    group.addoption(
        "--cgins-policy",
        choices=POLICIES,
        help="how --cgins-regenerate searches for a faster kernel (default: llm.policy of cgins.yaml, refine)",
    )
    group.addoption(
        "--cgins-runs",
        metavar="PATH",
        help="folder for journals of --cgins-regenerate (default: .cgins/runs)",
    )
    group.addoption(
        "--cgins-pr",
        choices=("auto", "draft", "off"),
        default="auto",
        help="whether proposals become draft pull requests: auto, where there is a token and a remote on GitHub; draft, "
        "and say why not; off (default: %(default)s)",
    )


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

            config.pluginmanager.register(CompileOnly(config, gate.builds), CompileOnly.plugin_name)
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
def cgins_record(request: pytest.FixtureRequest, tmp_path: Path) -> Recorder:
    """Record trace packs under `tmp_path`; takes what `pytest_cgins.record` takes."""
    _require_gate(request)
    from pytest_cgins.app.session.fixtures import Recorder

    return Recorder(tmp_path)


def _require_gate(request: pytest.FixtureRequest) -> None:
    # A fixture can be asked for by name while the test runs, which no skip mark foresees.
    if not request.config.getoption("--cgins"):
        pytest.skip(NEEDS_CGINS)


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**63:
        raise ValueError(text)
    return value


def _sanitizers(text: str) -> tuple[str, ...]:
    tools = tuple(text.split(","))
    if not set(tools) <= set(SANITIZERS):
        raise ValueError(text)
    return tools


def _comparisons(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    if not set(wanted) <= set(COMPARISONS):
        raise ValueError(text)
    return wanted


def _jobs(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _shard(text: str) -> tuple[int, int]:
    number, count = map(int, text.split("/"))
    if not 1 <= number <= count:
        raise ValueError(text)
    return number, count


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value
