"""Work that a kernel leaves on other streams, on a GPU: found however fast it is, and nothing else is accused."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.build import build
from pytest_cgins.core import documents
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.core.trace import Argument, Context, OpCall, TensorMeta, Value
from pytest_cgins.run.verification_service import VerificationService
from pytest_cgins.verify.probes import on_stream

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

DEVICE = "cuda:0"
RELU = "torch.nn.functional.relu"
ADVERSARIAL = Path(__file__).parents[1] / "adversarial/kernels"
LAUNCHER = """// cgins: relu(Tensor input) -> Tensor
#include <cuda_runtime.h>

__global__ void relu_each(const float* x, float* y, int64_t n) {{
  const int64_t i = blockIdx.x * int64_t{{blockDim.x}} + threadIdx.x;
  if (i < n) y[i] = x[i] < 0 ? 0 : x[i];
}}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {{
  static cudaStream_t side = nullptr;
  static cudaEvent_t fork = nullptr, join = nullptr;
  if (!side) {{
    CGINS_CUDA_CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CGINS_CUDA_CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CGINS_CUDA_CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  }}
  const int64_t n = cgins::numel(input);
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  {body}
  CGINS_LAUNCH_CHECK();
  return 0;
}}
"""
LAUNCH = "relu_each<<<(n + 255) / 256, 256, 0, {}>>>(x, y, n);"
PLAIN = LAUNCH.format("stream")
FORKED = (
    "CGINS_CUDA_CHECK(cudaEventRecord(fork, stream)); CGINS_CUDA_CHECK(cudaStreamWaitEvent(side, fork, 0)); "
    + LAUNCH.format("side")
)
JOINED = FORKED + (
    " CGINS_CUDA_CHECK(cudaEventRecord(join, side)); CGINS_CUDA_CHECK(cudaStreamWaitEvent(stream, join, 0));"
)
WAITS = PLAIN + " CGINS_CUDA_CHECK(cudaStreamSynchronize(stream));"
WAITS_FOR_ITS_OWN = FORKED + " CGINS_CUDA_CHECK(cudaStreamSynchronize(side));"
ALLOCATES = (
    "void* scratch = nullptr; CGINS_CUDA_CHECK(cudaMalloc(&scratch, 1024)); "
    + PLAIN
    + " CGINS_CUDA_CHECK(cudaFree(scratch));"
)
CAPTURES_ITSELF = (
    "cudaGraph_t graph; cudaGraphExec_t made; "
    "CGINS_CUDA_CHECK(cudaStreamBeginCapture(side, cudaStreamCaptureModeRelaxed)); "
    + LAUNCH.format("side")
    + " CGINS_CUDA_CHECK(cudaStreamEndCapture(side, &graph)); "
    "CGINS_CUDA_CHECK(cudaGraphInstantiate(&made, graph, 0)); CGINS_CUDA_CHECK(cudaGraphLaunch(made, stream)); "
    "CGINS_CUDA_CHECK(cudaGraphExecDestroy(made)); CGINS_CUDA_CHECK(cudaGraphDestroy(graph));"
)
PYTHON = "import torch\n\nside = torch.cuda.Stream()\n\ndef relu(input):\n"
TORCH = "    return input.clamp(min=0)\n"
READS_BACK = "    return input.clamp(min=0) if input.sum().item() < 1e30 else input\n"
RANDOM = "    return input.clamp(min=0) + torch.rand_like(input) * 0\n"
ON_A_SIDE_STREAM = """
    current = torch.cuda.current_stream()
    scratch = input.clone()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        scratch.record_stream(side)
        out = scratch.clamp(min=0)
"""
JOINED_IN_PYTHON = (
    ON_A_SIDE_STREAM + "    current.wait_stream(side)\n    out.record_stream(current)\n    return out\n"
)
_numbers = itertools.count()


@pytest.fixture
def launcher(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Builds a launcher's text, as JSON of a CompiledKernel."""
    if not shutil.which("nvcc"):
        pytest.skip("no nvcc")

    def make(text: str) -> dict[str, Any]:
        file = tmp_path / f"relu_{next(_numbers)}.cu"
        file.write_text(text)
        source = KernelSource(
            kernel="relu", implementation=file.stem, op=RELU, device="cuda", contract="launcher", entry="relu",
            schema="relu(Tensor input) -> Tensor", files=(str(file),),
        )  # fmt: skip
        document: dict[str, Any] = documents.dump_python(build(source, cache=tmp_path / "cache"))
        return document

    return make


@pytest.fixture
def python(tmp_path: Path) -> Callable[[str, str], dict[str, Any]]:
    """Makes a Python kernel of a module's text, as JSON of a CompiledKernel."""

    def make(text: str, entry: str = "relu") -> dict[str, Any]:
        module = f"late_relu_{next(_numbers)}"
        (tmp_path / f"{module}.py").write_text(text)
        source = KernelSource(
            kernel="relu", implementation="text", op=RELU, device="cuda", contract="python", entry=entry,
            schema="", files=(str(tmp_path / f"{module}.py"),), module=module, import_root=str(tmp_path),
        )  # fmt: skip
        compiled = CompiledKernel(source=source, library="", key=module, build_seconds=0.0, cached=True)
        document: dict[str, Any] = documents.dump_python(compiled)
        return document

    return make


def a_set(tensor: torch.Tensor) -> tuple[dict[str, Any], Any]:
    arguments = (
        Argument(name="input", value=Value(kind="tensor", value=0), passed="positional"),
        Argument(name="inplace", value=Value(kind="bool", value=False), passed="default"),
    )
    header, buffer = pack([tensor])
    output = TensorMeta(
        dtype="float32", shape=tuple(tensor.shape), stride=tensor.stride(), offset=0, storage=0
    )
    one = {
        "name": "recorded",
        "call": documents.dump_python(OpCall(op=RELU, arguments=arguments)),
        "tensors": header,
        "outputs": [documents.dump_python(output)],
        "context": documents.dump_python(Context()),
        "mutated": [],
    }
    return one, buffer


def late(service: VerificationService, kernel: Any, numel: int = 330_000) -> tuple[dict[str, Any], bool]:
    """What the probe says of a kernel, and whether its first answer was right."""
    tensor = torch.linspace(-1, 1, numel)
    one, buffer = a_set(tensor)
    params = {"kernel": kernel, "device": DEVICE, "sets": [one], "probes": ["late_work", "on_stream"]}
    result, buffers = service.run(params, [buffer])
    assert result["sets"][0]["error"] is None
    (given,) = unpack(result["sets"][0]["tensors"], buffers[0], "cpu")
    facts = result["observed"]["on_stream"]
    assert "not_run" not in facts
    return {"facts": facts, "deviations": result["deviations"]}, torch.equal(given, tensor.relu())


HONEST = {
    "plain": PLAIN,
    "joined": JOINED,
    "captures": CAPTURES_ITSELF,
    "waits": WAITS,
    "waits-for-its-own": WAITS_FOR_ITS_OWN,
    "allocates": ALLOCATES,
}
LEAVES = {
    "legacy": "relu_each<<<(n + 255) / 256, 256>>>(x, y, n);",
    "legacy, waits": "relu_each<<<(n + 255) / 256, 256>>>(x, y, n); cudaDeviceSynchronize();",
    "per thread": LAUNCH.format("cudaStreamPerThread"),
    "its own": LAUNCH.format("side"),
    "its own, waits": LAUNCH.format("side") + " cudaStreamSynchronize(side);",
    "joined, not forked": LAUNCH.format("side")
    + " CGINS_CUDA_CHECK(cudaEventRecord(join, side)); CGINS_CUDA_CHECK(cudaStreamWaitEvent(stream, join, 0));",
    "waits, then copies": PLAIN
    + " cudaStreamSynchronize(stream); cudaMemcpyAsync(y, x, 4, cudaMemcpyDeviceToDevice, 0);",
    "a copy": PLAIN
    + " cudaMemcpyAsync(y, y, 4, cudaMemcpyDeviceToDevice, 0); cudaMemsetAsync(y, 0, 4, side);",
}
"""Launches that nothing orders behind the given stream's work."""
HONEST_IN_PYTHON = {
    "torch": TORCH,
    "joined": JOINED_IN_PYTHON,
    "reads-back": READS_BACK,
    "random": RANDOM,
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_launcher_is_not_accused(launcher: Callable[[str], Any], name: str) -> None:
    """Whether it can be captured or not; and the next kernel of the process runs as if nothing had been."""
    service = VerificationService()
    seen, right = late(service, launcher(LAUNCHER.format(body=HONEST[name])))
    assert (seen["deviations"], right, service.fatal) == ([], True, False)
    assert on_stream.judge(seen["facts"]) == ""
    assert seen["facts"]["early"] is False
    assert late(service, launcher(LAUNCHER.format(body=PLAIN)))[1]


@pytest.mark.parametrize("numel", [1000, 330_000, 2**24])
@pytest.mark.parametrize("name", LEAVES)
def test_a_launcher_that_leaves_its_stream_is_found(
    launcher: Callable[[str], Any], name: str, numel: int
) -> None:
    """Each time, however fast it is, and whether or not it waits for itself."""
    kernel = launcher(LAUNCHER.format(body=LEAVES[name]))
    for _ in range(3):
        seen, _ = late(VerificationService(), kernel, numel)
        assert "another stream than the one it is given" in on_stream.judge(seen["facts"])


ON_DEFAULT = "    with torch.cuda.stream(torch.cuda.default_stream()):\n        return input.clamp(min=0)\n"
ON_ITS_OWN = "    with torch.cuda.stream(side):\n        return input.clamp(min=0)\n"


@pytest.mark.parametrize(
    ("body", "accused", "told"),
    [(ON_DEFAULT, False, True), (ON_ITS_OWN, True, False), (JOINED_IN_PYTHON, False, False)],
)
def test_python_may_count_on_the_default_stream(
    python: Callable[..., Any], body: str, accused: bool, told: bool
) -> None:
    """It is told so; a stream that waits not even for that one is a fault."""
    seen, _ = late(VerificationService(), python(PYTHON + body))
    assert (bool(on_stream.judge(seen["facts"])), bool(on_stream.notes(seen["facts"]))) == (accused, told)


@pytest.mark.parametrize("name", HONEST_IN_PYTHON)
def test_an_honest_kernel_in_python_is_not_accused(python: Callable[..., Any], name: str) -> None:
    """It is not captured: torch's allocator would not know."""
    service = VerificationService()
    seen, right = late(service, python(PYTHON + HONEST_IN_PYTHON[name]))
    facts = {"direct": False, "early": False}
    assert (seen, right, service.fatal) == ({"facts": facts, "deviations": []}, True, False)
    assert late(service, python(PYTHON + TORCH))[1]
    torch.rand(8, device=DEVICE).sum().item()


@pytest.mark.parametrize("numel", [1000, 330_000, 2**24])
def test_fast_work_that_waits_for_the_caller_is_found(launcher: Callable[[str], Any], numel: int) -> None:
    """Each time, whether it was done before anyone looked, or on a busy GPU was not."""
    kernel = launcher(LAUNCHER.format(body=FORKED))
    told = {"direct": True, "early": False}
    for _ in range(5):
        seen, _ = late(VerificationService(), kernel, numel)
        assert seen["facts"] in ({**told, "late": True}, {**told, "late": False, "unjoined": True})


def test_a_copy_first_and_the_answer_later_is_found(launcher: Callable[[str], Any]) -> None:
    """The collected kernel; afterwards the same process runs others, or says that it will not."""
    service = VerificationService()
    seen, _ = late(service, launcher((ADVERSARIAL / "w09_copy_then_stream.cu").read_text()))
    assert "does not wait for" in on_stream.judge(seen["facts"])
    if not service.fatal:
        assert late(service, launcher(LAUNCHER.format(body=PLAIN)))[1]


def test_work_that_waits_for_nobody_is_found_by_its_length(launcher: Callable[[str], Any]) -> None:
    """It is in no capture: the answer changes after the call."""
    seen, right = late(VerificationService(), launcher((ADVERSARIAL / "w09_side_stream.cu").read_text()))
    assert [one["probe"] for one in seen["deviations"]] == ["late_work"]
    assert not right


def test_triton_on_a_side_stream_is_found(python: Callable[..., Any]) -> None:
    """The same for a Triton kernel that sleeps first; while it is compiled, the sleep ends."""
    pytest.importorskip("triton")
    service = VerificationService()
    kernel = python((ADVERSARIAL / "w09_triton_stream.py").read_text(), "kernel")
    late(service, kernel, numel=160_000)
    # A size of its own: in memory that holds an earlier test's right answer nothing would change.
    seen, right = late(service, kernel, numel=500_000)
    assert ([one["probe"] for one in seen["deviations"]], right) == (["late_work"], False)


def test_looking_takes_less_than_thirty_milliseconds(launcher: Callable[[str], Any]) -> None:
    """The median of what the probe adds to a case, run and look at the process included."""
    from pytest_cgins.building.loading.callable import load
    from pytest_cgins.verify.messages import RunKernel, read
    from pytest_cgins.verify.probe_support.process_watch import Watch
    from pytest_cgins.verify.probe_support.set_trial import Sent, SetTrial

    kernel = launcher(LAUNCHER.format(body=JOINED))
    one, buffer = a_set(torch.linspace(-1, 1, 330_000))
    request = read(RunKernel, {"kernel": kernel, "device": DEVICE, "sets": [one]})
    watch = Watch(frozenset(), request)
    sent = Sent(request.sets[0], buffer, DEVICE)
    trial = SetTrial(load(request.kernel), request.sets[0], sent, DEVICE, watch)
    trial.first()
    taken = []
    for _ in range(11):
        start = time.perf_counter()
        assert on_stream.observe(trial, direct=True) == {
            "direct": True,
            "early": False,
            "late": False,
            "unjoined": False,
        }
        assert on_stream.usable(trial)
        taken.append(time.perf_counter() - start)
    assert sorted(taken)[5] < 30e-3
