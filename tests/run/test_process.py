"""Worker processes, and everything that code in them can do to its parent."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ProtocolError, ServiceError, WorkerCrashed, WorkerError, WorkerTimeout
from pytest_cgins.run.pool import WorkerPool

from .living import LIMIT_S, ask, is_running, wait_until_gone


def test_a_call_brings_back_result_and_buffers(pool: WorkerPool) -> None:
    """JSON goes there and back, and so do bytes."""
    with Buffer.from_chunks([b"abc" * 1000]) as buffer:
        reply = pool.call("toy", "echo", {"numbers": [1, 2.5, None]}, [buffer], timeout_s=LIMIT_S)
    assert reply.result == {"numbers": [1, 2.5, None]}
    assert [bytes(received.view()) for received in reply.buffers] == [b"abc" * 1000]


def test_a_service_rests_after_each_answer(pool: WorkerPool) -> None:
    """What goes wrong meanwhile is for the next request to tell."""
    calls = [ask(pool, "rests") for _ in range(3)]
    assert calls == [1, 2, 3]


def test_variables_reach_the_service(pool: WorkerPool) -> None:
    """The process gets the environment."""
    assert ask(pool, "variable") == "blue"


def test_the_collector_is_on_and_leaves_imports_alone(pool: WorkerPool) -> None:
    """What the service's start has made is not gone through; what a kernel makes is."""
    assert ask(pool, "collector") == [True, True, False]


def test_output_comes_with_the_reply_it_was_printed_in(pool: WorkerPool) -> None:
    """Python's and C's stdout and stderr are captured apart, call by call."""
    reply = pool.call("toy", "say", {"text": "hello"}, timeout_s=LIMIT_S)
    assert sorted(reply.printed.stdout.splitlines()) == ["from C", "hello"]
    assert reply.printed.stderr == "aside\n"
    assert reply.output == f"{reply.printed.stdout}stderr:\naside\n"
    assert pool.call("toy", "echo", {}, timeout_s=LIMIT_S).output == ""


def test_a_flood_of_output_is_cut(pool: WorkerPool) -> None:
    """Two megabytes of output neither block the worker nor fill the parent's memory."""
    output = pool.call("toy", "prints_much", {}, timeout_s=LIMIT_S).output
    assert "bytes of output before this were dropped" in output
    assert len(output) < 20_000
    assert "line 19999 " in output


def test_a_service_that_is_loud_at_start_does_not_block(pool: WorkerPool) -> None:
    """The pipe is emptied while the first answer is awaited."""
    assert pool.call("loud", "echo", {"a": 1}, timeout_s=LIMIT_S).result == {"a": 1}


def test_the_current_directory_is_not_imported_from(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own `trace.py` does not shadow anything in a worker."""
    monkeypatch.chdir(tmp_path)
    path = ask(pool, "path")
    assert not {"", str(tmp_path)} & set(path)


def test_programs_that_a_kernel_starts_inherit_no_connection(pool: WorkerPool) -> None:
    """Nothing but the standard descriptors is open in a child of the worker."""
    open_there = ask(pool, "descriptors")
    assert sorted(eval(open_there)) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("method", "kind", "words"),
    [
        ("raises", "KeyError", "no such row"),
        ("raises_unprintable", "Unprintable", "its text could not be made: RuntimeError"),
        ("raises_surrogates", "ValueError", "half a pair: ?"),
        ("system_exit", "SystemExit", "0"),
        ("keyboard_interrupt", "KeyboardInterrupt", ""),
        ("nan", "ProtocolError", "cannot be written as JSON"),
        ("_private", "ProtocolError", "Toy has no method '_private'"),
        ("__init__", "ProtocolError", "Toy has no method '__init__'"),
        ("absent", "ProtocolError", "Toy has no method 'absent'"),
        ("fatal", "ProtocolError", "Toy has no method 'fatal'"),
    ],
)
def test_what_a_service_raises_is_an_answer(pool: WorkerPool, method: str, kind: str, words: str) -> None:
    """Any exception becomes a ServiceError with the remote type and traceback, and the worker lives on."""
    before = ask(pool, "pid")
    with pytest.raises(ServiceError) as caught:
        ask(pool, method)
    assert caught.value.kind == kind
    assert f"{kind} in the toy worker: " in caught.value.what
    assert words in caught.value.what
    assert "Traceback" in caught.value.trace
    assert ask(pool, "pid") == before


@pytest.mark.parametrize(
    ("method", "words", "fault", "returncode"),
    [
        ("segfault", "was killed by SIGSEGV (segmentation fault)", "crashed", -11),
        ("abort", "was killed by SIGABRT (abort)", "aborted", -6),
        ("killed", "was killed by SIGKILL (killed from outside)", "crashed", -9),
        ("exit_zero", "exited with code 0 without an answer", "exited", 0),
        ("prints_forgery", "exited with code 0 without an answer", "exited", 0),
        ("forks_and_exits", "exited with code 3 without an answer", "exited", 3),
    ],
)
def test_a_crash_costs_one_request(
    pool: WorkerPool, method: str, words: str, fault: str, returncode: int
) -> None:
    """The end of the process is named, with a remedy, and the next call finds a new process."""
    before = ask(pool, "pid")
    with pytest.raises(WorkerCrashed) as caught:
        ask(pool, method)
    assert caught.value.what == f"the toy worker {words}, during '{method}'"
    assert caught.value.remedy
    assert (caught.value.fault, caught.value.returncode) == (fault, returncode)
    assert wait_until_gone(before)
    assert ask(pool, "pid") != before


def test_a_crash_keeps_the_last_words(pool: WorkerPool) -> None:
    """What C code printed before the crash is there, and so is the Python stack that led to it."""
    with pytest.raises(WorkerCrashed) as caught:
        ask(pool, "segfault")
    assert "the last words" in caught.value.output
    assert "in segfault" in caught.value.output


@pytest.mark.parametrize("method", ["loop", "loop_in_c", "chatter"])
def test_a_hang_is_killed_and_its_place_told(pool: WorkerPool, method: str) -> None:
    """A worker past its limit is killed, also when it holds the interpreter or never stops printing."""
    pid = ask(pool, "pid")
    start = time.monotonic()
    with pytest.raises(WorkerTimeout) as caught:
        pool.call("toy", method, {}, timeout_s=0.2)
    assert time.monotonic() - start < 5
    words = f"the toy worker did not answer '{method}' within 0.2 s and was killed"
    assert re.fullmatch(rf"{words}, in {method} \(toys\.py:\d+\)", caught.value.what)
    assert caught.value.remedy.endswith("raise the time limit with --cgins-timeout")
    assert wait_until_gone(pid)
    assert pool.call("toy", "echo", {"a": 1}, timeout_s=LIMIT_S).result == {"a": 1}


def test_who_compiles_has_the_limit_some_times_over(pool: WorkerPool) -> None:
    """A kernel that Triton compiled for each of thirty sizes was called TIMEOUT; what it prints is kept, its stacks are not."""
    pid = ask(pool, "pid")
    reply = pool.call("toy", "compile_long", {"seconds": 1.2}, timeout_s=0.25)
    assert "compiling" in reply.output
    assert "most recent call" not in reply.output
    with pytest.raises(WorkerTimeout) as caught:
        pool.call("toy", "compile_long", {"seconds": 60}, timeout_s=0.1)
    words = (
        "the toy worker did not answer 'compile_long' within 1 s and was killed, while Triton was compiling"
    )
    assert caught.value.what == words
    assert "unroll less" in caught.value.remedy
    assert "compiling" in caught.value.output
    assert wait_until_gone(pid)
    with pytest.raises(WorkerTimeout, match=r"within 0\.1 s and was killed, while Triton"):
        pool.call("toy", "compile_long", {"seconds": 60}, timeout_s=0.1, extends=False)


def test_a_late_reference_is_not_blamed_on_a_kernel(toy_path: dict[str, str]) -> None:
    """The reference worker runs no kernel, so nobody is sent to look for a loop in one."""
    with WorkerPool(services={"reference": "toys:Toy"}, env=toy_path) as pool:
        ask(pool, "pid", "reference")
        with pytest.raises(WorkerTimeout) as caught:
            pool.call("reference", "loop", {}, timeout_s=0.2)
    assert caught.value.remedy.startswith("it runs torch and no kernel: ")
    assert "deadlock" not in caught.value.remedy


def test_a_spent_process_is_replaced(pool: WorkerPool) -> None:
    """A service that calls itself fatal answers once more, and never again."""
    before = ask(pool, "pid")
    with pytest.raises(ServiceError, match="illegal memory access"):
        ask(pool, "fatal_error")
    assert wait_until_gone(before)
    assert ask(pool, "pid") != before


def test_an_error_in_a_thread_is_not_the_worker_s(pool: WorkerPool) -> None:
    """A thread that dies leaves the answer alone, and its traceback in the output."""
    reply = pool.call("toy", "thread_error", {}, timeout_s=LIMIT_S)
    assert reply.result == "survived"
    assert "ZeroDivisionError" in reply.output


@pytest.mark.parametrize(
    ("role", "error", "words"),
    [
        ("broken", ServiceError, "ValueError in the broken worker: no device for me"),
        ("absent", ServiceError, "AttributeError in the absent worker: module 'toys' has no attribute"),
        ("leaves", WorkerCrashed, "the leaves worker exited with code 0 without an answer"),
    ],
)
def test_a_service_that_cannot_start_says_so(
    pool: WorkerPool, role: str, error: type[WorkerError], words: str
) -> None:
    """What goes wrong at start is the first call's error, and every later one's; no kernel is blamed for it."""
    for _ in range(2):
        with pytest.raises(error, match=words) as caught:
            ask(pool, "echo", role)
        assert caught.value.fault == "worker-lost"


def test_the_whole_group_dies_with_the_worker(pool: WorkerPool) -> None:
    """Processes that a kernel left behind are gone once the worker is."""
    grandchild = ask(pool, "grandchild")
    assert is_running(grandchild)
    pool.close()
    assert wait_until_gone(grandchild)


def test_a_message_that_cannot_be_sent_raises(pool: WorkerPool) -> None:
    """NaN in the parameters is the caller's error."""
    with pytest.raises(ProtocolError, match="cannot be written as JSON"):
        pool.call("toy", "echo", {"x": float("nan")}, timeout_s=LIMIT_S)
