from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.layout import lay_out, overlap, rebuild


def round_trip(*tensors: torch.Tensor) -> list[torch.Tensor]:
    layout = lay_out(tensors)
    return rebuild(layout.metas, layout.spans, "cpu")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_strided_view_comes_back_with_its_values_and_strides(data: st.DataObject) -> None:
    """Slices, permutations and expansions keep shape, strides, dtype and values."""
    dtype = data.draw(
        st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
    )
    sizes = data.draw(st.lists(st.integers(0, 4), max_size=4))
    tensor = (
        torch.arange(max(1, torch.Size(sizes).numel())).to(dtype)[: torch.Size(sizes).numel()].reshape(sizes)
    )
    tensor = tensor.permute(data.draw(st.permutations(range(tensor.ndim))))
    if tensor.ndim and tensor.shape[0] > 1:
        tensor = tensor[data.draw(st.integers(0, 1)) :: data.draw(st.integers(1, 2))]
    if data.draw(st.booleans()):
        tensor = tensor.unsqueeze(0).expand(3, *tensor.shape)
    (again,) = round_trip(tensor)
    assert (again.shape, again.stride(), again.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert torch.equal(again, tensor)
    assert again.numel() == 0 or again.data_ptr() != tensor.data_ptr()


def test_overlapping_tensors_still_alias() -> None:
    """A write through one rebuilt tensor is seen through the other."""
    base = torch.zeros(4, 6)
    first, second = round_trip(base[:, 1:4], base[1])
    first.fill_(7)
    assert second.tolist() == [0, 7, 7, 7, 0, 0]


class Threefold(torch.Tensor):
    """Has its own functions; `Parameter` and plain subclasses do not."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return 3 * super().__torch_function__(func, types, args, kwargs)


def test_plain_subclasses_are_laid_out() -> None:
    """A class that only has another name changes nothing."""

    class Named(torch.nn.Parameter):
        pass

    assert lay_out([Named(torch.zeros(2))]).metas[0].shape == (2,)


def test_an_empty_tensor_between_two_that_overlap_does_not_part_them() -> None:
    """What one of them writes the other one still sees."""
    base = torch.zeros(64)
    layout = lay_out([base, base[20:20], base[30:]])
    one, empty, other = layout.metas
    assert one.storage == other.storage != empty.storage


def test_disjoint_parts_of_one_allocation_get_spans_of_their_own() -> None:
    """Two parameters far apart in a flat buffer do not drag along what lies between them."""
    flat = torch.arange(100_000.0)
    layout = lay_out([flat[:4], flat[-4:]])
    assert [meta.storage for meta in layout.metas] == [0, 1]
    assert max(span.numel() for span in layout.spans) <= 4 * 4 + 64


def test_the_chunks_of_a_fused_projection_share_a_span() -> None:
    """Interleaved views (q, k, v of one matrix) lie on one span."""
    layout = lay_out(torch.randn(8, 12).chunk(3, dim=1))
    assert [meta.storage for meta in layout.metas] == [0, 0, 0]
    assert layout.spans[0].numel() == 8 * 12 * 4


def test_alignment_within_64_bytes_is_kept() -> None:
    """A view at an odd offset is as badly aligned after the round trip as before it."""
    view = torch.randn(100)[37:]
    (again,) = round_trip(view)
    assert again.data_ptr() % 64 == view.data_ptr() % 64
    assert torch.equal(again, view)


def test_conjugate_and_negative_views_are_resolved() -> None:
    """A lazy conj or neg bit becomes plain values."""
    source = torch.randn(3, 2, dtype=torch.complex64)
    conj, neg = round_trip(source.conj(), source.conj().imag)
    assert not conj.is_conj()
    assert not neg.is_neg()
    assert torch.equal(conj, source.conj())
    assert torch.equal(neg, source.conj().imag)


def test_spans_without_copy_are_the_tensors_own_memory() -> None:
    """`copy=False` gives views for hashing; the default snapshot is independent of later writes."""
    tensor = torch.zeros(4)
    view, snapshot = lay_out([tensor], copy=False), lay_out([tensor])
    tensor.fill_(1)
    assert view.spans[0].any()
    assert not snapshot.spans[0].any()


def test_overlap_is_by_bytes() -> None:
    """Neighbours in one allocation do not overlap; a view and its base do."""
    base = torch.zeros(10)
    assert overlap(base, base[3:])
    assert not overlap(base[:5], base[5:])
    assert not overlap(base, torch.zeros(10))


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (torch.eye(3).to_sparse(), "torch.sparse_coo"),
        (torch.empty(3, device="meta"), "device meta"),
        (torch.empty(2, dtype=torch.bits8), "torch.bits8"),
        (torch.zeros(1).expand(2**32), "a tensor of 17179869184 bytes is larger than a pack may hold"),
        (torch.zeros(2).as_subclass(Threefold), "a Threefold changes what torch's functions do"),
    ],
)
def test_a_tensor_without_strided_storage_is_refused(tensor: torch.Tensor, says: str) -> None:
    """The error names what the tensor is, and what to do."""
    with pytest.raises(RecordError, match=says) as caught:
        lay_out([tensor])
    assert "leave the op out through ops=[…]" in str(caught.value)
