"""Compilers: where they are, which version, and what `-march=native` means on this host."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from pytest_cgins.errors import InfrastructureError

PORTABLE_ARCHS = ("sm_80", "compute_80")


def cxx() -> tuple[str, ...]:
    """Command of the C++ compiler: `$CXX`, else g++, else clang++.

    Raises:
        InfrastructureError: there is none.
    """
    try:
        wanted = tuple(shlex.split(os.environ.get("CXX", "")))
    except ValueError as error:
        raise InfrastructureError(
            f"no C++ compiler: $CXX is {os.environ['CXX']!r}: {error}", remedy="quote it as in a shell"
        ) from error
    for command in [wanted] if wanted else [("g++",), ("clang++",)]:
        if shutil.which(command[0]):
            return command
    name = f'"{wanted[0]}" of $CXX' if wanted else "g++ or clang++"
    raise InfrastructureError(
        f"no C++ compiler: {name} is not on PATH",
        remedy="install one (apt install g++, dnf install gcc-c++, conda install gxx), or set CXX",
    )


def nvcc() -> tuple[str, ...]:
    """Command of the CUDA compiler: of `$CUDA_HOME`, on PATH, or in /usr/local/cuda.

    Raises:
        InfrastructureError: there is none.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    places = [Path(home) / "bin/nvcc"] if home else []
    on_path = shutil.which("nvcc")
    places += [Path(on_path)] if on_path else []
    for place in [*places, Path("/usr/local/cuda/bin/nvcc")]:
        if os.access(place, os.X_OK):
            return (str(place),)
    raise InfrastructureError(
        "no CUDA compiler: nvcc is neither in $CUDA_HOME/bin nor on PATH nor in /usr/local/cuda/bin",
        remedy="install the CUDA toolkit (cuda-nvcc), or set CUDA_HOME to where it is",
    )


@lru_cache(maxsize=16)
def version(command: tuple[str, ...]) -> str:
    """The compiler's own full version text."""
    return _output((*command, "--version"))


@lru_cache(maxsize=16)
def native_flags(command: tuple[str, ...]) -> tuple[str, ...]:
    """The explicit machine flags that `-march=native` stands for; () where the compiler has no such flag.

    A cache key with "native" in it would serve one host's instructions to another.
    """
    # -### prints the inner commands without running them: one line of quoted words for the compiler proper.
    text = _output((*command, "-march=native", "-###", "-E", "-x", "c++", os.devnull), check=False)
    for line in text.splitlines():
        if "-march=" not in line and "-target-cpu" not in line:
            continue
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        if "-target-cpu" in words:  # clang
            return (f"-march={words[words.index('-target-cpu') + 1]}",)
        flags = tuple(word for word in words if word.startswith("-m") and word != "-march=native")
        if any(flag.startswith("-march=") for flag in flags):
            return flags
    return ()


@lru_cache(maxsize=1)
def present_archs() -> tuple[str, ...]:
    """CUDA architectures to build for when a kernel names none.

    `$CGINS_CUDA_ARCHS` (comma-separated), else those of the devices in this host, else sm_80 with PTX,
    which every later device can run.
    """
    named = os.environ.get("CGINS_CUDA_ARCHS", "")
    if named.strip():
        return tuple(arch.strip() for arch in named.split(",") if arch.strip())
    if not shutil.which("nvidia-smi"):
        return PORTABLE_ARCHS
    query = ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    capabilities = {line.strip() for line in _output(query, check=False).splitlines()}
    return (
        tuple(
            f"sm_{major}{minor}"
            for major, _, minor in sorted(text.partition(".") for text in capabilities)
            if major.isdigit() and minor.isdigit()
        )
        or PORTABLE_ARCHS
    )


def _output(command: tuple[str, ...], *, check: bool = True) -> str:
    """Stdout and stderr of a short command.

    Raises:
        InfrastructureError: it cannot be run, or fails while `check` is set.
    """
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(
            f"{shlex.join(command)}: {error}", remedy="run it by hand and mend the installation"
        ) from error
    if check and done.returncode != 0:
        raise InfrastructureError(
            f"{shlex.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-400:]}",
            remedy="run it by hand and mend the installation",
        )
    return done.stdout + done.stderr
