"""The product of a gated MLP in CuTe's Python DSL: silu(gate) · up, an element a thread, whatever the type."""

from functools import cache

import cutlass
import torch
from cuda.bindings import driver
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

from kernels.checks import check_types

THREADS = 256


@cute.kernel
def _silu_mul_elements(gate: cute.Tensor, up: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(out):
        x = gate[index].to(cutlass.Float32)
        y = up[index].to(cutlass.Float32)
        out[index] = (x / (1.0 + cute.math.exp(-x)) * y).to(out.element_type)


@cute.jit
def _launch(gate: cute.Tensor, up: cute.Tensor, out: cute.Tensor, stream: driver.CUstream):
    grid = [cute.ceil_div(cute.size(out), THREADS), 1, 1]
    _silu_mul_elements(gate, up, out).launch(grid=grid, block=[THREADS, 1, 1], stream=stream)


def _flat(tensor: torch.Tensor):
    """A dense tensor as a vector whose length is an argument, not a constant of the kernel."""
    return from_dlpack(tensor.view(-1)).mark_layout_dynamic()


@cache
def _compiled(dtype: torch.dtype):
    """Compiled at the first call of a type. The samples say nothing but what the arguments look like."""
    sample = _flat(torch.empty(THREADS, dtype=dtype, device="cuda"))
    return cute.compile(_launch, sample, sample, sample, driver.CUstream(0))


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) · up of tensors of one shape, in fp32."""
    check_types(gate, up)
    if gate.shape != up.shape:
        raise ValueError(f"gate is {tuple(gate.shape)}, up is {tuple(up.shape)}")
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    if out.numel():
        stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        _compiled(gate.dtype)(_flat(gate), _flat(up), _flat(out), stream)
    return out
