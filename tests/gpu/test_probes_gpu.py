"""Probes of memory and of timing, on a GPU."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core import documents
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.core.trace import Argument, Context, OpCall, TensorMeta, Value
from pytest_cgins.run.timing_service import TimingService
from pytest_cgins.run.verification_service import VerificationService
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.timing.least_work import Work
from pytest_cgins.verify.probe_support import memory
from pytest_cgins.verify.probes import content_cache, l2_carve_out, memory_leak, memory_use, physical_floor
from tests.whole_timing import Whole, here, measured

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
RELU = "torch.nn.functional.relu"
HEADER = """
import ctypes
import torch

cuda = ctypes.CDLL("libcuda.so.1")
KEPT = []
torch.cuda.init()
"""
RIGHT = "def relu(input): return input.clamp(min=0)"
SETS_ASIDE = """
cuda.cuCtxSetLimit(6, ctypes.c_size_t(1 << 20))

def relu(input):
    return input.clamp(min=0)
"""
SETS_ASIDE_WHEN_CALLED = """
def relu(input):
    cuda.cuCtxSetLimit(6, ctypes.c_size_t(1 << 20))
    return input.clamp(min=0)
"""
COUNTS_ON_THE_DEVICE = """
count = torch.zeros((), dtype=torch.int64, device="cuda")

def relu(input):
    count.add_(1)
    return torch.where(count < 100, input.clamp(min=0), input)
"""
KEEPS_BY_CONTENT = """
answers = {}

def relu(input):
    key = input.cpu().numpy().tobytes()
    if key not in answers:
        torch.cuda._sleep(10_000_000)  # longer than what a loaded host adds
        answers[key] = input.clamp(min=0)
    return answers[key].clone()
"""
LEAKS_THROUGH_TORCH = """
def relu(input):
    KEPT.append(torch.empty(1000, device="cuda"))
    return input.clamp(min=0)
"""
LEAKS_THROUGH_THE_DRIVER = """
def relu(input):
    cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4 << 20))
    return input.clamp(min=0)
"""
LEAKS_THROUGH_THE_POOL = """
def relu(input):
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    cuda.cuMemAllocAsync(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4096), stream)
    return input.clamp(min=0)
"""
LEAKS_LARGE_TENSORS = LEAKS_THROUGH_TORCH.replace("1000", "1 << 20")
KEEPS_TABLES = """
def relu(input):
    if not KEPT:
        KEPT.append(ctypes.c_uint64())
        assert cuda.cuMemAlloc_v2(ctypes.byref(KEPT[0]), ctypes.c_size_t(2 << 30)) == 0
    return input.clamp(min=0)
"""
NEIGHBOUR = """
import ctypes, random, time

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
held = []
print("ready", flush=True)
while True:
    if len(held) > 3 or (held and random.random() < 0.5):
        assert cuda.cuMemFree_v2(held.pop(random.randrange(len(held)))) == 0
    else:
        pointer = ctypes.c_uint64()
        nbytes = random.randint(50, 500) << 20
        if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes)) == 0:
            held.append(pointer)
    time.sleep(random.uniform(0.002, 0.01))
"""
WASTES = """
def relu(input):
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    return input.clamp(min=0)
"""
_numbers = itertools.count()


@pytest.fixture
def kernel(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Makes a Python kernel of a module's text, as JSON of a CompiledKernel."""

    def make(text: str) -> dict[str, Any]:
        module = f"probed_gpu_relu_{next(_numbers)}"
        (tmp_path / f"{module}.py").write_text(HEADER + text)
        source = KernelSource(
            kernel="relu", implementation="text", op=RELU, device="cuda", contract="python", entry="relu",
            schema="", files=(str(tmp_path / f"{module}.py"),), module=module, import_root=str(tmp_path),
        )  # fmt: skip
        compiled = CompiledKernel(source=source, library="", key=module, build_seconds=0.0, cached=True)
        document: dict[str, Any] = documents.dump_python(compiled)
        return document

    return make


def a_set(tensor: torch.Tensor, name: str) -> tuple[dict[str, Any], Any]:
    arguments = (
        Argument(name="input", value=Value(kind="tensor", value=0), passed="positional"),
        Argument(name="inplace", value=Value(kind="bool", value=False), passed="default"),
    )
    header, buffer = pack([tensor])
    output = TensorMeta(
        dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), stride=tensor.stride(), offset=0,
        storage=0,
    )  # fmt: skip
    one = {
        "name": name,
        "call": documents.dump_python(OpCall(op=RELU, arguments=arguments)),
        "tensors": header,
        "outputs": [documents.dump_python(output)],
        "context": documents.dump_python(Context()),
        "mutated": [],
    }
    return one, buffer


def timed(kernel: Any, probes: list[str], sets: list[Any]) -> Whole:
    params = {
        "kernel": kernel, "device": DEVICE, "import_root": "", "sets": [one for one, _ in sets], "probes": probes,
    }  # fmt: skip
    return measured(here(TimingService()), params, [buffer for _, buffer in sets])


def observed(kernel: Any) -> dict[str, Any]:
    one, buffer = a_set(torch.randn(1000), "recorded")
    params = {"kernel": kernel, "device": DEVICE, "sets": [one], "probes": ["memory_use", "memory_leak"]}
    result, _ = VerificationService().run(params, [buffer])
    assert result["sets"][0]["error"] is None
    facts: dict[str, Any] = result["observed"]
    return facts


@pytest.fixture
def neighbour() -> Iterator[None]:
    """Another process that takes and gives back hundreds of megabytes of the GPU, all the time."""
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


@pytest.fixture(params=["as-told", "untold"])
def telling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NVML as it is here, and as if it did not tell what this process holds."""
    if request.param == "untold":
        monkeypatch.setattr(memory, "own_nbytes", lambda _device: None)


@pytest.mark.parametrize("text", [SETS_ASIDE, SETS_ASIDE_WHEN_CALLED])
def test_a_carve_out_is_found_and_given_back(kernel: Callable[[str], Any], text: str) -> None:
    """Set at import or in a call: the probe tells its size, and the next kernel finds none."""
    sets = [a_set(torch.randn(10_000), "0")]
    observed = timed(kernel(text), ["l2_carve_out"], sets).observed
    assert "of the L2 aside for itself" in l2_carve_out.judge(observed["l2_carve_out"])
    observed = timed(kernel(RIGHT), ["l2_carve_out"], sets).observed
    assert l2_carve_out.judge(observed["l2_carve_out"]) == ""


@pytest.mark.parametrize(("text", "right"), [(RIGHT, True), (COUNTS_ON_THE_DEVICE, False)])
def test_answers_of_graphs_are_judged(kernel: Callable[[str], Any], text: str, right: bool) -> None:
    """What the last replay of a graph left is handed over, and one call afterwards, for both sets of numbers."""
    inputs = {"0": torch.linspace(-1, 1, 10_000), "1": torch.linspace(2, -2, 10_000)}
    whole = timed(kernel(text), ["after_timing"], [a_set(x, name) for name, x in inputs.items()])
    assert whole.measurement.method == "cuda-graph"
    assert {(one["name"], one["when"]) for one in whole.answers} == {
        (name, when) for name in inputs for when in ("last", "after")
    }
    for one, buffer in zip(whole.answers, whole.buffers, strict=True):
        (output,) = unpack(one["tensors"], buffer, "cpu")
        expected = inputs[one["name"]].relu() if right else inputs[one["name"]]
        assert torch.equal(output, expected)


@pytest.mark.parametrize(("text", "stale"), [(RIGHT, False), (KEEPS_BY_CONTENT, True)])
def test_results_kept_by_content_are_seen(kernel: Callable[[str], Any], text: str, stale: bool) -> None:
    """A kernel that looks answers up takes longer on numbers that it never saw."""
    observed = timed(kernel(text), ["content_cache"], [a_set(torch.randn(10_000), "0")]).observed
    assert bool(content_cache.judge(observed["content_cache"])) is stale


@pytest.mark.usefixtures("telling")
@pytest.mark.parametrize(
    ("text", "where"),
    [
        (LEAKS_THROUGH_TORCH, "torch's allocator"),
        (LEAKS_LARGE_TENSORS, "torch's allocator"),
        (LEAKS_THROUGH_THE_DRIVER, "of the GPU"),
        (LEAKS_THROUGH_THE_POOL, "cudaMallocAsync"),
        (RIGHT, ""),
    ],
)
def test_leaks_of_device_memory(kernel: Callable[[str], Any], text: str, where: str) -> None:
    """Each way to get memory is watched, an honest kernel has none, and no leak is taken for a large call."""
    facts = observed(kernel(text))
    message = memory_leak.judge(facts["memory_leak"])
    assert (f"{where}) grows by about" in message) if where else message == ""
    assert memory_use.judge(facts["memory_use"]) == ""


@pytest.mark.usefixtures("telling", "neighbour")
def test_memory_of_other_processes_is_not_the_kernels(kernel: Callable[[str], Any]) -> None:
    """While another process takes and frees hundreds of megabytes, honest kernels hold and leaks are found."""
    for _ in range(20):
        facts = observed(kernel(RIGHT))
        assert memory_leak.judge(facts["memory_leak"]) == ""
        assert memory_use.judge(facts["memory_use"]) == ""
    for text in (LEAKS_THROUGH_THE_DRIVER, LEAKS_LARGE_TENSORS):
        facts = observed(kernel(text))
        assert ") grows by about" in memory_leak.judge(facts["memory_leak"]), facts["memory_leak"]
        assert memory_use.judge(facts["memory_use"]) == ""


@pytest.mark.usefixtures("neighbour")
def test_nvml_tells_what_this_process_holds() -> None:
    """Just what is allocated here is added, whatever others do; torch's allocator is told apart."""
    torch.cuda.empty_cache()
    own, beside = memory.own_nbytes(DEVICE), memory.held_beside_torch(DEVICE)
    if own is None or beside is None:
        pytest.skip("NVML does not tell here what this process holds")
    kept = torch.empty(1 << 28, dtype=torch.uint8, device=DEVICE)
    held = memory.own_nbytes(DEVICE)
    assert held is not None
    assert kept.numel() <= held - own < kept.numel() + memory.GRAIN_NBYTES
    assert memory.held_beside_torch(DEVICE) == pytest.approx(beside, abs=memory.GRAIN_NBYTES)


def test_tables_beside_torch_are_found_where_nvml_tells(kernel: Callable[[str], Any]) -> None:
    """Two gigabytes by cudaMalloc, taken in the first call for good."""
    message = memory_use.judge(observed(kernel(KEEPS_TABLES))["memory_use"])
    if memory.own_nbytes(DEVICE) is None:
        pytest.skip("NVML does not tell here what this process holds")
    assert message.startswith("what calls left on the GPU is ")


@pytest.mark.parametrize(("text", "much"), [(WASTES, True), (RIGHT, False)])
def test_device_memory_beyond_reason(kernel: Callable[[str], Any], text: str, much: bool) -> None:
    """A gigabyte of scratch for four kilobytes of inputs."""
    assert bool(memory_use.judge(observed(kernel(text))["memory_use"])) is much


def test_torch_itself_is_never_faster_than_the_floor(kernel: Callable[[str], Any]) -> None:
    """Cold and warm, small and large: the floor is below what the best kernels reach, and not far below it."""
    limits = timed_device(DEVICE).peaks()
    assert limits is not None
    for numel in (2**10, 2**20, 2**24, 2**27):
        sets = [a_set(torch.randn(numel), "0"), a_set(torch.randn(numel), "1")]
        measurement = timed(kernel(RIGHT), [], sets).measurement
        floor = physical_floor.floor_ns_per_call(
            Work(nbytes=8 * numel), limits, cold=measurement.cache == "cold"
        )
        taken = min(measurement.kernel.median_ns_per_call, measurement.torch.median_ns_per_call)
        assert floor < taken
        if numel == 2**27:
            assert taken < 2 * floor


def test_a_product_of_matrices_is_slower_than_its_floor() -> None:
    """cuBLAS at its best, in half precision."""
    limits = timed_device(DEVICE).peaks()
    assert limits is not None
    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.float16)
    floor = physical_floor.floor_ns_per_call(Work(flops=2 * 8192**3, dtype="float16"), limits, cold=False)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.mm(a, a)
    begin.record()
    for _ in range(10):
        torch.mm(a, a)
    end.record()
    end.synchronize()
    assert floor < begin.elapsed_time(end) * 1e5 < 4 * floor
