"""Each way to break a worker: it has a reason of its own, costs one request, and leaves no process behind."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.core.errors import ProtocolError, WorkerCrashed, WorkerError, WorkerExceeded, WorkerTimeout
from pytest_cgins.core.verdict import Reason
from pytest_cgins.run.limits import Limits
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import WorkerProcess

from .living import LIMIT_S, ask, is_running, wait_until_gone

LIMITS = Limits(memory_bytes=256 * 2**20, output_bytes=2**20, processes=6, threads=40)
ODD_SECONDS = 61.4142  # by which the sleeping daemons of these tests are found


@pytest.fixture
def pool(toy_path: dict[str, str]) -> Iterator[WorkerPool]:
    with WorkerPool(
        services={"toy": "toys:Toy", "reference": "toys:Toy"}, env=toy_path, limits=LIMITS
    ) as pool:
        yield pool


def commands() -> list[str]:
    """Command lines of all processes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("method", "params", "timeout_s", "error", "reason", "words"),
    [
        ("loop", {}, 0.5, WorkerTimeout, Reason.TIMED_OUT, "did not answer 'loop' within 0.5 s"),
        ("grows", {}, LIMIT_S, WorkerExceeded, Reason.OUT_OF_MEMORY, "of the host's memory; 256 MiB is the"),
        ("child_grows", {}, LIMIT_S, WorkerExceeded, Reason.OUT_OF_MEMORY, "of the host's memory"),
        ("floods_stderr", {}, LIMIT_S, WorkerExceeded, Reason.OUTPUT_FLOOD, "printed more than 1 MiB"),
        (
            "forks_many",
            {"count": 10, "seconds": ODD_SECONDS},
            LIMIT_S,
            WorkerExceeded,
            Reason.PROCESS_FLOOD,
            "6 and 40 are the limits",
        ),
        ("starts_threads", {"count": 50}, LIMIT_S, WorkerExceeded, Reason.PROCESS_FLOOD, "0 processes with 51 threads"),
        ("closes_everything", {}, LIMIT_S, WorkerCrashed, Reason.CONNECTION_CLOSED, "closed its connection"),
        ("closes_and_returns", {}, LIMIT_S, WorkerCrashed, Reason.CONNECTION_CLOSED, "found its connection closed"),
        ("writes_forgery", {}, LIMIT_S, ProtocolError, Reason.FORGED_ANSWER, "before it was asked for"),
        ("writes_much", {}, LIMIT_S, ProtocolError, Reason.FORGED_ANSWER, "a frame of 62914564 bytes was announced"),
        ("writes_done_and_answer", {}, LIMIT_S, ProtocolError, Reason.FORGED_ANSWER, "before it was asked for"),
        ("writes_done_and_waits", {}, LIMIT_S, ProtocolError, Reason.FORGED_ANSWER, "does not answer the question"),
        ("writes_done_and_exits", {}, LIMIT_S, WorkerCrashed, Reason.EXITED, "exited with code 3"),
        ("answers_both", {}, LIMIT_S, ProtocolError, Reason.FORGED_ANSWER, "does not answer the question"),
    ],
)  # fmt: skip
def test_a_fault_costs_one_request_and_names_itself(
    pool: WorkerPool,
    method: str,
    params: dict[str, Any],
    timeout_s: float,
    error: type[WorkerError],
    reason: Reason,
    words: str,
) -> None:
    """The error has the reason's code and a remedy; the next request finds a fresh process."""
    before = ask(pool, "pid")
    with pytest.raises(error) as caught:
        pool.call("toy", method, params, timeout_s=timeout_s)
    assert Reason(caught.value.fault) is reason
    assert words in caught.value.what
    assert caught.value.remedy
    assert not is_running(before)
    assert ask(pool, "pid") != before


def test_memory_that_forks_share_counts_once(pool: WorkerPool) -> None:
    """Four processes with the same 100 MiB are no reason to end the worker at 256 MiB."""
    params = {"nbytes": 100 * 2**20, "count": 3, "seconds": 0.6}
    reply = pool.call("toy", "shares_memory", params, timeout_s=LIMIT_S)
    assert reply.result == params["nbytes"]


def test_a_flood_is_not_kept(pool: WorkerPool) -> None:
    """Of a flood the end is kept, with what was dropped counted, and what the other stream said."""
    with pytest.raises(WorkerExceeded) as caught:
        ask(pool, "floods_stderr")
    output = caught.value.output
    assert output.startswith("the last of stdout\nstderr:\n[")
    assert "bytes of output before this were dropped]" in output
    assert len(output) < 20_000


def test_no_daemon_of_a_flood_is_left(pool: WorkerPool) -> None:
    """After a flood of processes there is none of them."""
    with pytest.raises(WorkerExceeded):
        pool.call("toy", "forks_many", {"count": 10, "seconds": ODD_SECONDS}, timeout_s=LIMIT_S)
    assert not [command for command in commands() if f"sleep {ODD_SECONDS}" in command]


def test_strangers_are_left_alone(pool: WorkerPool) -> None:
    """A flood is counted and killed without the processes of others, not even those of pytest itself."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        with pytest.raises(WorkerExceeded):
            pool.call("toy", "forks_many", {"count": 10, "seconds": ODD_SECONDS}, timeout_s=LIMIT_S)
        pool.close()
        assert stranger.poll() is None
        stranger.kill()


def test_a_late_forgery_costs_nobody(pool: WorkerPool) -> None:
    """What is written between two requests spends the process, and the next request gets another."""
    before = ask(pool, "writes_later")
    deadline = time.monotonic() + 10
    while pool._workers["toy"].alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ask(pool, "pid") != before


WRAPPERS = {
    "replaced": lambda command: ["env", "CGINS_TOY=wrapped", *command],
    "around": lambda command: ["sh", "-c", 'CGINS_TOY=wrapped "$@"; exit $?', "sh", *command],
}


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_another_program_can_be_put_around_a_worker(toy_path: dict[str, str], wrapper: str) -> None:
    """Only what runs kernels is wrapped; it answers, its crash is named, and it is replaced."""
    services = {"toy": "toys:Toy", "reference": "toys:Toy"}
    with WorkerPool(services=services, env=toy_path, wrap=WRAPPERS[wrapper]) as pool:
        variables = {role: ask(pool, "variable", role) for role in services}
        assert variables == {"toy": "wrapped", "reference": "blue"}
        with pytest.raises(WorkerCrashed, match=r"killed by SIGSEGV \(segmentation fault\)") as caught:
            ask(pool, "segfault")
        assert caught.value.fault == "crashed"
        grandchild = ask(pool, "grandchild")
        pid = ask(pool, "pid")
    assert not is_running(pid)
    assert not is_running(grandchild)


def test_a_wrapper_that_fails_is_no_fault_of_a_kernel(toy_path: dict[str, str]) -> None:
    """A program around the worker that does not come up has its last words shown, and no kernel is blamed."""
    refuse = ["sh", "-c", "echo no namespaces here >&2; exit 125"]
    words = r"exited with code 125 without an answer, during 'start'"
    with (
        WorkerPool(services={"toy": "toys:Toy"}, env=toy_path, wrap=lambda _: refuse) as pool,
        pytest.raises(WorkerCrashed, match=words) as caught,
    ):
        ask(pool, "pid")
    assert caught.value.fault == "worker-lost"
    assert caught.value.output == "stderr:\nno namespaces here\n"


def test_a_wrapped_worker_ends_with_its_connection(toy_path: dict[str, str]) -> None:
    """Where another program is its parent, a worker ends once ours has closed the connection."""
    worker = WorkerProcess.start("toys:Toy", name="toy", env=toy_path, wrap=WRAPPERS["around"])
    pid = worker.call("pid", {}, timeout_s=LIMIT_S).result
    assert pid != worker.pid
    worker._channel.close()
    assert wait_until_gone(pid)
    worker.close()
