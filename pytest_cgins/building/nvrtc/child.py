"""NVRTC in a process of its own: reads what to compile from a file, and writes what came of it to another.

    python -I -S -c … REQUEST RESULT

The process runs in a sandbox, and nothing that it writes is trusted: see `apart`.
"""

from __future__ import annotations

import json
import struct
import sys

# Relative, and with modules that have no neighbours: see `calls`.
from . import calls

HEADER = struct.Struct("<Q")
"""What a result begins with: the length of the JSON that follows. Behind it are the cubin and the PTX."""


def main() -> None:
    """Compile as the command line says."""
    request, result = sys.argv[-2:]
    with open(request, "rb") as file:  # noqa: PTH123 - pathlib's import takes a tenth of all else here
        asked = json.load(file)
    nvrtc = calls.load(asked["names"], asked["builtins"])
    given = (asked["text"], asked["file"], asked["options"])
    done = calls.compile(nvrtc, *given, expressions=asked["expressions"])
    told = {"log": done.log, "lowered": done.lowered, "cubin": len(done.cubin), "ptx": len(done.ptx)}
    text = json.dumps(told).encode()
    with open(result, "wb") as file:  # noqa: PTH123
        file.write(HEADER.pack(len(text)) + text + done.cubin + done.ptx)
