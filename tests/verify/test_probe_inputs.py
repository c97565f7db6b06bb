"""The sets of inputs that probes ask for, from torch's answers to the verdict on kernels made to trip them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch.nn import functional

import pytest_cgins
from pytest_cgins.config import declared
from pytest_cgins.core import documents
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.core.trace import Argument, OpCall, Value
from pytest_cgins.core.verdict import Correctness, Probe, Reason
from pytest_cgins.packs.call import invoke
from pytest_cgins.verify.judge import JudgeService
from pytest_cgins.verify.probes import arguments, sizes
from pytest_cgins.verify.probes.registry import PREPARED
from pytest_cgins.verify.size_search import MANY_BYTES
from tests.verify.helpers import normal
from tests.verify.test_judge import parameters, record, torch_kernel

Kernel = Callable[..., list[torch.Tensor]]
SOFTMAX = "torch.nn.functional.softmax"
GELU = "torch.nn.functional.gelu"
RELU = "torch.nn.functional.relu"
LINEAR = "torch.nn.functional.linear"
EMBEDDING = "torch.nn.functional.embedding"
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"

BUT_ARGUMENTS = sorted(PREPARED - {"arguments"})
"""For kernels that take their options as they were recorded, in tests of something else."""


class Gate:
    """Records one call, and judges kernels by it, probes included."""

    def __init__(
        self,
        folder: Path,
        run: Callable[[], object],
        op: str,
        semantics: Mapping[str, Any] = MappingProxyType({}),
        **entry: Any,
    ) -> None:
        self._service = JudgeService()
        case = record(folder / "pack", run, op)
        self._params = {**parameters(case), "probes": sorted(PREPARED), **entry}
        self._params["declared"] = documents.dump_python(declared(semantics))
        prepared, self._buffers = self._service.prepare(self._params, [])
        self._sets = prepared["sets"]

    @property
    def names(self) -> list[str]:
        """Of the sets."""
        return [one["name"] for one in self._sets]

    @property
    def call(self) -> OpCall:
        """As recorded."""
        return documents.load_python(OpCall, self._sets[0]["call"])

    def tensors(self, name: str) -> list[torch.Tensor]:
        """The arguments of one set."""
        index = self.names.index(name)
        return unpack(self._sets[index]["tensors"], self._buffers[index], "cpu")

    def judge(self, kernel: Kernel | None = None) -> Correctness:
        """Run a kernel on all sets; what it raises on a probe's set is its refusal."""
        return self.judge_call(lambda call: kernel or torch_kernel(call))

    def judge_call(self, kernel: Callable[[OpCall], Kernel]) -> Correctness:
        """The same with a kernel that sees the scalars of each call."""
        answers, contents = [], []
        for one, buffer in zip(self._sets, self._buffers, strict=True):
            tensors = unpack(one["tensors"], buffer, "cpu")
            error, outputs = None, []
            try:
                outputs = kernel(documents.load_python(OpCall, one["call"]))(tensors)
            except (RuntimeError, ValueError, ZeroDivisionError) as refusal:
                error = {"phase": "run", "kind": type(refusal).__name__, "message": str(refusal)}
            except TimeoutError as late:  # what the pool makes of it
                error = {"phase": "died", "kind": Reason.TIMED_OUT.value, "message": str(late)}
            header, content = pack(outputs)
            answers.append(
                {"name": one["name"], "tensors": header, "devices": ["cpu"] * len(outputs), "error": error}
            )
            contents.append(content)
        reply, _ = self._service.judge({"case_request": self._params, "answers": {"sets": answers}}, contents)
        return documents.load_python(Correctness, reply["correctness"])


def result(correctness: Correctness, probe: str) -> Probe:
    return next(one for one in correctness.probes if one.name == probe)


def outcomes(correctness: Correctness) -> dict[str, str]:
    return {one.name: one.outcome for one in correctness.probes if one.name in PREPARED}


def softmax(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[], object]:
    """Calls it along rows."""
    return lambda: functional.softmax(normal(*shape, dtype=dtype), dim=-1)


def refuses(condition: Callable[[torch.Tensor], object], op: Callable[..., torch.Tensor]) -> Kernel:
    """A right kernel but for first arguments that it does not take."""

    def kernel(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if condition(tensors[0]):
            raise ValueError("unsuitable")
        return [op(*tensors)]

    return kernel


# ---- kernels that one probe trips


def first_64(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    x = tensors[0].double()
    top = (x - x.amax(-1, keepdim=True)).exp()
    return [(top / top[:, :64].sum(-1, keepdim=True)).to(tensors[0].dtype)]


def slow(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    if tensors[0].shape[-1] > 4096:
        raise TimeoutError("no answer within 60 s")
    return [tensors[0].softmax(-1)]


def naive_attention(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    query, key, value, allowed = tensors
    scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf)
    return [scores.softmax(-1) @ value]


def weight_in_a_row(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    x, weight = tensors
    if not x.is_contiguous():
        raise ValueError("contiguous input only")
    start, shape = weight.storage_offset(), tuple(weight.shape)
    memory = torch.empty(0).set_(weight.untyped_storage(), start, shape, (shape[1], 1))
    return [functional.linear(x, memory)]


def masked() -> object:
    q = normal(1, 2, 6, 16)
    return functional.scaled_dot_product_attention(q, q + 1, q + 2, torch.ones(6, 6).tril().bool())


Tripped = tuple[Callable[[], object], str, Kernel, str, Reason, list[str]]
TRIPPED: dict[str, Tripped] = {
    "a constant of the recorded size": (
        softmax(12, 64), SOFTMAX, first_64, "sizes", Reason.SIZE_DEPENDENT,
        ["12x64→", "or return an error for it: a size that is refused fails nothing"],
    ),
    "one block at least, for no rows": (
        softmax(12, 64), SOFTMAX, lambda t: [t[0].softmax(-1) if t[0].numel() else normal(1, 64)],
        "sizes", Reason.SIZE_DEPENDENT, ["shape (1, 64), expected is (0, 64)"],
    ),
    "an unwritten sum of nothing": (
        lambda: torch.sum(normal(12, 64), dim=0), "torch.sum",
        lambda t: [t[0].sum(0) if t[0].numel() else torch.full((64,), 7.0)],
        "sizes", Reason.SIZE_DEPENDENT, ["sizes input 12x64→0x64"],
    ),
    # Nobody can tell one that hangs from one that takes long there.
    "killed on a size": (
        softmax(7, 40), SOFTMAX, slow, "sizes", Reason.SIZE_DEPENDENT,
        ["the kernel timed out, because it hangs or is slow: no answer within 60 s"],
    ),
    "a comparison, false for NaN": (
        lambda: functional.relu(normal(12, 33)), RELU, lambda t: [torch.where(t[0] > 0, t[0], 0.0)],
        "special_values", Reason.NAN_PATTERN, ["(inputs with NaN and infinity)"],
    ),
    "a clamp, which makes infinity a number": (
        lambda: functional.relu(normal(12, 33)), RELU, lambda t: [t[0].relu().clamp(max=1e30)],
        "special_values", Reason.INFINITE_PATTERN, ["(inputs with NaN and infinity)"],
    ),
    "an online softmax, in which exp(-inf - -inf) is NaN": (
        softmax(12, 33), SOFTMAX, lambda t: [torch.where(t[0][:, :1] == -torch.inf, torch.nan, t[0].softmax(-1))],
        "special_values", Reason.NAN_PATTERN, [],
    ),
    "NaN for a query that may see no key": (
        masked, ATTENTION, naive_attention, "special_values", Reason.NAN_PATTERN, [],
    ),
    "room for eight tensors": (
        lambda: torch.cat([normal(3, 8), normal(5, 8, seed=1)]), "torch.cat",
        lambda t: [torch.cat([*t[:8], *map(torch.zeros_like, t[8:])])], "sizes", Reason.SIZE_DEPENDENT, ["36 tensors"],
    ),
    "a larger infinity less a smaller one": (
        lambda: torch.logaddexp(normal(12, 33), normal(12, 33, seed=1)), "torch.logaddexp",
        lambda t: [torch.maximum(t[0], t[1]) + torch.exp(-(t[0] - t[1]).abs()).log1p()],
        "special_values", Reason.NAN_PATTERN, ["in both"],
    ),
    # The input with gaps, which it refuses, is another set than the weight with gaps.
    "a weight read as if it had no gaps": (
        lambda: functional.linear(normal(7, 40), normal(24, 40)), LINEAR, weight_in_a_row,
        "layouts", Reason.LAYOUT_DEPENDENT, ["on inputs with weight"],
    ),
}  # fmt: skip


@pytest.mark.exam
@pytest.mark.parametrize("name", TRIPPED)
def test_what_the_recorded_inputs_do_not_show_is_caught(tmp_path: Path, name: str) -> None:
    """Kernels that are right on those; torch itself trips nothing."""
    run, op, kernel, probe, reason, words = TRIPPED[name]
    gate = Gate(tmp_path, run, op)
    assert gate.judge().passed
    found = gate.judge(kernel)
    assert all(check.passed for check in found.checks)
    tripped = result(found, probe)
    assert (tripped.outcome, tripped.reason) == ("tripped", reason)
    assert all(word in tripped.message for word in words)
    assert "fixed" not in tripped.message


# ---- sizes


def test_torch_passes_on_all_sets(tmp_path: Path) -> None:
    """Torch itself trips no probe; what does not apply says why."""
    gate = Gate(tmp_path, softmax(12, 64), SOFTMAX)
    found = gate.judge()
    assert found.passed
    assert outcomes(found) == {
        "sizes": "held", "invariance": "held", "arguments": "held", "layouts": "held", "special_values": "held",
        "second_precision": "not-run", "large_indices": "not-run",
    }  # fmt: skip
    assert "sizes input 12x64→12x65" in gate.names
    drawn = [gate.tensors(name)[0].shape for name in gate.names if name.startswith("sizes")]
    assert any(rows % 2 and width % 2 for rows, width in drawn)
    assert any(width in (2, 3) for _, width in drawn)
    assert any(width >= 1024 for _, width in drawn)
    assert max(gate.tensors(name)[0].numel() for name in gate.names) > 2**16
    assert "the case is not in half precision" in result(found, "second_precision").message


def test_a_defect_of_ours_is_no_refusal_of_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe without inputs says whose error left it without them, and where that was raised."""

    def defect(*_: object, **__: object) -> None:
        raise KeyError("no such size")

    def refused(*_: object, **__: object) -> None:
        argument = Argument(name="dim", value=Value(kind="int", value=7), passed="keyword")
        invoke(replace(gate.call, arguments=(gate.call.arguments[0], argument)), gate.tensors("recorded"))

    gate = Gate(tmp_path, softmax(12, 64), SOFTMAX)
    monkeypatch.setattr(sizes, "sets", defect)
    monkeypatch.setattr(arguments, "sets", refused)
    found = Gate(tmp_path / "again", softmax(12, 64), SOFTMAX).judge()
    assert result(found, "sizes").message == (
        "its inputs could not be made, which is a defect of pytest-cgins: KeyError: 'no such size' "
        "(test_probe_inputs.py, defect)"
    )
    assert result(found, "arguments").message.startswith("torch refuses the inputs (Dimension out of range")


def _rows_without_tail(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """ReLU that writes whole vectors of four alone."""
    out = tensors[0].relu().flatten()
    out[out.numel() // 4 * 4 :] = 7
    return [out.view(tensors[0].shape)]


def _wrong_where(
    condition: Callable[[torch.Size], bool], op: Callable[..., torch.Tensor]
) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    def kernel(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        out = op(*tensors)
        return [1.5 * out + 1 if condition(tensors[0].shape) else out]

    return kernel


USUAL = {(12, 50), (12, 51), (13, 50), (12, 49), (17, 50), (509, 50), (2039, 50), (0, 50)}


CLASSES: dict[str, Callable[[torch.Size], bool]] = {
    "usual": lambda shape: tuple(shape) not in USUAL,
    "multiple-of-64": lambda shape: shape[1] % 64 == 0,
    "odd": lambda shape: shape[1] % 2 == 1,
    "large": lambda shape: shape[1] >= 1024,
    "whole-tiles": lambda shape: shape[1] > 0x3FFF and shape[1] % 1024 == 0,
    "narrow": lambda shape: shape[1] <= 3,
    "one-row": lambda shape: shape[0] == 1,
    "few-rows": lambda shape: 0 < shape[0] <= 3,
}
WRONG: dict[str, tuple[Callable[[], object], str, Kernel]] = {
    "tail": (lambda: functional.relu(normal(4, 6, 40)), RELU, _rows_without_tail),
    "deep": (
        lambda: functional.linear(normal(8, 64), normal(32, 64)), LINEAR,
        _wrong_where(lambda shape: shape[1] > 512, functional.linear),
    ),
    **{
        name: (softmax(12, 50), SOFTMAX, _wrong_where(one, lambda x: x.softmax(-1)))
        for name, one in CLASSES.items()
    },
}  # fmt: skip


@pytest.mark.exam
@pytest.mark.parametrize("seed", [3, 2026])
@pytest.mark.parametrize("name", WRONG)
def test_kernel_wrong_for_a_class_of_sizes_is_caught(tmp_path: Path, name: str, seed: int) -> None:
    """Whichever sizes a kernel is wrong for, some of its class are tried, others in each run."""
    run, op, kernel = WRONG[name]
    found = Gate(tmp_path, run, op, seed=seed).judge(kernel)
    assert result(found, "sizes").reason is Reason.SIZE_DEPENDENT


def test_drawn_sizes_differ_from_run_to_run(tmp_path: Path) -> None:
    """What passes for the sizes of one seed has met others by the next."""
    run = softmax(12, 50)
    one, other = (set(Gate(tmp_path / str(seed), run, SOFTMAX, seed=seed).names) for seed in (1, 2))
    assert len(one - other) >= 4


def test_kernel_that_refuses_a_size_is_not_to_blame(tmp_path: Path) -> None:
    """An error is an answer; what it refuses is told."""
    gate = Gate(tmp_path, softmax(12, 64), SOFTMAX, probes=BUT_ARGUMENTS)
    found = gate.judge(refuses(lambda x: x.shape != (12, 64), lambda x: x.softmax(-1)))
    assert found.passed
    assert result(found, "sizes").outcome == "not-run"
    assert re.search("refuses sizes.*: unsuitable", result(found, "sizes").message)


@pytest.mark.exam
def test_sizes_of_one_number_move_together_and_with_integers(tmp_path: Path) -> None:
    """Depth moves in input and weight, a normalized shape with the last dimension."""
    gate = Gate(tmp_path, lambda: functional.linear(normal(7, 40), normal(24, 40), normal(24)), LINEAR)
    inner = gate.tensors("sizes input 7x40→7x41, weight 24x40→24x41")
    assert [tuple(tensor.shape) for tensor in inner] == [(7, 41), (24, 41), (24,)]
    for name in gate.names:
        x, weight, bias = gate.tensors(name)
        assert x.shape[-1] == weight.shape[-1]
        assert weight.shape[0] == bias.shape[0]
    norm = Gate(
        tmp_path / "norm",
        lambda: functional.layer_norm(normal(5, 48), (48,), normal(48), normal(48)),
        "torch.nn.functional.layer_norm",
    )
    assert norm.judge().passed
    assert any("5x48→5x49" in name for name in norm.names)


def packed_attention(
    k: torch.Tensor, v: torch.Tensor, q: torch.Tensor, cu_k: torch.Tensor, cu_q: torch.Tensor
) -> torch.Tensor:
    """Each sequence by itself."""
    sequences = [
        [x[None, None, begin:end] for x, (begin, end) in zip((q, k, v), ends, strict=True)]
        for ends in zip(
            *(zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True) for cu in (cu_q, cu_k, cu_k)), strict=True
        )
    ]
    return torch.cat([functional.scaled_dot_product_attention(*sequence)[0, 0] for sequence in sequences])


def test_sizes_of_different_offsets_move_apart(tmp_path: Path) -> None:
    """Queries do, and keys not without their values, beyond which torch's attention would read."""
    offsets = torch.tensor([0, 6, 12, 18])
    gate = Gate(
        tmp_path,
        lambda: pytest_cgins.mark(packed_attention)(
            normal(18, 8), normal(18, 8, seed=1), normal(18, 8, seed=2), offsets, offsets.clone()
        ),
        f"{__name__}.packed_attention",
        semantics={"coupled": {"cu_k": {"offsets": "k[0]"}, "cu_q": {"offsets": "q[0]", "within": "cu_k"}}},
    )
    sizes_of = {name: [len(one) for one in gate.tensors(name)[:3]] for name in gate.names}
    assert all(keys == values for keys, values, _ in sizes_of.values())
    assert any(queries != keys for keys, _, queries in sizes_of.values())


@pytest_cgins.mark
def halves(x: torch.Tensor) -> torch.Tensor:
    """One half of each row times the other; of three columns the half of one is repeated."""
    gate, value = x.chunk(2, -1)
    return gate * value


@pytest_cgins.mark
def in_pages(pages: torch.Tensor, table: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """Sums of sequences in pages; what there are no pages for is cut off without a word."""
    rows = zip(table, context.tolist(), strict=True)
    return torch.stack([pages[row].flatten(0, 1)[:n].sum(0) for row, n in rows])


@pytest_cgins.mark
def stored(cache: torch.Tensor, rows: torch.Tensor, slots: torch.Tensor) -> None:
    """Writes rows to pairs of slots."""
    cache.view(-1, rows.shape[-1])[slots] = rows


USERS: dict[str, tuple[Callable[[], object], Callable[..., bool]]] = {
    "halves": (lambda: halves(normal(6, 64)), lambda x: x.shape[-1] % 2 == 0),
    "in_pages": (
        lambda: in_pages(normal(9, 8, 5), torch.arange(8).reshape(2, 4) + 1, torch.tensor([32, 20])),
        lambda pages, table, context: (
            context.numel() == 0 or int(context.max()) <= table.shape[1] * pages.shape[1]
        ),
    ),
    "stored": (
        lambda: stored(normal(20, 2, 5), normal(6, 5), torch.tensor([3, 8, 1, 30, 25, 4])),
        lambda cache, rows, slots: len(set(slots.tolist())) == len(slots),
    ),
}
"""Calls of users' ops, and what is true of all that they are meant for."""


@pytest.mark.parametrize("name", USERS)
def test_a_lenient_op_is_asked_for_what_it_is_meant_for(tmp_path: Path, name: str) -> None:
    """Not what it repeats by chance, cuts off, or writes twice."""
    run, is_meant = USERS[name]
    for seed in range(2):
        gate = Gate(tmp_path / str(seed), run, f"{__name__}.{name}", seed=seed)
        assert len([one for one in gate.names if one.startswith("sizes")]) > 2
        assert all(is_meant(*gate.tensors(one)) for one in gate.names)


class Unsuitable(Exception):
    """What an op of a user raises."""


@pytest_cgins.mark
def of_three(xs: list[torch.Tensor], places: dict[str, int], scale: float) -> torch.Tensor:
    """Of three tensors, with known scales, none of them negative as a whole."""
    assert min(x.sum() for x in xs) >= 0
    first, second, third = (xs[places[name]] for name in "abc")
    if len(xs) > 3 or scale != 0.75:
        raise Unsuitable
    return (first + second + third).div(scale).round()


@pytest_cgins.mark
def added_to_dense(x: torch.Tensor, y: torch.Tensor) -> None:
    """Takes no gaps between rows."""
    if not x.is_contiguous():
        raise Unsuitable
    x.add_(y)


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("of_three", lambda: of_three([normal(5, 7).abs()] * 3, {"a": 0, "b": 1, "c": 2}, 0.75)),
        ("added_to_dense", lambda: added_to_dense(normal(5, 7), normal(5, 7))),
    ],
)
def test_an_op_refuses_by_any_exception(tmp_path: Path, name: str, run: Callable[[], object]) -> None:
    """What it does not take is no set, and ends neither the case nor the probe."""
    gate = Gate(tmp_path, run, f"{__name__}.{name}")
    judged = gate.judge(None if name == "of_three" else lambda tensors: [tensors[0] + tensors[1]])
    assert judged.passed
    assert outcomes(judged)["sizes"] == outcomes(judged)["layouts"] == "held"


@pytest_cgins.mark
def of_small_numbers(x: torch.Tensor) -> torch.Tensor:
    """Of rows that nobody scaled."""
    if x.max() > 8:
        raise AssertionError
    return x.sin()


@pytest_cgins.mark
def of_suitable_numbers(x: torch.Tensor) -> torch.Tensor:
    """The same with an exception of its own."""
    if x.max() > 8:
        raise Unsuitable("too large")
    return x.sin()


@pytest.mark.parametrize(
    ("op", "why"), [(of_small_numbers, "AssertionError"), (of_suitable_numbers, "Unsuitable: too large")]
)
def test_an_op_may_refuse_fresh_inputs(tmp_path: Path, op: Callable[..., object], why: str) -> None:
    """The recorded ones remain, and it is said why there are no others; an exception of the op's own ended the case."""
    judged = Gate(tmp_path, lambda: op(normal(20, 7)), f"{__name__}.{op.__name__}").judge()
    assert judged.passed
    assert f"no fresh inputs: torch refuses them ({why})" in judged.notes


@pytest_cgins.mark
def clipped_(tensors: list[torch.Tensor], limit: float) -> torch.Tensor:
    norm = sum(one.square().sum() for one in tensors).sqrt()
    for one in tensors:
        one.mul_((limit / norm).clamp(max=1.0))
    return norm


def test_all_of_a_longer_list_may_be_changed(tmp_path: Path) -> None:
    """The recorded call changed none, for nothing was beyond the limit."""
    op = f"{__name__}.clipped_"
    declared = {"mutated": ["tensors"]}
    gate = Gate(tmp_path, lambda: clipped_([normal(61), normal(32, seed=1)], 100.0), op, semantics=declared)
    longer = gate._sets[gate.names.index("sizes of lists, 36 tensors")]
    assert longer["mutated"] == [*range(36)]


def test_out_is_as_large_as_the_answer(tmp_path: Path) -> None:
    """torch would give it other memory, which a kernel that writes to what it was passed cannot."""
    gate = Gate(
        tmp_path, lambda: torch.add(normal(8, 16), normal(8, 16, seed=1), out=torch.empty(8, 16)), "torch.add"
    )
    shapes = [[tuple(tensor.shape) for tensor in gate.tensors(name)] for name in gate.names]
    assert any(one[0] != (8, 16) for one in shapes)
    assert all(out == torch.broadcast_shapes(*others) for *others, out in shapes)


def test_longer_lists_are_of_small_tensors(tmp_path: Path) -> None:
    """Three dozen copies of large ones would be gigabytes."""
    large = [torch.ones(1 << 18), torch.ones(1 << 18)]
    gate = Gate(tmp_path, lambda: torch.cat(large), "torch.cat", probes=["sizes"])
    tensors = gate.tensors("sizes of lists, 36 tensors")
    assert 1 << 10 < sum(tensor.nbytes for tensor in tensors) <= MANY_BYTES
    assert result(gate.judge(), "sizes").outcome == "held"


def test_integers_that_are_expanded_stay(tmp_path: Path) -> None:
    """Those beside them become others."""
    run = lambda: torch.add(torch.arange(32).reshape(4, 8), torch.arange(8).expand(4, 8))  # noqa: E731
    gate = Gate(tmp_path, run, "torch.add")
    numbers, expanded = gate.tensors("other integers")
    assert int(numbers.abs().max()) > 1 << 32
    assert torch.equal(expanded, torch.arange(8).expand(4, 8))
    assert gate.judge().passed


@pytest_cgins.mark
def scaled_in_blocks(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Sixteen columns to a scale."""
    return x * scale.repeat_interleave(16, -1)[..., : x.shape[-1]]


@pytest_cgins.mark
def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Products of all rows."""
    return x @ y.T


EXPANDED: dict[str, Callable[[], object]] = {
    f"{__name__}.outer": lambda: outer(normal(64, 64), normal(64).expand(64, 64)),
    f"{__name__}.scaled_in_blocks": lambda: scaled_in_blocks(normal(8, 64), normal(4).expand(8, 4)),
    "torch.nn.functional.cross_entropy": lambda: functional.cross_entropy(
        normal(8, 64), torch.tensor([3]).expand(8)
    ),
    "torch.cumsum": lambda: torch.cumsum(normal(40, 1).expand(40, 30), -1),
}


@pytest.mark.parametrize("op", EXPANDED)
def test_no_probe_writes_into_what_is_expanded(tmp_path: Path, op: str) -> None:
    """That is an error of torch's, and the end of a probe."""
    judged = Gate(tmp_path, EXPANDED[op], op).judge()
    assert judged.passed
    assert not [one for one in judged.probes if "written-to" in one.message]


@pytest_cgins.mark
def fixed_point(x: torch.Tensor) -> torch.Tensor:
    """Energies of rows as integers, of which rounding makes others."""
    return (x * x).sum(-1).mul(256).to(torch.int32)


@pytest.mark.parametrize(
    ("dtype", "kernel", "is_right"),
    [
        (torch.bfloat16, fixed_point, True),
        (torch.bfloat16, lambda x: x.float().square().sum(-1).to(x.dtype).mul(256).int(), True),
        (torch.bfloat16, lambda x: x.double().square().sum(-1).mul(256).int(), True),
        (torch.bfloat16, lambda x: torch.zeros(x.shape[:-1], dtype=torch.int32), False),
        (torch.float16, lambda x: torch.zeros(x.shape[:-1], dtype=torch.int32), False),
        (torch.bfloat16, lambda x: fixed_point(x[..., 1:]), False),
    ],
)
def test_integers_that_rounding_changes_are_near_one_of_the_answers(
    tmp_path: Path, dtype: torch.dtype, kernel: Kernel, is_right: bool
) -> None:
    """In each probe, of a kernel that knows the recorded answer; and also where rows are others' rows."""
    gate = Gate(tmp_path, lambda: fixed_point(normal(3, 96, dtype=dtype)), f"{__name__}.fixed_point")
    (known,) = gate.tensors("recorded")

    def remembers(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        (x,) = tensors
        return [fixed_point(x) if x.shape == known.shape and x.equal(known) else kernel(x)]

    judged = gate.judge(remembers)
    assert all(check.passed for check in judged.checks) is is_right
    assert {"257 rows", "17 rows of 257", "1536 rows"} <= set(gate.names)
    if is_right:
        assert outcomes(judged)["invariance"] == outcomes(judged)["sizes"] == "held"


def test_indices_point_into_something(tmp_path: Path) -> None:
    """torch.index_add looks at none where there are no rows to add to."""
    run = lambda: torch.index_add(normal(9, 4), 0, torch.arange(5), normal(5, 4))  # noqa: E731
    gate = Gate(tmp_path, run, "torch.index_add")
    assert all(gate.tensors(name)[0].numel() or not gate.tensors(name)[1].numel() for name in gate.names)


@pytest_cgins.mark
def scaled_by_two(x: torch.Tensor, key_scale: torch.Tensor, value_scale: torch.Tensor) -> torch.Tensor:
    """A scale for all of a tensor, twice."""
    return x / key_scale + x.square() * value_scale


@pytest.mark.parametrize("places", [(1, 1), (2, 2), (2, 1)])
def test_a_lone_scale_is_another_one(tmp_path: Path, places: tuple[int, int]) -> None:
    """Recorded as 1 both of them could be left out, or be the same."""
    one = torch.tensor(1.0)
    gate = Gate(tmp_path, lambda: scaled_by_two(normal(8, 9), one, one.clone()), f"{__name__}.scaled_by_two")
    found = gate.judge(
        lambda tensors: [tensors[0] / tensors[places[0]] + tensors[0].square() * tensors[places[1]]]
    )
    assert result(found, "arguments").outcome == "tripped"
    assert gate.judge().passed


def test_fixed_dimensions_keep_their_size(tmp_path: Path) -> None:
    """`semantics: {fixed: …}` leaves the rows to move, and nothing where all is fixed."""
    run = softmax(12, 64)
    rows = Gate(tmp_path / "rows", run, SOFTMAX, semantics={"fixed": ["input[1]"]})
    assert {rows.tensors(name)[0].shape[1] for name in rows.names} == {64}
    assert {rows.tensors(name)[0].shape[0] for name in rows.names} >= {0, 12, 13, 1061}
    none = Gate(tmp_path / "none", run, SOFTMAX, semantics={"fixed": ["input"]})
    assert not any("sizes" in name for name in none.names)
    assert result(none.judge(), "sizes").message == "no argument has a size that may change"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("CUDA error: invalid configuration argument"), "tripped"),
        (ZeroDivisionError("integer division by zero"), "tripped"),
        (ValueError("no rows"), "held"),
    ],
)
def test_launch_of_no_blocks_is_no_refusal(tmp_path: Path, error: Exception, outcome: str) -> None:
    """What the driver says of an empty grid is a bug; an empty batch may be refused in words."""
    gate = Gate(tmp_path, softmax(12, 64), SOFTMAX)

    def kernel(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if not tensors[0].numel():
            raise error
        return [tensors[0].softmax(-1)]

    assert result(gate.judge(kernel), "sizes").outcome == outcome


@pytest.mark.parametrize(
    ("run", "op"),
    [
        (lambda: torch.mean(normal(12, 64), dim=0), "torch.mean"),
        (lambda: torch.amax(normal(12, 64), dim=0), "torch.amax"),
        (
            lambda: functional.batch_norm(normal(12, 8, 3), normal(8), normal(8).abs(), training=True),
            "torch.nn.functional.batch_norm",
        ),
    ],
    ids=["NaN", "refused", "state"],
)
def test_nothing_is_left_out_where_in_doubt(tmp_path: Path, run: Callable[[], object], op: str) -> None:
    """The mean of nothing, its greatest element, and running statistics that nothing came to."""
    gate = Gate(tmp_path, run, op)
    assert any("12x" in name for name in gate.names)
    assert not any("→0x" in name for name in gate.names)


def test_sizes_of_a_modules_inputs_move_and_its_own_do_not(tmp_path: Path) -> None:
    """Rows of a Linear move; its features, which its weight has, and its heads, an integer, stay."""
    module = torch.nn.Linear(40, 24)
    gate = Gate(tmp_path / "linear", lambda: module(normal(7, 40)), "torch.nn.Linear")
    assert {gate.tensors(name)[0].shape[-1] for name in gate.names} == {40}
    assert {gate.tensors(name)[0].shape[0] for name in gate.names} >= {0, 7, 8, 1699}
    assert gate.judge().passed
    fixed = torch.nn.Unflatten(1, (4, 10))
    held = Gate(tmp_path / "held", lambda: fixed(normal(10, 40)), "torch.nn.Unflatten")
    assert not any("10x40→11x" in name for name in held.names)


def _right_for(batch: int) -> Kernel:
    """A ReLU that gives zeros behind so many rows."""

    def kernel(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        out = torch.zeros_like(tensors[0])
        out[:batch] = tensors[0][:batch].relu()
        return [out]

    return kernel


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_batch_of_a_few_is_a_size_as_well(tmp_path: Path, batch: int) -> None:
    """A kernel that is right for the recorded 1, 2 or 3 rows alone is caught beside larger sizes that move, too."""
    gate = Gate(tmp_path, lambda: functional.relu(normal(batch, 6, 40)), RELU)
    assert gate.judge().passed
    assert result(gate.judge(_right_for(batch)), "sizes").reason is Reason.SIZE_DEPENDENT


@pytest.mark.exam
def test_dimensions_of_one_move_by_their_place(tmp_path: Path) -> None:
    """A query of one token becomes two, and the heads, the batch and what is broadcast stay."""
    q, k, mask = normal(1, 1, 1, 16), normal(1, 1, 21, 16), torch.ones(1, 1, 1, 21, dtype=torch.bool)
    gate = Gate(tmp_path, lambda: functional.scaled_dot_product_attention(q, k, k + 1, mask), ATTENTION)
    shapes = {tuple(gate.tensors(name)[0].shape[1:3]) for name in gate.names if "sizes" in name}
    assert (2, 2) in shapes
    assert gate.judge().passed


@pytest.mark.exam
def test_heads_that_share_heads_move_together(tmp_path: Path) -> None:
    """Eight heads of queries and four of keys become others of which so many share so many."""
    q, k = normal(2, 8, 9, 16), normal(2, 4, 9, 16)
    gate = Gate(
        tmp_path, lambda: functional.scaled_dot_product_attention(q, k, k + 1, enable_gqa=True), ATTENTION
    )
    heads = {(gate.tensors(name)[0].shape[1], gate.tensors(name)[1].shape[1]) for name in gate.names}
    assert any(queries != 8 and keys != 4 for queries, keys in heads)
    assert gate.judge().passed


def test_numbers_that_come_twice_are_told_beside_the_size(tmp_path: Path) -> None:
    """Of two additions to one place a kernel keeps the last: its recorded indices were distinct."""
    gate = Gate(
        tmp_path,
        lambda: torch.index_add(normal(20, 8), 0, torch.arange(0, 18, 3), normal(6, 8)),
        "torch.index_add",
    )

    def overwrites(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        out = tensors[0].clone()
        if not len(out) or out[tensors[1]].shape != tensors[2].shape:
            raise ValueError("of rows alone")
        out[tensors[1]] = tensors[0][tensors[1]] + tensors[2]
        return [out]

    message = result(gate.judge(overwrites), "sizes").message
    assert (
        "There `index` holds a number twice, as nothing recorded did: look there before at the size."
        in message
    )


@pytest.mark.parametrize("op", ["cumsum", "logsumexp"])
def test_what_walks_along_rows_has_long_ones(tmp_path: Path, op: str) -> None:
    """What a kernel carries from one piece of a row to the next shows beyond the first piece."""
    gate = Gate(tmp_path, lambda: getattr(torch, op)(normal(8, 300), -1), f"torch.{op}")
    assert max(gate.tensors(name)[0].shape[-1] for name in gate.names) >= 1 << 14
    assert gate.judge().passed


@pytest.mark.exam
def test_one_head_of_keys_becomes_two(tmp_path: Path) -> None:
    """Which heads of queries share one shows nowhere else."""
    q, k = normal(2, 4, 12, 16), normal(2, 1, 12, 16)
    gate = Gate(
        tmp_path, lambda: functional.scaled_dot_product_attention(q, k, k + 1, enable_gqa=True), ATTENTION
    )
    heads = {(gate.tensors(name)[0].shape[1], gate.tensors(name)[1].shape[1]) for name in gate.names}
    assert any(1 < keys < queries for queries, keys in heads)
    assert gate.judge().passed


@pytest.mark.exam
@pytest.mark.parametrize("queries", [17, 40, 0])
def test_keys_are_many_where_heads_are_narrow(tmp_path: Path, queries: int) -> None:
    """A row of attention is a query's scores: a buffer for 1,024 of them is too small, and a plain kernel's time is bearable.

    Of what attends to itself, one tensor is query, key and value.
    """
    kv = normal(1, 4, 40, 16)
    q, v = (normal(1, 4, queries, 16), kv.clone()) if queries else (kv, kv)
    gate = Gate(tmp_path, lambda: functional.scaled_dot_product_attention(q, kv, v), ATTENTION)
    sets = [gate.tensors(name) for name in gate.names if name.startswith("sizes")]
    assert max(tensors[-1].shape[-2] for tensors in sets) in (2048, 3072)
    # Where it adds up a head for each of its outputs.
    steps = [tensors[0].numel() * tensors[-1].shape[-2] * tensors[-1].shape[-1] for tensors in sets]
    assert max(steps) < 1 << 26

    def buffered(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        q, k, v = (tensors * 3)[:3]
        return [functional.scaled_dot_product_attention(q, k[..., :1024, :], v[..., :1024, :])]

    assert result(gate.judge(buffered), "sizes").reason is Reason.SIZE_DEPENDENT


def test_windows_that_torch_knows_stay(tmp_path: Path) -> None:
    """A batch of 3 and three channels move, and windows of 3x3 do not: another one is another op."""
    gate = Gate(
        tmp_path,
        lambda: functional.conv2d(normal(3, 3, 9, 9), normal(8, 3, 3, 3)),
        "torch.nn.functional.conv2d",
    )
    tried = [gate.tensors(name) for name in gate.names if "sizes" in name]
    assert {tensors[1].shape[2] for tensors in tried} == {3}
    assert any(tensors[0].shape[0] > 3 and tensors[0].shape[1] == 3 for tensors in tried)
    assert any(tensors[0].shape[1] == 5 for tensors in tried)


def test_batch_grows_to_many_rows_but_for_the_interpreter(tmp_path: Path) -> None:
    """Threads that share a variable meet in hundreds of rows; Triton's interpreter would take seconds for them."""
    run = softmax(3, 7)
    many = Gate(tmp_path / "many", run, SOFTMAX)
    assert max(many.tensors(name)[0].shape[0] for name in many.names) == 2039
    few = Gate(tmp_path / "few", run, SOFTMAX, interpreted=True)
    assert max(few.tensors(name)[0].shape[0] for name in few.names) == 7


@pytest.mark.exam
def test_large_calls_are_tried_on_smaller_sizes(tmp_path: Path) -> None:
    """No set of another size is larger than 4 MiB, or nearly."""
    gate = Gate(tmp_path, lambda: functional.relu(normal(1200, 1200)), RELU)
    moved = [gate.tensors(name)[0] for name in gate.names if name.startswith("sizes")]
    assert moved
    assert all(tensor.nbytes < 5 << 20 for tensor in moved)


# ---- NaN and infinities


@pytest.mark.parametrize("passes_over", [True, False])
@pytest.mark.parametrize(("op", "sign"), [("max", 1), ("min", -1), ("amax", 1), ("amin", -1)])
def test_an_extreme_beside_nan_is_caught(tmp_path: Path, op: str, sign: int, passes_over: bool) -> None:
    """Of numbers beside NaN torch's extremes are NaN; fmax gives the number."""
    arguments = {"dim": -1} if op.startswith("a") else {}
    gate = Gate(tmp_path, lambda: getattr(torch, op)(normal(12, 33), **arguments), f"torch.{op}")

    def kernel(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        x = sign * tensors[0]
        x = x.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf) if passes_over else x
        return [sign * (x.amax(-1) if arguments else x.max())]

    tripped = result(gate.judge(kernel), "special_values")
    assert tripped.outcome == ("tripped" if passes_over else "held")
    assert tripped.reason is (Reason.NAN_PATTERN if passes_over else Reason.OK)


@pytest_cgins.mark
def decayed(x: torch.Tensor) -> torch.Tensor:
    """A user's op that infinity goes through in this formula, and not in another."""
    return x * (1 - 2**-7)


def test_another_formula_of_a_users_op_may_make_nan_of_infinity(tmp_path: Path) -> None:
    """x - x/128 is as right as x * 127/128, and NaN where x is infinite; a NaN must stay one."""
    gate = Gate(tmp_path, lambda: decayed(normal(12, 33)), f"{__name__}.decayed")
    other = gate.judge(lambda tensors: [tensors[0] - tensors[0] / 128])
    assert result(other, "special_values").outcome == "held"
    swallowed = gate.judge(lambda tensors: [tensors[0].nan_to_num() * (1 - 2**-7)])
    assert result(swallowed, "special_values").reason is Reason.NAN_PATTERN


@pytest_cgins.mark
def shares(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """A user's op with a mask: NaN goes to all of a row in this formula."""
    return x.masked_fill(~seen, -torch.inf).softmax(-1)


def test_what_a_mask_excludes_may_be_zero_beside_nan(tmp_path: Path) -> None:
    """A kernel that never looks at excluded keys gives them 0; a row of NaN must still have one where it is seen."""
    seen = torch.arange(33) % 3 < torch.arange(12)[:, None] % 2 + 1
    gate = Gate(tmp_path, lambda: shares(normal(12, 33), seen), f"{__name__}.shares")
    skipped = gate.judge(lambda tensors: [torch.where(tensors[1], shares(*tensors), 0.0)])
    assert result(skipped, "special_values").outcome == "held"
    swallowed = gate.judge(lambda tensors: [shares(tensors[0].nan_to_num(), tensors[1])])
    assert result(swallowed, "special_values").reason is Reason.NAN_PATTERN


def test_infinities_of_which_torch_makes_nan_are_left_out(tmp_path: Path) -> None:
    """+inf in a softmax is NaN in torch's formula and 1 in another: only NaN and -inf are put in."""
    gate = Gate(tmp_path, softmax(12, 33), SOFTMAX)
    x = gate.tensors("NaN and infinity")[0]
    assert (int(torch.isnan(x).sum()), int((x == torch.inf).sum()), int((x == -torch.inf).sum())) == (2, 0, 1)


@pytest_cgins.mark
def moving_sums(x: torch.Tensor) -> torch.Tensor:
    """Differences of running sums, in which NaN stays for all that follows."""
    sums = functional.pad(x.cumsum(0), (0, 0, 3, 0))
    return sums[3:] - sums[:-3]


@pytest.mark.parametrize(
    ("run", "op", "why"),
    [
        (lambda: torch.max(normal(4, 8), 1), "torch.max", "chooses"),
        (
            lambda: functional.conv2d(normal(1, 4, 8, 8), normal(4, 4, 3, 3)),
            "torch.nn.functional.conv2d",
            "spreads",
        ),
        (lambda: moving_sums(normal(12, 33)), f"{__name__}.moving_sums", "do not depend"),
    ],
)
def test_ops_whose_nan_is_a_matter_of_algorithm_are_left_out(
    tmp_path: Path, run: Callable[[], object], op: str, why: str
) -> None:
    """Choices and transformed convolutions have no one right place for NaN."""
    found = Gate(tmp_path, run, op).judge()
    assert result(found, "special_values").outcome == "not-run"
    assert why in result(found, "special_values").message


@pytest_cgins.mark
def with_exponents(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers over the power of two of their row, and those, which are exponents alone."""
    exponents = torch.floor(torch.log2(x.abs().amax(-1)))
    return x / torch.exp2(exponents)[:, None], (exponents + 127).to(torch.uint8).view(torch.float8_e8m0fnu)


def test_exponents_have_special_values_beside_them(tmp_path: Path) -> None:
    """torch has hardly an operator for them."""
    gate = Gate(tmp_path, lambda: with_exponents(normal(12, 33)), f"{__name__}.with_exponents")
    assert gate.judge().passed
    swallowed = gate.judge(lambda tensors: list(with_exponents(tensors[0].nan_to_num())))
    assert result(swallowed, "special_values").reason is Reason.NAN_PATTERN


# ---- layouts


def flat(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """relu of the memory as it lies: right for dense tensors."""
    x = tensors[0]
    memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage(), x.storage_offset(), (x.numel(),), (1,))
    return [functional.relu(memory).reshape(x.shape)]


@pytest.mark.parametrize("seed", [3, 2026])
def test_an_argument_that_lies_elsewhere_is_read_right_or_refused(tmp_path: Path, seed: int) -> None:
    """A kernel that reads memory in a row is wrong whatever it claims; one that refuses is not, unless it claims more."""
    run: Callable[[], object] = lambda: functional.relu(normal(12, 33))  # noqa: E731
    gate = Gate(tmp_path / "a", run, RELU, seed=seed)
    strided = {f"input {where}" for where in ("transposed", "at every second element", "padded between rows")}
    assert strided <= {*gate.names}
    tripped = result(gate.judge(flat), "layouts")
    assert (tripped.outcome, tripped.reason) == ("tripped", Reason.LAYOUT_DEPENDENT)
    assert "or return an error" in tripped.message
    assert gate.judge().passed
    dense = refuses(lambda x: not x.is_contiguous(), functional.relu)
    assert gate.judge(dense).passed
    claims = Gate(tmp_path / "b", run, RELU, claims=["strided"], seed=seed)
    assert "refuses what its claims" in result(claims.judge(dense), "layouts").message


def test_who_is_wrong_on_the_numbers_is_not_told_of_layouts(tmp_path: Path) -> None:
    """Other layouts of a large argument are those of a smaller one: it comes as it lies, too, and first."""

    def small_are_wrong(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        (x,) = tensors
        return [functional.relu(x) + (0.5 if x.numel() < 2**17 else 0.0)]

    gate = Gate(tmp_path, lambda: functional.relu(normal(512, 1024)), RELU, probes=["layouts"])
    tripped = result(gate.judge(small_are_wrong), "layouts")
    assert (tripped.outcome, tripped.reason) == ("tripped", Reason.SIZE_DEPENDENT)
    assert "on inputs with smaller arguments" in tripped.message
    assert "be right for this size too" in tripped.message
    assert gate.judge().passed


def test_a_claim_is_of_the_recorded_dimensions(tmp_path: Path) -> None:
    """A kernel for matrices of any strides takes what it claims, though not a batch of them."""
    gate = Gate(tmp_path, lambda: functional.relu(normal(12, 33)), RELU, claims=["strided"])
    assert gate.judge(refuses(lambda x: x.ndim != 2, functional.relu)).passed


def test_a_misaligned_address_is_read_right_or_refused(tmp_path: Path) -> None:
    """The tensors arrive one element behind an aligned address; refusing them breaks a claim alone."""
    run: Callable[[], object] = lambda: functional.relu(normal(12, 33))  # noqa: E731
    gate = Gate(tmp_path / "a", run, RELU)
    assert gate.tensors("input misaligned")[0].data_ptr() % 16 == 4
    assert gate.tensors("fresh")[0].data_ptr() % 16 == 0

    def rounded_down(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        start = tensors[0].storage_offset() // 4 * 4
        return [functional.relu(tensors[0].as_strided(tensors[0].shape, tensors[0].stride(), start))]

    aligned = refuses(lambda x: x.data_ptr() % 16, functional.relu)
    assert result(gate.judge(rounded_down), "layouts").reason is Reason.ALIGNMENT_DEPENDENT
    assert gate.judge(aligned).passed
    tripped = result(Gate(tmp_path / "b", run, RELU, claims=["misaligned"]).judge(aligned), "layouts")
    assert (tripped.outcome, tripped.reason) == ("tripped", Reason.ALIGNMENT_DEPENDENT)
    assert "refuses what its claims in cgins.yaml say it takes" in tripped.message


@pytest.mark.parametrize("seed", range(4))
def test_a_vector_lies_with_gaps_in_each_run(tmp_path: Path, seed: int) -> None:
    """Transposed it is as before: what is drawn for it is a layout in which it does lie elsewhere."""
    weight = normal(40)
    gate = Gate(
        tmp_path,
        lambda: functional.rms_norm(normal(7, 40), (40,), weight),
        "torch.nn.functional.rms_norm",
        seed=seed,
    )
    assert gate.tensors("weight at every second element")[1].stride() == (2,)


# ---- precision


def in_fp32(eps: float) -> Kernel:
    """A softmax that is off by a share of its answer, in any precision."""
    return lambda t: [(t[0].double().softmax(-1) * (1 + eps)).to(t[0].dtype)]


def test_what_half_precision_hides_is_caught(tmp_path: Path) -> None:
    """An error of 1e-4 is nothing in fp16 and much in fp32, and the message has both shares."""
    gate = Gate(tmp_path, softmax(12, 64, dtype=torch.half), SOFTMAX, probes=BUT_ARGUMENTS)
    assert gate.judge(in_fp32(0.0)).passed
    tripped = result(gate.judge(in_fp32(1e-4)), "second_precision")
    assert (tripped.outcome, tripped.reason) == ("tripped", Reason.HIDDEN_BY_PRECISION)
    assert "in float16 the kernel is right, at 0." in tripped.message
    assert "times the tolerance: half precision hides" in tripped.message


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (lambda t: [t[0].half().softmax(-1).to(t[0].dtype)], "have the significant bits of half precision"),
        (lambda t: [t[0].half().softmax(-1)], "does not take fp32: the output is float16"),
        (lambda t: [t[0].softmax(-1) if t[0].dtype == torch.half else t[0].softmax(0)], "not even right"),
    ],
)
def test_kernels_for_half_precision_alone_are_not_to_blame(tmp_path: Path, kernel: Kernel, why: str) -> None:
    """Answers in half precision, and garbage, mean that fp32 is not taken."""
    gate = Gate(tmp_path, softmax(12, 64, dtype=torch.half), SOFTMAX, probes=BUT_ARGUMENTS)
    found = gate.judge(kernel)
    assert found.passed
    assert result(found, "second_precision").outcome == "not-run"
    assert why in result(found, "second_precision").message


def rounded_product(bits: int) -> Kernel:
    """A linear layer on inputs with so many bits of fraction."""

    def fewer(tensor: torch.Tensor) -> torch.Tensor:
        patterns = tensor.view(torch.int32) + (1 << (22 - bits))
        return (patterns & -(1 << (23 - bits))).view(torch.float32)

    return lambda t: [functional.linear(fewer(t[0]), fewer(t[1]), t[2])]


@pytest.mark.exam
@pytest.mark.parametrize(
    ("bits", "name"),
    [(10, "11 significant bits, as TF32 and fp16 have"), (7, "8 significant bits, as bf16 has")],
)
def test_low_precision_inside_fp32_has_its_name(tmp_path: Path, bits: int, name: str) -> None:
    """The error of a product on rounded inputs is recognised by its size and direction."""
    run: Callable[[], object] = lambda: functional.linear(normal(12, 64), normal(20, 64), normal(20))  # noqa: E731
    found = Gate(tmp_path / "a", run, LINEAR, probes=BUT_ARGUMENTS).judge(rounded_product(bits))
    failed = [check for check in found.checks if not check.passed]
    assert {check.reason for check in failed} == {Reason.LOW_PRECISION}
    assert f"Its error is that of inputs with {name}." in failed[0].message
    allowed = Gate(tmp_path / "b", run, LINEAR, probes=BUT_ARGUMENTS, allow_tf32=True).judge(
        rounded_product(bits)
    )
    assert allowed.passed is (bits == 10)
    if allowed.passed:
        assert "products of inputs rounded to TF32 are allowed (cgins.yaml: precision)" in allowed.notes


def test_tf32_is_allowed_in_products_alone(tmp_path: Path) -> None:
    """A softmax on inputs rounded to TF32 stays wrong, whatever the yaml says."""
    gate = Gate(tmp_path, softmax(12, 64), SOFTMAX, allow_tf32=True)
    found = gate.judge(lambda t: [(t[0].view(torch.int32) & -(1 << 13)).view(torch.float32).softmax(-1)])
    assert not found.passed
    assert not any("TF32" in note for note in found.notes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_kernel_may_round_at_other_sizes_as_torch_does_at_the_recorded_one(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    """torch's attention keeps its weights in half precision, in five dimensions in fp32: flash attention is right in both."""
    query, key, value = (normal(4, 8, 64, 32, seed=seed, dtype=dtype) for seed in range(3))
    gate = Gate(
        tmp_path,
        lambda: functional.scaled_dot_product_attention(query, key, value),
        ATTENTION,
        probes=["layouts", "sizes"],
    )

    def flash(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        query, key, value = (tensor.float() for tensor in tensors)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        weights = (scores - scores.amax(-1, keepdim=True)).exp() if scores.numel() else scores
        summed = weights.to(dtype).float() @ value
        return [(summed / weights.sum(-1, keepdim=True)).to(dtype)]

    judged = gate.judge(flash)
    assert any(name.endswith("2x4x8x32x32") for name in gate.names)
    assert all(check.passed for check in judged.checks)
    assert outcomes(judged) == {"layouts": "held", "sizes": "held"}


# ---- what users say


def test_argument_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    """The message has the name, the op and the nearest argument."""
    with pytest.raises(ConfigError, match=r'"inputs", and torch\.nn\.functional\.softmax has none') as caught:
        Gate(
            tmp_path,
            softmax(4, 8),
            SOFTMAX,
            semantics={"roles": {"inputs": "data"}},
        )
    assert "input" in caught.value.remedy


def test_declared_domain_and_mask_shape_the_fresh_inputs(tmp_path: Path) -> None:
    """Numbers stay within the domain; what is declared a mask stays as recorded."""
    x, y = normal(6, 8).sigmoid(), normal(6, 8)
    gate = Gate(
        tmp_path,
        lambda: torch.add(x, y),
        "torch.add",
        semantics={"domain": {"input": [0.25, 0.5]}, "roles": {"other": "mask"}},
    )
    first, second = gate.tensors("fresh")
    assert 0.25 <= float(first.min()) < float(first.max()) <= 0.5
    assert torch.equal(second, gate.tensors("recorded")[1])


def test_a_batch_of_its_own_dimension_is_tried(tmp_path: Path) -> None:
    """Two batches in one dimension more, of what is batched alone; not where dimensions are declared by their number."""
    gate = Gate(
        tmp_path / "linear", lambda: functional.linear(normal(7, 40), normal(24, 40), normal(24)), LINEAR
    )
    x, weight, _ = gate.tensors("sizes input 7x40→2x7x40")
    assert (tuple(x.shape), tuple(weight.shape)) == ((2, 7, 40), (24, 40))
    run = softmax(12, 64)
    fixed = Gate(tmp_path / "softmax", run, SOFTMAX, semantics={"fixed": ["input[1]"]})
    assert {fixed.tensors(name)[0].dim() for name in fixed.names} == {2}
