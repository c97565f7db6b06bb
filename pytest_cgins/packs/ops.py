"""Ops by name: from a qualified name to a callable and back; marked functions and modules."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, overload

import torch
from torch.nn import functional
from torch.overrides import get_overridable_functions, handle_torch_function, resolve_name

from pytest_cgins.config import Declared, declared
from pytest_cgins.core.errors import ConfigError, RecordError, TraceError
from pytest_cgins.core.trace import is_registered

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

OPERATOR = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
"""What `torch.ops` gives: an overload, or all of an operator."""
OP_NAME = "__cgins_op__"
"""Attribute in which an op that is not torch's own has its qualified name."""
_SEMANTICS = "__cgins_semantics__"
_WRAPS = "__cgins_forward_of__"
# Factories, activations and products of few bits that torch shows to function modes and does not list as overridable, and
# one op that it lists by an alias: torch.spmm.
_UNLISTED = {
    getattr(functional, name): f"torch.nn.functional.{name}" for name in ("hardswish", "hardsigmoid")
} | {
    getattr(torch, name): f"torch.{name}"
    for name in (
        "rand_like", "randn_like", "randint_like", "normal", "mm",
        "_scaled_mm", "_scaled_mm_v2", "_scaled_grouped_mm", "_grouped_mm", "_int_mm",
        "_weight_int8pack_mm", "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu",
    )
    if hasattr(torch, name)
}  # fmt: skip
_OPENS_FILES = frozenset({"aten.from_file", "aten.save", "debugprims.load_tensor"})
_trusted: set[str] = set()


@overload
def mark(function: FunctionT) -> FunctionT: ...
@overload
def mark(*, semantics: Mapping[str, Any]) -> Callable[[FunctionT], FunctionT]: ...
def mark(function: Any = None, *, semantics: Mapping[str, Any] | None = None) -> Any:
    """Make a function or a module class an op: its calls are recorded, replayed and replaced as one unit.

    Use it as a decorator on a module-level function of tensors and plain data, or on an `nn.Module` class,
    whose parameters, buffers and plain attributes are then arguments of the op. Outside of a recording
    both run as before.

    Args:
        function: the function or class.
        semantics: what verification cannot know by itself of the op, in the form of the key `semantics` in
            cgins.yaml: `@mark(semantics={"roles": {"lengths": "index"}})`. What a kernel's entry says comes first.

    Raises:
        RecordError: if it is neither, or cannot be imported by name, or the semantics say nothing that is known.
    """
    if semantics is not None:
        try:
            said = declared(semantics)
        except ConfigError as error:
            raise RecordError(f"pytest_cgins.mark: {error.what}", remedy=error.remedy) from error
        return functools.partial(_marked, said=said)
    return _marked(function)


def _marked(function: FunctionT, said: Declared | None = None) -> FunctionT:
    is_class = is_module_class(function)
    if not is_class and (isinstance(function, type) or not hasattr(function, "__qualname__")):
        raise RecordError(
            f"pytest_cgins.mark takes a function or an nn.Module class, not {function!r}",
            remedy="mark a module-level function that takes and returns tensors",
        )
    name = f"{function.__module__}.{function.__qualname__}"
    if is_class and is_torch_module(function):
        raise RecordError(
            f"{name} needs no mark: every class of torch.nn is an op by its name",
            remedy=f'record it with ops=["torch.nn.{function.__name__}"]',
        )
    if "<locals>" in name:
        raise RecordError(
            f"{name} cannot be marked: a trace finds its op by importing it, and this one is made at run time",
            remedy="move the function to the top level of an importable module",
        )

    if is_class:
        setattr(function, OP_NAME, name)
        setattr(function, _SEMANTICS, said)
        function.forward = _seen_by_modes(function, module_op(name, function))  # type: ignore[attr-defined]
        return function
    op = mark_as(name, function)
    setattr(op, _SEMANTICS, said)
    return op


def mark_as(name: str, function: FunctionT) -> FunctionT:
    """`mark` under a given qualified name."""

    @functools.wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        if torch._C._is_torch_function_mode_enabled():
            return handle_torch_function(marked, (), *args, **kwargs)
        return function(*args, **kwargs)

    setattr(marked, OP_NAME, name)
    return marked  # type: ignore[return-value]


class ModuleOp:
    """A module class as an op: it takes a module of the class, and then the arguments of `forward`."""

    def __init__(self, name: str, cls: type[torch.nn.Module]) -> None:
        self.name = name
        self.cls = cls
        setattr(self, OP_NAME, name)

    def __call__(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` unseen; hooks of the module itself are its caller's."""
        return self.__wrapped__(module, *args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """`forward` as the user wrote it."""
        forward: Callable[..., Any] = self.cls.forward
        if getattr(forward, _WRAPS, None) is self.cls:
            forward = vars(forward)["__wrapped__"]
        return forward


@functools.cache
def module_op(name: str, cls: type[torch.nn.Module]) -> ModuleOp:
    """The op of a module class under a qualified name."""
    return ModuleOp(name, cls)


@contextmanager
def intercepted(op: ModuleOp) -> Iterator[None]:
    """Have function modes see the calls of a class that is not marked, as they do those of marked ones.

    Hooks of the modules stay as they are: they run around the op.
    """
    own = "forward" in vars(op.cls)
    forward = op.cls.forward
    op.cls.forward = _seen_by_modes(op.cls, op)
    try:
        yield
    finally:
        if own:
            op.cls.forward = forward
        else:
            del op.cls.forward


def _seen_by_modes(cls: Any, op: ModuleOp) -> Callable[..., Any]:
    original = cls.forward

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A child class that calls super().forward() is another op, with other state.
        if type(self) is cls and torch._C._is_torch_function_mode_enabled():
            return handle_torch_function(op, (), self, *args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(forward, _WRAPS, cls)
    return forward


def declared_of(op: str) -> Declared:
    """What `mark` was told of an op, or of the op of a backward; nothing for ops that are not marked.

    Raises:
        TraceError: if the op cannot be found or must not be run.
    """
    found = resolve(op.partition("@")[0])
    return getattr(getattr(found, "cls", found), _SEMANTICS, None) or Declared()


def is_module_class(obj: object) -> bool:
    """Whether it is a class of modules."""
    return isinstance(obj, type) and issubclass(obj, torch.nn.Module)


def is_torch_module(cls: Any) -> bool:
    """Whether a class of modules comes with torch.nn."""
    return f"{cls.__module__}.".startswith("torch.nn.")


def is_marked(func: object) -> bool:
    """Whether `mark` made it."""
    return OP_NAME in getattr(func, "__dict__", ())


def trust(op: str) -> None:
    """Let an unmarked function outside torch be run by this name: the user has named it as an op.

    A pack alone cannot have a function run, or a hostile one could name `os.system`.
    """
    # Whoever trusts a backward trusts the op that it runs.
    _trusted.add(op.partition("@")[0])


def qualified_name(func: Any) -> str:
    """Importable name of an op, e.g. `torch.nn.functional.gelu` or `models.decoder.rms_norm`."""
    if is_marked(func):
        return str(getattr(func, OP_NAME))
    if isinstance(func, OPERATOR):
        return f"torch.ops.{func}"
    return _UNLISTED.get(func) or resolve_name(func) or f"{func.__module__}.{func.__qualname__}"


@functools.cache
def is_operator_of_others(func: object) -> bool:
    """Whether it is an operator that a library other than torch has registered, or an overload, that gives or writes tensors."""
    return (
        isinstance(func, OPERATOR)
        and is_registered(qualified_name(func))
        and any(
            _written(schema) or any("Tensor" in str(returned.type) for returned in schema.returns)
            for schema in _schemas(func)
        )
    )


def _schemas(func: Any) -> list[Any]:
    if isinstance(func, torch._ops.OpOverload):
        return [func._schema]
    return [getattr(func, name)._schema for name in func.overloads()]


def _written(schema: Any) -> list[str]:
    return [one.name for one in schema.arguments if one.alias_info and one.alias_info.is_write]


def is_awaited(op: str) -> bool:
    """Whether it names an operator of another library that is not registered: code that is still to run may do so."""
    parts = op.split(".")
    well_formed = len(parts) in (4, 5) and all(part.isidentifier() for part in parts)
    return well_formed and is_registered(op) and not hasattr(getattr(torch.ops, parts[2]), parts[3])


def written_arguments(op: str, given: Collection[str]) -> frozenset[str]:
    """Arguments that an operator's schema says it writes to: `Tensor(a!) out`; none of other ops.

    A backward works on copies. The names of all arguments of a call tell its overload.
    """
    func = resolve(op) if is_registered(op) and "@" not in op else None
    if not isinstance(func, OPERATOR):
        return frozenset()
    fitting = [one for one in _schemas(func) if {argument.name for argument in one.arguments} == set(given)]
    return frozenset(_written(fitting[0])) if fitting else frozenset()


def resolve(op: str) -> Callable[..., Any]:
    """The callable that a qualified name stands for; `backward.resolve` knows the names of backward ops, too.

    Raises:
        TraceError: if nothing has that name (the nearest right one is suggested), or if it is neither a
            torch op nor a marked function nor trusted.
    """
    # To look a function up is to run its module: `unittest.__main__` runs the tests that it finds.
    parts = op.split(".")
    never = parts[0] in sys.stdlib_module_names or "__main__" in parts
    func: Any = None if never and op not in _trusted else locate(op)
    is_class = is_module_class(func)
    of_torch = is_torch_module(func) if is_class else is_torch_op(op, func)
    if not (of_torch or is_marked(func) or op in _trusted):
        raise TraceError(
            f"{op} is neither a torch op nor a marked function, and a trace must not run other code",
            remedy=f"decorate {op.rpartition('.')[2]} with @pytest_cgins.mark",
        )
    if is_class:
        return module_op(getattr(func, OP_NAME) if is_marked(func) else op, func)
    found: Callable[..., Any] = func
    return found


def locate(op: str) -> Any:
    """The object of a qualified name, whatever it is.

    Raises:
        TraceError: if nothing has that name; the nearest right one is suggested.
    """
    parts = op.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise TraceError(
            f"{op!r} is not a qualified name of an op",
            remedy=_meant(op)
            or "write it with its module, e.g. torch.nn.functional.gelu or models.decoder.rms_norm",
        )
    found: Any = _import(parts[0], op)
    for depth, part in enumerate(parts[1:], start=1):
        prefix = ".".join(parts[:depth])
        # OpOverload packets list no attributes that difflib could offer, and build them on request.
        if not hasattr(found, part):
            if not _is_module(f"{prefix}.{part}"):
                raise _unknown(op, prefix, part, found)
            found = _import(f"{prefix}.{part}", op)
        else:
            found = getattr(found, part)
    return found


_SHORT = (
    ("F.", "torch.nn.functional."), ("nn.", "torch.nn."), ("functional.", "torch.nn.functional."),
    ("Tensor.", "torch.Tensor."), ("aten::", "torch.ops.aten."), ("aten.", "torch.ops.aten."),
    ("ops.", "torch.ops."), ("linalg.", "torch.linalg."), ("special.", "torch.special."), ("fft.", "torch.fft."),
)  # fmt: skip
"""How people write the beginning of an op's name, and what it stands for."""
_PLACES = ("torch.nn.functional", "torch", "torch.Tensor", "torch.linalg", "torch.special", "torch.fft")


def in_full(name: str) -> str:
    """A name whose beginning is written out: `F.silu` is `torch.nn.functional.silu`."""
    for short, full in _SHORT:
        if name.startswith(short):
            name = full + name.removeprefix(short)
    return name


def full_names(name: str) -> list[str]:
    """The ops of torch that a name may mean, as a person writes it: `topk`, `F.silu`, `aten::add`, or in full."""
    name = in_full(name)
    asked = [name] if "." in name else [f"{place}.{name}" for place in _PLACES]
    found = []
    for one in asked:
        with suppress(TraceError):
            if is_torch_op(one, _found(one)):
                found.append(one)
    return found


def _found(name: str) -> Any:
    """The object of a name below torch."""
    found: Any = torch
    for part in name.removeprefix("torch.").split("."):
        found = getattr(found, part, None)
    return found


def _meant(op: str) -> str:
    """`did you mean …?` for the ops that a short or misspelt name may mean."""
    names = full_names(op)
    if not names:
        place, _, word = in_full(op).rpartition(".")
        for parent in (place,) if place else _PLACES:
            known = [
                one for one in dir(_found(parent) if parent != "torch" else torch) if not one.startswith("_")
            ]
            near = difflib.get_close_matches(word, known, n=3, cutoff=0.7)
            names += [f"{parent}.{one}" for one in near if full_names(f"{parent}.{one}")][:1]
    return f"did you mean {' or '.join(names[:3])}?" if names else ""


@functools.cache
def _overridable() -> frozenset[Any]:
    return frozenset(func for group in get_overridable_functions().values() for func in group)


def is_torch_op(op: str, func: object) -> bool:
    """Whether a function, found by a qualified name, is an op of torch."""
    # By type, because the torch.ops namespace also holds load_library.
    if isinstance(func, OPERATOR):
        return ".".join(str(func).split(".")[:2]) not in _OPENS_FILES
    if not op.startswith("torch.") or not callable(func):
        return False
    if func in _overridable() or func in _UNLISTED:
        return True
    # torch lists torch.relu as an op, and leaves its in-place form out.
    with suppress(TraceError):
        return op.endswith("_") and locate(op[:-1]) in _overridable()
    return False


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _import(module: str, op: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TraceError(
            f"the module {module} of op {op} cannot be imported: {error}",
            remedy=_meant(op) or "run from the folder that has it, or put that folder on PYTHONPATH",
        ) from error


def _unknown(op: str, prefix: str, part: str, parent: object) -> TraceError:
    names = [name for name in dir(parent) if not name.startswith("_")]
    near = difflib.get_close_matches(part, names, n=1) or difflib.get_close_matches(
        op.rpartition(".")[2], names, n=1
    )
    last = "import first what registers it" if is_registered(op) else f"check the name; {prefix} was found"
    remedy = f"did you mean {prefix}.{near[0]}?" if near else last
    return TraceError(f"no op is called {op}: {prefix} has no {part}", remedy=remedy)
