"""Compiler output made short: the first errors, with the user's file and line, and what led to them."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from pytest_cgins.building.compilers import architectures, toolchain
from pytest_cgins.building.compilers.watched import FILE_NBYTES, memory_gib
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.cxx import code_of
from pytest_cgins.core.text import counted, nearest, shown

ERROR = re.compile(
    r"""^(?:
        \S.*?:\d+(?::\d+)?:\s(?:fatal\s|internal\scompiler\s)?error:\s                 # gcc, clang
      | \S.*?\(\d+\):\s(?:catastrophic\s|internal\s)?error(?:\s\#[\w-]+)?\s*:\s        # nvcc's front end, NVRTC
      | (?:ptxas|nvlink|nvcc|cicc|fatbinary)\b.*?(?:error|fatal)\s*:(?!\s+Ptx\sassembly\saborted)
      | (?:nvrtc|cc1plus|g\+\+|clang\+\+|clang|as)\S*:\s(?:fatal\s)?error:\s(?!linker\scommand)
      | (?:\S*/)?ld(?:\.\w+)?:\s(?!warning:|.*\bin\sfunction\s.*:$)                    # linker
      | \S.*:\sundefined\sreference\sto\s
      | .*(?:unrecognized|unknown)\s.*option
    )""",
    re.VERBOSE | re.IGNORECASE,
)
LEADING = re.compile(
    r"""^(?:
        In\sfile\sincluded\sfrom\s | \s+from\s.*[:,]$ | In\smodule\s
      | \S.*:\s(?:In|At)\s(?:\w+\s)*(?:function|instantiation|substitution|constructor|destructor|operator|scope|lambda)\b
      | \S.*:\s+(?:recursively\s)?required\s(?:from|by|for)\b
      | (?:\S*/)?ld(?:\.\w+)?:\s.*\bin\sfunction\s.*:$
    )""",
    re.VERBOSE,
)
OTHER = re.compile(
    r"""^(?:
        \S.*(?::\d+|\(\d+\)):\s(?:warning|remark)\b
      | \d+\serrors?\s(?:detected|generated) | compilation\sterminated | collect2: | ninja: | FAILED: | \[\d+/\d+\]
      | (?:ptxas|nvlink|nvcc)\s+(?:info|warning|fatal)\b
    )""",
    re.VERBOSE,
)
NOTE = re.compile(r"^\S.*:\snote:\s")
TRAILING = re.compile(r"^\s+(?:detected during|instantiation of|implicit generation of|\[ \d+ instantiation)")
NOT_FOUND = re.compile(
    r"""^(?:
        (?:\S*sh:\s)?(?:\d+:\s)?(?:exec:\s)?(?P<shell>[\w./+-]+):\s(?:command\s)?not\sfound
      | \S+:\s(?:line\s)?\d+:\s(?P<path>\S+):\s(?:No\ssuch\sfile\sor\sdirectory|Permission\sdenied|command\snot\sfound)
      | \S+:\sfatal\serror:\scannot\sexecute\s.(?P<part>\S+).:\sexecvp:\s.*
    )$""",
    re.VERBOSE | re.MULTILINE,
)
TROUBLE = re.compile(
    r"""^(?=\S).*?(?P<what>
        Killed\ssignal\sterminated\sprogram\s\S+ | Terminated\ssignal\sterminated\sprogram\s\S+
      | '\S+'\sdied\sdue\sto\ssignal\s(?:9|15)\b.*
      | No\sspace\sleft\son\sdevice | Disk\squota\sexceeded | terminated\swith\ssignal\s7\s\[Bus\serror\]
      | Cannot\sallocate\smemory
    )['"]?(?:,\score\sdumped)?[.)]?\s*$""",  # ld maps what it writes: a full disk is a bus error
    re.VERBOSE | re.MULTILINE,
)
OVER_MEMORY = re.compile(
    r"out of memory allocating \d+ bytes|virtual memory exhausted|std::bad_alloc"
    r"|Memory allocation failure|memory exhausted|LLVM ERROR: out of memory"
)
OVER_FILE = re.compile(r"File size limit exceeded|File too large")
CRASH = re.compile(
    r"^\S.*(?:internal (?:compiler )?error|Segmentation fault|died due to signal)",
    re.MULTILINE | re.IGNORECASE,
)
# The sandbox's own words: `run.sandbox.init`.
NO_SANDBOX = re.compile(r"^pytest-cgins: the sandbox could not be set up: (?P<what>.*)$", re.MULTILINE)
NO_SANDBOX_STATUS = 125
EXCESS = re.compile(r"^pytest-cgins: .* allowed; all processes of the sandbox were killed$", re.MULTILINE)
UNSEEN = re.compile(
    r"No such file|not found|(?:can ?not|could not) (?:open|find)|denied|Read-only", re.IGNORECASE
)
KILLS = {signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU}
WHOLE = "apt install g++; nvcc: pip install 'pytest-cgins[nvcc]', or the CUDA toolkit"
DEFINITION = re.compile(r"\b([A-Za-z_]\w*)\s*\([^;{}()]*\)\s*\{")
CONTROL_WORDS = {"if", "for", "while", "switch", "catch"}
SHOWN_ERRORS = 3
CONTEXT_LINES = 6
FOLLOWING_LINES = 9
SHOWN_NOTES = 3
LINE_LENGTH = 300
READ_LENGTH = 2000
"""Characters of a line that are looked at: some patterns take the square of that."""


def summarize(log: str, files: Sequence[str], entry: str) -> tuple[int, str]:
    """The first errors of a compiler's output.

    Args:
        log: all that it printed.
        files: absolute paths of the user's sources; they are shown relative to the current folder.
        entry: the launcher's function, "" for other contracts.

    Returns:
        How many errors there are, and the text of the first few, each with the lines that explain it: what was
        included or instantiated from where, the source line, and some notes.
    """
    if entry and f"required symbol `{entry}' not defined" in log:
        return 1, _not_exported(Path(files[0]), entry)
    lines = [line[:READ_LENGTH] for line in log.splitlines()]
    # The host's front end and each architecture's say the same of one line.
    firsts = {line: number for number, line in reversed([*enumerate(lines)]) if ERROR.match(line)}
    starts = sorted(firsts.values())
    if not starts:
        return 0, _with_short_paths(_joined(lines[-FOLLOWING_LINES:]), files)
    blocks = [_block(lines, number) for number in starts[:SHOWN_ERRORS]]
    return len(starts), _with_short_paths(_joined(line for block in blocks for line in block), files)


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(line[:LINE_LENGTH] for line in lines)


def _block(lines: Sequence[str], number: int) -> list[str]:
    """An error's lines. What leads to it comes before it from gcc, and after it from nvcc and clang."""
    first = number
    while first > 0 and LEADING.match(lines[first - 1]):
        first -= 1
    return [*_squeezed(lines[first:number]), lines[number], *_following(lines[number + 1 :])]


def _squeezed(context: Sequence[str]) -> list[str]:
    """Context with its middle left out: one end is the place of the error, the other the user's line."""
    left_out = len(context) - CONTEXT_LINES
    if left_out <= 0:
        return list(context)
    return [*context[:2], f"  … {counted(left_out + 1, 'line')} …", *context[3 - CONTEXT_LINES :]]


def _following(lines: Sequence[str]) -> list[str]:
    """The source line of an error, its first notes, and what nvcc was about to instantiate."""
    kept: list[str] = []
    context: list[str] = []
    notes = 0
    for number, line in enumerate(lines):
        if TRAILING.match(line):
            context.append(line)
            continue
        notes += bool(NOTE.match(line))
        if len(kept) == FOLLOWING_LINES or notes > SHOWN_NOTES or not line.strip():
            break
        if LEADING.match(line):  # to a note, or to the next error
            led_to = next((other for other in lines[number:] if not LEADING.match(other)), "")
            if NOTE.match(led_to):
                continue
            break
        if ERROR.match(line) or OTHER.match(line):
            break
        kept.append(line)
    return [*kept, *_squeezed(context)]


def unknown_architecture(log: str) -> str:
    """The remedy where nvcc does not know an architecture: those that it knows; "" for other errors."""
    unsupported = r"^nvcc fatal\s*: Unsupported gpu architecture '(?:sm|compute)_(\w+)'"
    found = re.search(unsupported, log, re.MULTILINE)
    if found is None:
        return ""
    names = architectures.known_to(toolchain.nvcc())
    return f"{nearest(f'sm_{found[1]}', names)} this nvcc knows {', '.join(names)}".strip()


TORCHS_HEADER = re.compile(
    r"^\S*/torch/include/(?P<by>\S+?):\d+:\d+: fatal error: (?P<missing>\S+): No such file", re.MULTILINE
)
"""A header of torch's that lacks one of the toolkit's: `cusparse.h`, where a toolkit was installed in parts."""


def not_the_source(status: int, log: str) -> tuple[str, str] | None:
    """What kept a compiler from judging the source: it was killed, or lacks memory, disk space or a part of itself.

    Returns:
        What happened and the remedy; None if the compiler had its say.
    """
    unmade = NO_SANDBOX.search(log)
    if unmade and status == NO_SANDBOX_STATUS:
        return f"there is no sandbox for it: {unmade['what']}", "see what `cgins doctor` says of sandboxes"
    if EXCESS.search(log):
        return None
    missing = NOT_FOUND.search(log)
    if missing and (status in (126, 127) or missing["part"] or "cicc" in log):
        tool = missing["shell"] or missing["path"] or missing["part"]
        return f"{tool} is not installed", f"install the whole compiler: {WHOLE}"
    header = TORCHS_HEADER.search(log)
    if header:
        what = f"torch's {header['by']} includes {header['missing']}, which is not installed"
        return (
            what,
            "install the headers of the CUDA toolkit's libraries, or point CUDA_HOME at a toolkit that has them",
        )
    trouble = TROUBLE.search(log)
    if trouble:
        return trouble["what"].strip(), "free memory or disk space, or set MAX_JOBS=1, and run again"
    number = _signal(status)
    if number in KILLS:
        what = f"it was killed by {signal.Signals(number).name}"
        return what, "free memory, or set MAX_JOBS=1, and run again"
    return None


def over_limit(status: int, log: str) -> str:
    """Which of its limits a compiler met for this source, as a message ends; "" if none."""
    if OVER_MEMORY.search(log):
        return f"needed more than the {memory_gib()} GiB of memory that a compiler may take"
    if _signal(status) == signal.SIGXFSZ or OVER_FILE.search(log):
        return f"wrote more than the {FILE_NBYTES >> 30} GiB that a file of a build may have"
    return ""


def crashed(status: int, log: str) -> bool:
    """Whether a compiler failed in a way that may be another the next time: it is asked again."""
    return _signal(status) != 0 or CRASH.search(log) is not None


def may_be_unseen(log: str) -> bool:
    """Whether a compiler in a sandbox may have refused a source for a file that it would see outside."""
    return UNSEEN.search(log) is not None


def _signal(status: int) -> int:
    """Number of the signal that ended a command, 0 for none; a shell adds 128."""
    return -status if status < 0 else max(0, status - 128)


def _not_exported(file: Path, entry: str) -> str:
    """What to say when the linker finds no function of the schema's name."""
    text = file.read_text(encoding="utf-8")
    code = code_of(text)
    pattern = re.compile(rf"\b{re.escape(entry)}\s*\(")
    where = next((number for number, line in enumerate(code.splitlines(), 1) if pattern.search(line)), None)
    if where is None:
        _, schema_line = schemas.locate(text, file)
        return (
            f'{shown(file)}:{schema_line}: the schema line declares "{entry}", but the file defines no such '
            f"function{_nearest_function(code, entry)}"
        )
    position = f"{shown(file)}:{where}"
    return f'{position}: "{entry}" is not the extern "C" function that the schema line declares'


def _nearest_function(code: str, entry: str) -> str:
    """The defined function whose name is most like `entry`, with its line; "" if none is like it."""
    found = {match[1]: code.count("\n", 0, match.start(1)) + 1 for match in DEFINITION.finditer(code)}
    names = get_close_matches(entry, found.keys() - CONTROL_WORDS, n=1)
    return f'; did you mean "{names[0]}" in line {found[names[0]]}?' if names else ""


def _with_short_paths(text: str, files: Sequence[str]) -> str:
    text = re.sub(r"^([^\s(]+)\((\d+)\): ", r"\1:\2: ", text, flags=re.MULTILINE)  # nvcc's way
    for folder in {str(Path(file).parent) for file in files}:
        short = shown(Path(folder))
        if short != folder:
            text = text.replace(f"{folder}/", "" if short == "." else f"{short}/")
    return text
