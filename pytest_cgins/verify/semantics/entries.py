"""Torch's ops by the last part of their names: kinds, rows, choices, and sizes that belong to an op's form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["norm", "softmax", "activation", "other"]
Lanes = Literal["last", "dim", "classes", "channels", "samples", "normalized_shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of one op."""

    kind: Kind = "other"
    """Which edge rows it gets."""
    real: bool = False
    """Whether any real number is a legal input; otherwise fresh inputs keep the recorded sign."""
    lanes: Lanes = "last"
    """What a row runs along: the last axis, the argument `dim`, the classes (axis 1); or all but the channels, all
    but the samples, or the argument `normalized_shape`."""
    chooses: bool = False
    """Whether it chooses among elements: of equal ones, and of NaN, any may be right."""
    nan_wins: bool = False
    """Whether NaN is chosen before any number."""
    kept: Mapping[str, Literal["index", "mask"]] = field(default_factory=dict)
    """Arguments whose content stays as recorded, and why."""
    fixed: tuple[tuple[str, int | None], ...] = ()
    """Argument and dimension whose size is the op's form, not its data's; None for all of the argument."""


def _all(words: str, entry: Entry) -> dict[str, Entry]:
    return dict.fromkeys(words.split(), entry)


_WINDOW = tuple(("weight", dim) for dim in (2, 3, 4))
_POOL: tuple[tuple[str, int | None], ...] = tuple(
    (name, None) for name in ("kernel_size", "stride", "padding", "dilation", "output_size")
)

ENTRIES: Mapping[str, Entry] = {
    **_all(
        "gelu relu silu swish mish sigmoid tanh elu selu celu leaky_relu relu6 hardswish hardsigmoid hardtanh "
        "logsigmoid softplus softsign tanhshrink",
        Entry(kind="activation", real=True),
    ),
    **_all("softmax log_softmax softmin", Entry(kind="softmax", real=True, lanes="dim")),
    # Its class weights and probabilities are not negative.
    "cross_entropy": Entry(kind="softmax", lanes="classes", kept={"target": "index"}),
    "nll_loss": Entry(lanes="classes", kept={"target": "index"}),
    **_all("layer_norm rms_norm", Entry(kind="norm", real=True, lanes="normalized_shape")),
    "batch_norm": Entry(kind="norm", real=True, lanes="channels"),
    **_all(
        "group_norm instance_norm",
        Entry(kind="norm", real=True, lanes="samples", fixed=(("num_groups", None),)),
    ),
    **_all(
        "add sub mul cat stack sum mean sin cos erf exp abs neg square dropout",
        Entry(real=True),
    ),
    **_all("linear bilinear matmul mm bmm addmm baddbmm einsum", Entry(real=True)),
    **_all(
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        Entry(
            real=True,
            fixed=(*_WINDOW, *((name, None) for name in ("stride", "padding", "dilation", "groups"))),
        ),
    ),
    **_all("avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool2d", Entry(real=True, fixed=_POOL)),
    **_all("max_pool1d max_pool2d max_pool3d", Entry(real=True, chooses=True, nan_wins=True, fixed=_POOL)),
    "embedding": Entry(real=True, kept={"input": "index"}),
    "scaled_dot_product_attention": Entry(real=True, kept={"attn_mask": "mask"}),
    **_all("max min maximum minimum amax amin", Entry(chooses=True, nan_wins=True)),
    **_all(
        "topk sort median nanmedian kthvalue mode cummax cummin fmax fmin argmax argmin argsort unique",
        Entry(chooses=True),
    ),
}
"""By the word that `call.word` takes from an op's name. Ops that are missing here are recognised by their words."""

_UNIT = (0.0, 1.0)
_ANY = (-math.inf, math.inf)
RANDOM: Mapping[str, Mapping[int, tuple[float, float]]] = {
    **{
        key: {0: _ANY}
        for key in [
            "dropout",
            "dropout1d",
            "dropout2d",
            "dropout3d",
            "feature_dropout",
            "alpha_dropout",
            "feature_alpha_dropout",
            "rrelu",
            "scaled_dot_product_attention",
            "normal",
            "randn",
            "randn_like",
            "exponential",
            "cauchy",
            "log_normal",
            "geometric",
            "poisson",
            "rrelu_with_noise",
            "randint",
            "randint_like",
            "multinomial",
            "binomial",
        ]
    },
    **{key: {0: _UNIT} for key in ["rand", "rand_like", "bernoulli", "gumbel_softmax"]},
    "native_dropout": {0: _ANY, 1: _UNIT},
}
"""Outputs that are drawn where a call draws, with their least and greatest value."""

INDICES: Mapping[str, tuple[int, int | None]] = {
    **dict.fromkeys(("argmax", "argmin"), (0, None)),
    "argsort": (0, -1),
    **dict.fromkeys(("topk", "sort", "kthvalue", "mode"), (1, -1)),
    **dict.fromkeys(("max", "min", "median", "nanmedian", "cummax", "cummin"), (1, None)),
}
"""Number of the output that holds positions in the first tensor, and the dimension that they count along where the
call names none; None: all of it, flattened."""

DISTINCT = frozenset({"argsort", "topk", "sort"})
"""Ops whose positions come once in a row."""

CHOOSERS = frozenset(word for word, entry in ENTRIES.items() if entry.chooses)
"""Words that also as part of a name tell of a choice."""
