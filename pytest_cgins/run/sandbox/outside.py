"""What a sandboxed worker sees of this machine: decided in the parent, from its paths and environment."""

# ruff: noqa: PTH110, PTH112, PTH113, PTH114 - pathlib's raise where a folder may not be looked into
from __future__ import annotations

import os
import pwd
import re
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from os.path import exists, isdir, isfile, islink, realpath
from pathlib import Path

from pytest_cgins.core.secrets import is_secret

PACKAGES = Path(__file__).resolve().parents[3]
"""Folder that pytest_cgins is imported from."""

_EMPTY = ("/tmp", "/var/tmp", "/run", "/home", "/root", "/mnt", "/media")  # noqa: S108
# Some accounts' home folder is one of these, as is `/` that of a container's user without a name.
_NEEDED = (
    "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/local", "/bin", "/sbin", "/lib", "/etc", "/var", "/dev",
    "/proc", "/sys",
)  # fmt: skip
# Where drivers live on NixOS and under NVIDIA's GPU operator.
_DRIVERS = ("/run/opengl-driver", "/run/nvidia/driver")
_SYSTEM_SECRETS = (
    "/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf",
    "/sys/devices/virtual/powercap", "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh",
    "/etc/ssl/private", "/etc/kubernetes", "/etc/rancher", "/etc/gitlab-runner", "/etc/krb5.keytab",
    "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/cloud", "/var/run/secrets", "/var/backups",
    "/var/log", "/var/spool", "/boot",
)  # fmt: skip
_HOME_SECRETS = (
    ".ssh", ".aws", ".azure", ".config", ".gnupg", ".kube", ".docker", ".netrc", ".pypirc", ".npmrc",
    ".git-credentials", ".bash_history", ".zsh_history", ".python_history", ".cache/huggingface",
)  # fmt: skip
_PROJECT_SECRETS = (".git", ".env")
_RUNNER_SECRETS = (".credentials", ".credentials_rsaparams", ".runner", ".env")
_AGAIN_S = 60.0
_BASE_DEVICES = ("null", "zero", "full", "random", "urandom")
_GPU_DEVICES = ("nvidia*", "nvidia-caps/*", "nvidia-caps-imex-channels/*", "dxg")

_KEPT = re.compile(
    r"PATH|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|COMPILER_PATH|GCC_EXEC_PREFIX|LD_RUN_PATH|SOURCE_DATE_EPOCH|MAX_JOBS|USER|LOGNAME|LANG|LC_.*|TZ|TERM|COLUMNS|NO_COLOR|VIRTUAL_ENV|CONDA_PREFIX"
    r"|CC|CXX|C(XX)?FLAGS|(CUDA|CUBLAS|CUDNN|CUFFT|NCCL|NVIDIA|NVCC|NVRTC|OMP|GOMP|KMP|MKL|NVPL|OPENBLAS|TORCH|TORCHINDUCTOR|PYTORCH"
    r"|TRITON|CUTE|CUTLASS|CGINS|PYTHON|ASAN|UBSAN|MALLOC)_?.*"
)


def unset(environment: Mapping[str, str]) -> list[str]:
    """Names of the variables that the worker does not get: all but those that compilers, torch and CUDA read."""
    return sorted(
        name for name, value in environment.items() if not _KEPT.fullmatch(name) or is_secret(name, value)
    )


def variables(scratch: Path) -> dict[str, str]:
    """Variables that send every cache to the scratch folder."""
    folders = {
        "TMPDIR": "", "HOME": "home", "XDG_CACHE_HOME": "cache", "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor", "TORCH_EXTENSIONS_DIR": "extensions",
        "CUDA_CACHE_PATH": "cuda", "CUTE_DSL_CACHE_DIR": "cute", "NUMBA_CACHE_DIR": "numba",
    }  # fmt: skip
    return {name: str(scratch / folder) for name, folder in folders.items()}


def paths(
    scratch: Path, visible: Iterable[Path], hidden: Iterable[Path], writable: Iterable[Path] = ()
) -> dict[str, list[str]]:
    """What is to be empty, shown, linked and hidden, without symbolic links: see `words`.

    Args:
        scratch: the folder in memory; it counts as empty, too.
        visible: what must be seen although it lies in a folder that is emptied.
        hidden: what must not be seen; wins over `visible`.
        writable: folders that may be written to; wins over all.
    """
    homes = _homes()
    emptied = _outermost(
        _real(path) for path in (*map(Path, _EMPTY), *filter(_is_spare, homes)) if isdir(path)
    )
    masks = [*emptied, _real(scratch)]
    # Without its bytecode each worker would compile torch anew, which doubles the time of its start.
    bytecode = [Path(sys.pycache_prefix)] if sys.pycache_prefix else []
    asked = [*map(Path, visible), PACKAGES, *bytecode]
    wanted = [path for path in (*asked, *_programs([*homes, scratch])) if exists(path)]
    hides = {_real(path) for path in (*hidden, *secrets(homes, wanted)) if exists(path)}
    shown = _outermost(
        real for path in wanted if _below(real := _real(path), masks) and not _below(real, hides)
    )
    return {
        "empty": [path for path in emptied if path != _real(scratch)],
        "scratch": [_real(scratch)],
        "show": shown,
        "link": sorted({link for path in wanted for link in _links(path) if _gone(link, masks, shown)}),
        "hide": _outermost(path for path in hides if not _gone(path, masks, shown)),
        "write": _outermost(map(_real, writable)),
    }


def secrets(homes: Iterable[Path], roots: Iterable[Path]) -> list[Path]:
    """Known places of secrets: the user's, the system's, and those beside what is shown, `roots`."""
    found = [*map(Path, _SYSTEM_SECRETS), *(home / name for home in homes for name in _HOME_SECRETS)]
    if os.geteuid() == 0:
        found += _closed_in_etc(int(time.monotonic() // _AGAIN_S))
    for folder in {folder for root in roots for folder in (root, *root.parents)}:
        found += [folder / name for name in _PROJECT_SECRETS]
        found += [folder / name for name in _RUNNER_SECRETS if exists(folder / ".runner")]
        found += _common_git(folder / ".git")
    return found


@lru_cache(maxsize=1)
def _closed_in_etc(_: int) -> list[Path]:
    """Looked up again once a minute: thousands of files for each worker. What is new in between is seen until then."""
    return closed_to_others(Path("/etc"))


def closed_to_others(folder: Path) -> list[Path]:
    """What only owner and group may read: root, whose sandbox keeps its user, is the owner of most of it."""
    found: list[Path] = []
    for parent, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(parent, name)
            try:
                mode = path.lstat().st_mode
            except OSError:
                continue
            if not stat.S_ISLNK(mode) and not mode & stat.S_IROTH:
                found.append(path)
        folders[:] = [name for name in folders if Path(parent, name) not in found]
    return found


def has_gpu() -> bool:
    """Whether this machine has device nodes of a GPU."""
    return len(devices(gpu=True)) > len(devices(gpu=False))


def devices(gpu: bool) -> list[str]:
    """Device nodes that the worker gets."""
    folder = Path("/dev")
    found = [folder / name for name in _BASE_DEVICES]
    if gpu:
        found += [path for pattern in _GPU_DEVICES for path in sorted(folder.glob(pattern))]
    return [str(path) for path in found if exists(path) and not isdir(path)]


def _homes() -> list[Path]:
    """The user's home folders: by the environment and by the system's list of users, either of which may have none."""
    found = [os.environ.get("HOME", "")]
    with suppress(KeyError):
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    return [Path(home) for home in dict.fromkeys(found) if home.startswith("/")]


def _is_spare(home: Path) -> bool:
    """Whether the sandbox can do without all that is in a home folder and is not shown again."""
    prefixes = (sys.prefix, sys.base_prefix)
    needed = any(_below(path, [_real(home)]) for path in _NEEDED)
    return not needed and _real(home) not in map(_real, prefixes)


def _programs(outside: Iterable[Path]) -> list[Path]:
    """Where Python, its packages, compilers and libraries are; never a folder that contains one of `outside`."""
    named = (
        os.environ.get(name, "").split(":") for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
    )
    found = [
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        *sys.path,
        *_DRIVERS,
        *(one for many in named for one in many),
    ]
    kept_out = [Path(_real(folder)) for folder in outside]
    absolute = [Path(one) for one in found if one.startswith("/")]
    return [
        path
        for path in absolute
        if exists(path) and not any(folder.is_relative_to(path.resolve()) for folder in kept_out)
    ] + [Path(sys.executable)]


def _common_git(pointer: Path) -> list[Path]:
    """The repository that a worktree's file `.git` points to."""
    if not isfile(pointer):
        return []
    target = pointer.read_text(errors="replace").partition("gitdir: ")[2].strip()
    return [folder for folder in Path(target).parents if folder.name == ".git"]


def _links(path: Path) -> list[str]:
    """The symbolic links that lead from a path to its file, each without links before its last part."""
    found: list[str] = []
    current, rest = Path("/"), [*path.absolute().parts[1:]]
    while rest and len(found) < 40:
        part = rest.pop(0)
        if part == "..":
            current = current.parent
            continue
        entry = current / part
        if not islink(entry):
            current = entry
            continue
        found.append(str(entry))
        target = entry.readlink()
        if target.is_absolute():
            current, rest = Path("/"), [*target.parts[1:], *rest]
        else:
            rest = [*target.parts, *rest]
    return found


def _gone(path: str, masks: Iterable[str], shown: Iterable[str]) -> bool:
    """Whether it lies in an emptied folder and is not shown again."""
    return _below(path, masks) and not _below(path, shown)


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _outermost(found: Iterable[str]) -> list[str]:
    """The paths in order, without those below another one."""
    kept: list[str] = []
    for path in sorted(set(found)):
        if not _below(path, kept):
            kept.append(path)
    return kept


def _real(path: str | Path) -> str:
    return realpath(path)
