"""What a search came to: `summary.json`, `summary.md` and what is shown of them, made by real searches."""

from __future__ import annotations

import html
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_cgins.app.cli import main
from pytest_cgins.config.llm import Budget
from pytest_cgins.core import documents
from pytest_cgins.core.options import POLICIES
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate import run_status, run_text
from pytest_cgins.regenerate.attempt import Finding, Result
from pytest_cgins.regenerate.conversation import Request
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.methods.classes import MethodMemory, Tried
from pytest_cgins.regenerate.search import summary, summary_text
from pytest_cgins.regenerate.search.profile_figures import Evidence
from pytest_cgins.regenerate.search.summary import pooled
from pytest_cgins.regenerate.search.summary_model import (
    SUMMARY_VERSION,
    Belief,
    Retrospective,
    SearchSummary,
)
from pytest_cgins.timing.sequential import median_interval
from tests.json_schemas import json_schema
from tests.regenerate import journals
from tests.regenerate.search.oracle import (
    ABSENT,
    MAIN,
    SCATTER,
    TARGET,
    VERIFIED,
    Model,
    Oracle,
    answer,
    searched,
    source,
    time_of,
)
from tests.regenerate.test_proposal_report import HOSTILE, harmless

Json = dict[str, Any]
Searches = dict[str, tuple[Path, Result]]
UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
NONE = "–"


class Profiled(Oracle):
    """Compute is the bottleneck until a kernel takes less than 900 ns, then memory; there are no counters."""

    def evidence(self, files: Mapping[str, str], timed: Sequence[Evaluation]) -> Evidence:
        time = time_of(files[MAIN])
        gaps = Gaps(compute=0.8, memory=0.2) if time >= 900 else Gaps(compute=0.25, memory=0.5, latency=0.125)
        return Evidence(case="c", gaps=gaps, degraded=("counters: not allowed",))


def says(request: Request, number: int) -> str:
    """Every third candidate is wrong, the others get faster; without a method they are slower by a tenth."""
    prompt = request.messages[0].text
    if request.role == "verifier":
        share = 20 if number % 4 == 0 else 90
        return f"compiles: {share}%\nmemory: {share}%\nnumbers: {share}%"
    if prompt.startswith("ablate"):
        return answer(source(1.1 * time_of(prompt.removeprefix("ablate ")), note=str(number)))
    return answer(source(1000 * 0.95**number, note=str(number), wrong=number % 3 == 0), "tiling")


def model(**changes: Any) -> Model:
    made = Model(says, **changes)
    made.usd = 0.0125
    return made


def gate() -> Oracle:
    """Two cases on a device whose peak is known."""
    made = Profiled()
    made.cases = ("f32-2x3-0001", "f32-4x4-0002")
    made.fastest = 300.0
    return made


def journal(folder: Path) -> Journal:
    return Journal.read_only(folder / ".cgins" / "runs" / journals.RUN)


def found(folder: Path) -> SearchSummary:
    made = summary.of(journal(folder), TARGET)
    assert made is not None
    return made


def kept(folder: Path, name: str = summary.JSON) -> str:
    return (journal(folder).folder / TARGET.name / name).read_text()


def cells(text: str, title: str) -> list[dict[str, str]]:
    """Rows of a table of the page, by the texts of its headings."""
    page = MarkdownIt("commonmark", {"html": True}).render(text)
    part = page.split(f"<h3>{title}</h3>")[1].split("<h3>")[0]
    plain = [
        [html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd]>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", part)
    ]
    return [dict(zip(plain[0], row, strict=True)) for row in plain[1:]]


def said_below(text: str, title: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", text.split(f"### {title}\n")[1].partition("\n### ")[0]))


def tried(method: str, result: Any, without: float | None = None, **changes: Any) -> Tried:
    known: Json = {
        "kernel": "scale", "device_name": "a CPU", "language": "cpp", "method": method, "result": result,
        "shown": "present", "proven": without is not None, "slowdown_without": without, "run": journals.RUN,
        "round": 1,
    }  # fmt: skip
    return Tried(**known | changes)


def with_methods(folder: Path, *methods: Tried, policy: str = "refine") -> None:
    """As if the search had classified them, before it ends."""
    run = journals.journal(folder / "cgins.yaml", TARGET, policy=policy)
    run.write(run.folder / TARGET.name / "methods.json", MethodMemory(tried=methods))


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory) -> Searches:
    """Folder and result of a search by each policy."""
    made = {}
    for name in POLICIES:
        folder = tmp_path_factory.mktemp(name)
        with_methods(folder, tried("a", "effective", 1.234), tried("b", "ineffective", 0.99), policy=name)
        made[name] = folder, searched(folder, gate(), model(), name, models=VERIFIED)
    return made


# ---- what is found


@pytest.mark.parametrize("name", POLICIES)
def test_the_headline_is_that_of_the_acceptance(name: str, searches: Searches) -> None:
    """Times, ratios and shares of peak of the accepted kernel against all others, each with its interval."""
    folder, result = searches[name]
    made = found(folder)
    best = made.headline
    assert best is not None
    (accepted,) = [one for one in result.attempts if one.outcome == "accepted"]
    time = time_of(journal(folder).sources(TARGET, accepted.number)[MAIN])
    assert (made.state, made.policy, best.number, best.untimed) == ("accepted", name, accepted.number, ())
    assert made.device_name == "a CPU"
    assert made.right == sum(one.is_right for one in result.attempts)
    assert [one.against for one in best.means] == ["base", "torch", "compile"]
    for turn, case in enumerate(best.cases, 1):
        assert (case.before_ns_per_call, case.after_ns_per_call) == pytest.approx((1000.0, time))
        true = {"base": 1000 / time, "torch": 2000 * turn / time, "compile": 1500 * turn / time}
        assert {one.against: one.ratio for one in case.ratios} == pytest.approx(true)
        (test,) = accepted.trials[-1].evaluations[turn - 1].measurement.comparisons  # type: ignore[union-attr]
        base = case.ratios[0]
        assert (base.ratio, base.low, base.high) == pytest.approx(
            (1 / test.ratio, 1 / test.ratio_high, 1 / test.ratio_low)
        )
        assert (case.share_before, case.share_after) == pytest.approx((0.3, 300 / time))
    means = {one.against: one.ratio for one in best.means}
    root = math.sqrt(2)
    assert means == pytest.approx(
        {"base": 1000 / time, "torch": 2000 * root / time, "compile": 1500 * root / time}
    )
    assert all(one.low < one.ratio < one.high and one.cases == 2 for one in best.means)
    assert (best.share_before, best.share_after) == pytest.approx((0.3, 300 / time))
    # Ten operations, counted by the signature, in nanoseconds.
    assert (best.gflops_before, best.gflops_after) == pytest.approx((10 / 1000, 10 / time))


@pytest.mark.parametrize("name", POLICIES)
def test_both_files_are_written_and_keep_the_published_schema(name: str, searches: Searches) -> None:
    """What is shown later is what was written, and anybody may read it."""
    folder, _ = searches[name]
    published = files("pytest_cgins") / "schemas" / f"search-summary-{SUMMARY_VERSION}.json"
    schema = json.loads(published.read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(kept(folder)), schema)
    assert schema == json_schema(SearchSummary)
    assert documents.load(SearchSummary, kept(folder)) == found(folder)
    assert kept(folder, summary.MARKDOWN) == summary_text.page(found(folder)).markdown()


@pytest.mark.parametrize("name", POLICIES)
def test_the_timeline_has_what_each_candidate_was_and_took(name: str, searches: Searches) -> None:
    """One row a candidate, with what was asked, what became of it, tokens and money; they add up to the costs."""
    folder, result = searches[name]
    made = found(folder)
    assert len(made.candidates) == len(result.attempts) > 0
    for row, attempt in zip(made.candidates, result.attempts, strict=True):
        ask = attempt.ask
        assert ask is not None
        assert (row.number, row.round, row.branch) == (attempt.number, ask.round, ask.branch)
        assert row.kind == ask.kind
        assert (row.parent, row.model, row.temperature) == (ask.parent, ask.model, ask.temperature)
        assert (row.methods, row.without, row.rank) == (attempt.methods, ask.method, attempt.rank)
        assert (row.outcome, row.reason) == (attempt.outcome, attempt.reason)
        assert (row.time_ratio, row.became_champion) == (attempt.time_ratio, attempt.beats_champion)
    roles = {one.role: one for one in made.costs}
    asked = {"generator", "verifier", "all"} if name == "evolve" else {"generator", "all"}
    assert set(roles) == asked
    assert roles["all"].prompt_tokens == sum(one.prompt_tokens for one in made.candidates)
    assert roles["all"].answer_tokens == sum(one.answer_tokens for one in made.candidates)
    assert roles["all"].usd == pytest.approx(sum(one.usd or 0 for one in made.candidates))
    assert roles["all"].requests == sum(one.requests for role, one in roles.items() if role != "all")


def test_policies_read_differently(searches: Searches) -> None:
    """A round says in words what was asked for, so that nobody takes one policy's journal for another's."""
    told = {name: [one.decided for one in found(folder).rounds] for name, (folder, _) in searches.items()}
    assert told["single-shot"] == ["one pass over the incumbent"]
    assert told["refine"][:3] == [
        "next step from the incumbent",
        "next step from candidate 1, with profiles",
        "next step from candidate 2, with profiles; then fix of 3, with profiles, telling of 3",
    ]
    assert (
        told["branch"][0] == "4 branches from the incumbent, with profiles; then candidate 4 without tiling"
    )
    assert told["evolve"][0] == (
        "generation of 6, parents from the archive: the incumbent (6 times), at 0.5, 0.75, 1"
    )
    assert told["mcts"][:3] == [
        "child of the incumbent by UCT",
        "child of the incumbent by UCT, telling of 1",
        "child of candidate 2 by UCT, with profiles",
    ]
    words = [line for lines in told.values() for line in set(lines)]
    assert len(words) == len(set(words))


def test_the_bottleneck_drifts(searches: Searches) -> None:
    """Gaps of what was profiled, in order; the largest is named, and so is what could not be had."""
    folder, _ = searches["refine"]
    drift = found(folder).drift
    assert [one.number for one in drift][:3] == [1, 2, 4]
    assert [one.largest for one in drift][:3] == ["compute", "compute", "memory"]
    assert all(one.was_champion and one.degraded == ("counters: not allowed",) for one in drift)
    text = kept(folder, summary.MARKDOWN)
    assert cells(text, "Bottlenecks")[2] == {
        "kernel": "candidate 4", "champion": "yes", "compute gap": "0.25", "memory gap": "0.50",
        "latency gap": "0.12", "largest": "memory", "case": "c", "near its peak": NONE,
    }  # fmt: skip
    assert cells(text, "Bottlenecks")[0]["latency gap"] == "no data"
    assert said_below(text, "Bottlenecks").count("not available: counters: not allowed") == 1


def test_ablations_say_what_a_method_is_worth(searches: Searches) -> None:
    """A champion without a method that it needs is proven slower, with an interval."""
    made = found(searches["branch"][0])
    first = made.ablations[0]
    assert (first.champion, first.method, first.found) == (4, "tiling", "slower")
    assert first.slowdown == pytest.approx(1.1)
    assert first.low < 1.1 < first.high
    assert first.high / first.low == pytest.approx(math.exp(max(SCATTER) - min(SCATTER)))
    assert [one.number for one in made.ablations] == [one.number for one in made.candidates if one.without]


@pytest.mark.parametrize(
    ("note", "wanted"), [("wrong", "wrong"), ("refused", "no-answer"), ("", "not-proven")]
)
def test_an_ablation_may_prove_nothing(note: str, wanted: str, tmp_path: Path) -> None:
    """One that is wrong shows that the method is needed; one that cannot be tried, or is as fast, shows nothing."""

    def ablates(request: Request, number: int) -> str:
        prompt = request.messages[0].text
        if not prompt.startswith("ablate"):
            return says(request, number)
        return answer(source(time_of(prompt.removeprefix("ablate ")), note=note, wrong=note == "wrong"))

    def check(sources: Mapping[str, str]) -> tuple[Finding, ...]:
        bad = "refused" in sources[MAIN]
        return (Finding(code="calls-op", file=MAIN, line=1, message="calls the op"),) if bad else ()

    searched(tmp_path, gate(), Model(ablates), "branch", attempts=5, check=check)
    (one,) = found(tmp_path).ablations
    assert one.found == wanted
    assert (one.slowdown is None) == (wanted != "not-proven")


def test_verifiers_are_scored(searches: Searches) -> None:
    """Precision and recall over what was ranked and tried; a policy that asks none says so."""
    said = found(searches["evolve"][0]).verifiers
    assert said is not None
    score = said.score
    assert said.ranked == 12
    assert score.wrong_and_said_right == 2
    assert said.precision == pytest.approx(score.right_and_said_so / (score.right_and_said_so + 2))
    assert said.recall == pytest.approx(
        score.right_and_said_so / (score.right_and_said_so + score.right_and_doubted)
    )
    folder, _ = searches["mcts"]
    assert found(folder).verifiers is None
    assert said_below(kept(folder, summary.MARKDOWN), "Verifiers").strip() == "No candidate was ranked."


def test_methods_are_grouped_by_what_became_of_them(tmp_path: Path) -> None:
    """Those that worked come first, the most valuable one before the others."""
    with_methods(
        tmp_path,
        tried("d", "unknown", shown="unknown", proven=None),
        tried("b", "effective", 1.05),
        tried("c", "ineffective", 1.001, note="no gain"),
        tried("a", "effective", 1.2),
        tried("e", "implementation-failed", shown="absent"),
    )
    silent = Model(lambda request, number: answer(source(1000 - number)))
    searched(tmp_path, gate(), silent, "refine")
    made = found(tmp_path)
    assert [one.method for one in made.methods] == ["a", "b", "c", "e", "d"]
    rows = cells(kept(tmp_path, summary.MARKDOWN), "Methods")
    assert [row["class"] for row in rows] == [one.result for one in made.methods]
    assert [row["time without it"] for row in rows] == ["+20.0%", "+5.00%", "+0.10%", NONE, NONE]
    assert dict(summary_text.brief(made))["worked"] == "a (+20.0% without it), b (+5.00% without it)"
    assert dict(summary_text.brief(made))["not built"] == "e"


def test_what_a_search_learned_of_methods_is_told(tmp_path: Path) -> None:
    """One that is in the machine code, and slower to be without, has worked; one that is not in it was not built."""

    def marked(request: Request, number: int) -> str:
        prompt = request.messages[0].text
        if prompt.startswith("ablate"):
            return says(request, number)
        return answer(source(1000 * 0.9**number, note="sass: tiling"), "tiling" if number % 2 else ABSENT[0])

    searched(tmp_path, gate(), Model(marked), "branch", attempts=6)
    made = found(tmp_path)
    assert made.methods
    assert set(made.methods) == set(journal(tmp_path).tried(TARGET))
    told = {row["method"]: row["class"] for row in cells(kept(tmp_path, summary.MARKDOWN), "Methods")}
    assert told == {one.method: one.result for one in made.methods}
    assert told[ABSENT[0]] == "implementation-failed"


PICKS = {1: "cpu-cache-blocks", 2: "cpu-vector-loops", 4: "cpu-one-pass", 5: "mine"}
"""Of the candidates of a search: the first and the fourth are faster, the second is not, the third is wrong."""


class Figures(Oracle):
    """What profilers find is a share of bandwidth, and a gap of compute."""

    def evidence(self, files: Mapping[str, str], timed: Sequence[Evaluation]) -> Evidence:
        return Evidence(case="c", gaps=Gaps(compute=0.6), figures={"share_of_bandwidth": 0.25})


def test_the_retrospective_holds_beliefs_against_times(tmp_path: Path) -> None:
    """Each method that was named, by which figure, what its time became, and whether the best kernel has it."""
    times = {1: 900.0, 2: 950.0, 3: 100.0, 4: 800.0, 5: 100.0}

    def picks(request: Request, number: int) -> str:
        return answer(source(times[number], note=str(number), wrong=number in (3, 5)), PICKS.get(number, ""))

    searched(tmp_path, Figures(), Model(picks), "refine", attempts=5)
    told = found(tmp_path).retrospective
    assert [(one.method, one.axis, one.candidates, one.outcome) for one in told.beliefs] == [
        ("cpu-one-pass", "memory", (4,), "kept"),
        ("cpu-cache-blocks", "memory", (1,), "kept"),
        ("cpu-vector-loops", "compute", (2,), "dropped"),
        ("mine", None, (5,), "lost"),
    ]
    ratios = [one.time_ratio for one in told.beliefs[:3]]
    assert ratios == pytest.approx([800 / 900, 0.9, 950 / 900])
    # The first prompt shows no profile; no figure is for the one that went wrong.
    assert [one.expected for one in told.beliefs] == ["", "", "compute gap 0.60", ""]
    assert {one.axis: (one.right, one.candidates) for one in told.diagnoses} == {
        "compute": (0, 1),
        "memory": (2, 2),
    }
    assert told.lost == {"gold-mismatch": 2}
    text = kept(tmp_path, summary.MARKDOWN)
    assert cells(text, "Retrospective")[2] == {
        "method": "cpu-vector-loops", "axis": "compute", "expected by": "compute gap 0.60", "candidates": "2",
        "best time with it": "+5.56%", "came of it": "dropped",
    }  # fmt: skip
    said = said_below(text, "Retrospective")
    assert "Named for an axis, and proven faster: compute in 0 of 1, memory in 2 of 2." in said
    assert "Candidates lost: 2 by gold-mismatch." in said
    assert summary.of(journal(tmp_path), TARGET) == found(tmp_path)


# ---- what is printed


def is_time(cell: str, value: float | None) -> bool:
    if value is None:
        return cell == NONE
    number, unit = cell.split(" ")
    return math.isclose(float(number) * UNITS[unit], value, rel_tol=0.00501)


def is_ratio(cell: str, value: float | None) -> bool:
    return (
        cell == NONE if value is None else math.isclose(float(cell.removesuffix("x")), value, rel_tol=0.00501)
    )


def is_percent(cell: str, value: float | None) -> bool:
    return cell == NONE if value is None else math.isclose(float(cell[:-1]), 100 * value, rel_tol=0.00501)


def is_interval(cell: str, one: Json | None) -> bool:
    """`1.67x (1.65..1.69)`."""
    if one is None:
        return cell == NONE
    shown = re.fullmatch(r"(\S+)x \((\S+)\.\.(\S+)\)", cell)
    assert shown is not None, cell
    return all(
        is_ratio(text, one[key]) for text, key in zip(shown.groups(), ("ratio", "low", "high"), strict=True)
    )


@pytest.mark.parametrize("name", POLICIES)
def test_every_printed_figure_is_one_of_the_document(name: str, searches: Searches) -> None:
    """Each table of the page, read back, has the numbers of `summary.json` within the rounding that is printed."""
    folder, _ = searches[name]
    data, text = json.loads(kept(folder)), kept(folder, summary.MARKDOWN)
    best = data["headline"]
    *rows, mean = cells(text, "Before and after")
    arms = dict(zip(("incumbent", "torch eager", "torch.compile"), ("base", "torch", "compile"), strict=True))
    arms = {f"vs {name} (95%)": arm for name, arm in arms.items()}
    for row, case in zip(rows, best["cases"], strict=True):
        assert row["case"] == case["case"]
        assert is_time(row["before"], case["before_ns_per_call"])
        assert is_time(row["after"], case["after_ns_per_call"])
        by_arm = {one["against"]: one for one in case["ratios"]}
        assert all(is_interval(row[column], by_arm[arm]) for column, arm in arms.items())
    by_arm = {one["against"]: one for one in best["means"]}
    assert all(is_interval(mean[column], by_arm[arm]) for column, arm in arms.items())
    for row, one in zip([*rows, mean], [*best["cases"], best], strict=True):
        assert is_percent(row["peak before"], one["share_before"])
        assert is_percent(row["peak after"], one["share_after"])
        for when in ("before", "after"):
            assert float(row[f"rate {when}"].removesuffix(" GFLOP/s")) == pytest.approx(
                one[f"gflops_{when}"], rel=0.005
            )
    for row, one in zip(cells(text, "Rounds"), data["rounds"], strict=True):
        numbers = (one["number"], len(one["candidates"]), one["tried"], one["right"])
        assert (row["round"], row["asked"], row["tried"], row["right"]) == tuple(map(str, numbers))
        assert row["what the policy asked for"] == one["decided"]
        assert is_ratio(row["best time / incumbent's"], one["time_ratio"])
        assert row["new champion"] == (NONE if one["champion"] is None else str(one["champion"]))
    for row, one in zip(cells(text, "Timeline"), data["candidates"], strict=True):
        same_candidate(row, one)
    for row, one in zip(cells(text, "Methods"), data["methods"], strict=True):
        assert (row["method"], row["round"]) == (one["method"], str(one["round"]))
        assert float(row["time without it"][:-1]) == pytest.approx(
            100 * one["slowdown_without"] - 100, abs=0.051
        )
    if data["ablations"]:
        for row, one in zip(cells(text, "Ablations"), data["ablations"], strict=True):
            assert (row["candidate"], row["without"]) == (str(one["number"]), one["method"])
            shown = [
                float(number) / 100 + 1 for number in re.findall(r"[+-][\d.]+", row["time without it (95%)"])
            ]
            assert shown == pytest.approx([one["slowdown"], one["low"], one["high"]], abs=0.00051)
    if data["verifiers"]:
        ((row),) = cells(text, "Verifiers")
        counts = data["verifiers"]["score"]
        assert row["ranked"] == str(data["verifiers"]["ranked"])
        for column in ("right, said so", "right, doubted", "wrong, said right", "wrong, doubted"):
            assert row[column] == str(counts[column.replace(", ", "_and_").replace(" ", "_")])
        assert is_percent(row["precision"], data["verifiers"]["precision"])
        assert is_percent(row["recall"], data["verifiers"]["recall"])
    for row, one in zip(cells(text, "Money"), data["costs"], strict=True):
        assert row["role"] == one["role"]
        assert row["requests"] == str(one["requests"])
        assert (row["tokens asked"], row["tokens answered"]) == (
            str(one["prompt_tokens"]),
            str(one["answer_tokens"]),
        )
        assert float(row["cost"].removesuffix(" USD")) == pytest.approx(one["usd"], abs=0.00501)
        assert float(row["seconds"]) == pytest.approx(one["seconds"], abs=0.0501)


def same_candidate(row: dict[str, str], one: Json) -> None:
    assert row["candidate"] == str(one["number"])
    assert all(row[column] == str(one[column]) for column in ("round", "branch", "outcome"))
    assert row["from"] == ("the incumbent" if one["parent"] == 0 else f"candidate {one['parent']}")
    assert row["kind"] == one["kind"] + (f" without {one['without']}" if one["without"] else "")
    assert row["model"] == one["model"]
    assert row["temperature"] == (NONE if one["temperature"] is None else f"{one['temperature']:g}")
    assert row["methods"] == (", ".join(one["methods"]) or NONE)
    assert row["why"].startswith(one["reason"])
    assert is_ratio(row["time / incumbent's"], one["time_ratio"])
    assert row["champion"] == ("yes" if one["became_champion"] else NONE)
    assert float(row["seconds"]) == pytest.approx(one["seconds"], abs=0.0501)
    assert row["tokens"] == str(one["prompt_tokens"] + one["answer_tokens"])
    assert float(row["USD"]) == pytest.approx(one["usd"], abs=5.1e-5)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_only_texts(text: str, searches: Searches) -> None:
    """Methods, messages, names, models' words and why it ended do nothing, on a page and on a terminal."""
    made = found(searches["branch"][0])
    best = made.headline
    assert best is not None
    assert made.methods
    names = ("run", "policy", "provider", "device_name", "ended", "remedy")
    bad = replace(
        made,
        **dict.fromkeys(names, text),
        target=replace(made.target, op=text, kernel=text),
        methods=tuple(replace(one, method=text, note=text) for one in made.methods),
        headline=replace(best, cases=tuple(replace(one, case=text) for one in best.cases), untimed=(text,)),
        rounds=tuple(replace(one, decided=text) for one in made.rounds),
        candidates=tuple(
            replace(
                one, model=text, methods=(text, text), without=text, reason=text, message=text,
                variant=text, outcome="failed",
            )
            for one in made.candidates
        ),
        drift=tuple(replace(one, case=text, near_peak=text, degraded=(text,)) for one in made.drift),
        ablations=tuple(replace(one, method=text) for one in made.ablations),
        retrospective=Retrospective(
            beliefs=(
                Belief(method=text, axis=None, expected=text, candidates=(1,), time_ratio=None, outcome="lost"),
            ),
            never_named=(text,),
            lost={text: 1},
        ),
    )  # fmt: skip
    for one in (bad, replace(bad, headline=None, state="failed")):
        harmless(summary_text.page(one).markdown())
        said = summary_text.page(one).terminal()
        assert all(character.isprintable() or character == "\n" for character in said)


# ---- searches that came to nothing, or have not ended


def test_nothing_accepted_says_why(tmp_path: Path) -> None:
    """There is no headline, and the first sentence has the reason."""
    same = Model(lambda request, number: answer(source(1000, note=str(number))))
    searched(tmp_path, gate(), same, "refine")
    made = found(tmp_path)
    assert (made.state, made.headline) == ("failed", None)
    text = kept(tmp_path, summary.MARKDOWN)
    assert (
        "Nothing was accepted (3 candidates, 3 right): nothing faster in 3 candidates: 3 steps brought nothing"
        in text
    )
    assert said_below(text, "Before and after").strip() == "Nothing was accepted."


def test_an_accepted_one_says_why_nothing_more_was_asked(searches: Searches, tmp_path: Path) -> None:
    """The policy's limit, or the budget's."""
    assert found(searches["single-shot"][0]).ended == "the one pass is done"
    searched(tmp_path, gate(), model(), "refine", budget=Budget(tokens=330))
    made = found(tmp_path)
    assert made.state == "accepted"
    assert "token" in made.ended


def test_an_empty_search(tmp_path: Path) -> None:
    """Where nothing may be asked every part says that it has nothing; before it began it is under way."""
    run = journals.journal(tmp_path / "cgins.yaml", TARGET, policy="mcts")
    begun = summary.of(run, TARGET)
    assert begun is not None
    assert begun.state == "under-way"
    searched(tmp_path, gate(), model(), "mcts", attempts=0)
    made = found(tmp_path)
    assert (made.state, made.candidates, made.rounds, made.drift) == ("failed", (), (), ())
    assert made.device_name == ""
    text = kept(tmp_path, summary.MARKDOWN)
    for title, words in (
        ("Retrospective", "No answer names a method, and no candidate was lost."),
        ("Rounds", "Nothing was asked that has an outcome."),
        ("Timeline", "There were no candidates."),
        ("Bottlenecks", "Nothing was profiled."),
        ("Methods", "No answer names a method."),
        ("Ablations", "No method was left out of a champion."),
        ("Verifiers", "No candidate was ranked."),
    ):
        assert said_below(text, title).strip() == words
    assert cells(text, "Money")[0]["requests"] == "0"


def test_a_search_that_was_stopped_has_a_summary_until_it_goes_on(tmp_path: Path) -> None:
    """It has what was tried, and why it stopped; when the run goes on the last word is that of its end."""
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, gate(), model(stops_after=3), "refine")
    made = found(tmp_path)
    assert (made.state, made.ended, len(made.candidates)) == ("stopped", "interrupted", 3)
    assert "it was stopped (3 candidates, 2 right): interrupted." in kept(tmp_path, summary.MARKDOWN)
    whole = searched(tmp_path, gate(), model(), "refine")
    assert found(tmp_path).state == "accepted"
    assert len(found(tmp_path).candidates) == len(whole.attempts) > 3


def test_a_search_that_waits_or_is_given_up(tmp_path: Path) -> None:
    """An answer that is missing is named; once given up it has failed, whatever was written before."""

    class Nobody(Model):
        def ask(self, request: Request, place: Path) -> Any:
            return super().ask(request, place) if request.id.endswith("attempt-01/generator") else None

    result = searched(tmp_path, gate(), Nobody(says), "refine")
    assert result.state == "waiting"
    made = found(tmp_path)
    assert (made.state, len(made.candidates)) == ("waiting", 1)
    assert made.ended == "for an answer to scale-cpu-cpp/attempt-02/generator"
    with Journal.resume(journal(tmp_path).folder) as run:
        run_status.give_up(run)
    assert (found(tmp_path).state, found(tmp_path).ended) == ("failed", "given up")


# ---- where it is shown


def test_runs_show_has_the_short_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headline, a line a round, cost and why it ended; the file with the rest is named."""
    monkeypatch.chdir(tmp_path)
    searched(tmp_path, gate(), model(), "refine", attempts=4)
    shown = run_text.whole(journal(tmp_path))
    for line in (
        "  search      refine: candidate 4 accepted (4 candidates, 3 right)",
        "  headline    1.23x as fast as the incumbent (1.22..1.24 at 95%, geometric mean over 2 cases)",
        "  peak        30% of the device's peak before, 36.8% after; 0.01 GFLOP/s before, 0.0123 GFLOP/s after",
        "  round 1     best 0.95 of the incumbent's time, champion 1: next step from the incumbent",
        "  cost        80 tokens, 0.0500 USD",
        "  ended       4 answers are used up",
        f"  summary     .cgins/runs/{journals.RUN}/scale-cpu-cpp/summary.md",
    ):
        assert f"{line}\n" in shown, shown
    assert (
        "  round 3     best 0.815 of the incumbent's time, champion 4: next step from candidate 2, " in shown
    )
    assert "…" not in shown


def test_runs_show_prints_the_summary_of_a_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--summary` has all tables; a target that is not there, or was repaired, is an error with its remedy."""
    monkeypatch.chdir(tmp_path)
    journals.journal(tmp_path / "cgins.yaml", TARGET, journals.target("gelu"), policy="refine")
    searched(tmp_path, gate(), model(), "refine")
    assert main(["runs", "show", "--summary", TARGET.name]) == 0
    assert capsys.readouterr().out == summary_text.page(found(tmp_path)).terminal()
    assert main(["runs", "show", "--summary", "scale-cpu-cp"]) != 0
    said = capsys.readouterr().err
    assert f'run {journals.RUN} has no target "scale-cpu-cp"' in said
    assert TARGET.name in said
    assert main(["runs", "show", "--summary", "gelu-cpu-cpp"]) != 0
    assert "gelu-cpu-cpp was not searched for: its goal is repair" in capsys.readouterr().err


# ---- intervals of means


@given(st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=20), min_size=1, max_size=5))
def test_a_mean_lies_in_its_interval(cases: list[list[float]]) -> None:
    """It is the geometric mean of the cases' medians, and that of one case has the interval of its test."""
    low, middle, high = pooled(cases)
    medians = [median_interval(logs)[1] for logs in cases]
    assert middle == pytest.approx(math.exp(sum(medians) / len(medians)))
    assert low <= middle * (1 + 1e-12)
    assert middle <= high * (1 + 1e-12)
    if len(cases) == 1:
        assert pooled(cases) == pytest.approx(tuple(map(math.exp, median_interval(cases[0]))))


def test_intervals_of_means_hold_as_often_as_they_say() -> None:
    """In 95 of 100 draws at least, for three cases of unlike noise."""
    draw = random.Random(7)
    held, draws = 0, 400
    for _ in range(draws):
        low, _, high = pooled(
            [[draw.gauss(0.1 * case, 0.02 * case) for _ in range(15)] for case in (1, 2, 3)]
        )
        held += low <= math.exp(0.2) <= high
    assert held >= 0.95 * draws
