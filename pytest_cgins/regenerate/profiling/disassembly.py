"""Machine code of kernels, counted by opcode; what methods must leave in it is checked by whoever knows methods."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from pytest_cgins import config as configuration
from pytest_cgins.building import resources, sass
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.kernel_builds import has_driver
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.errors import CginsError, ConfigError, InfrastructureError
from pytest_cgins.core.model import Case
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.profiling import selection
from pytest_cgins.regenerate.profiling.child import Child
from pytest_cgins.regenerate.profiling.compile_report import archs_of
from pytest_cgins.regenerate.profiling.model import (
    EVIDENCE_VERSION,
    DisassembledFunction,
    SassEvidence,
    SassRow,
    SignatureCheck,
)
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.sandbox.fence import Sandbox

CALL_LIMIT_S = 300.0
MOST_MODIFIED = 60
"""So many opcodes with modifiers are kept of a function."""
Checker = Callable[[Sequence[str], str], tuple[SignatureCheck, ...]]
"""Given the lines of cuobjdump's listing and an architecture, says which methods left their mark."""
NEEDS_GPU = (
    "machine code: a Python kernel is compiled when it is called → run it where there is an NVIDIA GPU"
)


def of_library(library: Path, archs: Sequence[str] = ()) -> tuple[list[DisassembledFunction], str]:
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
    functions: list[DisassembledFunction] = []
    for arch in archs or sass.archs(text):
        found = sass.instructions(text, arch)
        names = resources.demangled(list(found))
        for name, those in found.items():
            for one in those:
                opcodes = [sass.modified(line) for line in one]
                functions.append(
                    DisassembledFunction(
                        function=names[name],
                        arch=arch,
                        opcodes=sass.mix(Counter(word.partition(".")[0] for word in opcodes)),
                        modified=sass.mix(Counter(opcodes))[:MOST_MODIFIED],
                    )
                )
    return functions, text


def signatures() -> Checker | None:
    """Looks for the methods that the registry has; None where there is no registry."""
    try:
        registry = import_module("pytest_cgins.regenerate.methods.registry")
        sass_signature = import_module("pytest_cgins.regenerate.methods.sass_signature")
    except ModuleNotFoundError:
        return None
    known = registry.shipped()

    def check(lines: Sequence[str], arch: str) -> tuple[SignatureCheck, ...]:
        found = [sass_signature.check(lines, method, arch) for method in known]
        return tuple(SignatureCheck(method=one.method, arch=arch, state=one.shown) for one in found)

    return check


def evidence(
    config_file: Path,
    wanted: str,
    *,
    device: str | None = None,
    text: str = "",
    archs: Sequence[str] = (),
    check: Checker | None = None,
) -> SassEvidence:
    """The machine code of a kernel's CUDA implementations.

    Args:
        config_file: the `cgins.yaml`.
        wanted: `NAME` or `NAME/IMPLEMENTATION`.
        device: `cuda` or None.
        text: of the cases that Python kernels are called on, those with this in their names.
        archs: see `Disassembler`.
        check: see `Disassembler`.

    Raises:
        ConfigError: there is no such implementation for a GPU.
    """
    config = configuration.load(config_file, require_traces=False)
    entry, implementations = selection.chosen(config, wanted, device)
    cuda = [one for one in implementations if one.device == "cuda"]
    if not cuda:
        raise ConfigError(
            f"kernel {entry.name}: no implementation for a GPU is named", remedy="only these have SASS"
        )
    disassembler = Disassembler(config, archs=archs, check=check)
    with closing(BuildQueue()) as ahead:
        rows = [disassembler.built(entry, one, ahead) for one in cuda if one.contract != "python"]
    called = tuple(one for one in cuda if one.contract == "python")
    if called and not has_driver():
        rows += [disassembler.unbuilt(one, NEEDS_GPU) for one in called]
    elif called:
        evaluator = Evaluator(configuration.load(config_file), seed=0, timing=False, probes="off")
        with closing(evaluator):
            cases = selection.heaviest(selection.cases_of(evaluator.cases(), (entry, called), text))
            rows += [disassembler.compiled_when_called(evaluator, case) for case in cases]
    return SassEvidence(version=EVIDENCE_VERSION, kernel=entry.name, rows=tuple(rows))


class Disassembler:
    """Disassembles the implementations of one `cgins.yaml`.

    Args:
        config: the file.
        archs: architectures to build for; () for those of the kernel, else of this machine.
        check: says which methods left their mark; None for none.
        sandbox: put around a Python kernel that is called; None trusts it.
    """

    def __init__(
        self,
        config: Config,
        *,
        archs: Sequence[str] = (),
        check: Checker | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        self._config = config
        self._sandbox = (
            sandbox.around(visible=(config.root, default_cache()), hidden=config.traces) if sandbox else None
        )
        self._archs = tuple(archs)
        self._check = check

    def unbuilt(self, one: Implementation, *degraded: str) -> SassRow:
        """A row without machine code, and why."""
        return SassRow(
            implementation=selection.label(one.name, one.device), key="", functions=(), degraded=degraded
        )

    def built(self, entry: KernelEntry, one: Implementation, ahead: BuildQueue) -> SassRow:
        """An implementation that a compiler of ours builds; needs no GPU. What fails is told in `degraded`."""
        empty = self.unbuilt(one)
        try:
            source = find(self._config, entry, one)
            compiled = ahead.result(replace(source, archs=self._archs) if self._archs else source)
            functions, text = of_library(Path(compiled.library), archs_of(compiled))
        except CginsError as error:
            return replace(empty, degraded=(f"machine code: {error.what} → {error.remedy}",))
        made = replace(empty, key=compiled.key, functions=tuple(functions))
        return self._checked(made, text)

    def compiled_when_called(self, evaluator: Evaluator, case: Case) -> SassRow:
        """A Python kernel, called once on a case in a process of its own; Triton leaves its machine code in a folder."""
        empty = SassRow(
            implementation=selection.label(case.implementation, case.device), key="", functions=()
        )
        try:
            with (
                tempfile.TemporaryDirectory(prefix="cgins-sass-") as name,
                evaluator.made_ready(case) as (compiled, _, pairs),
            ):
                child = Child(
                    Path(name), case, compiled, pairs[0], import_root=self._config.root, timeout_s=CALL_LIMIT_S,
                    sandbox=self._sandbox,
                )  # fmt: skip
                begun = child.begin("call")
                begun.wait()
                with evaluator.stage.alone_on(case.device):  # who times there must not be disturbed
                    told = begun.go()
                if not child.cubins:
                    why = told.trouble or "the module left none where Triton does"
                    return replace(empty, key=compiled.key, degraded=(f"machine code: {why}",))
                functions: list[DisassembledFunction] = []
                text = ""
                for cubin in child.cubins:
                    some, listing = of_library(cubin)
                    functions += some
                    text += listing
        except EndedError as end:
            return replace(empty, degraded=(f"machine code: {end.verdict.message.partition(chr(10))[0]}",))
        except CginsError as error:
            return replace(empty, degraded=(f"machine code: {error.what} → {error.remedy}",))
        return self._checked(replace(empty, key=compiled.key, functions=tuple(functions)), text)

    def _checked(self, row: SassRow, text: str) -> SassRow:
        if not row.functions:
            return replace(row, degraded=("machine code: the build has none for these architectures",))
        archs = dict.fromkeys(one.arch for one in row.functions)
        lines = text.splitlines()
        checks = [self._check(lines, arch) for arch in archs] if self._check is not None else []
        return replace(row, signatures=tuple(one for some in checks for one in some))
