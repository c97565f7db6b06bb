"""`python -m tests.regenerate.methods.write_listings`: compile families.cu and write its machine code, shortened, to listings/."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from pytest_cgins.building import sass

HERE = Path(__file__).parent
ARCHS = ("sm_80", "sm_90a", "sm_100a")
_HEAD = re.compile(r"\s*(?:arch = |Function : |code for )")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4}\*/\s+(?:@\S+\s+)?([^;]+)")


def listing(tool: Path, arch: str, nvcc: str = "nvcc") -> str:
    """cuobjdump's listing of families.cu, built for an architecture."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "families.cubin"
        subprocess.run(
            [nvcc, "-O3", "-cubin", f"-arch={arch}", "-o", str(cubin), str(HERE / "families.cu")],
            check=True, capture_output=True,
        )  # fmt: skip
        path = os.pathsep.join([str(tool.parent), os.environ.get("PATH", "")])
        done = subprocess.run(
            [str(tool), "-sass", str(cubin)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )
    return done.stdout


def shortened(text: str) -> str:
    """Heads, and the first instruction of each form in each function, without encodings."""
    lines: list[str] = []
    seen: set[str] = set()
    for line in text.splitlines():
        if _HEAD.match(line):
            seen = set()
            lines.append(line.rstrip())
        elif (found := _INSTRUCTION.match(line)) and (
            form := re.sub(r"\bU?R\d+|-?\d[\d.]*", "_", found[1])
        ) not in seen:
            seen.add(form)
            lines.append(re.sub(r"\s*/\* 0x[0-9a-f]+ \*/\s*$", "", line))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    tool = sass.disassembler()
    assert tool is not None, sass.REMEDY
    for arch in ARCHS:
        (HERE / "listings" / f"{arch}.sass").write_text(shortened(listing(tool, arch)))
