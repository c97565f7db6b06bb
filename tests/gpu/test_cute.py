"""The example's kernels in CuTe, on a GPU: C++ on Hopper's tensor cores, and the Python DSL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from pytest_cgins.building.build import build
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.loading.callable import LoadedKernel, load
from pytest_cgins.config import load as load_config
from pytest_cgins.core.errors import ContractError
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta
from pytest_cgins.packs.values import encode

pytestmark = pytest.mark.gpu

PROJECT = Path(__file__).parents[2] / "example_project"
HALF = [torch.float16, torch.bfloat16]


def kernel(name: str, implementation: str) -> LoadedKernel:
    config = load_config(PROJECT / "cgins.yaml")
    (entry,) = [entry for entry in config.kernels if entry.name == name]
    (chosen,) = [one for one in entry.implementations if one.name == implementation]
    return load(build(find(config, entry, chosen)))


def run(loaded: LoadedKernel, op: str, want: torch.Tensor, **arguments: torch.Tensor | None) -> torch.Tensor:
    tensors: list[Any] = []
    call = OpCall(
        op=op,
        arguments=tuple(
            Argument(name=name, value=encode(value, tensors), passed="positional")
            for name, value in arguments.items()
        ),
    )
    meta = TensorMeta(
        dtype=str(want.dtype).removeprefix("torch."),
        shape=tuple(want.shape),
        stride=tuple(want.stride()),
        offset=0,
        storage=0,
    )
    (got,) = loaded.bind(call, tensors, [meta], "cuda:0").run()
    torch.cuda.synchronize()
    return got


@pytest.fixture(scope="module")
def linear() -> LoadedKernel:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("linear_cute.cu is for sm_90a")
    if find_spec("cutlass_library") is None:
        pytest.skip("no nvidia-cutlass")
    return kernel("linear", "cute")


def close(got: torch.Tensor, exact: torch.Tensor) -> bool:
    """Within half a unit of the type's rounding, and a little for another order of the sum."""
    unit = torch.finfo(got.dtype).eps
    return bool(((got.double() - exact).abs() <= unit * exact.abs() + 1e-3 * exact.std()).all())


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [
        (64, 64, 64),
        (64, 64, 8),  # less than a tile deep
        (1, 1000, 256),
        (37, 768, 3072),
        (130, 70, 688),  # part of a tile in every direction
        (200, 129, 72),
        (1024, 2048, 512),
    ],
)
def test_linear_on_tensor_cores(
    linear: LoadedKernel, dtype: torch.dtype, rows: int, columns: int, depth: int
) -> None:
    """Whole and part tiles in every direction are right, with a bias and without."""
    torch.manual_seed(rows + columns + depth)
    x = torch.randn(rows, depth, device="cuda").to(dtype)
    weight = torch.randn(columns, depth, device="cuda").to(dtype)
    for bias in (None, torch.randn(columns, device="cuda").to(dtype)):
        want = functional.linear(x, weight, bias)
        exact = functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
        got = run(linear, "torch.nn.functional.linear", want, input=x, weight=weight, bias=bias)
        assert close(got, exact)


@pytest.mark.parametrize(
    ("dtype", "depth", "skipped"),
    [
        (torch.float32, 64, 0),
        (torch.float16, 63, 0),  # rows of no whole number of 16 bytes
        (torch.bfloat16, 64, 1),  # a view that starts off a boundary of 16 bytes
    ],
)
def test_linear_takes_the_other_way(
    linear: LoadedKernel, dtype: torch.dtype, depth: int, skipped: int
) -> None:
    """What tensor cores do not take is computed by the plain kernel."""
    x = torch.randn(50, depth + skipped, device="cuda").to(dtype)[:, skipped:]
    weight = torch.randn(33, depth, device="cuda").to(dtype)
    want = functional.linear(x, weight)
    got = run(linear, "torch.nn.functional.linear", want, input=x, weight=weight, bias=None)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_a_kernel_for_another_gpu_is_skipped() -> None:
    """Where none of its architectures runs, every call is outside of a kernel's contract, not an error."""
    config = load_config(PROJECT / "cgins.yaml")
    (entry,) = [entry for entry in config.kernels if entry.name == "relu"]
    (chosen,) = [one for one in entry.implementations if one.name == "cuda"]
    loaded = load(build(replace(find(config, entry, chosen), archs=("sm_75",))))
    x = torch.ones(3, device="cuda")
    with pytest.raises(ContractError, match="is for sm_75; "):
        run(loaded, "torch.nn.functional.relu", x, input=x)


@pytest.fixture(scope="module")
def silu_mul() -> Iterator[LoadedKernel]:
    if find_spec("cutlass") is None:
        pytest.skip("no nvidia-cutlass-dsl")
    before = set(sys.modules)
    yield kernel("silu_mul", "cute-dsl")
    sys.path.remove(str(PROJECT))
    for name in {name for name in set(sys.modules) - before if name.partition(".")[0] == "kernels"}:
        del sys.modules[name]


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_silu_mul_in_the_dsl(silu_mul: LoadedKernel, dtype: torch.dtype) -> None:
    """One compiled function takes every length, on a stream that is not the default one."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for shape in [(1,), (3, 1, 688), (2, 48, 688), (0, 5)]:
            gate, up = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
            want = (functional.silu(gate.float()) * up.float()).to(dtype)
            got = run(silu_mul, "models.decoder.silu_mul", want, gate=gate, up=up)
            torch.testing.assert_close(got, want)
