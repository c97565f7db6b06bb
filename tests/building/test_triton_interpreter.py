"""What Triton's interpreter does otherwise than a GPU, and so decides which calls it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import torch
import triton
import triton.language as tl

@triton.jit
def to_type(x, out, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(out + index, tl.load(x + index).to(out.dtype.element_ty))

for dtype, bits in ((torch.float16, 10), (torch.bfloat16, 7)):
    x = torch.full((4,), 1 + 0.75 * 2.0**-bits)  # nearer to the next number of the type than to 1
    out = torch.empty(4, dtype=dtype)
    to_type[(1,)](x, out, BLOCK=4)
    print(dtype, "rounds" if torch.equal(out, x.to(dtype)) else "cuts off")
"""


@pytest.mark.exam
def test_which_types_the_interpreter_rounds(tmp_path: Path) -> None:
    """It rounds to fp16, and cuts bf16 off: while it does, calls with bf16 are refused in `functions`."""
    pytest.importorskip("triton")
    script = tmp_path / "script.py"  # the interpreter reads a kernel's source from its file
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.splitlines() == ["torch.float16 rounds", "torch.bfloat16 cuts off"]
