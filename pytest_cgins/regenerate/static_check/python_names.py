"""What names of a Python source stand for: `F` for `torch.nn.functional`, `f` for what was assigned to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping

from pytest_cgins.verify.probe_support import op_families as families


class SameWork:
    """The names that an op's kernel may not call; for a function of the user's, its own name and that of torch's like.

    Args:
        op: as cgins.yaml names it.
    """

    def __init__(self, op: str) -> None:
        self.op = op.partition("@")[0]
        last = families.plain(_snake(self.op.rpartition(".")[2]))
        self._keys = {_key(last), *(_CLAMPS if last == "relu" else ())}
        self._family = families.family(last)

    def has(self, name: str) -> bool:
        """Whether a function, method, module class or operator of this name does the op's work."""
        plain = families.plain(_snake(name))
        tail = plain.removesuffix("_backward")
        return any(
            _key(each) in self._keys or families.family(each) == self._family for each in (plain, tail)
        )

    def composed(self, names: Collection[str]) -> tuple[str, ...]:
        """Those of some names that do the op's work together; none if one is missing."""
        by_family = {families.family(families.plain(_snake(name))): name for name in names}
        for others in map(frozenset, families.INSTEAD.get(self._family, ())):
            if others <= set(by_family):
                return tuple(by_family[other] for other in sorted(others))
        return ()


_CLAMPS = ("clamp", "clampmin", "clip")
"""What a model would write for relu. Of a person it is a kernel."""


def _snake(name: str) -> str:
    """`LayerNorm` as `layer_norm`, `BatchNorm2d` as `batch_norm`; other names as they are."""
    if not name[:1].isupper():
        return name
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", re.sub(r"[123]d$", "", name))
    return words.removesuffix("Loss").strip("_").lower() or name


def _key(name: str) -> str:
    return name.strip("_").replace("_", "")


DEVICE_DECORATORS = frozenset({
    "triton.jit", "triton.language.jit", "triton.experimental.gluon.jit", "cutlass.cute.jit", "cutlass.cute.kernel",
})  # fmt: skip


def imported(tree: ast.AST) -> dict[str, str]:
    """Dotted names by the local names that stand for them: imports, and plain assignments of these.

    Where a name stands for several things, the one in torch counts.
    """
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                target = alias.name if alias.asname else alias.name.partition(".")[0]
                _put(found, alias.asname or target, target)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                _put(found, alias.asname or alias.name, f"{node.module}.{alias.name}")
    assigned = [pair for node in ast.walk(tree) for pair in _pairs(node)]
    for _ in range(5):
        before = dict(found)
        roots = {each.partition(".")[0] for each in before.values()}
        for name, value in assigned:
            full = dotted(value, found)
            if full and full.partition(".")[0] in roots:
                _put(found, name, full)
        if found == before:
            break
    return found


def _put(found: dict[str, str], name: str, full: str) -> None:
    if not found.get(name, "").startswith("torch"):
        found[name] = full


def _pairs(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Names and what is assigned to them, also `a, b = x, y`, `(a := x)` and defaults of parameters."""
    if isinstance(node, ast.Assign):
        pairs = []
        for target in node.targets:
            if isinstance(target, ast.Name):
                pairs.append((target.id, node.value))
            elif isinstance(target, ast.Tuple | ast.List) and isinstance(node.value, ast.Tuple | ast.List):
                pairs += [
                    (left.id, right)
                    for left, right in zip(target.elts, node.value.elts, strict=False)
                    if isinstance(left, ast.Name)
                ]
        return pairs
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target.id, node.value)]
    if isinstance(node, ast.NamedExpr):
        return [(node.target.id, node.value)]
    if isinstance(node, ast.arguments):
        plain = [*node.posonlyargs, *node.args]
        defaults = list(zip(plain[len(plain) - len(node.defaults) :], node.defaults, strict=True))
        named = [
            (key, value)
            for key, value in zip(node.kwonlyargs, node.kw_defaults, strict=True)
            if value is not None
        ]
        return [(argument.arg, value) for argument, value in [*defaults, *named]]
    return []


def dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """The whole name of `F.softmax`; "" for what is no chain of attributes of a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Call) and is_getattr(node):
        inner, name = node.args[0], constant(node.args[1])
        base = dotted(inner, names)
        return ".".join([base, name, *reversed(parts)]) if base and name else ""
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def is_getattr(node: ast.Call) -> bool:
    """Whether it is `getattr(x, name)`."""
    return isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2


def constant(node: ast.AST) -> str:
    """The text that an expression of constants is; "" for any other."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant(node.left), constant(node.right)
        return left + right if left and right else ""
    if isinstance(node, ast.JoinedStr):
        parts = [
            constant(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values
        ]
        return "".join(parts) if all(parts) else ""
    return ""


def device_nodes(tree: ast.AST, names: Mapping[str, str]) -> set[int]:
    """Ids of the nodes in functions that are compiled for a device, where torch cannot be called."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            marks = [mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list]
            if any(dotted(mark, names) in DEVICE_DECORATORS for mark in marks):
                found |= {id(inner) for statement in node.body for inner in ast.walk(statement)}
    return found


def parameters(tree: ast.AST) -> set[int]:
    """Ids of names in functions' bodies that stand for a parameter, whatever else they are called like."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            own = {inner.arg for inner in ast.walk(node.args) if isinstance(inner, ast.arg)}
            body = node.body if isinstance(node.body, list) else [node.body]
            found |= {
                id(inner)
                for statement in body
                for inner in ast.walk(statement)
                if isinstance(inner, ast.Name) and inner.id in own
            }
    return found


def docstrings(tree: ast.AST) -> set[int]:
    """Ids of strings that are statements of their own."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
