"""Contexts of the example project's kernels, with failures as the gate would tell them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_cgins.config import Config, Implementation, load
from pytest_cgins.core.case import Case
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import text_of
from pytest_cgins.core.verdict import Probe, Reason, Status, WorstElement
from pytest_cgins.regenerate import targets
from pytest_cgins.regenerate.attempt import Goal
from pytest_cgins.regenerate.prompts.context import Context, gather, relative
from pytest_cgins.regenerate.prompts.hardware import Hardware
from tests.evaluations import make_evaluation

PROJECT = Path(__file__).parents[3] / "example_project"
H200 = Hardware(
    device="cuda", name="NVIDIA H200", arch="sm_90", sm_count=132, warp_width=32, threads_per_block=1024, threads_per_sm=2048,
    shared_nbytes_per_block=49152, shared_nbytes_per_block_opt_in=232448, shared_nbytes_per_sm=233472, registers_per_sm=65536,
    l2_nbytes=60 << 20, memory_nbytes=140 << 30, clock_mhz=1980, memory_clock_mhz=3201, memory_bus_bits=6144, cuda="12.8",
    driver="570.86", peak_bytes_per_s=4.1e12, peak_flops_per_s={"float32": 5.2e13, "bfloat16": 7.1e14},
)  # fmt: skip
CPU = Hardware(
    device="cpu",
    name="Some CPU",
    cores=8,
    vector_flags=("avx2", "fma", "avx512f"),
    caches=(("L1d", 32768), ("L2", 1 << 20)),
)


@lru_cache(maxsize=1)
def config() -> Config:
    return load(PROJECT / "cgins.yaml")


def context_of(kernel: str, implementation: str, goal: Goal = "repair", **given: Any) -> Context:
    """A context as a run would gather it; failures are made up for `repair`."""
    entry = next(one for one in config().kernels if one.name == kernel)
    chosen = next(one for one in entry.implementations if one.name == implementation)
    given.setdefault("hardware", H200 if chosen.device == "cuda" else CPU)
    given.setdefault("top", PROJECT)
    given.setdefault("sources", sources_of(chosen, given["top"]))
    target = targets.target_of(entry, chosen, goal)
    made = gather(target, replace(config(), traces=()), entry, chosen, **given)
    packs, profiles = traces()
    made = replace(made, config=config(), packs=packs, profiles=profiles)
    if goal != "repair" or "evaluations" in given:
        return made
    return replace(made, evaluations=wrong(made))


@lru_cache(maxsize=1)
def traces() -> tuple[Any, Any]:
    """Packs and profiles, read once, as `gather` alone reads them."""
    entry = config().kernels[0]
    chosen = entry.implementations[0]
    sources = sources_of(chosen, PROJECT)
    target = targets.target_of(entry, chosen, "repair")
    made = gather(target, config(), entry, chosen, sources=sources, hardware=CPU, top=PROJECT)
    return made.packs, made.profiles


def sources_of(implementation: Implementation, top: Path) -> dict[str, str]:
    """Its own sources as the example has them; of a Python target without any the module's file."""
    module = PROJECT.joinpath(*implementation.target.partition(":")[0].split(".")).with_suffix(".py")
    files = implementation.sources or (module,)
    return {relative(file, top): text_of(file) for file in files}


def case_of(context: Context, number: int = 0) -> Case:
    pack, trace = context.traces[number]
    return Case(
        kernel=context.target.kernel,
        implementation=context.target.implementation,
        device="cpu" if context.target.device == "cpu" else "cuda:0",
        op=context.target.op,
        pack=pack.pack.name,
        pack_path=str(pack.folder),
        trace_id=trace.id,
        signature=trace.signature,
        dtype=trace.dtype,
    )


def wrong(context: Context) -> tuple[Evaluation, ...]:
    """Two cases that fail in one way, and the rest that passes."""
    numbers = range(len(context.traces))
    return tuple(evaluation(case_of(context, number), bad=number < 2) for number in numbers)


def evaluation(case: Case, *, bad: bool = True, **given: Any) -> Evaluation:
    """One result; by default an element of 64 is wrong."""
    if not bad:
        return replace(make_evaluation(share=0.02, times_ns=None), case=case, **given)
    worst = WorstElement(output=0, index=(1, 63), expected="0.7310585", got="1.4621171", tolerance=2.4e-7)
    made = make_evaluation(
        Status.INCORRECT, reason=Reason.REFERENCE_MISMATCH, share=412.5, worst=worst, times_ns=None,
        message=f"{case.name}: 64 of 4096 elements differ from the reference",
        picture="columns 63: last column of every row\n.......#\n.......#",
    )  # fmt: skip
    assert made.correctness is not None
    message = "sizes x 4x64→4x65: 65 of 260 are wrong"
    probe = Probe(name="sizes", outcome="tripped", reason=Reason.SIZE_DEPENDENT, message=message)
    return replace(made, **{"case": case, "correctness": replace(made.correctness, probes=(probe,))} | given)
