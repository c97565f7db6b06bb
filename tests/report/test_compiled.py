"""Builds in the terminal, in markdown and in counts: the numbers are those of the document."""

from __future__ import annotations

import json
from dataclasses import replace

from reports import report_of
from rich.text import Text

from pytest_cgins.config import ResourceLimits
from pytest_cgins.core import documents
from pytest_cgins.core.case import KernelResources
from pytest_cgins.core.session_report import Compilation, SessionReport
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.gate import correctness_verdict
from pytest_cgins.report import compiled, console, markdown, terminal
from pytest_cgins.report.summary import counts

REVISION = "0123456789" * 4


def function(name: str, *, registers: int = 40, spills: int = 0, stores: int = 0) -> KernelResources:
    return KernelResources(
        function=name,
        arch="sm_80",
        registers_per_thread=registers,
        spill_store_nbytes=spills,
        spill_load_nbytes=0,
        stack_nbytes_per_thread=16,
        static_shared_nbytes_per_block=512,
        instructions=tuple(pair for pair in (("FFMA", 8), ("STL", stores)) if pair[1]),
    )


def build(
    kernel: str, arch: str = "sm_80", *, spills: int = 0, registers: int = 40, seconds: float = 0.0
) -> Compilation:
    now, then = (
        (function(f"{kernel}(float*)", registers=registers, spills=spills, stores=spills),),
        (function(f"{kernel}(float*)"),),
    )
    return Compilation(
        kernel=kernel,
        implementation="cuda",
        arch=arch,
        verdict=correctness_verdict.decide_resources(
            now, then, revision="0123456789", limits=ResourceLimits()
        ),
        resources=now,
        base=then,
        base_revision=REVISION,
        build_seconds=seconds,
        seconds=seconds,
        notes=("no opcodes",) if kernel == "noted" else (),
        config="cgins.yaml",
    )


def other(kernel: str, status: Status, reason: Reason, message: str) -> Compilation:
    return Compilation(
        kernel=kernel,
        implementation="triton",
        arch="sm_80",
        verdict=Verdict(status=status, reason=reason, message=message, numbers={}),
        resources=(),
        base=(),
        base_revision="",
        build_seconds=0.0,
        seconds=0.0,
    )


BUILDS = (
    build("clean", seconds=2.0),
    build("clean", "sm_90a"),
    build("clean", "sm_100"),
    build("wide", registers=64),
    build("little", spills=8),
    build("much", spills=4096),
    build("noted"),
    other("refused", Status.BUILD_ERROR, Reason.COMPILER, "nvcc refused <b>refused.cu</b>: 1 error\nline"),
    other("python", Status.SKIPPED, Reason.CONTRACT, "compiled when it is called"),
    other("young", Status.NEW, Reason.OK, "the kernel is not at 0123456789"),
    other("lost", Status.INFRASTRUCTURE, Reason.TOOL_MISSING, "no CUDA compiler"),
)


def report(*builds: Compilation) -> SessionReport:
    return report_of(environments=(), compilations=builds or BUILDS)


def shown(*, verbosity: int = 0) -> list[str]:
    return terminal.render(report(), width=80, colour=False, verbosity=verbosity).splitlines()


def test_table_agrees_with_the_document() -> None:
    """Each cell is the greatest of the document's numbers, the base's in brackets where it differs."""
    document = json.loads(documents.dump(report()))
    rows = {line.split()[0]: line for line in shown()}
    for name in ("wide", "much", "clean"):
        members = [one for one in document["compilations"] if one["kernel"] == name]
        for heading, key in (("registers", "registers_per_thread"), ("spills", "spill_nbytes_per_thread")):
            now = max(one["verdict"]["numbers"][key] for one in members)
            then = max(one["verdict"]["numbers"][f"base_{key}"] for one in members)
            cell = f"{now:.0f} ({then:.0f})" if now != then else f"{now:.0f}"
            assert f" {cell} " in rows[name], (heading, rows[name])
    assert rows["clean"].split()[2:7] == ["sm_80,", "sm_90a,", "sm_100", "3", "PASSED"]
    assert rows["clean"].endswith(" 2 s")
    assert rows["python"].split()[5:] == ["-"] * 5


def test_failures_are_listed_worst_first() -> None:
    """What the compiler refused, then spills by what came, then registers, then what no kernel is to blame for."""
    lines = shown()
    heads = [line.split()[:2] for line in lines if line.startswith(("RES", "BUILD_ERROR", "INFRA"))]
    assert heads == [
        ["BUILD_ERROR", "refused/cuda-triton/sm_80"],
        ["RESOURCES", "much/cuda/sm_80"],
        ["RESOURCES", "little/cuda/sm_80"],
        ["RESOURCES", "wide/cuda/sm_80"],
        ["INFRASTRUCTURE", "lost/cuda-triton/sm_80"],
    ]
    assert "NEW 1 build: the kernel is not at 0123456789" in lines
    assert "SKIPPED 1 build: compiled when it is called" in lines
    assert "note, 1 build: no opcodes" in lines
    assert lines[-1] == "compared with 0123456789; builds took 2 s in total, in parallel"
    assert not [line for line in lines if line.startswith("PASSED ")]


def test_functions_without_a_counterpart_are_told() -> None:
    """A build that passes because functions have other names says so, in the terminal and in the summary."""
    said = "not at 0123456789: g(float*); only at 0123456789: f(float*)"
    renamed = replace(BUILDS[0], verdict=replace(BUILDS[0].verdict, message=said))
    listed = console.text(Text("\n").join(terminal.build_lines([renamed])), colour=False)
    assert f"PASSED 1 build: {said}\n" in listed
    assert "### Functions without a counterpart" in markdown.render(report(renamed))


def test_verbosity() -> None:
    """-v has a line a build; -q the table and the counts only."""
    loud, quiet = shown(verbosity=1), shown(verbosity=-1)
    assert len([line for line in loud if line.startswith("clean ")]) == 3
    assert not [line for line in quiet if line.startswith(("RESOURCES", "note,"))]
    assert "SKIPPED 1 build: compiled when it is called" in quiet


def test_message_tells_opcodes_and_the_command() -> None:
    """A failure shows which opcodes came, and the command that builds it again against the same commit."""
    one = BUILDS[5]
    text = compiled.message(one, command=compiled.command(one))
    assert text.startswith("RESOURCES (spills-grew): much(float*) on sm_80 spills 4,096 bytes a thread")
    assert "\n\nopcodes STL +4096: much(float*)\n\n" in text
    assert text.endswith(
        f"again   pytest --cgins --cgins-compile-only --cgins-arch=sm_80 --cgins-baseline={REVISION} "
        "cgins.yaml::much/cuda/sm_80"
    )


def test_functions_are_listed_with_their_opcodes() -> None:
    """The table of `cgins build --resources` has a line a function."""
    text = console.text(terminal.opcode_table(BUILDS[:1], colour=False), colour=False)
    assert text.splitlines()[1].split() == [
        "clean/cuda/sm_80", "40", "0", "16", "512", "FFMA", "8", "clean(float*)",
    ]  # fmt: skip


def test_counts_have_builds() -> None:
    """Builds count as cases do: what fails, what is an error, what is skipped."""
    assert counts(report()).lines() == (
        "total=11\npassed=5\nfailed=4\nregressed=3\nerrors=1\nskipped=1\nweak=0\nverdict=BUILD_ERROR\n"
    )


def test_markdown_has_builds_and_trusts_no_text() -> None:
    """Failures come first with their messages; texts are escaped; the seed of no run is told."""
    text = markdown.render(report())
    assert text.startswith("## cgins: 4 failed, 1 error, 1 skipped, 5 passed\n")
    assert "compared with <code>0123456789</code>" in text
    assert "seed" not in text
    assert text.index("### Failed builds") < text.index("### Builds")
    assert "<b>" not in text
    assert "&lt;b&gt;refused.cu" in text
    assert "<td>4096 (0)</td>" in text
    assert "### Not compared" in text
    hostile = build("<i>")
    assert "<i>" not in markdown.render(report(hostile))


def test_document_is_read_back() -> None:
    """What is written is a report, builds included, ordered by name."""
    found = documents.load(SessionReport, documents.dump(report()))
    assert found.compilations == tuple(sorted(BUILDS, key=lambda one: one.name))
