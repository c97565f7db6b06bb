"""What a machine has to look into kernels with, as the doctor finds it, and whether the cases can be measured at all."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pytest_cgins.building import sass
from pytest_cgins.config import Config
from pytest_cgins.doctor import examine, parse, profiling, tools
from pytest_cgins.doctor.compilers import CUDA
from pytest_cgins.doctor.findings import DoctorReport, Finding
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.profiling import selection
from pytest_cgins.regenerate.profiling.model import EVIDENCE_VERSION, EnvironmentEvidence, Preflight

GROUPS = (CUDA, profiling.PROFILING)
NAMES = ("Python", "torch", "C++ compiler", "Triton", "triton")
LIBRARIES = (
    "nvidia-cutlass",
    "nvidia-cutlass-dsl",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-cublas",
)
CLANG_TIDY = "clang-tidy"


def evidence(
    report: DoctorReport, *, clang_tidy: Finding, preflight: Sequence[Preflight] = ()
) -> EnvironmentEvidence:
    """What matters of the doctor's report.

    Args:
        report: the whole examination.
        clang_tidy: whether it is there.
        preflight: of the cases that were asked for.
    """
    own = [finding for finding in report.findings if finding.group in GROUPS or finding.name in NAMES]
    findings = [*own, *libraries(), clang_tidy]
    by_name = {finding.name: finding for finding in findings}
    findings = [_with_package(finding) if finding.name == sass.TOOL else finding for finding in findings]
    probed = by_name.get("counters (probe)", by_name.get("counters"))
    ncu = by_name.get("ncu")
    readable = probed is not None and probed.state == "ok"
    return EnvironmentEvidence(
        version=EVIDENCE_VERSION,
        cgins=report.cgins,
        platform=report.platform,
        findings=tuple(findings),
        counters=readable and ncu is not None and bool(ncu.where),
        sass=sass.disassembler() is not None,
        degraded=tuple(_degraded(findings)),
        preflight=tuple(preflight),
    )


def examined(*, probe: bool, preflight: Sequence[Preflight] = ()) -> EnvironmentEvidence:
    """Look at this machine; a few seconds.

    Args:
        probe: also have ncu measure a tiny kernel.
        preflight: of the cases that were asked for.
    """
    return evidence(examine.examine(probe=probe), clang_tidy=find_clang_tidy(), preflight=preflight)


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
    where = tools.find(CLANG_TIDY, [Path(sys.executable).parent])
    version: parse.Version = ()
    detail = ""
    if where:
        ran = tools.run([where, "--version"])
        line = next((line for line in ran.output.splitlines() if "version" in line), "")
        version = parse.version(line) if ran.status == 0 else ()
        detail = "" if version else ran.last_line
    return Finding(
        group=profiling.PROFILING,
        name=CLANG_TIDY,
        state="missing" if not where else "ok" if version else "unknown",
        version=parse.written(version),
        where=where,
        detail=detail,
        disables="mistakes that a reader of C++ sees, as evidence",
        remedy="pip install clang-tidy, or apt install clang-tidy",
    )


def libraries() -> Iterable[Finding]:
    """CUDA's libraries among the installed packages."""
    from importlib.metadata import PackageNotFoundError, version

    for name in LIBRARIES:
        try:
            yield Finding(group="Libraries", name=name, state="ok", version=version(name))
        except PackageNotFoundError:
            continue


def _with_package(one: Finding) -> Finding:
    """Cuobjdump may be a Python package, which the doctor does not look for."""
    tool = sass.disassembler()
    return one if one.state == "ok" or tool is None else replace(one, state="ok", where=str(tool), detail="")


def _degraded(findings: Iterable[Finding]) -> Iterable[str]:
    for finding in findings:
        if finding.state != "ok":
            what = f"{finding.name} ({finding.state}{': ' + finding.detail if finding.detail else ''})"
            yield f"{what} disables {finding.disables}{' → ' + finding.remedy if finding.remedy else ''}"
