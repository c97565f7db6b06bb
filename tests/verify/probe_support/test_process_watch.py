"""All observers together, on honest kernels that do much behind the scenes; memory that kernels allocate through torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.verify.messages import RunKernel, read
from pytest_cgins.verify.probe_support import dispatch_mode, process_watch
from pytest_cgins.verify.probe_support.process_watch import Watch, poison_new
from pytest_cgins.verify.probes import op_callback

INPUTS = {
    "name": "0",
    "call": {"op": "torch.relu", "arguments": []},
    "tensors": {},
    "outputs": [],
    "op_calls": {"relu": 4},
}
WATCHED = ("poison", "op_callback", "integrity", "snooping")
EXAMPLE = Path(__file__).parents[3] / "example_project"
SCRIPT = """\
import json, sys
import torch
from pytest_cgins.core import documents
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.run.verification_service import VerificationService
from pytest_cgins.core.trace import Argument, Context, OpCall, TensorMeta, Value
from pytest_cgins.core.case import CompiledKernel, KernelSource

root, probes = sys.argv[1], json.loads(sys.argv[2])

def kernel(name, op):
    source = KernelSource(kernel=name, implementation="triton", op=op, device="cpu", contract="python", entry=name,
        schema="", files=(f"{root}/kernels/{name}.py",), module=f"kernels.{name}", import_root=root, interpret=True)
    compiled = CompiledKernel(source=source, library="", key=name, build_seconds=0.0, cached=True)
    return documents.dump_python(compiled)

def one(op, arguments, tensor, own):
    header, buffer = pack([tensor])
    meta = TensorMeta(dtype="float32", shape=tuple(tensor.shape), stride=tuple(tensor.stride()), offset=0, storage=0)
    call = OpCall(op=op, arguments=arguments)
    return {"name": "recorded", "call": documents.dump_python(call), "tensors": header,
            "outputs": [documents.dump_python(meta)], "context": documents.dump_python(Context()), "mutated": [],
            "op_calls": own}, buffer

tensor = torch.randn(3, 70)
first = Argument(name="input", value=Value(kind="tensor", value=0), passed="positional")
dim = Argument(name="dim", value=Value(kind="int", value=-1), passed="keyword")
service = VerificationService()
for name, arguments, right in (("relu", (first,), tensor.relu()), ("softmax", (first, dim), tensor.softmax(-1))):
    op = f"torch.nn.functional.{name}"
    asked, buffer = one(op, arguments, tensor, {name: tensor.numel()})
    params = {"kernel": kernel(name, op), "device": "cpu", "import_root": root, "probes": probes, "sets": [asked]}
    result, buffers = service.run(params, [buffer])
    answer, = result["sets"]
    assert answer["error"] is None, answer["error"]
    assert torch.allclose(unpack(answer["tensors"], buffers[0], "cpu")[0], right, atol=1e-6)
    print(json.dumps([name, result["observed"], service.fatal]))
"""


@pytest.mark.exam
def test_triton_s_interpreter_is_honest(tmp_path: Path) -> None:
    """What Triton does to run a kernel on the CPU, sources, frames and code objects included, is its own affair."""
    pytest.importorskip("triton")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(EXAMPLE), json.dumps(WATCHED)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        _name, observed, fatal = json.loads(line)
        assert observed["integrity"] == []
        assert observed["snooping"] == []
        assert not any({"relu", "softmax"} & set(calls) for calls in observed["op_callback"])
        assert not fatal
    assert len(done.stdout.splitlines()) == 2


def test_what_is_off_is_not_there(relu_kernel: Callable[[str], dict[str, Any]]) -> None:
    """Without probes a run is a run: no modes, no facts, no time."""
    request = {"kernel": relu_kernel(""), "device": "cpu", "import_root": "", "sets": []}
    watch = Watch(frozenset(), read(RunKernel, request))
    with watch.loading(), watch.running():
        assert torch._C._len_torch_dispatch_stack() == 0
    assert watch.observed() == {}
    assert not watch.spent


def test_a_run_is_observed_in_no_time(relu_kernel: Callable[[str], dict[str, Any]]) -> None:
    """Once a request is set up, a run with all observers costs a fraction of a millisecond."""
    request = {"kernel": relu_kernel(""), "device": "cpu", "sets": [INPUTS]}
    watch = Watch(frozenset(WATCHED), read(RunKernel, request))
    with watch.loading():
        pass
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        with watch.running():
            pass
        seconds.append(time.perf_counter() - start)
    watch.observed()
    assert min(seconds) < 0.005  # 0.1 ms on an idle machine


@pytest.mark.parametrize("raises", ["loading", "running"])
def test_what_a_kernel_raises_is_raised(relu_kernel: Callable[[str], dict[str, Any]], raises: str) -> None:
    """Observers stand aside, and are gone."""
    request = {"kernel": relu_kernel(""), "device": "cpu", "sets": [INPUTS]}
    watch = Watch(frozenset(WATCHED), read(RunKernel, request))
    with pytest.raises(ZeroDivisionError), getattr(watch, raises)():
        raise ZeroDivisionError
    watch.observed()
    assert torch._C._len_torch_dispatch_stack() == 0


def test_torch_s_arm_finds_settings_as_they_were(relu_kernel: Callable[[str], dict[str, Any]]) -> None:
    """Also if the kernel undoes them before timing ends, and with all probes off; flushed subnormals among them."""
    request = {"kernel": relu_kernel(""), "device": "cpu", "import_root": "", "sets": []}
    least, threads = torch.tensor([1e-40]), torch.get_num_threads()
    for probes, told in ((frozenset[str](), {}), (frozenset({"integrity"}), {"integrity": 1})):
        watch = Watch(probes, read(RunKernel, request))
        with watch.timing() as put_back:
            torch.set_num_threads(threads + 1)
            torch.set_flush_denormal(True)
            put_back()
            assert torch.get_num_threads() == threads
            assert (least * 1.0).item() != 0.0
        assert {name: len(facts) for name, facts in watch.observed().items()} == told


Watched = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    "make",
    [
        "torch.empty(2, 2)",
        "torch.empty_like(input)",
        "input.new_empty((2, 2))",
        "torch.empty_strided((2, 2), (1, 2))",
        "torch.empty_permuted((2, 2), (1, 0))",
        "torch.nn.Linear(2, 2).weight.detach().new_empty(2, 2)",
    ],
)
def test_what_is_never_written_is_poison(watched: Watched, make: str) -> None:
    """A row that a kernel leaves out is NaN, whatever lay in its memory before."""
    text = f"import torch\ndef relu(input):\n    out = {make}\n    out[0] = input[0].clamp(min=0)\n    return out\n"
    (answer,) = watched(text, "poison")["answer"]
    assert answer[0].tolist() == [0.0, 2.0]
    assert answer[1].isnan().all()


def test_poison_reaches_the_answer() -> None:
    """Each type is filled with what answers rarely have."""
    for dtype in (torch.float32, torch.bfloat16, torch.complex64):
        memory = torch.zeros(3, dtype=dtype)
        poison_new(torch.ops.aten.empty.memory_format, memory)
        assert memory.isnan().all()
    memory = torch.zeros(3, dtype=torch.int32)
    poison_new(torch.ops.aten.new_empty.default, memory)
    assert memory.tolist() == [torch.iinfo(torch.int32).min] * 3


@pytest.mark.parametrize(
    "op", [torch.ops.aten.zeros.default, torch.ops.aten.relu.default, torch.ops.aten.resize_.default]
)
def test_what_other_operators_return_is_left_alone(op: object) -> None:
    """Only allocations are filled."""
    memory = torch.ones(3)
    poison_new(op, memory)
    assert memory.tolist() == [1.0, 1.0, 1.0]


def test_nothing_is_filled_while_the_probe_is_off(watched: Watched) -> None:
    """A kernel that asks for memory gets what torch gives."""
    text = (
        "import torch\n"
        "def relu(input):\n    out = torch.empty(2, 2)\n    out.fill_(1.0)\n"
        "    return out if torch._C._len_torch_dispatch_stack() == 0 else out.zero_()\n"
    )
    result = watched(text, "plain_outputs")
    assert result["sets"][0]["error"] is None
    assert result["observed"] == {}


def test_the_answer_is_what_it_would_be(watched: Watched) -> None:
    """A kernel that writes all it allocates gives the same answer, watched by all probes."""
    text = (
        "import torch\ndef relu(input):\n    scratch = torch.empty(100)\n    out = torch.empty_like(input)\n"
        "    torch.where(input > 0, input, torch.zeros(()), out=out)\n    return out\n"
    )
    (answer,) = watched(text, "poison", "op_callback", "integrity", "snooping")["answer"]
    assert answer.tolist() == [[0.0, 2.0], [3.0, 0.0]]


def test_what_was_drawn_is_known_as_long_as_it_lives_and_is_not_written_to() -> None:
    """Nothing is kept of tensors that are gone: a kernel that draws in each call would seem to leak."""
    drawn, tensor = process_watch._Drawn(), torch.randn(100, 100)
    drawn.keep(tensor)
    assert drawn.all_are((tensor, 2.0))
    assert not drawn.all_are((tensor, torch.ones(3)))
    assert not drawn.all_are((2.0,))
    tensor.numpy()[:] = 1.0
    assert not drawn.all_are((tensor,))
    del tensor
    assert drawn._kept == {}


@pytest.mark.exam
def test_torchs_compiler_runs_observers_as_they_are() -> None:
    """They had moved to a package that it was not told of, and a compiled kernel that met one failed in our code."""
    from torch._dynamo import trace_rules

    process_watch._keep_compiler_out()
    for function in (
        dispatch_mode.DispatchMode.__torch_dispatch__,
        process_watch._Drawn.draws,
        op_callback.judge,
    ):
        assert trace_rules.check(function)
