from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from pytest_cgins.core.errors import ReplayError
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs.gold import load_gold
from pytest_cgins.packs.replay import check, is_nondeterministic, load_inputs
from pytest_cgins.packs.store import PackReader, open_pack


@pytest.fixture
def linear(recorded, tmp_path) -> tuple[Trace, PackReader]:
    recorded(lambda: F.linear(torch.randn(8, 16), torch.randn(4, 16)), tier="full")
    reader = open_pack(tmp_path / "pack")
    return reader.pack.traces[0], reader


class Altered:
    """A source whose blobs of one length are changed by a function on their float32 values."""

    def __init__(self, reader: PackReader, nbytes: int, change) -> None:
        self.reader, self.nbytes, self.change = reader, nbytes, change

    def read(self, blob) -> bytes:
        content = self.reader.read(blob)
        if blob.nbytes != self.nbytes:
            return content
        values = torch.frombuffer(bytearray(content), dtype=torch.float32)
        return self.change(values).numpy().tobytes()


def test_the_same_answer_is_bitwise(linear) -> None:
    """A trace replayed where it was recorded gives its own gold."""
    trace, reader = linear
    assert check(trace, reader) == "bitwise"


def test_a_rounding_difference_is_derived(linear) -> None:
    """Gold off by an ulp, as another host's would be, is accepted as such."""
    trace, reader = linear
    source = Altered(reader, 8 * 4 * 4, lambda gold: gold * (1 + 2**-23))
    assert check(trace, source) == "derived"


def test_a_wrong_answer_names_element_and_values(linear) -> None:
    """The error has op, signature, output, element, what came and what is recorded."""
    trace, reader = linear

    def wrong(gold: torch.Tensor) -> torch.Tensor:
        gold[17] += 1
        return gold

    with pytest.raises(ReplayError, match=r"output 0, element 17: got .*, recorded is ") as caught:
        check(trace, Altered(reader, 8 * 4 * 4, wrong))
    assert str(caught.value).startswith(f"torch.nn.functional.linear {trace.signature}")
    assert "record it again" in caught.value.remedy


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_gold_that_is_not_finite_where_the_answer_is(linear, value) -> None:
    """NaN and infinity are never within a tolerance."""
    trace, reader = linear

    def spoil(gold: torch.Tensor) -> torch.Tensor:
        gold[3] = value
        return gold

    with pytest.raises(ReplayError, match="element 3"):
        check(trace, Altered(reader, 8 * 4 * 4, spoil))


def test_another_shape_is_an_error(linear) -> None:
    """Gold of another form is refused before values are compared."""
    trace, reader = linear
    gold = trace.gold.tensors[0]
    other = replace(gold, meta=replace(gold.meta, shape=(4, 8), stride=(8, 1)))
    with pytest.raises(ReplayError, match=r"is float32 \[8, 4\], recorded is float32 \[4, 8\]"):
        check(replace(trace, gold=replace(trace.gold, tensors=(other,))), reader)


def test_an_op_that_raises_is_a_replay_error(linear) -> None:
    """Whatever the op raises is wrapped with op and signature."""
    trace, reader = linear
    broken = replace(trace, call=replace(trace.call, arguments=trace.call.arguments[:1]))
    with pytest.raises(ReplayError, match="cannot be replayed: TypeError"):
        check(broken, reader)


def test_nondeterminism_is_what_torch_says(linear, recorded, tmp_path) -> None:
    """linear is deterministic; max_unpool2d, which scatters without order, is not."""
    trace, reader = linear
    assert not is_nondeterministic(trace, reader)
    values, indices = F.max_pool2d(torch.randn(1, 1, 4, 4), 2, return_indices=True)
    name = "torch.nn.functional.max_unpool2d"
    pack = recorded(lambda: F.max_unpool2d(values, indices, 2), ops=[name], tier="full")
    assert is_nondeterministic(pack.traces[0], open_pack(tmp_path / "pack"))


def test_gold_and_inputs_are_fresh_each_time(linear) -> None:
    """Writing into loaded tensors does not change what is loaded next."""
    trace, reader = linear
    load_inputs(trace, reader, "cpu")[0].fill_(0)
    load_gold(trace, reader)[0].values.fill_(0)
    assert load_inputs(trace, reader, "cpu")[0].any()
    assert load_gold(trace, reader)[0].values.any()


def test_requires_grad_is_replayed_without_gradients_too(recorded) -> None:
    """matmul folds a strided batch into one product if the weight requires grad, whatever the grad mode."""
    x, weight = torch.randn(2, 16, 64)[:, -1:], torch.nn.Parameter(torch.randn(100, 64))
    with torch.no_grad():
        pack = recorded(lambda: torch.nn.functional.linear(x, weight), tier="full")
    assert pack.traces[0].replay == "bitwise"
