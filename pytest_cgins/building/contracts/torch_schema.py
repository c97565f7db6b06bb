"""What torch itself says of one of its ops, asked in a process of its own: schemas, and the first words of its documentation.

Run as a program it prints that as JSON; imported it asks.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_LIMIT_S = 60.0
_NAME = re.compile(r"torch(?:\.[A-Za-z_]\w*){1,4}", re.ASCII)
_UNKNOWN: dict[str, Any] = {"schemas": [], "doc": "", "defaults": {}}
# What the contract's schema language does not have.
_WORDS = (
    (r"\bSymInt\b", "int"),
    (r"\b(Tensor|int|float|bool)\[\d+\]", r"\1[]"),
    (r"=\[(\d+)(?:, \1)*\]", r"=\1"),
)


def overloads(op: str) -> tuple[str, ...]:
    """Torch's schemas of an op, in the contract's words, without namespace and overload; () for ops that are not torch's.

    What schemas call `self` is `input` to torch's functions, and so in recorded calls.
    """
    keeps_self = op.startswith(("torch.Tensor.", "torch.ops."))
    made = []
    for schema in _asked(op)["schemas"]:
        text = str(schema)
        for pattern, word in _WORDS:
            text = re.sub(pattern, word, text)
        if not keeps_self:
            text = re.sub(r"(\bTensor\S*) self\b", r"\1 input", text)
        text = re.sub(r"(?<==)\d\.\d+e-?\d+", lambda number: repr(float(number[0])), text)
        made.append(re.sub(r"^\w+::(\w+)(?:\.\w+)?", r"\1", text))
    return tuple(made)


def documentation(op: str) -> str:
    """The first paragraphs of an op's documentation; "" where there is none."""
    return str(_asked(op)["doc"])


def defaults(op: str) -> dict[str, str]:
    """Defaults of an op that is a Python function, as Python writes them: numbers, flags, None and plain words."""
    return {str(name): str(value) for name, value in dict(_asked(op)["defaults"]).items()}


@functools.lru_cache(maxsize=64)
def _asked(op: str) -> dict[str, Any]:
    if not _NAME.fullmatch(op):
        return _UNKNOWN
    try:
        ended = subprocess.run(
            [sys.executable, "-I", str(Path(__file__)), op],
            capture_output=True, timeout=_LIMIT_S, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return dict(json.loads(ended.stdout.decode(errors="replace").strip().splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        # The program below is this file, which must not need the package.
        from pytest_cgins.core.errors import InfrastructureError

        raise InfrastructureError(
            f"torch could not be asked for the schemas of {op}: {error}",
            remedy="see whether `python -I -c 'import torch'` works, and try again on a less busy machine",
        ) from error


def tell(op: str) -> dict[str, Any]:
    """What is printed. Modules of torch.nn have documentation, and no schemas."""
    import torch

    found: Any = torch
    for part in op.split(".")[1:]:
        found = getattr(found, part, None)
    word = op.rpartition(".")[2].strip("_") or "none"
    words = [op.rpartition(".")[2], word]
    schemas = [
        str(schema)
        for name in dict.fromkeys(words)
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        if ".out" not in str(schema) and "Dimname" not in str(schema)
    ]
    doc = (getattr(found, "__doc__", None) or "") if found is not None else ""
    return {"schemas": schemas[:20], "doc": doc[:4000], "defaults": _defaults(found)}


def _defaults(function: Any) -> dict[str, str]:
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    plain = (type(None), bool, int, float, str)
    return {one.name: repr(one.default) for one in parameters if isinstance(one.default, plain)}


if __name__ == "__main__":
    print(json.dumps(tell(sys.argv[1])))
