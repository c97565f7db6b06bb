"""One call of a device kernel: launch lines evaluated, arguments packed as the kernel's own parameters have them.

Nothing here needs a GPU.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_cgins.building.builders.device_image import Function
from pytest_cgins.building.contracts.launch_line import Launch, LaunchPlan
from pytest_cgins.core.dtypes import DTYPES
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.core.expression import (
    Expression,
    ExpressionError,
    Passed,
    TensorFacts,
    evaluate,
    layout_names,
)
from pytest_cgins.core.text import counted

NUMBER, POINTER, VIEW, ELEMENT = 0x1000, 0x2000, 0x4000, 0xFF  # cgins_launch.h
VOID = 0x00
ELEMENTS = {name: dtype.element for name, dtype in DTYPES.items() if dtype.element is not None}
# float2 and double2 are complex numbers, or two real ones.
VECTORS = {("float32", 0x58), ("float64", 0x60)}
INTEGERS: dict[int, tuple[Any, int, int]] = {
    0x01: (ctypes.c_bool, 0, 1),
    0x11: (ctypes.c_int8, -(2**7), 2**7 - 1), 0x21: (ctypes.c_uint8, 0, 2**8 - 1),
    0x12: (ctypes.c_int16, -(2**15), 2**15 - 1), 0x22: (ctypes.c_uint16, 0, 2**16 - 1),
    0x14: (ctypes.c_int32, -(2**31), 2**31 - 1), 0x24: (ctypes.c_uint32, 0, 2**32 - 1),
    0x18: (ctypes.c_int64, -(2**63), 2**63 - 1), 0x28: (ctypes.c_uint64, 0, 2**64 - 1),
}  # fmt: skip
LARGEST_GRID = (2**31 - 1, 65535, 65535)
LARGEST_BLOCK = (1024, 1024, 64)
LARGEST_CLUSTER = (16, 16, 16)
THREADS_PER_BLOCK = 1024
MAX_DIMENSIONS = 8


class _View(ctypes.Structure):
    """`cgins::tensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("ndim", ctypes.c_int64),
        ("shape", ctypes.c_int64 * MAX_DIMENSIONS),
        ("strides", ctypes.c_int64 * MAX_DIMENSIONS),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One launch of one call."""

    kernel: str
    """C++ expression of the kernel, e.g. `scale<float>`."""
    grid: tuple[int, ...]
    """Blocks a dimension."""
    block: tuple[int, ...]
    """Threads a dimension."""
    shared_nbytes: int
    """Dynamic shared memory a block."""
    cluster: tuple[int, ...]
    """Blocks a cluster and dimension, () for none."""
    cooperative: bool
    """Whether blocks wait for each other across the grid."""
    begins_early: bool = False
    """Whether it may begin before the launch ahead of it has ended, if that one lets it."""
    zero: tuple[tuple[int, int], ...]
    """Memory that is set to 0 before: address and bytes."""
    arguments: tuple[Any, ...]
    """ctypes values, one a parameter."""
    where: str
    """Leads messages: kernel, file and line."""


class Binding:
    """One call being bound: evaluates expressions, and packs what they give."""

    def __init__(
        self,
        name: str,
        file: str,
        plan: LaunchPlan,
        functions: Mapping[str, Function],
        values: Mapping[str, Any],
    ) -> None:
        """Take a call's values.

        Args:
            name: `kernel/implementation`, for messages.
            file: the source, for messages.
            plan: its launch lines.
            functions: its kernels in the machine code.
            values: what names mean: tensors, numbers, texts, None, and lists of these.
        """
        self._name = name
        self._file = file
        self._plan = plan
        self._functions = functions
        self._tensors: dict[str, torch.Tensor] = {}
        self._values = {name: self._known(name, value) for name, value in values.items()}

    def _known(self, name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self._tensors[name] = value
            return _facts(name, value)
        if isinstance(value, list):
            return [self._known(f"{name}[{index}]", item) for index, item in enumerate(value)]
        return value

    def workspace_nbytes(self) -> int:
        """Scratch memory that the launch lines ask for.

        Raises:
            LaunchError: they cannot say, or say less than 0.
        """
        if self._plan.workspace_nbytes is None:
            return 0
        where = self._where(self._plan.workspace_line)
        nbytes = self._whole(self._plan.workspace_nbytes, where, "workspace")
        if nbytes < 0:
            raise LaunchError(
                f"{where}: workspace is {counted(nbytes, 'byte')}", remedy="it must be 0 or more"
            )
        return nbytes

    def set_workspace(self, memory: torch.Tensor) -> None:
        """Give the scratch memory, as bytes."""
        self._tensors["workspace"] = memory
        self._values["workspace"] = _facts("workspace", memory)

    def settings(self) -> list[Settings]:
        """The launches of the call, in order.

        Raises:
            LaunchError: a launch line has no value for this call, or one that CUDA does not take; or an argument
                is not what the kernel's parameter is.
        """
        found = []
        for launch in self._plan.launches:
            where = self._where(launch.line)
            if launch.when is not None and not self._evaluate(launch.when, where):
                continue
            for condition in launch.require:
                self._require(condition, where)
            found.append(self._launch(launch, where))
        return found

    def _where(self, line: int) -> str:
        return f"{self._name}: {self._file}:{line}"

    def _require(self, condition: Expression, where: str) -> None:
        if self._evaluate(condition, where):
            return
        facts = [self._values[name] for name in sorted(condition.names) if name in self._tensors]
        listed = "; ".join(f"{fact.name} has shape {fact.shape} and strides {fact.stride}" for fact in facts)
        raise LaunchError(
            f"{where}: the launch line requires {condition.text}, which does not hold"
            + (f" ({listed})" if listed else ""),
            remedy="widen the kernel, or gate it on other traces",
        )

    def _evaluate(self, expression: Expression, where: str) -> Any:
        try:
            return evaluate(expression, self._values)
        except ExpressionError as error:
            raise LaunchError(
                f"{where}: {expression.text}: {error}", remedy="correct the launch line"
            ) from error

    def _whole(self, expression: Expression, where: str, key: str) -> int:
        value = self._evaluate(expression, where)
        if isinstance(value, bool) or not isinstance(value, int):
            raise LaunchError(
                f"{where}: {key}: {expression.text} is {value!r}, not a whole number",
                remedy="use // or ceil_div instead of /",
            )
        return value

    def _zeroed(self, name: str, where: str) -> Iterator[tuple[int, int]]:
        """Address and bytes of a tensor, or of each of a list; nothing for an optional one that is not there."""
        value = self._values[name]
        for facts in value if isinstance(value, list) else [value]:
            if facts is None:
                continue
            if not facts.dense:
                raise LaunchError(
                    f"{where}: zero={name}, and {facts.name} has gaps", remedy="set it to 0 in a kernel"
                )
            yield self._tensors[facts.name].data_ptr(), facts.numel * facts.element_nbytes

    def _launch(self, launch: Launch, where: str) -> Settings:
        grid = self._sizes(launch.grid, where, "grid", LARGEST_GRID)
        block = self._sizes(launch.block, where, "block", LARGEST_BLOCK)
        if math.prod(block) > THREADS_PER_BLOCK:
            raise LaunchError(
                f"{where}: block is {_shown(block)}, {counted(math.prod(block), 'thread')}",
                remedy=f"a block has at most {THREADS_PER_BLOCK} threads",
            )
        cluster = self._sizes(launch.cluster, where, "cluster", LARGEST_CLUSTER)
        _check_cluster(cluster, grid, where)
        shared = self._whole(launch.shared_nbytes, where, "smem")
        if shared < 0:
            raise LaunchError(f"{where}: smem is {counted(shared, 'byte')}", remedy="it must be 0 or more")
        kernel = launch.expression(self._choices(launch, where))
        return Settings(
            kernel=kernel,
            grid=grid,
            block=block,
            shared_nbytes=shared,
            cluster=cluster,
            cooperative=launch.cooperative,
            zero=tuple(one for name in launch.zero for one in self._zeroed(name, where)),
            arguments=tuple(self._arguments(launch, self._functions[kernel], where)),
            where=where,
        )

    def _sizes(
        self, expressions: Sequence[Expression], where: str, key: str, largest: Sequence[int]
    ) -> tuple[int, ...]:
        sizes = tuple(self._whole(expression, where, key) for expression in expressions)
        for size, limit, axis in zip(sizes, largest, "xyz", strict=False):
            if size < 1:
                raise LaunchError(
                    f"{where}: {key} is {_shown(sizes)}, and an output has elements",
                    remedy=f"{key} must be 1 or more in each dimension: max(1, …)",
                )
            if size > limit:
                raise LaunchError(
                    f"{where}: {key} is {_shown(sizes)}, more than {limit} in {axis}",
                    remedy="let a block do more, or loop over the grid",
                )
        return sizes

    def _choices(self, launch: Launch, where: str) -> list[str | int]:
        chosen: list[str | int] = []
        used = {argument.axis for argument in launch.template}
        for index, axis in enumerate(self._plan.axes):
            value = self._evaluate(axis.key, where) if index in used else axis.choices[0]
            if value is None and isinstance(axis.choices[0], str):  # an optional tensor that is not there
                value = axis.choices[0]
            found = value.dtype if isinstance(value, TensorFacts) else value
            if found not in axis.choices or isinstance(found, bool | float):
                listed = ", ".join(str(choice) for choice in axis.choices)
                kind = "dtype" if isinstance(value, TensorFacts) else "choose"
                raise LaunchError(
                    f"{where}: {axis.key.text} is {found}; the kernel was built for {listed}",
                    remedy=f"list it: {kind}({axis.key.text}, {listed}, {found})"
                    if type(found) in (str, int)
                    else "it must be a whole number that is listed",
                )
            chosen.append(found)
        return chosen

    def _arguments(self, launch: Launch, function: Function, where: str) -> list[Any]:
        packed = []
        free = _of_any_layout(launch)
        for index, (expression, code) in enumerate(
            zip(launch.arguments, function.parameters, strict=True), 1
        ):
            value = self._evaluate(expression, where)
            place = f"{where}: argument {index} ({expression.text})"
            if isinstance(value, TensorFacts) or (value is None and code & POINTER):
                any_layout = value is not None and value.name.partition("[")[0] in free
                packed.append(self._pointer(value, code, place, any_layout=any_layout))
            elif isinstance(value, Passed):
                packed.append(self._passed(value, code, place))
            else:
                packed.append(_number(value, code, place))
        return packed

    def _pointer(self, facts: TensorFacts | None, code: int, place: str, *, any_layout: bool) -> Any:
        if facts is None:
            return ctypes.c_void_p(None)
        if not code & POINTER:
            raise LaunchError(
                f"{place} is a tensor, its parameter no pointer", remedy="pass view(x) or a pointer"
            )
        _check_element(facts, code, place)
        if not any_layout and not facts.contiguous:
            raise LaunchError(
                f"{place} is not contiguous: shape {facts.shape}, strides {facts.stride}",
                remedy=f"pass view({facts.name}), or its strides: stride({facts.name}, 0); data({facts.name}) "
                "passes the pointer as it is",
            )
        return ctypes.c_void_p(self._tensors[facts.name].data_ptr() or None)

    def _passed(self, passed: Passed, code: int, place: str) -> Any:
        facts = passed.tensor
        tensor = self._tensors[facts.name]
        if passed.how == "data":
            pointer = self._pointer(facts, code, place, any_layout=True)
            return ctypes.c_void_p((pointer.value or 0) + passed.offset_nbytes or None)
        if not code & VIEW:
            raise LaunchError(
                f"{place}: its parameter is not a cgins::tensor", remedy="take cgins::tensor<const T>"
            )
        _check_element(facts, code, place)
        ndim = len(facts.shape)
        if ndim > MAX_DIMENSIONS:
            raise LaunchError(
                f"{place} has {counted(ndim, 'dimension')}", remedy=f"views have at most {MAX_DIMENSIONS}"
            )
        array = ctypes.c_int64 * MAX_DIMENSIONS
        return _View(tensor.data_ptr() or None, ndim, array(*facts.shape), array(*facts.stride))


def _check_cluster(cluster: Sequence[int], grid: Sequence[int], where: str) -> None:
    full_grid = (*grid, 1, 1, 1)
    if math.prod(cluster) > 16 or any(full_grid[axis] % size for axis, size in enumerate(cluster)):
        raise LaunchError(
            f"{where}: cluster is {_shown(cluster)} for grid {_shown(grid)}",
            remedy="a cluster has at most 16 blocks, and the grid is a multiple of it in each dimension",
        )


def _facts(name: str, tensor: torch.Tensor) -> TensorFacts:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorFacts(name, tuple(tensor.shape), tuple(tensor.stride()), dtype, tensor.element_size())


def _check_element(facts: TensorFacts, code: int, place: str) -> None:
    wanted = code & ELEMENT
    known = ELEMENTS.get(facts.dtype)
    if wanted in (VOID, known) or facts.name == "workspace" or (facts.dtype, wanted) in VECTORS:
        return
    kernel_has = next((name for name, code_of in ELEMENTS.items() if code_of == wanted), "another type")
    raise LaunchError(
        f"{place} has element type {facts.dtype}, the kernel's parameter points to {kernel_has}",
        remedy=f"make it a template, kernel=NAME<dtype({facts.name})>, or gate it on other traces",
    )


def _number(value: Any, code: int, place: str) -> Any:
    element = code & ELEMENT
    if not code & NUMBER:
        raise LaunchError(f"{place} is {value!r}, its parameter no number", remedy="pass a tensor there")
    if not isinstance(value, int | float):
        raise LaunchError(f"{place} is {value!r}, not a number", remedy="compare it, or take has(…)")
    if element in (0x34, 0x38):
        return (ctypes.c_float if element == 0x34 else ctypes.c_double)(value)
    if element not in INTEGERS:
        raise LaunchError(
            f"{place}: its parameter is neither a whole number nor a float or double",
            remedy="take a float, and convert it there",
        )
    if isinstance(value, float):
        raise LaunchError(
            f"{place} is {value!r}, its parameter a whole number", remedy="take a float or double"
        )
    c_type, smallest, largest = INTEGERS[element]
    if not smallest <= value <= largest:
        raise LaunchError(
            f"{place} is {value}, its parameter holds {smallest} to {largest}",
            remedy="take a wider type, e.g. int64_t",
        )
    return c_type(value)


def _of_any_layout(launch: Launch) -> frozenset[str]:
    """Names of the tensors whose strides a launch line looks at itself."""
    listed = [*launch.arguments, *launch.require, *([launch.when] if launch.when else [])]
    return frozenset().union(*(layout_names(one) for one in listed))


def _shown(sizes: Sequence[int]) -> str:
    return f"({', '.join(str(size) for size in sizes)})"
