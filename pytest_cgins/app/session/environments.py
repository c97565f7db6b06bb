"""Kernels that are timed in pairs of processes: in two environments, or because both builds cannot share one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pytest_cgins.app.session.builds import cases_of
from pytest_cgins.app.session.gate import Gate
from pytest_cgins.building import other_environment
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.gate.elsewhere import HERE, Elsewhere
from pytest_cgins.gate.environment_pairs import EnvironmentPairs

REFUSED = {
    "--cgins-sandbox": ("on", "the other environment is not in the sandbox"),
    "--cgins-isolation": ("none", "another environment needs processes of its own"),
    "--cgins-opcheck": (True, "how an operator is registered is looked at in one environment"),
}
"""Values of options that do not go with two environments, and why."""


class PairedProcesses:
    """Evaluates cases of a file together when the first of them is asked for, since pairs of processes time them together."""

    def __init__(self, gate: Gate, base: Elsewhere, kernel: Elsewhere = HERE) -> None:
        self._gate = gate
        self._base = base
        self.of_kernel = kernel
        self._evaluations: dict[tuple[Path, str], Evaluation] = {}

    @classmethod
    def of_environments(cls, gate: Gate) -> PairedProcesses | None:
        """That of a session in two environments; None where it is in one.

        Raises:
            pytest.UsageError: an option is wrong, or does not go with it.
        """
        option = gate.config.getoption
        if not option("--cgins-base-env"):
            if option("--cgins-env"):
                raise pytest.UsageError("--cgins-env goes with --cgins-base-env ENV")
            return None
        for name, (value, why) in REFUSED.items():
            if option(name) == value:
                raise pytest.UsageError(
                    f"{name}={value} does not go with --cgins-base-env: {why}\n→ leave one of them out"
                )
        if hasattr(gate.config, "workerinput") or gate.config.getoption("numprocesses", None):
            raise pytest.UsageError("--cgins-base-env times all kernels in turns: leave out -n")
        folder = gate.config.invocation_params.dir
        try:
            base = other_environment.read(option("--cgins-base-env"), folder)
            kernel = other_environment.read(option("--cgins-env"), folder) if option("--cgins-env") else None
        except CginsError as error:
            raise pytest.UsageError(str(error)) from error
        return cls(gate, Elsewhere(base, at_base=True), Elsewhere(kernel))

    def evaluation(self, file: Path, case: Case, *, together: Callable[[Case], bool]) -> Evaluation:
        """What was found of a case, and at the same time of those others of the file that `together` names."""
        if (file, case.name) not in self._evaluations:
            # An item of another worker of xdist is not this process's to evaluate, and nobody knows which those are.
            items = () if hasattr(self._gate.config, "workerinput") else self._gate.items
            others = (one for item in items for path, one in cases_of(item) if path == file)
            cases = {one.name: one for one in others if one.name == case.name or together(one)}
            for name, evaluation in self._compared(file, list({case.name: case, **cases}.values())).items():
                self._evaluations[file, name] = evaluation
        return self._evaluations[file, case.name]

    def _compared(self, file: Path, cases: Sequence[Case]) -> dict[str, Evaluation]:
        option, other = self._gate.config.getoption, self._base.environment
        own = self._gate.evaluator(file)
        # In two environments it times nothing by itself.
        kernel = self._gate.new_evaluator(file, HERE, own.pool, timing=False) if other is None else own
        base = self._gate.new_evaluator(file, self._base, own.pool, timing=False)
        pairs = EnvironmentPairs(
            kernel,
            base,
            environment=other.text if other is not None else "",
            tests=lambda: self._gate.tests(pairs=other is not None),
            seed=self._gate.seed,
            progress=self._gate.tell,
        )
        try:
            return pairs.compare(cases, timing=not option("--cgins-no-timing"))
        finally:
            self._gate.tell("")
            for evaluator in {kernel, base} - {own}:
                evaluator.close()
