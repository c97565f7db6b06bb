"""Probe `device_order`: on a GPU, a kernel waits for the work ahead of it, and is done when the work behind it begins.

Since Hopper a launch may begin before the one ahead of it on its stream has ended: that one says when
(`griddepcontrol.launch_dependents`), and each has to wait before it reads (`griddepcontrol.wait`). Whoever forgets to is
right behind work that ends before it says anything, as all torch's does, and wrong in a chain of such kernels. Here

- a kernel of ours lets others begin at once, and writes the call's inputs milliseconds later: who reads them before has read
  other numbers (CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization");
- a kernel of ours that may begin early, and waits as it ought to, copies the outputs at once: who ends before what it has
  begun does leaves other numbers there;
- calls on two sets take turns without a pause, while another stream keeps the memory busy: what one call has the device
  hold for the next must be the next's own.

Only the first `RELAYED_NBYTES` of each tensor come late or are copied. It is evaded by a race that is won each time.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Iterator, Sequence
from functools import cache

import torch

from pytest_cgins.building.loading import cuda_driver
from pytest_cgins.building.loading.launch_binding import Settings
from pytest_cgins.core.bitwise import all_same, memory_of, snapshot
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.verify.probe_support.rerun import Deviation, attempt
from pytest_cgins.verify.probe_support.set_trial import SetTrial
from pytest_cgins.verify.probes import repeat

NAME = "device_order"
LEAST_CAPABILITY = (9, 0)
"""Older GPUs end each launch before the next begins."""
LEAST_HOLD_S, MOST_HOLD_S = 4e-3, 1.0
"""How long our kernel holds the inputs back: four calls more than the least."""
RELAYED_NBYTES = 2**22
TURNS = 32
"""Calls in a row."""
MOST_TURNS_NBYTES = 2**30
"""Inputs of calls in a row, all of which are there at once."""
_BUSY_NBYTES, _BUSY_PASSES = 2**26, 256
_BLOCKS = 16
READS_EARLY = "a launch ahead that lets others begin before it writes the inputs"
ENDS_EARLY = "a launch behind that waits for the call's end, and reads at once"
IN_A_ROW = "calls on two sets of inputs that take turns without a pause"
REMEDY = (
    "\n→ call cudaGridDependencySynchronize() (PTX: griddepcontrol.wait, Triton: gdc_wait) in each kernel before it reads or "
    "writes what other launches use, or launch it without programmatic stream serialization"
)
_PTX = b"""
.version 7.8
.target sm_90
.address_size 64
.visible .entry relay(.param .u64 tasks, .param .u32 count, .param .u64 hold)
{
  .reg .pred %p;
  .reg .b16 %octet;
  .reg .b32 %left, %thread, %threads, %r;
  .reg .b64 %task, %now, %end, %first, %step, %from, %to, %size, %at, %address;
  griddepcontrol.wait;
  griddepcontrol.launch_dependents;
  ld.param.u64 %task, [tasks];
  ld.param.u32 %left, [count];
  ld.param.u64 %end, [hold];
  mov.u64 %now, %globaltimer;
  add.u64 %end, %end, %now;
HELD:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %p, %now, %end;
  @%p bra HELD;
  mov.u32 %threads, %ntid.x;
  mov.u32 %r, %ctaid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %thread, %r, %threads, %thread;
  cvt.u64.u32 %first, %thread;
  mov.u32 %r, %nctaid.x;
  mul.lo.u32 %threads, %threads, %r;
  cvt.u64.u32 %step, %threads;
NEXT:
  setp.eq.u32 %p, %left, 0;
  @%p bra DONE;
  ld.global.u64 %from, [%task];
  ld.global.u64 %to, [%task+8];
  ld.global.u64 %size, [%task+16];
  add.u64 %task, %task, 24;
  sub.u32 %left, %left, 1;
  mov.u64 %at, %first;
COPY:
  setp.ge.u64 %p, %at, %size;
  @%p bra NEXT;
  add.u64 %address, %from, %at;
  ld.volatile.global.u8 %octet, [%address];
  add.u64 %address, %to, %at;
  st.volatile.global.u8 [%address], %octet;
  add.u64 %at, %at, %step;
  bra COPY;
DONE:
  ret;
}
"""
"""Waits for the work ahead, lets the work behind begin, and copies so many stretches of memory after a while: tasks are
triples of 64 bits, from, to and bytes; `hold` is in ns."""


def why_not(device: str, *, direct: bool) -> str:
    """Why nothing begins early there; "" if it may."""
    if torch.cuda.get_device_capability(torch.device(device)) < LEAST_CAPABILITY:
        return "this GPU ends each launch before the next one begins"
    try:
        with torch.cuda.stream(_stream(device, direct=direct)):
            _Relay([]).launch()
    except LaunchError as error:
        return f"a launch of ours that may begin early is refused: {error}"
    return ""


def deviations(trials: Sequence[SetTrial], *, direct: bool) -> Iterator[Deviation]:
    """What differs from the first answers beside other work, behind what differs without it, where anything does.

    The first set is looked at, and one that takes turns with it.

    Args:
        trials: sets that the kernel ran on.
        direct: whether its contract gives it the stream; others may count on the default one, as threads of theirs do.
    """
    trial = trials[0]
    other = next((one for one in trials[1:] if trial.alike(one)), trial)
    with torch.cuda.stream(_stream(trial.device, direct=direct)):
        found, error = attempt(lambda: _beside_ours(trial) or _in_turns([trial, other]))
    if error is not None:
        yield Deviation(NAME, trial.name, [], error)
    elif isinstance(found, Deviation):
        if found.error is None:
            of = next(one for one in trials if one.name == found.name)
            alone = (repeat.once_more(of) for _ in range(TURNS))
            yield from itertools.islice((one for one in alone if one is not None), 1)
        yield found


def _stream(device: str, *, direct: bool) -> torch.cuda.Stream:
    at = torch.device(device)
    return torch.cuda.Stream(at) if direct else torch.cuda.default_stream(at)  # type: ignore[no-untyped-call]


def _beside_ours(trial: SetTrial) -> Deviation | None:
    """What a call between two launches of ours gives, or what the one behind it reads, instead of the answer."""
    rehearsal, call = trial.prepared(), trial.prepared()
    torch.cuda.synchronize()
    start = time.perf_counter()
    attempt(rehearsal.run)
    torch.cuda.synchronize()
    hold_s = min(MOST_HOLD_S, LEAST_HOLD_S + 4 * (time.perf_counter() - start))
    late = {
        memory.data_ptr(): (memory, tensor) for tensor in call.inputs if (memory := _first(tensor)).numel()
    }
    ahead = _Relay([(memory.clone(), memory) for memory, _ in late.values()], hold_s)
    for memory, tensor in late.values():
        _spoil(memory, tensor.dtype)
    torch.cuda.synchronize()
    ahead.launch()
    outputs, error = attempt(call.run)
    plain = [tensor for tensor in outputs if tensor.is_cuda and tensor.is_contiguous()]
    read = [torch.empty_like(tensor) for tensor in plain]
    behind = _Relay([(_octets(tensor), _octets(copy)) for tensor, copy in zip(plain, read, strict=True)])
    behind.launch()
    torch.cuda.synchronize()
    if error is not None or not all_same(outputs, trial.answer):
        return Deviation(NAME, trial.name, [*map(snapshot, outputs)], error, about=READS_EARLY)
    for tensor, copy in zip(plain, read, strict=True):
        _octets(copy)[RELAYED_NBYTES:] = _octets(tensor)[RELAYED_NBYTES:]
    if len(plain) == len(outputs) and not all_same(read, outputs):
        return Deviation(NAME, trial.name, read, about=ENDS_EARLY)
    return None


def _in_turns(trials: Sequence[SetTrial]) -> Deviation | None:
    """What a call gives instead of its answer while others are queued before and behind it."""
    first = trials[0].prepared()
    nbytes = sum(memory_of(tensor).numel() for tensor in (*first.inputs, *first.written))
    turns = min(TURNS, MOST_TURNS_NBYTES // max(1, nbytes))
    calls = [(trial, trial.prepared()) for trial in itertools.islice(itertools.cycle(trials), turns)]
    busy = torch.zeros(_BUSY_NBYTES, dtype=torch.uint8, device=trials[0].device)
    beside = torch.cuda.Stream(busy.device)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    _Relay([], LEAST_HOLD_S).launch()
    with torch.cuda.stream(beside):
        for _ in range(_BUSY_PASSES):
            busy.add_(1)
    answers = [(trial, *attempt(call.run)) for trial, call in calls]
    torch.cuda.synchronize()
    for trial, outputs, error in answers:
        if error is not None or not all_same(outputs, trial.answer):
            return Deviation(NAME, trial.name, [*map(snapshot, outputs)], error, about=IN_A_ROW)
    return None


class _Relay:
    """A launch of our kernel on the current stream.

    Args:
        tasks: memory to copy, and where to.
        hold_s: how long it waits before, in seconds.
    """

    def __init__(self, tasks: Sequence[tuple[torch.Tensor, torch.Tensor]], hold_s: float = 0.0) -> None:
        rows = [
            [source.data_ptr(), to.data_ptr(), min(source.numel(), RELAYED_NBYTES)] for source, to in tasks
        ]
        # Where the GPU reads it by itself: a copy to it would stand between the launches.
        self._tasks = torch.tensor(rows or [[0, 0, 0]], dtype=torch.int64).pin_memory()
        self._held = tasks
        settings = Settings(
            kernel="relay", grid=(_BLOCKS,), block=(256,), shared_nbytes=0, cluster=(), cooperative=False,
            begins_early=True, zero=(), where=f"probe {NAME}",
            arguments=(
                ctypes.c_uint64(self._tasks.data_ptr()), ctypes.c_uint32(len(rows)), ctypes.c_uint64(int(hold_s * 1e9)),
            ),
        )  # fmt: skip
        self._launch = cuda_driver.PreparedLaunch(_kernel(torch.cuda.current_device()), settings)

    def launch(self) -> None:
        """Queue it; LaunchError if CUDA refuses it."""
        self._launch.run(torch.cuda.current_stream().cuda_stream)


@cache
def _kernel(index: int) -> ctypes.c_void_p:
    cuda_driver.ensure_context(index, NAME)
    return cuda_driver.function(cuda_driver.load_module(_PTX, NAME), "relay", NAME)


def _octets(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8)


def _first(tensor: torch.Tensor) -> torch.Tensor:
    """The first bytes of the memory on which a tensor lies."""
    return memory_of(tensor)[:RELAYED_NBYTES]


def _spoil(memory: torch.Tensor, dtype: torch.dtype) -> None:
    """Put other numbers there: of whole numbers the same in another order, since they may be indices."""
    size = dtype.itemsize
    whole = memory[: memory.numel() // size * size]
    other = whole.roll(size)
    if dtype.is_floating_point and size > 1:
        other = other.view(dtype).mul(-2).add(0.5).view(torch.uint8)
    whole.copy_(other)
