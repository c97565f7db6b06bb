"""Words and reasons for the ends of processes."""

from __future__ import annotations

import signal

import pytest

from pytest_cgins.core.verdict import Reason
from pytest_cgins.run.exits import describe_exit, hung_in


@pytest.mark.parametrize(
    ("returncode", "words", "remedy", "reason"),
    [
        (0, "exited with code 0 without an answer", "exit()", Reason.EXITED),
        (3, "exited with code 3 without an answer", "exit()", Reason.EXITED),
        (139, "exited with code 139 without an answer", "exit()", Reason.EXITED),
        (71, "found its connection closed by the kernel", "descriptors", Reason.CONNECTION_CLOSED),
        (-signal.SIGSEGV, "was killed by SIGSEGV (segmentation fault)", "index arithmetic", Reason.CRASHED),
        (-signal.SIGABRT, "was killed by SIGABRT (abort)", "assertion", Reason.ABORTED),
        (-signal.SIGKILL, "was killed by SIGKILL (killed from outside)", "out of memory", Reason.CRASHED),
        (-signal.SIGUSR1, "was killed by SIGUSR1 (User defined signal 1)", "output", Reason.CRASHED),
        (-200, "was killed by signal 200", "output", Reason.CRASHED),
        (None, "closed its connection and lived on, and was killed", "descriptors", Reason.CONNECTION_CLOSED),
    ],
)
def test_every_end_has_words_a_remedy_and_a_reason(
    returncode: int | None, words: str, remedy: str, reason: Reason
) -> None:
    """Exit codes and signals are told apart, by name where they have one."""
    end = describe_exit(returncode)
    assert end.words == words
    assert remedy in end.remedy
    assert end.reason is reason


def test_a_wrapper_tells_of_a_signal_as_shells_do() -> None:
    """128 and a signal's number is that signal where another program started the worker."""
    assert describe_exit(139, wrapped=True) == describe_exit(-signal.SIGSEGV)
    assert describe_exit(3, wrapped=True).reason is Reason.EXITED


def test_a_kill_while_memory_ran_out_is_put_down_to_memory() -> None:
    """When the system has killed processes for memory meanwhile, SIGKILL came from there."""
    end = describe_exit(-signal.SIGKILL, memory_ran_out=True)
    assert end.reason is Reason.OUT_OF_MEMORY
    assert end.words == "was killed by SIGKILL (the host ran out of memory)"
    assert describe_exit(-signal.SIGSEGV, memory_ran_out=True).reason is Reason.CRASHED


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (["/v/triton/backends/nvidia/compiler.py", "/v/triton/runtime/jit.py", "/p/k.py"], "Triton"),
        (["/lib/ast.py", "/v/triton/compiler/code_generator.py", "/p/k.py"], "Triton"),
        (["/v/torch/_inductor/compile_fx.py", "/v/torch/_dynamo/eval_frame.py"], "torch.compile"),
        (["/v/cutlass/base_dsl/compiler.py", "/v/cutlass/base_dsl/dsl.py", "/p/k.py"], "CuTe"),
    ],
)
def test_who_hangs_in_a_compiler_is_told_so(frames: list[str], words: str) -> None:
    """A kernel of 216 unrolled taps compiled for a minute, and was told to look for a deadlock."""
    lines = [f'  File "{file}", line 7 in f' for file in frames]
    output = "\n".join(["stderr:", "words", "Stack (most recent call first):", *lines, ""])
    place, remedy = hung_in(output)
    assert place == f", while {words} was compiling"
    assert remedy.endswith("unroll less, or raise the time limit with --cgins-timeout")


@pytest.mark.parametrize(
    "frames",
    [
        ["/v/torch/_library/custom_ops.py", "/v/torch/_dynamo/eval_frame.py"],
        ["/v/triton/backends/nvidia/driver.py", "/v/triton/runtime/jit.py"],
        ["/v/cutlass/base_dsl/jit_executor.py", "/v/cutlass/base_dsl/dsl.py"],
    ],
)
def test_who_hangs_in_what_was_compiled_does_not_compile(frames: list[str]) -> None:
    """Launchers lie beside compilers."""
    lines = [f'  File "{file}", line 7 in f' for file in frames]
    place, remedy = hung_in("\n".join(["Stack (most recent call first):", *lines, ""]))
    assert (place, remedy) == (f", in f ({frames[0].rpartition('/')[2]}:7)", "")


@pytest.mark.parametrize("output", ["", "stderr:\nStack (most recent call first):\n", "File x"])
def test_a_process_without_a_stack_is_nowhere(output: str) -> None:
    """One that took the signal away, or died of it."""
    assert hung_in(output) == ("", "")
