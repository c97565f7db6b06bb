"""Evaluates candidates on the machine, and the GPU, that it is on: with `CandidateGate`, as a run without a cluster does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.core import scratch
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.failure_kinds import MAY_BE_THE_DEVICES
from pytest_cgins.regenerate.attempt import Trial
from pytest_cgins.regenerate.candidate_gate import CandidateGate, DeviceLost, TrialSettings
from pytest_cgins.regenerate.candidate_pool import CandidatePool
from pytest_cgins.regenerate.executor.archive import TargetOnNode, unpack
from pytest_cgins.regenerate.executor.dispatch import Answer, Work
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.run import gpu_check
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox.sandbox import Sandbox


class Node:
    """One evaluates one candidate at a time; no model is asked here, so no key is needed. It is a `Slot`, too.

    Args:
        name: as people are told it; on one machine those of the same GPU have the same.
        sandbox: around candidates; None where the user wants none.
        environment: added to that of all workers, such as which GPU they may see.
        cache: folder of built kernels, by default the user's.
        reference: a pool whose trusted worker is used, closed by its owner; by default one of its own.
        builds: compilers of the machine, likewise.
        lost: names of those that are of no more use, shared by all of a machine.
        fetched: the archive that something in a `TargetOnNode` stands for.
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
        lost: set[str] | None = None,
        fetched: Callable[[Any], bytes] = lambda archive: archive,
    ) -> None:
        self.name = name
        self._sandbox, self._environment, self._cache = sandbox, dict(environment or {}), cache
        self._lost = set() if lost is None else lost
        self._fetched = fetched
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(scratch.folder())
        self._reference = reference or self._stack.enter_context(WorkerPool(env=self._environment))
        self._owns_builds = builds is None
        self._pool = (
            CandidatePool(builds, threads=1)
            if builds
            else CandidatePool.fenced(sandbox, cache=cache, threads=1)
        )
        self._stack.callback(self._pool.close)
        self._gates: dict[str, CandidateGate] = {}

    @property
    def is_lost(self) -> bool:
        """See `Slot`."""
        return self.name in self._lost

    def stop(self) -> None:
        """End what candidates are doing; files stay for what is not told."""
        if self._owns_builds:
            self._pool.stop()
        for gate in [*self._gates.values()]:  # one may be made meanwhile
            gate.close()

    def close(self) -> None:
        """End all that is under way, and leave nothing."""
        self.stop()
        self._stack.close()

    def answer(self, work: Work[Any]) -> Answer[Any]:
        """Do one evaluation, whatever became of the candidate."""
        name = work.spec.target.name
        try:
            gate = self._gates[name] = self._gates.get(name) or self._gate(work.spec)
            value = work.evaluate(gate)
            self._require_gpu(gate, value)
        except DeviceLost as error:
            self._lost.add(self.name)
            return Answer(id=work.id, node=self.name, lost=error.what)
        except CginsError as error:
            return Answer(id=work.id, node=self.name, error=error.what, remedy=error.remedy)
        reports: dict[str, bytes] = {}
        for file in (self._folder / name / "reports").iterdir():
            reports[file.name] = file.read_bytes()
            file.unlink()
        return Answer(id=work.id, node=self.name, value=value, touched=gate.touched(), reports=reports)

    def _gate(self, spec: TargetOnNode) -> CandidateGate:
        """What tries a target's candidates, once its files are here."""
        packs, own = self._folder / "packs", self._folder / spec.target.name
        if not packs.exists():
            unpack(self._fetched(spec.packs), packs)
        shutil.rmtree(own, ignore_errors=True)  # what a try that failed has left
        unpack(self._fetched(spec.repository), own / "copy")
        (own / "reports").mkdir()
        traces = {str(packs / str(n) / Path(pack).name): pack for n, pack in enumerate(spec.traces)}
        copy = ProjectCopy.restored(
            spec.target.key, own / "copy", own / "project", config=spec.config, traces=map(Path, traces),
            base_commit=spec.base_commit,
        )  # fmt: skip
        settings = TrialSettings.here(
            self._sandbox, seed=spec.seed, timing=spec.timing, compile=spec.compile, timeout_s=spec.timeout_s,
            environment=self._environment, cache=self._cache,
        )  # fmt: skip
        return CandidateGate(
            spec.target, copy, settings, reference=self._reference, pool=self._pool,
            trusted_root=copy.project / Path(spec.config).parent, before=dict(spec.before),
            reports=own / "reports", names={**traces, os.fspath(copy.project): spec.top},
        )  # fmt: skip

    def _require_gpu(self, gate: CandidateGate, value: object) -> None:
        """Raise DeviceLost where what was found of a candidate is what a GPU makes of it that is gone."""
        trials = [one for one in (value if isinstance(value, tuple) else [value]) if isinstance(one, Trial)]
        statuses = {one.verdict.status for trial in trials for one in trial.evaluations}
        if gate.target.device == "cpu" or statuses.isdisjoint(MAY_BE_THE_DEVICES):
            return
        if why := gpu_check.ask(self._environment).error:
            raise DeviceLost(f"its GPU is lost ({why}); dmesg names its Xid")
