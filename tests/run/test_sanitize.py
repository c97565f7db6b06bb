"""Kernels under compute-sanitizer, with a stand-in for the program that logs what it is told and runs the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core.verdict import Probe, Reason, Status
from pytest_cgins.run import sanitizer
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.sanitize import Sanitizers
from pytest_cgins.verify.messages import PackedInputs, RunKernel, read
from tests.run.relu import python_kernel, relu_set

STAND_IN = """\
#!/bin/sh
# Writes a log as compute-sanitizer does, and becomes the worker.
while [ "$1" != "{python}" ]; do
  [ "$1" = --log-file ] && log=${{2%%%p}}$$
  [ "$1" = --tool ] && tool=$2
  shift
done
printf '========= COMPUTE-SANITIZER\\n' > "$log"
if [ -f "{folder}/$tool" ]; then cat "{folder}/$tool" >> "$log"; fi
exec "$@"
"""
Tools = tuple[str, ...]
BOTH: Tools = ("memcheck", "racecheck")
FINDING = """\
========= Invalid __global__ write of size 4 bytes
=========     at relu(float *)+0x90 in relu.cu:12
=========     by thread (31,0,0) in block (3,0,0)
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files named after tools are what the stand-in logs."""
    import sys

    program = tmp_path / sanitizer.PROGRAM
    program.write_text(STAND_IN.format(python=sys.executable, folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setattr(sanitizer, "find", lambda: str(program))
    return tmp_path


@pytest.fixture
def sanitizers() -> Iterator[Sanitizers]:
    made = Sanitizers(BOTH, env={}, seed=1, timeout_s=60.0)
    yield made
    made.close()


def probes(
    sanitizers: Sanitizers, device: str = "cuda:0", module: str = "torch", root: str = "", tools: Tools = BOTH
) -> tuple[Probe, ...]:
    """Run a module's `relu` on one tensor, on the CPU whatever the case says."""
    found: tuple[Probe, ...] = asked(sanitizers.probes, device, module, root, tools)
    return found


def asked(ask: Callable[..., Any], device: str, module: str, root: str, tools: Tools = BOTH) -> Any:
    """What one of its functions says of a module's `relu`."""
    kernel = python_kernel(Path(root), module)
    kernel = replace(kernel, source=replace(kernel.source, files=(), import_root=""))
    one, content = relu_set(torch.ones(3))
    request = RunKernel(kernel=kernel, device="cpu", import_root=root, probes=tools)
    with content:
        return ask(device, request, [(read(PackedInputs, one), content)])


@pytest.mark.exam
def test_a_finding_makes_suspect_by_its_tool(stand_in: Path, sanitizers: Sanitizers) -> None:
    """The reason is the tool, the message has the finding and its line; a tool that finds nothing holds."""
    (stand_in / "memcheck").write_text(FINDING)
    memory, race = probes(sanitizers)
    assert (memory.name, memory.outcome, memory.reason) == ("memcheck", "tripped", Reason.MEMCHECK)
    assert memory.message.splitlines()[0] == (
        "Invalid __global__ write of size 4 bytes at relu(float *) in relu.cu:12"
    )
    assert "by thread (31,0,0)" in memory.message
    assert (race.outcome, race.reason) == ("held", Reason.OK)


@pytest.mark.exam
def test_findings_of_an_earlier_kernel_are_not_told_again(stand_in: Path, sanitizers: Sanitizers) -> None:
    """The worker stays, and each request reads only what was logged since the last."""
    (stand_in / "memcheck").write_text(FINDING)
    (first,) = probes(sanitizers, tools=BOTH[:1])
    (second,) = probes(sanitizers, tools=BOTH[:1])
    assert (first.outcome, second.outcome) == ("tripped", "held")


@pytest.mark.exam
def test_a_tool_that_has_said_much_is_started_anew(stand_in: Path, sanitizers: Sanitizers) -> None:
    """After so many reports it would fall silent; the next kernel's findings are told by another process."""
    (stand_in / "memcheck").write_text(FINDING * sanitizer.MOST_LOGGED)
    (first,) = probes(sanitizers, tools=BOTH[:1])
    (stand_in / "memcheck").write_text(FINDING.replace("relu.cu:12", "gelu.cu:7"))
    (second,) = probes(sanitizers, tools=BOTH[:1])
    assert first.message.splitlines()[-1] == f"and {sanitizer.MOST_LOGGED - 3} more"
    assert "gelu.cu:7" in second.message


def test_cpu_kernels_are_not_sanitized(stand_in: Path, sanitizers: Sanitizers) -> None:
    """The report says that the tools look into CUDA kernels only."""
    assert {probe.outcome for probe in probes(sanitizers, "cpu")} == {"not-run"}
    assert "CUDA kernels only" in probes(sanitizers, "cpu")[0].message
    assert not sanitizers._workers


def test_a_missing_program_is_an_error_with_its_remedy(
    sanitizers: Sanitizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for and cannot be had never looks like a clean run."""
    monkeypatch.setattr(sanitizer, "find", lambda: "")
    with pytest.raises(EndedError) as caught:
        probes(sanitizers)
    verdict = caught.value.verdict
    assert (verdict.status, verdict.reason) == (Status.INFRASTRUCTURE, Reason.TOOL_MISSING)
    assert "compute-sanitizer is not installed" in verdict.message
    assert "CUDA toolkit" in verdict.message


@pytest.mark.exam
def test_a_device_that_the_tool_does_not_know_is_an_error(stand_in: Path, sanitizers: Sanitizers) -> None:
    """The sanitizer's own trouble is not taken for a kernel without findings."""
    (stand_in / "memcheck").write_text("========= Device not supported. Please refer to the documentation.\n")
    with pytest.raises(EndedError) as caught:
        probes(sanitizers)
    assert caught.value.verdict.status is Status.INFRASTRUCTURE
    assert "compute-sanitizer (memcheck): Device not supported" in caught.value.verdict.message


@pytest.mark.exam
@pytest.mark.parametrize(
    ("body", "timeout_s", "logged", "words"),
    [
        ("while True: pass", 0.1, "", "did not answer 'run' within 2 s"),
        ("raise MemoryError('no room')", 60.0, "", "no room"),
        ("raise MemoryError", 60.0, FINDING, ""),
    ],
)
def test_what_a_tool_costs_makes_no_kernel_suspect(
    stand_in: Path, body: str, timeout_s: float, logged: str, words: str
) -> None:
    """A kernel that under a tool is too slow, or lacks memory, is neither suspect nor clean; what the tool wrote before counts."""
    (stand_in / "memcheck").write_text(logged)
    (stand_in / "costly.py").write_text(f"def relu(input):\n    {body}\n")
    sanitizers = Sanitizers(("memcheck",), env={}, seed=1, timeout_s=timeout_s)
    try:
        (memory,) = probes(sanitizers, module="costly", root=str(stand_in))
    finally:
        sanitizers.close()
    if logged:
        assert (memory.outcome, memory.reason) == ("tripped", Reason.MEMCHECK)
    else:
        assert (memory.outcome, memory.reason) == ("not-run", Reason.OK)
        assert memory.message.startswith("it found nothing before the kernel ended under it: ")
        assert words in memory.message


@pytest.mark.exam
def test_a_kernel_that_dies_under_a_tool_is_not_run_again(stand_in: Path, sanitizers: Sanitizers) -> None:
    """What the tool wrote names its line: a process for each set of inputs would take seconds each."""
    (stand_in / "memcheck").write_text(FINDING)
    body = "    open('ran', 'a').write('.')\n    os.abort()\n"
    (stand_in / "dies.py").write_text(
        f"import os\n\ndef relu(input):\n{body}".replace("'ran'", repr(str(stand_in / "ran")))
    )
    (memory,) = probes(sanitizers, module="dies", root=str(stand_in), tools=BOTH[:1])
    assert (memory.outcome, memory.reason) == ("tripped", Reason.MEMCHECK)
    assert (stand_in / "ran").read_text() == "."


def test_a_worker_that_never_came_up_is_not_its_fault(stand_in: Path, sanitizers: Sanitizers) -> None:
    """The tool could not start it: that is the machine's trouble, and said as such."""
    (stand_in / sanitizer.PROGRAM).write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(EndedError) as caught:
        probes(sanitizers)
    verdict = caught.value.verdict
    assert (verdict.status, verdict.reason) == (Status.INFRASTRUCTURE, Reason.WORKER_LOST)


@pytest.mark.exam
@pytest.mark.parametrize(
    ("status", "device", "told"),
    [
        (Status.RUNTIME_ERROR, "cuda:0", True),
        (Status.RUNTIME_ERROR, "cpu", False),
        (Status.TIMEOUT, "cuda:0", False),
    ],
)
def test_findings_are_told_with_how_a_kernel_failed(
    stand_in: Path, sanitizers: Sanitizers, status: Status, device: str, told: bool
) -> None:
    """A kernel that broke its context runs under the tools, too; that it breaks there as well is no news."""
    (stand_in / "racecheck").write_text(FINDING)
    (stand_in / "broken.py").write_text("def relu(input):\n    import os\n    os._exit(3)\n")
    failed = EndedError(status, Reason.ILLEGAL_ADDRESS, "an illegal address")
    found = asked(partial(sanitizers.findings, end=failed), device, "broken", str(stand_in))
    first = "compute-sanitizer (racecheck): Invalid __global__ write of size 4 bytes at relu(float *) in relu.cu:12"
    assert [line.splitlines()[0] for line in found] == [first] * told
    assert (
        failed.with_more(found).verdict.message.splitlines()[: 1 + told]
        == ["an illegal address", first][: 1 + told]
    )
