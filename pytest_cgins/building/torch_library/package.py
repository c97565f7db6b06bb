"""A folder that ships kernels: sources, bindings, Python, and a build that needs neither pytest-cgins nor its cache."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cgins import __version__
from pytest_cgins.building.builders import binding, cpp, cuda, cutlass
from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.builders.includes import scan
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.source import find, include_folders, link_flags, read, takes_workspace
from pytest_cgins.building.torch_library import module
from pytest_cgins.building.torch_library.extract import standing_alone
from pytest_cgins.building.torch_library.module import Exported, signature, template
from pytest_cgins.building.torch_library.reference import call_of
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.device import DEVICES
from pytest_cgins.core.errors import ConfigError, ContractError, SourceError
from pytest_cgins.packs import backward
from pytest_cgins.packs.ops import locate, trust

TEMPLATE = Path(__file__).parent / "template"
DESCRIPTION = "libraries.json"
TORCH_NAMESPACES = ("torch", "aten", "prim", "prims", "quantized", "c10d")
FLAGS_WITH_FILES = re.compile(r"-{1,2}(isystem|iquote|idirafter|include|imacros|optf|options-file)")
REASONS = {
    "python": "a Python function has no schema line and no library; wrap it by torch.library.triton_op or custom_op",
    "torch-extension": "it is bound to torch's unstable C++ headers by its own code already",
    "device": "its launch is computed by pytest-cgins; write a host function that launches it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What was written."""

    libraries: tuple[str, ...]
    """Names of the libraries that it builds, such as `gelu_cpu`."""
    exported: tuple[Exported, ...]
    """Its kernels, those of backward ops among them."""


def write(
    config: Config,
    kernels: Sequence[KernelEntry],
    *,
    folder: Path,
    namespace: str,
    implementations: Sequence[str] = (),
) -> Package:
    """Write a package of kernels, and of the kernels for their backward ops.

    Args:
        config: where the kernels are from.
        kernels: what to export.
        folder: where to; made if it is missing. A package that was written before is replaced.
        namespace: of `torch.ops`, also the name of the Python package.
        implementations: names; () for the launchers of the kernels, one a device.

    Raises:
        ConfigError: two launchers for one device, or no such implementation; or the folder has other files; or the
            namespace is torch's or Python's.
        ContractError: an implementation cannot be exported.
        SourceError: an op cannot be called with the schema's arguments, or copied.
    """
    chosen = {kernel.name: _chosen(kernel, implementations) for kernel in kernels}
    for kernel in config.kernels:
        of_chosen = backward.is_derived(kernel.op) and any(
            backward.parse(kernel.op)[0] == other.op for other in kernels
        )
        if of_chosen and kernel.name not in chosen:
            chosen[kernel.name] = _launchers(kernel, implementations)
    entries = {kernel.name: kernel for kernel in config.kernels}
    _require_own(namespace)
    sources = {
        name: [find(config, entries[name], implementation) for implementation in found]
        for name, found in chosen.items()
        if found
    }
    exported = {name: _export(entries[name], of_kernel, namespace) for name, of_kernel in sources.items()}
    _prepare(folder)
    libraries = [
        _library(source, exported[name].operator, folder, config.root, define=index == 0)
        for name, of_kernel in sources.items()
        for index, source in enumerate(of_kernel)
    ]
    _write_python(folder, namespace, list(exported.values()), libraries)
    names = tuple(library["name"] for library in libraries)
    return Package(libraries=names, exported=tuple(exported.values()))


def _chosen(kernel: KernelEntry, names: Sequence[str]) -> list[Implementation]:
    found = [i for i in kernel.implementations if i.name in names] if names else _launchers(kernel, ())
    if not found:
        listed = ", ".join(f"{i.name} ({i.contract})" for i in kernel.implementations)
        raise ConfigError(
            f'kernel "{kernel.name}" has no {"implementation " + " or ".join(names) if names else "launcher"}',
            remedy=f"its implementations are {listed}",
        )
    for implementation in found:
        if implementation.contract != "launcher":
            raise ContractError(
                f"{kernel.name}/{implementation.name} cannot be exported: {REASONS[implementation.contract]}",
                remedy='export a launcher: one extern "C" function and a schema line',
            )
        if implementation.specialized is not None:
            raise ContractError(
                f"{kernel.name}/{implementation.name} cannot be exported: a package has one build of its sources, and "
                "specialize makes several",
                remedy="export an implementation without specialize, of the same sources: --implementation NAME",
            )
    for device in DEVICES:
        several = [i.name for i in found if i.device == device]
        if len(several) > 1:
            raise ConfigError(
                f'kernel "{kernel.name}" has several launchers for {device}: {", ".join(several)}',
                remedy=f"choose one a device: --implementation {several[0]}",
            )
    return sorted(found, key=lambda i: i.device)


def _launchers(kernel: KernelEntry, names: Sequence[str]) -> list[Implementation]:
    """Launchers of a kernel, with these names if it has them; for a device with several, the first."""
    found = [i for i in kernel.implementations if i.contract == "launcher"]
    return [i for i in found if i.name in names] or found


def _prepare(folder: Path) -> None:
    described = folder / DESCRIPTION
    if described.is_file() and "pytest-cgins" in read(described):
        for name in ("csrc", "src", "build"):
            shutil.rmtree(folder / name, ignore_errors=True)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"{folder} exists and is not a package of cgins export",
            remedy="name another folder: --out DIR, or remove this one",
        )
    (folder / "csrc").mkdir(parents=True, exist_ok=True)
    # So that a package that is not written to its end can be written again.
    described.write_text(json.dumps({"generator": f"pytest-cgins {__version__}"}), encoding="utf-8")


def _require_own(namespace: str) -> None:
    """Refuse names of a package that would hide another, or whose operators are torch's own."""
    if namespace in TORCH_NAMESPACES or namespace in sys.stdlib_module_names:
        whose = "torch's" if namespace in TORCH_NAMESPACES else "Python's"
        raise ConfigError(
            f"the namespace {namespace!r} is {whose} own", remedy="name another: --namespace NS"
        )


def _export(kernel: KernelEntry, sources: Sequence[KernelSource], namespace: str) -> Exported:
    main = sources[0]
    schema = schemas.parse(main.schema, main.files[0])
    for other in sources[1:]:
        if other.schema != main.schema:
            raise SourceError(
                f"{other.files[0]}: its schema line is not that of {main.files[0]}:\n  {other.schema}\n  {main.schema}",
                remedy="write the same line in both: an operator has one schema for all devices",
            )
    trust(kernel.op)
    made = binding.operator(namespace, re.sub(r"\W", "_", kernel.name), schema, main.files[0])
    call = call_of(kernel.op, schema, main.files[0])
    reference, source = kernel.op, ""
    if not call.gradients and not kernel.op.startswith("torch."):
        source, copied = standing_alone(locate(kernel.op), main.files[0])
        reference = f"_op_{made.name}.{copied}"
    return Exported(
        operator=made, call=call, devices=tuple(s.device for s in sources), reference=reference, source=source
    )


def _library(
    source: KernelSource, operator: binding.Operator, folder: Path, root: Path, *, define: bool
) -> dict[str, Any]:
    """Copy what one library is built from, and describe it."""
    csrc = folder / "csrc"
    name = f"{operator.name}_{source.device}"
    included = include_folders(source.flags)
    moved = {path: _copied_path(path, root, included) for path in _files(source)}
    for path, place in moved.items():
        (csrc / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, csrc / place)
    workspace = takes_workspace(source, operator.schema.entry)
    declarations = schemas.prototype(operator.schema, workspace=workspace)
    guarded = f'#ifdef __cplusplus\nextern "C" {{\n#endif\n{declarations}\n#ifdef __cplusplus\n}}\n#endif\n'
    (csrc / f"{name}.h").write_text(f"#include <cgins.h>\n{guarded}", encoding="utf-8")
    text = binding.binding(operator, source.device, declarations, workspace=workspace, define=define)
    (csrc / f"{name}_binding.cpp").write_text(text, encoding="utf-8")
    is_cuda = source.device == "cuda"
    own = [flag for flag in source.flags if not flag.startswith("-I")]
    for flag in filter(FLAGS_WITH_FILES.match, own):
        raise SourceError(
            f"{source.files[0]}: what the flag {flag} names is not copied into a package",
            remedy="name folders of headers by -I, and include files in the source",
        )
    folders = dict.fromkeys(str(_copied_path(path / "x", root, included).parent) for path in included)
    return {
        "name": name,
        "device": source.device,
        "sources": [str(moved[Path(file)]) for file in source.files],
        "prototype": f"{name}.h",
        "binding": f"{name}_binding.cpp",
        "include": list(folders),
        # The report of ptxas is for the gate.
        "flags": [flag for flag in (*(cuda.FLAGS if is_cuda else cpp.FLAGS), *own) if flag != "-Xptxas=-v"],
        "binding_flags": [*binding.CXX_FLAGS, "-fopenmp"],
        "link_flags": ["-Xlinker=-Bsymbolic", "-lgomp"]
        if is_cuda
        else ["-fopenmp", "-Wl,-Bsymbolic", *link_flags(own)],
        "archs": list(source.archs),
        "cutlass": bool(is_cuda and cutlass.headers_for(source).version),
    }


def _files(source: KernelSource) -> list[Path]:
    """The sources, and the headers that they include from the project."""
    folders = [plans.INCLUDE, *include_folders(source.flags)]
    found = {Path(file): None for file in source.files}
    for file in source.files:
        headers = scan(Path(file), folders).files
        found |= dict.fromkeys(header for header in headers if plans.INCLUDE not in header.parents)
    return list(found)


def _copied_path(path: Path, root: Path, included: Sequence[Path]) -> Path:
    """Where a file goes in the package's sources: as it lies in the project, or below its `-I` folder."""
    resolved = path.resolve()
    if resolved.is_relative_to(root.resolve()):
        return resolved.relative_to(root.resolve())
    for index, folder in enumerate(included):
        if resolved.is_relative_to(folder.resolve()):
            return Path(f"include_{index}") / resolved.relative_to(folder.resolve())
    raise SourceError(
        f"{path} is outside of the project in {root}",
        remedy="copy it into the project, or name its folder by -I",
    )


def _write_python(
    folder: Path, namespace: str, exported: list[Exported], libraries: list[dict[str, Any]]
) -> None:
    for header in plans.INCLUDE.glob("*.h"):
        (folder / "csrc/include").mkdir(exist_ok=True)
        shutil.copyfile(header, folder / "csrc/include" / header.name)
    package = folder / "src" / namespace
    package.mkdir(parents=True)
    files = [f"{library['name']}.so" for library in libraries]
    for one in exported:
        if one.source:
            (package / f"_op_{one.operator.name}.py").write_text(one.source, encoding="utf-8")
    (package / "__init__.py").write_text(module.text(namespace, exported, files), encoding="utf-8")
    shutil.copyfile(TEMPLATE.parent / "support.py", package / "_support.py")
    for name in ("build_kernels.py", "setup.py"):
        shutil.copyfile(TEMPLATE / name, folder / name)
    project = template("pyproject.toml", name=namespace.replace("_", "-"), namespace=namespace)
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    (folder / "README.md").write_text(_readme(namespace, exported, libraries), encoding="utf-8")
    described = {"generator": f"pytest-cgins {__version__}", "namespace": namespace, "libraries": libraries}
    (folder / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


SEED = " A generator has to be given\n  as a number there: torch cannot trace the seed of one."
BUILT_FOR = {
    "cpu": "Kernels for the CPU are compiled for that of the build machine; `CPU_FLAGS` says otherwise.",
    "cuda": "Kernels for CUDA are compiled for the GPUs of the build machine; `CUDA_ARCHS=sm_80,sm_90a` says otherwise.",
}


def _readme(namespace: str, exported: Sequence[Exported], libraries: Sequence[dict[str, Any]]) -> str:
    rows = "\n".join(
        f"| `{one.operator.name}({signature(one.operator)})` | `{one.call.op}` | {', '.join(one.devices)} | "
        f"{_gradients(one, exported)} |"
        for one in exported
    )
    listed = ", ".join(f"`{library['name']}.so`" for library in libraries)
    devices = {library["device"] for library in libraries}
    compiler = ", and nvcc (`CUDA_HOME`) for the kernels on CUDA" if "cuda" in devices else ""
    random = any(
        argument.type == "Generator" for one in exported for argument in one.operator.schema.arguments
    )
    seed = SEED if random else ""
    built = "\n".join(f"  {BUILT_FOR[device]}" for device in sorted(devices))
    return template(
        "README.md", namespace=namespace, first=exported[0].operator.name, rows=rows, listed=listed, compiler=compiler,
        seed=seed, built=built,
    )  # fmt: skip


def _gradients(one: Exported, exported: Sequence[Exported]) -> str:
    if one.call.gradients:
        return f"of {', '.join(one.call.gradients)}"
    if one.operator.mutated:
        return "none"
    kernels = [f"`{other.operator.name}`" for other in exported if other.call.forward == one.call.op]
    return ", ".join(kernels) or "torch's"
