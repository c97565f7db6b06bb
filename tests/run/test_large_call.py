"""Large calls: memory that is mapped again and again, and where their rows are wrong."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from pytest_cgins.building.loading import launcher
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.tensors import pack
from pytest_cgins.core.trace import OpCall, TensorMeta
from pytest_cgins.run import large_call
from pytest_cgins.run.large_call import LargeCall, LargeCallError
from pytest_cgins.verify.messages import LargeTrial, PackedInputs
from pytest_cgins.verify.probes.large_indices import ROWS

ROW_COUNT, COLUMNS = 24, 512


@pytest.fixture(autouse=True)
def guards_of_other_tests() -> Iterator[None]:
    """A large call's process goes on without guards; this one has further tests."""
    before = launcher.GUARD_NBYTES
    yield
    launcher.GUARD_NBYTES = before
    launcher._guard.cache_clear()


@dataclass
class Bound:
    """A call of a function."""

    call: Callable[[], list[Tensor]]
    memory: Sequence[Tensor] = ()

    def run(self) -> list[Tensor]:
        return self.call()


@dataclass
class Kernel:
    """A function of tensors as a loaded kernel."""

    function: Callable[[Tensor], list[Tensor]]

    def bind(
        self, call: OpCall, tensors: Sequence[Tensor], outputs: Sequence[TensorMeta], device: str
    ) -> Bound:
        del call, outputs, device
        return Bound(lambda: self.function(tensors[0]))


def called(
    function: Callable[[Tensor], list[Tensor]], x: Tensor, size: int, *, apart: bool = False, axis: int = 0
) -> tuple[list[Tensor], list[int]]:
    """The answer to a large call, and where each of its rows was."""
    header, content = pack([x])
    packed = PackedInputs(
        name="it",
        call=OpCall(op="torch.relu", arguments=()),
        tensors=header,
        outputs=lay_out(function(x)).metas,
        large=LargeTrial(
            batched=(0,), axis=axis, rows=len(x), apart=apart, sizes=(size,), units={"elements of x": COLUMNS}
        ),
    )
    trial = LargeCall(Kernel(function), packed, content, "cpu")  # type: ignore[arg-type]
    trial.first()
    *outputs, places = trial.answer
    assert places[0] == size
    return outputs, places[1:].tolist()


def drawn(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(ROW_COUNT, COLUMNS, generator=torch.Generator().manual_seed(3)).to(dtype)


def test_whoever_goes_a_power_of_two_too_far_meets_another_row() -> None:
    """In rows of any power of two of bytes or elements: that is what a wrap by 2^31 or 2^32 is, or a part of one."""
    assert all((1 << power) % rows for rows in ROWS for power in range(33))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float8_e4m3fn, torch.int8])
def test_the_first_copy_that_is_wrong_is_told(dtype: torch.dtype) -> None:
    """Of every row the copy that is farthest from the small call's comes back, and its number."""
    x = drawn(dtype)

    def kernel(given: Tensor) -> list[Tensor]:
        out = given.clone()
        if len(given) > ROW_COUNT:
            out[-ROW_COUNT + 5], out[3 * ROW_COUNT + 5] = given[6], given[6]
        return [out, out.real.to(torch.float32).sum(-1)]

    (rows, sums), places = called(kernel, x, 5 * ROW_COUNT)
    assert places[5] == 3 * ROW_COUNT + 5
    assert rows[5].tolist() == x[6].tolist()
    assert rows[6].tolist() == x[6].tolist()
    assert rows.shape == x.shape
    assert sums.shape == (ROW_COUNT,)


def test_rows_of_outputs_may_be_along_their_last_dimension() -> None:
    """As a transposition's are."""
    _, places = called(
        lambda given: [given.t() * torch.arange(len(given)).ge(30).logical_not()],
        drawn(),
        3 * ROW_COUNT,
        axis=-1,
    )
    assert places[6] == 30
    assert places[0] == ROW_COUNT * 2


def test_rows_apart_are_the_same_rows_and_between_them_nothing_can_be_read() -> None:
    """An offset that is cut ends the process, though two pages a row are all that is there."""
    x = drawn(torch.bfloat16)
    (rows,), places = called(lambda given: [given.float()], x, 1 << 27, apart=True)
    assert rows.tolist() == x.float().tolist()
    assert places == list(range(ROW_COUNT))
    spread = large_call._apart(x, 1 << 27)
    assert spread.stride() == (1 << 27, 1)
    for offset in (-(1 << 31), COLUMNS * 8, (1 << 32) + 17):
        assert ends_by_reading(spread.data_ptr() + 2 * offset)
    assert not ends_by_reading(spread.data_ptr() + 2 * COLUMNS)


def test_repeated_rows_take_a_few_pages_and_end_in_nothing() -> None:
    """A vector may reach over the last row; what is 2^31 or 2^32 elements before or behind is not there."""
    x = drawn()
    repeated = large_call._repeated(x, ROW_COUNT * 2_000)
    assert repeated.nbytes > large_call.MAPPED_BYTES
    assert repeated[ROW_COUNT * 1_999 :].tolist() == x.tolist()
    assert not ends_by_reading(repeated.data_ptr() + repeated.nbytes + 64)
    for elements in (-(1 << 31), (1 << 31), (1 << 32) - 1 - repeated.numel()):
        assert ends_by_reading(repeated.data_ptr() + 4 * elements)


def ends_by_reading(address: int) -> bool:
    """Whether a process that reads there dies."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(address, 2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV


def test_a_copy_near_a_limit_is_not_hidden_by_the_others() -> None:
    """Others share their pages: gigabytes of outputs are a few."""
    meta = lay_out([torch.zeros(8, 1024)]).metas[0]
    pages = large_call._pages(meta, 8 * 4096, 40_000 // 8, (0, 3_000, 4_999))
    copies = pages.view(-1, 8 * 1024)
    copies[:3_000], copies[3_001:4_999] = 1.0, 2.0
    assert copies[[0, 3_000, 4_999], 5].isnan().tolist() == [False, True, True]
    assert copies[7, 5] == copies[2_999, 5] == copies[4_000, 5] == 2.0


def test_a_call_that_takes_too_long_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time of some copies; nor one of which nobody knows how much memory it takes."""
    monkeypatch.setattr(large_call, "SECONDS", 1e-9)
    with pytest.raises(LargeCallError, match=r"it would take more than 1e-09 s"):
        called(lambda given: [given.relu()], drawn(), 5 * ROW_COUNT)
    with pytest.raises(LargeCallError, match="a copy of its inputs would take 8 GiB"):
        called(lambda given: [given.relu()], drawn(), (1 << 22) // ROW_COUNT * ROW_COUNT)
