from __future__ import annotations

import math
import sys
from collections import namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core import documents
from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.core.trace import Value, tensor_indices
from pytest_cgins.packs.values import decode, encode

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(st.characters(codec="utf-8")),
    st.just(...),
    st.sampled_from(
        [torch.float32, torch.channels_last, torch.strided, torch.device("cuda:1"), slice(1, None, 2)]
    ),
    st.lists(st.integers(0, 9)).map(torch.Size),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    ),
    max_leaves=12,
)


@pytest.mark.exam
@given(trees)
def test_plain_data_survives_json(tree: object) -> None:
    """encode → JSON → decode gives an equal object of the same types."""
    value = documents.load(Value, documents.dump(encode(tree, [])))
    again = decode(value, [])
    assert again == tree
    assert repr(again) == repr(tree)


@pytest.mark.parametrize("number", [math.nan, math.inf, -0.0, 5e-324])
def test_special_floats_survive(number: float) -> None:
    """NaN, infinities, the sign of zero and denormals are kept."""
    again = decode(encode(number, []), [])
    assert repr(again) == repr(number)


def test_one_tensor_object_is_one_index() -> None:
    """The same tensor passed twice is written once."""
    x, y = torch.zeros(2), torch.zeros(2)
    tensors: list[torch.Tensor] = []
    value = encode([x, (y, x)], tensors)
    assert len(tensors) == 2
    assert tensor_indices(value) == [0, 1, 0]
    again = decode(value, tensors)
    assert again[0] is x
    assert again[1][1] is x


def test_results_of_torch_with_names_become_tuples() -> None:
    """`torch.return_types.max` is written as the tuple that it is."""
    tensors: list[torch.Tensor] = []
    assert encode(torch.ones(2, 3).max(dim=1), tensors).kind == "tuple"
    assert len(tensors) == 2


def test_a_generator_is_made_anew_from_the_restored_seed() -> None:
    """A replayed generator draws what a fresh one with torch's present seed draws."""
    torch.manual_seed(11)
    generator = decode(encode(torch.Generator(), []), [])
    assert generator.initial_seed() == 11


@pytest.mark.parametrize(
    "leaf", [object(), iter([1]), {1: 2}, namedtuple("Pair", "a b")(1, 2), torch.nn.Linear(1, 1), {1, 2}]
)
def test_an_opaque_leaf_is_an_error_that_names_the_remedy(leaf: object) -> None:
    """What a pack cannot hold is refused by type name, with what to do instead."""
    with pytest.raises(RecordError, match=type(leaf).__name__) as caught:
        encode([leaf], [])
    assert "@pytest_cgins.mark" in str(caught.value)


def test_endless_nesting_is_refused() -> None:
    """A list that holds itself ends in an error."""
    tree: list[object] = []
    tree.append(tree)
    with pytest.raises(RecordError, match="nested deeper than 32"):
        encode(tree, [])


@pytest.mark.parametrize(
    ("leaf", "says"),
    [
        (2**64, "an integer of more than 64 bits"),
        (-(2**63) - 1, "an integer of more than 64 bits"),
        ("\ud800", "half a surrogate pair"),
        (torch.quint8, "the dtype quint8"),
        (torch.sparse_csr, "the layout sparse_csr"),
    ],
)
def test_a_leaf_that_a_manifest_cannot_hold_is_refused_at_once(leaf: object, says: str) -> None:
    """Not when the pack is written, after the whole run."""
    with pytest.raises(RecordError, match=f"an argument is .*{says}"):
        encode([leaf], [])


@pytest.mark.parametrize(("kind", "items"), [("op", ()), ("adapted", (Value(kind="none"),))])
def test_no_module_is_imported_for_a_value(tmp_path, monkeypatch, kind, items) -> None:
    """A pack that names something in a module of its choice does not have it run."""
    (tmp_path / "hostile_module.py").write_text("thing = None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TraceError, match="a trace must not run other code"):
        decode(Value(kind=kind, value="hostile_module.thing", items=items), [])
    assert "hostile_module" not in sys.modules
