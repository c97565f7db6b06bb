"""Name the cache of built kernels. Standard library only; torch is looked at, not imported.

The build cache finds libraries by content, so an old cache is never wrong, only incomplete. The key says
which caches are worth restoring: same system, interpreter, torch, CUDA and compilers, better the same kind of
processor (C++ kernels are built for it), and best the same sources. What is long unused is pruned before a
cache is saved, so that libraries of sources that are gone do not pile up for ever.

Outputs: `key`; `near`, its beginning without the sources; `prefix`, without the processor too.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from workflow import set_output

SUFFIXES = frozenset((".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inl", ".py"))
LEFT_OUT = frozenset(("__pycache__", "node_modules", "site-packages"))
"""Folders without sources of kernels; so are those whose names begin with a dot."""


def prefix(suffix: str) -> str:
    """What a cache must share with this run."""
    parts = [
        "cgins",
        suffix,
        os.environ.get("RUNNER_OS", platform.system()),
        os.environ.get("RUNNER_ARCH", platform.machine()),
        f"py{sys.version_info[0]}.{sys.version_info[1]}",
        f"torch{torch_version()}",
        f"cuda{torch_cuda()}",
        f"nvcc{nvcc_version()}",
        f"cxx{cxx_version()}",
    ]
    # A comma would end the key, and a local version such as 2.6.0+cu124 is read well with a dash.
    return "-".join(re.sub(r"[^A-Za-z0-9._-]", "-", part) for part in parts if part) + "-"


def torch_version() -> str:
    """Version of the installed torch, "none" without."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "none"


def torch_cuda() -> str:
    """CUDA version that torch was built with, "none" without."""
    try:
        file = Path(str(metadata.distribution("torch").locate_file("torch/version.py")))
        found = re.search(
            r"^cuda\b[^=\n]*=\s*['\"]([0-9.]+)['\"]", file.read_text(encoding="utf-8"), re.MULTILINE
        )
    except (metadata.PackageNotFoundError, OSError, UnicodeDecodeError):
        return "none"
    return found[1] if found else "none"


def nvcc_version() -> str:
    """Release of the CUDA compiler that builds, "none" without."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = str(Path(home) / "bin" / "nvcc") if home else shutil.which("nvcc")
    if nvcc is None:
        return "none"
    try:
        said = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return "none"
    found = re.search(r"\bV([0-9.]+)", said)
    return found[1] if found else "unknown"


def cxx_version() -> str:
    """Version of the C++ compiler that builds, "none" without."""
    try:
        command = shlex.split(os.environ.get("CXX", "")) or ["g++" if shutil.which("g++") else "clang++"]
        said = subprocess.run(
            [*command, "-dumpfullversion", "-dumpversion"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return "none"
    return said.strip() if re.fullmatch(r"[0-9.]+", said.strip()) else "unknown"


def processor() -> str:
    """A hash of the kind of processor and its features, "any" where the system does not tell."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "any"
    first = told.split("\n\n", 1)[0].splitlines()
    names = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU part", "Features")
    kind = [line for line in first if line.partition(":")[0].strip() in names]
    return hashlib.sha256("\n".join(kind).encode()).hexdigest()[:8] if kind else "any"


def sources(folder: Path) -> Iterator[Path]:
    """Files below a folder that kernels may be built from, and every cgins.yaml, in a fixed order."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in LEFT_OUT
            and not (Path(root) / name / "pyvenv.cfg").exists()
        )
        for name in sorted(files):
            file = Path(root) / name
            if (file.suffix in SUFFIXES or name == "cgins.yaml") and file.is_file():
                yield file


def digest(folder: Path) -> str:
    """A hash of these files' relative paths and contents."""
    whole = hashlib.sha256()
    for file in sources(folder):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{content} {file.relative_to(folder).as_posix()!r}\n".encode())
    return whole.hexdigest()


def main() -> None:
    """Write the outputs."""
    beginning = prefix(os.environ["INPUT_CACHE_KEY_SUFFIX"])
    near = f"{beginning}cpu{processor()}-"
    set_output("prefix", beginning)
    set_output("near", near)
    set_output("key", near + digest(Path(os.environ["CGINS_FOLDER"])))


if __name__ == "__main__":
    main()
