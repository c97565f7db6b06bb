"""A kernel's sources, builds and resources, and the case that gates one of its implementations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.trace import OpCall, TensorMeta

CONTRACT_VERSION = 1


Contract = Literal["launcher", "device", "torch-extension", "python"]
OperatorCheck = Literal["", "schema", "autograd", "fake", "aot", "compile", "graph"]
"""What `--cgins-opcheck` looks at, an item each; "" for the gate's own."""
CaseCheck = Literal[OperatorCheck, "model"]
"""The same, and `model` for a whole model with its kernels."""
OPERATOR_CHECKS: tuple[OperatorCheck, ...] = get_args(OperatorCheck)[1:]


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
    load: tuple[str, ...] = ()
    """What registers the operator that `entry` names: absolute paths of libraries, names of modules (contract `python`)."""
    launch: str = ""
    """The launch line's text (contract `device`): how many blocks and threads, from sizes."""
    specialized: Specialized | None = None
    """Further builds in the same library, for calls of some sizes (contract `launcher`)."""
    digest: str = ""
    """sha256 over the sources' content and all of the above but paths and the namespace."""

    @property
    def name(self) -> str:
        """The name in messages: `kernel/implementation`."""
        return f"{self.kernel}/{self.implementation}"

    @property
    def runs_forward(self) -> bool:
        """Whether it is an autograd Function that replaces a backward: its forward is a part of every call."""
        return self.contract == "python" and self.entry.endswith(".apply") and "@backward(" in self.op

    @property
    def operator(self) -> str:
        """`namespace.name`, or `namespace.name.overload`, of the torch operator that it is; "" for another function."""
        if self.contract == "torch-extension":
            return self.entry.replace("::", ".") if "::" in self.entry else ""
        return self.entry.removeprefix("ops.") if self.module == "torch" and self.load else ""


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
    """Digest of the library as it was built: a worker loads no other; "" for contract `python`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources(Document):
    """What one function takes on one architecture, as the compiler reports it.

    It is a `__global__` function, or a device function that was not inlined.
    """

    function: str
    """The function's name, demangled."""
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
    """Argument tensors of the call."""
    check: CaseCheck = ""
    """What is looked at; "" for the gate's own case."""

    @property
    def key(self) -> tuple[str, str, str]:
        """The implementation that it is of: kernel, implementation and device type, as of `Config.implementations`."""
        return self.kernel, self.implementation, self.device.partition(":")[0]

    @property
    def name(self) -> str:
        """Node name: `layer_norm/cuda-triton/distilbert/f32-8x128x768-1b9c`; a check follows as `/opcheck-fake`."""
        if self.check == "model":
            return f"model/{self.kernel}/{self.device.partition(':')[0]}"
        where = _on_device(self.implementation, self.device.split(":")[0])
        check = f"/opcheck-{self.check}" if self.check else ""
        return f"{self.kernel}/{where}/{self.pack}/{self.signature}{check}"


def _on_device(implementation: str, device_type: str) -> str:
    """An implementation in a node's name: the device is not doubled where it is named after that."""
    return implementation if implementation.startswith(device_type) else f"{device_type}-{implementation}"
