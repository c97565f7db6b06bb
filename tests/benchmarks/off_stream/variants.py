"""One right softmax in Triton, launched in as many ways as there are functions: see matrix.py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import triton  # type: ignore[import-untyped,unused-ignore]
import triton.language as tl


@triton.jit
def _rows(x, y, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * width
    numbers = tl.load(x + row + at, mask=at < width, other=float("-inf"))
    powers = tl.exp(numbers - tl.max(numbers))
    tl.store(y + row + at, powers / tl.sum(powers), mask=at < width)


def _launch(x: Any, y: Any, first: int = 0, last: int | None = None) -> None:
    width = x.shape[-1]
    rows = slice(first, last)
    flat, out = x.view(-1, width)[rows], y.view(-1, width)[rows]
    _rows[(flat.shape[0],)](flat, out, width, BLOCK=triton.next_power_of_2(width), num_warps=8)


class _Side:
    stream: Any = None
    scratch: Any = None


def _side() -> Any:
    _Side.stream = _Side.stream or torch.cuda.Stream()
    return _Side.stream


def honest(input: Any, dim: int = -1) -> Any:
    out = torch.empty_like(input)
    _launch(input, out)
    return out


def _on(stream: Any, input: Any) -> Any:
    out = torch.empty_like(input)
    with torch.cuda.stream(stream):
        _launch(input, out)
    return out


def own(input: Any, dim: int = -1) -> Any:
    return _on(_side(), input)


def own_synchronized(input: Any, dim: int = -1) -> Any:
    out = _on(_side(), input)
    _side().synchronize()
    return out


def forked_and_joined(input: Any, dim: int = -1) -> Any:
    current = torch.cuda.current_stream()
    _side().wait_stream(current)
    out = _on(_side(), input)
    current.wait_stream(_side())
    return out


def entered(input: Any, dim: int = -1) -> Any:
    """The twin of `default` and `per_thread`: entering a stream takes the host longer than all else here."""
    return _on(torch.cuda.current_stream(), input)


def default(input: Any, dim: int = -1) -> Any:
    return _on(torch.cuda.default_stream(), input)


def default_synchronized(input: Any, dim: int = -1) -> Any:
    out = _on(torch.cuda.default_stream(), input)
    torch.cuda.synchronize()
    return out


def per_thread(input: Any, dim: int = -1) -> Any:
    return _on(torch.cuda.ExternalStream(2), input)


def _in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def thread(input: Any, dim: int = -1) -> Any:
    out = torch.empty_like(input)
    _in_thread(lambda: _launch(input, out)).join()  # a new thread's current stream is the default one
    return out


def half(input: Any, dim: int = -1) -> Any:
    out = torch.empty_like(input)
    rows = input.numel() // input.shape[-1]
    _launch(input, out, 0, rows // 2)
    with torch.cuda.stream(torch.cuda.default_stream()):
        _launch(input, out, rows // 2)
    return out


def copied(input: Any, dim: int = -1) -> Any:
    out, scratch = torch.empty_like(input), torch.empty_like(input)
    with torch.cuda.stream(torch.cuda.default_stream()):
        _launch(input, scratch)
        out.copy_(scratch)
    return out


def scratch(input: Any, dim: int = -1) -> Any:
    if _Side.scratch is None or _Side.scratch.shape != input.shape:
        _Side.scratch = torch.empty_like(input)
    with torch.cuda.stream(torch.cuda.default_stream()):
        _launch(input, _Side.scratch)
    return _Side.scratch * 1
