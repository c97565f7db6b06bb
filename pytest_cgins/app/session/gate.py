"""What items and hooks ask of the session that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from pytest_cgins.core.case import Case
from pytest_cgins.core.session_report import Environment, Evaluation

if TYPE_CHECKING:
    from pytest_cgins.gate.elsewhere import Elsewhere
    from pytest_cgins.gate.evaluate import Evaluator
    from pytest_cgins.run.pool import WorkerPool


class Gate(Protocol):
    """A session with `--cgins`: `run.GateSession`, which puts these items and hooks together, and says what methods raise."""

    config: pytest.Config
    seed: int
    strict: bool
    items: tuple[pytest.Item, ...]

    def evaluator(self, file: Path) -> Evaluator:
        """The evaluator of one `cgins.yaml`, made at the first call."""

    def new_evaluator(
        self, file: Path, elsewhere: Elsewhere, reference: WorkerPool | None = None, *, timing: bool = True
    ) -> Evaluator:
        """An evaluator of one `cgins.yaml`, closed by its owner; arguments are those of `Evaluator`."""

    def tests(self, *, pairs: bool = False) -> int:
        """Tests of times in the whole suite; pairs of processes test medians alone: one test a case."""

    def tell(self, text: str) -> None:
        """Show what a long step is at; "" clears it."""

    def cases(self, file: Path) -> tuple[Case, ...]:
        """The cases of one `cgins.yaml`."""

    def evaluate(self, file: Path, case: Case) -> Evaluation:
        """Run the gate on a case of a `cgins.yaml`."""

    def known(self, file: Path, case: Case) -> Evaluation | None:
        """What an earlier run found of a case whose kernel is built; None where `evaluate` has to find out."""

    def model_items(self, file: pytest.File) -> Iterator[pytest.Item]:
        """One item a whole model of a `cgins.yaml` that this run measures."""

    def environments(self) -> tuple[Environment, ...]:
        """What this process's workers ran on so far, one a device and `cgins.yaml`."""

    def command(self, item: pytest.Item) -> str:
        """Shell command that runs an item again on the same inputs, from the folder where pytest began."""
