"""Settings of torch and of Python that answers and timings depend on, and that a kernel must leave as they are."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch


class _Setting(NamedTuple):
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _of_torch() -> dict[str, _Setting]:
    c: Any = torch._C
    names = {
        "the float32 matmul precision": "float32_matmul_precision",
        "torch.backends.cuda.matmul.allow_tf32": "cublas_allow_tf32",
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": "cublas_allow_fp16_reduced_precision_reduction",
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": "cublas_allow_bf16_reduced_precision_reduction",
        "torch.backends.cudnn.allow_tf32": "cudnn_allow_tf32",
        "torch.backends.cudnn.enabled": "cudnn_enabled",
        "torch.backends.cudnn.benchmark": "cudnn_benchmark",
        "torch.backends.cudnn.deterministic": "cudnn_deterministic",
        "torch.backends.mkldnn.enabled": "mkldnn_enabled",
        "deterministic algorithms": "deterministic_algorithms",
    }  # fmt: skip
    functions = {label: (f"_get_{name}", f"_set_{name}") for label, name in names.items()} | {
        f"torch.backends.cuda.{name}_sdp_enabled": (f"_get_{name}_sdp_enabled", f"_set_sdp_use_{name}")
        for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    }
    return {
        label: _Setting(getattr(c, get), getattr(c, put))
        for label, (get, put) in functions.items()
        if hasattr(c, get) and hasattr(c, put)
    }


def _pop_to(length: Callable[[], int], pop: Callable[[], object]) -> Callable[[int], None]:
    def write(wanted: int) -> None:
        while length() > wanted:
            pop()

    return write


def _settings() -> Mapping[str, _Setting]:
    c: Any = torch._C
    return {
        **_of_torch(),
        "the default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
        "grad mode": _Setting(torch.is_grad_enabled, torch._C._set_grad_enabled),
        "autocast on the CPU": _Setting(
            lambda: torch.is_autocast_enabled("cpu"), lambda value: torch.set_autocast_enabled("cpu", value)
        ),
        "autocast on the GPU": _Setting(
            lambda: torch.is_autocast_enabled("cuda"), lambda value: torch.set_autocast_enabled("cuda", value)
        ),
        "torch's thread count": _Setting(torch.get_num_threads, torch.set_num_threads),
        "the number of function modes": _Setting(
            c._len_torch_function_stack, _pop_to(c._len_torch_function_stack, c._pop_torch_function_stack)
        ),
        "the number of dispatch modes": _Setting(
            c._len_torch_dispatch_stack,
            _pop_to(c._len_torch_dispatch_stack, lambda: c._pop_torch_dispatch_stack(None)),
        ),
        "the garbage collector": _Setting(gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        "the trace function": _Setting(sys.gettrace, sys.settrace),
        "the profile function": _Setting(sys.getprofile, sys.setprofile),
        "the trace function of threads": _Setting(threading.gettrace, threading.settrace),
        "the profile function of threads": _Setting(threading.getprofile, threading.setprofile),
        "the switch interval": _Setting(sys.getswitchinterval, sys.setswitchinterval),
    }


# Taken before any kernel could replace them.
_SETTINGS = _settings()


def read() -> dict[str, Any]:
    """All settings by their names in messages."""
    return {label: _value(setting) for label, setting in _SETTINGS.items()}


def put_back(before: Mapping[str, Any]) -> list[str]:
    """Give the settings that changed their values of `before`; what changed, in words."""
    after = read()
    changed = [label for label, old in before.items() if not _same(after[label], old)]
    for label in changed:
        # Some go together: one may have its value again, or cannot be read before the other has.
        if not _same(_value(_SETTINGS[label]), before[label]) and not isinstance(before[label], _Unreadable):
            _SETTINGS[label].write(before[label])
    return [f"{label} from {_shown(before[label])} to {_shown(after[label])}" for label in changed]


class _Unreadable(NamedTuple):
    """Torch refuses to tell, such as when its older and newer flags of precision are mixed."""

    error: str


def _value(setting: _Setting) -> Any:
    try:
        return setting.read()
    except RuntimeError as error:
        return _Unreadable(type(error).__name__)


def _same(new: Any, old: Any) -> bool:
    # Hooks are compared by identity alone: their own __eq__ is the kernel's code.
    plain = isinstance(old, (bool, int, float, str, tuple))
    return new is old or (plain and type(new) is type(old) and bool(new == old))


def _shown(value: Any) -> str:
    plain = isinstance(value, (bool, int, float, str, torch.dtype)) or value is None
    return str(value).removeprefix("torch.") if plain else type(value).__name__
