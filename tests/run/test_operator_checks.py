"""How operators are registered: what is wrong is found by its own reason, and what is right is not accused."""

from __future__ import annotations

from typing import Literal, get_args

import pytest
import torch

from pytest_cgins.building.build import build
from pytest_cgins.building.loading.callable import load
from pytest_cgins.core.case import OPERATOR_CHECKS, KernelSource, OperatorCheck
from pytest_cgins.core.tensors import pack
from pytest_cgins.core.trace import Context, TensorMeta
from pytest_cgins.core.verdict import Reason
from pytest_cgins.packs import ops
from pytest_cgins.packs.signature import call_of
from pytest_cgins.run.operator_checks import Operator
from pytest_cgins.verify.messages import CheckOperator, OperatorFinding, PackedInputs
from tests.planted import operators
from tests.planted.operators import NAMESPACE, ON_GPU, OPERATORS

LONG = {"otherwise_compiled"}
"""Those that torch's compiler makes code for, which takes it half a minute; `fake_stride` has the same reason."""
CPU_CHECKS: tuple[OperatorCheck, ...] = tuple(check for check in OPERATOR_CHECKS if check != "graph")


def find(
    name: str, check: OperatorCheck, device: Literal["cpu", "cuda"] = "cpu", count: int = 2
) -> OperatorFinding:
    """What a check finds of a planted operator, on two sets of inputs, or on one as where gold alone is known."""
    planted = {**OPERATORS, **ON_GPU}[name]
    op = f"torch.ops.{NAMESPACE}.{name}"
    source = KernelSource(
        kernel=name, implementation="operator", op=op, device=device, contract="python", entry=op.removeprefix("torch."),
        schema="", files=(), module="torch", load=(operators.__name__,), digest=name,
    )  # fmt: skip
    sets, buffers = [], []
    for seed in range(count):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed)).requires_grad_(planted.gradients)
        first = getattr(getattr(torch.ops, NAMESPACE), name).default._schema.arguments[0]
        arguments = (torch.zeros(6, 8), x) if first.name == "out" else (x,)
        call, tensors = call_of(planted.reference or op, ops.resolve(op), arguments, {})
        header, buffer = pack(tensors)
        outputs = (TensorMeta(dtype="float32", shape=(6, 8), stride=(8, 1), offset=0, storage=0),)
        mutated = (0,) if first.alias_info else ()
        sets.append(
            PackedInputs(
                name=str(seed), call=call, tensors=header, outputs=outputs, mutated=mutated,
                context=Context(grad_enabled=planted.gradients),
            )
        )  # fmt: skip
        buffers.append(buffer)
    followed = tuple(index for index, tensor in enumerate(tensors) if tensor.requires_grad)
    ops.trust(operators.REFERENCE)
    compiled = build(source)
    request = CheckOperator(
        kernel=compiled,
        device="cuda:0" if device == "cuda" else device,
        sets=tuple(sets),
        check=check,
        followed=followed,
    )
    return Operator(request, buffers, load(compiled)).finding(check)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, marks=[pytest.mark.exam] if name in LONG else [])
        for name, planted in OPERATORS.items()
        for check in planted.finds
    ],
)
def test_what_is_wrong_is_found_by_its_own_reason(name: str, check: OperatorCheck) -> None:
    """Mutation, aliases, fake tensors, autograd, dispatch and compilation: each planted once."""
    finding = find(name, check)
    assert finding.reason.value == OPERATORS[name].finds[check], finding.message
    assert finding.message


@pytest.mark.parametrize("name", [name for name, planted in OPERATORS.items() if not planted.finds])
def test_what_is_right_is_not_accused(name: str) -> None:
    """A library's operator, `custom_op` and `triton_op`, that return and that write, pass all checks."""
    for check in CPU_CHECKS:
        finding = find(name, check)
        gradients = check != "autograd" or OPERATORS[name].gradients
        assert finding.reason is (Reason.OK if gradients else Reason.NOT_APPLICABLE), (check, finding.message)


def test_each_reason_is_planted() -> None:
    """But for that of schemas that torch refuses in a way of its own."""
    planted = {reason for one in (*OPERATORS.values(), *ON_GPU.values()) for reason in one.finds.values()}
    known = [reason.value for reason in Reason]
    own = known[known.index("undeclared-mutation") : known.index("stale-replay") + 1]
    assert set(own) - planted == {"wrong-schema", "not-applicable"}
    assert set(get_args(OperatorCheck)) == {"", *OPERATOR_CHECKS}
