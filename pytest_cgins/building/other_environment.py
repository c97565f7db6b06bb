"""Another environment to build and to run kernels in: other packages, another toolkit, other variables.

One is told of by words as in a shell, in any order:

    /opt/venvs/triton-3.4                a virtual environment, or its Python
    'NVCC_APPEND_FLAGS=-Xptxas -O1'      a variable, such as CUDA_HOME or TRITON_PTXAS_PATH
    dist/kernels-1.2.whl                 a wheel: unpacked, and imported from before all else
    build/lib                            any other folder, imported from before all else
    old/libops.so                        a library, loaded in place of the one of this name that cgins.yaml loads
    /srv/containers/cuda-12.8            the root folder of a container, with its Python

What builds there is a process of that Python, so that compilers, headers and versions are found as a program of that
environment finds them. It needs torch; of ours it gets the package and what that imports.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from pytest_cgins.building.build import DEFAULT_TIMEOUT_S, build
from pytest_cgins.building.cache.headers import file_digest
from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.core import atomic, documents, errors
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import BuildError, CginsError, ConfigError, InfrastructureError

OLDEST_PYTHON = (3, 10)
THIS = "."
"""The word for this process's own environment."""
ASK_LIMIT_S = 180.0
"""A first import of torch from a cold disk takes minutes."""
_PYTHONS = ("bin/python", "bin/python3")
_PYTHONS_OF_ROOTS = ("usr/local/bin/python3", "usr/bin/python3", "opt/conda/bin/python3")
_LENT = ("typing_extensions", "typing_inspection", "annotated_types", "pydantic_core", "pydantic")
"""Packages that our modules need in a worker, and that the other environment may lack, each after those that it needs."""
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ASK = (
    "import json, sys; from importlib.util import find_spec; print('cgins-answer ' + json.dumps([list(sys.version_info[:2]), "
    "[name for name in ('torch', 'pydantic', 'annotated_types') if find_spec(name)]]))"
)
_ENTER = (
    'root=$1; count=$2; shift 2; while [ $count -gt 0 ]; do mkdir -p "$root$1" && mount --rbind "$1" "$root$1" || exit 1; '
    'shift; count=$((count - 1)); done; exec chroot "$root" "$@"'
)
"""Shows folders of this machine in a root, then has it run a command."""
_MARK = "cgins-answer "
"""What an answer begins with."""
_FIRST = "import sys; sys.path[:1] == [''] and sys.path.pop(0); "
_LOAD = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
for name, file in {files}:
    spec = spec_from_file_location(name, file)
    sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
"""
"""Imports packages from their files, whatever else is where these lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherEnvironment:
    """Where kernels are built and run instead."""

    text: str
    """As it was given."""
    command: tuple[str, ...] = (sys.executable,)
    """Runs its Python."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's."""
    libraries: tuple[str, ...] = ()
    """Loaded in place of those of the same names."""
    imports: tuple[str, ...] = ()
    """Folders that modules are imported from first, also before those of the project."""
    path: str = ""
    """What a program of its Python begins with, so that it finds our package and no other of ours."""

    def environ(self) -> dict[str, str]:
        """All variables of a process that builds in it. `PYTHONHOME` names our own Python."""
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
        return {**inherited, "CGINS_CACHE_DIR": str(default_cache().parent), **self.variables}

    def build(self, source: KernelSource) -> CompiledKernel:
        """Build a kernel there, through the cache that all environments share.

        Raises:
            CginsError: as `building.build.build`.
        """
        if source.contract == "python":
            return build(self._with_libraries(source))
        program = f"{self.path}from {__name__} import answer_build; answer_build({documents.dump(source)!r})"
        answer = _printed(self.command, program, self.environ(), self.text, 2 * DEFAULT_TIMEOUT_S)
        told = documents.load(_Built, answer)
        if told.compiled is not None:
            return told.compiled
        kind = getattr(errors, told.error, CginsError)
        more = {"log": told.log} if issubclass(kind, BuildError) else {}
        raise kind(f"{told.what}\n(built in {self.text})", remedy=told.remedy, **more)

    def _with_libraries(self, source: KernelSource) -> KernelSource:
        """A source whose libraries and modules are those of this environment, as far as it names some."""
        own = {Path(library).name: library for library in self.libraries}
        both = (source.load, source.files)
        load, files = (tuple(own.get(Path(name).name, name) for name in names) for names in both)
        top = source.module.partition(".")[0]
        here = [folder for folder in self.imports if next(Path(folder).glob(f"{top}*"), None) is not None]
        if load == source.load and not here:
            return source
        contents = [source.digest, *here, *(file_digest(name) or "" for name in load if name in own.values())]
        digest = hashlib.sha256("\0".join(contents).encode()).hexdigest()
        return replace(source, load=load, files=files, digest=digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built(Document):
    """What came of a build there."""

    compiled: CompiledKernel | None = None
    error: str = ""
    what: str = ""
    remedy: str = ""
    log: str = ""


def answer_build(source: str) -> None:
    """In the other environment: build, and print what came of it."""
    try:
        told = _Built(compiled=build(documents.load(KernelSource, source)))
    except CginsError as error:
        log = getattr(error, "log", "")
        told = _Built(error=type(error).__name__, what=error.what, remedy=error.remedy, log=log)
    print(_MARK + documents.dump(told))


def read(text: str, folder: Path) -> OtherEnvironment:
    """The environment that words tell of.

    Args:
        text: words as in a shell; paths in it may be relative.
        folder: what they are relative to.

    Raises:
        ConfigError: a word is neither a variable nor a path that is there, or the environment lacks what is needed.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"environment {text!r}: {error}", remedy="quote it as in a shell") from error
    if not words:
        raise ConfigError(
            "the environment is empty",
            remedy="name a virtual environment, or a variable: CUDA_HOME=/usr/local/cuda-12.8",
        )
    variables: dict[str, str] = {}
    imports: list[str] = []
    libraries: list[str] = []
    command: tuple[str, ...] = ()
    for word in words:
        path = folder / Path(word).expanduser()
        variable = _VARIABLE.fullmatch(word)
        if word == THIS:
            continue
        if variable and not path.exists():
            variables[variable[1]] = variable[2]
        elif path.suffix == ".whl" and path.is_file():
            imports.append(str(_unpacked(path)))
        elif path.suffix == ".so" and path.is_file():
            libraries.append(str(path.resolve()))
        elif python := _python_of(path):
            command = python
        elif path.is_dir():
            imports.append(str(path.resolve()))
        else:
            raise ConfigError(
                f"environment {text!r}: {word!r} is no folder, Python, wheel, library or NAME=VALUE",
                remedy="name a virtual environment (python -m venv FOLDER), a wheel, or a variable",
            )
    if imports:
        inherited = variables.get("PYTHONPATH") or os.environ.get("PYTHONPATH", "")
        variables["PYTHONPATH"] = os.pathsep.join([*imports, *filter(None, [inherited])])
    # A wrapper around ptxas has its version, by which alone Triton's cache tells compilers apart.
    tools = (file_digest(value) or "" for value in variables.values() if Path(value).is_file())
    kept = hashlib.sha256("\0".join([str(folder), text, *tools]).encode()).hexdigest()[:16]
    variables.setdefault("TRITON_CACHE_DIR", str(atomic.cache_folder("triton-environments") / kept))
    other = OtherEnvironment(
        text="this environment" if words == [THIS] else text,
        command=command or (sys.executable,),
        variables=variables,
        libraries=tuple(libraries),
        imports=tuple(imports),
    )
    return replace(other, path=_path_of(other))


def _python_of(path: Path) -> tuple[str, ...]:
    """The command of a virtual environment's Python, of a Python itself, or of one in a container's root; () for others."""
    if path.is_file() and os.access(path, os.X_OK) and path.suffix not in (".so", ".whl"):
        return (str(path.absolute()),)
    is_root = (path / "usr").is_dir() and (path / "etc").is_dir()
    for name in _PYTHONS_OF_ROOTS if is_root else _PYTHONS:
        if os.access(path / name, os.X_OK):
            # Not resolved: by where it lies a Python knows that it is one of a virtual environment.
            return _in_root(path, f"/{name}") if is_root else (str((path / name).absolute()),)
    return ()


def _in_root(root: Path, python: str) -> tuple[str, ...]:
    """A command that runs a Python in a container's root folder, which sees our folders and devices too.

    Raises:
        ConfigError: nothing on this machine can enter one.
    """
    needed = [shutil.which(name) for name in ("unshare", "chroot", "mount")]
    if None in needed:
        raise ConfigError(
            f"{root}: unshare, chroot and mount, which enter a container's root, are not all on PATH",
            remedy="install util-linux and coreutils, or name a virtual environment",
        )
    folders = {default_cache().parent, Path.cwd(), *(Path(file).parents[1] for _, file in _files(_LENT))}
    shown = ("/dev", "/proc", "/sys", "/tmp", *sorted(map(str, folders)))  # noqa: S108
    user = [] if os.getuid() == 0 else ["--map-root-user"]
    enter = ("unshare", "--mount", *user, "sh", "-c", _ENTER, "sh")
    return (*enter, str(root.resolve()), str(len(shown)), *shown, python)


def _files(lent: Iterable[str]) -> list[tuple[str, str]]:
    """Names and files of packages of ours, and of this one behind them."""
    specs = ((name, find_spec(name)) for name in (*lent, __name__.partition(".")[0]))
    return [(name, spec.origin) for name, spec in specs if spec is not None and spec.origin is not None]


def _unpacked(wheel: Path) -> Path:
    """The folder of a wheel's files, which are written once for each content."""
    folder = atomic.cache_folder("wheels") / hashlib.sha256(wheel.read_bytes()).hexdigest()[:32]
    if not folder.is_dir():
        draft = folder.with_name(f".{folder.name}.{os.getpid()}")
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(draft)  # refuses to leave the folder
            draft.replace(folder)
        except (OSError, zipfile.BadZipFile) as error:
            shutil.rmtree(draft, ignore_errors=True)
            if not folder.is_dir():  # another process may have been faster
                raise ConfigError(
                    f"{wheel} cannot be unpacked: {error}", remedy="build the wheel again"
                ) from error
    return folder


def _path_of(other: OtherEnvironment) -> str:
    """What a program of its Python begins with.

    Raises:
        ConfigError: the Python is too old, or has no torch.
    """
    answer = _printed(other.command, _FIRST + _ASK, other.environ(), other.text, ASK_LIMIT_S)
    version, names = json.loads(answer)
    if tuple(version) < OLDEST_PYTHON:
        raise ConfigError(
            f"environment {other.text!r} has Python {version[0]}.{version[1]}",
            remedy=f"{OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} is the oldest that pytest-cgins runs on",
        )
    if "torch" not in names:
        raise ConfigError(
            f"environment {other.text!r} has no torch", remedy=f"{other.command[-1]} -m pip install torch"
        )
    lacks = () if {"pydantic", "annotated_types"} <= set(names) else _LENT
    if lacks and tuple(version) != sys.version_info[:2]:
        raise ConfigError(
            f"environment {other.text!r} has Python {version[0]}.{version[1]} without pydantic, and that of this "
            f"process is for {sys.version_info[0]}.{sys.version_info[1]}",
            remedy=f"{other.command[-1]} -m pip install pydantic",
        )
    # In a namespace of its own: a program's `__main__` holds no name of it.
    begin = f"{_FIRST}exec({_LOAD.format(files=_files(lacks))!r}, {{}}); "
    before = "__import__('pytest_cgins.building.loading.imports', fromlist=['FIRST']).FIRST[:] = "
    return begin + (f"{before}{list(other.imports)!r}; " if other.imports else "")


def _printed(
    command: tuple[str, ...], program: str, environ: Mapping[str, str], text: str, limit_s: float
) -> str:
    """The last line that a program prints of itself, read from its standard input by a Python.

    Raises:
        InfrastructureError: it fails, prints nothing, or does not end in time.
    """
    remedy = f"run it by hand: {shlex.join(command)} -c 'import torch'"
    try:
        done = subprocess.run(
            [*command, "-"],
            input=program, env=dict(environ), capture_output=True, text=True, errors="backslashreplace",
            timeout=limit_s, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"environment {text!r}: {error}", remedy=remedy) from error
    # Other packages of the environment may print as well, also at its end.
    lines = [line.removeprefix(_MARK) for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise InfrastructureError(
            f"environment {text!r}: its Python ended with {done.returncode}: {last}", remedy=remedy
        )
    return lines[-1]
