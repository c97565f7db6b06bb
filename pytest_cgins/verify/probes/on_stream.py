"""Probe `on_stream`: a GPU kernel works on the stream that it is given, and nowhere else unless events tie it to that one.

What leaves the stream is not ordered behind what the caller did before, nor before what the caller does next, and whoever
times the stream times nothing. Three ways to see it, neither of which reads a source:

- **Held stream.** A kernel of ours spins on the stream, the call is made behind it, and while it spins another stream looks
  at the memory that the call is to write. What has changed by then did not wait: it was launched on the legacy or
  per-thread default stream, on a stream of the kernel's own, by another thread, a library's handle, a copy, a callback.
- **Held default stream.** The other way about: the default stream spins, the call is made and its own stream waited for. What
  changes only when the default stream goes on was left there, by a kernel that waits for its stream before.
- **Capture.** The call is captured as into a CUDA graph, without being executed. Where an event of the caller's stream has
  brought another stream into the capture and none brings it back, CUDA ends it with the error "unjoined".

Launchers and device kernels trip: their contract gives them the stream. Torch extensions and Python kernels may count on the
default stream, where torch's users are: they trip only if that one, held, does not hold their work either, and get a note
otherwise. They are not captured: under them lies torch's allocator, and a capture that it does not know of left processes
that crashed later. Where a kernel's outputs are its own, only memory that is known to hold poison is looked at.

It is evaded by work whose results show in no output and no declared scratch memory before the stream goes on. Times hold
such work all the same: see `run.graph_replay`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from pytest_cgins.core.bitwise import memory_of
from pytest_cgins.verify.probe_support.rerun import attempt
from pytest_cgins.verify.probe_support.set_trial import PreparedCall, SetTrial

NAME = "on_stream"
DIRECT = ("launcher", "device")
"""Contracts that hand a kernel the stream to work on."""
UNJOINED = 904  # CUDA_ERROR_STREAM_CAPTURE_UNJOINED
LEAST_HOLD_S, MOST_HOLD_S = 4e-3, 1.0
"""How long the stream is held: four calls more than the least."""
LOOKED_AT_NBYTES = 2**24
"""At the beginning and at the end of each piece of memory."""
_HZ = 2e9  # about what a GPU's clock reaches; one that is slower holds longer
_POISON = 0xA5


def observe(trial: SetTrial, *, direct: bool) -> dict[str, Any]:
    """Facts about a kernel that has run well; {} of what cannot be known.

    Args:
        trial: a set that it ran on.
        direct: whether its contract gives it the stream; only then it is captured.
    """
    facts: dict[str, Any] = {"direct": direct}
    try:
        stream = _stream(trial)
        torch.cuda.synchronize(torch.device(trial.device))
        with torch.cuda.stream(stream):
            facts["early"] = _writes_early(trial)
            if direct and not facts["early"]:
                facts["late"] = _writes_late(trial)
        if facts["early"] and not direct:
            facts["early_on_default"] = _writes_early(trial)
    except BaseException as error:  # noqa: BLE001 - a kernel may raise anything here, SystemExit too
        return {"not_run": f"the kernel did not run once more: {type(error).__name__}: {error}"}
    if direct and not judge(facts):
        with suppress(BaseException):  # one that cannot be captured may be right
            facts["unjoined"] = trial.captured() == UNJOINED
    return facts


def _writes_early(trial: SetTrial) -> bool:
    """Whether a call writes while the current stream is held; False also where nothing could be seen."""
    rehearsal, call = trial.prepared(), trial.prepared()
    look = _stream(trial)
    torch.cuda.synchronize()
    start = time.perf_counter()
    outputs = rehearsal.run()
    torch.cuda.synchronize()
    hold_s = min(MOST_HOLD_S, LEAST_HOLD_S + 4 * (time.perf_counter() - start))
    poisoned = _poisoned(rehearsal, outputs, look)
    del outputs
    before = [_edges(tensor) for tensor in call.written]
    after = [torch.empty_like(edges) for edges in before]
    held, looked = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda._sleep(int(hold_s * _HZ))  # type: ignore[no-untyped-call]
    held.record()
    with torch.cuda.stream(look):  # queued before the call: that may wait for the stream
        torch.cuda._sleep(int(hold_s * _HZ / 2))  # type: ignore[no-untyped-call]
        for copy, tensor in zip(after, call.written, strict=True):
            _edges(tensor, into=copy)
        looked.record()
    outputs = call.run()
    known = [memory for memory in map(memory_of, outputs) if memory.data_ptr() in poisoned]
    seen = False
    while known and not seen and not held.query():  # type: ignore[no-untyped-call]
        with torch.cuda.stream(look):
            changed = any(map(_changed, known))
        seen = changed and not held.query()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    in_time = looked.elapsed_time(held) > 0
    return seen or (in_time and not all(map(torch.equal, before, after)))


def _writes_late(trial: SetTrial) -> bool:
    """Whether a call leaves writes to the default stream, or to one that waits for it; the current one is another."""
    call, current = trial.prepared(), torch.cuda.current_stream()
    default, opened = torch.cuda.default_stream(), torch.cuda.Event()  # type: ignore[no-untyped-call]
    [*map(_edges, call.written)]  # loads what is needed while a stream is held
    torch.cuda.synchronize()
    with torch.cuda.stream(default):
        torch.cuda._sleep(int(LEAST_HOLD_S * _HZ))  # type: ignore[no-untyped-call]
        opened.record()
    call.run()
    before = [_edges(tensor) for tensor in call.written]
    current.synchronize()
    held = not opened.query()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    return held and not all(map(torch.equal, before, map(_edges, call.written)))


def _stream(trial: SetTrial) -> torch.cuda.Stream:
    """A stream of high priority: torch reuses its streams, and these are rarely asked for."""
    return torch.cuda.Stream(torch.device(trial.device), priority=-1)  # type: ignore[no-untyped-call]


def _poisoned(call: PreparedCall, outputs: Sequence[torch.Tensor], look: torch.cuda.Stream) -> set[int]:
    """Poison what a call has allocated by itself, before it is given back; where it lies."""
    others = {memory_of(tensor).data_ptr() for tensor in (*call.inputs, *call.written)}
    own = [memory for memory in map(memory_of, outputs) if memory.data_ptr() not in others]
    for memory in own:
        memory.fill_(_POISON)
    torch.cuda.synchronize()
    with torch.cuda.stream(look):
        for memory in own:
            _changed(memory)  # CUDA loads code when it is first used, and waits for all streams then
    return {memory.data_ptr() for memory in own if memory.numel()}


def _edges(tensor: torch.Tensor, into: torch.Tensor | None = None) -> torch.Tensor:
    """A copy of the first and the last bytes of a tensor's memory."""
    octets = memory_of(tensor)
    middle = max(LOOKED_AT_NBYTES, octets.numel() - LOOKED_AT_NBYTES)
    return torch.cat([octets[:LOOKED_AT_NBYTES], octets[middle:]], out=into)


def _changed(memory: torch.Tensor) -> bool:
    """Whether poisoned memory holds anything else."""
    return bool((_edges(memory) != _POISON).any())


def usable(trial: SetTrial) -> bool:
    """Whether the process is as it was: memory can be allocated, and the kernel runs."""

    def once_more() -> list[torch.Tensor]:
        torch.empty(1, device=trial.device)
        return [] if trial.mutates else trial.rerun()

    # The first launch may still be told of an error that CUDA's runtime has kept for it.
    return any(attempt(once_more)[1] is None for _ in range(2))


# ---- what it means


def judge(facts: dict[str, Any]) -> str:
    """What is wrong; "" if nothing is."""
    if (facts.get("early") or facts.get("late")) and facts["direct"]:
        seen = "while the default one was held, that one was done, and memory changed afterwards"
        if facts.get("early"):
            seen = "while that one was held, memory that the call is to write had changed"
        return (
            f"the kernel works on another stream than the one it is given: {seen}\n→ put everything on `stream`: kernel<<<grid, block, shared, stream>>>, and so copies, "
            "memsets and handles of libraries"
        )
    if facts.get("unjoined"):
        return (
            "the kernel leaves work on another stream that the caller's stream does not wait for (captured into a CUDA "
            f"graph, the call ends with CUDA's error {UNJOINED}, unjoined)\n→ record an event behind that work, and let "
            "the caller's stream wait for it: cudaStreamWaitEvent"
        )
    if facts.get("early_on_default"):
        return (
            "the kernel works on a stream of its own that does not wait for the caller's, not even where that is the default "
            "one: while it was held, memory that the call is to write had changed\n→ work on "
            "torch.cuda.current_stream(), or let the other stream wait for it first, and it for the other one afterwards: "
            "wait_stream"
        )
    return ""


def notes(facts: Any) -> tuple[str, ...]:
    """What is told of a kernel that may count on the default stream, and does."""
    if not isinstance(facts, dict) or not facts.get("early") or judge(facts):
        return ()
    return (
        (
            "the kernel works on the default stream, whatever stream is current: under another one, or in a CUDA graph, its "
            "answer is not ordered with the caller's work (launch on torch.cuda.current_stream(), in C++ on "
            "at::cuda::getCurrentCUDAStream())"
        ),
    )
