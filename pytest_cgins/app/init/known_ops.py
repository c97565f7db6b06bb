"""Which op of torch a kernel replaces: certain where its name and all parameters that it requires are the op's."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cgins.app.init.scan import Parameter

_F = "torch.nn.functional."
_UNARY = (
    ("torch.", "abs cos erf exp exp2 neg relu sigmoid sin tanh isnan isinf logical_not"),
    ("torch.", "bitwise_not", "mask"),
    ("torch.", "sqrt rsqrt log reciprocal", "positive"),
    (_F, "gelu silu mish softplus elu selu celu leaky_relu hardswish hardsigmoid softsign logsigmoid relu6"),
)
_BINARY = "add sub mul div maximum minimum eq ne ge gt le lt logical_and logical_or logical_xor"
_OTHERS = """
torch.nn.functional.softmax             softmax            input ~dim
torch.nn.functional.log_softmax         log_softmax        input ~dim
torch.nn.functional.rms_norm            rms_norm           input ~normalized_shape weight? eps?
torch.nn.functional.layer_norm          layer_norm         input ~normalized_shape weight? bias? eps?
torch.nn.functional.group_norm          group_norm         input=grid num_groups=2 weight=channel? bias=channel? eps?
torch.nn.functional.linear              linear             input weight=matrix bias=units?
torch.nn.functional.embedding           embedding          input=ids weight=table
torch.nn.functional.cross_entropy       cross_entropy      input target=classes
torch.nn.functional.cross_entropy       cross_entropy_loss input target=classes
torch.nn.functional.nll_loss            nll_loss           input=logprobs target=classes
torch.nn.functional.kl_div              kl_div             input=logprobs target=probs
torch.nn.functional.mse_loss            mse_loss           input target=y
torch.nn.functional.l1_loss             l1_loss            input target=y
torch.nn.functional.glu                 glu                input ~dim
torch.nn.functional.normalize           normalize          input
torch.nn.functional.scaled_dot_product_attention scaled_dot_product_attention query=heads key=heads value=heads
torch.mm                                mm                 input=x mat2=square
torch.mm                                matmul             input=x mat2=square
torch.bmm                               bmm                input=batch mat2=batch
torch.mv                                mv                 input=x vec=weight
torch.addmm                             addmm              input=x mat1=x mat2=square
torch.dot                               dot                input=weight tensor=bias
torch.outer                             outer              input=weight vec2=bias
torch.cumsum                            cumsum             input ~dim
torch.sum                               sum                input
torch.mean                              mean               input
torch.prod                              prod               input=small
torch.amax                              amax               input ~dim
torch.argmax                            argmax             input dim?
torch.argmin                            argmin             input dim?
torch.topk                              topk               input k=8
torch.sort                              sort               input
torch.where                             where              condition=mask input=x other=y
torch.masked_fill                       masked_fill        input=x mask value=0.5
torch.lerp                              lerp               input=x end=y weight=0.25
torch.addcmul                           addcmul            input=x tensor1=y tensor2=positive
torch.addcdiv                           addcdiv            input=x tensor1=y tensor2=positive
torch.pow                               pow                input=positive exponent=1.5
torch.triu                              triu               input
torch.tril                              tril               input
torch.flip                              flip               input dims=(-1,)
torch.gather                            gather             input ~dim index=places
torch.index_select                      index_select       input dim=0 index=reversed_rows
torch.logsumexp                         logsumexp          input ~dim
torch.diag                              diag               input
torch.trace                             trace              input
"""
"""Op, name without affixes, and what a kernel may take, in the op's order, each with the example that stands for it.

`~`: a kernel that does not take it works on the last dimension. `?`: it may leave it at the op's default.
"""
_EXAMPLES = """
x = draw(rows, columns)
y = draw(rows, columns)
positive = draw(rows, columns).abs() + 0.1
small = draw(4, 4)
weight = draw(columns)
bias = draw(columns)
channel = draw(4)
units = draw(48)
square = draw(columns, columns)
matrix = draw(48, columns)
table = draw(50, columns)
batch = draw(3, rows, rows)
grid = draw(2, 4, rows, 8)
heads = draw(2, 4, rows, 64)
probs = draw(rows, columns).softmax(-1)
logprobs = draw(rows, columns).log_softmax(-1)
mask = draw(rows, columns) > 0
ids = torch.arange(rows, device=DEVICE) * 7 % 50
classes = torch.arange(rows, device=DEVICE) * 5 % columns
places = torch.arange(rows * columns, device=DEVICE).view(rows, columns) * 3 % columns
reversed_rows = torch.arange(rows, device=DEVICE).flip(0)
"""
_USUAL = {"input": "x", "other": "y", "normalized_shape": "(columns,)", "dim": "-1", "eps": "1e-5"}
_SYNONYMS = {
    "input": "input x x1 a inp self in src tensor hidden_states inputs logits",
    "other": "other y b x2 rhs", "weight": "weight w gamma scale weights", "bias": "bias b beta",
    "eps": "eps epsilon variance_epsilon", "dim": "dim axis", "target": "target targets labels label y",
    "mat2": "mat2 b w y other weight", "mat1": "mat1 a", "tensor": "tensor other y", "vec": "vec v y", "vec2": "vec2 weight y other",
    "query": "query q", "key": "key k", "value": "value v", "exponent": "exponent exp y", "num_groups": "num_groups groups group g",
    "condition": "condition cond mask", "index": "index indices", "k": "k topk", "dims": "dims dim",
}  # fmt: skip
_DEFAULTS = {
    "reduction": "mean", "ignore_index": -100, "label_smoothing": 0, "log_target": False, "approximate": "none", "alpha": 1,
    "beta": 1, "largest": True, "sorted": True, "descending": False, "keepdim": False, "diagonal": 0, "is_causal": False,
    "dropout_p": 0, "threshold": 20, "negative_slope": 0.01, "p": 2, "offset": 0,
}  # fmt: skip
"""What an op does where nothing else is said, by the parameters that its kernels have for it."""
_GUARDS = {
    "dim": ("dim not in (-1, input.ndim - 1)", "only the last dimension"),
    "normalized_shape": ("len(normalized_shape) != 1", "only the last dimension"),
}
_PREFIXES = "liger triton cute cuda quack fused fast custom flag gems my opt optimized tl kernel"
_SUFFIXES = "function forward fwd kernel triton cuda cute op impl fn launcher autograd func wrapper custom"


@dataclass(frozen=True, slots=True)
class KnownOp:
    """An op of torch."""

    op: str
    """Qualified name."""
    name: str
    """What kernels for it are called."""
    takes: tuple[str, ...]
    """Its parameters, in order, that a kernel may take."""
    implied: frozenset[str]
    """Those of which a kernel may know the value."""
    optional: frozenset[str]
    """Those that a kernel may leave at their defaults."""
    examples: tuple[str, ...]
    """Expressions over `examples`, for each of `takes`."""


@dataclass(frozen=True, slots=True)
class Match:
    """How a host function is called for an op."""

    name: str
    """Of the kernel."""
    op: str
    """Qualified name."""
    declares: tuple[str, ...]
    """Parameters of the op that the kernel takes or that an adapter checks, in the op's order."""
    arguments: tuple[str, ...]
    """What the host function is given, as Python writes it in a call."""
    fixed: tuple[str, ...]
    """Parameters whose value it knows."""
    direct: bool
    """Whether the op's arguments can be passed in order, so that no adapter is needed."""
    call: str
    """A call of the op over `examples`."""

    @property
    def guards(self) -> list[tuple[str, str]]:
        """Conditions under which the kernel must refuse a call, and why."""
        return [_GUARDS[name] for name in self.fixed]


def _table() -> dict[str, KnownOp]:
    lines = [line.split() for line in _OTHERS.strip().splitlines()]
    for prefix, names, *example in _UNARY:
        lines += [[prefix + name, name, f"input={(example or ['x'])[0]}"] for name in names.split()]
    lines += [[f"torch.{name}", name, "input", "other=positive"] for name in _BINARY.split()]
    return {name: _known(op, name, words) for op, name, *words in lines}


def _known(op: str, name: str, words: Sequence[str]) -> KnownOp:
    parts = [re.fullmatch(r"(~?)(\w+)(?:=([^?]+))?(\??)", word) for word in words]
    found = [part for part in parts if part is not None]
    assert len(found) == len(words), words
    examples = [part[3] or part[2] for part in found]
    return KnownOp(
        op, name, tuple(part[2] for part in found),
        implied=frozenset(part[2] for part in found if part[1]),
        optional=frozenset(part[2] for part in found if part[4]),
        examples=tuple(_USUAL.get(example, example) for example in examples),
    )  # fmt: skip


KNOWN = _table()
"""By name."""
_JOINED = {name.replace("_", ""): name for name in KNOWN} | {"swish": "silu"}


def plain_name(name: str) -> tuple[str, int]:
    """A function's name without what says how it is written, and how many words that took away.

    `LigerRMSNormFunction` is `rms_norm`, and so is `triton_rmsnorm_fwd`.
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    words = [word for word in spaced.lower().split("_") if word]
    count = len(words)
    while len(words) > 1 and words[-1] in _SUFFIXES.split():
        words.pop()
    while len(words) > 1 and words[0] in _PREFIXES.split() and "_".join(words) not in KNOWN:
        words.pop(0)
    joined = "".join(words)
    return _JOINED.get(joined) or "_".join(words), count - len(words)


def match(name: str, parameters: Sequence[Parameter], *, by_place: bool) -> Match | str:
    """The op that a host function of this name replaces, or why that is not certain.

    Args:
        name: `plain_name` of the function.
        parameters: the function's.
        by_place: whether it takes no arguments by name, as `apply` and C++ functions do.
    """
    known = KNOWN.get(name)
    if known is None:
        return f"no op of torch is known that is called {name}"
    given: dict[str, str] = {}
    arguments: list[str] = []
    skipped = False
    for parameter in parameters:
        counterpart = _counterpart(parameter.name, known, given)
        if not counterpart and parameter.default is None:
            return f"its parameter {parameter.name} is not one of {known.op}'s ({', '.join(known.takes)})"
        if not counterpart and _differs(parameter):
            return f"its {parameter.name} is {parameter.default} by default, that of {known.op} is not"
        if not counterpart:
            skipped = True
            if by_place:
                arguments.append(str(parameter.default))
            continue
        given[counterpart] = parameter.name
        by_name = (skipped and not by_place) or parameter.by_name
        arguments.append(f"{parameter.name}={counterpart}" if by_name else counterpart)
    missing = [
        name for name in known.takes if name not in given and name not in known.optional | known.implied
    ]
    if missing:
        return f"it does not take {missing[0]}, as {known.op} does"
    while by_place and arguments and arguments[-1] not in given:
        arguments.pop()
    fixed = tuple(name for name in known.takes if name in known.implied and name not in given)
    declares = tuple(name for name in known.takes if name in given or name in fixed)
    examples = dict(zip(known.takes, known.examples, strict=True))
    first, *others = declares
    call = ", ".join([examples[first], *(f"{other}={examples[other]}" for other in others)])
    direct = not fixed and not skipped and tuple(arguments) == known.takes[: len(arguments)]
    return Match(
        known.name, known.op, declares, tuple(arguments), fixed, direct=direct, call=f"{known.op}({call})"
    )


def _counterpart(parameter: str, known: KnownOp, given: dict[str, str]) -> str:
    """The op's parameter that a function calls by this name; "" if none is certain."""
    word = parameter.lower().strip("_").removesuffix("_ptr")
    free = [name for name in known.takes if name not in given]
    exact = [name for name in free if name == word]
    return (exact or [name for name in free if word in _SYNONYMS.get(name, name).split()] or [""])[0]


def _differs(parameter: Parameter) -> bool:
    """Whether a parameter that is left at its default makes a function another one than the op."""
    try:
        default = ast.literal_eval(str(parameter.default))
    except (ValueError, SyntaxError):
        return False
    return default not in (None, _DEFAULTS.get(parameter.name, default))


def examples(calls: str) -> list[str]:
    """The assignments of what calls of ops name."""
    return [line for line in _EXAMPLES.split("\n") if re.search(rf"\b{line.split(' ')[0] or '$^'}\b", calls)]
