"""Launch lines bound to calls, without a compiler: what each kernel gets, and which calls are refused."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.builders.device_image import Function
from pytest_cgins.building.contracts import launch_line, schema
from pytest_cgins.building.loading.launch_binding import Binding, Settings
from pytest_cgins.core.errors import LaunchError

READ, WRITTEN, NUMBER = 0x2834, 0x2034, 0x1014  # const float*, float*, int


def bound(arguments: str, line: str, codes: tuple[int, ...], **values: Any) -> list[Settings]:
    """The launches of a source with these schema and launch lines, whose kernels take these parameters."""
    parsed = schema.parse(f"f({arguments}) -> {'Tensor[]' if 'list' in values else 'Tensor'}", "k.cu:1")
    text = "\n".join(f"// cgins-launch: grid=1 block=32 {one}" for one in line.split("; "))
    plan = launch_line.read(launch_line.locate(text, Path("k.cu")), parsed, "k.cu")
    functions = defaultdict(lambda: Function(name="k", parameters=codes))
    values.setdefault("out", values.pop("list", None))
    return Binding("mul/mine", "k.cu", plan, functions, values).settings()


def test_strides_are_the_line_s_where_it_looks_at_them() -> None:
    """Only a tensor whose own strides the line looks at may have gaps; an argument called `stride` is none."""
    x, out = torch.ones(4, 3).t(), torch.ones(3, 4)
    codes = (READ, WRITTEN, NUMBER)
    for item in ("stride(x, 0)", "x.stride(0)", "x.strides[0]"):
        assert bound("Tensor x", f"args=(x, out, {item})", codes, x=x, out=out)
    assert bound(
        "Tensor[] xs", "args=(xs[0], out, 1) require=is_contiguous(xs[0]) == 0", codes, xs=[x], out=out
    )
    for item in ("stride[0]", "stride(out, 0)"):
        with pytest.raises(LaunchError, match=r"argument 1 \(x\) is not contiguous"):
            bound("Tensor x, int[] stride", f"args=(x, out, {item})", codes, x=x, out=out, stride=[1])


@pytest.mark.parametrize("k", [None, 32.0, True, 48])
def test_a_choice_is_one_of_the_whole_numbers(k: object) -> None:
    """Neither None nor a float chooses an instantiation."""
    line = "kernel=k<choose(k, 1, 32)> args=(x, out)"
    x = torch.ones(4)
    with pytest.raises(LaunchError, match=f"k is {k}; the kernel was built for 1, 32"):
        bound("Tensor x, Scalar? k", line, (READ, WRITTEN), x=x, out=x, k=k)
    (launch,) = bound("Tensor x, Scalar? k", line, (READ, WRITTEN), x=x, out=x, k=32)
    assert launch.kernel == "k<32>"


def test_a_launch_that_is_left_out_asks_for_nothing() -> None:
    """The element type of a tensor that only another launch is a template of does not matter."""
    line = "kernel=a<dtype(x)> args=(x, out); kernel=b<dtype(y)> when=has(z) args=(y, out)"
    x, y = torch.ones(4), torch.ones(4, dtype=torch.int64)
    (launch,) = bound(
        "Tensor x, Tensor y, Tensor? z", line, (READ, WRITTEN), x=x, y=y, z=None, out=torch.ones(4)
    )
    assert launch.kernel == "a<float>"


def test_what_is_set_to_zero() -> None:
    """Each tensor of a list is set to 0; an optional tensor that is not there is none."""
    x, outs = torch.ones(4), [torch.ones(2), torch.ones(3)]
    (launch,) = bound("Tensor x", "args=(x, out[0]) zero=out", (READ, WRITTEN), x=x, list=outs)
    assert launch.zero == tuple((one.data_ptr(), one.numel() * 4) for one in outs)
    (launch,) = bound("Tensor(a!)? y, Tensor x", "args=(x, out) zero=y", (READ, WRITTEN), x=x, y=None, out=x)
    assert launch.zero == ()


def test_a_parameter_that_is_no_number() -> None:
    """A struct by value is said to be one, whatever the line passes."""
    x = torch.ones(4)
    with pytest.raises(LaunchError, match="its parameter is neither a whole number nor a float or double"):
        bound("Tensor x, int[] k", "args=(x, out, k[0])", (READ, WRITTEN, 0x10FF), x=x, out=x, k=[1])


def test_fp8_tensors() -> None:
    """Pointers to CUDA's 8-bit floats take torch's, each its own."""
    x, out = torch.ones(4).to(torch.float8_e4m3fn), torch.ones(4)
    assert bound("Tensor x", "args=(x, out)", (0x2861, WRITTEN), x=x, out=out)
    with pytest.raises(LaunchError, match="float8_e4m3fn, the kernel's parameter points to float8_e5m2"):
        bound("Tensor x", "args=(x, out)", (0x2871, WRITTEN), x=x, out=out)
