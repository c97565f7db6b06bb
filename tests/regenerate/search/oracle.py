"""A search over a bench whose verdicts a test decides, and a model that says what a test wants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pytest_cgins.config.llm import Budget
from pytest_cgins.measurement import Comparison, Measurement, Power
from pytest_cgins.methods.axis_budget import Gaps
from pytest_cgins.model import Evaluation, Reason, Status
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.journal import Found, Journal
from pytest_cgins.regenerate.judgement import Goalposts
from pytest_cgins.regenerate.loop import Loop
from pytest_cgins.regenerate.model import (
    Answer,
    Ask,
    Finding,
    Guarded,
    Message,
    Request,
    Result,
    Trial,
    Usage,
)
from pytest_cgins.regenerate.search.driver import Search, SearchSettings
from pytest_cgins.regenerate.search.evidence import Evidence
from pytest_cgins.regenerate.search.policies import policy
from pytest_cgins.regenerate.search.policy import Means
from pytest_cgins.regenerate.search.tree import Tree
from pytest_cgins.regenerate.trial import Bench
from tests.regenerate import journals

TARGET = journals.target("scale", goal="optimise")
MAIN = "kernels/scale.cpp"
INCUMBENT = {MAIN: "// time 1000\n"}
MEANS = Means(models=("m",), seed=3)
MakeEvaluation = Callable[..., Evaluation]


def source(time: float, *, note: str = "", wrong: bool = False) -> str:
    """A kernel that takes so long."""
    return f"// time {time}\n// {note}\n{'// wrong' if wrong else ''}\n"


def answer(text: str, picks: str = "") -> str:
    """What a model answers."""
    chosen = f'```json\n{{"picks": [{{"method": "{picks}", "why": "x"}}]}}\n```\n' if picks else ""
    return f"{chosen}```cpp {MAIN}\n{text}```\n"


class Oracle:
    """A bench that knows a kernel's time from its text; `noise` is added to what a comparison tells."""

    def __init__(self, make_evaluation: MakeEvaluation) -> None:
        self._make = make_evaluation
        self.before: dict[str, Status] = {}
        self.tried: list[str] = []
        self.accepted: list[float] = []
        self.profiled: list[float] = []
        self.peak = 0.0
        self.lucky: set[float] = set()
        """Times that look faster until they are measured again."""

    def check(self, files: Mapping[str, str]) -> Trial:
        self.tried.append(files[MAIN])
        wrong = "// wrong" in files[MAIN]
        status, reason = (Status.INCORRECT, Reason.GOLD_MISMATCH) if wrong else (Status.PASSED, Reason.OK)
        return self._trial(
            "check", self._make(status, reason=reason, message="wrong numbers" if wrong else "")
        )

    def times(self, files: Mapping[str, str], champion: Mapping[str, str] | None) -> Trial:
        base = time_of((champion or INCUMBENT)[MAIN])
        return self._trial("times", self._timed(time_of(files[MAIN]), base, self.lucky))

    def evidence(self, files: Mapping[str, str], times: Trial | None) -> Evidence:
        self.profiled.append(time_of(files[MAIN]))
        peak = "near its peak" if time_of(files[MAIN]) < self.peak else ""
        return Evidence(case="c", gaps=Gaps(), near_peak=peak, lines=("a figure",))

    def accept(self, files: Mapping[str, str], *, goal: str, alpha_share: float) -> Trial:
        self.accepted.append(alpha_share)
        return self._trial("acceptance", self._timed(time_of(files[MAIN]), time_of(INCUMBENT[MAIN]), set()))

    def _timed(self, own: float, base: float, lucky: set[float]) -> Evaluation:
        ratio = 0.9 if own in lucky else own / base
        status = Status.FASTER if ratio < 0.98 else Status.SLOWER if ratio > 1.02 else Status.PASSED
        return self._make(status, timing=_with(self._make(Status.PASSED).measurement, ratio))

    def _trial(self, stage: Any, evaluation: Evaluation) -> Trial:
        return Trial(
            stage=stage,
            evaluations=(evaluation,),
            environments=(),
            seed=0,
            sandbox=True,
            sanitized=False,
            seconds=0.0,
        )


def time_of(text: str) -> float:
    return float(text.split()[2])


def _with(measured: Measurement | None, ratio: float) -> Measurement:
    assert measured is not None
    outcome: Any = "faster" if ratio < 0.98 else "slower" if ratio > 1.02 else "clean"
    comparison = Comparison(
        against="base", log_ratios=(math.log(ratio),), tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=1,
        most_blocks=100, log_e_slower=0.0, log_e_clean=0.0, log_e_faster=0.0, outcome=outcome, ratio=ratio,
        ratio_low=ratio, ratio_high=ratio, power=Power(sigma=0.01, detectable=0.05, blocks_needed=9),
    )  # fmt: skip
    return replace(measured, comparisons=(comparison,))


class Model:
    """A provider that answers at once; `says` is given each request and the candidate's number."""

    def __init__(self, says: Callable[[Request, int], str], stops_after: int = 10**6) -> None:
        self._says = says
        self.asked: list[Request] = []
        self._left = stops_after

    def ask(self, request: Request, place: Path) -> Answer | None:
        if len(self.asked) >= self._left:
            raise KeyboardInterrupt
        self.asked.append(request)
        number = int(request.id.split("attempt-")[1].partition("/")[0])
        usage = Usage(prompt_tokens=10, cached_tokens=0, answer_tokens=10, usd=None)
        return Answer(text=self._says(request, number), finish="stop", model="m", usage=usage, seconds=0.1)

    def wait(self, timeout_s: float) -> bool:
        return False

    def close(self) -> None:
        pass


class Writes:
    """Prompts that say what was asked, and nothing else."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []

    def candidate(
        self, ask: Ask, tree: Tree, sources: Callable[[int], Mapping[str, str]], evidence: Evidence | None
    ) -> tuple[Message, ...]:
        self.asks.append(ask)
        return (Message(role="user", text=f"{ask.kind} {sources(ask.parent)[MAIN]}"),)

    def verifier(self, sources: Mapping[str, str]) -> tuple[Message, ...]:
        return (Message(role="user", text=sources[MAIN]),)


def searched(
    folder: Path,
    bench: Oracle,
    model: Model,
    name: str,
    *,
    attempts: int = 12,
    verifiers_asked: tuple[str, ...] = ("",),
    budget: Budget = Budget(),  # noqa: B008
    check: Callable[[Mapping[str, str]], tuple[Finding, ...]] = lambda _: (),
) -> Result:
    """What a search comes to; its journal is in `folder`."""
    (folder / "cgins.yaml").parent.mkdir(exist_ok=True, parents=True)
    runs = folder / ".cgins" / "runs"
    if not runs.exists():
        journals.journal(folder / "cgins.yaml", TARGET)
    with Journal.resume(runs / journals.RUN) as journal:
        journal.begin(TARGET, Found(evaluations=()), INCUMBENT, Guarded(files={}))
        search = Search(
            TARGET, journal, cast(Bench, bench), Writes(), policy(name, MEANS, attempts),
            settings=SearchSettings(attempts=attempts, verifiers=verifiers_asked, max_tokens=1000),
            incumbent=INCUMBENT, check=check,
            goalposts=Goalposts(kept=None, now=lambda: Guarded(files={}), touched=lambda: ()),
            on_event=lambda _: None,
        )  # fmt: skip
        (result,) = Loop([search], journal, model, Ledger(budget, {})).run()
    return result
