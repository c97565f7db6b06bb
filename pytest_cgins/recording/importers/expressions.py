"""Torch expressions of a text, evaluated node by node through an allow-list. Nothing is ever `eval`ed."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytest_cgins.core import syntax
from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.text import counted, nearest

MAX_CHARACTERS = 4096
MAX_NODES = 512
MAX_DEPTH = 64
MAX_TOGETHER = 8
"""Times `max_mib` that what an expression makes on its way, or all names of an evaluator, may have."""
MAX_INTEGER = 2**63
MAX_EXPONENT = 64

DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float16", "half", "bfloat16", "float32", "float", "float64", "double", "int8", "uint8", "int16", "short",
        "int32", "int", "int64", "long", "bool", "complex64", "complex128",
    )
}  # fmt: skip
FACTORIES = frozenset(
    {
        "rand", "randn", "randint", "randperm", "zeros", "ones", "full", "eye", "arange", "linspace",
        "logspace", "tensor",
    }
)  # fmt: skip
FUNCTIONS = frozenset(
    {
        "abs", "exp", "sqrt", "sigmoid", "tanh", "softmax", "tril", "triu", "cat", "stack", "transpose",
        "permute", "reshape", "clamp", "sort", "where",
    }
)  # fmt: skip
METHODS = frozenset(
    {
        "abs", "exp", "sqrt", "sigmoid", "tanh", "softmax", "tril", "triu", "transpose", "permute", "reshape",
        "view", "unsqueeze", "squeeze", "expand", "clamp", "contiguous", "t", "to", "cuda", "cpu", "float",
        "double", "half", "bfloat16", "int", "long", "bool",
    }
)  # fmt: skip
PROPERTIES = frozenset({"T", "mT"})
_CASTS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "str": str, "bool": bool}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


class Evaluator:
    """Evaluates expressions over names that are defined so far; `device` maps the device that a text names to the one to use.

    Each is evaluated on torch's meta device first, which allocates nothing, and every tensor on the way is
    held against the limit.
    """

    def __init__(self, max_mib: float, device: Callable[[str], str]) -> None:
        self.names: dict[str, Any] = {}
        self._limit = max_mib * 2**20
        self._device = device

    def evaluate(self, text: str) -> Any:
        """The value of an expression.

        Raises:
            RecordError: for whatever the allow-list does not have, or what is too long or too big.
        """
        node = parse(text)
        names = {
            name: value.to("meta") if isinstance(value, torch.Tensor) else value
            for name, value in self.names.items()
        }
        held = sum(
            tensor.untyped_storage().nbytes()
            for tensor in self.names.values()
            if isinstance(tensor, torch.Tensor)
        )
        if held > MAX_TOGETHER * self._limit:
            raise RecordError(
                f"{text[:80]!r}: the names before it have {held / 2**20:.0f} MiB already; "
                f"{MAX_TOGETHER * self._limit / 2**20:g} MiB are allowed ({MAX_TOGETHER} times --max-mib)",
                remedy="raise --max-mib, or split the program",
            )
        _Walk(text, names, self._limit, lambda _: "meta", meta=True).value(node)
        return _Walk(text, self.names, self._limit, self._device, meta=False).value(node)


def parse(text: str) -> ast.expr:
    """The syntax tree of one expression, of bounded size.

    Raises:
        RecordError: if it is no expression, or too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise RecordError(f"an expression of {counted(len(text), 'character')}; {MAX_CHARACTERS} are allowed")
    try:
        node = syntax.expression(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RecordError(f"{text[:80]!r} is not an expression: {error}") from error
    if sum(1 for _ in ast.walk(node)) > MAX_NODES:
        raise RecordError(f"{text[:80]!r} has more than {MAX_NODES} parts")
    level: list[ast.AST] = [node]
    for _ in range(MAX_DEPTH):
        level = [child for one in level for child in ast.iter_child_nodes(one)]
    if level:
        raise RecordError(f"{text[:80]!r} has more than {MAX_DEPTH} levels")
    return node


class _Walk:
    """One evaluation."""

    def __init__(
        self, text: str, names: Mapping[str, Any], limit: float, device: Callable[[str], str], *, meta: bool
    ) -> None:
        self._text = text
        self._names = names
        self._limit = limit
        self._device = device
        self._meta = meta
        self._made = 0

    def value(self, node: ast.expr) -> Any:
        made = self._value(node)
        self._check(made)
        return made

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Tuple | ast.List):
            items = [self.value(item) for item in node.elts]
            return tuple(items) if isinstance(node, ast.Tuple) else items
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return _UNARY[type(node.op)](self._operand(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self._binary(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
            left, right = self._operand(node.left), self._operand(node.comparators[0])
            return _COMPARE[type(node.ops[0])](left, right)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise self._refused(
            f"{ast.unparse(node)[:80]!r}, {type(node).__name__.lower()}, is not on the allow-list"
        )

    def _name(self, name: str) -> Any:
        known = {"inf": math.inf, "nan": math.nan, **self._names}
        if name in known:
            return known[name]
        raise self._refused(f"{name} is not defined", nearest(name, self._names))

    def _operand(self, node: ast.expr) -> Any:
        made = self.value(node)
        if not isinstance(made, torch.Tensor | int | float):
            raise self._refused(
                f"{ast.unparse(node)[:80]} is not a number or tensor, and arithmetic needs one"
            )
        return made

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self._operand(node.left), self._operand(node.right)
        plain = not isinstance(left, torch.Tensor) and not isinstance(right, torch.Tensor)
        if plain and isinstance(node.op, ast.Pow) and abs(right) > MAX_EXPONENT:
            raise self._refused(f"the exponent {right} is beyond {MAX_EXPONENT}")
        return _BINARY[type(node.op)](left, right)

    def _attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "torch":
            if node.attr in DTYPES:
                return DTYPES[node.attr]
            if node.attr in ("strided", "contiguous_format", "channels_last"):
                return getattr(torch, node.attr)
        elif node.attr in PROPERTIES:
            owner = self.value(node.value)
            if isinstance(owner, torch.Tensor):
                return getattr(owner, node.attr)
        raise self._refused(f"{ast.unparse(node)[:80]} is not on the allow-list", nearest(node.attr, DTYPES))

    def _call(self, node: ast.Call) -> Any:
        args = [self.value(arg) for arg in node.args]
        if any(keyword.arg is None for keyword in node.keywords):
            raise self._refused("** is not on the allow-list")
        kwargs = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        func = node.func
        if isinstance(func, ast.Name) and func.id in _CASTS:
            if len(args) != 1 or kwargs or not isinstance(args[0], int | float | str):
                raise self._refused(f"{func.id} takes one number or text")
            return _CASTS[func.id](args[0])
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "torch":
            return self._torch(func.attr, args, kwargs)
        if isinstance(func, ast.Attribute) and func.attr in METHODS:
            owner = self.value(func.value)
            if isinstance(owner, torch.Tensor):
                return self._method(owner, func.attr, args, kwargs)
        raise self._refused(f"{ast.unparse(func)[:80]} is not on the allow-list")

    def _torch(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name == "device":
            return torch.device(self._device(str(args[0])) if args else "cpu")
        if "out" in kwargs:
            raise self._refused("out= is not on the allow-list")
        if name in FACTORIES:
            asked = kwargs.get("device", "cpu")
            # torch.device has been mapped already, and mapping it again changes nothing.
            kwargs["device"] = self._device(str(asked))
            return getattr(torch, name)(*args, **kwargs)
        if name in FUNCTIONS:
            return getattr(torch, name)(*args, **kwargs)
        raise self._refused(f"torch.{name} is not on the allow-list", nearest(name, FACTORIES | FUNCTIONS))

    def _method(self, owner: torch.Tensor, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name in ("cuda", "cpu"):
            return owner.to("meta" if self._meta else self._device(name))
        if name == "to":
            args = [self._device(arg) if isinstance(arg, str) else arg for arg in args]
            if "device" in kwargs:
                kwargs["device"] = self._device(str(kwargs["device"]))
        return getattr(owner, name)(*args, **kwargs)

    def _check(self, made: Any) -> None:
        if isinstance(made, torch.Tensor):
            nbytes = made.numel() * made.element_size()
            if nbytes > self._limit:
                raise self._refused(
                    f"a tensor of {nbytes / 2**20:.0f} MiB; {self._limit / 2**20:g} MiB are allowed (--max-mib)"
                )
            self._made += nbytes
            if self._made > MAX_TOGETHER * self._limit:
                raise self._refused(
                    f"more than {MAX_TOGETHER * self._limit / 2**20:g} MiB on the way ({MAX_TOGETHER} times --max-mib)"
                )
        if isinstance(made, int) and abs(made) > MAX_INTEGER:
            raise self._refused("an integer of more than 64 bits")

    def _refused(self, what: str, hint: str = "") -> RecordError:
        return RecordError(
            f"{self._text[:120]!r}: {what}{f'; {hint}' if hint else ''}",
            remedy="expressions may have torch's factories, dtypes, numbers, tuples and arithmetic",
        )
