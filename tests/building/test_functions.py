"""Python callables: how arguments are matched, how Triton runs, and how failures are told."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from pytest_cgins.building.contracts.functions import PythonKernel
from pytest_cgins.building.loading.callable import load
from pytest_cgins.core.errors import ContractError, InfrastructureError, LaunchError, SourceError
from pytest_cgins.packs.ops import resolve

GELU = "torch.nn.functional.gelu"
SOFTMAX = "torch.nn.functional.softmax"


def run(function: Any, bound: tuple[Any, list[torch.Tensor]]) -> list[torch.Tensor]:
    call, tensors = bound
    return PythonKernel(function, "k:f").bind(call, tensors, [], "cpu").run()


def test_by_name_in_any_order(op_call: Any) -> None:
    """Arguments are matched by name, whatever the order of the kernel's parameters."""
    x = torch.ones(2)
    (out,) = run(lambda *, approximate, input: input + len(approximate), op_call(GELU, x))  # noqa: A006
    assert out.tolist() == [5, 5]


def test_defaults_of_the_op_are_passed(op_call: Any) -> None:
    """A parameter that the call leaves out has the op's default, not the kernel's own."""
    (out,) = run(lambda input, approximate="tanh": input + len(approximate), op_call(GELU, torch.zeros(1)))  # noqa: A006
    assert out.item() == len("none")


def test_positional_only_parameters(op_call: Any) -> None:
    """Positional-only parameters are passed by position."""

    def kernel(input: Any, dim: Any, /, dtype: Any = None) -> Any:  # noqa: A002
        return input + dim

    (out,) = run(kernel, op_call(SOFTMAX, torch.zeros(1), dim=-1))
    assert out.item() == -1


def test_other_names_fall_back_to_order(op_call: Any) -> None:
    """A kernel with names of its own gets the op's arguments in the op's order."""
    (out,) = run(lambda x, mode: x + len(mode), op_call(GELU, torch.zeros(1), approximate="tanh"))
    assert out.item() == 4


def test_undeclared_parameter_must_have_its_default(op_call: Any) -> None:
    """A kernel without a parameter runs where that has its default, and is outside its contract elsewhere."""
    assert run(lambda input: input, op_call(GELU, torch.zeros(1), approximate="none"))  # noqa: A006
    with pytest.raises(ContractError, match="does not take 'approximate', and the call passes 'tanh'"):
        run(lambda input: input, op_call(GELU, torch.zeros(1), approximate="tanh"))  # noqa: A006
    with pytest.raises(ContractError, match="does not take 'approximate'"):
        run(lambda x: x, op_call(GELU, torch.zeros(1), approximate="tanh"))


def test_keyword_arguments_take_everything(op_call: Any) -> None:
    """`**kwargs` takes every parameter by name."""
    (out,) = run(lambda **options: options["input"] + len(options), op_call(GELU, torch.zeros(1)))
    assert out.item() == 2


def test_too_many_parameters(op_call: Any) -> None:
    """A kernel that wants more than the op has is refused, with the nearest right name."""
    with pytest.raises(SourceError) as caught:
        run(lambda inputs, approximate, third: None, op_call(GELU, torch.zeros(1)))
    assert f"its parameters (inputs, approximate, third) are not those of {GELU}" in caught.value.what
    assert caught.value.remedy == 'inputs: did you mean "input"?'


def test_results_are_flattened(op_call: Any) -> None:
    """Tuples, lists and dicts of tensors come back in order."""
    outputs = run(lambda input: (input, [input + 1], {"a": input + 2}), op_call(GELU, torch.zeros(1)))  # noqa: A006
    assert [out.item() for out in outputs] == [0, 1, 2]


def test_result_that_is_no_tensor(op_call: Any) -> None:
    """Anything else as a result is the kernel's error."""
    with pytest.raises(LaunchError, match="k:f returned object"):
        run(lambda input: object(), op_call(GELU, torch.zeros(1)))  # noqa: A006


def test_raising_kernel(op_call: Any) -> None:
    """What the kernel raises is reported with its type, and stays the cause."""
    with pytest.raises(LaunchError, match="k:f raised ZeroDivisionError: ") as caught:
        run(lambda input: 1 // 0, op_call(GELU, torch.zeros(1)))  # noqa: A006
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_loaded_from_the_project(project: Any, op_call: Any) -> None:
    """A target is imported from the folder of cgins.yaml."""
    project.write("cgins_test_folder/gelu.py", "def gelu(input):\n    return input * 3\n")
    compiled = project.build(f"{{op: {GELU}, device: cpu, target: cgins_test_folder.gelu:gelu}}")
    assert (compiled.library, compiled.cached) == ("", True)
    call, tensors = op_call(GELU, torch.ones(2))
    assert load(compiled).bind(call, tensors, [], "cpu").run()[0].tolist() == [3, 3]


def test_target_behind_a_namespace(project: Any, op_call: Any) -> None:
    """What stands before the last name need not be callable; the last must be, and its nearest is told."""
    text = "from types import SimpleNamespace as N\nops = N(fast=N(gelu=lambda input: input * 3, tile=8))\n"
    project.write("cgins_test_space.py", text)
    kernel = f"{{op: {GELU}, device: cpu, target: cgins_test_space:ops.fast.NAME}}"
    call, tensors = op_call(GELU, torch.ones(2))
    bound = load(project.build(kernel.replace("NAME", "gelu"))).bind(call, tensors, [], "cpu")
    assert bound.run()[0].tolist() == [3, 3]
    for name in ("gleu", "tile", "gelu.fast"):
        with pytest.raises(SourceError, match=f'has no function "ops.fast.{name}"') as caught:
            load(project.build(kernel.replace("NAME", name)))
    with pytest.raises(SourceError) as caught:
        load(project.build(kernel.replace("NAME", "gleu")))
    assert caught.value.remedy == 'did you mean "gelu"?'


@pytest.mark.parametrize(
    ("op", "arguments", "options"),
    [
        ("torch.ops.aten.gelu.default", (torch.ones(2),), {"approximate": "tanh"}),
        ("torch.ops.aten.add.Tensor", (torch.ones(2), torch.ones(2)), {"alpha": 2}),
        ("torch.ops.aten.sum.dim_IntList", (torch.ones(2, 3), [1]), {}),
    ],
)
def test_aten_overload_as_its_own_kernel(
    project: Any, op_call: Any, op: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    """`torch:ops.aten.X.Y` calls the overload itself, keyword-only arguments by name."""
    target = f"torch:{op.removeprefix('torch.')}"
    call, tensors = op_call(op, *arguments, **options)
    (out,) = (
        load(project.build(f"{{op: {op}, device: cpu, target: '{target}'}}"))
        .bind(call, tensors, [], "cpu")
        .run()
    )
    assert torch.equal(out, resolve(op)(*arguments, **options))


def test_module_that_fails_to_import(project: Any) -> None:
    """An import error is a source error that names the missing module."""
    project.write("cgins_test_broken.py", "import nosuchmodule\ndef f(input): ...\n")
    compiled = project.build(f"{{op: {GELU}, device: cpu, target: cgins_test_broken:f}}")
    with pytest.raises(SourceError) as caught:
        load(compiled)
    assert "importing cgins_test_broken raised ModuleNotFoundError" in caught.value.what
    assert caught.value.remedy == 'install or correct the module "nosuchmodule"'


@pytest.mark.parametrize(
    ("statement", "package", "remedy"),
    [
        ("import tilelang", "tilelang", "pip install tilelang"),
        ("from cutlass import cute", "cutlass", "pip install nvidia-cutlass-dsl"),
    ],
)
def test_backend_that_is_not_installed(project: Any, statement: str, package: str, remedy: str) -> None:
    """A missing package of a backend is no fault of the kernel: the error names it and how to install it."""
    assert find_spec(package) is None, "this test needs an environment without the package"
    project.write(f"cgins_test_needs_{package}.py", f"{statement}\ndef f(input): ...\n")
    compiled = project.build(f"{{op: {GELU}, device: cuda, target: cgins_test_needs_{package}:f}}")
    with pytest.raises(
        InfrastructureError, match=f'the Python package "{package}" is not installed'
    ) as caught:
        load(compiled)
    assert caught.value.remedy == remedy


def test_module_without_a_part_is_the_kernels_fault(project: Any) -> None:
    """A part that an installed backend does not have stays an error of the source."""
    pytest.importorskip("triton")
    project.write("cgins_test_part.py", "import triton.nosuchpart\ndef f(input): ...\n")
    compiled = project.build(f"{{op: {GELU}, device: cuda, target: cgins_test_part:f}}")
    with pytest.raises(SourceError, match=r"No module named .triton\.nosuchpart"):
        load(compiled)


def test_bfloat16_is_not_for_the_interpreter(op_call: Any) -> None:
    """Triton's interpreter truncates bfloat16: such calls are skipped, since a right kernel would look wrong."""
    call, tensors = op_call(GELU, torch.ones(2, dtype=torch.bfloat16))
    with pytest.raises(ContractError, match="interpreter cuts bfloat16 off"):
        PythonKernel(torch.nn.functional.gelu, "k:f", interpreted=True).bind(call, tensors, [], "cpu")


TRITON = """\
import torch
import triton
import triton.language as tl

@triton.jit
def _scale(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) * factor, mask=inside)

def scale(input, other):
    out = torch.empty_like(input)
    _scale[(triton.cdiv(input.numel(), 64),)](input, out, input.numel(), other, BLOCK=64)
    return out
"""
WORKER = """\
import sys
from pathlib import Path
import torch
from pytest_cgins.core import documents
from pytest_cgins.config import load as load_config
from pytest_cgins.building.build import build
from pytest_cgins.building.loading.callable import load
from pytest_cgins.building.contracts.source import find
from pytest_cgins.core.model import Argument, OpCall
from pytest_cgins.packs.values import encode
if "early" in sys.argv:
    import triton
config = load_config(Path("cgins.yaml"))
compiled = [build(find(config, kernel, one)) for kernel in config.kernels for one in kernel.implementations]
tensors = []
x = torch.arange(100.0)
call = OpCall(op="torch.mul", arguments=(
    Argument(name="input", value=encode(x, tensors), passed="positional"),
    Argument(name="other", value=encode(2.5, tensors), passed="positional")))
(out,) = load(compiled[0]).bind(call, tensors, [], "cpu").run()
assert torch.equal(out, x * 2.5)
for kernel in compiled[1:]:
    load(kernel)
"""


def in_worker(project: Any, kernel: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the first implementation on torch.mul in a fresh process, and load the others."""
    pytest.importorskip("triton")
    project.write("cgins_test_scale.py", TRITON)
    project.config(kernel)
    command = [sys.executable, "-c", WORKER, *arguments]
    return subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)


INTERPRETED = "{name: interpreted, target: cgins_test_scale:scale, interpret: true}"


def test_triton_interpreter(project: Any) -> None:
    """`interpret: true` runs a Triton kernel on the CPU, through Triton's interpreter."""
    done = in_worker(project, f"{{op: torch.mul, implementations: [{INTERPRETED}]}}")
    assert done.returncode == 0, done.stderr


def test_triton_was_there_before(project: Any) -> None:
    """A process that has imported Triton's compiler cannot interpret, and says so."""
    done = in_worker(project, f"{{op: torch.mul, implementations: [{INTERPRETED}]}}", "early")
    assert "LaunchError: cgins_test_scale:scale: Triton is already in this process" in done.stderr


def test_compiled_kernel_in_an_interpreting_process(project: Any) -> None:
    """A kernel for the GPU is not interpreted by accident."""
    compiled = "{name: compiled, device: cuda, target: cgins_test_scale:scale}"
    done = in_worker(project, f"{{op: torch.mul, implementations: [{INTERPRETED}, {compiled}]}}")
    assert "LaunchError: cgins_test_scale:scale: this process runs Triton's interpreter" in done.stderr
