"""What the end of a process means, in words."""

from __future__ import annotations

import signal

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


def describe_exit(returncode: int | None) -> tuple[str, str]:
    """Say how a process ended, and what to do about it.

    Args:
        returncode: as of `subprocess.Popen`: negative for a signal; None if it had to be killed after it
            had closed its connection.
    """
    if returncode is None:
        return "closed its connection and lived on, and was killed", "let the kernel leave descriptors alone"
    if returncode >= 0:
        return (
            f"exited with code {returncode} without an answer",
            "a kernel must return to its caller: look for exit() in it and in what it calls",
        )
    try:
        number = signal.Signals(-returncode)
    except ValueError:
        return f"was killed by signal {-returncode}", "look at the output above"
    meaning, remedy = _SIGNALS.get(number, (signal.strsignal(number) or "", "look at the output above"))
    return f"was killed by {number.name} ({meaning})", remedy
