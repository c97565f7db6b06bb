"""`models` of a `cgins.yaml` as pytest's items: each is measured by `cgins bench-model`, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from pytest_cgins.app.session.gate import Gate
from pytest_cgins.app.whole_model.document import ModelBench, ModelBenches
from pytest_cgins.config import ModelEntry
from pytest_cgins.core import documents
from pytest_cgins.core.case import Case
from pytest_cgins.core.device import device_of
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.options import BASELINE
from pytest_cgins.core.session_report import Evaluation, unknown
from pytest_cgins.core.verdict import Correctness, Reason, Status
from pytest_cgins.gate import correctness_verdict
from pytest_cgins.gate.timing_verdict import decide_timing
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.environment import PASSIVE

COMMAND = (sys.executable, "-c", "import sys; from pytest_cgins.app.cli import main; sys.exit(main())")
LEAST_LIMIT_S = 900.0
"""A whole model is built, run in four precisions, and timed."""
SANDBOXED = "a model is run with its kernels in one process, which is not fenced in\n→ run it without --cgins-sandbox, on sources that you trust"


def case_of(entry: ModelEntry) -> Case:
    """What reports know a model by."""
    return Case(
        kernel=entry.name,
        implementation="model",
        device=device_of(entry.device).case_name,
        op=entry.make,
        pack="",
        pack_path="",
        trace_id="",
        signature="",
        dtype="",
        check="model",
    )


class ModelRun:
    """Asks `cgins bench-model` about a model; `fenced` says that kernels may run in a sandbox alone."""

    def __init__(
        self, gate: Gate, file: Path, entry: ModelEntry, *, environment: dict[str, str], fenced: bool
    ) -> None:
        option = gate.config.getoption
        self._evaluator = gate.evaluator(file)
        self._entry = entry
        self._fenced = fenced
        baseline = option("--cgins-baseline") or self._evaluator.config.baseline or BASELINE
        self._words = (
            *COMMAND, "bench-model", entry.name, "--config", str(file), "--device", entry.device, "--baseline", baseline,
            "--cgins-seed", str(gate.seed), "--suite-tests", str(gate.tests()),
            *(["--no-timing"] if option("--cgins-no-timing") else []),
            *(["--compile"] if "compile" in option("--cgins-compare") else []),
        )  # fmt: skip
        self._environment = {**PASSIVE, **os.environ, **environment}
        self._limit_s = max(LEAST_LIMIT_S, option("--cgins-timeout"))
        self._folder = gate.config.invocation_params.dir

    def evaluation(self) -> Evaluation:
        """What is found of the model; a slowdown is confirmed by a second process."""
        started, case = time.monotonic(), case_of(self._entry)
        found = replace(unknown(case), fail_on=self._entry.timing.fail_on)
        try:
            self._require(case)
            found = self._judged(found, self._bench())
        except EndedError as end:
            found = replace(found, verdict=end.verdict, output=end.output)
        return replace(found, seconds=time.monotonic() - started)

    def _require(self, case: Case) -> None:
        if self._fenced:
            raise EndedError(Status.SKIPPED, Reason.NOT_APPLICABLE, SANDBOXED)
        self._evaluator.devices.require(case)

    def _judged(self, found: Evaluation, bench: ModelBench) -> Evaluation:
        correctness = Correctness(checks=bench.checks, power=(), notes=bench.notes)
        verdict = correctness_verdict.decide(correctness, None)
        if verdict.status is Status.INCORRECT:
            verdict = replace(verdict, message="\n".join([verdict.message, *bench.notes]))
        measurement = self._gated(bench.measurement)
        if measurement is not None:
            if verdict.status is Status.PASSED and any(
                one.outcome == "slower" for one in measurement.comparisons
            ):
                measurement = replace(measurement, confirmation=self._gated(self._bench().measurement))
            verdict = decide_timing(
                verdict,
                measurement,
                base_state=bench.base.state,
                base_note=bench.base.note,
                gate=self._entry.timing,
                base_label=bench.base.label,
                kernel=self._entry.name,
            )
        return replace(
            found,
            verdict=verdict,
            correctness=correctness,
            measurement=measurement,
            swapped=bench.kernels,
            plain=bench.plain,
        )

    def _gated(self, measurement: Measurement | None) -> Measurement | None:
        """Without the comparison with torch, unless a floor is declared."""
        if measurement is None or self._entry.timing.floor_vs_torch is not None:
            return measurement
        against_base = tuple(one for one in measurement.comparisons if one.against == "base")
        return replace(measurement, comparisons=against_base)

    def _bench(self) -> ModelBench:
        with tempfile.TemporaryDirectory(prefix="cgins-model-") as folder:
            out = Path(folder, "model_bench.json")
            words = [*self._words, "--out", str(out)]
            try:
                done = subprocess.run(
                    words, cwd=self._folder, env=self._environment, capture_output=True, text=True, errors="replace",
                    timeout=self._limit_s, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired as error:
                message = f"the model was not measured within {self._limit_s:g} s\n→ raise the limit with --cgins-timeout"
                raise EndedError(Status.TIMEOUT, Reason.TIMED_OUT, message) from error
            if not out.exists():
                raise _ended(done)
            (bench,) = documents.load(ModelBenches, out.read_bytes()).models
            return bench


def _ended(done: subprocess.CompletedProcess[str]) -> EndedError:
    """Why a command wrote no results."""
    if done.returncode < 0:
        message = f"the process that ran the model with its kernels was ended by signal {-done.returncode}"
        return EndedError(Status.RUNTIME_ERROR, Reason.CRASHED, message, done.stdout + done.stderr)
    told = done.stderr.strip() or f"bench-model ended with exit code {done.returncode}"
    return EndedError(Status.RUNTIME_ERROR, Reason.RAISED, told, done.stdout)
