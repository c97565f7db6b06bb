"""What is observed of a kernel's runs on a GPU: operators on its dispatch key, poison on its streams, no false alarms."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core import documents
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.core.trace import Argument, Context, OpCall, TensorMeta, Value
from pytest_cgins.run.verification_service import VerificationService
from pytest_cgins.verify.op_calls import op_calls
from pytest_cgins.verify.probes import op_callback

pytestmark = pytest.mark.gpu

WATCHED = ["poison", "op_callback", "integrity", "snooping"]
RELU = "torch.nn.functional.relu"
_numbers = itertools.count()


def _run(folder: Path, text: str) -> tuple[dict[str, Any], torch.Tensor]:
    """The service's result, and the kernel's answer on two rows."""
    module = f"watched_gpu_relu_{next(_numbers)}"
    (folder / f"{module}.py").write_text(text)
    source = KernelSource(
        kernel="relu", implementation="text", op=RELU, device="cuda", contract="python", entry="relu", schema="",
        files=(str(folder / f"{module}.py"),), module=module, import_root=str(folder),
    )  # fmt: skip
    compiled = CompiledKernel(source=source, library="", key=module, build_seconds=0.0, cached=True)
    tensor = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    header, buffer = pack([tensor])
    argument = Argument(name="input", value=Value(kind="tensor", value=0), passed="positional")
    meta = TensorMeta(dtype="float32", shape=(2, 2), stride=(2, 1), offset=0, storage=0)
    one = {
        "name": "recorded",
        "call": documents.dump_python(OpCall(op=RELU, arguments=(argument,))),
        "tensors": header,
        "outputs": [documents.dump_python(meta)],
        "context": documents.dump_python(Context()),
        "mutated": [],
        "op_calls": {"relu": 4},
    }
    params = {
        "kernel": documents.dump_python(compiled),
        "device": "cuda:0",
        "import_root": str(folder),
        "probes": WATCHED,
        "sets": [one],
    }
    result, buffers = VerificationService().run(params, [buffer])
    assert result["sets"][0]["error"] is None, result["sets"][0]["error"]
    return result, unpack(result["sets"][0]["tensors"], buffers[0], "cpu")[0]


def test_an_honest_kernel_is_not_suspected(tmp_path: Path) -> None:
    """CUDA is initialised, memory is taken on a side stream at once, and the answer is right."""
    text = (
        "import torch\ndef relu(input):\n    side = torch.cuda.Stream()\n"
        "    side.wait_stream(torch.cuda.current_stream())\n    out = torch.empty_like(input)\n"
        "    with torch.cuda.stream(side):\n        torch.where(input > 0, input, torch.zeros_like(input), out=out)\n"
        "    torch.cuda.current_stream().wait_stream(side)\n    return out\n"
    )
    result, answer = _run(tmp_path, text)
    assert result["observed"]["integrity"] == []
    assert result["observed"]["snooping"] == []
    assert op_callback.judge(result["observed"]["op_callback"], {"relu": 4}) == ""
    assert answer.tolist() == [[0.0, 2.0], [3.0, 0.0]]


def test_what_is_never_written_is_poison(tmp_path: Path) -> None:
    """Memory of the GPU, too."""
    text = (
        "import torch\ndef relu(input):\n    out = torch.empty_like(input)\n    out[0] = 1\n    return out\n"
    )
    _, answer = _run(tmp_path, text)
    assert answer[0].tolist() == [1.0, 1.0]
    assert answer[1].isnan().all()


@pytest.mark.parametrize(
    "body",
    [
        "return torch.relu(input)",
        "with ThreadPoolExecutor(1) as pool:\n        return pool.submit(torch.relu, input).result()",
    ],
)
def test_calls_of_the_op_are_seen(tmp_path: Path, body: str) -> None:
    """On the calling thread and on another one."""
    text = f"import torch\nfrom concurrent.futures import ThreadPoolExecutor\ndef relu(input):\n    {body}\n"
    result, answer = _run(tmp_path, text)
    assert "it runs aten::relu" in op_callback.judge(result["observed"]["op_callback"], {"relu": 4})
    assert answer.tolist() == [[0.0, 2.0], [3.0, 0.0]]


def test_a_replaced_clock_is_seen(tmp_path: Path) -> None:
    """Events are what times are taken from."""
    text = (
        "import torch\ntorch.cuda.Event.elapsed_time = lambda *_: 0.001\n"
        "def relu(input):\n    return input.clamp(min=0)\n"
    )
    original = torch.cuda.Event.elapsed_time
    result, _ = _run(tmp_path, text)
    assert "elapsed_time" in result["observed"]["integrity"][0]["what"]
    assert torch.cuda.Event.elapsed_time is original


def test_operators_of_a_library_are_recorded() -> None:
    """Convolutions and attention go to other operators than on a CPU, of the same families."""
    from pytest_cgins.core.layout import lay_out
    from pytest_cgins.verify.probe_support.op_families import family, is_free

    def families(function: str, *shapes: tuple[int, ...]) -> set[str]:
        arguments = tuple(
            Argument(name=f"a{number}", value=Value(kind="tensor", value=number), passed="positional")
            for number in range(len(shapes))
        )
        tensors = lay_out([torch.randn(shape) for shape in shapes])
        calls = op_calls(OpCall(op=function, arguments=arguments), tensors, Context(), "cuda:0")
        return {family(name) for name in calls if name and not is_free(name)} - {"add"}

    assert families("torch.nn.functional.conv2d", (1, 3, 8, 8), (4, 3, 3, 3), (4,)) == {"contraction"}
    shape = (1, 2, 64, 64)
    assert families("torch.nn.functional.scaled_dot_product_attention", shape, shape, shape) == {"attention"}
