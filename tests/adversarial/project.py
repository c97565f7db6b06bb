"""A folder with traces, a cgins.yaml and collected kernels, and the evaluators that gate them for real."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import yaml

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.core.case import Case
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.gate import reference_requests
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.run import pool
from pytest_cgins.run.pool import WorkerPool
from tests.adversarial.calls import OPS, PACKS
from tests.adversarial.specimens import Specimen

SEED = 20
SIDE_BY_SIDE = 2
"""Evaluators that take turns: a kernel that tampers with its worker costs a new one, which takes seconds to start."""


def make(folder: Path, specimens: Sequence[Specimen], *, device: str = "cpu") -> config.Config:
    """Write the whole project into an empty folder, and load its configuration."""
    kernels = folder / "kernels"
    for source in {specimen.file.parent for specimen in specimens}:
        shutil.copytree(source, kernels, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    packs = [name for name in PACKS if any(name in specimen.packs for specimen in specimens)]
    for name in packs:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "no call of")  # no pack has all ops
            with pytest_cgins.record(folder / "traces" / name, ops=list(OPS)):
                PACKS[name]()
    wanted = [specimen for specimen in specimens if specimen.device == device]
    document = {
        "version": 1,
        "traces": [f"traces/{name}" for name in packs],
        "kernels": {specimen.name: specimen.entry() for specimen in wanted},
    }
    file = folder / "cgins.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    if timed := [specimen for specimen in wanted if "base" in specimen.flags]:
        _commit_base(folder, timed)
    return config.load(file)


def _commit_base(folder: Path, specimens: Sequence[Specimen]) -> None:
    """Make the folder a repository whose only commit has other sources of these kernels."""
    for specimen in specimens:
        base = specimen.file.with_name(f"_base{specimen.file.suffix}")
        shutil.copy(base, folder / "kernels" / specimen.file.name)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "the base")):
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    for specimen in specimens:
        shutil.copy(specimen.file, folder / "kernels" / specimen.file.name)


class Gate:
    """Gates collected kernels with the default settings; those that need it are timed besides.

    Args:
        loaded: of `make`.
        specimens: those that are gated, in this order.
        seed: of the session.
    """

    def __init__(self, loaded: config.Config, specimens: Sequence[Specimen], seed: int) -> None:
        self._reference = WorkerPool()  # what runs no kernel is shared
        evaluator_of = partial(Evaluator, loaded, seed=seed, reference=self._reference)
        untimed = [evaluator_of(timing=False) for _ in range(SIDE_BY_SIDE)]
        flags = {flag for one in specimens for flag in one.flags}
        timed = [evaluator_of()] if "timing" in flags else []
        held = [evaluator_of(timing_options=TimingOptions(baseline="HEAD"))] if "base" in flags else []
        self._evaluators = [*untimed, *timed, *held]
        self._turns = {
            "": itertools.cycle(untimed),
            "timing": itertools.cycle(timed),
            "base": itertools.cycle(held),
        }
        cases = untimed[0].cases()
        self.cases = {specimen.name: _cases_of(specimen, cases) for specimen in specimens}
        ahead = [case for specimen in specimens for case in self.cases[specimen.name]]
        for evaluator in self._evaluators:
            evaluator.build_ahead(ahead if evaluator is untimed[0] else ())

    def evaluate(self, specimen: Specimen) -> list[Evaluation]:
        """Its cases, one after another."""
        kind = next((flag for flag in ("base", "timing") if flag in specimen.flags), "")
        evaluator = next(self._turns[kind])
        done = [evaluator.evaluate(case) for case in self.cases[specimen.name]]
        evaluator.pool.close()  # threads that a kernel left would go on, some of them busily
        evaluator.build_ahead(())  # has workers start while the next kernel is evaluated elsewhere
        return done

    def close(self) -> None:
        """End all workers."""
        for evaluator in self._evaluators:
            evaluator.close()
        self._reference.close()


@contextmanager
def workers_are_forked() -> Iterator[None]:
    """Meanwhile what is compared is timed in forks, too: two seconds less a process, and times are not to be exact."""
    with patch.object(pool, "MEASURING", frozenset()):
        yield


@contextmanager
def large_calls_are_made_once_a_kernel() -> Iterator[None]:
    """Meanwhile probe `large_indices` looks at one dtype of each: two fifths of the time of honest kernels went there."""

    def kind_of(case: Case) -> tuple[str, ...]:
        return case.kernel, case.implementation, case.device

    with patch.object(reference_requests, "_kind_of", kind_of):
        yield


@contextmanager
def gate(
    folder: Path, specimens: Sequence[Specimen], *, device: str = "cpu", seed: int = SEED
) -> Iterator[Gate]:
    """A gate for the kernels that are for a device, in a project of its own."""
    wanted = [specimen for specimen in specimens if specimen.device == device]
    opened = Gate(make(folder, specimens, device=device), wanted, seed)
    try:
        yield opened
    finally:
        opened.close()


def _cases_of(specimen: Specimen, cases: Sequence[Case]) -> list[Case]:
    found = [case for case in cases if case.kernel == specimen.name and case.pack in specimen.packs]
    if {case.pack for case in found} != set(specimen.packs):
        raise ValueError(f"{specimen.name}: not all of {specimen.packs} have a call of {specimen.op}")
    return found
