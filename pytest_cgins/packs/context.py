"""What besides the arguments decides an op's result: taken at recording, restored at replay; where and with what torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import torch

from pytest_cgins.core.device import DEVICES, device_of, torch_device
from pytest_cgins.core.layout import dtype_name
from pytest_cgins.core.trace import Autocast, Context, Origin

AUTOCAST_DEVICES = tuple(kind for kind in DEVICES if torch_device(kind).partition(":")[0] == kind)


def capture(training: bool | None = None) -> Context:
    """The present context. `training` is that of the innermost module, which torch does not keep."""
    return _context(
        grad_enabled=torch.is_grad_enabled(),
        inference_mode=torch.is_inference_mode_enabled(),
        autocast=tuple(
            torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
            for device in AUTOCAST_DEVICES
        ),
        default_dtype=torch.get_default_dtype(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        float32_matmul_precision=torch.get_float32_matmul_precision(),
        training=training,
    )


# Every recorded call asks for it; there are few different ones.
@cache
def _context(
    *,
    grad_enabled: bool,
    inference_mode: bool,
    autocast: tuple[torch.dtype | None, ...],
    default_dtype: torch.dtype,
    deterministic: bool,
    float32_matmul_precision: str,
    training: bool | None,
) -> Context:
    """What torch says, as it says it; autocast by device of `AUTOCAST_DEVICES`."""
    return Context(
        grad_enabled=grad_enabled,
        inference_mode=inference_mode,
        autocast=tuple(
            Autocast(device_type=device, dtype=dtype_name(dtype))
            for device, dtype in zip(AUTOCAST_DEVICES, autocast, strict=True)
            if dtype is not None
        ),
        default_dtype=dtype_name(default_dtype),
        deterministic=deterministic,
        float32_matmul_precision=float32_matmul_precision,
        training=training,
    )


@contextmanager
def restore(context: Context, device: str, *, repeatable: bool = True) -> Iterator[None]:
    """Run the body in a recorded context, and put everything back after it.

    Autocast recorded on one device type is applied to that of `device`, so that a trace of a GPU replays on
    the CPU. `training` is not restored: a call carries it in its arguments. With `repeatable` false cuDNN
    may take algorithms whose bits differ from run to run, as it does when it is timed.
    """
    old_dtype, old_precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    old_deterministic = torch.are_deterministic_algorithms_enabled()
    old_warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, old_dtype)
        stack.callback(torch.set_float32_matmul_precision, old_precision)
        torch.set_default_dtype(getattr(torch, context.default_dtype))
        torch.set_float32_matmul_precision(context.float32_matmul_precision)
        # Even to leave it off, torch imports its compiler: two seconds, and Triton before its mode is chosen.
        if context.deterministic or old_deterministic:
            stack.callback(torch.use_deterministic_algorithms, old_deterministic, warn_only=old_warn_only)
            torch.use_deterministic_algorithms(context.deterministic, warn_only=True)
        stack.enter_context(settled_cudnn(repeatable=repeatable))
        stack.enter_context(torch.inference_mode(mode=context.inference_mode))
        stack.enter_context(torch.set_grad_enabled(context.grad_enabled))
        _enter_autocast(stack, context, torch_device(device).partition(":")[0])
        if context.rng_seed is not None:
            stack.enter_context(device_of(device).forked_random())
            torch.manual_seed(context.rng_seed)
        yield


@contextmanager
def settled_cudnn(*, repeatable: bool = True) -> Iterator[None]:
    """Convolutions in full fp32, by default with the same bits each time.

    Unasked cuDNN takes TF32, whose 10 bits no kernel is to be held against, and algorithms that sum in
    any order. Matrix products follow `torch.get_float32_matmul_precision()`, which is recorded.
    """
    cudnn = torch.backends.cudnn
    before = (cudnn.allow_tf32, cudnn.deterministic)
    cudnn.allow_tf32, cudnn.deterministic = False, repeatable or before[1]
    try:
        yield
    finally:
        cudnn.allow_tf32, cudnn.deterministic = before


@contextmanager
def neutral() -> Iterator[None]:
    """The recorder's own arithmetic: no gradients, and untouched by the model's modes."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.no_grad())
        _enter_autocast(stack, Context(), "cpu")
        yield


def _enter_autocast(stack: ExitStack, context: Context, device_type: str) -> None:
    wanted: dict[str, str] = {}
    for state in context.autocast:
        wanted[device_type if len(context.autocast) == 1 else state.device_type] = state.dtype
    for device in AUTOCAST_DEVICES:
        if device in wanted:
            dtype = getattr(torch, wanted[device])
            stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=False))
        elif torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))


def origin_of(device: torch.device | str) -> Origin:
    """Device and torch of this process."""
    name = str(device)
    return Origin(device=name.partition(":")[0], device_name=device_of(name).model(), torch=torch.__version__)
