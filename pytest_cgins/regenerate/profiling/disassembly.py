"""What compilers say of a build, and its machine code: registers, spills, opcodes, warnings, and which methods left their mark."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pytest_cgins import config as configuration
from pytest_cgins.building import resources, sass
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.cache.store import RECORD
from pytest_cgins.building.compilers import architectures
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.kernel_builds import has_driver
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.errors import CginsError, ConfigError, InfrastructureError
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.methods import registry, sass_signature
from pytest_cgins.regenerate.profiling import evidence_documents, selection
from pytest_cgins.regenerate.profiling.child import Child, fence_for
from pytest_cgins.regenerate.profiling.evidence_documents import CompiledFunction
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.sandbox.sandbox import Sandbox

MOST_WARNINGS = 20
MOST_CHARACTERS = 240
FUNCTION = re.compile(r"^\s*Function (\S+):\s*$")
USED = re.compile(r"\b([A-Z]+):(\d{1,18})(?!\d)")


def archs_of(compiled: CompiledKernel) -> tuple[str, ...]:
    """Architectures whose machine code is in a build; PTX has none."""
    wanted = compiled.source.archs or architectures.present_archs()
    return tuple(arch for arch in wanted if arch.startswith("sm_"))


def functions(compiled: CompiledKernel) -> tuple[tuple[CompiledFunction, ...], tuple[str, ...]]:
    """The compiler's report of a built CUDA kernel, and what is missing in it."""
    found: list[CompiledFunction] = []
    missing: list[str] = []
    for arch in archs_of(compiled):
        try:
            told = resources.of(compiled, arch)
        except InfrastructureError as error:
            missing.append(f"registers and spills: {error.what} → {error.remedy}")
            continue
        missing += told.notes
        found += [
            CompiledFunction(
                function=function.function,
                arch=function.arch,
                registers_per_thread=function.registers_per_thread,
                spill_nbytes_per_thread=function.spill_store_nbytes + function.spill_load_nbytes,
                stack_nbytes_per_thread=function.stack_nbytes_per_thread,
                static_shared_nbytes_per_block=function.static_shared_nbytes_per_block,
                instructions=function.instructions or (),
            )
            for function in told.functions
        ]
    return tuple(found), tuple(dict.fromkeys(missing))


def of_cubins(cubins: Sequence[Path]) -> tuple[tuple[CompiledFunction, ...], tuple[str, ...]]:
    """What machine code says of itself that a kernel has compiled; its spills are in no log of ours."""
    tool = sass.disassembler()
    if tool is None:
        return (), (f"machine code: {sass.TOOL} is not installed → {sass.REMEDY}",)
    found: list[CompiledFunction] = []
    missing: list[str] = []
    for cubin in cubins:
        try:
            text, usage = sass.listing(tool, cubin), usages(sass.usage(tool, cubin))
        except InfrastructureError as error:
            missing.append(f"machine code of {cubin.name}: {error.what}")
            continue
        for arch in sass.archs(text):
            mixes = sass.count(text, arch)
            names = resources.demangled(list(mixes))
            found += [
                CompiledFunction(
                    function=names[name],
                    arch=arch,
                    registers_per_thread=usage.get(name, {}).get("REG", 0),
                    spill_nbytes_per_thread=None,
                    stack_nbytes_per_thread=usage.get(name, {}).get("STACK", 0),
                    static_shared_nbytes_per_block=usage.get(name, {}).get("SHARED", 0),
                    instructions=mix,
                )
                for name, those in mixes.items()
                for mix in those
            ]
    return tuple(found), tuple(missing)


def usages(text: str) -> dict[str, dict[str, int]]:
    """`REG`, `STACK`, `SHARED` and the like of each function, by mangled name, in cuobjdump's words."""
    found: dict[str, dict[str, int]] = {}
    name = ""
    for line in text.splitlines():
        if function := FUNCTION.match(line):
            name = function[1]
        elif name and "REG:" in line:
            found[name] = {word: int(value) for word, value in USED.findall(line)}
            name = ""
    return found


def build_lines(compiled: CompiledKernel) -> tuple[str, ...]:
    """How it was built, and the lines of the build's log that warn; () for what no compiler of ours has built."""
    if not compiled.library:
        return ()
    try:
        record = json.loads((Path(compiled.library).parent / RECORD).read_bytes())
        log, command, seconds = str(record["log"]), str(record["command"]), float(record["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    words = " ".join(command.partition("\n")[0].split())
    warned = [line.strip()[:300] for line in log.splitlines() if "warning:" in line or "warning #" in line]
    unique = list(dict.fromkeys(warned))[:MOST_WARNINGS]
    return (f"built in {seconds:.2f} s: {words[:MOST_CHARACTERS]}", *(unique or ["no warnings"]))


MOST_MODIFIED = 60
"""So many opcodes with modifiers are kept of a function."""
NEEDS_GPU = (
    "machine code: a Python kernel is compiled when it is called → run it where there is an NVIDIA GPU"
)


def of_library(
    library: Path, archs: Sequence[str] = ()
) -> tuple[list[evidence_documents.DisassembledFunction], str]:
    """Functions of a shared library or cubin, and the whole listing.

    Args:
        library: the file.
        archs: whose code is wanted; () for all that is in it.

    Raises:
        InfrastructureError: there is no disassembler, or it failed.
    """
    tool = sass.disassembler()
    if tool is None:
        raise InfrastructureError(f"{sass.TOOL} is not installed", remedy=sass.REMEDY)
    text = sass.listing(tool, library)
    functions: list[evidence_documents.DisassembledFunction] = []
    for arch in archs or sass.archs(text):
        found = sass.instructions(text, arch)
        names = resources.demangled(list(found))
        for name, those in found.items():
            for one in those:
                opcodes = [sass.modified(line) for line in one]
                functions.append(
                    evidence_documents.DisassembledFunction(
                        function=names[name],
                        arch=arch,
                        opcodes=sass.mix(Counter(word.partition(".")[0] for word in opcodes)),
                        modified=sass.mix(Counter(opcodes))[:MOST_MODIFIED],
                    )
                )
    return functions, text


def evidence(
    config_file: Path, wanted: str, *, device: str | None = None, text: str = "", archs: Sequence[str] = ()
) -> evidence_documents.SassEvidence:
    """The machine code of a kernel's CUDA implementations.

    Args:
        config_file: the `cgins.yaml`.
        wanted: `NAME` or `NAME/IMPLEMENTATION`.
        device: `cuda` or None.
        text: of the cases that Python kernels are called on, those with this in their names.
        archs: see `Disassembler`.

    Raises:
        ConfigError: there is no such implementation for a GPU.
    """
    config = configuration.load(config_file, require_traces=False)
    entry, implementations = selection.chosen(config, wanted, device)
    cuda = [implementation for implementation in implementations if implementation.device == "cuda"]
    if not cuda:
        raise ConfigError(
            f"kernel {entry.name}: no implementation for a GPU is named", remedy="only these have SASS"
        )
    disassembler = Disassembler(config, archs=archs)
    with closing(BuildQueue()) as ahead:
        rows = [disassembler.built(entry, one, ahead) for one in cuda if one.contract != "python"]
    called = tuple(one for one in cuda if one.contract == "python")
    if called and not has_driver():
        rows += [unbuilt(one.name, one.device, NEEDS_GPU) for one in called]
    elif called:
        evaluator = Evaluator(configuration.load(config_file), seed=0, timing=False, probes="off")
        with closing(evaluator):
            cases = selection.heaviest(selection.cases_of(evaluator.cases(), (entry, called), text))
            rows += [disassembler.compiled_when_called(evaluator, case) for case in cases]
    return evidence_documents.SassEvidence(
        version=evidence_documents.EVIDENCE_VERSION, kernel=entry.name, rows=tuple(rows)
    )


def unbuilt(implementation: str, device: str, *degraded: str) -> evidence_documents.SassRow:
    """A row without machine code, and why."""
    label = selection.label(implementation, device)
    return evidence_documents.SassRow(implementation=label, key="", functions=(), degraded=degraded)


class Disassembler:
    """Disassembles the implementations of one `cgins.yaml`.

    Args:
        config: the file.
        archs: architectures to build for; () for those of the kernel, else of this machine.
        sandbox: put around a Python kernel that is called; None trusts it.
    """

    def __init__(self, config: Config, *, archs: Sequence[str] = (), sandbox: Sandbox | None = None) -> None:
        self._config = config
        self._sandbox = fence_for(config, sandbox)
        self._archs = tuple(archs)

    def built(self, entry: KernelEntry, one: Implementation, ahead: BuildQueue) -> evidence_documents.SassRow:
        """An implementation that a compiler of ours builds; needs no GPU. What fails is told in `degraded`."""
        empty = unbuilt(one.name, one.device)
        try:
            source = find(self._config, entry, one)
            compiled = ahead.result(replace(source, archs=self._archs) if self._archs else source)
            functions, text = of_library(Path(compiled.library), archs_of(compiled))
        except CginsError as error:
            return replace(empty, degraded=(f"machine code: {error.what} → {error.remedy}",))
        made = replace(empty, key=compiled.key, functions=tuple(functions))
        return self._checked(made, text)

    def compiled_when_called(self, evaluator: Evaluator, case: Case) -> evidence_documents.SassRow:
        """A Python kernel, called once on a case in a process of its own; Triton leaves its machine code in a folder."""
        empty = unbuilt(case.implementation, case.device)
        try:
            with (
                tempfile.TemporaryDirectory(prefix="cgins-sass-") as name,
                evaluator.made_ready(case) as ready,
            ):
                child = Child(Path(name), ready, import_root=self._config.root, sandbox=self._sandbox)
                # Who times there must not be disturbed.
                told = child.begin("call").alone(evaluator.stage, case.device)
                if not child.cubins:
                    why = told.trouble or "the module left none where Triton does"
                    return replace(empty, key=ready.compiled.key, degraded=(f"machine code: {why}",))
                functions: list[evidence_documents.DisassembledFunction] = []
                text = ""
                for cubin in child.cubins:
                    some, listing = of_library(cubin)
                    functions += some
                    text += listing
        except EndedError as end:
            return replace(empty, degraded=(f"machine code: {end.verdict.message.partition(chr(10))[0]}",))
        except CginsError as error:
            return replace(empty, degraded=(f"machine code: {error.what} → {error.remedy}",))
        return self._checked(replace(empty, key=ready.compiled.key, functions=tuple(functions)), text)

    def _checked(self, row: evidence_documents.SassRow, text: str) -> evidence_documents.SassRow:
        if not row.functions:
            return replace(row, degraded=("machine code: the build has none for these architectures",))
        archs = dict.fromkeys(function.arch for function in row.functions)
        lines = text.splitlines()
        checks = [
            evidence_documents.SignatureCheck(
                method=method.id, arch=arch, state=sass_signature.check(lines, method, arch).shown
            )
            for arch in archs
            for method in registry.shipped()
        ]
        return replace(row, signatures=tuple(checks))
