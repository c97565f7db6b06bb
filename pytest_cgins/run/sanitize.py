"""CUDA kernels run once more under compute-sanitizer; what it finds makes them `INCORRECT`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_cgins.core.device import device_of
from pytest_cgins.core.failure_kinds import cause_of
from pytest_cgins.core.options import BARE_VARIABLE
from pytest_cgins.core.verdict import Probe, Reason, Status
from pytest_cgins.run import sanitizer
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_run import NOT_RUN, KernelRuns, Pair
from pytest_cgins.run.launch import Wrap
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import START_TIMEOUT_S
from pytest_cgins.run.sandbox.sandbox import Sandbox
from pytest_cgins.run.worker import ENCLOSE_VARIABLE
from pytest_cgins.verify.messages import RunKernel, SetAnswer

_FAILS = "the kernel fails"
SHOWN_FINDINGS = 3
SLOWDOWN = 20
"""How many times as long as usual a request may take."""
START_SLOWDOWN = 5
"""How many times as long as usual a worker's imports may take: they run little on the GPU."""

_PLAIN_MEMORY = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", BARE_VARIABLE: "1"}
"""Each tensor is an allocation of its own that nothing was written to yet. Torch's allocator hands out parts of blocks,
and we put guards around outputs and poison into them: to the tools, what is wrong there would look right."""

_TOOLS_COST = (
    Reason.TIMED_OUT,
    Reason.OUT_OF_MEMORY,
)  # what a slow tool with much memory of its own brings about


class Sanitizers:
    """A worker a tool, started when first needed; tools run in the order that they are given."""

    def __init__(
        self,
        tools: Sequence[str],
        *,
        env: Mapping[str, str],
        seed: int,
        timeout_s: float,
        sandbox: Sandbox | None = None,
    ) -> None:
        self._tools = tuple(tools)
        self._env = env
        self._seed = seed
        self._timeout_s = timeout_s
        self._sandbox = sandbox
        self._folder = tempfile.TemporaryDirectory(prefix="cgins-sanitizer-") if tools else None
        self._workers: dict[str, KernelRuns] = {}
        self._reports: dict[str, int] = {}
        """Number of reports that each tool's present worker has logged."""
        self._read: dict[Path, int] = {}
        """Number of bytes read of each log."""

    def probes(self, device: str, request: RunKernel, pairs: Sequence[Pair]) -> tuple[Probe, ...]:
        """Run a kernel once on each set under each tool; one result a tool, none of one that is not among the probes of the request.

        Raises:
            EndedError: `INFRASTRUCTURE`, compute-sanitizer is not installed or does not work here, or its worker was
                lost before a kernel could run.
        """
        tools = [tool for tool in self._tools if tool in request.probes]
        if not device_of(device).is_cuda:
            why = "compute-sanitizer looks into CUDA kernels only"
            return tuple(Probe(name=tool, outcome="not-run", reason=Reason.OK, message=why) for tool in tools)
        return tuple(self._probe(tool, replace(request, probes=()), pairs) for tool in tools)

    def findings(
        self, device: str, request: RunKernel, pairs: Sequence[Pair], *, end: EndedError
    ) -> tuple[str, ...]:
        """What the tools find in a kernel that failed when it was run, in lines; where and why it failed, with luck.

        Errors are those of `probes`; `end` is how it failed.
        """
        if end.verdict.status is not Status.RUNTIME_ERROR or not device_of(device).is_cuda:
            return ()
        found = self.probes(device, request, pairs)
        return tuple(
            f"{sanitizer.PROGRAM} ({probe.name}): {probe.message}"
            for probe in found
            if probe.outcome == "tripped" and not probe.message.startswith(_FAILS)
        )

    def close(self) -> None:
        """End the workers and remove the logs."""
        for runs in self._workers.values():
            runs.pool.close()
        self._workers.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def _probe(self, tool: str, request: RunKernel, pairs: Sequence[Pair]) -> Probe:
        runs = self._worker(tool)
        died: EndedError | None = None
        unfinished = ""
        try:
            # A finding names its line: which of the sets it died on is not worth a process a set.
            reply = runs.together("verification", request, pairs)
        except EndedError as end:
            died = end
            if end.verdict.reason in _TOOLS_COST:
                unfinished = end.verdict.message
        else:
            unfinished = _unfinished(reply.result.sets)
            reply.close()
        text = self._logged(tool)
        if why := sanitizer.trouble(text):
            runs.pool.close()
            raise EndedError(Status.INFRASTRUCTURE, Reason.TOOL_MISSING, f"compute-sanitizer ({tool}): {why}")
        if died is not None and died.verdict.status is Status.INFRASTRUCTURE:
            raise died
        findings = sanitizer.parse(text)
        if not findings and unfinished:
            what = unfinished.partition("\n")[0]
            why = f"it found nothing before the kernel ended under it: {what}"
            return Probe(name=tool, outcome="not-run", reason=Reason.OK, message=why)
        if not findings and died is None:
            return Probe(name=tool, outcome="held", reason=Reason.OK)
        lines = [finding.text() for finding in findings[:SHOWN_FINDINGS]]
        if len(findings) > SHOWN_FINDINGS:
            lines.append(f"and {len(findings) - SHOWN_FINDINGS} more")
        if died is not None and not findings:
            lines = [f"{_FAILS} under {tool}: {died.verdict.message}"]
        elif findings[0].details:
            lines.insert(1, "; ".join(findings[0].details))
        return Probe(name=tool, outcome="tripped", reason=Reason(tool), message="\n".join(lines))

    def _logged(self, tool: str) -> str:
        """What the tool's processes have logged since this was last asked; one that said much gets a successor."""
        assert self._folder is not None
        text = ""
        for log in sorted(Path(self._folder.name).glob(f"{tool}-*")):
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                text += file.read().decode(errors="replace")
                self._read[log] = file.tell()
        self._reports[tool] += sanitizer.logged(text)
        if self._reports[tool] > sanitizer.MOST_LOGGED // 5:
            self._workers.pop(tool).pool.close()
        return text

    def _worker(self, tool: str) -> KernelRuns:
        if tool not in self._workers:
            program = sanitizer.find()
            if not program:
                raise EndedError(
                    Status.INFRASTRUCTURE,
                    Reason.TOOL_MISSING,
                    f"{sanitizer.PROGRAM} is not installed, and --cgins-sanitize asks for it\n"
                    "→ install the CUDA toolkit, or name its folder in $CUDA_HOME",
                )
            assert self._folder is not None
            self._reports[tool] = 0
            pool = WorkerPool(
                env={**self._env, **_PLAIN_MEMORY, ENCLOSE_VARIABLE: "1" if self._sandbox else ""},
                wrap=self._wrap(program, tool),
                start_timeout_s=START_SLOWDOWN * START_TIMEOUT_S,
            )
            self._workers[tool] = KernelRuns(pool, seed=self._seed, timeout_s=SLOWDOWN * self._timeout_s)
        return self._workers[tool]

    def _wrap(self, program: str, tool: str) -> Wrap:
        """A tool around the worker, and around both the sandbox, in which the logs alone can be written."""
        assert self._folder is not None
        folder = Path(self._folder.name)
        around = sanitizer.around(program, tool, folder / f"{tool}-%p")
        if self._sandbox is None:
            return around
        fence = self._sandbox.for_tool(writable=folder)
        return lambda command: fence.wrap(around(command))


def _unfinished(answers: Sequence[SetAnswer]) -> str:
    """What the kernel died of, or where it lacked memory, or why it came through on no set; "" if it ran."""
    errors = [answer.error for answer in answers if answer.error]
    for error in errors:
        ended = error.phase == "died" or error.kind == NOT_RUN
        if ended or cause_of(error.kind, error.message) in _TOOLS_COST or len(errors) == len(answers):
            return f"{error.kind}: {error.message}"
    return ""
