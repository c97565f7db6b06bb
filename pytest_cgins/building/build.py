"""From a kernel's source to a library that a worker can load, through a cache keyed by content."""

from __future__ import annotations

import atexit
import errno
import hashlib
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_cgins.building.builders import cpp, cuda, device, libraries, torch_extension
from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.builders.torch_install import torch_package
from pytest_cgins.building.cache import space
from pytest_cgins.building.cache.headers import file_digest
from pytest_cgins.building.cache.space import JIT
from pytest_cgins.building.cache.store import Cache, Entry, default_cache
from pytest_cgins.building.compilers import diagnostics, running, slots
from pytest_cgins.building.compilers.process import Outcome, run_stages
from pytest_cgins.building.compilers.watched import MEMORY_VARIABLE
from pytest_cgins.building.contracts import flags
from pytest_cgins.building.contracts.cxx import endless_include
from pytest_cgins.building.contracts.source import portable_flags
from pytest_cgins.core.case import CONTRACT_VERSION, CompiledKernel, KernelSource
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import BuildError, InfrastructureError, SourceError
from pytest_cgins.core.text import counted, shown

__all__ = ["DEFAULT_TIMEOUT_S", "base_key", "build", "cached", "default_cache", "planner"]

logger = logging.getLogger(__name__)
DEFAULT_TIMEOUT_S = 600.0
DEPFILE_LENGTH = 1 << 24
MOST_BYTES = 2**29
"""Of what a build may leave: it is hashed, kept, and mapped by each worker."""
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
VARIABLES = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_RUN_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX", "SOURCE_DATE_EPOCH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN",
)  # fmt: skip
"""Environment variables that change what a compiler makes, whatever the contract."""


def cached(source: KernelSource, *, cache: Path | None = None) -> CompiledKernel | None:
    """What `build` would take from the cache; None if it would compile.

    Raises:
        KernelError, InfrastructureError: as `build`.
    """
    if source.contract == "python":
        inline = _inline_marker(source, cache or default_cache())
        return None if inline is not None and not inline.exists() else build(source, cache=cache)
    plan = planner(source)(source)
    base, _ = base_key(source, plan)
    store = Cache(cache or default_cache())
    entry = store.lookup(base, plan.roots)
    return None if entry is None else _compiled(source, plan, store, entry, cached=True)


def build(
    source: KernelSource,
    *,
    cache: Path | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    wait_s: float | None = None,
) -> CompiledKernel:
    """Build one implementation, or take it from the cache.

    Safe from many threads and processes at once: a kernel is compiled once, and the machine runs no more
    compilers than it has cores and memory for.

    Args:
        source: what `source.find` gave.
        cache: folder of built kernels, by default `default_cache()`.
        timeout_s: limit of the compilation.
        wait_s: limit of the wait for another process that compiles it, by default `timeout_s`.

    Raises:
        BuildError: the compiler refused the source, now or when it last saw the same, or did not end in time.
        SourceError: a source is gone or has another schema line.
        LockedError: another process was compiling it for `wait_s`.
        InfrastructureError: a compiler is missing, or the disk is full.
    """
    if source.contract == "python":
        key = source.digest
        if source.namespace is not None:  # the modules that are imported may differ
            key = hashlib.sha256(f"{source.namespace.name}\0{source.digest}".encode()).hexdigest()
        if (marker := _inline_marker(source, cache or default_cache())) is not None and not marker.exists():
            seconds = _build_inline(source, marker, timeout_s)
            return CompiledKernel(source=source, library="", key=key, build_seconds=seconds, cached=False)
        return CompiledKernel(source=source, library="", key=key, build_seconds=0.0, cached=True)
    plan = planner(source)(source)
    base, before = base_key(source, plan)
    store = Cache(cache or default_cache())
    entry = store.lookup(base, plan.roots)
    if entry is None:
        try:
            store = _writable(store)
            with store.lock(base, source.name, timeout_s if wait_s is None else wait_s):
                entry = store.lookup(base, plan.roots)
                if entry is None:
                    entry = _compile(source, plan, store, base=base, before=before, timeout_s=timeout_s)
                    return _compiled(source, plan, store, entry, cached=False)
        except OSError as error:
            raise InfrastructureError(
                f"the build cache {store.folder} cannot be used: {error}",
                remedy="make room there (`cgins cache prune --max-size 1GB`), or set CGINS_CACHE_DIR to a folder that is "
                "writable and has room",
            ) from error
    return _compiled(source, plan, store, entry, cached=True)


def jit_environment(cache: Path) -> dict[str, str]:
    """Where JIT compilers keep what they have compiled: with the builds, so that CI keeps both, and as long.

    Nothing where nobody may write: a sandbox shows its workers the cache, and no more.
    """
    folder = cache / JIT
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return {}
    if not os.access(folder, os.W_OK):
        return {}
    own = {
        "TRITON_CACHE_DIR": folder,
        "CUTE_DSL_CACHE_DIR": folder,
        "TORCH_EXTENSIONS_DIR": folder / f"torch_extensions-{torch_package().identity[:16]}",
    }
    return {name: os.environ.get(name) or str(path) for name, path in own.items()}


def _inline_marker(source: KernelSource, cache: Path) -> Path | None:
    """A file that is there once a module has built the extensions that it makes as it is imported; None if it makes none.

    Those of the base revision are built by the worker: both have one name.
    """
    if source.namespace is not None or running.current().fence is not None:
        return None
    texts = (
        Path(file).read_text(encoding="utf-8", errors="replace")
        for file in source.files
        if file.endswith(".py")
    )
    if not any(map(_builds_as_it_is_imported, texts)):
        return None
    folder = jit_environment(cache).get("TORCH_EXTENSIONS_DIR")
    return Path(folder) / f"{source.digest}.imported" if folder else None


@lru_cache(maxsize=64)  # a file may have a thousand kernels
def _builds_as_it_is_imported(text: str) -> bool:
    return re.search(r"\bcpp_extension\b|\bload_inline\s*\(", text) is not None


def _build_inline(source: KernelSource, marker: Path, timeout_s: float) -> float:
    """Import a module with a compiler's limits, so that a worker finds its extensions built; how long that took.

    Raises:
        BuildError: the compiler refused a source, or did not end in time. What else the import raises, a worker tells.
    """
    marker.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    code = "import sys, importlib; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2])"
    command = [sys.executable, "-c", code, source.import_root, source.module]
    with tempfile.TemporaryDirectory() as folder:
        environment = {"TORCH_EXTENSIONS_DIR": str(marker.parent)}
        deadline = started + timeout_s
        with slots.hold(marker.parents[2], source.name, torch_extension.JOB_NBYTES, deadline, jobs=2):
            outcome = run_stages([[command]], Path(folder), source.name, deadline, environment)
    if outcome.status is None or "Error building extension" in outcome.log:
        ended = (
            f"was not done after {timeout_s:g} s" if outcome.status is None else "was refused by the compiler"
        )
        first = next((line for line in outcome.log.splitlines() if " error:" in line), "")
        raise BuildError(
            f"{source.name}: its extension, built as {source.module} is imported, {ended}: {first}".rstrip(
                ": "
            ),
            remedy=f"import {source.module} by itself to see the whole log",
            log=outcome.log,
        )
    marker.touch()
    return time.monotonic() - started


def changed_headers(source: KernelSource, key: str, *, cache: Path | None = None) -> list[str]:
    """Headers that were included in a build and are others now, by path.

    Args:
        source: whose own files are as they were.
        key: the build's.
        cache: as for `build`.

    Returns:
        [] as well where the cache does not know the build.

    Raises:
        CginsError: its compiler or a source is gone.
    """
    if source.contract == "python":
        return []
    plan = planner(source)(source)
    store = Cache(cache or default_cache())
    found = (base_key(source, plan, fenced=fenced)[0] for fenced in (False, True))
    return [header for base in found for header in store.changed_headers(base, key, plan.roots)]


def _compile(
    source: KernelSource,
    plan: plans.Plan,
    store: Cache,
    *,
    base: str,
    before: list[str | None],
    timeout_s: float,
) -> Entry:
    """Compile, and keep what came of it.

    Raises:
        BuildError: a source includes what has no end, the compiler did not end in time, or a source changed meanwhile.
        InfrastructureError: the disk is full, or a compiler was killed.
    """
    name = source.name
    if endless := endless_include(source.files, plans.header_roots(source)):
        raise BuildError(
            f"{name}: {endless}, a device, a pipe or a file of the system's", remedy="include plain files"
        )
    logger.debug("%s: not in the cache %s under %s", name, store.folder, base)
    deadline = time.monotonic() + timeout_s
    slot = slots.hold(store.folder, name, plan.memory_nbytes, deadline, jobs=_jobs(source, plan))
    with store.work_folder() as folder, slot:
        began, started = time.time(), time.monotonic()
        try:
            outcome = plan.run(folder, name, started + timeout_s)
        except FileNotFoundError as error:
            raise InfrastructureError(
                f"{name}: {plan.compiler} is gone: {error}", remedy="install it again, and run again"
            ) from error
        seconds = time.monotonic() - started
        if outcome.status != 0:
            _require_verdict(source, plan, outcome, store.keep_log(base, _whole_log(outcome)), timeout_s)
        read = sorted(set(_headers(folder, source)))
        if before != [file_digest(file) for file in source.files] or _written_since(read, plan.roots, began):
            raise BuildError(f"{name}: a source changed while it was compiled", remedy="run again")
        done: dict[str, Any] = {"command": outcome.command, "seconds": seconds, "log": outcome.log}
        if outcome.status != 0 and not _repeatable(source, plan, outcome, folder):
            return Entry(key="", artifact=None, sha256="", status=outcome.status or 0, **done)
        record = {
            "kernel": source.kernel, "implementation": source.implementation, "device": source.device,
            "contract": source.contract, "archs": list(plan.archs or source.archs), "status": outcome.status, **done,
        }  # fmt: skip
        artifact = plan.artifact if outcome.status == 0 else ""
        if artifact and not _is_plain(folder / artifact):
            raise BuildError(f"{name}: {plan.compiler} left no file {artifact}", remedy="correct its flags")
        if artifact and (nbytes := (folder / artifact).stat().st_size) > MOST_BYTES:
            raise BuildError(
                f"{name}: {plan.compiler} left {counted(nbytes, 'byte', grouped=True)}; {MOST_BYTES:,} are the limit",
                remedy="build for fewer architectures, and keep data out of the sources",
            )
        entry = store.store(base, plan.roots, read=read, built=folder, artifact=artifact, record=record)
    if artifact:
        store.keep_seconds(name, seconds)
    space.added(store.folder, sum(file.stat().st_size for file in store.folder_of(entry.key).iterdir()))
    return entry


def _require_verdict(
    source: KernelSource, plan: plans.Plan, outcome: Outcome, kept: Path, timeout_s: float
) -> None:
    """Go on only if the compiler has judged the source. `kept` has the whole log.

    Raises:
        BuildError: it did not end in time, or took more than it may.
        InfrastructureError: it was killed, or lacked something.
    """
    if outcome.status is None:
        over, limit = f"was not done after {timeout_s:g} s and was killed", "the limit"
    else:
        over, limit = diagnostics.over_limit(outcome.status, outcome.log), f"{MEMORY_VARIABLE} (GiB)"
    if over:
        raise BuildError(
            f"{source.name}: {plan.compiler} {over}",
            remedy=f"simplify the source, or raise {limit}; what it printed is in {kept}",
            log=outcome.log,
        )
    if trouble := diagnostics.not_the_source(outcome.status or 0, outcome.log):
        raise InfrastructureError(
            f"{source.name}: {plan.compiler} could not do its work: {trouble[0]}",
            remedy=f"{trouble[1]}; the whole log is in {kept}",
        )


def _repeatable(source: KernelSource, plan: plans.Plan, outcome: Outcome, folder: Path) -> bool:
    """Whether a refusal may be remembered: it is known what was read, and the compiler did not crash."""
    if running.current().fence is not None and diagnostics.may_be_unseen(outcome.log):
        return False  # outside of the sandbox it may be another
    depfiles = len(list(folder.glob("*.d")))
    return depfiles >= _jobs(source, plan) and not diagnostics.crashed(outcome.status or 0, outcome.log)


def _written_since(files: Sequence[Path], folders: Sequence[Path], began: float) -> bool:
    """Whether a file in one of the user's folders was written after a time: nobody knows which text was read."""
    now = time.time()
    for file in files:
        with suppress(OSError):
            # Of a clock that is ahead, nothing follows: such a file must not be refused for ever.
            if began < file.stat().st_ctime <= now and any(file.is_relative_to(folder) for folder in folders):
                return True
    return False


def _jobs(source: KernelSource, plan: plans.Plan) -> int:
    """Compilers that run side by side: one a source of a launcher."""
    return len(source.files) if plan.prototyped else 1


def _compiled(
    source: KernelSource, plan: plans.Plan, store: Cache, entry: Entry, *, cached: bool
) -> CompiledKernel:
    """What a worker can load.

    Raises:
        BuildError: the entry is a refusal.
    """
    if cached:
        commands = " && ".join(entry.command.splitlines())
        logger.info("%s: cached, once done in %.2f s: %s", source.name, entry.seconds, commands)
    if entry.artifact is None:
        base, _ = base_key(source, plan)
        raise _refusal(source, plan, entry, store.keep_log(base, _whole_log(entry)))
    return CompiledKernel(
        source=source,
        library=str(entry.artifact),
        key=entry.key,
        sha256=entry.sha256,
        build_seconds=0.0 if cached else entry.seconds,
        cached=cached,
    )


def planner(source: KernelSource) -> Callable[[KernelSource], plans.Plan]:
    """The builder of a source's contract and device.

    Raises:
        SourceError: the main file's suffix is not one that the device's compiler takes, or a flag is not allowed.
    """
    flags.require_allowed(source)
    if source.contract == "torch-extension":
        return torch_extension.plan
    if source.contract == "device":
        return device.plan
    suffix = Path(source.files[0]).suffix
    on = device_of(source.device)
    if suffix not in on.suffixes:
        raise SourceError(
            f"{source.files[0]}: a launcher for device {source.device} cannot be a {suffix or 'nameless'} file",
            remedy=f"its main source ends in {' or '.join(on.suffixes)}",
        )
    return cuda.plan if on.is_cuda else cpp.plan


def base_key(
    source: KernelSource, plan: plans.Plan, *, fenced: bool | None = None
) -> tuple[str, list[str | None]]:
    """Key over all that is known before compiling, and the digests of the sources that are in it.

    Builds in the sandbox are apart from those outside, where a compiler sees other files.

    Args:
        source: what is built.
        plan: how.
        fenced: whether compilers are in the sandbox; None for whether this thread's are.
    """
    fenced = running.current().fence is not None if fenced is None else fenced
    digests = [file_digest(file) for file in source.files]
    for file, digest in zip(source.files, digests, strict=True):
        if digest is None:
            raise SourceError(f"{file}: removed during the run", remedy="put it back, or correct cgins.yaml")
    header = file_digest(plans.INCLUDE / "cgins.h")
    parts = [
        f"contract {CONTRACT_VERSION}", source.contract, source.device, source.entry, str(header),
        plan.artifact, "fenced" if fenced else "", *_compiler_arguments(), *plan.identity, *plans.environment_identity(*VARIABLES),
        *libraries.identity(source.flags),
        *(f"{Path(file).name} {digest}" for file, digest in zip(source.files, digests, strict=True)),
    ]  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest(), digests


def _compiler_arguments() -> tuple[str, ...]:
    """Arguments that `$CXX` has besides the compiler, whose version alone does not tell them."""
    try:
        return portable_flags(tuple(shlex.split(os.environ.get("CXX", ""))[1:]))
    except ValueError:  # refused by who needs it
        return ()


def _writable(store: Cache) -> Cache:
    """The cache, or a private one of this process where it is read-only.

    Raises:
        OSError: it cannot be used for another reason.
    """
    try:
        store.usable()
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        _warn_read_only(store.folder, error.strerror)
        return Cache(_private_folder())
    return store


@lru_cache(maxsize=8)
def _warn_read_only(folder: Path, reason: str) -> None:
    logger.warning("%s: %s: kernels are built for this process only", folder, reason)


@lru_cache(maxsize=1)
def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cgins-builds-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _whole_log(done: Outcome | Entry) -> str:
    return f"{done.command}\n\n{done.log}"


def _refusal(source: KernelSource, plan: plans.Plan, entry: Entry, kept: Path) -> BuildError:
    """The error for a refusal, new or remembered. `kept` has the whole log."""
    count, summary = diagnostics.summarize(entry.log, source.files, source.entry if plan.prototyped else "")
    errors = counted(count, "error") if count else f"exit status {entry.status}"
    hint = f"; `cgins schema {source.kernel}` prints the prototype" if plan.prototyped else ""
    unknown = diagnostics.unknown_architecture(entry.log)
    return BuildError(
        f"{source.name}: {plan.compiler} refused {shown(Path(source.files[0]))}: {errors}\n{summary}",
        remedy=f"{unknown}; the whole log is in {kept}" if unknown else f"the whole log is in {kept}{hint}",
        log=entry.log,
    )


def _headers(folder: Path, source: KernelSource) -> Iterator[Path]:
    """Headers in the depfiles (make's syntax) of a build; its own files and the sources left out."""
    fenced = running.current().fence is not None
    for depfile in filter(_is_plain, folder.glob("*.d")):
        with depfile.open(encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(DEPFILE_LENGTH).replace("\\\n", " ")
        _, _, dependencies = text.partition(": ")
        for word in re.findall(r"(?:\\.|[^\s\\])+", dependencies.split("\n", 1)[0]):
            # A depfile escapes a blank and a number sign by a backslash, and doubles a dollar.
            name = re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$")
            path = folder / name
            if path.parent in (folder, plans.INCLUDE) or name in source.files:
                continue
            # What the compiler wrote here is not trusted, and a device may have no end.
            special = path.exists() and not path.is_file()
            if not special and not (fenced and name.startswith(("/proc/", "/dev/", "/sys/"))):
                yield path


def _is_plain(file: Path) -> bool:
    """Whether it is a file itself, and no link to another, which a compiler in a sandbox may not even see."""
    return not file.is_symlink() and file.is_file()
