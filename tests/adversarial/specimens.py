"""Kernels as files, each with a header that says what it is and how it must come out.

The header is the first comment lines of a C++ or CUDA file, and the docstring of a Python file:

    // cheat: 6 result cache by data_ptr       number of the way in peers.md, and the disguise
    // how: answers from memory when it has met the address before
    // caught-by: stale-answer                 reason codes, any of which is right
    // ops: torch.nn.functional.softmax        the op that it replaces
    // packs: f32 even                         recorded calls that it is gated on, by default f32
    // also: timing gpu interpret extension    timed as well; needs a GPU; Triton's interpreter; torch extension
    // also: base                              timed against `_base` of its suffix, which is in its place at the base revision
    // also: always                            stands for its reason, or op, in `make test`: the others are in `make test-exam`
    // also: sandbox                           is kept out by the sandbox, and by nothing else: see test_sandboxed.py
    // yaml: {claims: [strided]}               further keys of its entry in cgins.yaml; flags are of its implementation

An honest kernel has `honest:` instead of `cheat:`, and no `caught-by:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.mark import ParameterSet

ADVERSARIAL = Path(__file__).parent / "kernels"
HONEST = Path(__file__).parents[1] / "honest" / "kernels"
SUFFIXES = (".cpp", ".cu", ".py")
_KEYS = ("cheat", "honest", "how", "caught-by", "ops", "packs", "also", "yaml")
_FLAGS = {"timing", "gpu", "interpret", "extension", "device-contract", "sandbox", "base", "always"}
_LINE = re.compile(rf'(?:// |""")?({"|".join(_KEYS)}): (\S.*)')


@dataclass(frozen=True)
class Specimen:
    """One kernel of the collection."""

    file: Path
    way: int
    """Of the 27 ways of a wrong kernel; 0 for an honest one."""
    what: str
    """The disguise, or what is honest."""
    how: str
    """How it tries to pass."""
    caught_by: tuple[str, ...]
    """Reason codes."""
    op: str
    packs: tuple[str, ...]
    flags: frozenset[str]
    extra: dict[str, Any] = field(hash=False)
    """Further keys of its entry in cgins.yaml."""

    @property
    def name(self) -> str:
        """Of the file and of the kernel."""
        return self.file.stem

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return "cuda" if "gpu" in self.flags else "cpu"

    @property
    def language(self) -> str:
        """What it is written in."""
        text = self.file.read_text()
        if self.file.suffix == ".py":
            return "Triton" if "import triton" in text else "Python"
        if "extension" in self.flags:
            return "torch extension"
        if "device-contract" in self.flags:
            return "CUDA (device)"
        return "CUDA" if self.file.suffix == ".cu" else "C++"

    @property
    def parameter(self) -> ParameterSet:
        """Itself as a test's parameter, with its name; marked `exam` unless it is gated for every change."""
        marks = () if self.flags & {"always", "gpu"} else pytest.mark.exam
        return pytest.param(self, id=self.name, marks=marks)

    def entry(self) -> dict[str, Any]:
        """Its entry in cgins.yaml; the sources lie in `kernels`."""
        implementation: dict[str, Any] = {"name": "it", "device": self.device}
        if self.file.suffix == ".py":
            implementation["target"] = f"kernels.{self.name}:kernel"
        else:
            implementation["source"] = f"kernels/{self.file.name}"
        extra = dict(self.extra)
        if "flags" in extra:
            implementation["flags"] = extra.pop("flags")
        if "interpret" in self.flags:
            implementation["interpret"] = True
        if "extension" in self.flags:
            implementation |= {"contract": "torch-extension", "entry": "kernel"}
        if "device-contract" in self.flags:
            implementation["contract"] = "device"
        return {"op": self.op, **extra, "implementations": [implementation]}


def collect(folder: Path) -> list[Specimen]:
    """All kernels of a folder, by name; files that begin with `_` and headers are what they share.

    Raises:
        ValueError: two have one name, or one has a header that is not as above.
    """
    files = [file for file in sorted(folder.iterdir()) if file.suffix in SUFFIXES and file.name[0] != "_"]
    if len({file.stem for file in files}) != len(files):
        raise ValueError(f"two kernels of {folder} have one name")
    return [read(file) for file in files]


def read(file: Path) -> Specimen:
    """One kernel.

    Raises:
        ValueError: its header lacks a line, or has one that is not known.
    """
    found = dict(_header(file.read_text().splitlines()))
    kind = "cheat" if "cheat" in found else "honest"
    missing = {kind, "ops", *(("how", "caught-by") if kind == "cheat" else ())} - set(found)
    flags = frozenset(found.get("also", "").split())
    if missing or not flags <= _FLAGS:
        raise ValueError(f"{file.name}: the header lacks {sorted(missing)}, or has {sorted(flags - _FLAGS)}")
    number, what = found[kind].split(" ", 1) if kind == "cheat" else ("0", found[kind])
    return Specimen(
        file=file,
        way=int(number),
        what=what,
        how=found.get("how", ""),
        caught_by=tuple(found.get("caught-by", "").replace(",", " ").split()),
        op=found["ops"],
        packs=tuple(found.get("packs", "f32").split()),
        flags=flags,
        extra=yaml.safe_load(found.get("yaml", "{}")),
    )


def _header(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            return
        yield match[1], match[2].strip()
