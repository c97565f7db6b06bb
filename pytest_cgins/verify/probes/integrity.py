"""Probe `integrity`: a kernel replaces nothing that verdicts and timings rest on, and leaves all settings alone.

Functions and classes of torch, Python and this package are looked at before the kernel is loaded, after that, after
its first run and after the last one: what then is another object, or is gone, was replaced by it. New attributes are
nobody's offence, and a function that an installed library puts in the place of its own, under its own name, is not
the kernel's. Code and defaults of functions are watched as they are set, by Python's audit events; settings are
compared around every run and put back. Machine code of Python, torch and C's libraries that was overwritten, by whatever
way, lies in pages of this process alone: after the last run the system is asked for those.

It is evaded by what is put back before the call returns (which nothing of ours can meet in between, on the same
thread), and by native code that writes into data.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from operator import is_
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from pytest_cgins.verify.probe_support.origin import Origins, acts_of

NAME = "integrity"
MAXIMUM = 16
"""Acts that are told of."""
EVENTS = frozenset({"object.__setattr__", "object.__delattr__"})
"""Audit events that tell of functions whose inside is changed."""

_PACKAGE = "pytest_cgins"
_LIBRARIES = (
    "torch", "torch.nn.functional", "torch._C", "torch._C._nn", "torch._ops", "torch._tensor", "torch.autograd",
    "torch.autograd.grad_mode", "torch.cuda", "torch.cuda.graphs", "torch.cuda.memory", "torch.cuda.streams",
    "torch.functional", "torch.library", "torch.overrides", "torch.random", "torch.testing",
    "torch.utils._python_dispatch",
    "builtins", "contextlib", "ctypes", "functools", "gc", "hashlib", "io", "json", "math", "mmap", "operator", "os",
    "pathlib", "posixpath", "random", "socket", "statistics", "struct", "sys", "threading", "time", "traceback",
    "numpy",
)  # fmt: skip
"""Modules whose functions, classes and modules stay what they are."""
_CLASSES: tuple[type, ...] = (
    torch.Tensor, torch._C.TensorBase, torch.nn.Parameter, torch.UntypedStorage, torch.cuda.Event, torch.cuda.Stream,
    torch.cuda.CUDAGraph, torch.autograd.Function, torch._ops.OpOverload, torch._ops.OpOverloadPacket,
)  # fmt: skip
_RELIED_ON = ("aten::equal", "aten::clone", "aten::copy_", "aten::fill_.Scalar", "aten::empty.memory_format")
_dump = torch._C._dispatch_dump
_INSIDE = ("__code__", "__defaults__", "__kwdefaults__")
_IGNORED = frozenset(
    {
        "__dict__", "__weakref__", "__doc__", "__warningregistry__", "__builtins__", "__annotations__",
        "breakpointhook", "displayhook", "excepthook", "unraisablehook",
    }
)  # fmt: skip
"""Among them hooks of `sys` and `threading` that libraries set as they are imported, and no verdict rests on."""


_ABSENT = object()


class _Space(NamedTuple):
    """One namespace as it was."""

    name: str
    owner: Any
    get: Callable[..., Any]
    names: tuple[str, ...]
    values: tuple[Any, ...]
    inherited: frozenset[str]
    """Names that a class has from its bases alone: a new attribute of that name hides the base's."""
    hides: Callable[[], bool]
    """Whether it has one of these now."""


class _Change(NamedTuple):
    space: _Space
    name: str
    old: Any
    new: Any


class _Code(NamedTuple):
    """A mapping of machine code, or all those of a file."""

    begin: int
    end: int
    file: str
    """Device and inode: a file may be renamed meanwhile."""
    name: str
    kilobytes: int
    """What of it is the file's still: who writes into a page of it gets a copy."""


class Fingerprint:
    """What the process is made of. One a process: see `fingerprint`."""

    def __init__(self) -> None:
        self._spaces: list[_Space] = []
        self._own: dict[str, list[_Space]] = {}
        self._modules, self._process = -1, os.getpid()
        self._operators: set[str] = set()
        self._registered: set[str] = torch.library._impls
        # What a kernel replaces must not be what looks for it: see `_finder`.
        self._find = _find
        # Not here: the server that forks workers may not read how its own memory lies.
        self._code: dict[str, _Code] | None = None
        self.doubted = False
        """Whether a kernel ran since everything was last found as it was."""
        self._take_in()

    def refresh(self) -> None:
        """Take in modules that were imported since; what a kernel has replaced meanwhile is put back."""
        if self.doubted:
            for change in self.changes():
                _undo(change)
        if self.doubted or self._code is None:
            self._code = _code_of_libraries()
        self._take_in()

    def _take_in(self) -> None:
        if self._process != os.getpid():
            # Forked, and no kernel has run: what is another object now was made anew by its own module, as locks are.
            self._process, self._modules = os.getpid(), -1
            self._own = {name: spaces for name, spaces in self._own.items() if not self._find(spaces)}
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._spaces = list(_spaces(self._own))
        self._operators = set(self._registered)

    def changes(self) -> list[_Change]:
        """What is another object now, or gone."""
        return self._find(self._spaces)

    def operators(self) -> list[str]:
        """Operators of ATen that `torch.library` has given other implementations since.

        Those for shapes and for `torch.vmap` do not count: torch adds them itself as it needs them, and no call
        without meta tensors or `vmap` reaches them.
        """
        new = self._registered - self._operators
        return [
            name
            for name in new
            if name.startswith("aten/") and not name.endswith(("/Meta", "/FuncTorchBatched"))
        ]

    def overwritten(self) -> list[str]:
        """Files whose code is not what it was when the process began. Takes 2 ms."""
        code = self._code or {}
        mappings = list(_mappings(lambda file, _name: file in code)) if code else []
        left = dict.fromkeys(code, 0)
        for new in mappings:
            if code[new.file].begin <= new.begin < code[new.file].end:
                left[new.file] += new.kilobytes
        return [old.name for old in code.values() if mappings and old.kilobytes > left[old.file]]


class Integrity:
    """Notes what one kernel changes in its process."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._fingerprint = fingerprint()
        self._fingerprint.refresh()
        self._fingerprint.doubted = True
        self._changes, self._operators = self._fingerprint.changes, self._fingerprint.operators
        self._overwritten = self._fingerprint.overwritten
        self._kernels, self._dump = _kernels(_dump), _dump
        self._acts: dict[tuple[str, str], None] = {}
        self._insides: dict[tuple[FunctionType, str], Any] = {}
        """What functions were made of, by attribute, before the kernel changed them."""

    def check(self, when: str) -> None:
        """Note what has changed since the kernel was first seen, `as it was loaded` or `as it ran`, and put it back."""
        for change in self._changes()[:MAXIMUM]:
            self._acts[f"replaced {change.space.name}.{change.name} {_by(change.new)}", when] = None
            _undo(change)
        while self._insides:
            (function, name), old = self._insides.popitem()
            setattr(function, name, old)
        for name in self._operators()[:MAXIMUM]:
            self._acts[f"registered another implementation of {name}", when] = None

    def done(self) -> None:
        """After the last check: what changes from now on is not this kernel's doing."""
        self._fingerprint.doubted = bool(self._acts)

    def check_operators(self, when: str) -> None:
        """Note what native code has put in the place of operators that every answer goes through."""
        for name, found in _kernels(self._dump).items():
            if found != self._kernels[name]:
                self._acts[f"registered another implementation of {name}", when] = None

    def check_code(self, when: str) -> None:
        """Note libraries whose machine code was overwritten since the process began."""
        for name in self._overwritten():
            self._note(f"overwrote code of {name}", when)

    def take_settings(self, changes: Iterable[str], when: str) -> None:
        """Note settings that the kernel has changed, as `process_settings.put_back` tells them."""
        for change in changes:
            self._note(f"set {change}", when)

    def hear(self, event: str, arguments: tuple[Any, ...], frame: FrameType) -> None:
        """One audit event: a function's inside is set."""
        del event
        function, name = arguments[:2]
        if name in _INSIDE and isinstance(function, FunctionType):
            theirs = self._origins.kind(function.__code__.co_filename) not in ("kernel", "made")
            by = self._origins.blame(frame) if theirs else ""
            if by:
                # The event comes before the change.
                self._insides.setdefault((function, name), getattr(function, name))
                self._note(f"replaced {name} of {function.__module__}.{function.__qualname__}", by)

    def facts(self) -> list[dict[str, str]]:
        """What was noted, as `judge` takes it."""
        return [{"what": what, "when": when} for what, when in self._acts]

    def _note(self, act: str, when: str) -> None:
        if len(self._acts) < MAXIMUM:
            self._acts[act, when] = None


def judge(facts: list[dict[str, str]]) -> str:
    """What is wrong; "" if nothing is."""
    if not facts:
        return ""
    return f"the kernel changes the process that judges it: it {acts_of(facts, 'when')}"


def _mappings(wanted: Callable[[str, str], object]) -> Iterator[_Code]:
    """Mappings of machine code of some files; none where the system does not tell, or a debugger sets breakpoints.

    Args:
        wanted: whether a file, by device and inode, and the name that it has now, is one of them.
    """
    with suppress(OSError):
        if b"TracerPid:\t0\n" not in Path("/proc/self/status").read_bytes():
            return
        page = resource.getpagesize()
        with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
            for found in _MAPPING.finditer(Path("/proc/self/maps").read_bytes()):
                begin, end, file = int(found[1], 16), int(found[2], 16), found[3].decode()
                name = Path(found[4].decode(errors="replace")).name
                if wanted(file, name):
                    told = os.pread(pages.fileno(), (end - begin) // page * 8, begin // page * 8)
                    copied = len(told[7::8].translate(None, _THE_FILES_OWN)) * page
                    yield _Code(begin, end, file, name, (end - begin - copied) // 1024)


_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) [r-][w-]x[ps] [0-9a-f]+ (\S+ \d+) *(.*)$", re.MULTILINE)
_THE_FILES_OWN = bytes(top for top in range(256) if not top & 0xC0 or top & 0xA0 == 0xA0)
"""Uppermost bytes in `pagemap` of pages that nobody has written to: neither in memory nor swapped out, or the file's."""
_WATCHED = re.compile(
    r"\[vdso\]|(?:ld-linux|libc[.-]|libm[.-]|libpthread|librt|libpython|libstdc\+\+|libtorch|libc10|_C\.).*|python[\d.]*"
)


def _code_of_libraries() -> dict[str, _Code]:
    """The code of what verdicts and timings rest on, by file."""
    files: dict[str, _Code] = {}
    for new in _mappings(lambda _file, name: _WATCHED.fullmatch(name)):
        old = files.get(new.file, new._replace(kilobytes=0))
        files[new.file] = old._replace(end=new.end, kilobytes=old.kilobytes + new.kilobytes)
    return files


def _kernels(dump: Callable[[str], str]) -> dict[str, list[str]]:
    """Where the backends' implementations of the relied-on operators were registered."""
    return {
        name: [line for line in dump(name).splitlines() if line.startswith(("CPU", "CUDA"))]
        for name in _RELIED_ON
    }


_taken: list[Fingerprint] = []


def doubt() -> None:
    """Note that a kernel runs that nobody checks."""
    for one in _taken:
        one.doubted = True


def fingerprint() -> Fingerprint:
    """The fingerprint of this process, taken at the first call."""
    if not _taken:
        _taken.append(Fingerprint())
    return _taken[0]


def _spaces(own: dict[str, list[_Space]]) -> Iterator[_Space]:
    """All that is watched; `own` keeps those of our modules, which gain nothing after their import but submodules."""
    for name in _LIBRARIES:
        module = sys.modules.get(name)
        if module is not None:
            yield _space(name, module, lambda value: callable(value) or isinstance(value, ModuleType))
    for cls in _CLASSES:
        yield _space(f"{cls.__module__}.{cls.__qualname__}", cls, _is_behaviour)
    modules = {
        name: module
        for name, module in sys.modules.items()
        if name in _LIBRARIES or name.partition(".")[0] == _PACKAGE
    }
    yield _Space(
        "sys.modules", sys.modules, sys.modules.get, tuple(modules), tuple(modules.values()),
        frozenset(), lambda: False,
    )  # fmt: skip
    for name, module in list(sys.modules.items()):
        if name == _PACKAGE or name.startswith(f"{_PACKAGE}."):
            if name not in own or own[name][0].owner is not module or hasattr(module, "__path__"):
                own[name] = list(_own_spaces(name, module))
            yield from own[name]


def _own_spaces(name: str, module: ModuleType) -> Iterator[_Space]:
    yield _space(name, module, lambda _: True)
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == name and not is_dataclass(value):
            yield _space(f"{name}.{value.__qualname__}", value, _is_behaviour)


def _space(name: str, owner: Any, wanted: Callable[[Any], bool]) -> _Space:
    namespace = vars(owner)
    kept = {
        key: value
        for key, value in list(namespace.items())
        if key not in _IGNORED
        and (not key.startswith("__") or isinstance(owner, type) or callable(value))
        and wanted(value)
    }
    bases = owner.__mro__[1:] if isinstance(owner, type) else ()
    inherited = {key for base in bases for key in vars(base)} - set(namespace)
    disjoint = inherited.isdisjoint
    return _Space(
        name, owner, namespace.get, tuple(kept), tuple(kept.values()), frozenset(inherited),
        lambda: not disjoint(namespace),
    )  # fmt: skip


def _is_behaviour(value: Any) -> bool:
    """What a class does: functions of all kinds, properties, slots."""
    return callable(value) or hasattr(type(value), "__get__")


def _finder() -> Callable[[Sequence[_Space]], list[_Change]]:
    """What compares namespaces with what they were; it looks nothing up that a kernel could replace."""
    same, every, each, pairs, kind, attribute, inside = is_, all, map, zip, type, getattr, vars
    function_type, modules, change, is_callable = FunctionType, sys.modules, _Change, callable
    absent = _ABSENT

    def of_a_library(name: str, old: Any, new: Any) -> bool:
        """Whether an installed library put a function in the place of its own: torch's compiler does at import."""
        if kind(new) is not function_type or not is_callable(old) or new.__name__ != name:
            return False
        home = modules.get(new.__globals__.get("__name__"))
        file = new.__code__.co_filename
        if home is None or not ("site-packages" in file or "dist-packages" in file):
            return False
        return inside(home) is new.__globals__ and attribute(home, "__file__", None) == file

    def find(spaces: Sequence[_Space]) -> list[_Change]:
        return [
            change(space, name, old, space.get(name))
            for space in spaces
            if not every(each(same, each(space.get, space.names), space.values))
            for name, old in pairs(space.names, space.values)
            if space.get(name) is not old and not of_a_library(name, old, space.get(name))
        ] + [
            change(space, name, absent, space.get(name))
            for space in spaces
            if space.hides()
            for name in space.inherited
            if space.get(name, absent) is not absent
        ]

    return find


_find = _finder()


def _by(new: Any) -> str:
    """What has taken a place, in words."""
    code = getattr(new, "__code__", None) if isinstance(new, FunctionType) else None
    if code is not None:
        return f"by {new.__qualname__} of {Path(code.co_filename).name}, line {code.co_firstlineno}"
    if new is None:
        return "by nothing"
    if isinstance(new, ModuleType):
        return "by another module"
    if isinstance(new, type):
        return f"by the class {new.__module__}.{new.__qualname__}"
    return f"by a {type(new).__module__}.{type(new).__qualname__}"


def _undo(change: _Change) -> None:
    with suppress(Exception):
        if change.space.owner is sys.modules:
            sys.modules[change.name] = change.old
        elif change.old is _ABSENT:
            delattr(change.space.owner, change.name)
        else:
            setattr(change.space.owner, change.name, change.old)
