"""Names of ops as people write them."""

from __future__ import annotations

import pytest

from pytest_cgins.core.errors import TraceError
from pytest_cgins.packs.ops import full_names, resolve


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("topk", "torch.topk or torch.Tensor.topk"),
        ("F.silu", "torch.nn.functional.silu"),
        ("nn.functional.gelu", "torch.nn.functional.gelu"),
        ("functional.softmax", "torch.nn.functional.softmax"),
        ("aten::add", "torch.ops.aten.add"),
        ("aten.add", "torch.ops.aten.add"),
        ("Tensor.index_add_", "torch.Tensor.index_add_"),
        ("scatter_", "torch.Tensor.scatter_"),
        ("tpok", "torch.topk"),
        ("F.sillu", "torch.nn.functional.silu"),
        ("layernorm", "torch.nn.functional.layer_norm"),
    ],
)
def test_a_short_or_misspelt_name_is_understood(name: str, meant: str) -> None:
    """The error names what is meant; each name in it is an op."""
    with pytest.raises(TraceError) as found:
        resolve(name)
    assert f"did you mean {meant}" in found.value.remedy
    for one in found.value.remedy.removeprefix("did you mean ").removesuffix("?").split(" or "):
        resolve(one)


@pytest.mark.parametrize("name", ["load", "F.nothing_like_that", "os.system", "", ".", "torch.", "save"])
def test_what_is_no_op_has_no_full_name(name: str) -> None:
    """Nothing is looked up outside of torch."""
    assert full_names(name) == []
