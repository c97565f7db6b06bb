"""What the fixtures give to users' tests. Importing this imports no torch; using the tensors does."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cgins.app.session import outcome, results
from pytest_cgins.app.session.parametrize import nearest_config
from pytest_cgins.app.session.run import GateSession
from pytest_cgins.core.case import Case
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs.store import PackReader, open_pack

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_cgins.packs.gold import GoldValues


class CaseUnderTest:
    """The fixture `cgins_case`: one case, its tensors, and the gate's judgement of it."""

    def __init__(self, item: pytest.Item, case: Case, file: Path, gate: GateSession) -> None:
        self.case = case
        self._item = item
        self._file = file
        self._gate = gate

    @cached_property
    def _reader(self) -> PackReader:
        return open_pack(Path(self.case.pack_path))

    @cached_property
    def trace(self) -> Trace:
        """The recording that the case replays."""
        return next(trace for trace in self._reader.pack.traces if trace.id == self.case.trace_id)

    @cached_property
    def inputs(self) -> list[Tensor]:
        """The recorded argument tensors on the case's device, laid out as they were."""
        from pytest_cgins.packs.replay import load_inputs

        return load_inputs(self.trace, self._reader, self.case.device)

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments of the recorded call, with `inputs` in their places."""
        return tuple(value for _, value in self._arguments("positional"))

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments of the recorded call, with `inputs` in their places."""
        return dict(self._arguments("keyword"))

    def _arguments(self, passed: str) -> list[tuple[str, Any]]:
        from pytest_cgins.packs.ops import locate
        from pytest_cgins.packs.values import decode

        locate(self.trace.call.op.partition("@")[0])  # adapters come with the op's module
        own = (argument for argument in self.trace.call.arguments if argument.passed == passed)
        return [(argument.name, decode(argument.value, self.inputs)) for argument in own]

    @cached_property
    def gold(self) -> list[GoldValues]:
        """What was recorded of each output: the elements at `positions`, all of them in tier `full`."""
        from pytest_cgins.packs.gold import load_gold

        return load_gold(self.trace, self._reader)

    def evaluate(self) -> Evaluation:
        """Run the gate on the case, in workers; the result is in the session's report."""
        evaluation = self._gate.evaluate(self._file, self.case)
        results.keep(self._item, self._file, evaluation)
        return evaluation

    def assert_ok(self) -> Evaluation:
        """Run the gate and fail, skip or warn exactly as the case's own item would."""
        evaluation = self.evaluate()
        outcome.assert_ok(self._item, evaluation, self._gate)
        return evaluation


def case_under_test(request: pytest.FixtureRequest) -> CaseUnderTest:
    """Make the value of `cgins_case`."""
    if not hasattr(request, "param"):
        pytest.fail(
            "cgins_case has to be an argument of the test: asked for by name while the test runs, "
            "it cannot run the test once a case",
            pytrace=False,
        )
    gate = GateSession.of(request.config)
    file = nearest_config(request.node.path, request.config.rootpath)
    return CaseUnderTest(request.node, request.param, file, gate)
