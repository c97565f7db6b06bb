"""Calls of ops and what was recorded of them: arguments, tensors, gold, packs.

Sizes are in bytes, strides and offsets in elements. `dtype` is torch's name without the prefix ("float32").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.dtypes import ITEMSIZE
from pytest_cgins.core.text import counted

TRACE_PACK_VERSION = 2
OPERATORS = "torch.ops."
"""What the qualified names of torch's operators begin with."""
OF_TORCH = frozenset((
    "", "aten", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "prepacked", "prim", "prims", "quantized",
    "_quantized", "sparse", "xnnpack",
))  # fmt: skip
"""Namespaces of torch's own operators; in all others a name says nothing about the work."""

NOT_COMPUTING = frozenset((
    "prim", "prims", "profiler", "debugprims", "rngprims", "inductor", "c10d", "_c10d_functional", "higher_order",
))  # fmt: skip
"""Namespaces of torch's own for something else than kernels."""


def is_registered(op: str) -> bool:
    """Whether an op is an operator that another library registers with torch: `torch.ops.NAMESPACE.NAME`."""
    return op.startswith(OPERATORS) and op.split(".")[2] not in OF_TORCH | NOT_COMPUTING


_CONTAINERS = ("slice", "tuple", "list", "dict", "size", "adapted")


_LEAVES: dict[str, type] = {
    **dict.fromkeys((*_CONTAINERS, "none", "ellipsis", "generator"), type(None)),
    "bool": bool, "int": int, "tensor": int, "adapted": str,
}  # fmt: skip
"""Type of a node's value by its kind; text of all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(Document):
    """One node of an argument tree: a leaf, or a container of further nodes."""

    kind: Literal[
        "none", "bool", "int", "float", "complex", "str", "tensor", "dtype", "device",
        "memory_format", "layout", "ellipsis", "slice", "tuple", "list", "dict", "size", "generator",
        "op", "adapted",
    ]  # fmt: skip
    """What the node is. A `slice` has three items, a `dict` has as many `keys` as items, and an `adapted`
    object has one: what its adapter made of it."""
    value: bool | int | str | None = None
    """The leaf's value. float: `float.hex()`; complex: two hex floats and a blank between; tensor: its
    index in the tensors of the call; dtype, device, memory_format, layout: torch's name without `torch.`;
    op: qualified name of a torch function; adapted: qualified name of the adapter."""
    items: tuple[Value, ...] = ()
    """Children of a container, in order."""
    keys: tuple[str, ...] = ()
    """Keys of a `dict`, one a child."""

    def __post_init__(self) -> None:
        if self.items and self.kind not in _CONTAINERS:
            raise ValueError(f"a {self.kind} node cannot have items")
        if len(self.keys) != (len(self.items) if self.kind == "dict" else 0):
            items, keys = counted(len(self.items), "item"), counted(len(self.keys), "key")
            raise ValueError(f"a {self.kind} node with {items} has {keys}")
        if self.kind == "slice" and len(self.items) != 3:
            raise ValueError(f"a slice has 3 items, not {len(self.items)}")
        if self.kind == "adapted" and len(self.items) != 1:
            raise ValueError(f"an adapted object has 1 item, not {len(self.items)}")
        if type(self.value) is not _LEAVES.get(self.kind, str):
            raise ValueError(f"a {self.kind} node cannot hold {self.value!r}")


def walk(value: Value) -> Iterator[Value]:
    """A node and all below it, in order."""
    yield value
    for item in value.items:
        yield from walk(item)


def tensor_indices(value: Value) -> list[int]:
    """Indices of the tensor leaves of a tree, in order."""
    return [int(node.value or 0) for node in walk(value) if node.kind == "tensor"]


def mapped(value: Value, change: Callable[[Value], Value]) -> Value:
    """The tree with what `change` makes of its leaves."""
    if value.items:
        return replace(value, items=tuple(mapped(item, change) for item in value.items))
    return change(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument(Document):
    """One parameter of a call, bound to the op's signature."""

    name: str
    """Parameter name in the op's signature (`*args` items are `args.0`, `args.1`, …)."""
    value: Value
    """What was passed, or the signature's default."""
    passed: Literal["positional", "keyword", "default", "state"]
    """How the caller passed it; replay passes it the same way (a default is left out). `state` is what a
    module op reads from its module, under `self.<name>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCall(Document):
    """A call of an op: what is passed where. Tensors are kept beside it, by index."""

    op: str
    """Importable qualified name, e.g. `torch.nn.functional.layer_norm` or `models.decoder.rms_norm`."""
    arguments: tuple[Argument, ...]
    """Arguments in the order of the op's signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMeta(Document):
    """How one tensor lies on one storage."""

    dtype: str
    """torch's name without the prefix."""
    shape: tuple[int, ...]
    """Sizes; () for a zero-dimensional tensor."""
    stride: tuple[int, ...]
    """Strides in elements, one a dimension."""
    offset: int
    """First element, in elements of `dtype`, from the start of the storage's recorded span."""
    storage: int
    """Index of the storage; tensors that alias share one."""
    requires_grad: bool = False
    """Whether it took part in autograd as it was passed."""

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.stride):
            raise ValueError(f"shape {self.shape} and stride {self.stride} differ in length")
        if min((*self.shape, *self.stride, self.offset, self.storage)) < 0:
            raise ValueError(f"negative size, stride, offset or storage in {self}")

    @property
    def numel(self) -> int:
        """Number of elements: the product of `shape`."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel * ITEMSIZE[self.dtype]

    @property
    def unique_nbytes(self) -> int:
        """Bytes of its elements, what is expanded by a stride of 0 counted once."""
        sizes = (size for size, step in zip(self.shape, self.stride, strict=True) if step)
        return math.prod(sizes) * ITEMSIZE[self.dtype] if self.numel else 0

    @property
    def is_expanded(self) -> bool:
        """Whether some elements are the same memory, by a stride of 0."""
        return any(step == 0 and size > 1 for size, step in zip(self.shape, self.stride, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Document):
    """Summary of a tensor's values; means and extremes are over the finite ones, in fp64."""

    numel: int
    """Number of elements."""
    finite: int
    """How many are finite."""
    nan: int
    """How many are NaN."""
    positive_infinite: int
    """How many are +inf."""
    zero: int
    """How many are exactly zero."""
    mean: float
    """Mean of the finite elements; 0 if there are none."""
    std: float
    """Population standard deviation of the finite elements; 0 if there are none."""
    minimum: float
    """Least finite element; 0 if there are none."""
    maximum: float
    """Greatest finite element; 0 if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob(Document):
    """A content-addressed file of the pack: `blobs/<sha256>.safetensors`, one uint8 tensor `data`."""

    sha256: str
    """Digest of the file as written, 64 hex digits."""
    nbytes: int
    """Length of `data`, in bytes."""

    def __post_init__(self) -> None:
        if len(self.sha256) != 64 or set(self.sha256) - set("0123456789abcdef"):
            raise ValueError(f"{self.sha256!r} is not a sha256 in lower-case hex")
        if self.nbytes < 0:
            raise ValueError(f"nbytes {self.nbytes} is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Document):
    """How to make a storage's content again, the same on every host: a counter-based stream."""

    distribution: Literal["normal", "half_normal", "integer", "bernoulli", "constant"]
    """`half_normal`: max(0, normal), what a ReLU leaves behind. `integer`: uniform in [low, high]."""
    seed: int
    """Key of the stream, 64 bits."""
    mean: float = 0.0
    """Mean of `normal` and `half_normal` before clipping; the value of `constant`; P(1) of `bernoulli`."""
    std: float = 1.0
    """Standard deviation of `normal` and `half_normal` before clipping."""
    low: float = 0.0
    """Least value; `normal` is clipped to it."""
    high: float = 0.0
    """Greatest value; `normal` is clipped to it."""
    masked: Blob | None = None
    """Where an additive mask stood in recorded scores, or True in a bool mask: one bit an element, least
    significant first."""
    masked_value: Literal["-inf", "lowest"] = "-inf"
    """What stands there: negative infinity, or the dtype's least finite number; True in a bool mask."""
    sha256: str
    """Digest of the generated bytes: a host that makes others must not use them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage(Document):
    """The bytes under one or more input tensors: only the span that the call can reach."""

    nbytes: int
    """Length of the span."""
    dtype: str
    """Element type of the content (of the first tensor that lies on it)."""
    blob: Blob | None = None
    """The recorded bytes (tier `full`; indices and masks in tier `recipe`)."""
    recipe: Recipe | None = None
    """How to make them (tier `recipe`)."""

    def __post_init__(self) -> None:
        if self.blob is not None and self.recipe is not None:
            raise ValueError("a storage has a blob or a recipe, not both")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldTensor(Document):
    """One recorded output (or one input after the call, where the op mutates it)."""

    meta: TensorMeta
    """Metadata of the tensor that torch returned. `storage` numbers the gold storages, apart from the inputs'."""
    statistics: Statistics
    """Statistics of the whole tensor."""
    blob: Blob | None = None
    """All elements in logical (row-major) order, tier `full`."""
    sample_blob: Blob | None = None
    """Elements at the positions of `sample_seed`, in their order, tier `recipe`."""
    sample_seed: int = 0
    """Key of the position stream."""
    sample_count: int = 0
    """Number of sampled positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold(Document):
    """What the op gave."""

    outputs: Value
    """Tree of what was returned; its tensor leaves index `tensors`."""
    tensors: tuple[GoldTensor, ...]
    """Returned tensors first, then the mutated inputs."""
    mutated: tuple[tuple[int, int], ...] = ()
    """Pairs (input tensor index, gold tensor index) of inputs that the op changed."""
    aliases: tuple[tuple[int, int], ...] = ()
    """Pairs (gold tensor index, input tensor index) of outputs that share an input's storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autocast(Document):
    """Autocast as it was active on one device type."""

    device_type: str
    """`cpu` or `cuda`."""
    dtype: str
    """The lower precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Document):
    """What besides the arguments decides the result."""

    grad_enabled: bool = False
    """`torch.is_grad_enabled()`."""
    inference_mode: bool = False
    """`torch.is_inference_mode_enabled()`."""
    autocast: tuple[Autocast, ...] = ()
    """Active autocast states."""
    default_dtype: str = "float32"
    """`torch.get_default_dtype()`."""
    deterministic: bool = False
    """`torch.are_deterministic_algorithms_enabled()`."""
    float32_matmul_precision: str = "highest"
    """`torch.get_float32_matmul_precision()`."""
    training: bool | None = None
    """`training` of the innermost module around the call, None outside any module."""
    rng_seed: int | None = None
    """Seed set before the gold was made, for ops that draw random numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin(Document):
    """Where and with what a trace was recorded."""

    device: str
    """Device type of the recording, `cpu` or `cuda`."""
    device_name: str
    """CPU or GPU model."""
    torch: str
    """torch version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length(Document):
    """A size that changed from call to call, as that of a key-value cache does."""

    size: int
    """Size in this trace."""
    sizes: tuple[int, ...]
    """All that the run met, ascending; those without a trace of their own included."""
    calls: int
    """How many calls had one of `sizes`."""
    axes: tuple[tuple[int, int], ...]
    """Where it stands: pairs (input tensor index, dimension)."""

    def __post_init__(self) -> None:
        if self.size not in self.sizes or list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"sizes {self.sizes} are not ascending, or lack this trace's own, {self.size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Document):
    """The recording of one op call. Never changed once written."""

    id: str
    """First 16 hex digits of the sha256 of the call, tensors, storages, context and gold."""
    signature: str
    """Readable and unique in its pack: `f32-8x128x768-1b9c` (dtype, shape of the first tensor, digest)."""
    call: OpCall
    """The op and its arguments."""
    tensors: tuple[TensorMeta, ...]
    """The argument tensors, as they lay before the call."""
    storages: tuple[Storage, ...]
    """What they lie on."""
    context: Context
    """Grad mode, autocast and the like."""
    gold: Gold | None
    """None in tier `shapes`."""
    replay: Literal["bitwise", "derived", "unchecked"]
    """How the self-check went: bitwise, within the derived rule (torch calls the op nondeterministic), or
    not done (tier `shapes`)."""
    count: int
    """How many calls of the recorded run had this signature."""
    origin: Origin
    """Where it was recorded."""
    lengths: tuple[Length, ...] = ()
    """Sizes for which this trace stands with few others."""
    rebound: tuple[str, ...] = ()
    """Arguments, and attributes of a module (`self.ema`), that the op set anew or made longer: the gold
    does not have what they became."""

    @property
    def dtype(self) -> str:
        """Dtype of the first floating-point tensor argument, else of the first tensor; "none" without any."""
        for meta in self.tensors:
            if "float" in meta.dtype:
                return meta.dtype
        return self.tensors[0].dtype if self.tensors else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePack(Document):
    """The manifest of a folder of traces from one model: `manifest.json`."""

    version: int
    """Schema version, `TRACE_PACK_VERSION`."""
    name: str
    """Name of the pack, by default its folder's."""
    tier: Literal["shapes", "recipe", "full"]
    """How much is kept of tensors."""
    traces: tuple[Trace, ...]
    """Ordered by op and signature."""
