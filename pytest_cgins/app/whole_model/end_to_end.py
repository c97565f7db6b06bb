"""What is right of a whole model: the derived rule, on its outputs.

The rule is that of one op, with the model in its place: r is the model in fp64, t32 in fp32, t in its own dtypes, and p in
fp64 on weights and inputs that were moved by a rounding to fp32. So a model may err with kernels about as much as it errs
without, however many layers have amplified that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pytest_cgins.app.whole_model.workload import Workload
from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import as_real
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.verdict import Check
from pytest_cgins.packs.call import flatten
from pytest_cgins.packs.statistics import summarize
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.expected import ExpectedOutput, GoldElements
from pytest_cgins.verify.reference import KeepWide

INPUTS = "model's"
"""What messages call the set of inputs."""
_ROUNDING = 2.0**-24


class Expected:
    """What a model's outputs are to be.

    Args:
        workload: the model.
        tolerance: used where it is explicit: then nothing but the model itself tells what is right.
        device: `cpu` or `cuda:0`.

    Raises:
        ConfigError: the model has no reference, or draws random numbers.
    """

    def __init__(self, workload: Workload, tolerance: Tolerance, device: str) -> None:
        self._tolerance = tolerance
        before = device_of(device).random_states()
        answers = _outputs(workload.run())
        if device_of(device).random_states() != before:
            raise ConfigError(
                "the model draws random numbers, so that nobody can tell a wrong answer from another draw",
                remedy="call model.eval(), or draw what it needs before it runs",
            )
        make = _by_itself if tolerance.kind == "explicit" else _by_reference
        self._expected = ExpectedSet(name=INPUTS, outputs=tuple(make(workload, answers)), arguments={})

    def checks(self, result: object) -> tuple[Check, ...]:
        """The checks of what a run gave."""
        return compare(self._expected, [as_real(one) for one in _outputs(result)], self._tolerance)

    def failed(self, result: object) -> Check | None:
        """The first check that a run fails."""
        return next((check for check in self.checks(result) if not check.passed), None)


def _outputs(result: object) -> list[Tensor]:
    """Tensors of a result that are numbers with a point: which of nearly equal ones is the greatest is no error."""
    return [one.detach() for one in flatten(result)[1] if one.is_floating_point() or one.is_complex()]


def _by_itself(_: Workload, answers: Sequence[Tensor]) -> list[ExpectedOutput]:
    return [
        _output(index, one, rules.of_gold(as_real(one)), gold_alone=True) for index, one in enumerate(answers)
    ]


def _by_reference(workload: Workload, answers: Sequence[Tensor]) -> list[ExpectedOutput]:
    if workload.model is None:
        raise ConfigError(
            "what the model is made of is not known, so that it cannot be run in fp64",
            remedy="have its function return (model, inputs), or give it a tolerance: {rtol: 1e-2, atol: 1e-3} in cgins.yaml",
        )
    reference = _wide(workload, torch.float64)
    moved = _wide(workload, torch.float64, moved=_ROUNDING)
    single = _wide(workload, torch.float32)
    outputs = []
    for index, (one, *others) in enumerate(zip(answers, reference, single, moved, strict=True)):
        r, t32, p = (as_real(other).contiguous() for other in others)
        outputs.append(_output(index, one, rules.derive(r.double(), as_real(one), t32, p.double())))
    return outputs


def _wide(workload: Workload, dtype: torch.dtype, *, moved: float = 0.0) -> list[Tensor]:
    try:
        wide = workload.widened(dtype, moved=moved)
        with KeepWide(dtype):
            return _outputs(wide.run())
    except Exception as error:  # whatever a user's model raises
        raise ConfigError(
            f"the model cannot be run in {dtype}: {type(error).__name__}: {str(error).partition(chr(10))[0]}",
            remedy="have it follow the dtype of its inputs, or give it a tolerance: {rtol: 1e-2, atol: 1e-3} in cgins.yaml",
        ) from error


def _output(index: int, answer: Tensor, scale: rules.Scale, *, gold_alone: bool = False) -> ExpectedOutput:
    real = as_real(answer).contiguous()
    shape, gold = tuple(real.shape), None
    if gold_alone:
        gold = GoldElements(values=real.reshape(-1), positions=None, statistics=summarize(real), shape=shape)
    return ExpectedOutput(
        index=index,
        shape=shape,
        stride=tuple(real.stride()),
        own_stride=tuple(as_real(answer).stride()),
        answer=real,
        scale=scale,
        gold=gold,
        gold_alone=gold_alone,
        complex=answer.is_complex(),
    )
