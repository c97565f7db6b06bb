"""What compute-sanitizer's log says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.run import sanitizer

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at gelu_kernel(const float *, float *, long)+0x90 in gelu.cu:12
=========     by thread (31,0,0) in block (3,0,0)
=========     Address 0x7f6510200200 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6510200000 of size 512 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: [0x2f3f1b] in libcuda.so.1
=========         Host Frame: gelu in gelu.cu:20 [0xf1a]
=========
========= Program hit cudaErrorInvalidValue (error 1) due to "invalid argument" on CUDA API call to cudaFuncSetAttribute.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 1 error
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum_rows(const float *, float *)+0x280 in rows.cu:25
=========     and Read access at sum_rows(const float *, float *)+0x560 in rows.cu:29 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
INITCHECK = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)+0x70
=========     by thread (1,0,0) in block (0,0,0)
========= Uninitialized __global__ memory read of size 2 bytes
=========     at scale(__half *)+0x70 in scale.cu:7
=========     by thread (1,0,0) in block (0,0,0)
"""
SYNCCHECK = """\
========= Barrier error detected. Divergent thread(s) in block
=========     at reduce(float *)+0xd0 in reduce.cuh:17
=========     by thread (0,0,0) in block (0,0,0)
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            MEMCHECK,
            [
                "Invalid __global__ write of size 4 bytes at gelu_kernel(const float *, float *, long) in gelu.cu:12"
            ],
        ),
        (
            RACECHECK,
            ["Error: Race reported between Write access at sum_rows(const float *, float *) in rows.cu:25"],
        ),
        (
            INITCHECK,
            ["Uninitialized __global__ memory read of size 2 bytes at scale(__half *) in scale.cu:7"],
        ),
        (
            SYNCCHECK,
            ["Barrier error detected. Divergent thread(s) in block at reduce(float *) in reduce.cuh:17"],
        ),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", []),
        ("", []),
    ],
)
def test_findings_name_what_function_and_line(log: str, expected: list[str]) -> None:
    """One line a finding; API errors and torch's own kernels are none."""
    assert [finding.text() for finding in sanitizer.parse(log)] == expected


def test_details_leave_the_host_out() -> None:
    """Thread, address and allocation are kept, the host's stack is not."""
    (finding,) = sanitizer.parse(MEMCHECK)
    assert finding.details[1:] == (
        "by thread (31,0,0) in block (3,0,0)",
        "Address 0x7f6510200200 is out of bounds",
        "and is 1 bytes after the nearest allocation at 0x7f6510200000 of size 512 bytes",
    )


def test_a_finding_without_line_information_has_its_function() -> None:
    """Machine code that was built without -lineinfo."""
    (finding,) = sanitizer.parse(
        "========= Invalid __shared__ read of size 4 bytes\n=========     at f(int *)+0x10\n"
    )
    assert (finding.function, finding.place) == ("f(int *)", "")


def test_trouble_of_the_sanitizer_itself_is_no_finding() -> None:
    """A device that it does not know is told apart from a clean run."""
    log = "========= COMPUTE-SANITIZER\n========= Device not supported. Please refer to the documentation.\n"
    assert sanitizer.parse(log) == ()
    assert sanitizer.trouble(log).startswith("Device not supported")
    assert sanitizer.trouble(MEMCHECK) == ""


def test_the_command_goes_around_the_workers(tmp_path: Path) -> None:
    """Tool and log are options; the worker's own command stands at the end."""
    command = sanitizer.around("/opt/compute-sanitizer", "memcheck", tmp_path / "log")(
        ["python", "-c", "pass"]
    )
    assert command[0] == "/opt/compute-sanitizer"
    assert command[-3:] == ["python", "-c", "pass"]
    assert command[command.index("--tool") + 1] == "memcheck"
    assert command[command.index("--log-file") + 1] == str(tmp_path / "log")


@given(st.text(alphabet="= \nat in+0xf:(1)[]E", max_size=200))
def test_any_text_is_parsed(text: str) -> None:
    """A log that was cut, or that a kernel has written into, is no error."""
    sanitizer.parse(text)
    sanitizer.trouble(text)
