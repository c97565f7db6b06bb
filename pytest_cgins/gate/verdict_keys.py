"""The key of a verdict: a digest over everything that could change it but the seed.

What a build reads is in its own key. What Python code reads is followed by its import statements. Where code reads more as
it runs there is no key, and its cases are run each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

import pytest_cgins
from pytest_cgins.building.cache.headers import file_digest
from pytest_cgins.building.contracts.cxx import with_headers, without_comments
from pytest_cgins.building.contracts.import_closure import OPAQUE, ImportReader
from pytest_cgins.building.contracts.source import include_folders
from pytest_cgins.config import Config
from pytest_cgins.core import documents
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.environment_key import soft_key
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.session_report import Environment, Evaluation, Tested
from pytest_cgins.core.trace import OPERATORS
from pytest_cgins.gate import correctness_verdict, input_digests
from pytest_cgins.gate.known_verdicts import KnownVerdicts
from pytest_cgins.gate.reference_requests import ReferenceRequests
from pytest_cgins.packs.store import BLOBS, MANIFEST

VARIABLES = (
    "ATEN_*", "CUBLAS*", "CUDA_[!V]*", "CUDNN_*", "CUTE_*", "CUTLASS_*", "GOMP_*", "KMP_*", "LD_*", "MKL_*", "NUMBA_*", "NVIDIA_[!V]*",
    "OMP_*", "OPENBLAS_*", "PYTHON*", "PYTORCH_*", "TORCH*", "TRITON_*",
)  # fmt: skip
"""Environment variables that libraries read, but for which of several devices it is; to these come those whose names are
words of a source."""
_WORD = re.compile(r"[A-Za-z_]\w+")
_SHA256 = re.compile(r"\b[0-9a-f]{64}\b")
_NOTED = re.compile(r"^(?!\.\.).*(?<!\.pyc,,)$", re.MULTILINE)
"""Lines of installers, without those of scripts, whose first lines have the environment's folder."""
_reader = cache(ImportReader)
_BUILT_IN = ("torch.ops.aten", "torch.ops.prims")


@dataclass(frozen=True, slots=True)
class VerdictKeys:
    """Keys of the cases of one `cgins.yaml`, and what is known under them."""

    config: Config
    requests: ReferenceRequests
    environment_of: Callable[[str], Environment]
    run: str
    """What else of the run could change a verdict."""
    known: KnownVerdicts | None
    """Verdicts that may be taken over; None for none, and no keys."""
    _tested: dict[tuple[str, ...], Tested] = field(default_factory=dict)
    _of_kernels: dict[tuple[str, ...], tuple[str, str]] = field(default_factory=dict)
    _traces: dict[str, dict[str, str]] = field(default_factory=dict)

    def with_digests(self, result: Evaluation, compiled: CompiledKernel, build_seconds: float) -> Evaluation:
        """The same with what is tested, and how long its build took."""
        case = result.case
        place = (*case.key, compiled.key, case.pack_path)
        if place not in self._tested:
            seed = self.requests.seed
            self._tested[place] = input_digests.tested(self.config, case, compiled, seed=seed)
        tested = replace(self._tested[place], trace=case.trace_id)
        return replace(
            result,
            kernel_digest=compiled.source.digest,
            build_seconds=build_seconds,
            tested=self.added(tested, case, compiled) if self.known else tested,
        )

    def taken_over(self, result: Evaluation) -> Evaluation | None:
        """What is known under a case's key, judged by today's rules; None where nothing is."""
        if self.known is None or result.tested is None or result.case.check:
            return None
        found = self.known.find(result.tested.key)
        if found is None:
            return None
        verdict = replace(correctness_verdict.decide(found.correctness, None), message=str(found.provenance))
        return replace(result, correctness=found.correctness, verdict=verdict, stored=found.provenance)

    def added(self, tested: Tested, case: Case, compiled: CompiledKernel) -> Tested:
        """What is tested, with its key or why there is none."""
        place = (*case.key, compiled.key)
        try:
            if place not in self._of_kernels:
                self._of_kernels[place] = self._of_kernel(case, compiled)
            own, unknown = self._of_kernels[place]
            device, told = _of_device(self.environment_of(case.device))
            parts = [own, self._of_case(tested, case), device, self.run, _installation()]
        except (OSError, SyntaxError, ValueError, KeyError, RecursionError, CginsError) as error:
            unknown = f"{type(error).__name__}: {error}".partition("\n")[0]
        if unknown:
            return replace(tested, unknown=unknown)
        return replace(tested, key=_digest(parts), environment=told)

    def _of_case(self, tested: Tested, case: Case) -> tuple[str, ...]:
        """What decides one case: sources and settings, what is asked of it, and what its trace holds."""
        pack = Path(case.pack_path)
        if case.pack_path not in self._traces:
            traces = json.loads((pack / MANIFEST).read_bytes())["traces"]
            self._traces[case.pack_path] = {trace["id"]: json.dumps(trace) for trace in traces}
        trace = self._traces[case.pack_path][case.trace_id]
        blobs = [file_digest(pack / BLOBS / f"{name}.safetensors") for name in _SHA256.findall(trace)]
        request = replace(self.requests.for_case(replace(case, pack_path="")), seed=0, import_root="")
        asked = _sha256(documents.dump(request))
        return (tested.config, tested.sources, tested.build, asked, _sha256(trace), *map(str, blobs))

    def _of_kernel(self, case: Case, compiled: CompiledKernel) -> tuple[str, str]:
        """What a kernel and its op read beyond the build's key, and what else they may read; "" for nothing."""
        source, entry, root = compiled.source, self.requests.entry(case), str(self.config.root)
        files = [Path(file) for file in source.files]
        python = source.contract == "python"
        names = {name.partition("@")[0] for name in (case.op, entry.judged_by or case.op)}
        imported = _reader(self.config.root, tuple(sys.path)).closure(files if python else (), names)
        included = () if python else with_headers(source.files, include_folders(source.flags))
        texts = {file: file.read_text(encoding="utf-8") for file in imported if file.suffix == ".py"}
        texts |= {file: without_comments(text) for file, text in included}
        found = ((file.name, _words(text)[0]) for file, text in sorted(texts.items()))
        unknown = next((f"{name} has {word}" for name, word in found if word), "")
        built = python and (source.load or self.config.implementations[case.key][1].build)
        if built or not imported <= texts.keys():
            unknown = "what its libraries load is not followed"
        if case.op.startswith(OPERATORS) and not case.op.startswith(_BUILT_IN):
            unknown = f"what registers {case.op} is not followed"
        words = set[str]().union(*(_words(text)[1] for text in texts.values()))
        read = (name for name in os.environ if name in words or _is_read(name))
        variables = {name: os.environ[name].replace(root, ".") for name in read}
        digests = sorted((os.path.relpath(file, root), file_digest(file)) for file in imported)
        return _digest((digests, variables)), unknown


@cache
def _is_read(variable: str) -> bool:
    return any(fnmatchcase(variable, pattern) for pattern in VARIABLES)


@lru_cache(maxsize=256)
def _words(text: str) -> tuple[str, frozenset[str]]:
    """The first word of a source that nobody can follow, and all its words: many kernels read the same files."""
    opaque = OPAQUE.search(text)
    return opaque[0] if opaque else "", frozenset(_WORD.findall(text))


@cache
def _of_device(environment: Environment) -> tuple[str, str]:
    """What of an environment could change a verdict, and how it is told."""
    # Which of several equal devices it is, and how fast it runs, changes no answer.
    key = documents.dump(replace(environment, device_uuid="", clock_policy=""))
    return key, f"{environment.device_name} · {soft_key(environment)}"


@cache
def _installation() -> str:
    """Our own sources, the interpreter, and all that is installed beside it, by what installers noted of each file."""
    folder = Path(pytest_cgins.__file__).parent
    own = [path for path in folder.rglob("*") if path.suffix != ".pyc" and path.is_file()]
    noted = [f"{one.metadata['Name']} {one.version}{_noted(one)}" for one in metadata.distributions()]
    ours = sorted((str(path.relative_to(folder)), file_digest(path)) for path in own)
    system = (sys.version, platform.machine(), *platform.libc_ver())
    return _digest((ours, sorted(noted), system))


def _noted(one: metadata.Distribution) -> list[str]:
    return _NOTED.findall(f"{one.read_text('RECORD')}\n{one.read_text('direct_url.json')}")


def _digest(parts: object) -> str:
    return _sha256(json.dumps(parts, sort_keys=True))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
