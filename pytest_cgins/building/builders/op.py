"""A launcher as an operator of torch: built with a generated binding over the stable ABI, called by `torch.ops`.

The compilers of the kernel and of the binding run side by side; then one link. The library goes through the
same cache as every other build.
"""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cgins.building.build import DEFAULT_TIMEOUT_S, planner
from pytest_cgins.building.build import build as build_kernel
from pytest_cgins.building.builders import binding, cpp, cuda
from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.builders.torch_install import torch_package
from pytest_cgins.building.compilers import toolchain
from pytest_cgins.building.compilers.process import Outcome, run_stages
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.source import link_flags, read, takes_workspace
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ContractError, InfrastructureError, LaunchError

if TYPE_CHECKING:
    import torch

BINDING = "binding.cpp"
TORCH_LIBRARY = "libtorch_cpu.so"
CXX_FLAGS = ("-O1", "-std=c++17", "-fPIC")
_loaded: dict[str, tuple[Any, Any]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLibrary:
    """A launcher that torch can load as an operator."""

    compiled: CompiledKernel
    """What was built; its library is for `torch.ops.load_library`."""
    operator: binding.Operator
    """The operator that the library defines."""


def build(
    source: KernelSource, *, cache: Path | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
) -> OperatorLibrary:
    """Build a launcher as an operator, or take it from the cache.

    Its namespace has the source's digest, so that versions of a kernel can be loaded side by side.

    Args:
        source: a launcher.
        cache: folder of built kernels.
        timeout_s: limit of the compilation.

    Raises:
        ContractError: the source is no launcher.
        SourceError: torch cannot have such an operator.
        BuildError: a compiler refused it.
        InfrastructureError: torch is too old, or a compiler is missing.
    """
    operator = _operator(source)
    compiled = build_kernel(source, cache=cache, timeout_s=timeout_s, plan=plan(source))
    return OperatorLibrary(compiled=compiled, operator=operator)


def load(library: OperatorLibrary) -> torch._ops.OpOverload[..., Any]:
    """Load an operator into this process, with the shapes and gradients of the op that it replaces.

    Loading it again gives the same operator.

    Raises:
        LaunchError: the library cannot be loaded.
        SourceError: the schema's arguments are not the op's.
    """
    import torch

    from pytest_cgins.building.torch_library import support
    from pytest_cgins.building.torch_library.reference import call_of

    operator, compiled = library.operator, library.compiled
    if operator.qualified not in _loaded:
        call = call_of(compiled.source.op, operator.schema, compiled.source.files[0])
        try:
            torch.ops.load_library(compiled.library)  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError) as error:
            raise LaunchError(
                f"{compiled.library} cannot be loaded into torch {torch.__version__}: {error}",
                remedy="build it again with this torch, in a process that has no other version of it loaded",
            ) from error
        fragment = torch.library.Library(operator.namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
        described = support.Operator(
            name=operator.qualified,
            arguments=call.parameters,
            reference=call.function(),
            outputs=operator.output_kinds,
            mutated=operator.mutated,
            differentiable=not operator.mutated and not call.gradients,
        )
        support.register(described, fragment)
        _loaded[operator.qualified] = (getattr(torch.ops, operator.namespace), fragment)
    return getattr(_loaded[operator.qualified][0], operator.name).default  # type: ignore[no-any-return]


def _operator(source: KernelSource) -> binding.Operator:
    if source.contract != "launcher":
        raise ContractError(
            f"{source.name}: a {source.contract} kernel has no generated binding",
            remedy='write it as a launcher: one extern "C" function and a schema line',
        )
    schema = schemas.parse(source.schema, source.files[0])
    return binding.operator(f"cgins_{source.digest[:16]}", schema.entry, schema, source.files[0])


def plan(source: KernelSource) -> plans.Plan:
    """How to build a launcher as an operator.

    Raises:
        ContractError, SourceError, InfrastructureError: as `build`.
    """
    operator = _operator(source)
    planner(source)  # refuses what is no launcher's file
    kernel = (cuda if device_of(source.device).is_cuda else cpp).plan(source, linked=False)
    torch_version, include = stable_torch()
    text = binding_text(source, operator, define=True)
    compiler = toolchain.cxx()
    beside_kernel = [
        [*binding_command(compiler, include), "-c", BINDING, "-o", "binding.o"],
        stand_in_command(compiler),
    ]
    linker = toolchain.nvcc() if device_of(source.device).is_cuda else compiler

    def run(folder: Path, name: str, deadline: float) -> Outcome:
        beside = folder / "binding"
        beside.mkdir()
        (beside / BINDING).write_text(text, encoding="utf-8")
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(run_stages, [beside_kernel], beside, name, deadline)
            outcome = kernel.run(folder, name, deadline)
            bound = pending.result()
        if outcome.status != 0 or bound.status != 0:
            return _joined(outcome, bound)
        objects = [*sorted(path.name for path in folder.glob("*.o")), "binding/binding.o"]
        link = link_command(source, linker, objects)
        linked = run_stages([[[*link, "-o", plans.LIBRARY]]], folder, name, deadline)
        return _joined(outcome, bound, linked)

    return plans.Plan(
        compiler=kernel.compiler,
        identity=(
            "operator", hashlib.sha256(text.encode()).hexdigest(), toolchain.version(compiler), *CXX_FLAGS,
            hashlib.sha256(read(plans.INCLUDE / binding.HEADER).encode()).hexdigest(),
            f"torch's headers {torch_version}", *kernel.identity,
        ),
        roots=kernel.roots,
        prototyped=True,
        run=run,
    )  # fmt: skip


def binding_text(source: KernelSource, operator: binding.Operator, *, define: bool) -> str:
    """The C++ of a launcher's binding; see `binding.binding`."""
    workspace = takes_workspace(source, operator.schema.entry)
    declarations = schemas.prototype(operator.schema, workspace=workspace)
    return binding.binding(operator, source.device, declarations, workspace=workspace, define=define)


def binding_command(compiler: tuple[str, ...], include: Path) -> list[str]:
    """The compiler with the flags of a binding, without its files; `include` has torch's headers."""
    return [*compiler, *CXX_FLAGS, "-fopenmp", f"-I{plans.INCLUDE}", f"-isystem{include}"]


def stand_in_command(compiler: tuple[str, ...]) -> list[str]:
    """The link of an empty library with the name of torch's: to read all of torch's takes as long as the real link.

    What the binding needs of it is found when it is loaded, where the library of that name is torch's.
    """
    return [*compiler, "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{TORCH_LIBRARY}", "-o", TORCH_LIBRARY]


def link_command(source: KernelSource, linker: tuple[str, ...], objects: list[str]) -> list[str]:
    """The link of a launcher's objects with its binding's, without the output."""
    if not device_of(source.device).is_cuda:
        return [
            *linker, "-shared", "-fopenmp", *objects, *link_flags(source.flags), "-Wl,--no-as-needed", "-Lbinding",
            "-ltorch_cpu", "-Wl,-Bsymbolic",
        ]  # fmt: skip
    return [
        *linker, "-shared", "-cudart=static", *objects, *link_flags(source.flags, "-Xlinker"),
        f"-L{Path(linker[0]).parents[1] / 'lib'}", "-Xlinker=--no-as-needed", "-Lbinding", "-ltorch_cpu",
        "-Xlinker=-Bsymbolic", "-lgomp",
    ]  # fmt: skip


def stable_torch() -> tuple[tuple[int, int], Path]:
    """Major and minor version of torch, and the folder of its headers, without importing it.

    Raises:
        InfrastructureError: there is no torch, or it has no stable ABI that a binding could use.
    """
    root = torch_package().root
    found = re.search(r"__version__ = '(\d+)\.(\d+)", read(root / "version.py"))
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < binding.MINIMUM_TORCH:
        needed = ".".join(map(str, binding.MINIMUM_TORCH))
        raise InfrastructureError(
            f"torch {version[0]}.{version[1]} has no stable ABI with lists and strings: an operator is built "
            f"with the headers of torch {needed} or later",
            remedy=f"pip install 'torch>={needed}', or call the launcher without torch.ops",
        )
    return version, root / "include"


def _joined(*outcomes: Outcome) -> Outcome:
    """Several outcomes as one: the first that failed decides."""
    failed = [outcome for outcome in outcomes if outcome.status != 0]
    return Outcome(
        status=failed[0].status if failed else 0,
        log="".join(outcome.log for outcome in failed or outcomes),
        command="\n".join(outcome.command for outcome in outcomes),
    )
