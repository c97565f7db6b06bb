"""The least time that a call can take."""

from __future__ import annotations

import pytest

from pytest_cgins.core.trace import Argument, OpCall, TensorMeta, Value
from pytest_cgins.timing.devices.cpu import Cpu
from pytest_cgins.timing.least_work import Work, least
from pytest_cgins.timing.peaks import Peaks
from pytest_cgins.verify.probes import physical_floor

GPU = Peaks(memory_bytes_per_s=4.8e12, cache_bytes_per_s=33e12, flops_per_s=1.0e15, cache_nbytes=50 * 2**20)


def meta(*shape: int, stride: tuple[int, ...] | None = None, dtype: str = "float32") -> TensorMeta:
    steps, step = [], 1
    for size in reversed(shape):
        steps.insert(0, step)
        step *= size
    return TensorMeta(dtype=dtype, shape=shape, stride=stride or tuple(steps), offset=0, storage=0)


def call(op: str, **given: Value) -> OpCall:
    arguments = tuple(Argument(name=name, value=value, passed="keyword") for name, value in given.items())
    return OpCall(op=op, arguments=arguments)


def test_an_elementwise_op_reads_and_writes_everything() -> None:
    """Each element is read once and written once; an output that is the input itself is not written."""
    x = meta(100, 200)
    assert least(call("torch.nn.functional.relu"), [x], [x]) == Work(160_000, 0, "float32")
    assert least(call("torch.relu_"), [x], []).nbytes == 80_000


def test_an_expanded_input_is_read_once() -> None:
    """A stride of 0 is no memory."""
    x = meta(100, 200, stride=(0, 1))
    assert least(call("torch.exp"), [x], [meta(100, 200)]).nbytes == 800 + 80_000


def test_a_product_of_matrices_has_operations() -> None:
    """One multiply-add a term, of which half is certain."""
    work = least(call("torch.matmul"), [meta(32, 64), meta(64, 16)], [meta(32, 16)])
    assert work == Work(4 * (32 * 64 + 64 * 16 + 32 * 16), 32 * 64 * 16, "float32")
    linear = least(call("torch.nn.functional.linear"), [meta(32, 64), meta(16, 64), meta(16)], [meta(32, 16)])
    assert linear.flops == 32 * 64 * 16
    scaled = least(call("torch._scaled_mm"), [meta(32, 64), meta(64, 16), meta(1), meta(1)], [meta(32, 16)])
    assert scaled.flops == 32 * 64 * 16
    added = least(call("torch.addmm"), [meta(16), meta(32, 64), meta(64, 16)], [meta(32, 16)])
    assert added.flops == 32 * 64 * 16


def test_equal_rows_need_not_be_multiplied_twice() -> None:
    """Of an expanded factor no operation is certain."""
    batch = meta(8, 32, 64, stride=(0, 64, 1))
    assert least(call("torch.bmm"), [batch, meta(8, 64, 16)], [meta(8, 32, 16)]).flops == 0


def test_a_convolution_has_those_of_its_channels() -> None:
    """The window's may be saved by transforms."""
    x, weight, out = meta(2, 16, 10, 10), meta(32, 16, 3, 3), meta(2, 32, 10, 10)
    assert least(call("torch.nn.functional.conv2d"), [x, weight], [out]).flops == 2 * out.numel * 16
    padded = meta(2, 32, 20, 20)
    assert least(call("torch.nn.functional.conv2d"), [x, weight], [padded]).flops == 2 * out.numel * 16


@pytest.mark.parametrize(("masked", "flops"), [(False, 2 * 4 * 10 * 20 * 16), (True, 0)])
def test_attention_with_a_mask_may_see_nothing(masked: bool, flops: int) -> None:
    """Both products, of which a causal mask leaves half; of any other mask nothing is known."""
    mask = Value(kind="tensor", value=3) if masked else Value(kind="none")
    tensors = [meta(2, 4, 10, 16), meta(2, 4, 10, 16), meta(2, 4, 10, 16)]
    op = call("torch.nn.functional.scaled_dot_product_attention", attn_mask=mask)
    work = least(op, tensors, [meta(2, 4, 10, 16)])
    assert work.flops == (2 * 4 * 10 * 10 * 32 if flops else 0)


@pytest.mark.parametrize(
    "op", ["torch.nn.functional.dropout", "torch.nn.functional.embedding", "models.blocks.relu",
           "torch.nn.functional.relu@backward(input)"],
)  # fmt: skip
def test_every_op_writes_its_outputs(op: str) -> None:
    """Tables, other people's functions, gradients: of those nothing else is certain. Views have no memory of their own."""
    assert least(call(op), [meta(10, 10)], [meta(10, 10)]) == Work(400)
    assert least(call(op), [meta(10, 10)], [meta(10, 10, stride=(0, 1))]) == Work(40)
    assert least(call(op), [meta(10, 10)], []) == Work()
    assert least(call(op), [], [meta(10, 10)]) == Work(400)


def test_no_call_is_shorter_than_a_launch() -> None:
    """Of a kernel that does nothing, of which half may overlap with the one before: most of the floor of tiny calls."""
    tiny, large = Work(nbytes=400), Work(nbytes=2**30)
    assert physical_floor.floor_ns_per_call(tiny, GPU, cold=False, launch_ns=960.0) == 480.0
    warm = physical_floor.floor_ns_per_call(large, GPU, cold=False)
    assert physical_floor.floor_ns_per_call(large, GPU, cold=False, launch_ns=960.0) == warm
    assert physical_floor.judge(7.0, 480.0)
    assert not physical_floor.judge(960.0, 480.0)


def test_the_memory_counts_for_what_no_cache_can_hold() -> None:
    """Cold: half of the bytes at least; larger than the cache: all but the cache; warm and small: the cache's own."""
    small = Work(nbytes=10 * 2**20)
    assert physical_floor.floor_ns_per_call(small, GPU, cold=True) == pytest.approx(5 * 2**20 / 4.8e3)
    assert physical_floor.floor_ns_per_call(small, GPU, cold=False) == pytest.approx(10 * 2**20 / 33e3)
    large = Work(nbytes=2**30)
    expected = (2**30 - 50 * 2**20) / 4.8e3
    assert physical_floor.floor_ns_per_call(large, GPU, cold=True) == pytest.approx(expected)
    assert physical_floor.floor_ns_per_call(large, GPU, cold=False) == pytest.approx(expected)


def test_operations_count_by_type() -> None:
    """fp16 at the device's peak, fp32 at half of it, fp8 at twice."""
    times = [
        physical_floor.floor_ns_per_call(Work(flops=10**12, dtype=dtype), GPU, cold=False)
        for dtype in ("float16", "float32", "float8_e4m3fn")
    ]
    assert times == pytest.approx([1e6, 2e6, 0.5e6])


def test_half_of_the_floor_trips() -> None:
    """There is room for what the peaks do not know; no floor accuses nobody."""
    assert physical_floor.judge(0.5e6, 1e6) == ""
    assert physical_floor.judge(1.0, 0.0) == ""
    message = physical_floor.judge(0.4e6, 1e6)
    assert "a call took 400.000 µs" in message
    assert "takes 1,000.000 µs at the peaks of the device" in message


def test_a_cpu_has_peaks_beyond_any_cpu() -> None:
    """More than a terabyte a second and core from the caches, and no claim about memory."""
    found = Cpu().peaks()
    assert found is not None
    assert found.cache_bytes_per_s >= 1e12
    assert found.memory_bytes_per_s == float("inf")
    assert physical_floor.floor_ns_per_call(Work(nbytes=4000), found, cold=True) < 10
