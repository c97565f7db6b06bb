"""Whether a session still gates what the base revision did, and whether what it tested is still what is there.

What the command line left out (`-k`, `-m`, `--lf`, node ids, `--cgins-device`) is not missing: all cases of the
`cgins.yaml` files that were collected are compared, as these files list them now and at the base revision.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from os.path import relpath
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins import config as configuration
from pytest_cgins.app.session.collect import CginsFile
from pytest_cgins.building.revision.merge_base import target_branch
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.options import BASELINE, FIXTURES
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate import input_digests
from pytest_cgins.gate.baseline import BaseComparison, held_against

RUNS_KERNELS = frozenset({"cgins_kernel", "cgins_benchmark"})
"""Fixtures with which a user's test runs a kernel without making an evaluation."""


def in_ci(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether `$CI` says that this is a pipeline, as every service of that kind sets it."""
    return environment.get("CI", "").lower() not in ("", "0", "false", "no", "off")


class Coverage:
    """The hooks that learn what was collected and run; `GateSession` asks what came of it."""

    plugin_name = "cgins-coverage"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._files: dict[Path, None] = {}
        self._ran_alone = False

    # ---- pytest's hooks

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Note a `cgins.yaml`."""
        if isinstance(collector, CginsFile):
            self._files[collector.path] = None

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Say that there is nothing to gate, where no `cgins.yaml` was found and no test uses what is ours."""
        ours = any(not FIXTURES.isdisjoint(getattr(item, "fixturenames", ())) for item in items)
        if self._files or ours or self._config.get_verbosity() < 0:
            return []
        places = ", ".join(map(str, self._config.args))
        return [
            f"cgins: no cgins.yaml in {places}: no kernel is gated",
            "→ name its folder, or write one: {version: 1, traces: [PACK], kernels: {NAME: {op: OP, source: FILE}}}",
        ]

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Note a test that runs a kernel by itself: its fixtures did not skip it."""
        self._ran_alone |= not RUNS_KERNELS.isdisjoint(getattr(item, "fixturenames", ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Under xdist, tell the controller, which itself collects and runs nothing."""
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["cgins_files"] = [str(file) for file in self._files]
            output["cgins_ran_alone"] = self._ran_alone

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Controller: a worker has ended."""
        sent = getattr(node, "workeroutput", None) or {}
        self._files |= dict.fromkeys(Path(file) for file in sent.get("cgins_files", []))
        self._ran_alone |= sent.get("cgins_ran_alone", False)

    # ---- what the session asks

    def examined(self, report: SessionReport) -> SessionReport:
        """The report with what is missing, what is stale, and whether anything ran at all."""
        option = self._config.getoption
        folder = self._config.invocation_params.dir
        places = [Path(folder, word) for word in self._config.args]
        held = self._held(places)
        ran = any(evaluation.verdict.status is not Status.SKIPPED for evaluation in report.evaluations)
        return replace(
            report,
            missing=tuple(
                f"{relpath(file, folder)}::{name}"
                for file, name in held.missing
                if file.exists() or not _is_ignored(file, places, self._config)
            ),
            weaker=held.weaker,
            allow_weaker=is_given("--cgins-allow-weaker", self._config),
            base_revision=held.base,
            coverage_note=held.note,
            unread=held.unread,
            stale=tuple(_stale(report.evaluations, folder)),
            empty=not (ran or self._ran_alone),
            ci=in_ci(),
            allow_fewer=option("--cgins-allow-fewer"),
            told_only=not (target_branch() or option("--cgins-baseline")),
        )

    def _held(self, places: Iterable[Path]) -> BaseComparison:
        """Cases against the baseline that is wanted; in a pull request settings against its base, whatever its files name."""
        option = self._config.getoption
        wanted = option("--cgins-baseline") or _declared(self._files) or BASELINE
        folders = [place for place in places if place.is_dir()]
        held = held_against(wanted, self._files, device=option("--cgins-device"), folders=folders)
        if wanted == BASELINE or not target_branch() or is_given("--cgins-baseline", self._config):
            return held
        base = held_against(BASELINE, self._files, device=option("--cgins-device"), folders=folders)
        notes = dict.fromkeys(note for note in (held.note, base.note) if note)
        held = replace(held, base=held.base or base.base, unread=held.unread or base.unread)
        return replace(held, weaker=base.weaker, note="; ".join(notes))


def is_given(option: str, config: pytest.Config) -> bool:
    """Whether an option is on the command line or in $PYTEST_ADDOPTS: `addopts` of a file are the pull request's own word."""
    words = (*config.invocation_params.args, *os.environ.get("PYTEST_ADDOPTS", "").split())
    return any(str(word).partition("=")[0] == option for word in words)


def _declared(files: Iterable[Path]) -> str:
    """`gate.baseline` of the first file that has it; "" if none does. One that cannot be read is told elsewhere."""
    for file in files:
        with suppress(CginsError):
            baseline = configuration.load(file, require_traces=False, require_sources=False).baseline
            if baseline:
                return baseline
    return ""


def _is_ignored(file: Path, places: Iterable[Path], config: pytest.Config) -> bool:
    """Whether pytest would not have come by a file that is gone, for `--ignore`, `--ignore-glob` or `norecursedirs`."""
    start, option = config.invocation_params.dir, config.getoption
    above = [file, *file.parents]
    if any(Path(start, word).resolve() in above for word in option("ignore") or ()):
        return True
    globs = [str(Path(start, word)) for word in option("ignore_glob") or ()]
    if any(fnmatch(str(place), glob) for place in above for glob in globs):
        return True
    skipped = config.getini("norecursedirs")
    return all(
        any(folder.match(pattern) for folder in above[1:] if place in folder.parents for pattern in skipped)
        for place in (place.resolve() for place in places)
        if place in above
    )


def _stale(evaluations: tuple[Evaluation, ...], folder: Path) -> Iterator[str]:
    for file in filter(None, dict.fromkeys(evaluation.config for evaluation in evaluations)):
        members = [evaluation for evaluation in evaluations if evaluation.config == file]
        for change in input_digests.stale(folder / file, members):
            yield f"{file}: {change}"
