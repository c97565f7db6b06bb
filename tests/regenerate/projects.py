"""Tiny projects in a repository of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

YAML = """\
version: 1
kernels:
  scale:
    op: torch.relu
    implementations:
      - {name: cpp, device: cpu, source: native/scale.cpp}
      - {name: python, device: cpu, target: 'kernels.scale:scale'}
      - {name: other, device: cpu, target: 'kernels.scale:other'}
"""
FILES = {
    "cgins.yaml": YAML,
    "native/scale.cpp": "// cgins: scale(Tensor input) -> Tensor\r\n#include <cgins.h>\n",
    "native/factor.h": "#define FACTOR 2\n",
    "kernels/__init__.py": "",
    "kernels/scale.py": "def scale(input):\n    return input\n\n\ndef other(input):\n    return input\n",
    "tests/test_all.py": "def test(): pass\n",
    "notes.md": "notes\n",
}


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(
        ["git", "-C", folder, *identity, *words], capture_output=True, check=True, text=True
    )
    return done.stdout


def write(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """The files, uncommitted; gives the folder of cgins.yaml."""
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8", newline="")
    return folder


def committed(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """The same, committed on main."""
    write(folder, files)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder
