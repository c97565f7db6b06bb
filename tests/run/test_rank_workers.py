"""Which rank is blamed, where a rank was, and what the slowest took."""

from __future__ import annotations

import pytest

from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.rank_workers import Failure, FailureKind, blamed, rank_devices, slowest, where_it_was
from pytest_cgins.verify.timing_messages import TimedBlock, TimedBlocks

SERVED = '  File "/x/pytest_cgins/run/rank_service.py", line 9 in run\n'
IN_COLLECTIVE = (
    '  File "/x/torch/distributed/distributed_c10d.py", line 5 in all_reduce\n'
    '  File "/p/k.py", line 12 in summed\n'
)
ON_DEVICE = '  File "/x/torch/cuda/streams.py", line 5 in synchronize\n  File "/x/pytest_cgins/timing/devices/cuda.py", line 1 in wait\n'


def _stack(frames: str) -> str:
    return f"stderr:\nCurrent thread 0x2 (most recent call first):\n{frames}{SERVED}"


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (IN_COLLECTIVE, ("waited in torch.distributed.all_reduce, k.py:12 (summed)", True)),
        ('  File "/p/k.py", line 7 in summed\n', ("was at k.py:7 (summed)", False)),
        (ON_DEVICE, ("waited for its device", True)),
    ],
)
def test_where_a_rank_was(frames: str, told: tuple[str, bool]) -> None:
    """By the kernel's own line, by the stack that it printed; a collective and a wait for the device are for others."""
    assert where_it_was(_stack(frames)) == told
    assert where_it_was("stderr:\n") == ("did not say where it was", False)


def _failure(rank: int, kind: FailureKind, output: str = "") -> Failure:
    return Failure(rank, kind, EndedError(Status.RUNTIME_ERROR, Reason.RAISED, f"{kind} there", output))


def test_who_died_comes_before_who_lost_it() -> None:
    """And who raised before who waited, which is told all the same."""
    assert str(blamed([_failure(0, "lost"), _failure(1, "died")], 2, 5)) == "rank 1 of 2: died there"
    end = blamed([_failure(0, "waited"), _failure(1, "raised")], 2, 5)
    assert str(end) == "rank 1 of 2: raised there\nrank 0 waited for it, and was ended"


def test_who_hangs_is_not_who_waits() -> None:
    """On a GPU the others wait for their device. If all wait, all are named."""
    hung = _failure(2, "hung", _stack('  File "/p/k.py", line 7 in summed\n'))
    waiting = [_failure(0, "hung", _stack(IN_COLLECTIVE)), _failure(1, "hung", _stack(ON_DEVICE))]
    end = blamed([*waiting, hung], 3, 5)
    assert (end.verdict.status, end.verdict.reason) == (Status.TIMEOUT, Reason.RANK_HANG)
    assert str(end).startswith("rank 2 of 3 did not come back within 5 s: rank 0 waited in torch.")
    assert str(blamed(waiting, 2, 5)).startswith("ranks 0, 1 of 2 did not come back")


def test_times_are_those_of_the_slowest() -> None:
    """Batch by batch; other blocks than the first rank's are refused."""
    first, second = (
        TimedBlocks((TimedBlock(order="KTTK", ns_per_call=times, mean_ns_per_call=times),))
        for times in ((1.0, 5.0, 2.0, 7.0), (3.0, 4.0, 6.0, 2.0))
    )
    (block,) = slowest([first, second]).blocks
    assert block.ns_per_call == block.mean_ns_per_call == (3.0, 5.0, 6.0, 7.0)
    with pytest.raises(ValueError, match="shorter"):
        slowest([first, TimedBlocks(())])


def test_devices() -> None:
    """One a rank, where devices have numbers."""
    assert rank_devices("cuda:0", 3) == ["cuda:0", "cuda:1", "cuda:2"]
    assert rank_devices("cpu", 2) == ["cpu", "cpu"]
