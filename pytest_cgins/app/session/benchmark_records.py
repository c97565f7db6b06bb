"""pytest-benchmark's records of what the gate timed: made of its own classes, kept in its own session.

Each arm of a case is a record, and the case is the group. Samples come from the case's first process alone: those of
a confirmation were taken because the first ones were slow. The hooks of this module do nothing where pytest-benchmark
is absent or off.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from pytest_benchmark.stats import Metadata

from pytest_cgins import __version__
from pytest_cgins.app.session import results
from pytest_cgins.app.session.collect import CaseItem
from pytest_cgins.app.session.gate import Gate
from pytest_cgins.core import documents
from pytest_cgins.core.measurement import Arm, Measurement
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Status

OUTPUTS = ("json", "save", "autosave", "compare", "compare_fail", "histogram")
"""Options of pytest-benchmark that ask for its records, by their names without `--benchmark-`."""
NO_RECORDS = (
    "cgins: pytest-benchmark keeps no records under xdist, so {options} will find none; all cases are timed, and "
    "--cgins-json PATH writes every sample"
)
PARAMETERS = ("kernel", "implementation", "device", "op", "pack", "signature", "dtype")
"""Of a case, that records have."""
TIMED = frozenset({"cgins_benchmark", "cgins_case"})
"""Fixtures with which a user's test is a benchmark."""
RECORDED = frozenset(status for status in Status if status.outcome == "pass") | {
    Status.SLOWER,
    Status.BELOW_FLOOR,
}
"""Verdicts under which times are recorded: that of a wrong kernel would be the one to beat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a callable takes."""

    device: str
    """`cpu` or `cuda:0`."""
    method: str
    """Clock and batching: `cuda-graph`, `fenced-loop` or `perf-counter`."""
    calls_per_batch: int
    samples_ns_per_call: tuple[float, ...]
    """One a batch, in the order in which they were taken."""
    median_ns_per_call: float
    iqr_ns_per_call: float
    """Distance of their quartiles."""
    notes: tuple[str, ...]
    """What a reader must know: a fallback that was taken."""


class OtherArm(Metadata):
    """The record of an arm that is not the kernel."""


class KernelsOnly:
    """A check of `--benchmark-compare-fail` that torch's times cannot fail, nor those of the base revision."""

    def __init__(self, check: Any) -> None:
        self._check = check

    def fails(self, current: Any, compared: Any) -> str | None:
        """Why the check fails, None if it does not."""
        return None if isinstance(current, OtherArm) else self._check.fails(current, compared)


class BenchmarkRecords:
    """The hooks that make records, and what the fixture `cgins_benchmark` asks for one."""

    plugin_name = "cgins-benchmark-records"

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._config = gate.config

    # ---- pytest's hooks

    def pytest_report_header(self) -> list[str]:
        """Say that a file which was asked for will not be written: under xdist pytest-benchmark does not."""
        wanted = [f"--benchmark-{name.replace('_', '-')}" for name in OUTPUTS if self._option(name)]
        if not wanted or self._config.getoption("dist", "no") == "no":
            return []
        return [NO_RECORDS.format(options=" and ".join(wanted))]

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Have timed cases count as benchmarks for `--benchmark-only`, and tests for `--benchmark-skip` as well."""
        before = {id(item): list(item.own_markers) for item in items}
        yield
        session = self._session
        if session is None:
            return
        for item in items:
            if session.only and self._is_benchmark(item):
                for mark in [mark for mark in item.own_markers if mark not in before.get(id(item), [])]:
                    if mark.name == "skip" and "--benchmark-only" in mark.kwargs.get("reason", ""):
                        item.own_markers.remove(mark)
            if session.skip and "cgins_benchmark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason="Skipping benchmark (--benchmark-skip active)."))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        """Record the evaluations that the item's next report carries."""
        if self._keeps and self._asked:
            for evaluation in results.pending(item):
                if evaluation.measurement is not None and evaluation.verdict.status in RECORDED:
                    self._add_case(item, evaluation, evaluation.measurement)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Say what the cases ran on: pytest-benchmark knows of no GPU."""
        environments = [documents.dump_python(environment) for environment in self._gate.environments()]
        if environments:
            output_json["cgins"] = {
                "version": __version__,
                "seed": self._gate.seed,
                "environments": environments,
            }

    # ---- records

    def add_callable(self, item: pytest.Item, timing: Timing) -> None:
        """Record what a test timed with `cgins_benchmark`; a second callable of one test is called `…#2`."""
        if not self._keeps:
            return
        fixture = self._fixture(item)
        fixture.extra_info.update(method=timing.method, cache="warm", device=timing.device)
        self._add(Metadata, fixture, timing.samples_ns_per_call, timing.calls_per_batch)

    def _add_case(self, item: pytest.Item, evaluation: Evaluation, measurement: Measurement) -> None:
        for arm, label in (
            (measurement.kernel, ""),
            (measurement.base, f"[base {measurement.base_revision[:10]}]"),
            (measurement.torch, "[torch]"),
            (measurement.compiled, "[compile]"),
        ):
            if arm is not None:
                self._add_arm(item, evaluation, measurement, arm, label)

    def _add_arm(
        self, item: pytest.Item, evaluation: Evaluation, measurement: Measurement, arm: Arm, label: str
    ) -> None:
        case, fixture = evaluation.case, self._fixture(item)
        fixture.name += label
        fixture.fullname += label
        fixture.group = fixture.group or case.name
        fixture.param = f"{case.pack}/{case.signature}"
        fixture.params = {name: getattr(case, name) for name in PARAMETERS} | {"arm": arm.name}
        fixture.extra_info.update(
            arm=arm.name,
            status=evaluation.verdict.status.value,
            reason=evaluation.verdict.reason.value,
            speedup_vs_torch=measurement.speedup_vs_torch,
            method=measurement.method,
            cache=measurement.cache,
            kernel_digest=evaluation.kernel_digest,
            base_revision=measurement.base_revision,
        )
        kind = Metadata if arm.name == "kernel" else OtherArm
        self._add(kind, fixture, arm.samples_ns_per_call, arm.calls_per_batch)

    def _fixture(self, item: pytest.Item) -> Any:
        """What the fixture `benchmark` would be in this item, with the group that a marker gives it."""
        session: Any = self._session
        # Not the item itself: releases before 5.3.1 read its `_nodeid`, which new ones of pytest do not have.
        node = SimpleNamespace(name=item.name, nodeid=item.nodeid, _nodeid=item.nodeid)
        if hasattr(item, "callspec"):
            node.callspec = item.callspec
        fixture: Any = BenchmarkFixture(  # type: ignore[no-untyped-call]
            node,
            add_stats=session.benchmarks.append,
            logger=session.logger,
            warner=item.warn,
            disabled=session.disabled,
            **session.options,
        )
        marker = item.get_closest_marker("benchmark")
        fixture.group = marker.kwargs.get("group") if marker else None
        return fixture

    def _add(self, kind: type[Metadata], fixture: Any, samples_ns: Iterable[float], calls: int) -> None:
        session: Any = self._session
        checks = session.compare_fail or []
        if not all(isinstance(check, KernelsOnly) for check in checks):
            session.compare_fail = [KernelsOnly(check) for check in checks]
        taken = {record.fullname for record in session.benchmarks}
        name, fullname, number = fixture.name, fixture.fullname, 1
        while fixture.fullname in taken:
            number += 1
            fixture.name, fixture.fullname = f"{name}#{number}", f"{fullname}#{number}"
        options = {"timer": fixture.extra_info["method"]}
        record: Any = kind(fixture, iterations=calls, options=options)
        for sample in samples_ns:
            record.stats.update(sample * 1e-9)
        session.benchmarks.append(record)

    # ---- what pytest-benchmark was told

    @property
    def _session(self) -> Any:
        """pytest-benchmark's session, None without the plugin."""
        return getattr(self._config, "_benchmarksession", None)

    @property
    def _keeps(self) -> bool:
        return self._session is not None and not (self._session.disabled or self._session.skip)

    @cached_property
    def _asked(self) -> bool:
        return self._session.only or any(self._option(name) for name in OUTPUTS)

    def _option(self, name: str) -> bool:
        return bool(self._config.getoption(f"benchmark_{name}", None))

    def _is_benchmark(self, item: pytest.Item) -> bool:
        fixtures = TIMED.intersection(getattr(item, "fixturenames", ()))
        if self._config.getoption("--cgins-no-timing"):
            return "cgins_benchmark" in fixtures
        return bool(fixtures) or isinstance(item, CaseItem)
