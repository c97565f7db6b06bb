"""From a kernel's source to a library that a worker can load, through a cache keyed by content."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.errors import BuildError, SourceError
from pytest_cgins.kernels import cpp, cuda, diagnostics, torch_extension
from pytest_cgins.kernels import plan as plans
from pytest_cgins.kernels.cache import RECORD, Cache, Entry, file_digest
from pytest_cgins.model import CONTRACT_VERSION, CompiledKernel, KernelSource

logger = logging.getLogger(__name__)
LOG_LIMIT_NBYTES = 1 << 20
DEFAULT_TIMEOUT_S = 600.0


def default_cache() -> Path:
    """Folder of built kernels: `$CGINS_CACHE_DIR/builds`, else the user's cache folder."""
    named = os.environ.get("CGINS_CACHE_DIR")
    if named:
        return Path(named).absolute() / "builds"
    from platformdirs import user_cache_path

    return user_cache_path("pytest-cgins") / "builds"


def build(
    source: KernelSource, *, cache: Path | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
) -> CompiledKernel:
    """Build one implementation, or take it from the cache.

    Args:
        source: what `source.find` gave.
        cache: folder of built kernels, by default `default_cache()`.
        timeout_s: limit of the compilation, and of the wait for another process that does it.

    Raises:
        BuildError: the compiler refused the source, or did not end in time.
        SourceError: a source is gone or has another schema line.
        InfrastructureError: a compiler is missing, or the lock was not free in time.
    """
    if source.contract == "python":
        return CompiledKernel(source=source, library="", key=source.digest, build_seconds=0.0, cached=True)
    plan = planner(source)(source)
    base, before = base_key(source, plan)
    store = Cache(cache or default_cache())
    name = f"{source.kernel}/{source.implementation}"
    entry = store.lookup(base, plan.roots)
    if entry is not None:
        return _cached(source, entry, name)
    logger.debug("%s: not in the cache %s under %s", name, store.folder, base)
    with store.lock(base, name, timeout_s):
        entry = store.lookup(base, plan.roots)
        if entry is not None:
            return _cached(source, entry, name)
        started = time.monotonic()
        with store.work_folder() as folder:
            outcome = _run(plan, folder, name, timeout_s)
            if outcome.status != 0:
                kept = store.keep_log(base, f"{outcome.command}\n\n{outcome.log}")
                raise _refusal(source, plan, outcome, kept, timeout_s)
            seconds = time.monotonic() - started
            if before != [file_digest(Path(file)) for file in source.files]:
                raise BuildError(f"{name}: a source changed while it was compiled", remedy="run again")
            record = {
                "command": outcome.command, "seconds": seconds, "log": outcome.log, "module": plan.module
            }  # fmt: skip
            headers = sorted(set(_headers(folder, source)))
            entry = store.store(base, plan.roots, headers=headers, built=folder, record=record)
    return _compiled(source, entry, seconds=seconds, cached=False)


def planner(source: KernelSource) -> Callable[[KernelSource], plans.Plan]:
    """The builder of a source's contract and device.

    Raises:
        SourceError: the main file's suffix is not one that the device's compiler takes.
    """
    if source.contract == "torch-extension":
        return torch_extension.plan
    suffix = Path(source.files[0]).suffix
    wanted = {"cpu": (".cpp", ".cc", ".cxx"), "cuda": (".cu",)}[source.device]
    if suffix not in wanted:
        raise SourceError(
            f"{source.files[0]}: a launcher for device {source.device} cannot be a {suffix or 'nameless'} file",
            remedy=f"its main source ends in {' or '.join(wanted)}",
        )
    return cpp.plan if source.device == "cpu" else cuda.plan


def base_key(source: KernelSource, plan: plans.Plan) -> tuple[str, list[str | None]]:
    """Key over all that is known before compiling, and the digests of the sources that are in it."""
    digests = [file_digest(Path(file)) for file in source.files]
    for file, digest in zip(source.files, digests, strict=True):
        if digest is None:
            raise SourceError(f"{file}: gone since it was found", remedy="put it back, or correct cgins.yaml")
    header = file_digest(plans.INCLUDE / "cgins.h")
    parts = [
        f"contract {CONTRACT_VERSION}", source.contract, source.device, source.entry, str(header),
        *plan.identity, *(f"{Path(file).name} {digest}" for file, digest in zip(source.files, digests, strict=True)),
    ]  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest(), digests


def _compiled(source: KernelSource, entry: Entry, *, seconds: float, cached: bool) -> CompiledKernel:
    return CompiledKernel(
        source=source, library=str(entry.library), key=entry.key, build_seconds=seconds, cached=cached
    )


def _cached(source: KernelSource, entry: Entry, name: str) -> CompiledKernel:
    if logger.isEnabledFor(logging.INFO):
        # The cache has just read this file, so it is there and whole.
        record = json.loads((entry.library.parent / RECORD).read_bytes())
        commands = " && ".join(record["command"].splitlines())
        logger.info("%s: cached, once done in %.2f s: %s", name, record["seconds"], commands)
    return _compiled(source, entry, seconds=0.0, cached=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """How a plan's commands went."""

    status: int | None
    """Exit status of the last one that was run; None if it was killed at the time limit."""
    log: str
    """What they printed, bounded."""
    command: str
    """The commands as a person would type them."""


def _run(plan: plans.Plan, folder: Path, name: str, timeout_s: float) -> _Outcome:
    """Run a plan's commands in `folder`, up to the first that fails."""
    if plan.prototype:
        (folder / plans.PROTOTYPE).write_text(plan.prototype, encoding="utf-8")
    commands = plan.commands(folder)
    environment = {**os.environ, "LC_ALL": "C", **plan.environment}
    deadline = time.monotonic() + timeout_s
    log = folder / "build.log"
    status: int | None = 0
    for command in commands:
        started = time.monotonic()
        with log.open("ab") as output:
            status = _wait(command, folder, environment, output.fileno(), deadline - started)
        ended = "killed" if status is None else f"exit status {status}" if status else "done"
        logger.info("%s: %s in %.2f s: %s", name, ended, time.monotonic() - started, shlex.join(command))
        if status != 0:
            break
    with log.open("rb") as printed:
        text = printed.read(LOG_LIMIT_NBYTES).decode(errors="replace")
    return _Outcome(status=status, log=text, command="\n".join(shlex.join(command) for command in commands))


def _refusal(
    source: KernelSource, plan: plans.Plan, outcome: _Outcome, kept: Path, timeout_s: float
) -> BuildError:
    """The error for an outcome that is not 0. `kept` has the whole log."""
    name = f"{source.kernel}/{source.implementation}"
    if outcome.status is None:
        return BuildError(
            f"{name}: {plan.compiler} was not done after {timeout_s:g} s and was killed",
            remedy=f"simplify the source, or raise the limit; what it printed is in {kept}",
            log=outcome.log,
            command=outcome.command,
        )
    count, summary = diagnostics.summarize(outcome.log, source.files, source.entry if plan.prototype else "")
    errors = f"{count} error{'s' if count != 1 else ''}" if count else f"exit status {outcome.status}"
    hint = f"; `cgins schema {source.kernel}` prints the prototype" if plan.prototype else ""
    return BuildError(
        f"{name}: {plan.compiler} refused {diagnostics.shown(source.files[0])}: {errors}\n{summary}",
        remedy=f"the whole log is in {kept}{hint}",
        log=outcome.log,
        command=outcome.command,
    )


def _wait(
    command: list[str], folder: Path, environment: dict[str, str], output: int, timeout_s: float
) -> int | None:
    """Exit status of a command in a process group of its own, None if it had to be killed."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(timeout=max(0.0, timeout_s))
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:  # the time limit, or Ctrl-C
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _headers(folder: Path, source: KernelSource) -> Iterator[Path]:
    """Headers in the depfiles (make's syntax) of a build; its own files and the sources left out."""
    for depfile in folder.glob("*.d"):
        text = depfile.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ")
        _, _, dependencies = text.partition(": ")
        for word in re.findall(r"(?:\\.|[^\s\\])+", dependencies.split("\n", 1)[0]):
            # A depfile escapes a blank and a number sign by a backslash, and doubles a dollar.
            name = re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$")
            path = folder / name
            if path.parent not in (folder, plans.INCLUDE) and name not in source.files:
                yield path
