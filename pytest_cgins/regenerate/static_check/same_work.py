"""Which names of torch do the work of an op, so that calling them is no kernel."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from pytest_cgins.verify.probes import op_families as families


@dataclass(frozen=True, slots=True, kw_only=True)
class SameWork:
    """The names that an op's kernel may not call."""

    op: str
    """As cgins.yaml names it, without a backward's mark."""
    _keys: frozenset[str]
    _family: str
    _instead: tuple[frozenset[str], ...]

    def has(self, name: str) -> bool:
        """Whether a function, method, module class or operator of this name does the op's work."""
        plain = families.plain(_snake(name))
        tail = plain.removesuffix("_backward")
        return any(
            _key(each) in self._keys or families.family(each) == self._family for each in (plain, tail)
        )

    def composed(self, names: Collection[str]) -> tuple[str, ...]:
        """Those of some names that do the op's work together; none if one is missing."""
        by_family = {families.family(families.plain(_snake(name))): name for name in names}
        for others in self._instead:
            if others <= set(by_family):
                return tuple(by_family[other] for other in sorted(others))
        return ()


def of(op: str) -> SameWork:
    """The names that do what an op does; for a function of the user's, its own name and that of torch's like."""
    base = op.partition("@")[0]
    last = families.plain(_snake(base.rpartition(".")[2]))
    family = families.family(last)
    return SameWork(
        op=base,
        _keys=frozenset({_key(last), *(_CLAMPS if last == "relu" else ())}),
        _family=family,
        _instead=tuple(frozenset(others) for others in families.INSTEAD.get(family, ())),
    )


_CLAMPS = ("clamp", "clampmin", "clip")
"""What a model would write for relu. Of a person it is a kernel."""


def _snake(name: str) -> str:
    """`LayerNorm` as `layer_norm`, `BatchNorm2d` as `batch_norm`; other names as they are."""
    if not name[:1].isupper():
        return name
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", re.sub(r"[123]d$", "", name))
    return words.removesuffix("Loss").strip("_").lower() or name


def _key(name: str) -> str:
    return name.strip("_").replace("_", "")
