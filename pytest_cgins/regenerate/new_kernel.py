"""An entry of `cgins.yaml` for a kernel that is not written yet. The run adds it, never the model."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_cgins import config as configuration
from pytest_cgins.config import Config
from pytest_cgins.core.case import Contract
from pytest_cgins.core.device import device_of_language
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.packs.store import open_pack
from pytest_cgins.regenerate.attempt import Target
from pytest_cgins.regenerate.targets import target_of

if TYPE_CHECKING:
    from yaml import MappingNode, Node, SequenceNode

Language = Literal["cpp", "cuda", "triton", "cute"]
OF_PROBLEMS = ("Model", "forward_fn")
"""What importers call the op of a problem, in a module with the problem's name."""
FOLDER = "kernels"
"""Where sources go in a project that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKernel:
    """An implementation that is to be written."""

    target: Target
    """What is asked for."""
    config: Config
    """The file with the new entry."""
    overlay: dict[str, str]
    """The file's new text, by its path from the project's top."""


def planned(
    config: Config, op: str, *, language: Language, contract: Contract | None, kernel: str = "", top: Path
) -> NewKernel:
    """Plan a kernel for an op that has traces.

    Args:
        config: the project's file.
        op: qualified name of the op, or its last word where only one recorded op has it.
        language: what it is to be written in.
        contract: how it is to be called; None for the language's own.
        kernel: its name in `cgins.yaml`; "" for that of the op's kernel, or the op's last word.
        top: the project's top folder.

    Raises:
        ConfigError: nothing of the op is recorded, the implementation or its source already exists, or the file's form
            cannot be added to.
    """
    name = _recorded(config, op)
    entry = next((one for one in config.kernels if one.op == name and kernel in ("", one.name)), None)
    called = kernel or (entry.name if entry else word_of(name))
    described = _description(config, called, language, contract)
    file, text = config.file, config.file.read_bytes().decode()
    taken = [one.name for one in entry.implementations if one.name == described["name"]] if entry else []
    if taken:
        raise ConfigError(
            f"{file}: kernel {called} has an implementation {taken[0]!r}",
            remedy="regenerate it instead: pytest --cgins --cgins-regenerate=" + called,
        )
    line = "{" + ", ".join(f"{key}: {value}" for key, value in described.items()) + "}"
    block = [f"{called}:", f"  op: {_scalar(name)}", "  implementations:", f"    - {line}"]
    changed = _with_implementation(text, file, called, line) if entry else _with_kernel(text, file, block)
    loaded = _loaded(config, changed)
    added = next(one for one in loaded.kernels if one.name == called)
    implementation = next(one for one in added.implementations if one.name == described["name"])
    there = [source for source in implementation.sources if source.exists()]
    if there:  # its proposal would be refused, once the answers are paid for
        raise ConfigError(
            f"{there[0]}: already exists, and the kernel is new",
            remedy=f"enter it in {file.name}, move it, or take another name: --name KERNEL",
        )
    path = os.path.relpath(os.path.realpath(file), os.path.realpath(top))
    return NewKernel(
        target=target_of(added, implementation, "generate"), config=loaded, overlay={path: changed}
    )


def reloaded(config: Config, overlay: Mapping[str, str]) -> Config:
    """The configuration of a project with what a run adds to it: see `NewKernel.config`."""
    texts = [text for path, text in overlay.items() if Path(path).name == config.file.name]
    return _loaded(config, texts[0]) if texts else config


def entered(text: str, file: Path, overlay: str, kernel: str) -> str:
    """The text of a cgins.yaml with the kernel that is new in an overlay; as it is if it has that kernel."""
    from yaml import MappingNode

    known, added = (_value(_mapping(one, file), "kernels") for one in (text, overlay))
    assert isinstance(added, MappingNode)
    if isinstance(known, MappingNode) and _value(known, kernel) is not None:
        return text
    key, value = next(pair for pair in added.value if pair[0].value == kernel)
    lines = overlay.splitlines()[key.start_mark.line : _end_of(value) + 1]
    return _with_kernel(text, file, [line[key.start_mark.column :] for line in lines])


def _recorded(config: Config, wanted: str) -> str:
    ops = sorted({trace.call.op for pack in config.traces for trace in open_pack(pack).pack.traces})
    if wanted in ops:
        return wanted
    found = [op for op in ops if word_of(op) == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        called = f"{counted(len(found), 'recorded op is', 'recorded ops are')} called {wanted}"
        raise ConfigError(f"{config.file}: {called}: {', '.join(found)}", remedy="give its whole name")
    raise ConfigError(
        f"{config.file}: no trace of {wanted}",
        remedy=nearest(wanted, [*ops, *map(word_of, ops)])
        or f"record it: cgins record SCRIPT.py --ops {wanted} --out traces/NAME",
    )


def word_of(op: str) -> str:
    """A name for a kernel: `layer_norm`, or `layer_norm_backward`; of a problem that was imported, that of its file."""
    forward, _, backward = op.partition("@")
    before, _, word = forward.rpartition(".")
    if word in OF_PROBLEMS:
        word = before.rpartition(".")[2]
    return f"{word}_backward" if backward else word


def _description(
    config: Config, kernel: str, language: Language, contract: Contract | None
) -> dict[str, str]:
    folder = _folder(config)
    python = language == "triton" or contract == "python"
    if language == "triton" and contract not in (None, "python"):
        raise ConfigError(
            f"--contract {contract}: Triton kernels are Python callables", remedy="leave --contract out"
        )
    if language == "cpp" and contract in ("device", "python"):
        raise ConfigError(
            f"--contract {contract}: not for C++ on a CPU", remedy="take launcher or torch-extension"
        )
    device = device_of_language(language).name
    if python:
        module = ".".join((*Path(folder).parts, f"{kernel}_{language}"))
        source = f"{folder}/{kernel}_{language}.py"
        target = f"'{module}:{kernel}'"
        return {"name": language, "device": device, "target": target, "sources": f"[{source}]"}
    suffix = ".cpp" if language == "cpp" else ".cu"
    kind = contract or "launcher"
    stem = {"device": f"{kernel}_device", "torch-extension": f"{kernel}_extension"}.get(kind, kernel)
    stem += "_cute" if language == "cute" else ""
    name = language if kind == "launcher" else f"{language}-{kind}"
    found = {"name": name, "device": device, "source": f"{folder}/{stem}{suffix}"}
    if kind != "launcher":
        found["contract"] = kind
    if kind == "torch-extension":
        found["entry"] = kernel
    return found


def _folder(config: Config) -> str:
    """Where the project's sources lie, relative to the file."""
    root = Path(os.path.realpath(config.root))
    found = Counter(
        str(file.parent.relative_to(root))
        for _, one in config.implementations.values()
        for file in (Path(os.path.realpath(source)) for source in one.sources)
        if file.is_relative_to(root)
    )
    most = found.most_common(1)
    return most[0][0] if most and most[0][0] != "." else FOLDER


# ---- the file's text


def _mapping(text: str, file: Path) -> MappingNode:
    import yaml

    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{file}: not a mapping", remedy="start with version: 1, traces and kernels")
    return node


def _value(node: MappingNode, key: str) -> Node | None:
    return next((value for name, value in node.value if name.value == key), None)


def _with_kernel(text: str, file: Path, lines: list[str]) -> str:
    """With one more kernel, given as lines from its name on."""
    import yaml

    kernels = _value(_mapping(text, file), "kernels")
    if kernels is None or (
        isinstance(kernels, yaml.MappingNode) and kernels.flow_style and not kernels.value
    ):
        if kernels is not None:
            # An empty {} stands on the line of its key.
            text = text[: kernels.start_mark.index].rstrip() + text[kernels.end_mark.index :]
            return _inserted(text, kernels.start_mark.line, lines, "  ")
        return _inserted(text, len(text.splitlines()) - 1, ["kernels:", *(f"  {line}" for line in lines)], "")
    if not isinstance(kernels, yaml.MappingNode) or kernels.flow_style:
        raise ConfigError(
            f"{file}: kernels is written in braces", remedy="write one kernel a line, and try again"
        )
    indent = " " * kernels.value[0][0].start_mark.column
    return _inserted(text, _end_of(kernels), lines, indent)


def _with_implementation(text: str, file: Path, kernel: str, implementation: str) -> str:
    import yaml

    kernels = _value(_mapping(text, file), "kernels")
    assert isinstance(kernels, yaml.MappingNode)
    entry = _value(kernels, kernel)
    listed = _value(entry, "implementations") if isinstance(entry, yaml.MappingNode) else None
    if not isinstance(listed, yaml.SequenceNode) or listed.flow_style:
        raise ConfigError(
            f"{file}: kernel {kernel} does not have its implementations in lines of their own",
            remedy="write implementations: and a line `- {name: …, source: …}` for each, and try again",
        )
    indent = " " * listed.start_mark.column
    return _inserted(text, _end_of(listed), [f"- {implementation}"], indent)


def _inserted(text: str, line: int, lines: list[str], indent: str) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    old = text.splitlines()
    new = [*old[: line + 1], *(indent + one for one in lines), *old[line + 1 :]]
    return end.join(new) + end


def _end_of(node: MappingNode | SequenceNode) -> int:
    """The 0-based line on which a block's last scalar ends: blocks themselves reach to the next token."""
    return max(_ends(node))


def _ends(node: Node) -> Iterator[int]:
    from yaml import MappingNode, ScalarNode, SequenceNode

    if isinstance(node, ScalarNode) or getattr(node, "flow_style", False):
        # A plain scalar's mark is behind it; that of a block scalar is in the line after.
        yield node.end_mark.line - (node.end_mark.column == 0 and node.end_mark.line > node.start_mark.line)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            yield from (*_ends(key), *_ends(value))
    elif isinstance(node, SequenceNode):
        for value in node.value:
            yield from _ends(value)


def _scalar(text: str) -> str:
    return text if re.fullmatch(r"[\w.]+", text) else f"'{text}'"


def _loaded(config: Config, text: str) -> Config:
    """What a text says, as if it were the project's file."""
    found = configuration.load(
        config.file,
        require_traces=False,
        require_sources=False,
        content=text.encode("utf-8", "surrogateescape"),
    )
    return replace(config, kernels=found.kernels)
