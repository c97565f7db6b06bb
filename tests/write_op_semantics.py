"""Write what torch's own tests know of its ops into the package: `python -m tests.write_op_semantics`.

Needs `expecttest`, which torch's test package imports.
"""

from __future__ import annotations

import json
from typing import Any

from pytest_cgins.verify.semantics import FILE

_FLOATS = ("bfloat16", "float16", "float32", "float64")


def document() -> dict[str, Any]:
    """The file's content, for this torch."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    ops: dict[str, Any] = {}
    for info in op_db:
        # Several entries of one name differ in the arguments that they are tried with.
        entry = ops.setdefault(info.name, _entry(info))
        entry["aliases"] = sorted({*entry["aliases"], *(alias.name for alias in info.aliases)})
    for entry in ops.values():
        if not entry["aliases"]:
            del entry["aliases"]
    return {"torch": str(torch.__version__).partition("+")[0], "ops": dict(sorted(ops.items()))}


def _entry(info: Any) -> dict[str, Any]:
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo

    sort, domains = "other", []
    if isinstance(info, UnaryUfuncInfo):
        sort, domains = "unary", [list(info.domain)]
    elif isinstance(info, BinaryUfuncInfo):
        sides = (info.lhs_make_tensor_kwargs, info.rhs_make_tensor_kwargs)
        sort, domains = "binary", [[side.get("low"), side.get("high")] for side in sides]
    elif isinstance(info, ReductionOpInfo):
        sort = "reduction"
    names = {str(dtype).removeprefix("torch.") for dtype in info.dtypes}
    return {
        "sort": sort,
        "domains": domains,
        "floats": [name for name in _FLOATS if name in names],
        "aliases": [],
    }


def text() -> str:
    """The file: an op a line, so that a new torch makes a readable difference."""
    made = document()
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in made["ops"].items()]
    return f'{{"torch": {json.dumps(made["torch"])}, "ops": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
