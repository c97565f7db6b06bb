"""Prompts of a search: what they tell of other candidates, and how much."""

from __future__ import annotations

import re
from functools import partial

from pytest_cgins.regenerate.attempt import Ask, Attempt
from pytest_cgins.regenerate.prompts import assembly
from tests.regenerate.prompts.example import context_of


def shown(number: int, text: str, *, ratio: float | None = 0.9) -> assembly.Shown:
    attempt = Attempt(
        number=number, goal="optimise", outcome="right" if ratio else "failed", reason="not-faster", message="lost its tail",
        time_ratio=ratio, methods=("vector-access",),
    )  # fmt: skip
    return assembly.Shown(attempt=attempt, sources={"kernels/gelu.cu": text} if ratio else {})


def prompt(*others: assembly.Shown) -> str:
    parent = Attempt(number=0, goal="optimise", outcome="right", reason="ok", message="", time_ratio=1.0)
    ask = Ask(parent=0, kind="optimise", round=1)
    made = assembly.candidate(context_of("gelu", "cuda"), ask, parent, shown=others, evidence="", methods="")
    return made[-1].text


def test_sources_of_others_have_twelve_kilobytes_together() -> None:
    """The nearest ones come first and whole, what is over the limit is left out and said; failed ones are a line each."""
    texts = [f"// {mark}\n" * 450 for mark in ("aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd")]
    text = prompt(*(shown(number, one) for number, one in enumerate(texts, 1)), shown(5, "", ratio=None))
    quoted = sum(len(found) for found in re.findall(r"// ([abcd]{8})\n", text)) // 8 * len("// aaaaaaaa\n")
    assert 11_000 < quoted <= assembly.MOST_SHOWN_CHARACTERS == 12_000
    assert text.count("aaaaaaaa") == 450
    assert 0 < text.count("cccccccc") < text.count("bbbbbbbb") == text.count("aaaaaaaa")
    assert "dddddddd" not in text
    assert "more characters are left out" in text
    assert "5 with vector-access: failed (not-faster): lost its tail" in text


def test_without_others_nothing_is_told_of_them() -> None:
    """No heading without what is under it."""
    assert "What else was tried" not in prompt()


def test_findings_of_the_last_judged_candidate_stand_under_every_prompt() -> None:
    """Of a wrong one what the gate found, of a right one its time; nothing twice if it is the parent itself."""
    context = context_of("gelu", "cuda")
    parent = Attempt(number=1, goal="optimise", outcome="right", reason="ok", message="", time_ratio=0.8)
    wrong = Attempt(
        number=2, goal="optimise", outcome="build-error", reason="compiler", message="no",
        log="kernels/gelu.cu:3:1: error: 'x' was not declared\n",
    )  # fmt: skip
    asks = "whether the last diagnosis was right"
    right = Attempt(number=3, goal="optimise", outcome="right", reason="ok", message="", time_ratio=1.25,
        said="loads are scattered")  # fmt: skip
    for kind in ("optimise", "regenerate", "fix", "ablate"):
        ask = Ask(parent=1, kind=kind, round=2, method="vector-access")
        made = partial(assembly.candidate, context, ask, shown=(), evidence="", methods="")
        text = made(parent, judged=wrong)[-1].text
        assert "'x' was not declared" in text.partition("## What the gate found last")[2]
        text = made(parent, judged=right)[-1].text
        assert (
            "Candidate 3: right, 1.25 times the incumbent's time; its author said: loads are scattered"
            in text
        )
        assert (asks in text) == (kind != "ablate")
        assert asks not in made(parent)[-1].text
        text = made(wrong, judged=wrong)[-1].text
        assert "What the gate found last" not in text
        assert text.count("Attempt 2 ended as `build-error`") == 1
