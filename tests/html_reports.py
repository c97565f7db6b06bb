"""Reports for the tests of the HTML page, as varied as real ones."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import reports
from timings import LABEL, REVISION, RULE, blocks, compared, measured

from pytest_cgins.config import TimingGate
from pytest_cgins.core.case import Case, KernelResources
from pytest_cgins.core.measurement import Measurement, Roofline
from pytest_cgins.core.session_report import Compilation, Environment, Evaluation, SessionReport, Tested
from pytest_cgins.core.verdict import (
    PROBES,
    Check,
    Correctness,
    ForgeryCheck,
    Probe,
    Reason,
    Status,
    Verdict,
    WorstElement,
)
from pytest_cgins.gate.timing_verdict import decide_timing
from pytest_cgins.report.history import Head, entries
from pytest_cgins.report.trend import Trend, trends

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
GPU = Environment(
    device="cuda", device_name="NVIDIA H200", python="3.11.2", torch="2.13.0", cuda="13.0", driver="580.65.06"
)
CPU = replace(GPU, device="cpu", device_name="AMD EPYC 9554", cuda="", driver="")
KERNELS = ("layer_norm", "softmax", "rotary_embedding", "rms_norm", "attention")
MIDDLES = (0.0, 0.0, 0.001, 0.08, -0.06, 0.015)
"""Log ratios to the base: mostly the same, some slower or faster, some in between."""


def report_of(
    *evaluations: Evaluation, compilations: tuple[Compilation, ...] = (), strict: bool = False
) -> SessionReport:
    """A session's report with these."""
    return reports.report_of(
        *evaluations, environments=[GPU, CPU], version="0.1.0", seconds=81.5, strict=strict,
        compilations=compilations, base_revision=LABEL,
    )  # fmt: skip


def many(count: int) -> SessionReport:
    """A report of so many cases, the same at each call: timed ones, and of each kind of failure some."""
    draw = random.Random(count)
    return report_of(*(evaluation(number, draw) for number in range(count)))


def evaluation(number: int, draw: random.Random) -> Evaluation:
    """One of seventeen is wrong, crashed, weak or skipped; the others are judged by their times."""
    kernel, device = draw.choice(KERNELS), draw.choice(["cuda:0", "cuda:0", "cpu"])
    rows, columns = draw.choice([8, 64, 1024]), draw.choice([128, 768, 4096])
    case = Case(
        kernel=kernel,
        implementation="triton" if device == "cuda:0" else "cpp",
        device=device,
        op=f"torch.nn.functional.{kernel}",
        pack="distilbert",
        pack_path="/packs/distilbert",
        trace_id=f"{number:016x}",
        signature=f"f32-{rows}x{columns}-{number:04x}",
        dtype="float32",
    )
    kind = {3: "wrong", 5: "crashed", 8: "weak", 11: "skipped"}.get(number % 17, "timed")
    timing = _measurement(draw, rows * columns) if kind in ("timed", "weak") else None
    verdict = _verdict(kind)
    if timing is not None:
        verdict = decide_timing(
            verdict,
            timing,
            base_state="compared",
            base_note="",
            gate=TimingGate(),
            base_label=LABEL,
            kernel=kernel,
        )
    return Evaluation(
        case=case,
        verdict=verdict,
        kernel_digest=f"{number:064x}",
        correctness=None if kind in ("crashed", "skipped") else _correctness(kind),
        measurement=timing,
        build_seconds=1.25,
        seconds=3.5,
        output="Traceback (most recent call last):\n  line 1\nSegmentation fault"
        if kind == "crashed"
        else "",
        config="cgins.yaml",
        tested=Tested(
            sources=f"{number:064x}",
            build="b" * 64,
            library="",
            trace="0" * 16,
            pack="",
            config="c" * 64,
            cgins="0.1.0",
            seed=7,
        ),
    )


def _verdict(kind: str) -> Verdict:
    status, reason, message = {
        "wrong": (
            Status.INCORRECT,
            Reason.REFERENCE_MISMATCH,
            "reference rule on edge inputs: 2 of 6 elements wrong",
        ),
        "crashed": (
            Status.RUNTIME_ERROR,
            Reason.CRASHED,
            "the worker died of SIGSEGV\n→ run it under --cgins-sanitize",
        ),
        "weak": (Status.WEAK, Reason.NO_POWER, "ones would pass too"),
        "skipped": (Status.SKIPPED, Reason.DEVICE_ABSENT, "no NVIDIA GPU"),
        "timed": (Status.PASSED, Reason.OK, ""),
    }[kind]
    return Verdict(status=status, reason=reason, message=message, numbers={})


def _correctness(kind: str) -> Correctness:
    right = Check(
        rule="gold", inputs="recorded", passed=True, reason=Reason.OK, message="", share=0.31, compared=6
    )
    worst = WorstElement(output=0, index=(1, 2), expected="1.5", got="nan", tolerance=1.25e-5)
    wrong = Check(
        rule="reference",
        inputs="edge",
        passed=False,
        reason=Reason.REFERENCE_MISMATCH,
        message="2 of 6 elements are farther off than torch's own error allows",
        share=12.5,
        wrong=2,
        compared=6,
        worst=worst,
        map="..#\n.#.",
    )
    probes = [Probe(name=name, outcome="held", reason=Reason.OK) for name in PROBES[:18]]
    probes.append(
        Probe(name="content_cache", outcome="not-run", reason=Reason.OK, message="the kernel was not timed")
    )
    return Correctness(
        checks=(
            right,
            replace(right, rule="reference", inputs="fresh"),
            *([wrong] if kind == "wrong" else []),
        ),
        power=(
            ForgeryCheck(forgery="zeros", caught=True),
            ForgeryCheck(forgery="ones", caught=kind != "weak"),
        ),
        probes=tuple(probes),
        notes=("the reference is fp32 here",) if kind == "wrong" else (),
    )


def _measurement(draw: random.Random, numel: int) -> Measurement:
    middle = draw.choice(MIDDLES)
    kernel_ns = draw.uniform(2e3, 9e4)
    tests = compared("base", blocks(middle, 0.01, seed=draw.randrange(2**30)))
    again = None
    if tests.outcome == "slower":
        again = [
            compared("base", blocks(middle, 0.01, seed=draw.randrange(2**30)), rule=replace(RULE, tests=1))
        ]
    flops = numel * draw.choice([8, 64, 2048])
    nbytes = 8 * numel
    roofline = Roofline(
        nbytes=nbytes,
        flops=flops,
        source="signature",
        peak_bytes_per_s=4.1e12,
        peak_flops_per_s=5.2e13,
        share_of_bandwidth=nbytes / kernel_ns * 1e9 / 4.1e12,
        share_of_compute=flops / kernel_ns * 1e9 / 5.2e13,
        bound="compute" if flops / 5.2e13 > nbytes / 4.1e12 else "memory",
    )
    found = measured(
        tests,
        kernel_ns=kernel_ns,
        base_ns=kernel_ns / tests.ratio,
        torch_ns=draw.uniform(1e3, 9e4),
        again=again,
    )
    return replace(found, roofline=roofline)


def builds() -> tuple[Compilation, ...]:
    """One that spills, one that is as it was, one that failed."""

    def function(registers: int, spilled: int) -> KernelResources:
        return KernelResources(
            function="void softmax<float, 4>(float const*, float*)",
            arch="sm_90a",
            registers_per_thread=registers,
            spill_store_nbytes=spilled,
            spill_load_nbytes=spilled,
            stack_nbytes_per_thread=0,
            static_shared_nbytes_per_block=1024,
            instructions=(("FFMA", 40 + registers), ("LDG", 8)),
        )

    def build(kernel: str, status: Status, reason: Reason, message: str, now: KernelResources) -> Compilation:
        ran = status is not Status.BUILD_ERROR
        return Compilation(
            kernel=kernel,
            implementation="cuda",
            arch="sm_90a",
            verdict=Verdict(status=status, reason=reason, message=message, numbers={}),
            resources=(now,) if ran else (),
            base=(function(40, 0),) if ran else (),
            base_revision=REVISION,
            build_seconds=2.5,
            seconds=6.0,
            config="cgins.yaml",
        )

    spills = "softmax spills 32 bytes a thread, 0 before\n→ gate: {spill_nbytes: 32} accepts it"
    compiler = "softmax.cu(3): error: identifier <x> is undefined"
    return (
        build("softmax", Status.RESOURCES, Reason.SPILLS_GREW, spills, function(48, 16)),
        build("layer_norm", Status.PASSED, Reason.OK, "", function(40, 0)),
        build("rms_norm", Status.BUILD_ERROR, Reason.COMPILER, compiler, function(1, 0)),
    )


def history_of(report: SessionReport, *, runs: int = 12) -> tuple[Trend, ...]:
    """Trends of the report's cases: one run a day, with another driver in the middle, and some drift."""
    draw = random.Random(runs)
    found = []
    for run in range(runs):
        driver = "570.10" if run < runs // 2 else GPU.driver
        then = replace(
            report,
            started_at=(START + timedelta(days=run - runs)).isoformat(),
            environments=(replace(GPU, driver=driver), CPU),
        )
        for entry in entries(then, Head(commit=f"{run:040x}", dirty=False, branch="main")):
            drifted = entry.kernel_ns * (1 + 0.01 * run) * draw.uniform(0.99, 1.01)
            found.append(replace(entry, median_ns_per_call={**entry.median_ns_per_call, "kernel": drifted}))
    return trends(found)
