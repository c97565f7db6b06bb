"""Evaluates candidates on the machine, and the GPU, that it is on: with `CandidateGate`, as a run without a cluster does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.core import documents
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.failure_kinds import MAY_BE_THE_DEVICES
from pytest_cgins.gate.calibration import Calibrations
from pytest_cgins.gate.evaluate import worker_environment
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.regenerate import scratch
from pytest_cgins.regenerate.attempt import Trial
from pytest_cgins.regenerate.candidate_gate import CandidateGate, DeviceLost, TrialSettings, rejections
from pytest_cgins.regenerate.candidate_pool import CandidatePool
from pytest_cgins.regenerate.executor import archive
from pytest_cgins.regenerate.executor.archive import Archives
from pytest_cgins.regenerate.executor.messages import EvaluationRequest, EvaluationResult, TargetOnNode
from pytest_cgins.regenerate.prompts import hardware
from pytest_cgins.run import gpu_check, sanitizer
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox.builds import BuildFence
from pytest_cgins.run.sandbox.outside import has_gpu
from pytest_cgins.run.sandbox.sandbox import Sandbox

Reports = dict[str, bytes]
"""Reports of ncu by name, for the driver's journal."""


class Node:
    """One evaluates one candidate at a time; no model is asked here, so no key is needed.

    Args:
        name: as people are told it.
        sandbox: around candidates; None where the user wants none.
        environment: added to that of all workers, such as which GPU they may see.
        cache: folder of built kernels, by default the user's.
        reference: a pool whose trusted worker is used, closed by its owner; by default one of its own.
        builds: compilers of the machine, likewise.
    """

    def __init__(
        self,
        name: str,
        *,
        sandbox: Sandbox | None,
        environment: Mapping[str, str] | None = None,
        cache: Path | None = None,
        reference: WorkerPool | None = None,
        builds: BuildQueue | None = None,
    ) -> None:
        self.name = name
        self._sandbox = sandbox
        self._environment = dict(environment or {})
        self._cache = cache
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(scratch.folder())
        self._reference = reference or self._stack.enter_context(
            WorkerPool(env={**worker_environment(), **self._environment})
        )
        fence = BuildFence(sandbox) if sandbox is not None else None
        self._pool = CandidatePool(builds or BuildQueue(cache=cache, fence=fence), threads=1)
        self._owns_builds = builds is None
        self._stack.callback(self._pool.close)
        self._gates: dict[str, CandidateGate] = {}

    def stop(self) -> None:
        """End what candidates are doing; files stay for what is not told."""
        if self._owns_builds:
            self._pool.stop()
        for gate in self._gates.values():
            gate.close()

    def close(self) -> None:
        """End all that is under way, and leave nothing."""
        self.stop()
        self._stack.close()

    def knows(self, spec: TargetOnNode) -> bool:
        """Whether a target's files are here."""
        return spec.target.name in self._gates

    def take(self, spec: TargetOnNode, archives: Archives) -> None:
        """Have a target's files here."""
        unpacked = self._folder / hashlib.sha256(archives.project).hexdigest()[:16]
        if not unpacked.exists():
            archive.unpack(archives.project, unpacked)
        config = archive.project_on_node(spec, unpacked)
        own = self._folder / spec.target.name
        copy = archive.copy_on_node(spec, config, archives.copy, unpacked / "project", own / "copy")
        settings = TrialSettings(
            seed=spec.seed,
            sandbox=self._sandbox,
            timing=spec.timing,
            compile=spec.compile,
            timeout_s=spec.timeout_s,
            environment=self._environment,
            cache=self._cache,
            sanitize=("memcheck",) if has_gpu() and sanitizer.find() else (),
            noise=TimingOptions(noise=Calibrations().noise),
        )
        (own / "reports").mkdir()
        self._gates[spec.target.name] = CandidateGate(
            spec.target, copy, settings, reference=self._reference, pool=self._pool,
            trusted_root=config.root, before=dict(spec.before), reports=own / "reports",
        )  # fmt: skip

    def answer(self, spec: TargetOnNode, request: EvaluationRequest) -> tuple[EvaluationResult, Reports]:
        """Do one evaluation, whatever became of the candidate."""
        gate = self._gates[spec.target.name]
        blank = EvaluationResult(id=request.id, node=self.name)
        try:
            result = self._evaluated(gate, request, blank)
            self._require_gpu(gate, result)
        except DeviceLost as error:
            return replace(blank, lost=error.what), {}
        except CginsError as error:
            return replace(blank, error=error.what, remedy=error.remedy), {}
        reports: Reports = {}
        for file in (self._folder / spec.target.name / "reports").iterdir():
            reports[file.name] = file.read_bytes()
            file.unlink()
        return self._as_on_driver(spec, result), reports

    def _evaluated(
        self, gate: CandidateGate, request: EvaluationRequest, blank: EvaluationResult
    ) -> EvaluationResult:
        files, champion = request.files, request.champion
        if request.stage == "check":
            if request.is_timed:
                gate.begin([files], champion)
            checked, touched = gate.check(files), gate.touched()
            if not request.is_timed or touched or rejections(checked.evaluations, gate.target):
                return replace(blank, trials=(checked,), touched=touched)
            return replace(blank, trials=(checked, gate.times(files, champion)), touched=touched)
        if request.stage == "times":
            return replace(blank, trials=(gate.times(files, champion),), touched=gate.touched())
        if request.stage == "acceptance":
            trial = gate.accept(
                files, goal=gate.target.goal, alpha_share=request.alpha_share, seed=request.seed
            )
            return replace(blank, trials=(trial,), touched=gate.touched())
        if request.stage == "evidence":
            timed = [one for trial in request.times for one in trial.evaluations]
            return replace(blank, evidence=gate.evidence(files, timed))
        if request.stage == "sass":
            return replace(blank, sass=gate.sass_signatures(files))
        found = hardware.described(gate.copy.config, self._reference, self._environment, gate.target.device)
        return replace(blank, hardware=found)

    def _require_gpu(self, gate: CandidateGate, result: EvaluationResult) -> None:
        """Raise DeviceLost where what was found of a candidate is what a GPU makes of it that is gone."""
        statuses = {one.verdict.status for trial in result.trials for one in trial.evaluations}
        if gate.target.device == "cpu" or statuses.isdisjoint(MAY_BE_THE_DEVICES):
            return
        if why := gpu_check.ask(self._environment).error:
            raise DeviceLost(f"its GPU is lost ({why}); dmesg names its Xid")

    def _as_on_driver(self, spec: TargetOnNode, result: EvaluationResult) -> EvaluationResult:
        """The same with the driver's paths of packs and files: this node's are gone when somebody reads them."""
        gate = self._gates[spec.target.name]
        text = documents.dump(result)
        pairs = [*zip(gate.copy.config.traces, spec.traces, strict=True), (gate.copy.project, spec.top)]
        for here, there in pairs:
            text = text.replace(_spelled(here), _spelled(there))
        return documents.load(EvaluationResult, text)


def _spelled(path: Path | str) -> str:
    return json.dumps(os.fspath(path), ensure_ascii=False)[1:-1]


def with_note(trial: Trial, note: str) -> Trial:
    """A trial with one line more for a person."""
    return replace(trial, notes=(*trial.notes, note)) if note else trial
