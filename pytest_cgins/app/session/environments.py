"""A session that compares two environments: `--cgins-base-env`, `--cgins-env` and `cgins compare-env`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.app.session.builds import cases_of
from pytest_cgins.app.session.gate import Gate
from pytest_cgins.building import other_environment
from pytest_cgins.building.other_environment import OtherEnvironment
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.gate.environment_pairs import EnvironmentPairs
from pytest_cgins.gate.evaluate import Elsewhere

REFUSED = {
    "--cgins-sandbox": ("on", "the other environment is not in the sandbox"),
    "--cgins-isolation": ("none", "another environment needs processes of its own"),
    "--cgins-opcheck": (True, "how an operator is registered is looked at in one environment"),
}
"""Values of options that do not go with two environments, and why."""


class TwoEnvironments:
    """Evaluates all selected cases of a file when the first of them is asked for: pairs of processes time them together."""

    def __init__(self, gate: Gate, base: OtherEnvironment, kernel: OtherEnvironment | None) -> None:
        self._gate = gate
        self._base = base
        self.of_kernel = Elsewhere(kernel) if kernel is not None else None
        """Where kernels under test are built and run; None for this environment."""
        self._evaluations: dict[Path, dict[str, Evaluation]] = {}

    @classmethod
    def of(cls, gate: Gate) -> TwoEnvironments | None:
        """That of a session; None where it is in one environment.

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
                given = name if value is True else f"{name}={value}"
                raise pytest.UsageError(f"{given} does not go with --cgins-base-env: {why}")
        if hasattr(gate.config, "workerinput") or gate.config.getoption("numprocesses", None):
            raise pytest.UsageError("--cgins-base-env times all kernels in turns: leave out -n")
        folder = gate.config.invocation_params.dir
        try:
            base = other_environment.read(option("--cgins-base-env"), folder)
            kernel = option("--cgins-env")
            return cls(gate, base, other_environment.read(kernel, folder) if kernel else None)
        except CginsError as error:
            raise pytest.UsageError(str(error)) from error

    def evaluation(self, file: Path, case: Case) -> Evaluation:
        """What was found of a case."""
        if file not in self._evaluations:
            self._evaluations[file] = self._compared(file)
        return self._evaluations[file][case.name]

    def _compared(self, file: Path) -> dict[str, Evaluation]:
        kernel, option = self._gate.evaluator(file), self._gate.config.getoption
        base = self._gate.new_evaluator(file, Elsewhere(self._base, at_base=True), kernel.pool)
        cases = {
            case.name: case for item in self._gate.items for path, case in cases_of(item) if path == file
        }
        pairs = EnvironmentPairs(
            kernel,
            base,
            base_text=self._base.text,
            tests=self._gate.pair_tests,
            seed=self._gate.seed,
            progress=self._gate.tell,
        )
        try:
            return pairs.compare(list(cases.values()), timing=not option("--cgins-no-timing"))
        finally:
            self._gate.tell("")
            base.close()
