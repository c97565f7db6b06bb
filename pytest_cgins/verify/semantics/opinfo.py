"""What torch's own tests know of its ops, from the file that `tests/write_op_semantics.py` writes.

Torch's test package takes seconds to import and needs packages of its own, so it is asked beforehand.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).parent / "opinfo.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFacts:
    """One op in torch's tests."""

    sort: Literal["unary", "binary", "reduction", "other"]
    """Elementwise over one or two tensors, a reduction, or anything else."""
    domains: tuple[tuple[float, float], ...]
    """Least and greatest legal value of the first arguments, infinite where there is no end; () for "other"."""
    floats: frozenset[str]
    """Floating dtypes that it takes on a CPU."""


@cache
def _tables() -> tuple[dict[str, Any], dict[str, str]]:
    document = json.loads(FILE.read_text(encoding="utf-8"))
    ops = document["ops"]
    return ops, {alias: name for name, facts in ops.items() for alias in facts.get("aliases", ())}


def facts_of(op: str) -> OpFacts | None:
    """What is known of an op by its qualified name; None if it is not torch's, or not tested there."""
    if not op.startswith("torch."):
        return None
    parts = op.partition("@")[0].split(".")[1:]
    if parts[:2] == ["ops", "aten"]:
        parts = parts[2:3]
    elif parts[0] == "Tensor":
        parts = parts[1:]
    ops, aliases = _tables()
    name = ".".join(parts).rstrip("_")
    for candidate in (name, f"nn.functional.{name}", name.rpartition(".")[2]):
        found = ops.get(aliases.get(candidate, candidate))
        if found is not None:
            return OpFacts(
                sort=found["sort"],
                domains=tuple((_end(low, -math.inf), _end(high, math.inf)) for low, high in found["domains"]),
                floats=frozenset(found["floats"]),
            )
    return None


def _end(value: float | None, open_end: float) -> float:
    return open_end if value is None else float(value)
