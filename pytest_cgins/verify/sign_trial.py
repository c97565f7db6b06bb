"""Both signs in the fresh inputs of an op that nothing is known of, where torch takes them.

Fresh inputs keep the sign of the recorded ones, which may be all that the op takes: a logarithm's, a probability. But
most ops take any number, and inputs from [0, 1) cannot tell them from the same op on |inputs|, nor a ReLU from a copy.
So torch is asked: an argument of one sign gets both if no number of torch's answer is lost by that. Torch's own ops,
and what the user declares, need not be asked about.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pytest_cgins.config.coupled import drawn_by
from pytest_cgins.core.bitwise import readable
from pytest_cgins.core.layout import lay_out, metas_of, rebuild
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.recipe import seed_of, standard_normal
from pytest_cgins.verify import low_bits
from pytest_cgins.verify.couplings import couplings_of
from pytest_cgins.verify.input_sets import InputSetBuilder
from pytest_cgins.verify.inputs import is_mask
from pytest_cgins.verify.reference import answer
from pytest_cgins.verify.semantics import ENTRIES, op_word


def spread(builder: InputSetBuilder, tensors: Sequence[Tensor], key: str) -> tuple[list[Tensor], list[str]]:
    """The fresh tensors, some of them with signs drawn by lot, and the names of these. Those given are left as they are."""
    tensors, names = list(tensors), list[str]()
    chosen = _of_one_sign(builder, tensors)
    outputs = _answer(builder, tensors) if chosen else None
    if outputs is None:
        return tensors, names
    numbers = _numbers(outputs)
    # Beside numbers of few bits smaller arguments are scales, whatever they are called.
    if any(map(low_bits.is_narrow, (*tensors, *outputs))):
        most = max(tensor.numel() for tensor in tensors)
        chosen = [index for index in chosen if tensors[index].numel() == most]
    for index in chosen:
        layout = lay_out(tensors, copy=False)
        tried = rebuild(layout.metas, layout.spans, "cpu")
        lot = torch.from_numpy(standard_normal(seed_of(f"{key}/signs/{index}"), tried[index].numel()))
        tried[index].mul_(torch.sign(lot).reshape(tried[index].shape).to(tried[index].dtype))
        if (again := _answer(builder, tried)) is not None and _numbers(again) == numbers:
            tensors = tried
            names.append(builder.semantics.names[index])
    return tensors, names


def note(names: Sequence[str]) -> str:
    """What a reader must know of it, and what to do where it is wrong."""
    return (
        f"recorded with one sign, tested with both, since torch takes them: {', '.join(names)} "
        f"(if the other cannot occur, say so in cgins.yaml: semantics: {{domain: {{{names[0]}: [0, null]}}}})"
    )


def _of_one_sign(builder: InputSetBuilder, tensors: Sequence[Tensor]) -> list[int]:
    """Arguments whose sign is kept for want of knowledge; of aliasing ones none."""
    semantics, known = builder.semantics, op_word(builder.call) in ENTRIES or is_derived(builder.call.op)
    if known or semantics.real or semantics.facts is not None:
        return []
    metas = metas_of(tensors)
    storages = [meta.storage for meta in metas]
    couplings = couplings_of(semantics, builder.call, tensors)
    coupled = {name for coupling in couplings for name in drawn_by(coupling)}
    return [
        index
        for index, tensor in enumerate(tensors)
        if semantics.names.get(index, "") not in ("", *coupled)
        and semantics.role(index, metas[index]) in ("data", "parameter")
        and semantics.domain(index) is None
        and storages.count(metas[index].storage) == 1
        and not metas[index].is_expanded
        and tensor.is_floating_point()
        and tensor.numel()
        and not is_mask(tensor)
        and not low_bits.is_scale(semantics, index, tensor)
        and (float(readable(tensor).min()) >= 0 or float(readable(tensor).max()) <= 0)
    ]


def _answer(builder: InputSetBuilder, tensors: Sequence[Tensor]) -> Sequence[Tensor] | None:
    """Torch's outputs; None if it refuses the inputs."""
    context, mutated = builder.trace.context, builder.mutated or ()
    try:
        layout = lay_out(tensors, copy=False)
        return answer(builder.call, layout, context, builder.device, mutated=mutated)
    except Exception:  # noqa: BLE001 - an op of a user may refuse by any exception
        return None


def _numbers(outputs: Sequence[Tensor]) -> tuple[int, ...]:
    """How many numbers of each are finite."""
    return tuple(int(torch.isfinite(readable(output)).sum()) for output in outputs)
