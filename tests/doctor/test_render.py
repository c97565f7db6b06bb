"""The report as text."""

from __future__ import annotations

import pytest

from pytest_cgins.doctor.examine import report
from pytest_cgins.doctor.findings import DoctorReport, Finding
from pytest_cgins.doctor.render import render

LONG = "/opt/" + "very-long-name/" * 8 + "bin/nvcc"


def make(
    state: str, name: str = "nvcc", *, group: str = "CUDA", required: bool = False, **texts: str
) -> Finding:
    return Finding(
        group=group,
        name=name,
        state=state,  # type: ignore[arg-type]
        disables="kernels that are written in CUDA C++",
        remedy="install the CUDA toolkit, 12.1 or later, and set CUDA_HOME to the folder in which it lies",
        required=required,
        **texts,
    )


def report_of(*findings: Finding) -> DoctorReport:
    return report(findings, probed=False)


def test_eighty_columns() -> None:
    """No line is longer than 80 columns, but for a path, which stands whole to be copied."""
    text = render(
        report_of(make("ok", where=LONG, version="13.0.88"), make("unusable", "gcc", detail="word " * 40)),
        width=80,
        colour=False,
    )
    assert all(len(line) <= 80 or line.strip() == LONG for line in text.splitlines()), text
    assert text.endswith("\n")
    assert text.isascii() or "→" in text


def test_groups_and_remedies() -> None:
    """Each group has its heading once; only what is not well says what it costs and what to do."""
    text = render(
        report_of(
            make("ok"), make("missing", "ncu", group="Profiling"), make("ok", "sanitizer", group="Profiling")
        ),
        width=80,
        colour=False,
    )
    lines = text.splitlines()
    assert [lines.count("CUDA"), lines.count("Profiling")] == [1, 1]
    assert text.count("disables kernels") == 1
    assert text.count("→ install the CUDA toolkit") == 1
    assert "  missing   ncu\n            disables kernels that are written in CUDA C++\n" in text


def test_last_line_is_the_verdict() -> None:
    """Ready, ready with gaps, or not ready, with the names of what is needed."""
    assert render(report_of(make("ok")), width=80, colour=False).endswith("\nReady.\n")
    gaps = render(report_of(make("ok"), make("unknown")), width=80, colour=False)
    assert "Ready. 1 of 2 parts are not there or not known" in gaps.splitlines()[-1]
    broken = report_of(make("too-old", "torch", required=True), make("unknown", "Python", required=True))
    assert "Not ready: torch is needed for everything." in render(broken, width=80, colour=False)


@pytest.mark.parametrize(
    ("state", "required", "status"),
    [
        ("ok", True, 0), ("missing", True, 1), ("too-old", True, 1), ("unusable", True, 1), ("unknown", True, 0),
        ("missing", False, 0), ("unusable", False, 0),
    ],
)  # fmt: skip
def test_exit_status(state: str, required: bool, status: int) -> None:
    """1 only for something required; what could not be found out is no failure."""
    assert report_of(make(state, required=required)).exit_status == status


def test_colours() -> None:
    """Only where they are asked for."""
    assert "\x1b[" in render(report_of(make("missing")), width=80, colour=True)
    assert "\x1b[" not in render(report_of(make("missing")), width=80, colour=False)
