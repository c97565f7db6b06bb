"""What verification must know of an op to choose inputs that tell right from wrong.

First counts what the user declares, then the entries of torch's ops and what torch's own tests say of them, and
then the words in the names of ops and parameters: functions that users mark are recognised by these. Whatever is
not recognised is treated as an op over its last axis.

What torch's tests know is in the file that `tests/write_op_semantics.py` writes: torch's test package takes seconds to
import and needs packages of its own, so it is asked beforehand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pytest_cgins.config import Declared, IndexOutput
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest
from pytest_cgins.core.trace import OpCall, TensorMeta
from pytest_cgins.packs.backward import is_derived, is_gradient
from pytest_cgins.packs.inputs import TABLES, names_of

FILE = Path(__file__).parent / "opinfo.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFacts:
    """One op in torch's tests."""

    sort: Literal["unary", "binary", "reduction", "other"]
    """Elementwise over one or two tensors, a reduction, or anything else."""
    domains: tuple[tuple[float, float], ...]
    """Least and greatest legal value of the first arguments, infinite where there is no end; () for "other"."""
    floats: frozenset[str]
    """Floating dtypes that it takes on a CPU."""


def _ends(low: float | None, high: float | None) -> tuple[float, float]:
    """Ends of a domain: infinite where an end is open."""
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


@cache
def _tables() -> tuple[dict[str, Any], dict[str, str]]:
    document = json.loads(FILE.read_text(encoding="utf-8"))
    ops = document["ops"]
    return ops, {alias: name for name, facts in ops.items() for alias in facts.get("aliases", ())}


def facts_of(op: str) -> OpFacts | None:
    """What is known of an op by its qualified name; None if it is not torch's, or not tested there."""
    if not op.startswith("torch."):
        return None
    parts = op.partition("@")[0].split(".")[1:]
    if parts[:2] == ["ops", "aten"]:
        parts = parts[2:3]
    elif parts[0] == "Tensor":
        parts = parts[1:]
    ops, aliases = _tables()
    name = ".".join(parts).rstrip("_")
    for candidate in (name, f"nn.functional.{name}", name.rpartition(".")[2]):
        found = ops.get(aliases.get(candidate, candidate))
        if found is not None:
            return OpFacts(
                sort=found["sort"],
                domains=tuple(_ends(low, high) for low, high in found["domains"]),
                floats=frozenset(found["floats"]),
            )
    return None


Kind = Literal["norm", "variance", "softmax", "activation", "other"]
Lanes = Literal["last", "dim", "classes", "channels", "samples", "normalized_shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of one op."""

    kind: Kind = "other"
    """The kind of edge rows it gets."""
    real: bool = False
    """Whether any real number is a legal input; otherwise fresh inputs keep the recorded sign."""
    lanes: Lanes = "last"
    """What a row runs along: the last axis, the argument `dim`, the classes (axis 1); or all but the channels, all
    but the samples, or the argument `normalized_shape`."""
    chooses: bool = False
    """Whether it chooses among elements: of equal ones, and of NaN, any may be right."""
    nan_wins: bool = False
    """Whether NaN is chosen before any number."""
    kept: Mapping[str, Literal["index", "mask"]] = field(default_factory=dict)
    """Arguments whose content stays as recorded, and why."""
    fixed: tuple[tuple[str, int | None], ...] = ()
    """Argument and dimension whose size is the op's form, not its data's; None for all of the argument."""


T = TypeVar("T")


def _all(words: str, entry: T) -> dict[str, T]:
    return dict.fromkeys(words.split(), entry)


def each_word(text: str) -> frozenset[str]:
    """Names that stand in one text."""
    return frozenset(text.split())


_WINDOW = tuple(("weight", dim) for dim in (2, 3, 4))
_POOL: tuple[tuple[str, int | None], ...] = tuple(
    (name, None) for name in ("kernel_size", "stride", "padding", "dilation", "output_size")
)

ENTRIES: Mapping[str, Entry] = {
    **_all(
        "gelu relu silu swish mish sigmoid tanh elu selu celu leaky_relu relu6 hardswish hardsigmoid hardtanh "
        "logsigmoid softplus softsign tanhshrink",
        Entry(kind="activation", real=True),
    ),
    **_all("softmax log_softmax softmin", Entry(kind="softmax", real=True, lanes="dim")),
    # Its class weights and probabilities are not negative.
    "cross_entropy": Entry(kind="softmax", lanes="classes", kept={"target": "index"}),
    "nll_loss": Entry(lanes="classes", kept={"target": "index"}),
    **_all("var std var_mean std_mean", Entry(kind="variance", real=True, lanes="dim")),
    **_all("layer_norm rms_norm", Entry(kind="norm", real=True, lanes="normalized_shape")),
    "batch_norm": Entry(kind="norm", real=True, lanes="channels"),
    **_all(
        "group_norm instance_norm",
        Entry(kind="norm", real=True, lanes="samples", fixed=(("num_groups", None),)),
    ),
    **_all("add sub mul cat stack sum mean sin cos erf exp abs neg square dropout", Entry(real=True)),
    **_all("linear bilinear matmul mm bmm addmm baddbmm einsum", Entry(real=True)),
    **_all(
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        Entry(
            real=True,
            fixed=(*_WINDOW, *((name, None) for name in ("stride", "padding", "dilation", "groups"))),
        ),
    ),
    **_all("avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool2d", Entry(real=True, fixed=_POOL)),
    **_all("max_pool1d max_pool2d max_pool3d", Entry(real=True, chooses=True, nan_wins=True, fixed=_POOL)),
    "embedding": Entry(real=True, kept={"input": "index"}),
    "scaled_dot_product_attention": Entry(real=True, kept={"attn_mask": "mask"}),
    **_all("max min maximum minimum amax amin", Entry(chooses=True, nan_wins=True)),
    **_all(
        "topk sort median nanmedian kthvalue mode cummax cummin fmax fmin argmax argmin argsort unique",
        Entry(chooses=True),
    ),
}
"""Semantics by the word that `op_word` takes from an op's name. Ops that are missing here are recognised by their words."""

_UNIT = (0.0, 1.0)
_ANY = (-math.inf, math.inf)
RANDOM: Mapping[str, Mapping[int, tuple[float, float]]] = {
    **_all(
        "dropout dropout1d dropout2d dropout3d feature_dropout alpha_dropout feature_alpha_dropout rrelu "
        "scaled_dot_product_attention normal randn randn_like exponential cauchy log_normal geometric poisson "
        "rrelu_with_noise randint randint_like multinomial binomial",
        {0: _ANY},
    ),
    **_all("rand rand_like bernoulli gumbel_softmax", {0: _UNIT}),
    "native_dropout": {0: _ANY, 1: _UNIT},
}
"""Outputs that are drawn where a call draws, with their least and greatest value."""

INDICES: Mapping[str, tuple[int, int | None]] = {
    **dict.fromkeys(("argmax", "argmin"), (0, None)),
    "argsort": (0, -1),
    **dict.fromkeys(("topk", "sort", "kthvalue", "mode"), (1, -1)),
    **dict.fromkeys(("max", "min", "median", "nanmedian", "cummax", "cummin"), (1, None)),
}
"""Number of the output that holds positions in the first tensor, and the dimension that they count along where the
call names none; None: all of it, flattened."""

DISTINCT = frozenset({"argsort", "topk", "sort"})
"""Ops whose positions come once in a row."""

_ARITHMETIC = each_word(
    "add sub rsub mul div true_divide floor_divide remainder fmod mod floordiv atan2 copysign hypot logaddexp eq ne lt le gt "
    "ge maximum minimum fmax fmin clamp_max clamp_min"
)

CHOOSERS = frozenset(op_word for op_word, entry in ENTRIES.items() if entry.chooses)
"""Words that also as part of a name tell of a choice."""


Role = Literal["data", "weight", "parameter", "positive", "keep"]
Kept = Literal["", "index", "mask", "table", "keep"]


_IN_PLACE = frozenset((
    "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__", "__iand__",
    "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__setitem__",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """How the inputs of one call are to be chosen."""

    kind: Kind
    """Family of the op: which edge rows it gets."""
    real: bool
    """Whether any real number is a legal input; otherwise fresh inputs keep the recorded sign."""
    eps: float
    """The constant under the root of a norm; 1e-5 for all others."""
    names: dict[int, str]
    """Parameter name of each tensor argument, by its index among the tensors."""
    chooses: bool
    """Whether the op, or the op of a backward, chooses among elements."""
    entry: Entry
    """What is known of the op by its name."""
    declared: Declared
    """What the user says of it."""
    facts: OpFacts | None
    """What torch's tests know of it."""

    def is_gradient(self, index: int) -> bool:
        """Whether a tensor argument is what autograd brings to an output: any real number may come."""
        return is_gradient(self.names.get(index, ""))

    def kept(self, index: int, meta: TensorMeta) -> Kept:
        """Why the content of a tensor argument stays as recorded; "" if it does not."""
        name = self.names.get(index, "")
        declared = dict(self.declared.roles).get(name) or self.entry.kept.get(name)
        if declared:
            return cast("Kept", declared) if declared in ("index", "mask", "table", "keep") else ""
        if "mask" in name.lower() or meta.dtype == "bool":
            return "mask"
        if not ("float" in meta.dtype or "complex" in meta.dtype):
            return "index"
        if name.lower() in TABLES:
            return "table"
        return "" if meta.shape else "keep"

    def role(self, index: int, meta: TensorMeta) -> Role:
        """What a tensor argument is to the op."""
        if self.kept(index, meta) or not ("float" in meta.dtype or "complex" in meta.dtype):
            return "keep"
        if meta.dtype == "float8_e8m0fnu":  # exponents of scales, which have neither sign nor zero
            return "keep"
        name = self.names.get(index, "")
        declared = dict(self.declared.roles).get(name)
        if declared:
            return cast("Role", declared)
        if self.is_gradient(index):
            return "data"
        name = name.lower()
        if "var" in name.split("_"):
            return "positive"
        if len(meta.shape) == 1:
            # The only tensor of a call is its data, whatever its rank.
            return "data" if len(self.names) == 1 else "parameter"
        return "weight" if "weight" in name or name.startswith("self.") else "data"

    def domain(self, index: int) -> tuple[float, float] | None:
        """Least and greatest legal value of a tensor argument; None where only the recorded ones tell."""
        name = self.names.get(index, "")
        for declared, low, high in self.declared.domain:
            if declared == name:
                return _ends(low, high)
        if self.facts is not None and index < len(self.facts.domains) and not self.is_gradient(index):
            low, high = self.facts.domains[index]
            if math.isfinite(low) or math.isfinite(high):
                return low, high
        return None

    def is_declared(self, index: int) -> bool:
        """Whether the user said what values a tensor argument may have."""
        return any(entry[0] == self.names.get(index) for entry in self.declared.domain)

    def lanes(self, call: OpCall, index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Dimensions of a tensor argument that number independent rows."""
        rows = dict(self.declared.rows).get(self.names.get(index, ""))
        if rows is not None:
            return tuple(dim for dim in rows if dim < len(shape))
        return lane_dims(call, shape) if index == 0 else tuple(range(len(shape) - 1))

    def mutated(self, call: OpCall) -> tuple[int, ...]:
        """Tensor arguments that the op changes, also where the recorded call left their numbers as they were.

        Those that the user declares, the first one of torch's in-place forms, and `out`.
        """
        names = set(self.declared.mutated)
        if call.op.startswith("torch."):
            names |= {"out"}
            inplace = any(a.name == "inplace" and a.value.value is True for a in call.arguments)
            if inplace or _is_in_place(call.op):
                names |= {argument.name for argument in call.arguments[:1]}
        return tuple(index for index, name in self.names.items() if name in names)

    def random(self, call: OpCall, *, draws: bool) -> dict[int, tuple[float, float]]:
        """Outputs that are random, with their least and greatest value: declared ones, or known ones of torch's if the call `draws`."""
        declared = {number: _ends(low, high) for number, low, high in self.declared.outputs}
        if declared or not draws or not call.op.startswith("torch.") or is_derived(call.op):
            return declared
        return dict(RANDOM.get(op_word(call), {}))

    def indices(self, call: OpCall) -> dict[int, IndexOutput]:
        """Outputs that hold positions in an argument: declared ones, and known ones of torch's."""
        declared = {index.number: index for index in self.declared.indices}
        known = _known_indices(call) if call.op.startswith("torch.") and not is_derived(call.op) else None
        return declared if known is None else {known.number: known, **declared}

    @property
    def fixed(self) -> frozenset[tuple[str, int | None]]:
        """Argument and dimension whose size must not change; None for all of the argument."""
        return frozenset((*self.entry.fixed, *self.declared.fixed))


def semantics_for(call: OpCall, declared: Declared = Declared()) -> Semantics:  # noqa: B008 - it is frozen
    """Semantics of a call; a backward has those of its op."""
    name = op_word(call)
    by_words: Kind = "softmax" if "softmax" in name or "softmin" in name else "other"
    entry = ENTRIES.get(name) or Entry(kind=by_words, lanes=_lanes_of(name))
    facts = facts_of(call.op)
    eps = next((a.value for a in call.arguments if is_eps(a.name)), None)
    kind = entry.kind if entry.kind != "norm" or eps is not None else "other"
    if name not in ENTRIES and kind == "other" and "norm" in name and eps is not None:
        kind = "norm"
    if declared.kind:
        kind = cast("Kind", declared.kind)
    # Of two operands, too, if their sort is arithmetic or comparison: special functions have regions.
    known = facts is not None and (facts.sort in ("unary", "reduction") or name.strip("_") in _ARITHMETIC)
    anywhere = facts is not None and known and (set(facts.domains) or {_ANY}) == {_ANY}
    return Semantics(
        kind=kind,
        real=(kind != "other" and name not in ENTRIES)
        or (entry.real and (entry.kind == kind or entry.kind != "norm"))
        or anywhere,
        eps=float.fromhex(str(eps.value)) if eps is not None and eps.kind == "float" else 1e-5,
        names=names_of(call),
        chooses=bool(CHOOSERS & {name, *name.split("_")}),
        entry=entry,
        declared=declared,
        facts=facts,
    )


def check_names(call: OpCall, declared: Declared) -> None:
    """Raise ConfigError if the user speaks of an argument that the call does not have."""
    known = [argument.name for argument in call.arguments]
    for name in declared.names:
        if name not in known:
            raise ConfigError(
                f'semantics speaks of an argument "{name}", and {call.op} has none of this name',
                remedy=nearest(name, known) or f"its arguments are {', '.join(known)}",
            )


def lane_dims(call: OpCall, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions of the data that number independent rows; the others lie within a row.

    A softmax's rows run along `dim`, a cross entropy's along the classes, a layer norm's along its
    normalized shape, a batch norm's over all but the channels; any other op's along the last axis.
    """
    rank = len(shape)
    given = {argument.name: argument.value for argument in call.arguments}
    lanes = _lanes_of(op_word(call))
    if lanes == "channels" and rank > 1:
        return (1,)
    if lanes == "samples":
        return (0,)
    if lanes == "dim" and (dim := given.get("dim")) is not None and dim.kind == "int":
        along = int(dim.value or 0) % rank
        return tuple(d for d in range(rank) if d != along)
    if lanes == "classes" and rank > 1:
        return tuple(d for d in range(rank) if d != 1)
    within = 1
    if (normalized := given.get("normalized_shape")) is not None and normalized.items:
        within = len(normalized.items)
    return tuple(range(max(0, rank - within)))


def chooses(call: OpCall) -> bool:
    """Whether a backward sends gradients to the elements that its op chose: among equal ones any may be."""
    return is_derived(call.op) and bool(CHOOSERS & set(op_word(call).split("_")))


def _known_indices(call: OpCall) -> IndexOutput | None:
    """The output of one of torch's ops that holds positions; None if it has none."""
    name = op_word(call).removesuffix("_with_indices")
    source = next((argument for argument in call.arguments if argument.value.kind == "tensor"), None)
    if source is None:
        return None
    if name[:-2].endswith("max_pool") and name[-2].isdecimal():
        return IndexOutput(number=1, into=source.name, dims=tuple(range(-int(name[-2]), 0)), distinct=False)
    if name not in INDICES:
        return None
    number, default = INDICES[name]
    dim = integer_of(call, "dim", default)
    return IndexOutput(
        number=number,
        into=source.name,
        dims=() if dim is None else (dim,),
        distinct=name in DISTINCT,
        stable=is_true(call, "stable", default=False),
    )


def integer_of(call: OpCall, name: str, default: int | None) -> int | None:
    """An integer argument, or what it is by default; None if it is none."""
    for argument in call.arguments:
        if argument.name == name:
            return int(argument.value.value or 0) if argument.value.kind == "int" else None
    return default


def is_true(call: OpCall, name: str, *, default: bool) -> bool:
    """Whether an argument is true."""
    values = (argument.value.value for argument in call.arguments if argument.name == name)
    return next((value is True for value in values), default)


def is_eps(name: str) -> bool:
    """Whether an argument is the constant under a root, by a whole word of its name."""
    return bool({"eps", "epsilon"} & set(name.lower().split("_")))


def is_position(name: str) -> bool:
    """Whether integers of this name say where in its sequence a token is; of others nobody knows what they are."""
    return bool({"pos", "position", "positions"} & set(name.lower().split("_")))


def op_word(call: OpCall) -> str:
    """The last part of an op's name, without the underscores of in-place forms: `relu` of `torch.relu_`."""
    parts = call.op.partition("@")[0].split(".")
    if parts[:3] == ["torch", "ops", "aten"] and len(parts) > 4:
        parts.pop()
    return parts[-1].lower().strip("_")


def _is_in_place(op: str) -> bool:
    """`torch.relu_`, `torch.Tensor.__iadd__`, `torch.ops.aten.add_.Tensor`."""
    parts = op.partition("@")[0].split(".")
    name = parts[3] if parts[:3] == ["torch", "ops", "aten"] and len(parts) > 3 else parts[-1]
    return (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE


def _lanes_of(name: str) -> Lanes:
    if name in ENTRIES:
        return ENTRIES[name].lanes
    if "batch_norm" in name:
        return "channels"
    if "group_norm" in name or "instance_norm" in name:
        return "samples"
    return "dim" if "softmax" in name or "cumsum" in name or "cumprod" in name else "last"
