"""The language of launch lines and of declared work: arithmetic on sizes, evaluated by an allow-list.

Python's parser reads it; nothing is ever given to `eval`. A value is a number, a text, None, a tensor's facts, or a
list of these.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_cgins.core import syntax
from pytest_cgins.core.text import counted, nearest

LARGEST = 2**63
MAX_TEXT = 2000
MAX_DEPTH = 64
SIZES = {
    "char": 1, "bool": 1, "int8_t": 1, "uint8_t": 1, "short": 2, "int16_t": 2, "uint16_t": 2, "half": 2,
    "__half": 2, "__nv_bfloat16": 2, "float16": 2, "bfloat16": 2, "int": 4, "unsigned": 4, "int32_t": 4,
    "uint32_t": 4, "float": 4, "float32": 4, "float2": 8, "float4": 16, "double": 8, "float64": 8, "long": 8,
    "int64_t": 8, "uint64_t": 8, "size_t": 8,
}  # fmt: skip
Kind = Literal["tensor", "int", "float", "bool", "number", "other"]


class ExpressionError(ValueError):
    """An expression that the language has not, or that has no value for this call."""


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What an expression may know of a tensor."""

    name: str
    """Name in the schema line or the op's signature."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    """Torch's name without prefix."""
    element_nbytes: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        expected = 1
        for size, step in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size == 0:
                return True
            if size != 1 and step != expected:
                return False
            expected *= size
        return True

    @property
    def dense(self) -> bool:
        """Whether the elements fill their memory without gaps, in any order of dimensions."""
        expected = 1
        for step, size in sorted(zip(self.stride, self.shape, strict=True)):
            if size > 1 and step != expected:
                return False
            expected *= max(size, 1)
        return True


@dataclass(frozen=True, slots=True)
class Passed:
    """A tensor as an argument, in another way than its plain name."""

    tensor: TensorFacts
    how: Literal["data", "view"]
    """`data`: its pointer, whatever its strides; `view`: a struct with sizes and strides."""
    offset_nbytes: int = 0
    """Added to the pointer."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression."""

    text: str
    tree: ast.expr
    """What Python's parser made of it, checked against the allow-list."""

    @property
    def names(self) -> frozenset[str]:
        """Names in it that are not those of functions."""
        called = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        return frozenset(
            node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name) and id(node) not in called
        )


def parse(text: str) -> Expression:
    """Parse an expression.

    Raises:
        ExpressionError: it is not an expression, or has what the language has not.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"an expression of {counted(len(text), 'character')}; {MAX_TEXT} are allowed")
    try:
        tree = syntax.expression(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{text.strip()!r} is not an expression") from None
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        for node in level:
            _allow(node)
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise ExpressionError(f"an expression of more than {MAX_DEPTH} levels")
    return Expression(text.strip(), tree)


def _allow(node: ast.AST) -> None:
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, int | float | str | None):
            raise ExpressionError(f"the constant {node.value!r} has no meaning here")
        if isinstance(node.value, int) and node.value >= 2 * LARGEST:
            raise ExpressionError("a number does not fit into 64 bits")
    elif isinstance(node, ast.Call):
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise ExpressionError("functions take plain arguments only, no NAME=VALUE and no *")
        if isinstance(node.func, ast.Name) and node.func.id not in FUNCTIONS:
            name = node.func.id
            raise ExpressionError(f"there is no function {name!r}; {_nearest(name, FUNCTIONS)}")
        if not isinstance(node.func, ast.Name | ast.Attribute):
            raise ExpressionError("only functions and methods can be called")
    elif isinstance(node, ast.Attribute):
        if node.attr not in METHODS and node.attr not in ATTRIBUTES:
            known = (*METHODS, *ATTRIBUTES)
            raise ExpressionError(f"tensors have no {node.attr!r} here; {_nearest(node.attr, known)}")
    elif not isinstance(node, _NODES):
        raise ExpressionError(f"{type(node).__name__} has no meaning here")


def _nearest(name: str, known: Collection[str]) -> str:
    return nearest(name, known) or f"known: {', '.join(known)}"


def layout_names(expression: Expression) -> frozenset[str]:
    """Names of the tensors, or lists of them, whose strides an expression looks at."""
    words = ("stride", "strides", "same_layout", "is_contiguous")
    found: set[str] = set()
    for node in ast.walk(expression.tree):
        looked: list[ast.expr] = []
        if isinstance(node, ast.Attribute) and node.attr in words:
            looked = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in words:
            looked = node.args
        found |= {one.id for part in looked for one in ast.walk(part) if isinstance(one, ast.Name)}
    return frozenset(found)


def evaluate(expression: Expression, values: Mapping[str, Any]) -> Any:
    """The value of an expression, by what names mean.

    Raises:
        ExpressionError: a name is unknown, or an operation has no result.
    """
    try:
        return _value(expression.tree, values)
    except (TypeError, ZeroDivisionError, IndexError, ValueError, OverflowError, AttributeError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(f"{expression.text!r}: {error}") from error


def amount(expression: Expression, values: Mapping[str, Any]) -> int:
    """The value of an expression that counts something, to the next whole number.

    Raises:
        ExpressionError: as `evaluate`, or it is not a number from 0 up to 2^63.
    """
    value = evaluate(expression, values)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"{expression.text!r} is {value!r}, not a number")
    if not 0 <= value < LARGEST:  # neither is NaN
        raise ExpressionError(f"{expression.text!r} is {value:g}, not a number from 0 up to 2^63")
    return round(value)


def _value(node: ast.AST, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return _named(node.id, values)
        case ast.BinOp():
            return _bounded(_BINARY[type(node.op)](_value(node.left, values), _value(node.right, values)))
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_value(node.operand, values))
        case ast.BoolOp():
            combine = all if isinstance(node.op, ast.And) else any
            return combine(_value(item, values) for item in node.values)
        case ast.Compare():
            return _compare(node, values)
        case ast.IfExp():
            return _value(node.body if _value(node.test, values) else node.orelse, values)
        case ast.Tuple() | ast.List():
            return [_value(item, values) for item in node.elts]
    return _of_tensor(node, values)


def _of_tensor(node: ast.AST, values: Mapping[str, Any]) -> Any:
    """Calls, attributes and items."""
    match node:
        case ast.Subscript():
            return _value(node.value, values)[_integer(_value(node.slice, values), "an index")]
        case ast.Attribute():
            if node.attr not in ATTRIBUTES:
                raise ExpressionError(f"{node.attr!r} is called: write .{node.attr}()")
            return ATTRIBUTES[node.attr](_tensor(_value(node.value, values)))
        case ast.Call(func=ast.Attribute() as method):
            if method.attr not in METHODS:
                raise ExpressionError(f"{method.attr!r} is not called: write .{method.attr}")
            arguments = [_value(argument, values) for argument in node.args]
            return METHODS[method.attr](_value(method.value, values), *arguments)
        case ast.Call(func=ast.Name(id="sizeof")):
            return _sizeof(node, values)
        case ast.Call(func=ast.Name() as function):
            return _bounded(FUNCTIONS[function.id](*(_value(argument, values) for argument in node.args)))
    raise ExpressionError(f"{type(node).__name__} has no meaning here")


def _named(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise ExpressionError(f"nothing is called {name!r}; {_nearest(name, values)}")
    return values[name]


def _compare(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = _value(node.left, values)
    for comparison, right_node in zip(node.ops, node.comparators, strict=True):
        right = _value(right_node, values)
        if not _COMPARE[type(comparison)](left, right):
            return False
        left = right
    return True


def _sizeof(node: ast.Call, values: Mapping[str, Any]) -> int:
    argument = node.args[0] if len(node.args) == 1 else None
    if isinstance(argument, ast.Name) and argument.id in SIZES:
        return SIZES[argument.id]
    if argument is None:
        raise ExpressionError("sizeof takes one type")
    if isinstance(argument, ast.Name) and argument.id not in values:
        known = f"known types: {', '.join(SIZES)}"
        raise ExpressionError(f"sizeof({argument.id}): {nearest(argument.id, SIZES) or known}")
    return _tensor(_value(argument, values)).element_nbytes


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise ExpressionError("a number does not fit into 64 bits")
    return value


def _tensor(value: Any) -> TensorFacts:
    if not isinstance(value, TensorFacts):
        raise ExpressionError(f"{value!r} is not a tensor")
    return value


def _integer(value: Any, what: str = "a number") -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ExpressionError(f"{what} is {value!r}, not a whole number")
    return value


def _of_dimension(tensor: TensorFacts, listed: Sequence[int], dimension: Any) -> int:
    index = _integer(dimension, "a dimension")
    if not -len(listed) <= index < len(listed):
        raise ExpressionError(
            f"{tensor.name} has {counted(len(listed), 'dimension')}, none with number {index}"
        )
    return listed[index]


def _next_power_of_2(value: Any) -> int:
    return 1 if _integer(value) <= 1 else int(1 << (value - 1).bit_length())


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, int) and abs(exponent) > 64:
        raise ExpressionError("exponents are at most 64")
    return base**exponent


def _shift(value: Any, bits: Any) -> int:
    if not 0 <= _integer(bits) < 64:
        raise ExpressionError("shifts are by 0 to 63 bits")
    return _integer(value) << int(bits)


def _at(value: Any, nbytes: Any) -> Passed:
    offset = _integer(nbytes, "an offset")
    if not 0 <= offset <= _tensor(value).numel * _tensor(value).element_nbytes:
        raise ExpressionError(f"an offset of {counted(offset, 'byte')} is outside of {_tensor(value).name}")
    return Passed(_tensor(value), "data", offset)


def _same_layout(first: Any, *others: Any) -> bool:
    one = _tensor(first)
    return one.dense and all((_tensor(o).shape, _tensor(o).stride) == (one.shape, one.stride) for o in others)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil_div": lambda a, b: -(-_integer(a) // _integer(b)),
    "min": min,
    "max": max,
    "abs": abs,
    "int": int,
    "float": float,
    "bool": bool,
    "prod": math.prod,
    "next_power_of_2": _next_power_of_2,
    "numel": lambda tensor: _tensor(tensor).numel,
    "size": lambda tensor, dimension: _of_dimension(_tensor(tensor), _tensor(tensor).shape, dimension),
    "stride": lambda tensor, dimension: _of_dimension(_tensor(tensor), _tensor(tensor).stride, dimension),
    "ndim": lambda tensor: len(_tensor(tensor).shape),
    "element_size": lambda tensor: _tensor(tensor).element_nbytes,
    "sizeof": lambda *_: None,  # its argument is a type: see _sizeof
    "len": len,
    "is_contiguous": lambda tensor: _tensor(tensor).contiguous,
    "same_layout": _same_layout,
    "has": lambda value: value is not None,
    "data": lambda tensor: None if tensor is None else Passed(_tensor(tensor), "data"),
    "view": lambda tensor: Passed(_tensor(tensor), "view"),
    "at": _at,
}
METHODS: dict[str, Callable[..., Any]] = {
    "dim": FUNCTIONS["ndim"],
    **{name: FUNCTIONS[name] for name in ("numel", "size", "stride", "element_size", "is_contiguous")},
}
ATTRIBUTES: dict[str, Callable[[TensorFacts], Any]] = {
    "shape": lambda tensor: tensor.shape,
    "strides": lambda tensor: tensor.stride,
    "ndim": lambda tensor: len(tensor.shape),
    "dtype": lambda tensor: tensor.dtype,
    "itemsize": lambda tensor: tensor.element_nbytes,
    "nbytes": lambda tensor: tensor.numel * tensor.element_nbytes,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: lambda a, b: _number(a) * _number(b),
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda a, b: _number(a) % b,
    ast.Pow: _power,
    ast.LShift: _shift,
    ast.RShift: lambda a, b: _integer(a) >> _integer(b),
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: lambda a: -_number(a),
    ast.UAdd: lambda a: +_number(a),
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_NODES = (
    ast.Name, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Tuple, ast.List,
    ast.Load, ast.And, ast.Or, *_BINARY, *_UNARY, *_COMPARE,
)  # fmt: skip
# What functions give, whatever their arguments are.
RESULTS: dict[str, Kind] = {
    **dict.fromkeys(
        ("ceil_div", "int", "next_power_of_2", "numel", "size", "stride", "ndim", "dim", "element_size", "sizeof", "len"),
        "int",
    ),
    **dict.fromkeys(("bool", "is_contiguous", "same_layout", "has"), "bool"),
    **dict.fromkeys(("data", "view", "at"), "tensor"),
    "float": "float",
}  # fmt: skip


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise ExpressionError(f"{value!r} is not a number")
    return value


def kind(node: ast.AST, kinds: Mapping[str, Kind]) -> Kind:
    """What an expression gives, as far as its form tells; `number` where it is an int or a float."""
    match node:
        case ast.Constant():
            return _constant_kind(node.value)
        case ast.Name():
            return kinds.get(node.id, "other")
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return "bool"
        case ast.UnaryOp():
            return kind(node.operand, kinds)
        case ast.IfExp():
            return _merged(kind(node.body, kinds), kind(node.orelse, kinds))
        case ast.BinOp():
            return "float" if isinstance(node.op, ast.Div) else _arithmetic(node, kinds)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return RESULTS.get(name, "number")
        case ast.Subscript():
            whole = isinstance(node.value, ast.Attribute)  # x.shape[0]
            return "int" if whole else kinds.get(f"{getattr(node.value, 'id', '')}[]", "number")
    return "int" if isinstance(node, ast.Attribute) and node.attr == "ndim" else "other"


def _constant_kind(value: object) -> Kind:
    kinds: dict[type, Kind] = {bool: "bool", int: "int", float: "float"}
    return kinds.get(type(value), "other")


def _arithmetic(node: ast.BinOp, kinds: Mapping[str, Kind]) -> Kind:
    sides = {kind(node.left, kinds), kind(node.right, kinds)}
    return "float" if "float" in sides else "int" if sides <= {"int", "bool"} else "number"


def _merged(first: Kind, second: Kind) -> Kind:
    if first == second:
        return first
    return "number" if {first, second} <= {"int", "float", "number"} else "other"
