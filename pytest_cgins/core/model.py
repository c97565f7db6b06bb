"""The data that flows: frozen, free of torch, and refusing combinations that cannot be.

Sizes are in bytes, times in nanoseconds or seconds as their names say, strides and offsets in
elements. `dtype` is torch's name without the prefix ("float32"). Every class here can be written as
JSON and read back with validation (`pytest_cgins.core.documents`), and the published JSON Schemas are made
from the docstrings under the fields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.text import counted

TRACE_PACK_VERSION = 2
REPORT_VERSION = 2
CONTRACT_VERSION = 1


# ---- calls and traces ---------------------------------------------------------------------------

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
    """In the order of the op's signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMeta(Document):
    """How one tensor lies on one storage."""

    dtype: str
    """torch's name without the prefix."""
    shape: tuple[int, ...]
    """Sizes; () for a zero-dimensional tensor."""
    stride: tuple[int, ...]
    """In elements, one a dimension."""
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
    """Of the file as written, 64 hex digits."""
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
    """Of `normal` and `half_normal` before clipping; the value of `constant`; P(1) of `bernoulli`."""
    std: float = 1.0
    """Of `normal` and `half_normal` before clipping."""
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
    """Of the generated bytes: a host that makes others must not use them."""


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
    """As torch returned it. `storage` numbers the gold storages, apart from the inputs'."""
    statistics: Statistics
    """Of the whole tensor."""
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
    """In this trace."""
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
        """Of the first floating-point tensor argument, else of the first tensor; "none" without any."""
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


# ---- kernels ------------------------------------------------------------------------------------

Contract = Literal["launcher", "device", "torch-extension", "python"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace(Document):
    """Where a project's modules are imported apart from those of the working tree, in the same process."""

    name: str
    """The package that they are in, `_cgins_base_…`: `kernels.softmax` becomes `_cgins_base_….kernels.softmax`."""
    folders: tuple[str, ...]
    """Where they are looked up, in this order; absolute."""
    apart_from: str
    """Top folder of the working tree, none of whose modules they get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialized(Document):
    """Builds of one source for some sizes, beside the one for all."""

    macros: tuple[str, ...]
    """Names."""
    sizes: tuple[str, ...]
    """What each is: a size of an argument, such as `input.size(-1)`."""
    builds: tuple[tuple[int, ...], ...]
    """Values of the macros, a build."""

    def named(self, build: tuple[int, ...]) -> dict[str, int]:
        """The macros of one build."""
        return dict(zip(self.macros, build, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource(Document):
    """One implementation of a kernel, found, read and checked, not yet built."""

    kernel: str
    """Name in cgins.yaml."""
    implementation: str
    """Name of the implementation, unique in its kernel and device."""
    op: str
    """Qualified name of the op it replaces."""
    device: DeviceName
    """Device type it runs on."""
    contract: Contract
    """How it is called."""
    entry: str
    """Function name in the source, or attribute in the Python module."""
    schema: str
    """Schema line of a launcher or device kernel, in torch's schema language; "" for other contracts."""
    files: tuple[str, ...]
    """Absolute paths of the sources, main file first."""
    module: str = ""
    """Importable module name (contract `python`)."""
    import_root: str = ""
    """Folder put on `sys.path` for `module` (contract `python`)."""
    namespace: Namespace | None = None
    """Where `module` is imported instead, for a kernel of the base revision (contract `python`)."""
    flags: tuple[str, ...] = ()
    """Further compiler flags, defines included."""
    archs: tuple[str, ...] = ()
    """CUDA architectures to build for; () means that of the present device."""
    interpret: bool = False
    """Run Triton's interpreter instead of its compiler (device `cpu`)."""
    launch: str = ""
    """The launch line's text (contract `device`): how many blocks and threads, from sizes."""
    specialized: Specialized | None = None
    """Further builds in the same library, for calls of some sizes (contract `launcher`)."""
    digest: str = ""
    """sha256 over the sources' content and all of the above but paths and the namespace."""

    @property
    def name(self) -> str:
        """As messages name it: `kernel/implementation`."""
        return f"{self.kernel}/{self.implementation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel(Document):
    """A kernel that a worker can load."""

    source: KernelSource
    """What it was built from."""
    library: str
    """Absolute path of the shared library, or of the cubin (contract `device`); "" for contract `python`."""
    key: str
    """Build cache key: sha256 over source, headers, flags, compiler and contract version; namespace of a module."""
    build_seconds: float
    """Wall time of the build; 0 when it came from the cache."""
    cached: bool
    """Whether it came from the cache."""
    sha256: str = ""
    """Of the library as it was built: a worker loads no other; "" for contract `python`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources(Document):
    """What one function takes on one architecture, as the compiler reports it.

    It is a `__global__` function, or a device function that was not inlined.
    """

    function: str
    """Its name, demangled."""
    arch: str
    """Architecture of the machine code, such as `sm_90a`."""
    registers_per_thread: int
    """32-bit registers; 0 for a device function, which uses those of its callers."""
    spill_store_nbytes: int
    """Bytes a thread writes to local memory because registers ran out."""
    spill_load_nbytes: int
    """Bytes a thread reads back."""
    stack_nbytes_per_thread: int
    """Stack frame in local memory."""
    static_shared_nbytes_per_block: int
    """Shared memory that the code declares; what the launch adds is not in it."""
    instructions: tuple[tuple[str, int], ...] | None = None
    """SASS opcodes (without modifiers) and how often each is in the code, most frequent first; None if the
    code was not disassembled."""


# ---- cases and results --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Document):
    """One (kernel implementation, trace, device, dtype) to gate: one pytest item."""

    kernel: str
    """Kernel name."""
    implementation: str
    """Implementation name."""
    device: str
    """`cpu` or `cuda:0`."""
    op: str
    """Qualified name of the op."""
    pack: str
    """Name of the trace pack."""
    pack_path: str
    """Absolute path of the pack's folder."""
    trace_id: str
    """Id of the trace in the pack."""
    signature: str
    """Signature of the trace."""
    dtype: str
    """Data type of the case."""
    call: OpCall | None = None
    """The recorded call; None in reports from before they had it."""
    tensors: tuple[TensorMeta, ...] = ()
    """Its argument tensors."""

    @property
    def name(self) -> str:
        """Node name: `layer_norm/cuda-triton/distilbert/f32-8x128x768-1b9c`."""
        where = _on_device(self.implementation, self.device.split(":")[0])
        return f"{self.kernel}/{where}/{self.pack}/{self.signature}"


def _on_device(implementation: str, device_type: str) -> str:
    """An implementation in a node's name: the device is not doubled where it is named after that."""
    return implementation if implementation.startswith(device_type) else f"{device_type}-{implementation}"


class Status(str, Enum):
    """What became of a case."""

    PASSED = "PASSED"
    FASTER = "FASTER"
    SAME = "SAME"
    NEW = "NEW"
    WEAK = "WEAK"
    INCONCLUSIVE = "INCONCLUSIVE"
    INCORRECT = "INCORRECT"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    TIMEOUT = "TIMEOUT"
    SUSPECT = "SUSPECT"
    BUILD_ERROR = "BUILD_ERROR"
    SLOWER = "SLOWER"
    BELOW_FLOOR = "BELOW_FLOOR"
    RESOURCES = "RESOURCES"
    TRACE_DRIFT = "TRACE_DRIFT"
    INFRASTRUCTURE = "INFRASTRUCTURE"
    SKIPPED = "SKIPPED"

    @property
    def outcome(self) -> Literal["pass", "fail", "error", "skip"]:
        """What it means to pytest, JUnit and the exit code, before `--cgins-strict` and `gate.fail_on`."""
        if self in (Status.TRACE_DRIFT, Status.INFRASTRUCTURE):
            return "error"
        if self is Status.SKIPPED:
            return "skip"
        good = (Status.PASSED, Status.FASTER, Status.SAME, Status.NEW, Status.WEAK, Status.INCONCLUSIVE)
        return "pass" if self in good else "fail"


class Reason(str, Enum):
    """Why a verdict is what it is; stable codes for scripts."""

    OK = "ok"
    NO_POWER = "no-power"
    OUTPUT_COUNT = "output-count"
    SHAPE = "shape"
    DTYPE = "dtype"
    DEVICE = "device"
    STRIDE = "stride"
    EMPTY = "empty"
    UNWRITTEN = "unwritten"
    INPUT_CHANGED = "input-changed"
    OUT_OF_BOUNDS = "out-of-bounds"
    NAN_PATTERN = "nan-pattern"
    INFINITE_PATTERN = "infinite-pattern"
    GOLD_MISMATCH = "gold-mismatch"
    REFERENCE_MISMATCH = "reference-mismatch"
    INDEX_OUT_OF_RANGE = "index-out-of-range"
    INDEX_MISMATCH = "index-mismatch"
    INDEX_REPEATED = "index-repeated"
    UNSTABLE_ORDER = "unstable-order"
    RAISED = "raised"
    ERROR_CODE = "error-code"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    COMPILER = "compiler"
    SOURCE = "source"
    GOLD_DRIFT = "gold-drift"
    PACK_DAMAGED = "pack-damaged"
    WORKER_LOST = "worker-lost"
    REFERENCE_FAILED = "reference-failed"
    TOOL_MISSING = "tool-missing"
    DEVICE_ABSENT = "device-absent"
    DEVICE_BUSY = "device-busy"
    CONTRACT = "contract"
    RANDOM = "random"
    REGISTERS_GREW = "registers-grew"
    SPILLS_GREW = "spills-grew"
    ARCHITECTURE = "architecture"
    # probes
    NOT_REPEATABLE = "not-repeatable"
    STALE_ANSWER = "stale-answer"
    NOT_ON_STREAM = "not-on-stream"
    LATE_WORK = "late-work"
    LAZY_OUTPUT = "lazy-output"
    OP_CALLBACK = "op-callback"
    TAMPERING = "tampering"
    SNOOPING = "snooping"
    MEMORY_USE = "memory-use"
    MEMORY_LEAK = "memory-leak"
    SIZE_DEPENDENT = "size-dependent"
    ARGUMENT_IGNORED = "argument-ignored"
    LAYOUT_DEPENDENT = "layout-dependent"
    ALIGNMENT_DEPENDENT = "alignment-dependent"
    LOW_PRECISION = "low-precision"
    HIDDEN_BY_PRECISION = "hidden-by-precision"
    WRONG_AFTER_TIMING = "wrong-after-timing"
    TOO_FAST = "too-fast"
    L2_CARVE_OUT = "l2-carve-out"
    # how a worker ended
    ABORTED = "aborted"
    EXITED = "exited"
    ILLEGAL_ADDRESS = "illegal-address"
    DEVICE_ASSERT = "device-assert"
    OUT_OF_MEMORY = "out-of-memory"
    OUTPUT_FLOOD = "output-flood"
    PROCESS_FLOOD = "process-flood"
    CONNECTION_CLOSED = "connection-closed"
    FORGED_ANSWER = "forged-answer"
    # time
    SLOWER_THAN_BASE = "slower-than-base"
    BELOW_TORCH_FLOOR = "below-torch-floor"
    FASTER_THAN_BASE = "faster-than-base"
    NOT_SLOWER = "not-slower"
    UNCHANGED = "unchanged"
    NO_BASELINE = "no-baseline"
    NOISE = "noise"
    NOT_CONFIRMED = "not-confirmed"
    NOT_COMPARABLE = "not-comparable"
    SLOWS_BASE = "slows-base"
    # compute-sanitizer
    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstElement(Document):
    """The element farthest outside (or nearest to) its tolerance."""

    output: int
    """Index of the output tensor."""
    index: tuple[int, ...]
    """Position in it."""
    expected: str
    """What was expected there, as text (round-trip digits; NaN and infinities spelled)."""
    got: str
    """What the kernel gave."""
    tolerance: float
    """Allowed absolute distance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Document):
    """One comparison: a rule on one set of inputs."""

    rule: Literal["form", "gold", "reference"]
    """`form`: shape, dtype, stride, NaN pattern; `gold`: rule 1; `reference`: rule 2."""
    inputs: str
    """Name of the input set: `recorded`, `fresh`, `edge`."""
    passed: bool
    """Whether it held."""
    reason: Reason
    """`ok`, or why not."""
    message: str
    """One paragraph for a person; "" when it passed."""
    share: float | None
    """Error as a share of what is allowed, the greater of max and rms: above 1 fails. None for `form`."""
    wrong: int = 0
    """Elements outside tolerance."""
    compared: int = 0
    """Elements compared."""
    worst: WorstElement | None = None
    """The worst element."""
    map: str = ""
    """Compact picture of where the wrong elements are; "" when there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeryCheck(Document):
    """Whether the case tells one forged answer from the right one."""

    forgery: Literal["zeros", "ones", "input-copy", "permuted-gold"]
    """What was offered instead of the kernel's answer."""
    caught: bool
    """Whether some rule refused it."""


PROBES = (
    "on_stream", "poison", "guards", "inputs_unchanged", "repeat", "fresh_memory", "late_work", "plain_outputs",
    "op_callback", "libraries", "integrity", "snooping", "memory_use", "memory_leak", "sizes", "arguments", "layouts",
    "special_values", "second_precision", "after_timing", "content_cache", "physical_floor",
    "l2_carve_out", "memcheck", "racecheck", "initcheck", "synccheck",
)  # fmt: skip
"""Names of all probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe(Document):
    """One thing that a wrong kernel might do to pass, looked for in one case."""

    name: str
    """Name of the probe, as in cgins.yaml: `repeat`, `late_work`."""
    outcome: Literal["held", "tripped", "excused", "not-run"]
    """`tripped`: the kernel fails; `excused`: not looked for, and cgins.yaml says why; `not-run`: the probe
    does not apply to this case, or could not be finished."""
    reason: Reason
    """`ok`, or what it tripped with."""
    message: str = ""
    """What was seen, or why it was not run, or the reason that cgins.yaml gives; "" when it held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correctness(Document):
    """All that was checked of a kernel's answers on one case."""

    checks: tuple[Check, ...]
    """In the order in which they were made."""
    power: tuple[ForgeryCheck, ...]
    """One a forgery that can be made for this case."""
    notes: tuple[str, ...] = ()
    """What a reader must know: a rule that does not apply, a reference that is not fp64."""
    probes: tuple[Probe, ...] = ()
    """One a probe that was switched on."""

    @property
    def passed(self) -> bool:
        """Whether there was a check, all held, and no probe tripped."""
        return bool(self.checks) and all(check.passed for check in self.checks) and not self.tripped

    @property
    def tripped(self) -> tuple[Probe, ...]:
        """The probes that the kernel fails."""
        return tuple(probe for probe in self.probes if probe.outcome == "tripped")

    @property
    def share(self) -> float | None:
        """Greatest error as a share of what is allowed."""
        return max((check.share for check in self.checks if check.share is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Document):
    """What a measurement or report was made with."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str
    """CPU or GPU model."""
    python: str
    """Python version."""
    torch: str
    """torch version."""
    cuda: str = ""
    """CUDA version that torch was built with, "" without."""
    driver: str = ""
    """NVIDIA driver version, "" without."""
    triton: str = ""
    """Triton version, "" without."""
    host_cores: int = 0
    """Cores that the process may use."""
    device_uuid: str = ""
    """Of the GPU or the part of one, as NVML writes it: `GPU-…`, `MIG-…`; "" for a CPU."""
    sm_count: int = 0
    """Multiprocessors of the GPU; 0 for a CPU."""
    memory_nbytes: int = 0
    """Memory of the GPU, as CUDA tells it; 0 for a CPU."""
    mig: bool | None = None
    """Whether the GPU is divided (MIG), or is such a part; None where nobody tells."""
    ecc: bool | None = None
    """Whether its memory is corrected; None where nobody tells."""
    clock_policy: str = ""
    """GPU: `default`, or `applications-1410-mhz`. CPU: `governor performance, turbo off`. "" where nobody tells."""
    cudnn: str = ""
    """cuDNN version, "" without."""
    cublas: str = ""
    """cuBLAS version, "" without."""
    protocol: int = 0
    """Version of the procedure of timing, `environment_key.TIMING_PROTOCOL`; 0: from before there were versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Document):
    """Status, reason, message, numbers."""

    status: Status
    """What became of the case."""
    reason: Reason
    """Why, as a code."""
    message: str
    """Why, for a person."""
    numbers: dict[str, float]
    """What it rests on; keys carry their unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested(Document):
    """What an evaluation stands for: with other sources, traces or settings it says nothing.

    All digests are sha256 in hex.
    """

    sources: str
    """Of the kernel's sources and how they are built, as `Evaluation.kernel_digest`."""
    build: str
    """Build key: over the sources, the headers that they include, flags and compiler."""
    library: str
    """Of the file that the workers loaded, read when it was handed to them; "" for contract `python`."""
    trace: str
    """Id of the trace."""
    pack: str
    """Of the pack's `manifest.json`; "" if it could not be read."""
    config: str
    """Of what cgins.yaml says of this implementation: op, tolerance, exceptions, claims, flags."""
    cgins: str
    """Version of pytest-cgins."""
    seed: int
    """Seed of the fresh inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Document):
    """All that is known of one case after it ran."""

    case: Case
    """Which."""
    verdict: Verdict
    """The outcome."""
    kernel_digest: str
    """Digest of the kernel that was run; "" if it was never found."""
    correctness: Correctness | None
    """None if it never ran."""
    measurement: Measurement | None
    """None if it was not timed."""
    build_seconds: float
    """Wall time of its build, 0 from the cache."""
    seconds: float
    """Wall time of the whole evaluation."""
    output: str = ""
    """Tail of what the kernel printed."""
    config: str = ""
    """Path of the `cgins.yaml` that has the case, from the folder where pytest began; "" where nobody noted it."""
    tested: Tested | None = None
    """Digests of what was tested; None if the kernel was not built."""
    fail_on: Literal["regression", "inconclusive", "never"] = "regression"
    """`gate.fail_on`: whether a proven slowdown fails, an undecided time too, or neither."""
    device_name: str = ""
    """Model of the device, as in `Environment`; only in merged reports that have several of one type."""

    @property
    def label(self) -> str:
        """What a reader knows the case by: its name, with the device where the name alone is not enough."""
        return f"{self.case.name} on {self.device_name}" if self.device_name else self.case.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation(Document):
    """One kernel implementation built for one architecture, without being run."""

    kernel: str
    """Kernel name."""
    implementation: str
    """Implementation name."""
    arch: str
    """Architecture, such as `sm_90a`."""
    verdict: Verdict
    """`PASSED`, `NEW` (no baseline), `RESOURCES`, `BUILD_ERROR`, `SKIPPED` or `INFRASTRUCTURE`."""
    resources: tuple[KernelResources, ...]
    """One a `__global__` function, by name; () if it was not built."""
    base: tuple[KernelResources, ...]
    """The same at the base revision; () if there is none."""
    base_revision: str
    """Commit that it was compared with; "" if with none."""
    build_seconds: float
    """Wall time of its build, 0 from the cache."""
    seconds: float
    """Wall time of all of it, the base's build included."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as that no tool could disassemble."""
    config: str = ""
    """Path of the `cgins.yaml`, as in `Evaluation`."""

    @property
    def name(self) -> str:
        """Node name: `layer_norm/cuda/sm_90a`."""
        return f"{self.kernel}/{_on_device(self.implementation, 'cuda')}/{self.arch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard(Document):
    """Which part of a suite a run was: `--cgins-shard`."""

    number: int
    """From 1 on."""
    count: int
    """How many parts the suite has."""

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ValueError(f"shard {self.number} of {self.count}: the number is one of 1 to {self.count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRun(Document):
    """One of the runs that a merged report was made of."""

    seed: int
    """As in `SessionReport`."""
    started_at: str
    """As in `SessionReport`."""
    exit_status: int
    """As the run ended by itself."""
    tests: int
    """N by which the run judged its times; 0 if it made no test."""
    devices: tuple[str, ...]
    """Models of the devices that it used."""
    shard: Shard | None = None
    """Which part of a suite it was; None if it was no numbered one."""
    digest: str = ""
    """sha256 of its report, in hex: no two runs share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport(Document):
    """What `--cgins-json` writes."""

    version: int
    """Schema version, `REPORT_VERSION`."""
    cgins: str
    """Version of pytest-cgins."""
    seed: int
    """Seed of the fresh inputs: `--cgins-seed` repeats them."""
    started_at: str
    """UTC, ISO 8601."""
    seconds: float
    """Wall time of the session; in a merged report of all of them together."""
    exit_status: int
    """Exit code of the session."""
    environments: tuple[Environment, ...]
    """One a device that was used."""
    evaluations: tuple[Evaluation, ...]
    """Ordered by case name."""
    strict: bool = False
    """Whether `--cgins-strict` was in force."""
    compilations: tuple[Compilation, ...] = ()
    """What `--cgins-compile-only` built, ordered by name."""
    missing: tuple[str, ...] = ()
    """Cases that the base revision has and this session's files do not: `cgins.yaml::KERNEL/…`, with the path from
    the folder where pytest began. Cases that the command line left out are not among them."""
    base_revision: str = ""
    """What the cases were held against: `1a2b3c4d5e (merge-base with main)`; "" if nothing."""
    stale: tuple[str, ...] = ()
    """What changed after it was tested, one line a kernel or pack: its evaluations are not those of the files."""
    empty: bool = False
    """Whether no kernel was run: there was no case, or all were skipped."""
    ci: bool = False
    """Whether it ran in CI: there missing cases, stale evidence and an empty run fail."""
    allow_fewer: bool = False
    """Whether `--cgins-allow-fewer` lets missing cases and an empty run pass."""
    told_only: bool = False
    """Whether missing cases fail nowhere: this is no pull request's run, and no `--cgins-baseline` was given."""
    coverage_note: str = ""
    """Why cases were not held against the base revision's; "" if they were."""
    weaker: tuple[str, ...] = ()
    """Settings, pipelines and options of pytest that are weaker than at the base revision, one line each."""
    allow_weaker: bool = False
    """Whether `--cgins-allow-weaker` lets them pass."""
    unread: bool = False
    """Whether they were to be held against it, and it could not be read: as `missing` that fails in CI."""
    suite_tests: int = 0
    """`--cgins-suite-tests`: tests of the suite that several runs make up; 0 where the run counted its own."""
    shard: Shard | None = None
    """`--cgins-shard`; None where the run was no numbered part."""
    merged: tuple[MergedRun, ...] = ()
    """What `cgins merge` made this of; () in a run's own report."""
    other_failures: int = 0
    """Failures that no case or build stands for: a test of the user's own, a file that could not be collected."""
    stopped: bool = False
    """Whether `-x` or `--maxfail` stopped the run: of what was left nobody knows."""
