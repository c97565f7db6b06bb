"""What a parser does with one input: how it ends, how long it takes, and whether it runs code or opens files."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

CPU_LIMIT_S = 2.0
WALL_LIMIT_S = 20.0
"""A busy machine takes its time; a FIFO that nobody writes to takes for ever, and no CPU."""

_RUNS = frozenset(
    ["compile", "exec", "import", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn",
     "os.startfile", "ctypes.dlopen", "pickle.find_class", "marshal.loads", "marshal.load", "socket.connect",
     "socket.bind"]
)  # fmt: skip
_CHANGES = frozenset(
    ["os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod",
     "shutil.rmtree", "shutil.copyfile"]
)  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_LIBRARIES = tuple(
    {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), "<frozen "}
)
_OWN = str(Path(__file__).parents[2] / "pytest_cgins")
_LAZY = frozenset(
    [
        "torch",
        "numpy",
        "yaml",
        "pydantic",
        "safetensors",
        "encodings",
        "torchgen",
        "sympy",
        "mpmath",
        "pytest_cgins",
    ]
)
"""Packages that load parts of themselves when these are first needed."""


class Hang(BaseException):
    """The input's time is over. No Exception: importers take those for a reason to leave an entry out."""


@dataclass(frozen=True)
class Ending:
    """How one input ended."""

    trouble: str
    """"" if it was read or refused as documented; else `crash: TypeError at file:line` or `hang`."""
    detail: str
    """Traceback of the trouble."""
    cpu_s: float
    """Time on the CPU."""
    events: tuple[str, ...]
    """What it ran, loaded, or wrote outside of its scratch folder."""
    outcome: str
    """The lines of this package that the answer came from: inputs that differ in it got to different places."""


class Watch:
    """Runs inputs one at a time, and sees what the interpreter does meanwhile. One a process."""

    def __init__(self, scratch: Path, *, alarm: bool = True) -> None:
        self._scratch = str(scratch)
        self._alarm = alarm
        self._armed = False
        self._events: list[str] = []
        self.lazy: Counter[str] = Counter()
        """Modules that libraries loaded of themselves while an input was read."""
        sys.addaudithook(self._seen)
        if alarm:
            signal.signal(signal.SIGPROF, self._late)
            signal.signal(signal.SIGALRM, self._late)

    def _late(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise Hang

    def run(
        self, parse: Callable[[bytes], object], data: bytes, documented: tuple[type[Exception], ...]
    ) -> Ending:
        """Give one input to a parser."""
        self._events = []
        start = time.process_time()
        trouble = detail = ""
        outcome = "read"
        try:
            if self._alarm:
                signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
                signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT_S)
            self._armed = True
            parse(data)
        except documented as error:
            outcome = f"{type(error).__name__}{_lines(error)}"
            if isinstance(error, _NEVER):
                trouble, detail = _told(error)
            elif unprintable(str(error)):
                trouble = f"crash: the message of a {type(error).__name__} cannot be printed"
        except Hang as error:
            trouble, detail = f"hang{_place(error)}", traceback.format_exc()
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            trouble, detail = _told(error)
        finally:
            self._armed = False
            if self._alarm:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
        return Ending(trouble, detail, time.process_time() - start, tuple(self._events), outcome)

    def _seen(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._armed:
            return
        if event in _RUNS:
            self._ran(event, args)
        elif (event == "open" and isinstance(args[2], int) and args[2] & _WRITES) or event in _CHANGES:
            self._changed(event, args[0])

    def _ran(self, event: str, args: tuple[Any, ...]) -> None:
        caller = sys._getframe(2)
        if (
            event == "compile"
            and caller.f_code.co_name == "parse"
            and caller.f_code.co_filename.endswith("/ast.py")
        ):
            return  # a syntax tree, no code
        if event == "import":
            if str(args[0]).split(".")[0] in _LAZY:
                self.lazy[str(args[0])] += 1
                return
        elif event in ("exec", "compile", "marshal.loads"):
            where = args[0].co_filename if event == "exec" else str(args[1]) if event == "compile" else ""
            if where.startswith((*_LIBRARIES, _OWN)) or _loading(caller):
                return
        self._events.append(f"{event} {str(args[0])[:80]!r}")

    def _changed(self, event: str, path: object) -> None:
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
        # What has no folder is an open directory's own; the importers' scratch trees are removed so.
        inside = os.path.realpath(text).startswith(self._scratch) or "/" not in text
        if not inside and text not in ("/dev/null", "/dev/tty"):
            self._events.append(f"{event} {text[:80]!r}")


_NEVER = (RecursionError, MemoryError, AssertionError, SystemError, NameError, UnboundLocalError)
"""Never an answer, even where a parser may raise whatever torch raises."""


def unprintable(text: str) -> bool:
    """Whether a terminal or a report cannot have the text: half a surrogate pair."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _loading(frame: FrameType | None) -> bool:
    """Whether a library is being imported: its own named tuples and the like are compiled from texts."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _told(error: BaseException) -> tuple[str, str]:
    return f"crash: {type(error).__name__}{_place(error)}", traceback.format_exc()[-3000:]


def _lines(error: BaseException) -> list[int]:
    step, found = error.__traceback__, []
    while step is not None:
        if step.tb_frame.f_code.co_filename.startswith(_OWN):
            found.append(step.tb_lineno)
        step = step.tb_next
    return found


def _place(error: BaseException) -> str:
    """The innermost line of this package that the error came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(_OWN)]
    return f" at {frames[-1].filename[len(_OWN) + 1 :]}:{frames[-1].lineno}" if frames else ""
