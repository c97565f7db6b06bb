"""What tells the failing cases of a kernel from those that pass, in every report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from reports import report_of
from torch.nn import functional

from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import junit, markdown, pull_request_comment, terminal
from pytest_cgins.report.common_traits import common_traits, traits_of_case
from pytest_cgins.report.html import page
from tests.verify.helpers import call_of

Make = Callable[..., Evaluation]
NORM, POOL = functional.layer_norm, functional.max_pool2d


def images(*shape: int, last: bool = False) -> torch.Tensor:
    format_ = torch.channels_last if last else torch.contiguous_format
    return torch.zeros(shape).to(memory_format=format_)


def report_of_calls(
    make: Make, cases: list[tuple[Status, Callable[..., object], tuple[Any, ...]]]
) -> SessionReport:
    evaluations = []
    for number, (status, function, args) in enumerate(cases):
        call, tensors = call_of(f"torch.nn.functional.{function.__name__}", function, *args)
        layout = lay_out(tensors)
        one = make(status, signature=f"case{number}", message="the output differs")
        dtype = str(tensors[0].dtype).removeprefix("torch.")
        case = replace(one.case, call=call, tensors=layout.metas, dtype=dtype)
        evaluations.append(replace(one, case=case))
    return report_of(*evaluations)


WRONG, RIGHT, SLOW = Status.INCORRECT, Status.PASSED, Status.SLOWER
x, w = torch.zeros(4, 6), torch.ones(6)
SEPARATED: dict[str, tuple[list[tuple[Status, Callable[..., object], tuple[Any, ...]]], str]] = {
    "memory format": (
        [
            (WRONG, POOL, (images(2, 3, 8, 8, last=True), 2)), (WRONG, POOL, (images(2, 5, 6, 6, last=True), 2)),
            (RIGHT, POOL, (images(2, 3, 8, 8), 2)), (RIGHT, POOL, (images(2, 5, 6, 6), 2)),
        ],
        "all 2 wrong cases, and none of 2 that pass: input is channels_last",
    ),
    "any but contiguous": (
        [
            (WRONG, NORM, (torch.zeros(6, 4).T, (6,))), (WRONG, NORM, (torch.zeros(4, 12)[:, ::2], (6,))),
            (RIGHT, NORM, (x, (6,))),
        ],
        "all 2 wrong cases, and none of 1 that passes: input is not contiguous",
    ),
    "dtype": (
        [(Status.SUSPECT, NORM, (x.half(), (6,))), (WRONG, NORM, (torch.zeros(2, 6).half(), (6,))), (RIGHT, NORM, (x, (6,)))],
        "none of 1 that passes: dtype float16",
    ),
    "absent argument": (
        [(WRONG, NORM, (x, (6,), w)), (WRONG, NORM, (x, (6,), w)), (RIGHT, NORM, (x, (6,), w, w))],
        "none of 1 that passes: bias=None",
    ),
    "scalar": (
        [(WRONG, NORM, (x, (6,), w, w, 0.5)), (WRONG, NORM, (x, (6,), w, w, 0.5)), (RIGHT, NORM, (x, (6,), w, w))],
        "none of 1 that passes: eps=0.5",
    ),
    "block": (
        [
            (WRONG, NORM, (torch.zeros(4, 65), (65,))), (WRONG, NORM, (torch.zeros(4, 130), (130,))),
            (RIGHT, NORM, (torch.zeros(4, 64), (64,))), (RIGHT, NORM, (torch.zeros(4, 128), (128,))),
        ],
        "none of 2 that pass: input.shape[-1] is not a multiple of 64",
    ),
    "width": (
        [
            (SLOW, NORM, (torch.zeros(4, 512), (512,))), (SLOW, NORM, (torch.zeros(4, 1024), (1024,))),
            (RIGHT, NORM, (torch.zeros(4, 64), (64,))), (RIGHT, NORM, (torch.zeros(4, 128), (128,))),
        ],
        "all 2 slow cases, and none of 2 that pass: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEPARATED)
def test_what_separates_is_told(make_evaluation: Make, name: str) -> None:
    """A trait of all failing cases, and of none that passes, by the name that a reader would give it."""
    cases, words = SEPARATED[name]
    (found,) = common_traits(report_of_calls(make_evaluation, cases))
    assert words in found.text
    if name == "width":
        assert "input.shape[-1] is 512 or more (those that pass: 128 or less)" in found.text


def test_what_does_not_separate_is_not_told(make_evaluation: Make) -> None:
    """One failing case, none that passes, a trait that a passing case has, other statuses: nothing is said."""
    last, first = images(2, 3, 8, 8, last=True), images(2, 3, 8, 8)
    for cases in (
        [(WRONG, POOL, (last, 2)), (RIGHT, POOL, (first, 2))],
        [(WRONG, POOL, (last, 2)), (WRONG, POOL, (last, 2))],
        [
            (WRONG, POOL, (last, 2)),
            (WRONG, POOL, (last, 2)),
            (RIGHT, POOL, (last, 2)),
            (RIGHT, POOL, (first, 2)),
        ],
        [(WRONG, POOL, (last, 2)), (WRONG, POOL, (first, 2)), (RIGHT, POOL, (last, 2))],
        [
            (Status.BUILD_ERROR, POOL, (last, 2)),
            (Status.BUILD_ERROR, POOL, (last, 2)),
            (RIGHT, POOL, (first, 2)),
        ],
        [(WRONG, POOL, (last, 2)), (WRONG, POOL, (last, 2)), (Status.SKIPPED, POOL, (first, 2))],
    ):
        assert common_traits(report_of_calls(make_evaluation, cases)) == ()


def test_a_time_that_the_noise_left_open_tells_no_slow_cases_apart(make_evaluation: Make) -> None:
    """It may be as slow as they are: a kernel that was slow everywhere was said to be slow for one shape."""
    slow = [(SLOW, NORM, (torch.zeros(rows, 6), (6,))) for rows in (3, 5)]
    unproven = [(Status.INCONCLUSIVE, NORM, (torch.zeros(64, 6), (6,)))]
    assert common_traits(report_of_calls(make_evaluation, [*slow, *unproven])) == ()
    (common,) = common_traits(
        report_of_calls(make_evaluation, [*slow, (RIGHT, NORM, (torch.zeros(64, 6), (6,)))])
    )
    assert "none of 1 that passes" in common.text


def test_reports_without_calls_say_nothing(make_evaluation: Make) -> None:
    """Those of before are read, and of their cases nothing is known."""
    statuses = (WRONG, WRONG, RIGHT)
    evaluations = [make_evaluation(status, signature=f"s{n}") for n, status in enumerate(statuses)]
    told = report_of(*evaluations)
    assert common_traits(told) == ()
    assert traits_of_case((), evaluations[0], several=False) == ""


def test_every_format_has_the_call_and_what_is_in_common(make_evaluation: Make) -> None:
    """Terminal, Markdown, the comment, HTML and JUnit: shapes, memory format, scalars, and the trait."""
    told = report_of_calls(make_evaluation, SEPARATED["memory format"][0])
    words = "all 2 wrong cases, and none of 2 that pass: input is channels_last"
    call = "torch.nn.functional.max_pool2d(input float32[2, 3, 8, 8] channels_last, kernel_size 2"
    shown = terminal.render(told, width=100, colour=False, verbosity=0)
    assert f"IN COMMON scale/cpp (cpu): {words}" in shown
    for text in (markdown.render(told), pull_request_comment.comment(told), junit.render(told)):
        assert words in text
        assert call in text
    html = page.render(told)
    assert words in html
    assert call in html
    assert call.replace("channels_last", "contiguous") in html, "of a case that passed"
