"""The work that a call is credited with in a roofline: its bytes once, and the operations of the plain algorithm.

`timing.least_work` has what no right kernel can do without; here is what is usually counted, of which a kernel may do less
(Winograd's convolutions, rows that are masked out) or more. Nothing is gated by it.

Bytes: each argument tensor read once, what is expanded by a stride of 0 only once; each output written once; what a call
changes read and written. Of tables that are looked up by index, as much as is taken from them.

Operations of products: two a multiply-add, as in `torch.utils.flop_counter`; attention 2·(E+Eᵥ) a pair of query and key
that the causal mask leaves, softmax not counted, and its backward 2.5 times that for five products in the place of two
(Dao, "FlashAttention-2", 2023, §4.1). A backward takes as many as the forward for each factor's gradient. Of all other
ops every operation in the formula of torch's documentation is one, also exp, erf and a division; their backward takes
twice as many (Kaplan et al., "Scaling Laws for Neural Language Models", 2020, §2.1).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.core.dtypes import ITEMSIZE
from pytest_cgins.core.trace import OpCall, TensorMeta, Value, tensor_indices


def _numbers(kind: str) -> dict[str, int]:
    """A number for each op, from the ops of each number."""
    numbers = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))[kind]
    return {op: int(number) for number, ops in numbers.items() for op in ops.split()}


_PER_OUTPUT = _numbers("per_output")
"""Operations for each element of the output. Softmax: maximum, difference, exp, sum, quotient."""
_PER_INPUT = _numbers("per_input")
"""Operations for each element of the first tensor. Norms: sum, difference, square and sum, product; weight and bias come on top."""
_AFFINE = frozenset(["layernorm", "nativelayernorm", "groupnorm", "instancenorm", "batchnorm", "rmsnorm"])
_PRODUCTS = frozenset(["matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "linear", "scaledmm", "intmm"])
_ADDED_PRODUCTS = frozenset(["addmm", "baddbmm", "addbmm", "addmv"])
_CONVOLUTION = re.compile(r"conv(transpose)?[123]d|convolution")
_ATTENTION = "scaleddotproductattention"
_LOOKUPS = frozenset(
    ["embedding", "embeddingbag", "gather", "indexselect", "take", "takealongdim", "index", "getitem"]
)
_WRITTEN_ONLY = frozenset(["copy", "zero", "fill", "normal", "uniform", "exponential", "bernoulli", "random"])
"""In-place ops that do not look at what was there."""
_PARTLY_WRITTEN = _numbers("partly_written")
"""In-place ops that touch as many elements as come in, and how often each: written, or read and written."""
_GRADIENT = re.compile(r"grad_output|grad_outputs\.\d+")


@dataclass(frozen=True, slots=True)
class NominalWork:
    """What a call is credited with."""

    nbytes: int
    """Read and written."""
    flops: int
    """Floating-point operations, a multiply-add being two; 0 where nobody knows."""


@dataclass(frozen=True, slots=True)
class _Called:
    """A call, its tensors under the names of its arguments."""

    word: str
    """Last part of the op's name in small letters without `_`: `convtranspose2d`; "" for ops that are not torch's."""
    in_place: bool
    """Whether its name says that it changes its first argument."""
    wanted: tuple[str, ...] | None
    """Arguments whose gradients are asked for; None for a forward."""
    values: dict[str, Value]
    """Arguments of the op itself by name, those of a module without `self.`."""
    operands: tuple[tuple[str, TensorMeta], ...]
    """Their tensors, in order, those of a list under its name."""
    results: tuple[TensorMeta, ...]
    """What the forward returns: outputs, or what gradients are given for."""

    @property
    def metas(self) -> list[TensorMeta]:
        return [meta for _, meta in self.operands]

    def named(self, name: str) -> TensorMeta | None:
        return next((meta for own, meta in self.operands if own == name), None)


def nominal(
    call: OpCall, tensors: Sequence[TensorMeta], outputs: Sequence[TensorMeta], mutated: Iterable[int] = ()
) -> NominalWork:
    """The work of a call by its signature.

    An output of the dtype and shape of a tensor that the call changes is taken for that tensor.
    """
    called = _called(call, tensors, outputs)
    changed = [tensors[index] for index in sorted(set(mutated)) if 0 <= index < len(tensors)]
    return NominalWork(_nbytes(called, call, tensors, outputs, changed), _flops(called))


def _called(call: OpCall, tensors: Sequence[TensorMeta], outputs: Sequence[TensorMeta]) -> _Called:
    forward, _, rest = call.op.partition("@backward(")
    parts = forward.split(".")
    own = "" if parts[0] != "torch" else parts[3] if parts[1:2] == ["ops"] and len(parts) > 3 else parts[-1]
    gradients = (
        [argument for argument in call.arguments if _GRADIENT.fullmatch(argument.name)] if rest else []
    )
    values = {
        argument.name.removeprefix("self."): argument.value
        for argument in call.arguments
        if argument not in gradients
    }
    given = [
        tensors[index]
        for gradient in gradients
        for index in tensor_indices(gradient.value)
        if index < len(tensors)
    ]
    return _Called(
        word=own.lower().replace("_", ""),
        in_place=own.endswith("_") and not own.endswith("__"),
        wanted=tuple(rest.rstrip(")").replace("self.", "").split(",")) if rest else None,
        values=values,
        operands=tuple(
            (name, tensors[index])
            for name, value in values.items()
            for index in tensor_indices(value)
            if index < len(tensors)
        ),
        results=tuple(given if rest else outputs),
    )


# ---- bytes


def _nbytes(
    called: _Called,
    call: OpCall,
    tensors: Sequence[TensorMeta],
    outputs: Sequence[TensorMeta],
    changed: Sequence[TensorMeta],
) -> int:
    returned = list(outputs)
    for meta in changed:
        same = next((one for one in returned if (one.dtype, one.shape) == (meta.dtype, meta.shape)), None)
        if same is not None:
            returned.remove(same)
    written = sum(meta.nbytes for meta in returned)
    unread = _not_read(called, changed)
    partly = _PARTLY_WRITTEN.get(called.word, 0) if called.in_place and changed else 0
    if partly:
        unread = [*unread, *changed]
        written += partly * sum(min(_coming_in(called, meta), meta.unique_nbytes) for meta in changed)
    else:
        written += sum(meta.unique_nbytes for meta in changed)
    used = {
        index
        for argument in call.arguments
        for index in tensor_indices(argument.value)
        if index < len(tensors)
    }
    kept = {_place(tensors[index]): tensors[index] for index in used}
    read = sum(_read_nbytes(called, meta) for meta in kept.values() if meta not in unread)
    return read + written


def _not_read(called: _Called, changed: Sequence[TensorMeta]) -> list[TensorMeta]:
    """Tensors that are passed and not looked at."""
    found = [meta for name, meta in called.operands if name == "out" and meta in changed]
    if called.in_place and called.word in _WRITTEN_ONLY:
        found += called.metas[:1]
    if called.wanted and called.word in ("embedding", "embeddingbag"):
        found += [meta for name, meta in called.operands if name == "weight"]
    return found


def _read_nbytes(called: _Called, meta: TensorMeta) -> int:
    """Bytes read of a tensor; of one that is looked up by index, no more than what is taken from it."""
    whole = meta.unique_nbytes
    if called.word not in _LOOKUPS or called.wanted or not called.operands:
        return whole
    table = called.named("weight") or called.operands[0][1]
    if meta is not table and _place(meta) != _place(table):
        return whole
    if called.word == "embeddingbag":
        rows = sum(one.numel for name, one in called.operands if name in ("input", "indices"))
        return min(whole, rows * math.prod(meta.shape[1:]) * ITEMSIZE[meta.dtype])
    return min(whole, sum(meta.nbytes for meta in called.results[:1]))


def _coming_in(called: _Called, meta: TensorMeta) -> int:
    """Bytes of what is put into parts of a tensor; all of it if that is not known."""
    for name in ("src", "source", "values"):
        source = called.named(name)
        if source is not None:
            return source.numel * ITEMSIZE[meta.dtype]
    index = called.named("index")
    return index.numel * ITEMSIZE[meta.dtype] if index is not None else meta.unique_nbytes


def _place(meta: TensorMeta) -> tuple[object, ...]:
    return meta.storage, meta.offset, meta.shape, meta.stride, meta.dtype


# ---- operations


def _flops(called: _Called) -> int:
    if not called.word or not called.operands or not called.results:
        return 0
    product, factors = _product(called)
    if product:
        return _of_product(called, product, factors)
    # Modules and ATen have words of their own: BatchNorm2d, native_batch_norm, linalg_vector_norm.
    word = re.sub(r"^(?:native|linalg)|(?<=norm|pool)[123]d$", "", called.word)
    elements = called.results[0].numel
    each = _PER_OUTPUT.get(word, 0)
    if word in _PER_INPUT:
        elements, each = called.operands[0][1].numel, _PER_INPUT[word] + _affine(called, word)
    return elements * each * (2 if called.wanted else 1)


def _affine(called: _Called, word: str) -> int:
    """Further operations an element: weight and bias; of a batch norm by running statistics, fewer."""
    if word not in _AFFINE:
        return 0
    more = sum(called.named(name) is not None for name in ("weight", "bias"))
    training = called.values.get("training")
    running = word == "batchnorm" and training is not None and training.value is False
    return more - 3 if running else more


def _product(called: _Called) -> tuple[int, tuple[str, ...]]:
    """Operations of the forward's product, without what is added to it, and the names of its factors; 0 for none."""
    word, metas, result = called.word, called.metas, called.results[0]
    names = [name for name, _ in called.operands]
    first = 1 if word in _ADDED_PRODUCTS else 0
    if word in _PRODUCTS | _ADDED_PRODUCTS and len(metas) >= first + 2 and metas[first].shape:
        batches = metas[first].shape[0] if word == "addbmm" else 1
        flops = 2 * result.numel * metas[first].shape[-1] * batches
        return flops * _complex(metas[first]), tuple(names[first : first + 2])
    if word == "einsum" and len(metas) == 2:
        return _einsum(called) * _complex(metas[0]), tuple(names)
    if _CONVOLUTION.fullmatch(word) and len(metas) >= 2:
        weight = called.named("weight") or metas[1]
        turned = called.values.get("transposed")
        places = metas[0] if "transpose" in word or (turned is not None and turned.value is True) else result
        flops = 2 * places.numel * math.prod(weight.shape[1:])
        return flops * _complex(metas[0]), (names[0], "weight")
    if word == _ATTENTION and len(metas) >= 3 and all(len(meta.shape) >= 2 for meta in metas[:3]):
        return _attention(called), ()
    return 0, ()


def _of_product(called: _Called, product: int, factors: tuple[str, ...]) -> int:
    """With what is added: a bias, and of a backward one product for the gradient of each factor."""
    elements = sum(meta.numel for meta in called.results[:1])
    if called.wanted is None:
        added = called.word in _ADDED_PRODUCTS or called.named("bias") is not None
        return product + (elements if added else 0)
    if called.word == _ATTENTION:
        return product * 5 // 2
    return sum(product if name in factors else elements for name in called.wanted)


def _attention(called: _Called) -> int:
    query, key, value = called.metas[:3]
    length, keys = query.shape[-2], key.shape[-2]
    pairs = length * keys
    causal = called.values.get("is_causal")
    if causal is not None and causal.value is True:  # query i sees keys 0 to i
        short = min(length, keys)
        pairs = short * (short + 1) // 2 + (length - short) * keys
    return 2 * math.prod(query.shape[:-2]) * pairs * (query.shape[-1] + value.shape[-1])


def _einsum(called: _Called) -> int:
    """Two for each combination of indices, where both operands are written out: `bik,bkj->bij`."""
    equation = next((value.value for value in called.values.values() if value.kind == "str"), "")
    inputs = str(equation).replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for letters, meta in zip(inputs, called.metas, strict=False):
        if len(letters) != len(meta.shape) or not letters.isalpha():
            return 0
        for letter, size in zip(letters, meta.shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return 2 * math.prod(sizes.values()) if len(inputs) == 2 else 0


def _complex(meta: TensorMeta) -> int:
    """A complex multiply-add is four real ones."""
    return 4 if "complex" in meta.dtype else 1
