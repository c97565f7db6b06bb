"""Lists the operators of ATen that do the same work, and those that do none.

Names are those of torch's schemas without underscores at either end, so that in-place and internal forms fall
together; operators that are not torch's go by their whole names, `namespace::name`. Versions of torch differ in what a function decomposes into, never much in these names.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from pytest_cgins.core.trace import OF_TORCH

_DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Expressions that match names: of families by what they compute, backward included, `heavy` ones, the expensive part of
the ops that call them, and `light` ones, which do an op's work if they are run on as much as it is; and of `free` operators."""
_PATTERNS = {name: re.compile("|".join(forms)) for name, forms in (_DATA["heavy"] | _DATA["light"]).items()}

INSTEAD = {
    "attention": ({"contraction", "softmax"},),
    "bag": ({"embedding"},),
    "contraction": ({"bag"}, {"recurrence"}, {"solution"}, {"distance"}),
    "embedding": ({"bag"},),
    "softmax": ({"attention"},),
    "sum": ({"contraction"}, {"bag"}, {"attention"}),
}
"""Families that together do a family's work: a weighted bag is a product, and a softmax is the attention to a unit matrix."""

_FREE = re.compile("|".join(_DATA["free"]))


def plain(name: str) -> str:
    """A schema's name without namespace and outer underscores, `aten::_softmax` → `softmax`; others' stay whole."""
    namespace, _, short = name.rpartition("::")
    return short.strip("_") if namespace in OF_TORCH else name


@lru_cache(maxsize=8192)  # a kernel chooses the names of its own operators
def family(name: str) -> str:
    """What an operator, by its plain name, computes; its own name if that is in no table."""
    return next((label for label, pattern in _PATTERNS.items() if pattern.fullmatch(name)), name)


def is_heavy(name: str) -> bool:
    """Whether it is of a family whose work is heavy."""
    return family(name) in _DATA["heavy"]


def is_free(name: str) -> bool:
    """Whether an operator only makes, moves or names memory."""
    return _FREE.fullmatch(name) is not None
