"""Outputs of positions: of equal values any is right, and all else is wrong by a reason of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml
from torch import Tensor
from torch.nn import functional

from pytest_cgins.app import cli
from pytest_cgins.config import declared
from pytest_cgins.core import documents
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.verdict import Correctness, Reason
from pytest_cgins.verify.judge import JudgeService
from pytest_cgins.verify.ties import candidates
from tests.verify.test_judge import first_failed, judged, record

SEEDS = range(6)
DTYPES = (torch.bfloat16, torch.float16, torch.int64)
Priority = Callable[[int], Tensor]
"""Positions of a row in the order in which equal values are taken."""
Kernel = Callable[[Tensor, Priority], Sequence[Tensor]]


def shuffled(size: int) -> Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(size))


DISGUISES: dict[str, Priority] = {
    "first": torch.arange,
    "last": lambda size: torch.arange(size).flip(0),
    "arbitrary": shuffled,
}


def heavy(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    """A few different numbers, each many times; for floats both zeros are among them."""
    drawn = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed))
    if not dtype.is_floating_point:
        return drawn.to(dtype)
    signs = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed + 100)) * 2 - 1
    return drawn.to(dtype) * torch.where(drawn == 0, signs, 1).to(dtype) / 2


# ---- right kernels, each of which takes equal values in the order that it is told


def ordered(
    x: Tensor, priority: Priority, dim: int = -1, *, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Values in order, equal ones by priority, and where they were."""
    at = priority(x.shape[dim])
    moved = x.index_select(dim, at).sort(dim=dim, descending=descending, stable=True)
    indices = at[moved.indices]
    return x.gather(dim, indices), indices


def taken(
    x: Tensor, priority: Priority, number: int, dim: int = -1, *, descending: bool = False
) -> list[Tensor]:
    """One of the values in order."""
    return [one.select(dim, number) for one in ordered(x, priority, dim, descending=descending)]


def top(x: Tensor, priority: Priority) -> list[Tensor]:
    return [one[..., :5] for one in ordered(x, priority, descending=True)]


def top_unsorted(x: Tensor, priority: Priority) -> list[Tensor]:
    return [one.flip(-1)[..., shuffled(5)] for one in top(x, priority)]


def flat_extreme(x: Tensor, priority: Priority) -> list[Tensor]:
    return [ordered(x.reshape(-1), priority, descending=True)[1][0]]


def mode(x: Tensor, priority: Priority) -> list[Tensor]:
    at = priority(x.shape[-1])
    counts = (x[..., :, None] == x[..., None, :]).sum(-1)
    index = at[counts[..., at].argmax(-1)]
    return [x.gather(-1, index[..., None])[..., 0], index]


def running_max(x: Tensor, priority: Priority) -> list[Tensor]:
    pairs = [taken(x[:, : end + 1], priority, 0, descending=True) for end in range(x.shape[1])]
    return [torch.stack(line, 1) for line in zip(*pairs, strict=True)]


def pooled(x: Tensor, priority: Priority, *, size: int = 3, stride: int = 2) -> list[Tensor]:
    """Windows of a padded plane."""
    plane = torch.arange(x[0, 0].numel()).reshape(x.shape[2:]).expand_as(x)
    wide = functional.pad(x.double(), (1, 1, 1, 1), value=-torch.inf)
    where = functional.pad(plane, (1, 1, 1, 1), value=-1)
    windows, places = (
        one.unfold(2, size, stride).unfold(3, size, stride).flatten(-2) for one in (wide, where)
    )
    values, index = taken(windows, priority, 0, descending=True)
    return [values.to(x.dtype), places.gather(-1, index[..., None])[..., 0]]


def unique_unsorted(x: Tensor, priority: Priority) -> list[Tensor]:
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    order = priority(len(values))
    new = torch.empty_like(order)
    new[order] = torch.arange(len(order))
    return [values[order], new[inverse], counts[order]]


OPS: dict[str, tuple[str, Callable[[Tensor], object], Kernel]] = {
    "topk": ("torch.topk", lambda x: torch.topk(x, 5), top),
    "topk_unsorted": ("torch.topk", lambda x: torch.topk(x, 5, sorted=False), top_unsorted),
    "topk_method": ("torch.Tensor.topk", lambda x: x.topk(5), top),
    "sort": ("torch.sort", lambda x: torch.sort(x, dim=0), lambda x, p: ordered(x, p, 0)),
    "sort_down": ("torch.sort", lambda x: torch.sort(x, descending=True), lambda x, p: ordered(x, p, descending=True)),
    "argsort": ("torch.argsort", lambda x: torch.argsort(x, -2), lambda x, p: ordered(x, p, -2)[1:]),
    "argmax": ("torch.argmax", lambda x: torch.argmax(x, 1), lambda x, p: taken(x, p, 0, descending=True)[1:]),
    "argmin": ("torch.argmin", lambda x: torch.argmin(x, -1), lambda x, p: taken(x, p, 0)[1:]),
    "argmax_flat": ("torch.argmax", torch.argmax, flat_extreme),
    "max": ("torch.max", lambda x: torch.max(x, 1), lambda x, p: taken(x, p, 0, descending=True)),
    "max_kept": (
        "torch.max",
        lambda x: torch.max(x, -2, keepdim=True),
        lambda x, p: [one[None] for one in taken(x, p, 0, 0, descending=True)],
    ),
    "min": ("torch.Tensor.min", lambda x: x.min(0), lambda x, p: taken(x, p, 0, 0)),
    "max_aten": ("torch.ops.aten.max.dim", lambda x: torch.ops.aten.max.dim(x, 1), lambda x, p: taken(x, p, 0, descending=True)),
    "kthvalue": ("torch.kthvalue", lambda x: torch.kthvalue(x, 7), lambda x, p: taken(x, p, 6)),
    "median": ("torch.median", lambda x: torch.median(x, 1), lambda x, p: taken(x, p, 20)),
    "nanmedian": ("torch.nanmedian", lambda x: torch.nanmedian(x, 1), lambda x, p: taken(x, p, 20)),
    "mode": ("torch.mode", torch.mode, mode),
    "cummax": ("torch.cummax", lambda x: torch.cummax(x, 1), running_max),
    "unique": (
        "torch.functional.unique",
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        lambda x, _: unique_unsorted(x, torch.arange),
    ),
    "unique_unsorted": (
        "torch.functional.unique",
        lambda x: torch.unique(x, sorted=False, return_inverse=True, return_counts=True),
        unique_unsorted,
    ),
}  # fmt: skip
"""Recorded name, call, and a right kernel."""


class Gate:
    """Judges kernels by one call, which is recorded with its numbers; fresh and edge ones are drawn."""

    def __init__(self, folder: Path, name: str, x: Tensor, seed: int = 1) -> None:
        op, call, _ = OPS[name]
        self._case = record(folder, lambda: call(x), op, tier="full")
        self._service, self._seed = JudgeService(), seed

    def __call__(self, kernel: Callable[[Tensor], Sequence[Tensor]]) -> Correctness:
        def dense(tensors: list[Tensor]) -> list[Tensor]:
            return [one.contiguous() for one in kernel(tensors[0])]

        prepared, correctness = judged(self._service, self._case, dense, seed=self._seed)
        assert prepared["drift"] is None
        return correctness


def wrong(correctness: Correctness) -> str:
    return "; ".join(check.message for check in correctness.checks if not check.passed)


@pytest.mark.exam
@pytest.mark.parametrize("name", OPS)
def test_any_of_equal_values_is_right(tmp_path: Path, name: str) -> None:
    """Whichever a kernel takes, of few numbers each many times, recorded, fresh and edge; six seeds a dtype."""
    for dtype in DTYPES:
        for seed in SEEDS:
            gate = Gate(tmp_path / f"{dtype}{seed}", name, heavy(6, 41, seed=seed, dtype=dtype), seed)
            for disguise, priority in DISGUISES.items():
                told = wrong(gate(lambda x: OPS[name][2](x, priority)))  # noqa: B023
                assert not told, f"{dtype}, seed {seed}, {disguise}: {told}"


# ---- wrong kernels


def with_index(
    kernel: Kernel, change: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor], list[Tensor]]:
    """A right kernel whose last output is changed."""

    def run(x: Tensor) -> list[Tensor]:
        *others, index = kernel(x, torch.arange)
        return [*others, change(x, index.contiguous())]

    return run


def repeated(x: Tensor, index: Tensor) -> Tensor:
    """The first of equal values twice."""
    values = x.gather(-1, index)
    index[:, 1:] = torch.where(values[:, 1:] == values[:, :-1], index[:, :-1], index[:, 1:])
    return index


def beyond_the_window(x: Tensor, index: Tensor) -> Tensor:
    """Of a running maximum the last in the row, that comes later."""
    at = torch.arange(x.shape[1]).expand_as(x)
    found = x.gather(1, index)[:, :, None] == x[:, None, :]
    return torch.where(found, at[:, None, :], -1).amax(-1)


def swapped(x: Tensor, index: Tensor) -> Tensor:
    """The greatest value and the least trade their indices."""
    del x
    return index[:, [4, 1, 2, 3, 0]]


def greatest_number(x: Tensor, priority: Priority) -> list[Tensor]:
    return taken(x.nan_to_num(nan=-torch.inf), priority, 0, descending=True)[1:]


def one_further(size: int) -> Callable[[Tensor, Tensor], Tensor]:
    """What counts from one, or loses its place where values are equal."""
    return lambda x, index: (index + 1) % size


WRONG: dict[str, tuple[str, Callable[[Tensor], Sequence[Tensor]], Reason]] = {
    "topk repeats": ("topk", with_index(top, repeated), Reason.INDEX_REPEATED),
    "sort repeats": ("sort_down", with_index(OPS["sort_down"][2], repeated), Reason.INDEX_REPEATED),
    "argmax one further": ("argmax", with_index(OPS["argmax"][2], one_further(41)), Reason.INDEX_MISMATCH),
    "max one further": ("max", with_index(OPS["max"][2], one_further(41)), Reason.INDEX_MISMATCH),
    "flat one further": ("argmax_flat", with_index(flat_extreme, one_further(246)), Reason.INDEX_MISMATCH),
    "flat by row": ("argmax_flat", with_index(flat_extreme, lambda _, i: i % 41), Reason.INDEX_MISMATCH),
    "topk of the least": ("topk", with_index(top, lambda x, i: x.argsort(1)[:, :5]), Reason.INDEX_MISMATCH),
    "along the other dim": ("argsort", lambda x: [x.argsort(1)], Reason.INDEX_OUT_OF_RANGE),
    "negative": ("max", with_index(OPS["max"][2], lambda _, i: i - 41), Reason.INDEX_OUT_OF_RANGE),
    "into the padding": ("max", with_index(OPS["max"][2], lambda _, i: i.clamp_min(41)), Reason.INDEX_OUT_OF_RANGE),
    "later than the maximum": ("cummax", with_index(running_max, beyond_the_window), Reason.INDEX_MISMATCH),
    "unsorted, mispaired": ("topk_unsorted", with_index(top, swapped), Reason.INDEX_MISMATCH),
    "unsorted though sorted": ("topk", lambda x: top_unsorted(x, torch.arange), Reason.GOLD_MISMATCH),
    "unique unsorted though sorted": ("unique", lambda x: unique_unsorted(x, shuffled), Reason.GOLD_MISMATCH),
    "mode by its second": ("mode", lambda x: [x[:, 0], torch.zeros(6, dtype=torch.int64)], Reason.GOLD_MISMATCH),
    "mode elsewhere": ("mode", with_index(mode, one_further(41)), Reason.INDEX_MISMATCH),
}  # fmt: skip
"""The call, a kernel, and what is said of it."""


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_wrong_among_equal_values_has_a_reason(tmp_path: Path, what: str, dtype: torch.dtype) -> None:
    """Indices that come twice, that point elsewhere or nowhere, and orders that are none."""
    name, kernel, reason = WRONG[what]
    x = heavy(6, 41, seed=3, dtype=dtype)
    x[0], x[1, 0], x[1, 1] = x.min(), 4, -4
    check = first_failed(Gate(tmp_path / "pack", name, x)(kernel))
    assert check.reason is reason, check.message


def test_nan_is_no_number(tmp_path: Path) -> None:
    """Torch takes NaN for the greatest: any NaN is right, and the greatest number is not."""
    x = heavy(6, 41, seed=1, dtype=torch.float32)
    x[:, [3, 17]] = torch.nan
    gate = Gate(tmp_path / "pack", "argmax", x)
    assert not wrong(gate(lambda x: [torch.where(x.isnan().any(1), 17, x.argmax(1))]))
    check = first_failed(gate(lambda x: greatest_number(x, torch.arange)))
    assert check.reason is Reason.INDEX_MISMATCH
    assert "the op's is 3, which is nan" in check.message


def test_zeros_of_both_signs_are_equal(tmp_path: Path) -> None:
    """Neither is the greater one."""
    x = torch.tensor([[-0.0, 0.0, -1.0], [0.0, -0.0, -2.0]])
    gate = Gate(tmp_path / "pack", "argmax", x)
    assert not wrong(gate(lambda x: [torch.where(x[:, 0] == 0, 1, x.argmax(1))]))


def test_an_order_that_is_promised_is_kept(tmp_path: Path) -> None:
    """sort(stable=True) has one right answer, and argmax where the user says so."""
    x = heavy(6, 41, seed=2, dtype=torch.bfloat16)
    case = record(tmp_path / "pack", lambda: torch.sort(x, stable=True, dim=1), "torch.sort", tier="full")
    for priority, reason in ((torch.arange, None), (shuffled, Reason.UNSTABLE_ORDER)):
        _, told = judged(
            JudgeService(), case, lambda t: [one.contiguous() for one in ordered(t[0], priority)]  # noqa: B023
        )  # fmt: skip
        assert {check.reason for check in told.checks if not check.passed} == ({reason} if reason else set())


@pytest.mark.exam
def test_a_pool_points_into_its_own_window(tmp_path: Path) -> None:
    """At any of its greatest values, and at an equal one of another window never; padding is no place."""
    for seed in SEEDS:
        x = heavy(2, 3, 9, 12, seed=seed, dtype=torch.bfloat16)
        case = record(
            tmp_path / str(seed),
            lambda: functional.max_pool2d(x, 3, 2, 1, return_indices=True),  # noqa: B023
            "torch.nn.functional.max_pool2d_with_indices",
            tier="full",
        )
        for priority in DISGUISES.values():
            _, told = judged(JudgeService(), case, lambda t: pooled(t[0], priority))  # noqa: B023
            assert not wrong(told)

        def elsewhere(tensors: list[Tensor]) -> list[Tensor]:
            values, _ = pooled(tensors[0], torch.arange)
            plane = tensors[0].flatten(2)
            return [
                values,
                (plane[:, :, None] == values.flatten(2)[..., None]).int().argmax(-1).reshape(values.shape),
            ]

        check = first_failed(judged(JudgeService(), case, elsewhere)[1])
        assert check.reason is Reason.INDEX_MISMATCH
        assert "where the op does not look" in check.message


@pytest.mark.parametrize("size", [(3, 4), (4, 4), (5, 7)])
def test_an_adaptive_pool_points_into_its_own_window(tmp_path: Path, size: tuple[int, int]) -> None:
    """Windows of several sizes, which overlap; the last of equal values instead of the first."""
    x = heavy(2, 3, 9, 12, seed=4, dtype=torch.float16)
    case = record(
        tmp_path / "pack",
        lambda: functional.adaptive_max_pool2d(x, size, return_indices=True),
        "torch.nn.functional.adaptive_max_pool2d_with_indices",
        tier="full",
    )

    def last(tensors: list[Tensor]) -> list[Tensor]:
        values, index = functional.adaptive_max_pool2d(tensors[0].flip(2, 3), size, return_indices=True)
        return [values.flip(2, 3), (tensors[0][0, 0].numel() - 1 - index).flip(2, 3)]

    assert not wrong(judged(JudgeService(), case, last)[1])
    check = first_failed(judged(JudgeService(), case, lambda t: [last(t)[0], last(t)[1].flip(2)])[1])
    assert check.reason is Reason.INDEX_MISMATCH


@pytest.mark.parametrize("right", [True, False])
def test_a_search_has_one_answer_and_keeps_its_order(tmp_path: Path, right: bool) -> None:
    """Where values are equal `right` decides, and what is searched is in order in every set of inputs."""
    order = heavy(40, seed=1, dtype=torch.bfloat16).sort().values
    values = heavy(9, seed=2, dtype=torch.bfloat16)
    case = record(
        tmp_path / "pack", lambda: torch.searchsorted(order, values, right=right), "torch.searchsorted"
    )

    def counted(tensors: list[Tensor]) -> list[Tensor]:
        less = tensors[0] <= tensors[1][:, None] if right else tensors[0] < tensors[1][:, None]
        return [less.sum(1)]

    assert not wrong(judged(JudgeService(), case, counted)[1])
    other = judged(JudgeService(), case, lambda t: [(t[0] <= t[1][:, None]).sum(1)])[1]
    assert bool(wrong(other)) is not right


# ---- ops of users


MARKED = """
import pytest_cgins, torch

@pytest_cgins.mark
def strongest(scores):
    value, at = scores.max(1)
    return value, at

@pytest_cgins.mark
def order(scores):
    return scores.argsort(dim=0, descending=True)

@pytest_cgins.mark
def largest(scores):
    return scores.argmax()

@pytest_cgins.mark
def counted(scores):
    return (scores > 0).sum(1)
"""


@pytest.fixture
def marked(project: Callable[[str], ModuleType]) -> ModuleType:
    return project(MARKED)


@pytest.mark.parametrize(
    ("name", "said", "right"),
    [
        ("strongest", "{1: {index_into: scores, dim: -1}}", lambda x, p: taken(x, p, 0, descending=True)),
        ("order", "{0: {index_into: scores, dim: -2}}", lambda x, p: ordered(x, p, 0, descending=True)[1:]),
        ("largest", "{0: {index_into: scores}}", flat_extreme),
        ("counted", "", None),
    ],
)
def test_an_op_of_a_user_says_what_it_points_into(
    tmp_path: Path, marked: ModuleType, name: str, said: str, right: Kernel | None,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What audit proposes, and what a failure says to write, is what makes right kernels pass; wrong ones fail still."""
    x = heavy(6, 41, seed=5, dtype=torch.bfloat16)
    op = f"{marked.__name__}.{name}"
    case = record(tmp_path / "pack", lambda: getattr(marked, name)(x), op, tier="full")
    cli.main(["traces", "audit", str(tmp_path / "pack")])
    line = f"{op} returns indices, and among equal values any index is accepted if cgins.yaml has: semantics: {{outputs: "
    if right is None:
        assert "returns indices" not in capsys.readouterr().out
        return
    assert f"{line}{said}}}" in capsys.readouterr().out

    def kernel(tensors: list[Tensor]) -> list[Tensor]:
        return [one.contiguous() for one in right(tensors[0], shuffled)]

    unsaid = first_failed(judged(JudgeService(), case, kernel)[1])
    assert unsaid.message.endswith(f"write in cgins.yaml: semantics: {{outputs: {said}}}")
    semantics = documents.dump_python(declared({"outputs": yaml.safe_load(said)}))
    prepared, told = judged(JudgeService(), case, kernel, further={"declared": semantics})
    assert not wrong(told)
    assert [one["name"] for one in prepared["sets"]] == ["recorded", "fresh", "edge"]
    assert first_failed(
        judged(
            JudgeService(),
            case,
            lambda t: [-1 - one for one in kernel(t)],
            further={"declared": semantics},
        )[1]
    )


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("{2: {index_into: scores}}", r"output 2 of .*strongest holds indices, and it has 2\n→ count from 0"),
        ("{0: {index_into: scores}}", r"output 0 of .* holds indices, and it is bfloat16\n→ write the number"),
        ("{1: {index_into: score, dim: 1}}", r'an argument "score", and .* has none of this name\n→ did you mean "scores"'),
        ("{1: {index_into: scores, dim: 2}}", r"dimension 2 of scores, and in this call of .* it has 2\n→ write one from -2"),
        ("{1: {index_into: scores, dim: 0}}", r"has shape \(6,\): it holds no positions along dim \[0\] of scores, which"),
        ("{1: {index_into: scores, dim: [1, -1]}}", r"names a dimension of scores twice, by \[1, -1\]\n→ write each once"),
    ],
)  # fmt: skip
def test_what_cannot_be_so_is_told(tmp_path: Path, marked: ModuleType, said: str, message: str) -> None:
    """A declaration that no output of the op has is an error of the configuration."""
    x = heavy(6, 41, seed=5, dtype=torch.bfloat16)
    case = record(tmp_path / "pack", lambda: marked.strongest(x), f"{marked.__name__}.strongest", tier="full")
    semantics = documents.dump_python(declared({"outputs": yaml.safe_load(said)}))
    with pytest.raises(ConfigError, match=message):
        judged(JudgeService(), case, further={"declared": semantics})


def test_nothing_is_proposed_where_any_position_would_be_right() -> None:
    """A routing of equal rows has columns of one number: a wrong count of tokens points at an equal one in each."""
    alike, rows = torch.tensor([[3, 1], [3, 1], [3, 1]]), torch.tensor([[3, 1], [2, 1], [3, 0]])
    answer = torch.tensor([2, 0])
    assert not any(found.declared.dims == (-2,) for found in candidates(0, {"ids": alike}, answer))
    assert any(found.declared.dims == (-2,) for found in candidates(0, {"ids": rows}, answer))
