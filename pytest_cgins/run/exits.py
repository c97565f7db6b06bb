"""What the end of a process means, in words."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import PurePath

from pytest_cgins.core.verdict import Reason
from pytest_cgins.run.protocol import CONNECTION_CUT

_SIGNALS = {
    signal.SIGSEGV: (
        "segmentation fault",
        "it read or wrote outside its memory: check its index arithmetic and its sizes",
    ),
    signal.SIGBUS: ("bus error", "it touched memory that is not backed: check pointers and alignment"),
    signal.SIGABRT: (
        "abort",
        "an assertion, a C++ exception that nobody caught, or heap corruption: the output above it says which",
    ),
    signal.SIGFPE: ("arithmetic error", "most often an integer division by zero: check sizes of 0 and 1"),
    signal.SIGILL: ("illegal instruction", "it was built for another CPU: look at its -march flags"),
    signal.SIGKILL: (
        "killed from outside",
        "most often the host ran out of memory: look for it in the kernel log",
    ),
    signal.SIGTERM: ("terminated", "somebody asked it to end"),
    signal.SIGXCPU: ("CPU time limit", "raise the limit, or make the kernel return"),
}


STACK_SIGNAL = signal.SIGUSR2
"""At which a worker prints its Python stack."""
_STACK = re.compile(
    r"^(?:Current thread|Stack|Thread) .*\(most recent call first\):\n((?:  File .*\n?)+)", re.MULTILINE
)
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_COMPILERS = {
    re.compile(r"/triton/(compiler/|backends/\w+/compiler\.py)"): "Triton",
    re.compile(
        r"/torch/(_dynamo/(convert_frame|output_graph)|_inductor/(compile_fx|graph|scheduler))\.py"
    ): "torch.compile",
    re.compile(r"/cutlass/base_dsl/compiler\.py"): "CuTe",
}
"""Files of theirs that compile: those beside them are in the stack of each call of what was compiled, too."""
_OURS = str(PurePath(__file__).parents[1])
_CLOSED = "let the kernel leave descriptors alone"


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended."""

    words: str
    """What it did, with its name in front: `was killed by SIGSEGV (segmentation fault)`."""
    remedy: str
    reason: Reason
    """The verdict's reason if a kernel is to blame."""


def describe_exit(returncode: int | None, *, wrapped: bool = False, memory_ran_out: bool = False) -> End:
    """Say how a process ended, and what to do about it.

    Args:
        returncode: as of `subprocess.Popen`: negative for a signal; None if it had to be killed after it
            had closed its connection.
        wrapped: another program started it, which tells of a signal as shells do, by 128 and its number.
        memory_ran_out: the system has killed some process for memory meanwhile.
    """
    if wrapped and returncode is not None and returncode - 128 in set(signal.Signals):
        returncode = 128 - returncode
    if returncode is None:
        return End("closed its connection and lived on, and was killed", _CLOSED, Reason.CONNECTION_CLOSED)
    if returncode == CONNECTION_CUT:
        return End("found its connection closed by the kernel", _CLOSED, Reason.CONNECTION_CLOSED)
    if returncode >= 0:
        return End(
            f"exited with code {returncode} without an answer",
            "a kernel must return to its caller: look for exit() in it and in what it calls",
            Reason.EXITED,
        )
    try:
        number = signal.Signals(-returncode)
    except ValueError:
        return End(f"was killed by signal {-returncode}", "look at the output above", Reason.CRASHED)
    if number is signal.SIGKILL and memory_ran_out:
        return End(
            "was killed by SIGKILL (the host ran out of memory)",
            "look for an allocation that grows, or use fewer processes at once",
            Reason.OUT_OF_MEMORY,
        )
    meaning, remedy = _SIGNALS.get(number, (signal.strsignal(number) or "", "look at the output above"))
    reason = Reason.ABORTED if number is signal.SIGABRT else Reason.CRASHED
    return End(f"was killed by {number.name} ({meaning})", remedy, reason)


def last_stack(output: str) -> list[tuple[str, str, str]]:
    """File, line and function of each frame of the last stack that a process printed, the innermost first."""
    stacks = _STACK.findall(output)
    return _FRAME.findall(stacks[-1]) if stacks else []


def hung_in(output: str) -> tuple[str, str]:
    """Where a process was that did not answer, to follow a message, and a remedy; "" for what its stack does not tell."""
    frames = last_stack(output)
    for compiler, name in _COMPILERS.items():
        if any(compiler.search(file) for file, _, _ in frames):
            remedy = "such a kernel takes that long to compile: unroll less, or raise the time limit with --cgins-timeout"
            return f", while {name} was compiling", remedy
    if not frames or frames[0][0].startswith(_OURS):
        return "", ""
    file, line, function = frames[0]
    return f", in {function} ({PurePath(file).name}:{line})", ""


def without_stack(output: str) -> str:
    """What a process printed, but for the stack that it was asked for."""
    stacks = list(_STACK.finditer(output))
    return output if not stacks else output[: stacks[-1].start()] + output[stacks[-1].end() :]
