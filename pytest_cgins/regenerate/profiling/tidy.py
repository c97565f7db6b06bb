"""What clang-tidy says of the C++ and CUDA sources of a kernel."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.contracts.source import find
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import CginsError
from pytest_cgins.doctor import compilers, tools
from pytest_cgins.doctor.findings import Finding
from pytest_cgins.regenerate.profiling.evidence_documents import EVIDENCE_VERSION, TidyEvidence, TidyFinding
from pytest_cgins.run.sandbox.sandbox import Sandbox

Fence = Callable[[Sequence[str]], Sequence[str]]
CHECKS = (
    "-*,bugprone-*,clang-analyzer-*,performance-*,misc-redundant-expression,"
    "-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions,-bugprone-reserved-identifier,"
    "-clang-analyzer-optin.*"
)
LIMIT_S = 120.0
SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".cu")
_LINE = re.compile(
    r"(?P<file>.+?):(?P<line>\d+):\d+: (?P<level>warning|error): (?P<message>.*) \[(?P<check>[^\]\s]+)\]"
)
_UNKNOWN_TO_CLANG = re.compile(
    r"-X|--?(?:gencode|arch|use_fast_math|expt-|maxrregcount|lineinfo|rdc|diag-)|-f(?:no-)?openmp"
)


def evidence(
    config: Config,
    entry: KernelEntry,
    implementations: Sequence[Implementation],
    program: Finding,
    *,
    sandbox: Sandbox | None = None,
) -> TidyEvidence:
    """Findings in the sources of implementations; what cannot be looked at is told.

    Args:
        config: the file.
        entry: the kernel.
        implementations: of it.
        program: what `environment.find_clang_tidy` found.
        sandbox: put around clang-tidy, which reads whatever a source includes; None trusts the sources.
    """
    files: list[str] = []
    findings: list[TidyFinding] = []
    degraded: list[str] = []
    if program.state != "ok":
        why = f"{program.where} does not run: {program.detail}" if program.where else "not installed"
        degraded.append(f"clang-tidy: {why} → {program.remedy}")
        implementations = ()
    for implementation in implementations:
        if implementation.contract == "python":
            continue
        try:
            source = find(config, entry, implementation)
            arguments, why = _arguments(source)
        except CginsError as error:
            arguments, why = [], error.what
        if why:
            degraded.append(f"clang-tidy: {implementation.name} was not looked at: {why}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            if source.contract == "launcher":
                prototype = Path(folder) / plans.PROTOTYPE
                generated, _ = plans.launcher_files(source)
                prototype.write_text(generated[plans.PROTOTYPE], encoding="utf-8")
                arguments += ["-include", str(prototype)]
            fence: Fence = list
            if sandbox is not None:
                # A program of a virtual environment has its files beside it.
                visible = (config.root, Path(folder), Path(program.where).resolve().parents[1])
                fence = sandbox.around(visible=visible, hidden=config.traces).wrap
            for file in source.files:
                if Path(file).suffix in SUFFIXES:
                    files.append(_relative(file, config.root))
                    some, trouble = _run(program.where, file, arguments, config.root, fence)
                    findings += some
                    degraded += trouble
    return TidyEvidence(
        version=EVIDENCE_VERSION,
        kernel=entry.name,
        clang_tidy=program.version,
        files=tuple(dict.fromkeys(files)),
        findings=tuple(dict.fromkeys(findings)),
        degraded=tuple(degraded),
    )


def _findings(text: str, root: Path) -> Iterator[TidyFinding]:
    """What is in clang-tidy's output, without that of files outside of a folder."""
    for line in text.splitlines():
        matched = _LINE.fullmatch(line.strip())
        if matched is None or not Path(matched["file"]).is_absolute():
            continue
        if Path(matched["file"]).resolve().is_relative_to(root.resolve()):
            yield TidyFinding(
                file=_relative(matched["file"], root),
                line=int(matched["line"][:9]),
                level="error" if matched["level"] == "error" else "warning",
                check=matched["check"],
                message=matched["message"][:500],
            )


def _arguments(source: KernelSource) -> tuple[list[str], str]:
    """What clang is told, and why it cannot read the source; "" if it can."""
    if source.contract == "torch-extension":
        return [], "its headers are torch's"
    flags = [flag for flag in source.flags if not _UNKNOWN_TO_CLANG.match(flag)]
    common = ["-std=c++17", f"-I{plans.INCLUDE}", *flags, "-Wno-unknown-pragmas"]
    if source.device == "cpu":
        return common, ""
    if source.contract == "device":
        return [], "its headers are NVRTC's"
    toolkit = compilers.toolkit()
    if toolkit is None or toolkit.folder is None:
        return [], "there is no CUDA toolkit whose headers clang could read"
    cuda = ["-x", "cuda", "--cuda-host-only", "-nocudalib", f"--cuda-path={toolkit.folder}"]
    return [*cuda, "-Wno-unknown-cuda-version", *common], ""


def _run(
    program: str, file: str, arguments: Sequence[str], root: Path, fence: Fence
) -> tuple[list[TidyFinding], list[str]]:
    words = [program, "--quiet", f"--checks={CHECKS}", "--header-filter=.*", file, "--", *arguments]
    ran = tools.run(fence(words), limit_s=LIMIT_S)
    found = list(_findings(ran.output, root))
    unread = [line for line in ran.output.splitlines() if "[clang-diagnostic-error]" in line]
    name = Path(file).name
    if unread:
        return found, [f"clang-tidy: clang cannot read all of {name}: {unread[0].strip()[:300]}"]
    if ran.status != 0 and not found:
        return found, [f"clang-tidy: {name}: {ran.last_line}"]
    return found, []


def _relative(file: str, root: Path) -> str:
    path = Path(file).resolve()
    return str(path.relative_to(root.resolve())) if path.is_relative_to(root.resolve()) else file
