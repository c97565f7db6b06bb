"""One implementation of a kernel: its sources, how it is called, and what it is built with."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pytest_cgins.config.document import Section, Value, keys, one_of
from pytest_cgins.config.specialize import check_macro, specialized
from pytest_cgins.core.case import Contract, Specialized
from pytest_cgins.core.device import DEVICES, DeviceName, device_of
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import OPERATORS, is_registered

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]  # pytest brings it

BUILD_TOML = "build.toml"
COMPILED = (".cu", ".cpp", ".cc", ".cxx")
NAME = re.compile(r"[A-Za-z0-9_.-]+")
_DOTTED = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
TARGET = re.compile(rf"{_DOTTED}:{_DOTTED}")
OPERATOR = re.compile(r"torch\.ops(\.[A-Za-z_]\w*){2,3}")
MODULE = re.compile(_DOTTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One way in which a kernel is written."""

    name: Annotated[str, _name]
    """Unique among the kernel's implementations for one device."""
    device: Annotated[DeviceName, one_of(DeviceName)]
    """Device type."""
    contract: Annotated[Contract, one_of(Contract)]
    """How it is called."""
    sources: tuple[Path, ...]
    """Absolute paths, main file first."""
    target: Annotated[str, _target] = ""
    """`module:function`, or `torch.ops.namespace.name`; contract `python`."""
    load: Annotated[tuple[str, ...], _load] = ()
    """What registers the operator of `target`: absolute paths of libraries, names of modules."""
    build: Annotated[str, Value.text] = ""
    """Command that makes what is loaded, run in the folder of cgins.yaml."""
    entry: Annotated[str, Value.text] = ""
    """Function in the main source (contract `torch-extension`); that of a launcher or device kernel is in its schema line."""
    defines: Annotated[tuple[tuple[str, str], ...], _defines] = ()
    """Preprocessor definitions, in the order of the file."""
    specialized: Specialized | None = None
    """Further builds for some sizes, as `specialize` says."""
    flags: Annotated[tuple[str, ...], _flags] = ()
    """Further compiler flags."""
    archs: Annotated[tuple[str, ...], Value.texts] = ()
    """CUDA architectures such as `sm_90a`."""
    interpret: Annotated[bool, Value.boolean] = False
    """Run a Triton kernel in Triton's interpreter (device `cpu`)."""
    line: int = 0
    """Line in cgins.yaml, 1-based."""

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator that torch knows by its name."""
        by_entry = self.contract == "torch-extension" and "::" in self.entry
        return by_entry or self.target.startswith(OPERATORS)


def implementation_keys() -> tuple[str, ...]:
    """The keys of a section that holds one."""
    return ("source", "sources", *keys(Implementation), "specialize")


def check_name(value: Value, name: str, title: str) -> None:
    """Refuse a name of a kernel or implementation that a test id cannot have."""
    if not NAME.fullmatch(name):
        value.fail(
            f'{title} name "{name}" has characters that a test id cannot have',
            remedy="use letters, digits, and _ . -",
        )


def implementation(section: Section, op: str) -> Implementation:
    """The implementation in a section whose keys are known; it may have a kernel's keys besides.

    An operator that is loaded is its own implementation, unless there is a target.
    """
    fields = section.fields(Implementation, others=True)
    source = section.get("source")
    if source is not None and source.is_a("str") and Path(source.text()).name == BUILD_TOML:
        sources, folders = _built_by_toml(source, fields.get("device", ""))
        fields["flags"] = (*folders, *fields.get("flags", ()))
        fields.setdefault("contract", "torch-extension")
    else:
        sources = _sources(section)
    contract = fields.setdefault(
        "contract", "python" if "target" in section or "load" in section else "launcher"
    )
    if fields.get("load") and is_registered(op) and "@" not in op:
        fields.setdefault("target", op)
    device = fields.setdefault("device", _usual_device(sources, interpreted=fields.get("interpret", False)))
    if not device:
        section.fail(
            f"{section.title} does not say its device",
            remedy="add " + " or ".join(f"device: {kind}" for kind in DEVICES),
        )
    _refuse_without_effect(section, contract, device)
    _require(section, contract, sources, fields.get("target", ""))
    if contract == "device":
        _check_device_kernel(section, sources, device)
    registered = is_registered(fields.get("target", ""))
    fields.setdefault("name", "operator" if registered else _usual_name(contract, sources))
    macros = [name for name, _ in fields.get("defines", ())]
    sizes = section.get("specialize")
    return Implementation(
        sources=sources,
        specialized=specialized(sizes, macros) if sizes else None,
        line=section.line,
        **fields,
    )


def _sources(section: Section) -> tuple[Path, ...]:
    single, several = section.get("source"), section.get("sources")
    if single and several:
        several.fail(f"{section.title} has both source and sources", remedy="list all of them in sources")
    items = [single] if single else several.items() if several else []
    return tuple(item.path() for item in items)


def _built_by_toml(source: Value, device: str) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Sources and include flags of a project in the layout of Hugging Face's kernels, for one device."""
    file = source.path()
    if not file.is_file():  # at a base revision that does not have it
        return (file,), ()
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
        kernels = list(document.get("kernel", {}).values())
        binding = dict(document.get("torch", {}))
        kinds = [kernel.get("backend", kernel.get("language", "cuda")) for kernel in kernels]
        device = device or ("cuda" if "cuda" in kinds else "cpu")
        parts = [binding, *(part for part, kind in zip(kernels, kinds, strict=True) if kind == device)]
        if flags := [key for part in parts for key in ("cuda-flags", "cxx-flags") if part.get(key)]:
            source.fail(
                f"{flags[0]} in {source.text()} are not taken over",
                remedy="list sources and flags here instead, with contract: torch-extension",
            )
        names = [name for part in parts for name in part.get("src", ())]
        folders = [".", "torch-ext", *(name for part in parts for name in part.get("include", ()))]
        sources = tuple(file.parent / name for name in names if Path(name).suffix in COMPILED)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
        source.fail(
            f"{source.text()} cannot be read: {error}", remedy="write the layout that kernel-builder reads"
        )
    if len(parts) < 2 or not sources:
        source.fail(
            f"{source.text()} has no kernel for {device}",
            remedy=f"its kernels are for {', '.join(kinds) or 'nothing'}",
        )
    return sources, tuple(f"-I{os.path.normpath(file.parent / folder)}" for folder in dict.fromkeys(folders))


def _usual_device(sources: tuple[Path, ...], *, interpreted: bool) -> str:
    """The device where none is named; "" if nothing tells."""
    suffixes = {source.suffix for source in sources}
    for device in map(device_of, DEVICES):
        if device.is_accelerator and suffixes.intersection(device.suffixes):
            return device.name
    return "cpu" if interpreted or (sources and sources[0].suffix in device_of("cpu").suffixes) else ""


def _usual_name(contract: str, sources: tuple[Path, ...]) -> str:
    """The name where none is given."""
    if contract == "launcher":
        return "cuda" if sources[0].suffix == ".cu" else "cpp"
    return contract


def _refuse_without_effect(section: Section, contract: str, device: str) -> None:
    compiled = contract != "python"
    needs = {
        "target": (not compiled, "contract: python"),
        "load": (not compiled, "contract: python"),
        "build": (not compiled, "contract: python"),
        "entry": (contract == "torch-extension", "contract: torch-extension"),
        "interpret": (not compiled and device == "cpu", "contract: python and device: cpu"),
        "archs": (compiled and device_of(device).is_cuda, "compiled sources and device: cuda"),
        "defines": (compiled, "compiled sources"),
        "specialize": (contract == "launcher", "contract: launcher"),
        "flags": (compiled, "compiled sources"),
    }
    section.refuse_without_effect(needs, f"its contract is {contract}, its device {device}")


def _require(section: Section, contract: str, sources: tuple[Path, ...], target: str) -> None:
    if contract == "python":
        if not target:
            section.require("target", remedy="add target: MODULE:FUNCTION, or torch.ops.NAMESPACE.NAME")
        if is_registered(target):
            registers = "add load: [build/libNAME.so], or load: [PACKAGE.MODULE], which registers it"
            section.require("load", remedy=registers)
    elif contract == "torch-extension":
        section.require("entry", remedy="add entry: the function on torch::Tensor")
    if contract != "python" and not sources:
        section.fail(f"{section.title} has no source", remedy="add source: FILE.cpp or FILE.cu")


def _check_device_kernel(section: Section, sources: tuple[Path, ...], device: str) -> None:
    """Refuse what NVRTC cannot build: other devices, several sources, other files."""
    if not device_of(device).is_cuda:
        section.fail(f"{section.title} has contract device and device {device}", remedy="write device: cuda")
    if len(sources) > 1:
        section.fail(
            f"{section.title} has {counted(len(sources), 'source')}; a device kernel is one file",
            remedy='keep the main one, and include the others in it: #include "rows.cuh"',
        )
    if sources[0].suffix != ".cu":
        section.fail(
            f"{section.title}: a device kernel cannot be a {sources[0].suffix or 'nameless'} file",
            remedy="its source ends in .cu",
        )


def _name(value: Value) -> str:
    name = value.scalar()
    check_name(value, name, "implementation")
    return name


def target_of(value: Value, remedy: str, *further: re.Pattern[str]) -> str:
    """`MODULE:FUNCTION`, or what matches further patterns."""
    target = value.text()
    if not any(pattern.fullmatch(target) for pattern in (TARGET, *further)):
        value.fail(f'{value.key} "{target}" is not MODULE:FUNCTION', remedy=remedy)
    return target


def _target(value: Value) -> str:
    known = "kernels.softmax:softmax, models.blocks:GatedMLP.forward, or torch.ops.mylib.softmax"
    return target_of(value, f"write e.g. {known}", OPERATOR)


def _load(value: Value) -> tuple[str, ...]:
    return value.distinct(_loaded)


def _loaded(item: Value) -> str:
    """A library, which its build may still have to make, or a module."""
    text = item.text()
    if text.endswith((".so", ".dylib")):
        return os.path.normpath(item.section.file.parent / text)
    if not MODULE.fullmatch(text):
        item.fail(
            f'load has "{text}", neither a library nor a module',
            remedy="write build/libNAME.so, or PACKAGE.MODULE",
        )
    return text


def _defines(value: Value) -> tuple[tuple[str, str], ...]:
    defines = value.mapping()
    for name in defines:
        check_macro(defines[name])
    return tuple((name, defines[name].scalar()) for name in defines)


def _flags(value: Value) -> tuple[str, ...]:
    """Compiler flags, with relative search folders (`-I`, `-L`) made absolute."""
    folder = value.section.file.parent
    flags: list[str] = []
    for flag in value.texts():
        if flags and flags[-1] in ("-I", "-L"):
            flags[-1] += str(folder / flag)
        elif flag[:2] in ("-I", "-L") and len(flag) > 2:
            flags.append(flag[:2] + str(folder / flag[2:]))
        else:
            flags.append(flag)
    return tuple(flags)
