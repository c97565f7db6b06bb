"""Probe `snooping`: a kernel looks at its arguments, not around in its process and on the machine.

Python's audit events tell of a kernel that walks the garbage collector's objects or the stack, reads trace packs or
`/proc`, takes memory by its address, opens sockets, starts programs, or makes code that passes for another file's.
An event is the kernel's if the innermost frame that is not the standard library's is in the project's files, or if a
thread or pool was handed just the function that causes it; what torch, Triton or a compiler that they start does is theirs.

Memory of an object at hand (`from_buffer`) and sockets whose other end is in this process (`socketpair`, on which event
loops rest) are anyone's.

Of native code, which raises no events, the library is searched (see `verify.probes.libraries`), and child processes are counted.
Else the probe is evaded by passing a function such as `gc.get_objects` to a library that calls it, by `ctypes.cast`, and
by `sys.audit`, which can tell of a `from_buffer` where there is none. That the worker has neither gold nor torch's answers
does not rest on it.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from threading import get_ident
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest_cgins
from pytest_cgins.packs.store import BLOBS, MANIFEST
from pytest_cgins.verify.probe_support import native_code
from pytest_cgins.verify.probe_support.origin import Origins, acts_of
from pytest_cgins.verify.probes import libraries

NAME = "snooping"
MAXIMUM = 16
"""Acts that are told of."""

_Arguments = tuple[Any, ...]
_PROC = re.compile(
    r"/proc/(self|thread-self|\d+)(/task/\d+)?/(mem|maps|smaps|environ|cmdline|fd|fdinfo|map_files)\b"
)
_PACKAGE = "pytest_cgins"
_PROCESSES = frozenset({"subprocess", "os", "multiprocessing", "concurrent", "asyncio", "pty"})
_NETWORK = frozenset({"socket", "asyncio", "urllib", "http", "ssl", "ftplib", "smtplib", "multiprocessing"})
_CODE = (".py", ".pyc", ".pth", ".so", ".pyd")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_PYTHON_API = ("Py", "_Py")
_FRAMES = {
    "tb_frame": "takes the frame of a traceback",
    **dict.fromkeys(("gi_frame", "cr_frame", "ag_frame"), "takes the frame of a generator"),
}
_DIRECTLY: frozenset[str] = frozenset()
_dlsym = ctypes.CDLL(None).dlsym
_dlsym.argtypes, _dlsym.restype = (ctypes.c_void_p, ctypes.c_char_p), ctypes.c_void_p


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an audit event means when a kernel causes it."""

    act: Callable[[_Arguments, Origins], str]
    """What the kernel does; "" if these arguments are harmless."""
    through: frozenset[str] | None = _DIRECTLY
    """Modules of the standard library that it may be reached by: see `Origins.blame`."""
    anyhow: bool = False
    """Whether libraries do it for a kernel only."""


def _says(text: str, through: frozenset[str] | None = _DIRECTLY) -> _Rule:
    return _Rule(lambda _arguments, _origins: text, through)


def _opens(arguments: _Arguments, _origins: Origins) -> str:
    match = _PROC.match(os.path.normpath(_text(arguments[0])))  # unresolved: /proc/self is a link
    return f"opens {match[0]}" if match else ""


def _leaves_code(arguments: _Arguments, origins: Origins) -> str:
    """A file that is written to the project's folder, and that whoever imports from there would run."""
    given, mode, flags = arguments
    writes = bool(set(mode) & set("wax+")) if isinstance(mode, str) else bool(int(flags or 0) & _WRITING)
    return _leaves(given, origins) if writes else ""


def _leaves(given: Any, origins: Origins) -> str:
    path = _text(given)
    return f"leaves {Path(path).name} in the project" if path.endswith(_CODE) and origins.has(path) else ""


def _reads_evidence(arguments: _Arguments, _origins: Origins) -> str:
    given = str(arguments[0])
    # Imports open thousands of files.
    path = _path(arguments[0]) if given.endswith((".json", ".safetensors", "cgins.yaml")) else None
    return f"opens {path.name} of the tests" if path is not None and _is_evidence(path) else ""


def _lists_evidence(arguments: _Arguments, _origins: Origins) -> str:
    path = _path(arguments[0])
    return f"lists the trace pack {path.name}" if path is not None and _is_evidence(path / MANIFEST) else ""


def _kills(arguments: _Arguments, _origins: Origins) -> str:
    return "" if arguments[0] == os.getpid() else f"sends signal {arguments[1]} to process {arguments[0]}"


def _loads(arguments: _Arguments, origins: Origins) -> str:
    name = str(arguments[1])
    if libraries.BYWAY.fullmatch(name) or libraries.BELOW.match(name):
        return f"takes {name} of a loaded library"
    if name.startswith(_PYTHON_API):
        return f"takes {name} from the interpreter's library"
    file = _file_of(arguments[0], name)
    # Of the interpreter itself, and of what is found nowhere, nothing is said.
    is_fine = ".so" not in file or libraries.is_run_time(Path(file).name) or origins.kind(file) == "kernel"
    return "" if is_fine else f"takes {name} of {Path(file).name}"


def _file_of(library: Any, name: str) -> str:
    """Where a symbol lies that ctypes is about to take of a library, or of its handle; "" if nobody knows."""
    handle = library if isinstance(library, int) else getattr(library, "_handle", None)
    address = _dlsym(handle, name.encode()) if isinstance(handle, int) else None
    symbol = native_code.symbol_at(address) if address else None
    return os.fsdecode(symbol.file or b"") if symbol else ""


def _imports(arguments: _Arguments, _origins: Origins) -> str:
    name = str(arguments[0])
    return f"imports {name}" if name.startswith(f"{_PACKAGE}.") else ""


def _compiles(arguments: _Arguments, origins: Origins) -> str:
    file = os.fsdecode(arguments[1] or "")
    if origins.kind(file) not in ("installed", "ours", "standard") or not Path(file).is_absolute():
        return ""
    if _holds(Path(file), arguments[0]):
        return ""  # the first import of a library that has no bytecode
    return f"compiles code in the name of {Path(file).name}"


def _holds(file: Path, source: Any) -> bool:
    """Whether a text is just what a file has."""
    try:
        return file.read_bytes() == (source.encode() if isinstance(source, str) else source)
    except (OSError, UnicodeError):
        return False


_STARTING = (
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "subprocess.Popen",
)  # fmt: skip
RULES: Mapping[str, tuple[_Rule, ...]] = {
    **{f"gc.{name}": (_says(f"calls gc.{name}"),) for name in ("get_objects", "get_referrers", "get_referents")},
    "sys._getframe": (_says("walks the stack", frozenset({"inspect", "traceback"})),),
    "sys._current_frames": (_says("looks at the stacks of all threads"),),
    "sys._current_exceptions": (_says("looks at the exceptions of all threads"),),
    "sys.settrace": (_says("sets a trace function", frozenset({"threading", "bdb", "trace"})),),
    "sys.setprofile": (_says("sets a profile function", frozenset({"threading", "profile"})),),
    "sys.monitoring.register_callback": (_says("sets a monitoring callback"),),
    "sys.addaudithook": (_says("adds an audit hook"),),
    "open": (_Rule(_opens, None), _Rule(_leaves_code, None), _Rule(_reads_evidence, None, anyhow=True)),
    "os.listdir": (_Rule(_opens, None), _Rule(_lists_evidence, None)),
    "os.scandir": (_Rule(_opens, None), _Rule(_lists_evidence, None)),
    **dict.fromkeys(
        ("os.rename", "os.link", "os.symlink"),
        (_Rule(lambda arguments, origins: _leaves(arguments[1], origins), None),),
    ),
    "ctypes.string_at": (_says("reads memory by its address", frozenset({"ctypes"})),),
    "ctypes.wstring_at": (_says("reads memory by its address", frozenset({"ctypes"})),),
    "ctypes.memoryview_at": (_says("takes memory by its address", frozenset({"ctypes"})),),
    "ctypes.cdata": (_says("takes memory by its address", frozenset({"ctypes"})),),
    "ctypes.PyObj_FromPtr": (_says("takes an object by its address", frozenset({"ctypes"})),),
    "ctypes.dlsym": (_Rule(_loads, frozenset({"ctypes"})),),
    "ctypes.dlsym/handle": (_Rule(_loads, frozenset({"ctypes"})),),
    "socket.__new__": (_says("opens a socket", _NETWORK),),
    "socket.getaddrinfo": (_says("asks for a network address", _NETWORK),),
    "socket.gethostbyname": (_says("asks for a network address", _NETWORK),),
    **{
        name: (_says("starts a process", _PROCESSES),) for name in _STARTING
    },
    "os.kill": (_Rule(_kills),),
    "os.killpg": (_Rule(_kills),),
    "import": (_Rule(_imports, frozenset({"importlib"})),),
    "object.__getattr__": (_Rule(lambda arguments, _: _FRAMES.get(str(arguments[1]), "")),),
    "code.__new__": (_says("makes code objects"),),
    "compile": (_Rule(_compiles),),
}  # fmt: skip
"""Checks by audit event."""


_BUFFER = "ctypes.cdata/buffer"
"""Comes before `ctypes.cdata` if that is of `from_buffer`; `from_address` has none."""
_PAIR, _SOCKETS = socket.socketpair.__code__, vars(socket)


class Snooping:
    """Notes what a kernel does that it has no business to do."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._acts: dict[tuple[str, str], None] = {}
        self._started = 0
        self._lent: dict[int, tuple[int, int, int]] = {}
        """The address of the buffer that a thread asked for last, and the frame and instruction that asked."""

    def hear(self, event: str, arguments: _Arguments, frame: FrameType) -> None:
        """One audit event."""
        self._started += event in _STARTING
        if self._is_own(event, arguments, frame):
            return
        for rule in RULES.get(event, ()):
            act = rule.act(arguments, self._origins)
            if act:
                anyhow = self._origins.blame_any
                self._note(act, anyhow(frame) if rule.anyhow else self._origins.blame(frame, rule.through))

    def _is_own(self, event: str, arguments: _Arguments, frame: FrameType) -> bool:
        """Whether memory is that of an object at hand (`from_buffer`), or a socket has its other end in this process."""
        call = id(frame), frame.f_lasti
        if event == _BUFFER:
            self._lent[get_ident()] = (arguments[0] + arguments[2], *call)
        elif event == "ctypes.cdata":
            return self._lent.pop(get_ident(), None) == (arguments[0], *call)
        elif event == "socket.__new__" and frame.f_back is not None:
            return frame.f_back.f_code is _PAIR and frame.f_back.f_globals is _SOCKETS
        return False

    def look_into(self, modules: Mapping[str, Any]) -> None:
        """Note the kernel's modules that hold parts of this package: those that are imported cause no event."""
        for module in modules.values():
            file = getattr(module, "__file__", None)
            if isinstance(module, ModuleType) and file and self._origins.kind(file) == "kernel":
                for name in dict.fromkeys(_internals(vars(module))):
                    self._note(f"imports {name}", Path(file).name)

    def note_all(self, acts: Iterable[str], source: str) -> None:
        """What was found in the kernel's library."""
        for act in acts:
            self._note(act, Path(source).name)

    @contextmanager
    def no_children(self, source: str) -> Iterator[None]:
        """Note a process that native code starts, by whatever means: of Python's there is an event."""
        before, started = _children(), self._started
        yield
        if _children() != before and self._started == started:
            self._note("starts a process", Path(source).name)

    def facts(self) -> list[dict[str, str]]:
        """What was noted, as `judge` takes it."""
        return [{"what": what, "where": where} for what, where in self._acts]

    def _note(self, act: str, by: str) -> None:
        if by and len(self._acts) < MAXIMUM:
            self._acts[act, by] = None


def judge(facts: list[dict[str, str]]) -> str:
    """What is wrong; "" if nothing is."""
    if not facts:
        return ""
    return f"the kernel looks at more than its arguments: it {acts_of(facts, 'where')}"


def _children() -> tuple[int, bool]:
    """What tells of child processes: the page faults of those that have ended, and whether there are others."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        has_some = True
    except ChildProcessError:
        has_some = False
    return getrusage(RUSAGE_CHILDREN).ru_minflt, has_some


def _path(given: Any) -> Path | None:
    """What a path means, links resolved; None for descriptors."""
    text = _text(given)
    return Path(text).resolve() if text else None


def _text(given: Any) -> str:
    """A path as it was given; "" for descriptors."""
    return os.fsdecode(given) if isinstance(given, (str, bytes, os.PathLike)) else ""


def _is_evidence(path: Path) -> bool:
    """Whether a path is `cgins.yaml`, a trace pack, or in one."""
    packs = (pack for pack in (path, *list(path.parents)[:2]) if (pack / MANIFEST).is_file())
    return path.name == "cgins.yaml" or any((pack / BLOBS).is_dir() for pack in packs)


def _internals(namespace: Mapping[str, Any]) -> Iterator[str]:
    """What a module has, or its functions would import, of this package's inner parts."""
    for value in list(namespace.values()):
        if isinstance(value, ModuleType):
            home = value.__name__
        elif isinstance(value, (FunctionType, type)):
            home = value.__module__
            if value.__name__ in pytest_cgins.__all__:
                continue
        else:
            continue
        if str(home).startswith(f"{_PACKAGE}."):
            yield home
        elif isinstance(value, FunctionType):
            yield from (name for name in _names(value.__code__) if name.startswith(f"{_PACKAGE}."))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


EVENTS = frozenset({*RULES, _BUFFER})
"""All events that mean something."""
