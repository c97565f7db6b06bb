"""Which calls become large ones, and what is made of a kernel's answers to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import pytest_cgins
from pytest_cgins.core.verdict import Check, Reason
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.messages import PrepareOptions, RaisedError
from pytest_cgins.verify.prepare import Preparation, prepare
from pytest_cgins.verify.probes.large_indices import NAME, LargeAnswer, judge
from tests.verify.helpers import normal
from tests.verify.test_probe_inputs import record


def prepared(folder: Path, run: Callable[[], object], op: str, *probes: str) -> Preparation:
    record(folder / "pack", run, op)
    pack = open_pack(folder / "pack")
    return prepare(pack.pack.traces[0], pack, "cpu", 3, PrepareOptions(probes=frozenset({NAME, *probes})), [])


def names(preparation: Preparation) -> list[str]:
    return [made.expected.name for made in preparation.sets if made.probe == NAME]


@pytest.mark.exam
def test_rows_are_repeated_and_moved_apart(tmp_path: Path) -> None:
    """Rows that are wide are made narrower for more than 65,535 of them; the call of 2^31 elements is for large recordings."""
    small = prepared(
        tmp_path / "a", lambda: functional.softmax(normal(5, 64), -1), "torch.nn.functional.softmax", "sizes"
    )
    assert names(small) == [
        "1536 rows", "more than 65,535 rows", "rows 192 elements apart", "rows apart beyond 2^31 elements",
    ]  # fmt: skip
    wide = prepared(
        tmp_path / "b", lambda: functional.relu(normal(8, 300, 300)), "torch.nn.functional.relu", "sizes"
    )
    assert "more than 2^31 elements" in names(wide)
    rows = [made.large.sizes[0] for made in wide.sets if made.large and "65,535 rows" in made.expected.name]
    assert 65_537 <= rows[0] < 68_000


@pytest.mark.exam
@pytest.mark.parametrize(
    ("run", "op", "why"),
    [
        (
            lambda: functional.cross_entropy(normal(8, 10), torch.arange(8)),
            "torch.nn.functional.cross_entropy",
            "torch's own rows depend on each other",
        ),
        (
            lambda: functional.relu_(normal(8, 64)),
            "torch.nn.functional.relu_",
            "the op changes its arguments",
        ),
        (
            lambda: functional.dropout(normal(8, 64)),
            "torch.nn.functional.dropout",
            "the op's outputs are random",
        ),
    ],
)
def test_ops_without_independent_rows_are_left_out(
    tmp_path: Path, run: Callable[[], object], op: str, why: str
) -> None:
    """And it is said why."""
    preparation = prepared(tmp_path, run, op, "sizes")
    assert not names(preparation)
    assert why in preparation.not_run[NAME]


def test_rows_along_the_last_dimension_count_as_they_are(tmp_path: Path) -> None:
    """A transposition of the rows is as large as they are, whatever lies between two elements of one."""
    made = prepared(
        tmp_path,
        lambda: torch.transpose_copy(normal(1200, 300), 0, 1),
        "torch.transpose_copy",
        "sizes",
    )
    (many,) = (one.large for one in made.sets if one.large and one.expected.name == "more than 2^31 elements")
    assert many.axis == -1
    assert many.units["elements of output 0"] == many.units["elements of input"] == 300
    assert 2**31 < 300 * many.sizes[0] < 2**31 + 2**20


def test_a_kernel_that_must_not_see_other_sizes_gets_strides_alone(tmp_path: Path) -> None:
    """It is excused from `sizes`."""
    preparation = prepared(tmp_path, lambda: functional.relu(normal(5, 64)), "torch.nn.functional.relu")
    assert names(preparation) == ["rows 192 elements apart", "rows apart beyond 2^31 elements"]


def died(kind: Reason, words: str) -> RaisedError:
    return RaisedError(phase="died", kind=kind.value, message=words)


REFUSED = RaisedError(kind="LaunchError", message="at most 2^31 elements")
SEGMENTATION = died(Reason.CRASHED, "the worker was killed by SIGSEGV (segmentation fault)")
ILLEGAL = RaisedError(kind="RuntimeError", message="CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize("error", [SEGMENTATION, ILLEGAL])
def test_a_crash_in_the_large_call_alone_is_an_overflow(strided: list[InputSet], error: RaisedError) -> None:
    """The small call, in the same kind of process, lives."""
    wrong, told = outcome(strided, None, error)
    assert not told
    assert wrong[0].startswith(
        f"with rows apart beyond 2^31 elements {error.message}; with rows 192 elements apart it is"
    )
    assert "64 bits" in wrong[0]


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        died(Reason.CRASHED, "the worker was killed by SIGKILL (killed from outside)"),
        died(Reason.OUT_OF_MEMORY, "the worker was killed: 20 GiB of memory in use"),
        died(Reason.TIMED_OUT, "the worker did not answer in 60 s"),
        RaisedError(kind="OutOfMemoryError", message="CUDA out of memory. Tried to allocate 8.00 GiB"),
    ],
)
def test_refusals_and_what_the_machine_cannot_do_are_told(
    strided: list[InputSet], error: RaisedError
) -> None:
    """No kernel is accused of either."""
    assert outcome(strided, None, error) == ([], [f"rows apart beyond 2^31 elements ({error.message})"])


def test_what_is_wrong_in_the_small_call_is_no_overflow(strided: list[InputSet]) -> None:
    """A kernel for dense tensors need not be right for rows that lie a little apart."""
    assert outcome(strided, SEGMENTATION, SEGMENTATION) == (
        [],
        [f"rows 192 elements apart ({SEGMENTATION.message})"],
    )
    check = Check(
        rule="form", inputs="", passed=False, reason=Reason.GOLD_MISMATCH, message="wrong", share=None
    )
    first, second = (
        LargeAnswer(inputs=made, error=None, failed=check, got=(), places=None) for made in strided
    )
    wrong, told = judge([first, second])
    assert not wrong
    assert told == ["rows 192 elements apart and what is beyond (the kernel is wrong there)"]


@pytest.fixture(scope="module")
def strided(tmp_path_factory: pytest.TempPathFactory) -> list[InputSet]:
    """Rows a little apart, and far apart."""
    folder = tmp_path_factory.mktemp("strided")
    preparation = prepared(
        folder, lambda: functional.relu(normal(5, 64)), "torch.nn.functional.relu", "sizes"
    )
    return [made for made in preparation.sets if made.large and made.large.apart]


def outcome(
    strided: list[InputSet], small: RaisedError | None, large: RaisedError | None
) -> tuple[list[str], list[str]]:
    return judge(
        [
            LargeAnswer(inputs=made, error=error, failed=None, got=(), places=None)
            for made, error in zip(strided, (small, large), strict=True)
        ]
    )


@pytest_cgins.mark
def both_ways(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, (x * 2).t().contiguous()


@pytest_cgins.mark
def in_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.float().abs().amax(-1, keepdim=True) / 127
    return (x.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


def test_outputs_that_grow_in_two_directions_are_left_out(tmp_path: Path) -> None:
    """A large call gives memory to rows along one axis alone: a right kernel would write beyond the other output."""
    preparation = prepared(tmp_path, lambda: both_ways(normal(40, 48)), f"{__name__}.both_ways", "sizes")
    assert not names(preparation)
    assert preparation.not_run[NAME] == "an output has its rows along another dimension than the others"


def test_rows_of_tables_lie_apart_as_well(tmp_path: Path) -> None:
    """An offset into a table is the row's number times its step, however few the indices are."""
    made = prepared(
        tmp_path,
        lambda: functional.embedding(torch.arange(96).reshape(6, 16) % 37, normal(50, 16)),
        "torch.nn.functional.embedding",
        "sizes",
    )
    (apart,) = (one for one in made.sets if one.large and one.expected.name.startswith("rows apart beyond"))
    tables = [number for number, meta in enumerate(apart.layout.metas) if meta.shape == (50, 16)]
    assert set(tables) <= set(apart.large.batched)


def test_rows_of_quantised_outputs_are_those_of_the_call(tmp_path: Path) -> None:
    """Their steps are chosen with them."""
    preparation = prepared(
        tmp_path, lambda: in_rows(normal(16, 64)), f"{__name__}.in_rows", "sizes", "invariance"
    )
    assert "more than 65,535 rows" in names(preparation)
    beside = [made.expected.name for made in preparation.sets if made.probe == "invariance"]
    assert "257 rows beside huge numbers" in beside
    assert not {NAME, "invariance"} & preparation.not_run.keys()
