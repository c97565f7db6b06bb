"""One process among those that call an op, or a kernel, together: they find each other, and agree on numbers."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
from torch import distributed

from pytest_cgins.core.device import device_of
from pytest_cgins.verify.messages import JoinRanks

_BEYOND = 2.0
"""A collective's own limit, in those of a request: the parent, which knows all ranks, is to tell of a hang, and not torch."""


class RankGroup:
    """Torch's default group, and beside it one on the host, which neither op nor kernel uses."""

    def __init__(self, request: JoinRanks) -> None:
        """Wait for all others.

        Raises:
            RuntimeError: they do not come, or cannot be reached.
        """
        self.rank, self.count = request.rank, request.count
        # On a machine whose own name leads nowhere both would give up; all ranks are on this host.
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, "lo")
        device = device_of(request.device)
        device.make_current()
        limit = timedelta(seconds=max(60.0, _BEYOND * request.limit_s))
        distributed.init_process_group(
            "nccl" if device.is_cuda else "gloo",
            store=distributed.FileStore(f"{request.folder}/store", request.count),  # type: ignore[attr-defined]
            rank=request.rank,
            world_size=request.count,
            timeout=limit,
            device_id=torch.device(device.torch_name) if device.is_cuda else None,
        )
        self._host = distributed.new_group(backend="gloo", timeout=limit)

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        distributed.barrier(group=self._host)

    def greatest(self, number: int) -> int:
        """The greatest of all ranks' numbers."""
        shared = torch.tensor([number], dtype=torch.int64)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX, group=self._host)
        return int(shared)

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Tensors of all ranks, flat and as bytes on the host: no rank knows another's shape."""
        own = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        distributed.all_gather(sizes, torch.tensor([own.numel()]), group=self._host)
        longest = max(map(int, sizes))
        padded = torch.zeros(max(1, longest), dtype=torch.uint8)
        padded[: own.numel()] = own
        gathered = [torch.empty_like(padded) for _ in range(self.count)]
        distributed.all_gather(gathered, padded, group=self._host)
        return [one[: int(size)] for one, size in zip(gathered, sizes, strict=True)]
