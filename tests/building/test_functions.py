# ruff: noqa: A006 - parameters have the names of the op's
"""Python callables: how arguments are matched, how Triton runs, and how failures are told."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from pytest_cgins.building.contracts.functions import PythonKernel
from pytest_cgins.building.loading.callable import load
from pytest_cgins.core.errors import ContractError, InfrastructureError, LaunchError, SourceError
from pytest_cgins.packs.ops import resolve
from tests.building.processes import python

GELU = "torch.nn.functional.gelu"
SOFTMAX = "torch.nn.functional.softmax"


def _by_position(input: Any, dim: Any, /, dtype: Any = None) -> Any:  # noqa: A002
    return input + dim


@pytest.mark.parametrize(
    ("kernel", "op", "options", "value"),
    [
        (lambda *, approximate, input: input + len(approximate), GELU, {}, 4),  # in any order
        (lambda input, approximate="tanh!": input + len(approximate), GELU, {}, 4),  # the op's default
        (_by_position, SOFTMAX, {"dim": -1}, -1),
        (lambda x, mode: x + len(mode), GELU, {"approximate": "tanh!"}, 5),  # other names: in the op's order
        (
            lambda x, *, approximate: x + len(approximate),
            GELU,
            {"approximate": "tanh!"},
            5,
        ),  # one by name alone
        (lambda x, out=None, approximate="": x + len(approximate), GELU, {"approximate": "tanh!"}, 5),
        (lambda input: input, GELU, {"approximate": "none"}, 0),  # left out, at its default
        (lambda **options: options["input"] + len(options), GELU, {}, 2),
    ],
)
def test_how_arguments_are_matched(bind: Any, kernel: Any, op: str, options: Any, value: float) -> None:
    """By name, whatever the order; in the op's order what has other names, or may not be passed by name."""
    (out,) = bind(kernel, op, torch.zeros(1), **options).run()
    assert out.item() == value


def test_undeclared_parameter_must_have_its_default(bind: Any) -> None:
    """A kernel without a parameter is outside its contract where that has another value."""
    with pytest.raises(ContractError, match="does not take 'approximate', and the call passes 'tanh'"):
        bind(lambda input: input, GELU, torch.zeros(1), approximate="tanh")
    with pytest.raises(ContractError, match="does not take 'approximate'"):
        bind(lambda x: x, GELU, torch.zeros(1), approximate="tanh")


def test_too_many_parameters(bind: Any) -> None:
    """A kernel that wants more than the op has is refused, with the nearest right name."""
    with pytest.raises(SourceError) as caught:
        bind(lambda inputs, approximate, third: None, GELU, torch.zeros(1))
    assert f"its parameters (inputs, approximate, third) are not those of {GELU}" in caught.value.what
    assert caught.value.remedy == 'inputs: did you mean "input"?'


def test_results(bind: Any) -> None:
    """Tuples, lists and dicts of tensors come back in order; what is none, or is raised, is the kernel's error."""
    outputs = bind(lambda input: (input, [input + 1], {"a": input + 2}), GELU, torch.zeros(1)).run()
    assert [out.item() for out in outputs] == [0, 1, 2]
    with pytest.raises(LaunchError, match="k:f returned object"):
        bind(lambda input: object(), GELU, torch.zeros(1)).run()
    with pytest.raises(LaunchError, match="k:f raised ZeroDivisionError: ") as caught:
        bind(lambda input: 1 // 0, GELU, torch.zeros(1)).run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_loaded_from_the_project(project: Any, bind: Any) -> None:
    """A target is imported from the folder of cgins.yaml."""
    project.write("cgins_test_folder/gelu.py", "def gelu(input):\n    return input * 3\n")
    compiled = project.build(f"{{op: {GELU}, device: cpu, target: cgins_test_folder.gelu:gelu}}")
    assert (compiled.library, compiled.cached) == ("", True)
    assert bind(compiled, GELU, torch.ones(2)).run()[0].tolist() == [3, 3]


def test_target_behind_a_namespace(project: Any, bind: Any) -> None:
    """What stands before the last name, a class too, need not be called; the last must be, and its nearest is told."""
    text = "class ops:\n    class fast:\n        gelu, tile = staticmethod(lambda input: input * 3), 8\n"
    project.write("cgins_test_space.py", text)
    kernel = f"{{op: {GELU}, device: cpu, target: cgins_test_space:ops.fast.NAME}}"
    assert bind(project.build(kernel.replace("NAME", "gelu")), GELU, torch.ones(2)).run()[0].tolist() == [
        3,
        3,
    ]
    for name, remedy in (
        ("tile", ""),
        ("tile.real", ""),
        ("gelu.fast", ""),
        ("gleu", 'did you mean "gelu"?'),
    ):
        with pytest.raises(SourceError, match=f'has no function "ops.fast.{name}"') as caught:
            load(project.build(kernel.replace("NAME", name)))
        assert remedy or "target is MODULE:FUNCTION" in caught.value.remedy
        assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("op", "arguments", "options"),
    [
        ("torch.ops.aten.gelu.default", (torch.ones(2),), {"approximate": "tanh"}),
        ("torch.ops.aten.add.Tensor", (torch.ones(2), torch.ones(2)), {"alpha": 2}),
        ("torch.ops.aten.sum.dim_IntList", (torch.ones(2, 3), [1]), {}),
    ],
)
def test_aten_overload_as_its_own_kernel(
    project: Any, bind: Any, op: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    """`torch:ops.aten.X.Y` calls the overload itself, keyword-only arguments by name."""
    compiled = project.build(f"{{op: {op}, device: cpu, target: 'torch:{op.removeprefix('torch.')}'}}")
    (out,) = bind(compiled, op, *arguments, **options).run()
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
def test_backend_that_is_not_installed(
    project: Any, statement: str, package: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing package of a backend is no fault of the kernel: the error names it and how to install it."""
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
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


def test_bfloat16_is_not_for_the_interpreter(bind: Any) -> None:
    """Triton's interpreter truncates bfloat16: such calls are skipped, since a right kernel would look wrong."""
    kernel = PythonKernel(torch.nn.functional.gelu, "k:f", interpreted=True)
    with pytest.raises(ContractError, match="interpreter cuts bfloat16 off"):
        bind(kernel, GELU, torch.ones(2, dtype=torch.bfloat16))


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
from pytest_cgins.core.trace import Argument, OpCall
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
    return python(WORKER, *arguments, cwd=project.root, check=False)


INTERPRETED = "{name: interpreted, target: cgins_test_scale:scale, interpret: true}"


@pytest.mark.exam
def test_triton_interpreter(project: Any) -> None:
    """`interpret: true` runs a Triton kernel on the CPU, through Triton's interpreter."""
    done = in_worker(project, f"{{op: torch.mul, implementations: [{INTERPRETED}]}}")
    assert done.returncode == 0, done.stderr


@pytest.mark.exam
def test_triton_was_there_before(project: Any) -> None:
    """A process that has imported Triton's compiler cannot interpret, and says so."""
    done = in_worker(project, f"{{op: torch.mul, implementations: [{INTERPRETED}]}}", "early")
    assert "LaunchError: cgins_test_scale:scale: Triton is already in this process" in done.stderr


@pytest.mark.exam
def test_compiled_kernel_in_an_interpreting_process(project: Any) -> None:
    """A kernel for the GPU is not interpreted by accident."""
    compiled = "{name: compiled, device: cuda, target: cgins_test_scale:scale}"
    done = in_worker(project, f"{{op: torch.mul, implementations: [{INTERPRETED}, {compiled}]}}")
    assert "LaunchError: cgins_test_scale:scale: this process runs Triton's interpreter" in done.stderr
