"""Reading and checking `cgins.yaml`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, cast

from pytest_cgins.config import conduct, timing_gate
from pytest_cgins.config.document import Section, Value, read
from pytest_cgins.config.llm_section import llm_settings
from pytest_cgins.config.model import Config, Implementation, KernelEntry, Tolerance
from pytest_cgins.config.pull_request import pull_request_settings
from pytest_cgins.config.semantics import semantics
from pytest_cgins.config.specialize import specialized
from pytest_cgins.config.work import declared_work
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.model import Contract
from pytest_cgins.core.text import counted, nearest, why_unnameable

CONFIG_VERSION = 1
NAME = re.compile(r"[A-Za-z0-9_.-]+")
TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
TOP_KEYS = ("version", "traces", "gate", "kernels", "llm", "pull_request")
KERNEL_KEYS = ("op", "implementations", "tolerance", "gate", "work", *conduct.CONDUCT_KEYS)
IMPLEMENTATION_KEYS = (
    "name", "device", "contract", "source", "sources", "target", "entry", "archs", "defines", "specialize", "flags",
    "interpret",
)  # fmt: skip
CPP_SUFFIXES = (".cpp", ".cc", ".cxx")


def load(
    path: Path, *, require_traces: bool = True, require_sources: bool = True, content: bytes | None = None
) -> Config:
    """Read a `cgins.yaml`.

    Args:
        path: the file.
        require_traces: whether the folders under `traces` must exist.
        require_sources: whether the sources of kernels must exist.
        content: what the file is to have, which then need not be there; None for what it has.

    Raises:
        ConfigError: anything in it is unknown, missing, twice there or of the wrong type; the message leads
            with file and line and ends with the nearest right word.
    """
    file = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a symlinked file away
    if wrong := why_unnameable(file):
        raise ConfigError(wrong[0], remedy=wrong[1])
    top = read(file, alone=not require_sources, content=content)
    top.refuse_unknown(TOP_KEYS)
    _check_version(top)
    traces = top.get("traces")
    gate, baseline = timing_gate.of_file(top.get("gate"))
    kernels = top.require("kernels", remedy="add kernels: {NAME: {op: …, source: …}}").mapping("kernels")
    return Config(
        file=file,
        traces=_traces(traces, require_traces) if traces else (),
        kernels=tuple(_kernel(kernels, name, gate) for name in kernels),
        baseline=baseline,
        llm=llm_settings(top.get("llm"), file.parent),
        pull_request=pull_request_settings(top.get("pull_request")),
    )


def load_without_traces(config: Path) -> Config:
    """The file, without looking for trace packs; a source that is missing is told of its own kernel.

    Raises:
        ConfigError: it is wrong.
    """
    return load(config, require_traces=False, require_sources=False)


def select(config: Config, names: list[str]) -> list[KernelEntry]:
    """The named kernels, or all.

    Raises:
        ConfigError: there is no kernel of a name.
    """
    known = {kernel.name: kernel for kernel in config.kernels}
    for name in names:
        if name not in known:
            raise ConfigError(
                f'{config.file}: no kernel "{name}"',
                remedy=nearest(name, known) or f"its kernels are {', '.join(known)}",
            )
    return [known[name] for name in names] or list(config.kernels)


def _check_version(top: Section) -> None:
    value = top.require("version", remedy=f"add version: {CONFIG_VERSION}")
    version = value.integer()
    if version > CONFIG_VERSION:
        value.fail(
            f"version {version} is newer than this pytest-cgins, which knows version {CONFIG_VERSION}",
            remedy="upgrade pytest-cgins",
        )
    if version < 1:
        value.fail(f"there is no version {version}", remedy=f"write version: {CONFIG_VERSION}")


def _traces(value: Value, required: bool) -> tuple[Path, ...]:
    found: dict[Path, int] = {}
    for item in value.items():
        path = item.path(kind="folder") if required else Path(item.section.file.parent, item.text())
        if path in found:
            item.fail(f"traces has {item.text()} twice, first in line {found[path]}", remedy="remove one")
        found[path] = item.line
    return tuple(found)


def _check_name(value: Value, name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        value.fail(
            f'{what} name "{name}" has characters that a test id cannot have',
            remedy="use letters, digits, and _ . -",
        )


def _kernel(kernels: Section, name: str, gate: timing_gate.Settings) -> KernelEntry:
    value = kernels.require(name, remedy="")
    _check_name(value, name, "kernel")
    section = value.mapping(f'kernel "{name}"')
    listed = section.get("implementations")
    short = [key for key in IMPLEMENTATION_KEYS if key in section]
    section.refuse_unknown(KERNEL_KEYS if listed else (*KERNEL_KEYS, *IMPLEMENTATION_KEYS))
    op = section.require("op", remedy="name the op it replaces, e.g. op: torch.nn.functional.gelu").text()
    if listed:
        implementations = tuple(
            _implementation(item.mapping(_implementation_title(item, index, name)))
            for index, item in enumerate(listed.items())
        )
        if not implementations:
            listed.fail(f'kernel "{name}" has no implementation', remedy="list at least one")
    elif short:
        implementations = (_implementation(section, known=(*KERNEL_KEYS, *IMPLEMENTATION_KEYS)),)
    else:
        section.fail(
            f'kernel "{name}" has neither implementations nor a source or target',
            remedy="add source: FILE.cpp, target: MODULE:FUNCTION, or implementations: […]",
        )
    _refuse_twins(section, implementations)
    tolerance = section.get("tolerance")
    timing, limits = timing_gate.of_kernel(section.get("gate"), name, gate)
    return KernelEntry(
        name=name,
        op=op,
        implementations=implementations,
        tolerance=_tolerance(tolerance, name) if tolerance else Tolerance(),
        limits=limits,
        timing=timing,
        work=declared_work(section.get("work"), name),
        exceptions=conduct.exceptions(section.get("probes"), name),
        repeatability=conduct.repeatability(section.get("repeatable"), name),
        claims=conduct.claims(section),
        allow_tf32=conduct.allow_tf32(section.get("precision"), name),
        semantics=semantics(section.get("semantics"), name),
        line=section.line,
    )


def _implementation_title(item: Value, index: int, kernel: str) -> str:
    name = item.mapping(f'implementation {index + 1} of kernel "{kernel}"').get("name")
    called = f'"{name.node.value}"' if name else str(index + 1)
    return f'implementation {called} of kernel "{kernel}"'


def _refuse_twins(section: Section, implementations: tuple[Implementation, ...]) -> None:
    """Refuse two implementations that a test id could not tell apart (`cpu-x` is also `x` on cpu)."""
    seen: dict[str, Implementation] = {}
    for implementation in implementations:
        device = implementation.device
        name = implementation.name
        key = name if name.startswith(device) else f"{device}-{name}"
        if key in seen:
            section.fail(
                f'{section.title} has two implementations "{name}" for device {device}, in lines '
                f"{seen[key].line} and {implementation.line}",
                remedy="give one of them another name",
            )
        seen[key] = implementation


def _tolerance(value: Value, kernel: str) -> Tolerance:
    if value.node.tag.endswith(":str"):
        value.choice("derived", otherwise="a mapping such as {rtol: 1e-3, atol: 1e-5}")
        return Tolerance()
    section = value.mapping(f'tolerance of kernel "{kernel}"')
    section.refuse_unknown(("rtol", "atol"))
    rtol, atol = section.get("rtol"), section.get("atol")
    if rtol is None and atol is None:
        section.fail(f"{section.title} is empty", remedy="write derived, or {rtol: 1e-3, atol: 1e-5}")
    return Tolerance(
        kind="explicit", rtol=rtol.amount() if rtol else 0.0, atol=atol.amount() if atol else 0.0
    )


def _implementation(section: Section, *, known: tuple[str, ...] = IMPLEMENTATION_KEYS) -> Implementation:
    section.refuse_unknown(known)
    sources = _sources(section)
    contract = _contract(section)
    interpret = section.get("interpret")
    interpreted = interpret.boolean() if interpret else False
    device = _device(section, sources, interpreted=interpreted)
    _refuse_foreign_keys(section, contract, device)
    target, entry = section.get("target"), section.get("entry")
    if target and not TARGET.fullmatch(target.text()):
        target.fail(
            f'target "{target.text()}" is not MODULE:FUNCTION',
            remedy="write e.g. kernels.softmax:softmax, or models.blocks:GatedMLP.forward",
        )
    if contract == "python" and target is None:
        section.fail(f"{section.title} has no target", remedy="add target: MODULE:FUNCTION")
    if contract == "torch-extension" and entry is None:
        section.fail(f"{section.title} has no entry", remedy="add entry: the function on torch::Tensor")
    if contract != "python" and not sources:
        section.fail(f"{section.title} has no source", remedy="add source: FILE.cpp or FILE.cu")
    if contract == "device":
        _check_device_kernel(section, sources, device)
    defines = _defines(section)
    return Implementation(
        name=_name(section, contract, sources),
        device=device,
        contract=contract,
        sources=sources,
        target=target.text() if target else "",
        entry=entry.text() if entry else "",
        defines=defines,
        specialized=specialized(section.get("specialize"), section.title, tuple(name for name, _ in defines)),
        flags=_flags(section),
        archs=_texts(section, "archs"),
        interpret=interpreted,
        line=section.line,
    )


def _sources(section: Section) -> tuple[Path, ...]:
    one, several = section.get("source"), section.get("sources")
    if one and several:
        several.fail(f"{section.title} has both source and sources", remedy="list all of them in sources")
    items = [one] if one else several.items() if several else []
    return tuple(item.path() for item in items)


def _contract(section: Section) -> Contract:
    value = section.get("contract")
    if value:
        return cast("Contract", value.choice("launcher", "device", "torch-extension", "python"))
    return "python" if "target" in section else "launcher"


def _device(section: Section, sources: tuple[Path, ...], *, interpreted: bool) -> Literal["cpu", "cuda"]:
    value = section.get("device")
    if value:
        return cast("Literal['cpu', 'cuda']", value.choice("cpu", "cuda"))
    if any(source.suffix == ".cu" for source in sources):
        return "cuda"
    if interpreted or (sources and sources[0].suffix in CPP_SUFFIXES):
        return "cpu"
    return section.fail(f"{section.title} does not say its device", remedy="add device: cpu or device: cuda")


def _refuse_foreign_keys(section: Section, contract: Contract, device: str) -> None:
    """Refuse keys that would be without effect."""
    needs = {
        "target": (contract == "python", "contract: python"),
        "entry": (contract == "torch-extension", "contract: torch-extension"),
        "interpret": (contract == "python" and device == "cpu", "contract: python and device: cpu"),
        "archs": (contract != "python" and device == "cuda", "compiled sources and device: cuda"),
        "defines": (contract != "python", "compiled sources"),
        "specialize": (contract == "launcher", "contract: launcher"),
        "flags": (contract != "python", "compiled sources"),
    }
    for key, (allowed, wanted) in needs.items():
        value = section.get(key)
        if value and not allowed:
            value.fail(
                f'"{key}" has no effect in {section.title}: its contract is {contract}, its device {device}',
                remedy=f"remove it; it goes with {wanted}",
            )


def _check_device_kernel(section: Section, sources: tuple[Path, ...], device: str) -> None:
    """Refuse what NVRTC cannot build: other devices, several sources, other files."""
    if device != "cuda":
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


def _name(section: Section, contract: Contract, sources: tuple[Path, ...]) -> str:
    value = section.get("name")
    if value:
        name = value.scalar()
        _check_name(value, name, "implementation")
        return name
    if contract == "launcher":
        return "cuda" if sources[0].suffix == ".cu" else "cpp"
    return contract


def _defines(section: Section) -> tuple[tuple[str, str], ...]:
    value = section.get("defines")
    if value is None:
        return ()
    defines = value.mapping(f"defines of {section.title}")
    found = []
    for key in defines:
        definition = defines.require(key, remedy="")
        if not re.fullmatch(r"[A-Za-z_]\w*", key):
            definition.fail(f'"{key}" is not the name of a macro', remedy="use letters, digits and _")
        found.append((key, definition.scalar()))
    return tuple(found)


def _texts(section: Section, key: str) -> tuple[str, ...]:
    value = section.get(key)
    return tuple(item.text() for item in value.items()) if value else ()


def _flags(section: Section) -> tuple[str, ...]:
    """Compiler flags, with relative search folders (`-I`, `-L`) made absolute."""
    flags: list[str] = []
    for flag in _texts(section, "flags"):
        if flags and flags[-1] in ("-I", "-L"):
            flags[-1] += str(section.file.parent / flag)
        elif flag[:2] in ("-I", "-L") and len(flag) > 2:
            flags.append(flag[:2] + str(section.file.parent / flag[2:]))
        else:
            flags.append(flag)
    return tuple(flags)
