"""Compilers: where they are, which version, and what `-march=native` means on this host."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pytest_cgins.building.compilers import toolkit
from pytest_cgins.building.compilers.process import ASK_LIMIT_S, ask
from pytest_cgins.core.errors import InfrastructureError

MOST_SCRIPT_BYTES = 1 << 20


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
    """Command of the CUDA compiler: of `$CUDA_HOME`, on PATH, in /usr/local/cuda, or of an installed wheel.

    Raises:
        InfrastructureError: there is none.
    """
    if (path := toolkit.program("nvcc")) is not None:
        return (str(path),)
    raise InfrastructureError(
        "no CUDA compiler: nvcc is neither in $CUDA_HOME/bin nor on PATH nor in /usr/local/cuda/bin, and the "
        "package nvidia-cuda-nvcc is not installed",
        remedy="pip install 'pytest-cgins[nvcc]', or install the CUDA toolkit (apt install cuda-nvcc-13-0, conda "
        "install cuda-nvcc) and set CUDA_HOME to where it is",
    )


def homes() -> dict[str, Path]:
    """Folders that a machine may have elsewhere with the same content: CUDA toolkit and Python's packages."""
    found = {"cgins": Path(__file__).parents[1] / "include", "python": Path(sysconfig.get_paths()["purelib"])}
    with suppress(InfrastructureError):
        compiler = _behind(Path(nvcc()[0]))
        found["cuda"] = compiler.parents[1]
        found["cuda-real"] = compiler.resolve().parents[1]
    return found


def _behind(command: Path) -> Path:
    """The command that a shell script of one line stands for; the command itself if it is none."""
    try:
        with command.open("rb") as file:
            text = file.read(400)
    except OSError:
        return command
    script = re.fullmatch(rb'#!\s*/\S*sh\s*\n\s*exec\s+(/\S+)\s+"\$@"\s*', text)
    return Path(os.fsdecode(script[1])) if script else command


def installation(command: str, parts: Iterable[str]) -> Iterator[Path]:
    """What lies beside a command's folder, of the command as it is found and as it is behind links and scripts.

    Args:
        command: its name or path; "" for none.
        parts: names of folders there, as patterns.
    """
    found = shutil.which(command) if command else None
    if found is None:
        return
    first = Path(found).absolute()
    for place in dict.fromkeys((first, first.resolve(), _behind(first).resolve())):
        for part in parts:
            yield from place.parents[1].glob(part)


@lru_cache(maxsize=16)
def version(command: tuple[str, ...]) -> str:
    """The compiler's own full version text; of a script around one its digest too, for it may add flags."""
    return _output((*command, "--version")) + _script_digest(command[0])


def _script_digest(command: str) -> str:
    found = shutil.which(command)
    content = Path(found).read_bytes() if found and Path(found).stat().st_size < MOST_SCRIPT_BYTES else b""
    return f"\nscript {hashlib.sha256(content).hexdigest()}\n" if content.startswith(b"#!") else ""


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


def own_statics(command: tuple[str, ...]) -> tuple[str, ...]:
    """The flag that keeps the statics of templates and inline functions to their library; () where they always are.

    GNU's compiler makes them unique in a process, across libraries that share nothing else: a kernel's two builds
    would have one counter. Others have no such flag, and refuse it.
    """
    try:
        gnu = "Free Software Foundation" in version(command)
    except InfrastructureError:  # whoever needs the compiler is told
        return ()
    return ("-fno-gnu-unique",) if gnu else ()


def _output(command: tuple[str, ...], *, check: bool = True) -> str:
    """What a compiler prints to a question.

    Raises:
        InfrastructureError: it cannot be run, or fails while `check` is set.
    """
    remedy = "run it by hand and fix the installation"
    try:
        told = ask(command)
    except OSError as error:
        raise InfrastructureError(f"{shlex.join(command)}: {error}", remedy=remedy) from error
    if told.status is None:
        raise InfrastructureError(f"{shlex.join(command)} did not end in {ASK_LIMIT_S:g} s", remedy=remedy)
    if check and told.status != 0:
        raise InfrastructureError(
            f"{shlex.join(command)} ended with {told.status}: {told.log.strip()[-400:]}", remedy=remedy
        )
    return told.log
