"""Objects that a trace holds through adapters, and those that it refuses."""

from __future__ import annotations

from collections import namedtuple
from enum import Enum, Flag
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pytest_cgins
from pytest_cgins.core import documents
from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.core.trace import Value, tensor_indices
from pytest_cgins.packs.replay import check, load_gold, load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.packs.values import decode, encode, has_adapted

Pair = namedtuple("Pair", "first second")

PAGED = """
import torch, pytest_cgins

class Pages:
    def __init__(self, keys, size):
        self.keys, self.size, self.reads = keys, size, 0

@pytest_cgins.mark
def attend(query, pages, *, scale=1.0):
    pages.reads += 1
    pages.keys.add_(pages.reads)
    return query @ pages.keys.t() * scale / pages.size
"""
ADAPTER = """
@pytest_cgins.adapter(Pages)
class PagesAdapter:
    @staticmethod
    def to_plain(pages):
        return {"keys": pages.keys, "size": pages.size, "reads": pages.reads}

    @staticmethod
    def from_plain(plain):
        pages = Pages(plain["keys"], plain["size"])
        pages.reads = plain["reads"]
        return pages
"""


@pytest.mark.parametrize("tier", ["recipe", "full"])
def test_an_object_with_an_adapter_is_recorded_and_replayed(project, recorded, tmp_path, tier) -> None:
    """Its tensors are inputs, a change of them is a mutation, and every run gets an object of its own."""
    source = project(PAGED + ADAPTER)
    query, keys = torch.randn(2, 4), torch.randn(3, 4)
    pack = recorded(lambda: source.attend(query, source.Pages(keys, 16), scale=0.5), tier=tier)
    (trace,) = pack.traces
    pages = trace.call.arguments[1].value
    assert (pages.kind, pages.value) == ("adapted", f"{source.__name__}.PagesAdapter")
    assert tensor_indices(pages) == [1]
    assert trace.replay == "bitwise"
    assert [index for index, _ in trace.gold.mutated] == [1]
    reader = open_pack(tmp_path / "pack")
    assert check(reader.pack.traces[0], reader) == "bitwise"


def test_objects_with_tensors_of_other_sizes_are_other_traces(project, recorded) -> None:
    """One object that grows between calls is not taken for the same call."""
    source = project(PAGED + ADAPTER)
    pages = source.Pages(torch.randn(3, 4), 16)

    def body() -> None:
        for size in (3, 4, 5):
            pages.keys, pages.reads = torch.randn(size, 4), 0
            source.attend(torch.randn(2, 4), pages)

    shapes = [trace.tensors[1].shape for trace in recorded(body).traces]
    assert sorted(shapes) == [(3, 4), (4, 4), (5, 4)]


def test_an_opaque_leaf_is_an_error_with_the_adapter_to_register(project, recorded) -> None:
    """The text of the error is a program but for the names: it is pasted here, and works."""
    source = project(PAGED)
    call = source.attend
    with pytest.raises(RecordError) as caught:
        recorded(lambda: call(torch.randn(2, 4), source.Pages(torch.randn(3, 4), 16)))
    name = f"{source.__name__}.Pages"
    assert caught.value.remedy == (
        "register an adapter for it beside the op:\n"
        f"    @pytest_cgins.adapter({name})\n"
        "    class PagesAdapter: to_plain, from_plain = staticmethod(vars), staticmethod(lambda plain: Pages(**plain))\n"
        "or decorate with @pytest_cgins.mark a function that takes and returns the tensors inside it; or take the op "
        "out of ops=[…]"
    )
    assert f"an argument or result of type {name} is opaque" in str(caught.value)
    lines = caught.value.remedy.splitlines()[1:3]
    plain = PAGED.replace(", self.reads = keys, size, 0", " = keys, size").replace("pages.reads += 1", "")
    again = project(
        plain.replace("pages.keys.add_(pages.reads)", "")
        + "\n".join(line[4:].replace(f"{source.__name__}.", "") for line in lines)
        + "\n"
    )
    pack = recorded(lambda: again.attend(torch.randn(2, 4), again.Pages(torch.randn(3, 4), 16)))
    assert pack.traces[0].replay == "bitwise"


def test_an_adapter_that_raises_is_named(project, recorded) -> None:
    """While recording, the call is refused; while replaying, the trace."""
    source = project(PAGED + ADAPTER.replace("pages.size,", "pages.width,"))
    with pytest.raises(RecordError, match=r"PagesAdapter.to_plain raised AttributeError: .*'width'"):
        recorded(lambda: source.attend(torch.randn(2, 4), source.Pages(torch.randn(3, 4), 16)))
    broken = project(PAGED + ADAPTER.replace('plain["size"]', 'plain["width"]'))
    value = encode(broken.Pages(1, 2), [])
    with pytest.raises(TraceError, match=r"PagesAdapter.from_plain raised KeyError: 'width'"):
        decode(value, [])


@pytest.mark.parametrize("name", ["os.system", "subprocess.Popen", "torch.nn.Linear", "builtins.eval"])
def test_only_what_the_decorator_made_is_an_adapter(name: str) -> None:
    """A hostile pack may name anything."""
    value = Value(kind="adapted", value=name, items=(Value(kind="str", value="true"),))
    with pytest.raises(TraceError, match="is not an adapter, and a trace must not run other code"):
        decode(value, [])


def test_a_wrong_adapter_is_refused_where_it_is_decorated() -> None:
    """The class, its functions and its place are checked."""
    with pytest.raises(RecordError, match="takes the class that it is for, not 3"):
        pytest_cgins.adapter(3)
    with pytest.raises(RecordError, match="Half is not an adapter for Value: it has no from_plain"):

        @pytest_cgins.adapter(Value)
        class Half:
            to_plain = staticmethod(vars)

    with pytest.raises(RecordError, match=r"Local cannot be an adapter: a trace finds it by importing it"):

        @pytest_cgins.adapter(Value)
        class Local:
            to_plain = from_plain = staticmethod(vars)


# ---- those that are there already ---------------------------------------------------------------


@given(st.tuples(st.integers(-9, 9), st.lists(st.floats(allow_nan=False))))
def test_named_tuples_keep_their_names(items: tuple[int, list[float]]) -> None:
    """encode → JSON → decode gives an equal named tuple of the same class."""
    value = documents.load(Value, documents.dump(encode(Pair(*items), [])))
    again: Any = decode(value, [])
    assert type(again) is Pair
    assert again == Pair(*items)


@pytest.mark.parametrize(
    ("name", "items", "says"),
    [
        ("os.system", [1, 2], "os.system is not a named tuple that is imported"),
        ("antigravity.x", [1, 2], "antigravity.x is not a named tuple that is imported"),
        (f"{__name__}.Pair", [1], "1 item for 2 fields"),
    ],
)
def test_a_named_tuple_of_a_hostile_pack(name: str, items: list[int], says: str) -> None:
    """Nothing is imported for its class, and no other class is called."""
    value = encode(Pair(name, items), [])
    forged = Value(kind="adapted", value=value.value, items=(encode((name, items), []),))
    with pytest.raises(TraceError, match=says):
        decode(forged, [])


def _grown(cache: Any, layers: int, length: int) -> Any:
    for layer in range(layers):
        cache.update(torch.randn(1, 2, length, 4), torch.randn(1, 2, length, 4), layer)
    return cache


CACHED = """
import torch, pytest_cgins
@pytest_cgins.mark
def step(query, cache, key, value):
    keys, values = cache.update(key, value, 0)
    return torch.nn.functional.scaled_dot_product_attention(query, keys, values)
"""


@pytest.mark.exam
@pytest.mark.parametrize("tier", ["recipe", "full"])
@pytest.mark.parametrize("kind", ["DynamicCache", "StaticCache"])
def test_caches_of_transformers_are_recorded(project, recorded, tmp_path, kind, tier) -> None:
    """A cache that grows by new tensors, and one that is written in place, replay bitwise."""
    import transformers

    config = transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=8, num_attention_heads=2, num_key_value_heads=2
    )
    options = {"config": config} | ({"max_cache_len": 16} if kind == "StaticCache" else {})
    cache = _grown(getattr(transformers, kind)(**options), 2, 5)
    source = project(CACHED)
    query, key, value = (torch.randn(1, 2, 1, 4) for _ in range(3))
    pack = recorded(lambda: source.step(query, cache, key, value), tier=tier)
    (trace,) = pack.traces
    assert trace.replay == "bitwise"
    assert trace.call.arguments[1].value.value == "pytest_cgins.packs.adapters.TransformersCache"
    assert bool(trace.gold.mutated) == (kind == "StaticCache")
    made = decode(trace.call.arguments[1].value, load_inputs(trace, open_pack(tmp_path / "pack"), "cpu"))
    assert type(made) is type(cache)
    assert made.get_seq_length(0) == 5


def test_a_cache_class_that_does_not_exist_is_refused() -> None:
    """Only the classes of transformers' cache module are made, by their names."""
    for name in ("Popen", "torch", "nothing"):
        value = encode((name, {}, None), [])
        forged = Value(kind="adapted", value="pytest_cgins.packs.adapters.TransformersCache", items=(value,))
        with pytest.raises(TraceError, match=f"has no cache class '{name}'"):
            decode(forged, [])


def test_outputs_of_transformers_are_recorded(project, recorded, tmp_path) -> None:
    """A ModelOutput is a tree with the names of its fields, as argument and as result."""
    source = project(
        "import torch, pytest_cgins\nfrom transformers.modeling_outputs import BaseModelOutput\n"
        "@pytest_cgins.mark\ndef double(given):\n"
        "    return BaseModelOutput(last_hidden_state=given.last_hidden_state * 2)\n"
    )
    x = torch.randn(2, 3)
    pack = recorded(lambda: source.double(source.BaseModelOutput(last_hidden_state=x)), tier="full")
    (trace,) = pack.traces
    assert trace.replay == "bitwise"
    (gold,) = load_gold(trace, open_pack(tmp_path / "pack"))
    assert torch.equal(gold.values.view(2, 3), x * 2)


@pytest.mark.exam
@pytest.mark.parametrize("tier", ["recipe", "full"])
def test_a_layer_of_transformers_is_one_op(recorded, tier) -> None:
    """Attention reads its configuration and grows a cache; both are arguments, and it replays bitwise."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=20
    )
    model = transformers.LlamaForCausalLM(config).eval()
    name = "transformers.models.llama.modeling_llama.LlamaDecoderLayer"

    def body() -> None:
        prompt = model(torch.randint(20, (1, 6)), use_cache=True)
        model(torch.randint(20, (1, 1)), past_key_values=prompt.past_key_values, use_cache=True)

    with torch.no_grad():
        pack = recorded(body, ops=[name], tier=tier)
    assert [trace.replay for trace in pack.traces] == ["bitwise", "bitwise"]
    kept = next(a.value for a in pack.traces[0].call.arguments if a.name == "self.self_attn.config")
    again: Any = decode(kept, [])
    assert type(again) is type(config)
    assert again.id2label == config.id2label
    assert again.num_attention_heads == 2


@pytest.mark.parametrize("adapted", ["ModelOutput", "TransformersConfig"])
@pytest.mark.parametrize("name", ["os.system", "transformers.LlamaForCausalLM", "transformers.no_such.Thing"])
def test_a_class_without_the_base_of_its_adapter_is_refused(adapted: str, name: str) -> None:
    """Only outputs are made as outputs, and only configurations as configurations."""
    forged = Value(
        kind="adapted", value=f"pytest_cgins.packs.adapters.{adapted}", items=(encode((name, {}), []),)
    )
    with pytest.raises(TraceError, match=rf"{name} is no transformers\..* that is imported"):
        decode(forged, [])


class Mode(Enum):
    FAST = 1
    SLOW = 2


class Spelled(str, Enum):
    FAST = "fast"


class Bits(Flag):
    ONE = 1
    TWO = 2


@pytest.mark.parametrize("member", [Mode.SLOW, Spelled.FAST, Bits.ONE, Bits.ONE | Bits.TWO])
def test_members_of_enumerations_come_back_as_themselves(member: Enum) -> None:
    """Code tells them apart by identity, those that are strings too."""
    value = documents.load(Value, documents.dump(encode(member, [])))
    assert decode(value, []) is member
    assert not has_adapted(value)


@pytest.mark.parametrize("name", ["os.system", "builtins.int", "no_such.Thing"])
def test_an_enumeration_of_a_hostile_pack(name: str) -> None:
    """Only imported enumerations are looked into."""
    hostile = encode(Mode.SLOW, [])
    items = hostile.items[0].items
    items = (Value(kind="str", value=name), items[1])
    hostile = Value(kind="adapted", value=hostile.value, items=(Value(kind="tuple", items=items),))
    with pytest.raises(TraceError, match="is not an enumeration that is imported"):
        decode(hostile, [])


def test_a_module_that_asks_for_its_mode_by_identity_replays(project, recorded, tmp_path) -> None:
    """The branch that was taken is taken again."""
    source = project(
        "import enum, torch, pytest_cgins\nclass Mode(enum.Enum):\n    FAST = 1\n    SLOW = 2\n"
        "@pytest_cgins.mark\nclass Scale(torch.nn.Module):\n    mode = None\n"
        "    def forward(self, x):\n        return x * 2 if self.mode is Mode.FAST else x\n"
    )
    model = source.Scale()
    model.mode = source.Mode.FAST
    pack = recorded(lambda: model(torch.randn(2, 4)))
    reader = open_pack(tmp_path / "pack")
    inputs = load_inputs(pack.traces[0], reader, "cpu")
    (gold,) = load_gold(pack.traces[0], reader)
    assert torch.equal(gold.values, 2 * inputs[0].flatten())
