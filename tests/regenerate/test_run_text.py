"""`cgins runs ls` and `cgins runs show`: what is said of a run."""

from __future__ import annotations

import unicodedata
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate import run_status, run_text
from pytest_cgins.regenerate.attempt import Advice
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.provider import files
from tests.evaluations import make_evaluation
from tests.regenerate import journals

YAML = "version: 1\nkernels: {}\n"
HOSTILE = "bad\x1b[31m red\x1b]0;title\x07 \x9b2J \u202eright-to-left\x00\r\nsecond line " + "x" * 500


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cgins.yaml"
    file.write_text(YAML)
    return file


def test_a_line_has_state_counts_and_costs(config: Path) -> None:
    """Accepted targets, attempts, tokens and money of a run that is done, and how long ago it began."""
    good, bad = journals.target(), journals.target("silu")
    run = journals.journal(config, good, bad)
    journals.attempt(run, good, 1, sources={"k.cpp": "1"})
    journals.attempt(run, good, 2, "accepted", sources={"k.cpp": "2"})
    journals.attempt(run, bad, 1)
    journals.settle(run, good, "accepted", {"k.cpp": "2"})
    journals.settle(run, bad, "failed", {})
    words = [one.strip() for one in run_text.line(run).split("  ")]
    assert words[0] == journals.RUN
    assert "done" in words
    assert "1/2 accepted" in words
    assert "3 attempts" in words
    assert "3,600 tokens, 0.75 USD" in words
    assert words[-1].endswith(" s ago")


def test_states(config: Path) -> None:
    """Held by a process: running; answers by hand missing: waiting; else something left: stopped; nothing left: done."""
    one = journals.target()
    run = journals.journal(config, one, provider="exchange")
    assert run_status.state_of(run) == "stopped"
    request = journals.ask(run, one)
    assert run_status.state_of(run) == "waiting"
    with Journal.resume(run.folder):
        assert run_status.state_of(Journal.read_only(run.folder)) == "running"
    assert run_status.state_of(run) == "waiting"
    journals.answer(run, request)
    assert run_status.state_of(run) == "stopped"
    journals.settle(run, one, "failed", {})
    assert run_status.state_of(run) == "done"


def test_looking_does_not_stop_a_run_from_being_resumed(config: Path) -> None:
    """The lock is free again as soon as the state is known, and a run without a lock file has a state."""
    run = journals.journal(config, journals.target())
    run_status.state_of(run)
    Journal.resume(run.folder).close()
    (run.folder / "run.lock").unlink()
    assert run_status.state_of(run) == "stopped"


def test_costs_of_lost_answers_and_of_nobody(config: Path) -> None:
    """A failure that took tokens counts; who has no price is unknown; a person or an agent costs nothing."""
    one = journals.target()
    run = journals.journal(config, one)
    journals.answer(run, journals.ask(run, one, 1), usd=None)
    journals.answer(run, journals.ask(run, one, 2, model=""), usd=None)
    lost = journals.ask(run, one, 3)
    usage = journals.Usage(prompt_tokens=10, cached_tokens=0, answer_tokens=0, usd=0.5)
    failure = files.Failure(what="gave up", remedy="wait", retry=True, tries=4, usage=usage)
    files.write_json(run.folder / lost.id / files.ERROR, failure)
    spent = run_status.spent_on(run)
    assert (spent.requests, spent.tokens, spent.usd, spent.unpriced) == (3, 2410, 0.5, 1)
    assert run_status.spent_on(run, one, 3).tokens == 10
    shown = run_text.whole(run)
    assert "  stopped     gave up\n" in shown
    assert "  remedy      wait\n" in shown


def test_a_run_in_full(config: Path) -> None:
    """Each target has its goal, what the gate had found, each attempt with its figures, and where its files are."""
    good, bad = journals.target(), journals.target("silu", goal="generate")
    wrong = make_evaluation(
        Status.INCORRECT, kernel="gelu", reason=Reason.REFERENCE_MISMATCH, message="far off\nmap"
    )
    run = journals.journal(config, good, bad, before=[wrong, make_evaluation(kernel="gelu")])
    log = "In file included\n/tmp/cgins-candidates-x/gelu-cpu-cpp/copy/kernels/gelu.cpp:3:1: error: no ';'\nnote"
    journals.attempt(run, good, 1, "build-error", reason="compiler", message="g++ refused it", log=log)
    run.keep_advice(good, 1, Advice(text="Put it there.\nAnd look again."))
    journals.attempt(run, good, 2, "accepted")
    journals.attempt(run, bad, 1, sources={"kernels/silu.cpp": "?"})
    journals.settle(run, good, "accepted", {"kernels/gelu.cpp": "!"})
    journals.settle(run, bad, "failed", {"kernels/silu.cpp": "?"}, why="no valid kernel in 1 attempt")
    folder = f".cgins/runs/{journals.RUN}"
    shown = run_text.whole(run)
    for line in (
        f"run {journals.RUN}: done",
        "  command     pytest --cgins --cgins-regenerate",
        "  project     cgins.yaml",
        "  asked       replay (generator: a-model)",
        "  candidates  seed 0, baseline merge-base, timed, in a sandbox",
        "gelu-cpu-cpp: accepted after 2 attempts",
        "  goal        repair torch.nn.functional.gelu, contract launcher",
        "  found       1 INCORRECT, 1 PASSED of 2 cases; f32-2x3-0001: far off",
        "  attempt 1   build-error (compiler); 1,200 tokens, 0.25 USD, 3.5 s",
        "              kernels/gelu.cpp:3:1: error: no ';'",
        "              advice: Put it there.",
        f"              {folder}/gelu-cpu-cpp/attempt-01",
        "  attempt 2   accepted; 1,200 tokens, 0.25 USD, 3.5 s",
        f"  proposal    {folder}/proposals/gelu-cpu-cpp",
        "silu-cpu-cpp: failed after 1 attempt",
        "  found       there was no kernel",
        "  attempt 1   failed (reference-mismatch); 1,200 tokens, 0.25 USD, 3.5 s",
        "              2 elements are wrong",
        "  why         no valid kernel in 1 attempt",
        f"  FAILED      {folder}/silu-cpu-cpp/FAILED",
        f"next: cgins proposal apply {folder}/proposals/gelu-cpu-cpp",
    ):
        assert f"{line}\n" in shown, shown


def test_what_a_run_waits_for(config: Path) -> None:
    """The file to be written is named where the project says it, and how to go on."""
    one = journals.target()
    run = journals.journal(config, one, provider="exchange", llm="exchange:hand")
    request = journals.ask(run, one)
    shown = run_text.whole(run)
    assert "gelu-cpu-cpp: waits for an answer\n" in shown
    assert f"  waits for   hand/{request.id}/answer.md, the answer to prompt.md beside it\n" in shown
    assert shown.endswith(f"next: write the answers, then\n  cgins runs resume {journals.RUN}\n")
    config.unlink()
    assert f"an answer to .cgins/runs/{journals.RUN}/{request.id}/prompt.md\n" in run_text.whole(run)


def test_journals_elsewhere_are_named_for_resume(config: Path, tmp_path: Path) -> None:
    """The folder of the journals is part of the command where it is not the usual one."""
    run = journals.journal(config, journals.target(), runs=tmp_path / "my runs")
    assert run_text.whole(run).endswith(f"next: cgins runs resume {journals.RUN} --runs 'my runs'\n")


def test_a_project_that_was_made_goes_on_with_the_gate(config: Path) -> None:
    """After `cgins run` there is nothing to apply."""
    one = journals.target()
    run = journals.journal(config, one, made_project=True)
    journals.settle(run, one, "accepted", {})
    assert run_text.whole(run).endswith("next: pytest --cgins .\n")


def test_hostile_words_do_nothing_to_a_terminal(config: Path) -> None:
    """Escape sequences are gone, other controls spelled out, lines bounded, whatever texts hold."""
    one = journals.target(op=HOSTILE)
    before = [make_evaluation(Status.INCORRECT, kernel="gelu", message=HOSTILE)]
    run = journals.journal(config, one, before=before, models={"generator": (HOSTILE,)}, cgins=HOSTILE)
    journals.attempt(run, one, 1, message=HOSTILE, reason=HOSTILE)
    run.keep_advice(one, 1, Advice(text=HOSTILE))
    journals.attempt(run, one, 2, "build-error", log=f"error: {HOSTILE}")
    journals.settle(run, one, "failed", {}, why=HOSTILE)
    shown = run_text.whole(run)
    assert "bad red" in shown
    for text in (shown.replace("\n", ""), run_text.line(run)):
        assert not {unicodedata.category(one) for one in text} & {"Cc", "Cf", "Zl", "Zp"}
    assert max(map(len, shown.splitlines())) <= 2 * run_text.MOST_CHARACTERS


def test_a_reason_and_a_remedy_are_shown_whole(config: Path) -> None:
    """Neither the terminal's width nor ours cuts what a person is to do."""
    run, one = journals.journal(config, journals.target()), journals.target()
    why = "no server answers → " + " ".join(f"word{number}" for number in range(60))
    journals.settle(run, one, "failed", {}, why=why)
    assert why in run_text.whole(run)


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(seconds=7), "7 s ago"),
        (timedelta(minutes=5, seconds=59), "5 min ago"),
        (timedelta(hours=30), "30 h ago"),
        (timedelta(days=3), "2026-01-02"),
        (timedelta(hours=-1), "2026-01-02"),
    ],
)
def test_ages(age: timedelta, words: str) -> None:
    """Young runs have an age, others, and those of another clock, a date; what is not a date is shown as it is."""
    began = datetime(2026, 1, 2, 3, tzinfo=timezone.utc)
    assert run_text.when(began.isoformat(), began + age) == words
    assert run_text.when("\x1b[1mlong ago") == "long ago"
