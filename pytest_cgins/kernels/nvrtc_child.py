"""NVRTC in a process of its own: reads what to compile from a file, and writes what came of it to another.

    python -I -S -c … REQUEST RESULT

The process runs in a sandbox, and nothing that it writes is trusted: see `nvrtc_apart`.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

from pytest_cgins.kernels import nvrtc

HEADER = struct.Struct("<Q")
"""What a result begins with: the length of the JSON that follows. Behind it are the cubin and the PTX."""


def main() -> None:
    """Compile as the command line says."""
    request, result = map(Path, sys.argv[-2:])
    asked = json.loads(request.read_bytes())
    nvrtc.use(Path(asked["library"]) if asked["library"] else None)
    done = nvrtc.compile(
        asked["text"],
        asked["name"],
        asked["arch"],
        asked["options"],
        expressions=asked["expressions"],
        headers=[(name, text) for name, text in asked["headers"]],
    )
    cubin, ptx = done.cubin or b"", done.ptx or b""
    told = {"log": done.log, "lowered": done.lowered, "cubin": len(cubin), "ptx": len(ptx)}
    text = json.dumps(told).encode()
    result.write_bytes(HEADER.pack(len(text)) + text + cubin + ptx)
