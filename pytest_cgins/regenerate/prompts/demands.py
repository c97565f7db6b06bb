"""What a kernel must take and hold to: the tolerance in force, and what is tried besides the recorded calls."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_cgins.regenerate.prompts import blocks
from pytest_cgins.regenerate.prompts.context import Context
from pytest_cgins.verify.probes.registry import switched_on

LIMITS = {"float32": (64.0, 64.0), "float64": (64.0, 64.0), "float16": (64.0, 4.0), "bfloat16": (16.0, 1.5)}
"""C and c of the derived rule by output dtype, as `verify.tolerance.constants` has them (which imports torch)."""

_PROBES = {
    "poison": "outputs hold NaN or garbage before the call: write every element, also where the result is 0",
    "guards": "nothing beside the outputs and the scratch memory is written",
    "inputs_unchanged": "inputs that the op does not change stay as they are, bit for bit",
    "repeat": (
        "the same inputs at other addresses give the same bits: no floating-point atomics whose order "
        "varies, no races"
    ),
    "fresh_memory": (
        "other numbers in the same tensors, at the same addresses, give the other answer: keep nothing "
        "between calls"
    ),
    "on_stream": (
        "all work goes to the stream that the kernel is given (Python: the current one), as the fourth argument of each "
        "launch: while that stream is held, no output "
        "may change, and the call is captured into a CUDA graph. No synchronisation, no allocation by cudaMalloc, no other "
        "stream without joining it"
    ),
    "late_work": "all work is done when the call returns and its stream is done",
    "op_callback": "neither the op itself nor torch's operators that it consists of are called: write the arithmetic",
    "libraries": "the built library takes nothing that computes from other libraries, nor dlsym and its like",
    "snooping": "no files, sockets, programs, environment; no looking at the caller",
    "integrity": "a call leaves torch's switches and the calling thread's rounding mode and flush-to-zero as they were",
    "memory_use": (
        "scratch memory is bounded: at most 8 times inputs and outputs and 256 MiB; repeated calls take "
        "no more"
    ),
    "sizes": "other sizes are tried: one more or less, a prime, and a batch of 0. Each must be right or be "
    "refused with an error "
    "(never a crash); a batch of 0 must be right: return before an empty grid is launched or a count is divided by",
    "arguments": (
        "other scalars are tried, masks that block more, targets that are ignored: use every argument "
        "that is passed"
    ),
    "special_values": "a NaN in the input comes out where torch has it (maximum and ReLU keep NaN), infinities too, "
    "and rows of a "
    "mask that let nothing through come out as in torch",
    "second_precision": (
        "a kernel for fp16 or bf16 that also takes fp32 must be right there: do not compute narrower "
        "than the input"
    ),
    "content_cache": "answers are not kept by content",
}
_LAYOUTS = {
    "strided": "the kernel claims any strides: transposed tensors and every second element of a larger one are tried",
    "misaligned": (
        "the kernel claims any alignment: addresses that are no multiple of 16 bytes are tried; test "
        "before wide loads"
    ),
}


def described(context: Context) -> str:
    """Tolerance and further inputs, as lists."""
    return blocks.section(
        "What is checked", [blocks.bullets(_tolerance(context)), blocks.bullets(_tried(context))]
    )


def _tolerance(context: Context) -> Iterable[str]:
    rule = context.entry.tolerance
    dtypes = sorted({trace.dtype for _, trace in context.traces} & LIMITS.keys())
    if rule.kind == "explicit":
        yield f"against the recorded outputs: |y - gold| ≤ {rule.atol:g} + {rule.rtol:g}·|gold|, every element"
    yield (
        "against fp64 on fresh inputs" + ("" if rule.kind == "explicit" else " and against the recorded outputs")
        + ": with r the exact answer, the unit T is ½ulp(r) in the output's dtype plus the error that "
            "torch's own fp32 computation "
        "makes at that magnitude. Limits: "
        + "; ".join(
            f"{dtype}: max error {LIMITS[dtype][0]:g}·T, rms error {LIMITS[dtype][1]:g} times torch's own" for dtype in dtypes or ["float32"]
        )
    )  # fmt: skip
    narrow = [dtype for dtype in dtypes if dtype in ("float16", "bfloat16")]
    if narrow:
        yield (
            f"{' and '.join(narrow)}: load, convert to fp32, compute and accumulate in fp32, and "
            "round once, when storing. "
            "Rounding intermediates, or running sums, to the narrow type fails unless torch's own op is as coarse"
        )
    if "float32" in dtypes:
        tf32 = context.entry.allow_tf32
        yield (
            "fp32 products may use TF32"
            if tf32
            else (
                "fp32: true fp32 products, no TF32 or half-precision tensor cores; approximate "
                "intrinsics and fast-math are too "
                "coarse for exp, log, tanh, rsqrt of large arguments"
            )
        )
    if "float64" in dtypes:
        yield "float64 is computed in float64"
    if context.entry.repeatability.kind != "exact":
        yield "answers to the same inputs may differ within the tolerance"


def _tried(context: Context) -> Iterable[str]:
    excused = {one.probe for one in context.entry.exceptions}
    on = switched_on("full", excused)
    cuda = context.target.device == "cuda"
    said = dict(_PROBES)
    if not cuda:
        said["late_work"] = "all work is done when the call returns: no threads that go on"
        del said["on_stream"]
    for name in on:
        if name in said and not (name == "repeat" and context.entry.repeatability.kind != "exact"):
            yield said[name]
    if "layouts" in on:
        yield from (_LAYOUTS[claim] for claim in context.entry.claims)
        if not context.entry.claims:
            yield (
                "other strides and addresses than the recorded ones are tried, one argument at a time: they may be "
                "refused with an error, and must not be read wrongly"
            )
    fixed = [name if dim is None else f"{name}[{dim}]" for name, dim in context.entry.semantics.fixed]
    if fixed:
        yield f"sizes that never change: {', '.join(blocks.code(one) for one in fixed)}"
    if excused:
        yield f"not looked for here: {', '.join(sorted(excused))}"
    if cuda:
        yield (
            "compute-sanitizer (memcheck) may be run: no access outside of a tensor, not even one that "
            "is masked out later"
        )
    floor = context.entry.timing.floor_vs_torch
    if floor is not None:
        yield f"speed: at least {floor:g} times torch's eager speed"
