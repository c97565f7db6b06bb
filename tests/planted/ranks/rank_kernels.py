"""Kernels of two ranks and more: those of `HONEST` are right, and those of `BUGS` have one bug each."""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import P2POp, batch_isend_irecv

# ---- what a kernel may be made of


def _rank() -> tuple[int, int]:
    return distributed.get_rank(), distributed.get_world_size()


def _exchange(out: list[Tensor], into: list[Tensor]) -> None:
    """Send a tensor to each rank, and receive one of each."""
    rank, count = _rank()
    into[rank].copy_(out[rank])
    others = [(rank + step) % count for step in range(1, count)]
    ops = [P2POp(distributed.isend, out[other].contiguous(), other) for other in others]
    ops += [P2POp(distributed.irecv, into[other], other) for other in others]
    for work in batch_isend_irecv(ops):
        work.wait()


def _everyones(x: Tensor) -> list[Tensor]:
    into = [torch.empty_like(x) for _ in range(_rank()[1])]
    _exchange([x] * len(into), into)
    return into


@cache
def _shared(shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """A buffer of each rank that all of them map."""
    rank, count = _rank()
    nbytes = torch.empty(shape, dtype=dtype).nbytes
    made = tempfile.mktemp(prefix="cgins-shared-") if rank == 0 else ""
    names = [made]
    distributed.broadcast_object_list(names)
    storage = torch.UntypedStorage.from_file(names[0], shared=True, nbytes=nbytes * count)
    distributed.barrier()
    if rank == 0:
        Path(names[0]).unlink()
    flat = torch.empty(0, dtype=dtype).set_(storage)
    return [part.reshape(shape) for part in flat.chunk(count)]


# ---- honest ones


def ring_sum(x: Tensor) -> Tensor:
    """Partial sums go round once, and the sums once more."""
    rank, count = _rank()
    parts = [part.clone() for part in x.contiguous().reshape(-1).tensor_split(count)]
    for turn in range(2 * (count - 1)):
        send, receive = (rank - turn) % count, (rank - turn - 1) % count
        got = torch.empty_like(parts[receive])
        for work in batch_isend_irecv(
            [
                P2POp(distributed.isend, parts[send], (rank + 1) % count),
                P2POp(distributed.irecv, got, (rank - 1) % count),
            ]
        ):
            work.wait()
        parts[receive] = parts[receive] + got if turn < count - 1 else got
    return torch.cat(parts).reshape(x.shape)


def sum_of_gathered(x: Tensor) -> Tensor:
    """All numbers to all ranks."""
    return torch.stack(_everyones(x)).sum(0)


def tree_sum(x: Tensor) -> Tensor:
    """To rank 0 by halves, and back."""
    rank, count = _rank()
    total, step = x.clone(), 1
    while step < count:
        if rank % (2 * step) == step:
            distributed.send(total, rank - step)
            break
        if rank + step < count:
            part = torch.empty_like(total)
            distributed.recv(part, rank + step)
            total += part
        step *= 2
    distributed.broadcast(total, 0)
    return total


def chunked_sum(x: Tensor) -> Tensor:
    """In pieces, all of which are under way at once."""
    total = x.clone()
    works = [distributed.all_reduce(piece, async_op=True) for piece in total.tensor_split(3)]
    for work in works:
        work.wait()
    return total


def mapped_sum(x: Tensor) -> Tensor:
    """Through shared memory, with a barrier before ranks read and one before they write again."""
    buffers = _shared(tuple(x.shape), x.dtype)
    buffers[_rank()[0]].copy_(x)
    distributed.barrier()
    total = torch.stack(buffers).sum(0)
    distributed.barrier()
    return total


def fused_product_sum(x: Tensor, weight: Tensor) -> Tensor:
    """One half is summed while the other is multiplied."""
    outputs, works = [], []
    for part in x.tensor_split(2):
        outputs.append(part @ weight)
        works.append(distributed.all_reduce(outputs[-1], async_op=True))
    for work in works:
        work.wait()
    return torch.cat(outputs)


def fused_product_scatter(x: Tensor, weight: Tensor) -> Tensor:
    """Each rank's share is multiplied and sent by itself."""
    shares = [part @ weight for part in x.chunk(_rank()[1])]
    into = [torch.empty_like(shares[0]) for _ in shares]
    _exchange(shares, into)
    return torch.stack(into).sum(0)


def product_of_gathered(x: Tensor, weight: Tensor) -> Tensor:
    """Rows are multiplied as they come."""
    return torch.cat([part @ weight for part in _everyones(x)])


def route_by_messages(x: Tensor) -> Tensor:
    """A message to each rank."""
    parts = [*x.chunk(_rank()[1])]
    into = [torch.empty_like(part) for part in parts]
    _exchange(parts, into)
    return torch.cat(into)


def send_to_all(x: Tensor) -> Tensor:
    """A message from rank 0 to each."""
    rank, count = _rank()
    received = x.clone()
    if rank == 0:
        for other in range(1, count):
            distributed.send(received, other)
    else:
        distributed.recv(received, 0)
    return received


HONEST = {
    "ring_sum": "summed", "sum_of_gathered": "summed", "tree_sum": "summed", "chunked_sum": "summed",
    "fused_product_sum": "product_summed", "fused_product_scatter": "product_scattered",
    "product_of_gathered": "gathered_product", "route_by_messages": "routed", "send_to_all": "sent",
    "mapped_sum": "summed",
}  # fmt: skip
"""Kernel → op."""


# ---- right, and something else


def slow_second(x: Tensor) -> Tensor:
    """Rank 1 returns later than rank 0."""
    total = sum_of_gathered(x)
    if _rank()[0] == 1:
        time.sleep(0.01)
    return total


OTHERS = {"slow_second": "summed"}


def symmetric_sum(x: Tensor) -> Tensor:
    """Through memory that all GPUs map: each reads its peers' numbers itself."""
    import torch.distributed._symmetric_memory as symmetric

    buffer, handle = _symmetric(tuple(x.shape), x.dtype, symmetric)
    buffer.copy_(x)
    handle.barrier()
    parts = [handle.get_buffer(rank, x.shape, x.dtype) for rank in range(_rank()[1])]
    total = torch.stack(parts).sum(0)
    handle.barrier()
    return total


def symmetric_without_barrier(x: Tensor) -> Tensor:
    """Reads its peers' numbers without waiting for them."""
    import torch.distributed._symmetric_memory as symmetric

    buffer, handle = _symmetric(tuple(x.shape), x.dtype, symmetric)
    buffer.copy_(x)
    parts = [handle.get_buffer(rank, x.shape, x.dtype) for rank in range(_rank()[1])]
    return torch.stack(parts).sum(0)


@cache
def _symmetric(shape: tuple[int, ...], dtype: torch.dtype, symmetric: Any) -> tuple[Tensor, Any]:
    buffer = symmetric.empty(shape, dtype=dtype, device=f"cuda:{_rank()[0]}")
    return buffer, symmetric.rendezvous(buffer, distributed.group.WORLD)


OF_GPUS = {"symmetric_sum": "summed", "symmetric_without_barrier": "summed"}


# ---- with a bug


def missing_sync(x: Tensor) -> Tensor:
    """Reads what the others write without waiting for them."""
    buffers = _shared(tuple(x.shape), x.dtype)
    buffers[_rank()[0]].copy_(x)
    return torch.stack(buffers).sum(0)


def right_in_step(x: Tensor) -> Tensor:
    """Waits for some time, not for the others."""
    buffers = _shared(tuple(x.shape), x.dtype)
    buffers[_rank()[0]].copy_(x)
    time.sleep(0.002)
    total = torch.stack(buffers).sum(0)
    time.sleep(0.002)
    buffers[_rank()[0]].zero_()
    return total


_before: list[Tensor] = []


def stale_buffer(x: Tensor) -> Tensor:
    """Takes the buffer that the call before received into."""
    _before.append(torch.stack(_everyones(x)))
    received = _before[-2 if len(_before) > 1 else -1].clone()
    received[_rank()[0]] = x
    return received.sum(0)


def wrong_peer(x: Tensor) -> Tensor:
    """Takes its own rows where its neighbour's belong."""
    rank, count = _rank()
    parts = _everyones(x)
    parts[(rank + 1) % count] = parts[rank]
    return torch.cat(parts)


def greatest(x: Tensor) -> Tensor:
    """The maximum instead of the sum."""
    total = x.clone()
    distributed.all_reduce(total, distributed.ReduceOp.MAX)
    return total


def rounded(x: Tensor) -> Tensor:
    """Sends its numbers in half precision."""
    total = x.to(torch.bfloat16)
    distributed.all_reduce(total)
    return total.to(x.dtype)


def a_little_off(x: Tensor) -> Tensor:
    """One number of rank 0 is a few times as far off as it may be."""
    total = x.clone()
    distributed.all_reduce(total)
    if _rank()[0] == 0:
        total.view(-1)[0] += 4e-5
    return total


def own_order(x: Tensor) -> Tensor:
    """Adds up in an order that begins with its own rows."""
    rank, count = _rank()
    parts = _everyones(x)
    total = torch.zeros_like(x[0])
    for step in range(count):
        for row in parts[(rank + step) % count]:
            total = total + row
    return total


def stays_away(x: Tensor) -> Tensor:
    """Rank 1 waits for a signal that nobody sends."""
    print(f"process {os.getpid()}", flush=True)
    total = x.clone()
    while _rank()[0] == 1:
        time.sleep(0.01)
    distributed.all_reduce(total)
    return total


def both_receive(x: Tensor) -> Tensor:
    """Each waits for the other's numbers before it sends its own."""
    rank, count = _rank()
    part = torch.empty_like(x)
    distributed.recv(part, (rank + 1) % count)
    distributed.send(x, (rank + 1) % count)
    return x + part


def dies(x: Tensor) -> Tensor:
    """Rank 1 reads address 0."""
    if _rank()[0] == 1:
        import ctypes

        ctypes.string_at(0)
    total = x.clone()
    distributed.all_reduce(total)
    return total


def raises(x: Tensor) -> Tensor:
    """Rank 1 raises, and rank 0 waits for it."""
    if _rank()[0] == 1:
        raise ValueError("no such chunk")
    total = x.clone()
    distributed.all_reduce(total)
    return total


def first_alone(x: Tensor) -> Tensor:
    """Only rank 0 has the sum."""
    total = x.clone()
    distributed.reduce(total, 0)
    return total if _rank()[0] == 0 else x.clone()


def next_chunk(x: Tensor) -> Tensor:
    """Keeps the share of the next rank."""
    rank, count = _rank()
    return torch.stack(_everyones(x)).sum(0).chunk(count)[(rank + 1) % count].clone()


def swapped(x: Tensor) -> Tensor:
    """Puts what it receives into the places of other ranks."""
    return torch.cat([*reversed(route_by_messages(x).chunk(_rank()[1]))])


def no_mean(x: Tensor) -> Tensor:
    """The sum, not divided by the number of ranks."""
    return sum_of_gathered(x)


BUGS = {
    "missing_sync": "summed",
    "right_in_step": "summed",
    "stale_buffer": "summed",
    "wrong_peer": "gathered",
    "greatest": "summed",
    "rounded": "summed",
    "a_little_off": "summed",
    "own_order": "rows_summed",
    "stays_away": "summed",
    "both_receive": "summed",
    "dies": "summed",
    "raises": "summed",
    "first_alone": "summed",
    "next_chunk": "scattered",
    "swapped": "routed",
    "no_mean": "averaged",
}
"""Kernel → op."""
