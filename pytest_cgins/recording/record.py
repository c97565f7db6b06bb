"""Recording: `with pytest_cgins.record("traces/x", ops=[…]): model(x)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs.inputs import Tier
from pytest_cgins.packs.validate import is_plain_name
from pytest_cgins.recording.recording import Lengths, Level, Options, Recording


def record(
    path: Path | str,
    ops: Sequence[str] | None = None,
    tier: Tier = "recipe",
    name: str | None = None,
    max_per_op: int | None = None,
    *,
    backward: bool = False,
    lengths: Lengths = "few",
    top_time: float | None = None,
    level: Level = "function",
    progress: bool = False,
) -> Recording:
    """Record the calls of ops while the body runs, and write them as a trace pack.

    One trace is kept a signature: op, argument structure, dtypes, shapes, strides, plain values, context.
    Compiled models run eagerly meanwhile. At the end every trace is replayed from what was written, and
    only then is the pack put in place; an error or Ctrl-C leaves what was there before.

    Without `ops`, calls that cannot be recorded run as ever and are left out; one warning at the end
    says which, how many, and why.

    Args:
        path: folder of the pack; a pack that is there is replaced.
        ops: qualified names, e.g. `torch.nn.functional.gelu`, `torch.Tensor.matmul`,
            `models.decoder.rms_norm` or `torch.nn.functional.linear@backward(input,weight)`; None for the
            ops that compute, and all marked functions and modules. A class of modules (`torch.nn.LayerNorm`,
            `models.blocks.GatedMLP`) is one op.
        tier: `shapes` keeps forms only; `recipe` seeded inputs with the recorded statistics, and gold for
            them; `full` all bytes.
        name: name of the pack, by default its folder's.
        max_per_op: how many signatures of one op are kept at most, 1 or more; the first ones are, and with
            `top_time` those that take longest.
        backward: also record the backward of every recorded op, as `OP@backward(…)` with the arguments that
            require grad, if the body runs it.
        lengths: `few` keeps at most four of four or more signatures that differ in one size alone, as the
            steps of a generation do; `all` keeps all.
        top_time: keep only the signatures that take longest and together this share of the recorded ops'
            time, within (0, 1].
        level: where calls are seen. `function` has what the model's code calls, and marked functions and
            modules; `dispatch` the ATen ops that this comes down to below autograd and autocast, such as
            `torch.ops.aten.addmm.default`, those of a backward included.
        progress: show progress on a terminal while traces are written and checked.

    Raises:
        DiskError: if the disk is full.
        PackError: at the start, if `path` is something else than a pack.
        RecordError: at the start, for a wrong option, or if `path` cannot be written; later, for a call of
            one of `ops` that cannot be recorded, or if nothing was recorded.
        ReplayError: if a trace does not give its own gold.
        TraceError: at the start, if an op of `ops` does not exist.
    """
    if tier not in get_args(Tier):
        raise RecordError(f"tier {tier!r} does not exist", remedy="use shapes, recipe or full")
    if lengths not in get_args(Lengths):
        raise RecordError(f"lengths {lengths!r} do not exist", remedy="use few or all")
    if max_per_op is not None and max_per_op < 1:
        raise RecordError(
            f"max_per_op is {max_per_op}: no signature would be kept",
            remedy="use 1 or more, or leave max_per_op= / --max-per-op out to keep all",
        )
    if top_time is not None and not 0 < top_time <= 1:
        raise RecordError(
            f"top_time is {top_time}, which is not a share of the time",
            remedy="use a number above 0 and up to 1, e.g. top_time=0.8 / --top-time 80%",
        )
    if level not in get_args(Level):
        raise RecordError(f"level {level!r} does not exist", remedy="use function or dispatch")
    if level == "dispatch" and backward:
        raise RecordError(
            "at level dispatch a backward is seen as the ATen ops that it runs, and has no name of its own",
            remedy="leave backward=True / --backward out, or record at level function",
        )
    name = name or Path(path).absolute().name
    if not is_plain_name(name):
        raise RecordError(
            f"the pack cannot be named {name!r}",
            remedy="begin with a letter or digit, and use letters, digits, _ . -; pass name= / --name",
        )
    options = Options(
        tier=tier,
        name=name,
        max_per_op=max_per_op,
        backward=backward,
        lengths=lengths,
        top_time=top_time,
        level=level,
    )
    return Recording(Path(path), ops, options, progress=progress)
