"""The static check of Python sources, on their syntax tree."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from pytest_cgins.core import syntax
from pytest_cgins.regenerate.attempt import Finding
from pytest_cgins.regenerate.static_check import python_names, python_tables

_TELLTALE = re.compile("pytest|cgins_worker", re.IGNORECASE)
Against = tuple[ast.AST, str, str]
"""A node, a code, and words."""


def check(
    path: str, text: str, *, op: str, files: Mapping[str, str], allowed: Collection[str]
) -> list[Finding]:
    """Look through one Python source; the arguments are those of the package's `check`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = syntax.module(text)
    except SyntaxError as error:
        return [_finding(path, error.lineno or 0, "syntax", str(error.msg))]
    except (ValueError, RecursionError, MemoryError) as error:
        return [_finding(path, 0, "syntax", f"Python cannot read it ({type(error).__name__})")]
    checker = _Checker(tree, op=op, allowed={*allowed, *_modules(files)}, package=path)
    try:
        found = list(checker.run())
    except RecursionError:
        return [_finding(path, 0, "syntax", "it is nested too deeply")]
    return [_finding(path, getattr(node, "lineno", 0), code, words) for node, code, words in found]


def _finding(path: str, line: int, code: str, words: str) -> Finding:
    return Finding(code=code, file=path, line=line, message=f"{words}: {python_tables.REMEDY[code]}")


def _modules(files: Mapping[str, str]) -> list[str]:
    paths = [PurePosixPath(file) for file in files if file.endswith(".py")]
    return [".".join(path.with_suffix("").parts) for path in paths]


class _Checker:
    def __init__(self, tree: ast.Module, *, op: str, allowed: Collection[str], package: str) -> None:
        self._tree = tree
        self._work = python_names.SameWork(op)
        self._allowed = allowed
        self._package = PurePosixPath(package).parent.parts
        self._names = python_names.imported(tree)
        self._roots = {each.partition(".")[0] for each in self._names.values()}
        self._modules = {
            alias.asname or alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        self._device = python_names.device_nodes(tree, self._names)
        self._docstrings = python_names.docstrings(tree)
        self._parameters = python_names.parameters(tree)
        self._inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        self._called: dict[str, ast.AST] = {}
        self._defined = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        }

    def run(self) -> Iterator[Against]:
        for node in ast.walk(self._tree):
            if look := _LOOKS.get(type(node)):
                yield from look(self, node)
        composed = self._work.composed(self._called)
        if composed:
            yield self._called[composed[-1]], "calls-op", " and ".join(composed)

    def _imports(self, node: ast.Import) -> Iterator[Against]:
        for alias in node.names:
            yield from self._import(node, alias.name)

    def _operator(self, node: ast.BinOp) -> Iterator[Against]:
        if isinstance(node.op, ast.MatMult) and id(node) not in self._device:
            self._called.setdefault("matmul", node)
            if self._work.has("matmul"):
                yield node, "calls-op", "the operator @"

    def _string(self, node: ast.Constant) -> Iterator[Against]:
        if not isinstance(node.value, str) or id(node) in self._docstrings:
            return
        text = node.value
        if any(word in text for word in ("CGINS_", "INVOCATION_ID")) or _TELLTALE.search(text):
            yield node, "self-recognition", f"the text {text[:60]!r}"
        elif text.startswith(("/proc/", "/dev/shm", "/sys/class")):  # noqa: S108 - looked for, not used
            yield node, "file-access", f"the text {text[:60]!r}"

    def _import(self, node: ast.AST, name: str) -> Iterator[Against]:
        root = name.partition(".")[0]
        if python_tables.OF_IMPORT.get(root) == "self-recognition":
            yield node, "self-recognition", f"the import of {name}"
        elif any(name == module or name.startswith(module + ".") for module in self._allowed):
            return
        elif root not in python_tables.IMPORTS:
            code = python_tables.OF_IMPORT.get(root, "import")
            yield node, code, f"the import of {name}"
        else:
            yield from self._dotted(node, name)

    def _import_from(self, node: ast.ImportFrom) -> Iterator[Against]:
        module = node.module or ""
        if node.level:
            parts = self._package[: len(self._package) - (node.level - 1)]
            module = ".".join([*parts, *([module] if module else [])])
            names = {f"{module}.{alias.name}" for alias in node.names} | {module}
            if not names & set(self._allowed):
                yield node, "import", f"the import of {'.' * node.level}{node.module or ''}"
            return
        is_allowed = any(f"{module}.{alias.name}" in self._allowed for alias in node.names)
        if not is_allowed:
            yield from self._import(node, module)
        for alias in node.names:
            if alias.name == "*":
                if module.partition(".")[0] == "torch":
                    yield node, "dynamic-code", f"from {module} import *"
                continue
            yield from self._dotted(node, f"{module}.{alias.name}")

    def _name(self, node: ast.Name) -> Iterator[Against]:
        code = python_tables.BUILTINS.get(node.id, "")
        is_own = node.id in self._defined or id(node) in self._parameters
        if code and not is_own and isinstance(node.ctx, ast.Load):
            yield node, code, node.id
        elif _is_dunder(node.id) and not code:
            yield node, "introspection", node.id
        elif _recognises(node.id):
            yield node, "self-recognition", node.id
        full = self._names.get(node.id, "")
        if full and "." in full and id(node) not in self._inner and isinstance(node.ctx, ast.Load):
            yield from self._dotted(node, full)

    def _attribute(self, node: ast.Attribute) -> Iterator[Against]:
        name = node.attr
        if name in python_tables.METHODS:
            yield node, python_tables.METHODS[name], f".{name}"
        elif _is_dunder(name):
            yield node, "introspection", f".{name}"
        elif _recognises(name):
            yield node, "self-recognition", f".{name}"
        if id(node) in self._inner:
            return
        full = python_names.dotted(node, self._names)
        if full and full.partition(".")[0] in self._roots:
            yield from self._dotted(node, full)
        elif id(node) not in self._device:
            self._called.setdefault(name, node)
            if self._work.has(name):
                yield node, "calls-op", f".{name}"

    def _dotted(self, node: ast.AST, full: str) -> Iterator[Against]:
        """What is against a name of a module, with all that it is reached through."""
        root, *parts = full.split(".")
        if full == self._work.op or full.startswith(self._work.op + "."):
            yield node, "calls-op", full
            return
        hidden = next((part for part in parts if part in python_tables.MODULES_OF_MODULES), "")
        if hidden and root in python_tables.IMPORTS:
            yield node, "dynamic-code", f"{full}, which reaches the module {hidden}"
        if root != "torch" or id(node) in self._device:
            return
        for prefix, code in python_tables.TORCH.items():
            if full == prefix or full.startswith(prefix + "."):
                yield node, code, full
                return
        last = parts[-1] if parts else ""
        if last.startswith("set_") and full not in python_tables.SETTERS_ALLOWED and full.count(".") <= 2:
            yield node, "patches-torch", full
        elif any(self._work.has(part) for part in parts):
            yield node, "calls-op", full
        if last:
            self._called.setdefault(last, node)

    def _call(self, node: ast.Call) -> Iterator[Against]:
        if not isinstance(node.func, ast.Name) or node.func.id not in ("getattr", "hasattr"):
            return
        if len(node.args) < 2:
            yield node, "dynamic-code", node.func.id
            return
        name = python_names.constant(node.args[1])
        if not name:
            yield node, "dynamic-code", f"{node.func.id} with a name that is computed"
            return
        attribute = ast.copy_location(ast.Attribute(value=node.args[0], attr=name, ctx=ast.Load()), node)
        yield from self._attribute(attribute)

    def _assignment(self, node: ast.AST) -> Iterator[Against]:
        for target in _targets(node):
            inner: ast.AST = target
            while isinstance(inner, ast.Attribute | ast.Subscript | ast.Starred):
                inner = inner.value
            if not isinstance(inner, ast.Name) or inner is target:
                continue
            is_module = inner.id in self._modules or inner.id in self._names
            if is_module and isinstance(target, ast.Attribute | ast.Subscript):
                full = python_names.dotted(target, self._names) or self._names.get(inner.id, inner.id)
                yield node, "patches-torch", f"an assignment to {full}"

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[Against]:
        if _is_dunder(node.name):
            yield node, "patches-torch" if "torch" in node.name else "introspection", node.name
        if _recognises(node.name):
            yield node, "self-recognition", node.name
        if isinstance(node, ast.AsyncFunctionDef):
            yield node, "threads", f"async def {node.name}"
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                full = python_names.dotted(base, self._names)
                if full in ("torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"):
                    yield node, "patches-torch", f"a class made from {full}"


_LOOKS: dict[type[ast.AST], Callable[[_Checker, Any], Iterator[Against]]] = {
    ast.Import: _Checker._imports,
    ast.ImportFrom: _Checker._import_from,
    ast.Name: _Checker._name,
    ast.Attribute: _Checker._attribute,
    ast.Call: _Checker._call,
    ast.BinOp: _Checker._operator,
    ast.Constant: _Checker._string,
    **dict.fromkeys(
        (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.For, ast.With), _Checker._assignment
    ),
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), _Checker._definition),
}
"""What looks at which kinds of nodes."""


def _targets(node: ast.AST) -> Iterator[ast.AST]:
    todo: list[ast.AST] = []
    if isinstance(node, ast.Assign | ast.Delete):
        todo += node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
        todo.append(node.target)
    elif isinstance(node, ast.With):
        todo += [item.optional_vars for item in node.items if item.optional_vars is not None]
    while todo:
        target = todo.pop()
        if isinstance(target, ast.Tuple | ast.List):
            todo += target.elts
        else:
            yield target


def _is_dunder(name: str) -> bool:
    is_one = len(name) > 4 and name.startswith("__") and name.endswith("__")
    return is_one and name not in python_tables.DUNDERS


def _recognises(name: str) -> bool:
    return "pytest" in name.lower() or "cgins" in name.lower()
