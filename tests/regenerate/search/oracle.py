"""A search over a gate whose verdicts a test decides, and a model that says what a test wants."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, cast

from pytest_cgins.config.llm import Budget, LlmSettings, Models
from pytest_cgins.core.measurement import Arm, Comparison, Measurement, Power, Roofline
from pytest_cgins.core.session_report import Environment, Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate.attempt import Advice, Ask, Attempt, Finding, Guarded, Result, Target, Trial
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.candidate_gate import CandidateGate
from pytest_cgins.regenerate.conversation import Answer, Message, Request, Usage
from pytest_cgins.regenerate.journal.journal import Found, Journal
from pytest_cgins.regenerate.judgement import GuardedFiles
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.methods.select import Situation
from pytest_cgins.regenerate.profiling.evidence_documents import SassRow, SignatureCheck
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.scheduler import Scheduler
from pytest_cgins.regenerate.search.policies import policy
from pytest_cgins.regenerate.search.policy import Means
from pytest_cgins.regenerate.search.profile_figures import Evidence
from pytest_cgins.regenerate.search.tree import Tree
from pytest_cgins.regenerate.target_loop import TargetLoop
from pytest_cgins.timing.sequential import median_interval
from tests.evaluations import make_evaluation
from tests.regenerate import journals

TARGET = journals.target("scale", goal="optimise")
MAIN = "kernels/scale.cpp"
INCUMBENT = {MAIN: "// time 1000\n"}
MEANS = Means(models=("m",), seed=3)
VERIFIED = Models(verifier=("v",))
SCATTER = (0.01, -0.01, 0.0, 0.005, -0.005, 0.002, -0.002)
"""Of the logarithm of a kernel's time, a block; their median is 0."""
ABSENT = ("absent-method",)
"""Methods that no machine code of a test has."""
SITUATION = Situation(kernel="scale", device="cuda", device_name="a GPU", capability=90, language="cuda")


def source(time: float, *, note: str = "", wrong: bool = False) -> str:
    """A kernel that takes so long."""
    return f"// time {time}\n// {note}\n{'// wrong' if wrong else ''}\n"


def answer(text: str, picks: str = "") -> str:
    """What a model answers."""
    chosen = f'```json\n{{"picks": [{{"method": "{picks}", "why": "x"}}]}}\n```\n' if picks else ""
    return f"{chosen}```cpp {MAIN}\n{text}```\n"


class Oracle:
    """A gate that knows a kernel's time from its text; `noise` is added to what a comparison tells."""

    def __init__(self) -> None:
        self.before: dict[str, Status] = {}
        self.tried: list[str] = []
        self.begun: list[tuple[list[Mapping[str, str]], Mapping[str, str] | None]] = []
        self.accepted: list[float] = []
        self.profiled: list[float] = []
        self.peak = 0.0
        self.lucky: set[float] = set()
        """Times that look faster until they are measured again."""
        self.cases: tuple[str, ...] = ("f32-2x3-0001",)
        """Signatures; the kernel takes as long in each."""
        self.fastest = 0.0
        """Time of a kernel at the device's peak; 0 where no peak is known."""

    def begin(self, candidates: Sequence[Mapping[str, str]], champion: Mapping[str, str] | None) -> None:
        self.begun.append((list(candidates), champion))

    def check(self, files: Mapping[str, str]) -> Trial:
        self.tried.append(files[MAIN])
        wrong = "// wrong" in files[MAIN]
        status, reason = (Status.INCORRECT, Reason.GOLD_MISMATCH) if wrong else (Status.PASSED, Reason.OK)
        message = "wrong numbers" if wrong else ""
        return self._trial("check", [make_evaluation(status, reason=reason, message=message)])

    def times(self, files: Mapping[str, str], champion: Mapping[str, str] | None) -> Trial:
        base = time_of((champion or INCUMBENT)[MAIN])
        return self._trial("times", self._timed(time_of(files[MAIN]), base, self.lucky))

    def sass_signatures(self, files: Mapping[str, str]) -> SassRow:
        """What a kernel has of the methods that its text names as `sass: a, b`."""
        shown = re.findall(r"sass: (.*)", files[MAIN])
        names = shown[0].split(", ") if shown else []
        checks = [SignatureCheck(method=name, arch="sm_90a", state="present") for name in names]
        checks += [SignatureCheck(method=name, arch="sm_90a", state="absent") for name in ABSENT]
        return SassRow(implementation="cuda-cuda", key="k", functions=(), signatures=tuple(checks))

    def evidence(self, files: Mapping[str, str], timed: Sequence[Evaluation]) -> Evidence:
        self.profiled.append(time_of(files[MAIN]))
        peak = "near its peak" if time_of(files[MAIN]) < self.peak else ""
        return Evidence(case="c", gaps=Gaps(), near_peak=peak, lines=("a figure",))

    def accept(self, files: Mapping[str, str], *, goal: str, alpha_share: float) -> Trial:
        self.accepted.append(alpha_share)
        return self._trial("acceptance", self._timed(time_of(files[MAIN]), time_of(INCUMBENT[MAIN]), set()))

    def _timed(self, own: float, base: float, lucky: set[float]) -> list[Evaluation]:
        base = own / 0.9 if own in lucky else base
        ratio = own / base
        status = Status.FASTER if ratio < 0.98 else Status.SLOWER if ratio > 1.02 else Status.PASSED
        share = self.fastest / own
        return [
            make_evaluation(
                status, signature=name, timing=measured(own, base, torch=2000.0 * turn, share=share)
            )
            for turn, name in enumerate(self.cases, 1)
        ]

    def _trial(self, stage: Any, evaluations: list[Evaluation]) -> Trial:
        environment = Environment(device="cpu", device_name="a CPU", python="3.11", torch="2.13")
        return journals.trial(*evaluations, stage=stage, environments=(environment,))


def time_of(text: str) -> float:
    return float(text.split()[2])


def measured(own: float, base: float, *, torch: float, share: float) -> Measurement:
    """Blocks of four arms, whose ratios scatter by a percent around the true ones."""
    arms = {"kernel": own, "base": base, "torch": torch, "compile": 0.75 * torch}
    made: dict[Any, Arm] = {}
    for name, ns in arms.items():
        scatter = SCATTER if name == "kernel" else [0.0] * len(SCATTER)
        samples = tuple(ns * math.exp(one) for one in scatter for _ in range(2))
        made[name] = Arm(
            name=name,  # type: ignore[arg-type]
            samples_ns_per_call=samples,
            calls_per_batch=1,
            median_ns_per_call=median(samples),
            iqr_ns_per_call=0.01 * ns,
        )
    logs = tuple(math.log(own / base) + one for one in SCATTER)
    low, middle, high = map(math.exp, median_interval(logs))
    outcome: Any = "faster" if middle < 0.98 else "slower" if middle > 1.02 else "clean"
    comparison = Comparison(
        against="base", log_ratios=logs, tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=1,
        most_blocks=100, log_e_slower=0.0, log_e_clean=0.0, log_e_faster=0.0, outcome=outcome, ratio=middle,
        ratio_low=low, ratio_high=high, power=Power(sigma=0.01, detectable=0.05, blocks_needed=9),
    )  # fmt: skip
    roofline = Roofline(
        nbytes=10, flops=10, source="signature", peak_bytes_per_s=1e9, peak_flops_per_s=1e9,
        share_of_bandwidth=share, share_of_compute=share / 10, bound="memory",
    )  # fmt: skip
    return Measurement(
        method="perf-counter",
        cache="warm",
        orders=" ".join(["CTKBBKTC"] * len(SCATTER)),
        kernel=made["kernel"],
        torch=made["torch"],
        base=made["base"],
        compiled=made["compile"],
        speedup_vs_torch=torch / own,
        speedup_low=torch / own,
        speedup_high=torch / own,
        comparisons=(comparison,),
        roofline=roofline if share else None,
    )


class Model:
    """A provider that answers at once; `says` is given each request and the candidate's number."""

    def __init__(self, says: Callable[[Request, int], str], stops_after: int = 10**6) -> None:
        self._says = says
        self.asked: list[Request] = []
        self._left = stops_after
        self.usd: float | None = None
        """Price of an answer."""

    def ask(self, request: Request, place: Path) -> Answer | None:
        if len(self.asked) >= self._left:
            raise KeyboardInterrupt
        self.asked.append(request)
        number = int(request.id.split("attempt-")[1].partition("/")[0])
        usage = Usage(prompt_tokens=10, cached_tokens=0, answer_tokens=10, usd=self.usd)
        said = self._says(request, number)
        found = Answer(text=said, finish="stop", model="m", usage=usage, seconds=0.1)
        files.write_json(place / files.ANSWER, found)
        return found

    def wait(self, timeout_s: float) -> bool:
        return False

    def close(self) -> None:
        pass


class Writes:
    """Prompts that say what was asked, and nothing else; those of a repair, how many attempts and advices they know of."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []

    def advise(
        self, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> tuple[Message, ...]:
        return (Message(role="user", text=f"{len(attempts)} attempts, {len(advices)} advices"),)

    def mended(
        self, ask: Ask, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> tuple[Message, ...]:
        self.asks.append(ask)
        return self.advise(sources, attempts, advices)

    def read_advice(self, text: str) -> Advice:
        return Advice(text=text)

    def candidate(
        self, ask: Ask, tree: Tree, sources: Callable[[int], Mapping[str, str]], evidence: Evidence | None
    ) -> tuple[Message, ...]:
        self.asks.append(ask)
        return (Message(role="user", text=f"{ask.kind} {sources(ask.parent)[MAIN]}"),)

    def verifier(self, sources: Mapping[str, str]) -> tuple[Message, ...]:
        return (Message(role="user", text=sources[MAIN]),)

    def complaints(
        self,
        ask: Ask,
        tree: Tree,
        sources: Callable[[int], Mapping[str, str]],
        evidence: Evidence | None,
        answer: str,
    ) -> tuple[str, ...]:
        return ("it is not offered",) if "not-offered" in answer else ()

    def situation(self) -> Situation:
        return SITUATION


def searched(
    folder: Path,
    gate: Oracle,
    model: Model,
    name: str,
    *,
    target: Target = TARGET,
    attempts: int = 12,
    models: Models = Models(),  # noqa: B008
    means: Means = MEANS,
    budget: Budget = Budget(),  # noqa: B008
    provider: str = "replay",
    check: Callable[[Mapping[str, str]], tuple[Finding, ...]] = lambda _: (),
    moved: Callable[[Mapping[str, str]], tuple[str, ...]] = lambda _: (),
) -> Result:
    """What a search comes to; its journal is in `folder`, and one that is there goes on."""
    (folder / "cgins.yaml").parent.mkdir(exist_ok=True, parents=True)
    runs = folder / ".cgins" / "runs"
    if not runs.exists():
        record = {"provider": provider} | ({} if name == "repair" else {"policy": name})
        journals.journal(folder / "cgins.yaml", target, **record)
    with Journal.resume(runs / journals.RUN) as journal:
        journal.begin(target, Found(evaluations=()), INCUMBENT, Guarded(files={}))
        settings = LlmSettings(
            provider="replay", models=models, max_answer_tokens=1000, runs=runs,
            budget=Budget(candidates=attempts, repair_attempts=attempts),
        )  # fmt: skip
        search = TargetLoop(
            target, journal, cast(CandidateGate, gate), Writes(), policy(name, means, attempts), settings=settings,
            incumbent=INCUMBENT, check=check,
            goalposts=GuardedFiles(moved=moved, touched=lambda: ()),
            on_event=lambda _: None,
        )  # fmt: skip
        (result,) = Scheduler([search], journal, model, Ledger(budget, {})).run()
    return result
