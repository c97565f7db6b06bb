"""What kind of kernel it is, by which texts are chosen: its language, and the family of its op."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pytest_cgins.building.contracts import torch_schema
from pytest_cgins.core import syntax
from pytest_cgins.core.case import Contract
from pytest_cgins.core.device import DeviceName, device_of
from pytest_cgins.core.text import text_of
from pytest_cgins.regenerate.prompts import templating
from pytest_cgins.regenerate.prompts.context import Context, relative

_MOST_HELPERS = 8

SENTENCES = templating.sentences("ops.txt")
"""By the last part of an op's name without a trailing `_`."""


def described_op(context: Context) -> dict[str, object]:
    """What `templates/op.md` says of the op."""
    op, _, rest = context.target.op.partition("@backward(")
    is_torch = op.startswith("torch.")
    # A module of torch.nn has its functional namesake's words, and arguments of its own.
    is_function = is_torch and (not op.startswith("torch.nn.") or op.startswith("torch.nn.functional."))
    sentence = SENTENCES.get(word(op), "") if is_function else ""
    file, source = (None if is_torch else find(context.config.root, op)) or (None, "")
    return {
        "forward": op,
        "gradients": [f"grad_{name.strip()}" for name in rest.rstrip(")").split(",")] if rest else [],
        "is_torch": is_torch,
        "sentence": sentence,
        "documentation": torch_schema.documentation(op).strip() if is_torch and not sentence else "",
        "source": source,
        "path": relative(file, context.top) if file is not None else "",
        "in_place": is_torch and op.endswith("_") and not op.endswith("__"),
    }


def word(op: str) -> str:
    """Last part of an op's name, lower case, no trailing `_`: `relu` of `torch.nn.functional.relu_`."""
    parts = op.partition("@")[0].split(".")
    last = parts[3] if parts[:2] == ["torch", "ops"] and len(parts) > 3 else parts[-1]
    return last.lower().rstrip("_")


def find(root: Path, op: str) -> tuple[Path, str] | None:
    """File and source of a qualified name in a project, with the helpers of the same file that it uses."""
    parts = op.split(".")
    for depth in range(len(parts) - 1, 0, -1):
        if not all(part.isidentifier() for part in parts):
            return None
        base = root.joinpath(*parts[:depth])
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                text = _definition(file, parts[depth:])
                if text:
                    return file, text
    return None


def _definition(file: Path, names: list[str]) -> str:
    text = text_of(file)
    tree = syntax.readable(text)
    if tree is None:
        return ""
    imported = ast.Import | ast.ImportFrom
    named = {name: node for name, node in syntax.defined(tree).items() if not isinstance(node, imported)}
    if names[0] not in named:
        return ""
    wanted = {names[0]: None}
    todo = [named[names[0]]]
    while todo and len(wanted) <= _MOST_HELPERS:
        for node in ast.walk(todo.pop(0)):
            if isinstance(node, ast.Name) and node.id in named and node.id not in wanted:
                wanted[node.id] = None
                todo.append(named[node.id])
    kept = sorted({id(named[name]): named[name] for name in wanted}.values(), key=lambda node: node.lineno)
    lines = text.splitlines()
    return "\n\n".join("\n".join(lines[_first(node) - 1 : node.end_lineno]) for node in kept)


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


Language = Literal["cpp", "cuda", "device", "triton", "cute", "cute-dsl", "python"]
Family = Literal[
    "matmul", "convolution", "elementwise", "norm", "reduction", "attention", "embedding", "pooling", "fused"
]

_WORDS: dict[str, Any] = json.loads(templating.text("families.json"))
_OF_WORDS: dict[str, Family] = {
    word: family for family, words in _WORDS["ops"].items() for word in words.split()
}


def language_of(context: Context) -> Language:
    """By contract, device, name and text of the sources."""
    it = context.implementation
    files = {path: context.files.get(path, "") for path in context.sources}
    return "triton" if it.interpret else language_in(it.contract, it.name, context.target.device, files)


def language_in(contract: Contract, name: str, device: DeviceName, files: Mapping[str, str]) -> Language:
    """The same of sources by path, of an implementation that has this name in `cgins.yaml`."""
    text, name = "\n".join(files.values()), name.lower()
    if contract == "device":
        return "device"
    if contract == "python":
        if re.search(r"^\s*(?:import|from)\s+triton\b", text, re.MULTILINE) or "triton" in name:
            return "triton"
        if re.search(r"^\s*(?:import|from)\s+cutlass\b", text, re.MULTILINE) or "cute" in name:
            return "cute-dsl"
        return "python"
    if re.search(r"#\s*include\s*<(?:cute|cutlass)/", text) or "cute" in name:
        return "cute"
    return "cuda" if device_of(device).is_cuda or any(path.endswith(".cu") for path in files) else "cpp"


def fence_of(path: str, language: Language) -> str:
    """Info string of a file's fence, by its suffix where that says more."""
    fence: str = _WORDS["suffixes"].get(path.rpartition(".")[2], _WORDS["fences"][language])
    return fence


def family_of(op: str) -> Family:
    """By the last part of an op's name; that of a backward is its forward's."""
    last = word(op)
    if last in _OF_WORDS:
        return _OF_WORDS[last]
    if op.startswith("torch."):
        return "convolution" if last.startswith("conv") else "elementwise"
    return next(
        (family for family, hints in _WORDS["hints"].items() if any(hint in last for hint in hints.split())),
        "fused",
    )
