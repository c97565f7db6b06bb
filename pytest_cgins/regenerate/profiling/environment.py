"""What a machine has to look into kernels with, as the doctor finds it, and whether the cases can be measured at all."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytest_cgins.building import sass
from pytest_cgins.config import Config
from pytest_cgins.doctor import examine, parse, profiling, tools
from pytest_cgins.doctor.compilers import CUDA
from pytest_cgins.doctor.findings import Finding
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.profiling import selection
from pytest_cgins.regenerate.profiling.evidence_documents import (
    EVIDENCE_VERSION,
    EnvironmentEvidence,
    Preflight,
)

GROUPS = (CUDA, profiling.PROFILING)
NAMES = ("Python", "torch", "C++ compiler", "Triton", "triton")
LIBRARIES = (
    "nvidia-cutlass", "nvidia-cutlass-dsl", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas",
)  # fmt: skip
CLANG_TIDY = "clang-tidy"


def examined(*, probe: bool, preflight: Sequence[Preflight] = ()) -> EnvironmentEvidence:
    """Look at this machine; a few seconds.

    Args:
        probe: also have ncu measure a tiny kernel.
        preflight: of the cases that were asked for.
    """
    report = examine.examine(probe=probe)
    own = [finding for finding in report.findings if finding.group in GROUPS or finding.name in NAMES]
    findings = [_with_package(finding) for finding in (*own, *libraries(), find_clang_tidy())]
    by_name = {finding.name: finding for finding in findings}
    probed, ncu = by_name.get("counters (probe)", by_name.get("counters")), by_name.get("ncu")
    return EnvironmentEvidence(
        version=EVIDENCE_VERSION,
        cgins=report.cgins,
        platform=report.platform,
        findings=tuple(findings),
        counters=probed is not None and probed.state == "ok" and ncu is not None and bool(ncu.where),
        sass=sass.disassembler() is not None,
        degraded=tuple(_degraded(findings)),
        preflight=tuple(preflight),
    )


def preflight(config: Config, kernels: Sequence[str]) -> tuple[Preflight, ...]:
    """Whether the op of each case replays, and its kernel is built and right; nothing is timed.

    Args:
        config: the file.
        kernels: each `NAME` or `NAME/IMPLEMENTATION`.
    """
    evaluator = Evaluator(config, seed=0, timing=False, probes="off")
    with closing(evaluator):
        chosen = [selection.chosen(config, name, None) for name in kernels]
        cases = [case for one in chosen for case in selection.cases_of(evaluator.cases(), one, "")]
        evaluator.build_ahead(cases)
        found = [evaluator.evaluate(case) for case in cases]
    return tuple(
        Preflight(
            case=one.case.name,
            status=one.verdict.status.value,
            outcome=one.verdict.status.outcome,
            message=one.verdict.message.partition("\n")[0],
        )
        for one in found
    )


def find_clang_tidy() -> Finding:
    """The program that reads C++ for mistakes."""
    return tools.program(
        profiling.PROFILING,
        CLANG_TIDY,
        "mistakes that a reader of C++ sees, as evidence",
        "pip install clang-tidy, or apt install clang-tidy",
        [Path(sys.executable).parent],
        read=lambda output: parse.version(output.partition("version")[2]),
    )


def libraries() -> Iterable[Finding]:
    """CUDA's libraries among the installed packages."""
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            yield Finding(group="Libraries", name=name, state="ok", version=version(name))


def _with_package(one: Finding) -> Finding:
    """Cuobjdump may be a Python package, which the doctor does not look for."""
    if one.name != sass.TOOL or one.state == "ok" or (tool := sass.disassembler()) is None:
        return one
    return replace(one, state="ok", where=str(tool), detail="")


def _degraded(findings: Iterable[Finding]) -> Iterable[str]:
    for finding in findings:
        if finding.state != "ok":
            what = f"{finding.name} ({finding.state}{': ' + finding.detail if finding.detail else ''})"
            yield f"{what} disables {finding.disables}{' → ' + finding.remedy if finding.remedy else ''}"
