"""The terminal section."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest
from reports import report_of

from pytest_cgins.core import documents
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.report import markdown, terminal

Make = Callable[..., Evaluation]


def rendered(
    evaluations: list[Evaluation],
    *,
    width: int = 100,
    colour: bool = False,
    verbosity: int = 0,
    strict: bool = False,
) -> str:
    report = report_of(*evaluations, strict=strict)
    return terminal.render(report, width=width, colour=colour, verbosity=verbosity)


def test_table_numbers_are_those_of_the_document(make_evaluation: Make) -> None:
    """Cases, worst error and speeds that the table shows can be computed from the JSON alone."""
    evaluations = [
        make_evaluation(signature=f"s{i}", share=0.1 + i / 7, times_ns=(1000.0, 900.0 + 350 * i))
        for i in range(5)
    ]
    data = json.loads(documents.dump(report_of(*evaluations)))["evaluations"]
    (line,) = [line for line in rendered(evaluations).splitlines() if line.startswith("scale")]
    found = re.fullmatch(
        r"scale +cpp \(cpu\) +(\d+) +(\d+) PASSED +([\d.]+) +([\d.]+)x \(([\d.]+?)\.\.([\d.]+)\) *", line
    )
    assert found is not None, line
    speeds = [one["measurement"]["speedup_vs_torch"] for one in data]
    shares = [check["share"] for one in data for check in one["correctness"]["checks"]]
    assert [int(found[1]), int(found[2])] == [5, 5]
    shown = [float(found[i]) for i in (3, 4, 5, 6)]
    assert shown == pytest.approx([max(shares), median(speeds), min(speeds), max(speeds)], rel=0.005)


def test_speeds_over_torch_compile_have_a_column_where_there_are_any(make_evaluation: Make) -> None:
    """Median and extremes as of those over torch; a kernel that was not compiled for torch has none."""
    cases = [make_evaluation(kernel=kernel, signature=name) for kernel in ("a", "b") for name in "123"]
    assert "compile" not in rendered(cases)
    for index, speed in enumerate((0.5, 1.25, 2.0)):
        timing = cases[index].measurement
        assert timing is not None
        cases[index] = replace(cases[index], measurement=replace(timing, speedup_vs_compile=speed))
    heading, first, second, *_ = rendered(cases, width=120).splitlines()
    column = heading.index("speed vs compile (>1 faster)")
    assert first[column:].split("  ")[0].strip() == "1.25x (0.5..2)"
    assert second[column:].split("  ")[0].strip() == "-"
    page = markdown.render(report_of(*cases))
    assert "speed vs torch.compile (>1 faster)" in page[: page.index("### Times")]
    narrow = rendered(cases, width=75)
    assert max(map(len, narrow[: narrow.index("seed")].splitlines())) <= 75


@pytest.mark.parametrize("width", [72, 80, 200])
def test_no_line_of_the_table_is_wider_than_the_terminal(make_evaluation: Make, width: int) -> None:
    """Long names are folded so that the table fits."""
    evaluation = make_evaluation(kernel="a_kernel_with_quite_a_long_name_indeed")
    text = rendered([evaluation], width=width)
    assert all(len(line) <= width for line in text[: text.index("seed")].splitlines())


@pytest.mark.parametrize("colour", [False, True])
def test_eighty_columns_break_no_word(make_evaluation: Make, colour: bool) -> None:
    """At 80 columns a kernel with every kind of status and wide numbers fits, and each word stands whole."""
    statuses = (Status.PASSED, Status.INCORRECT, Status.SKIPPED, Status.WEAK)
    evaluations = [
        make_evaluation(
            status, kernel=kernel, implementation=name, device="cuda", share=2.3e-05, times_ns=times
        )
        for kernel in ("layer_norm", "attention")
        for name in ("triton", "cuda")
        for status, times in zip(
            statuses, ((1.0, 0.0123), (1.0, 98.7), (1.0, 1.0), (1.0, 0.987)), strict=True
        )
    ]
    text = re.sub(r"\x1b\[\d*m", "", rendered(evaluations, width=80, colour=colour, verbosity=-1))
    table = text[: text.index("NOT GATED" if "NOT GATED" in text else "SKIPPED 4")].splitlines()
    assert max(map(len, table)) <= 80, text
    words = set(" ".join(table).split())
    assert {"layer_norm", "attention", "triton", "cuda", "(cuda)", "implementation"} <= words, text
    assert {"PASSED", "INCORRECT,", "SKIPPED,", "2.3e-05", "0.987x", "(0.0123..98.7)"} <= words, text


def test_wide_terminal_breaks_nothing(make_evaluation: Make) -> None:
    """Where there is room, a kernel has one line, and the table is no wider than its content."""
    evaluations = [make_evaluation(), make_evaluation(Status.TIMEOUT, signature="b")]
    (line,) = [line for line in rendered(evaluations, width=200).splitlines() if line.startswith("scale")]
    assert "1 TIMEOUT, 1 PASSED" in line
    assert len(line) < 100


def test_names_of_implementations_break_before_those_of_kernels(make_evaluation: Make) -> None:
    """At 80 columns a long implementation name beside RUNTIME_ERROR is broken after its dash, the kernel's stays."""
    evaluations = [
        make_evaluation(
            status,
            kernel="max_pool2d_bwd",
            implementation="interpreted-triton",
            device="cuda",
            times_ns=times,
        )
        for status, times in ((Status.RUNTIME_ERROR, (1.0, 0.0123)), (Status.PASSED, (1.0, 98.7)))
    ]
    text = rendered(evaluations, width=80, verbosity=-1)
    lines = text[text.index("max_pool2d_bwd") : text.index("seed")].splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["max_pool2d_bwd", "interpreted-"],
        ["triton", "1"],
        ["(cuda)"],
    ]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("width", [72, 80])
def test_long_kernel_names_break_after_an_underscore(make_evaluation: Make, width: int) -> None:
    """A name that does not fit is continued below, and none of its words is cut."""
    name = "fused_residual_layer_norm_with_dropout"
    evaluations = [
        make_evaluation(kernel=name, implementation="interpreted", times_ns=times)
        for times in ((1.0, 12345.0), (1.0, 0.0123))
    ]
    lines = rendered(evaluations, width=width, verbosity=-1).splitlines()
    (end,) = [i for i, line in enumerate(lines) if line.startswith("seed")]
    pieces = [line.split(" ")[0] for line in lines[1:end] if not line.startswith(" ")]
    pieces = [piece for piece in pieces if piece not in ("", "kernel")]
    assert "".join(pieces) == name
    assert all(piece.endswith("_") for piece in pieces[:-1])


@pytest.mark.parametrize("width", [20, 72])
def test_numbers_are_never_cut(make_evaluation: Make, width: int) -> None:
    """However narrow the terminal, each number stands whole on one line."""
    evaluations = [
        make_evaluation(kernel="a_kernel_with_quite_a_long_name_indeed", share=0.000123, times_ns=times)
        for times in ((1.0, 123456.0), (1.0, 0.000234))
    ]
    words = rendered(evaluations, width=width).split()
    assert {"0.000123", "(0.000234..123456)"} <= set(words)


def test_notes_are_counted(make_evaluation: Make) -> None:
    """What checks and timings want known stands once, with the number of its cases."""
    one, two = make_evaluation(signature="a"), make_evaluation(signature="b")
    noted = replace(one.measurement, notes=("timed by events",))
    weaker = replace(one.correctness, notes=("no gold",))
    text = rendered(
        [replace(one, measurement=noted, correctness=weaker), replace(two, measurement=noted)], width=90
    )
    assert "note, 2 cases: timed by events\n" in text
    assert "note, 1 case: no gold\n" in text


def test_plain_text_has_neither_colour_nor_drawing(make_evaluation: Make) -> None:
    """A CI log gets ASCII and no escape codes; a terminal gets colours."""
    assert rendered([make_evaluation()]).isascii()
    assert "\x1b[" not in rendered([make_evaluation()])
    assert "\x1b[" in rendered([make_evaluation()], colour=True)


def test_failures_are_listed_worst_first(make_evaluation: Make) -> None:
    """Each failure has a line with status, name and reason, those farthest out first."""
    text = rendered(
        [
            make_evaluation(Status.INCORRECT, signature="near", reason=Reason.GOLD_MISMATCH, share=2.0),
            make_evaluation(
                Status.INCORRECT,
                signature="far",
                reason=Reason.SHAPE,
                share=9.0,
                message="(2, 3) for (3, 2)\nmore",
            ),
        ]
    )
    lines = [line for line in text.splitlines() if line.startswith("INCORRECT")]
    assert lines == [
        "INCORRECT scale/cpu-cpp/tiny/far (shape): (2, 3) for (3, 2)",
        "INCORRECT scale/cpu-cpp/tiny/near (gold-mismatch)",
    ]


def test_weak_and_skipped_lines(make_evaluation: Make) -> None:
    """A weak case names the forgery that passed; skips are counted by reason; the seed is told."""
    text = rendered(
        [
            make_evaluation(Status.WEAK, accepted=("zeros",), build_seconds=1.5),
            make_evaluation(Status.SKIPPED, signature="b", message="no cuda device on this machine"),
            make_evaluation(Status.SKIPPED, signature="c", message="no cuda device on this machine"),
        ]
    )
    assert "WEAK scale/cpu-cpp/tiny/f32-2x3-0001: zeros would pass too\n" in text
    assert "SKIPPED 2 cases: no cuda device on this machine\n" in text
    assert text.endswith(
        "seed 7 (--cgins-seed=7 repeats the fresh inputs); builds took 1.5 s in total, in parallel\n"
    )


@pytest.mark.parametrize(("strict", "code"), [(False, 33), (True, 31)])
def test_kernel_that_nothing_gates_has_a_line(make_evaluation: Make, strict: bool, code: int) -> None:
    """A kernel whose contract covers no case is named with the reason: in yellow, in red under --cgins-strict."""
    evaluations = [
        make_evaluation(Status.SKIPPED, signature=one, reason=Reason.CONTRACT, message="takes no bias")
        for one in ("a", "b")
    ]
    line = "NOT GATED scale/cpp: its contract covers none of its 2 cases: takes no bias"
    assert f"{line}\n" in rendered(evaluations, strict=strict, verbosity=-1)
    assert f"\x1b[{code}m{line}" in rendered(evaluations, strict=strict, colour=True)
    assert "none of its 1 case: " in rendered(evaluations[:1])


def test_strict_lists_weak_as_failures(make_evaluation: Make) -> None:
    """Under --cgins-strict a weak case is listed once, among the failures."""
    text = rendered([make_evaluation(Status.WEAK, reason=Reason.NO_POWER, message="why")], strict=True)
    assert "WEAK scale/cpu-cpp/tiny/f32-2x3-0001 (no-power): why" in text
    assert "would pass too" not in text


def test_long_lists_are_cut_and_say_so(make_evaluation: Make) -> None:
    """Beyond twenty causes the rest is a count; -v lists all, -q none."""
    evaluations = [
        make_evaluation(Status.TIMEOUT, signature=f"s{i:02}", message=f"in {'abcdefghijklmnopqrstuvwxyz'[i]}")
        for i in range(23)
    ]
    assert rendered(evaluations).count("TIMEOUT scale") == 20
    assert "... 3 more causes of failures: -v lists them all" in rendered(evaluations)
    assert rendered(evaluations, verbosity=1).count("\nTIMEOUT scale") == 23
    assert "TIMEOUT scale" not in rendered(evaluations, verbosity=-1)
    assert "23 TIMEOUT" in rendered(evaluations, verbosity=-1)


def test_verbose_has_a_line_a_case(make_evaluation: Make) -> None:
    """-v shows each case's error, both times in fitting units, and its speed."""
    text = rendered([make_evaluation(share=0.5, times_ns=(1145.0, 2290.0))], verbosity=1)
    (line,) = [line for line in text.splitlines() if line.startswith("scale/cpu-cpp/tiny/")]
    assert line.split() == [
        "scale/cpu-cpp/tiny/f32-2x3-0001",
        "PASSED",
        "0.5",
        "1.15",
        "us",
        "2.29",
        "us",
        "2x",
    ]


def test_case_names_are_never_folded(make_evaluation: Make) -> None:
    """A name in the -v table can be copied, however narrow the terminal."""
    name = make_evaluation(signature="f32-" + "128x" * 30 + "1").case.name
    assert name in rendered([make_evaluation(signature="f32-" + "128x" * 30 + "1")], width=40, verbosity=1)


def test_nothing_measured_is_a_dash(make_evaluation: Make) -> None:
    """A kernel that never ran has no numbers, not zeros."""
    text = rendered([make_evaluation(Status.BUILD_ERROR)], verbosity=1)
    assert re.search(r"^scale +cpp \(cpu\) +1 +1 BUILD_ERROR +- +- *$", text, re.MULTILINE)
    assert re.search(r"^scale/cpu-cpp\S+ +BUILD_ERROR +- +- +- +- *$", text, re.MULTILINE)


def test_names_are_not_markup(make_evaluation: Make) -> None:
    """Brackets in a message are shown as they are."""
    text = rendered([make_evaluation(Status.TIMEOUT, message="index [bold] :smile: [/x]")])
    assert "index [bold] :smile: [/x]" in text


@pytest.mark.parametrize("colour", [False, True])
def test_lines_of_a_message_are_indented_and_obeyed_by_nobody(make_evaluation: Make, colour: bool) -> None:
    """In pytest's section too, a message's escape codes are spelled out, with the styles of ours where they were."""
    bad = "bad \x1b[31m\u2028::error::forged"
    evaluations = [
        make_evaluation(Status.INCORRECT, reason=Reason.SHAPE, message=bad),
        make_evaluation(Status.SKIPPED, signature="b", message="why\n::add-mask::a\n\u2192 do it"),
    ]
    text = rendered(evaluations, colour=colour)
    said = "INCORRECT scale/cpu-cpp/tiny/f32-2x3-0001 (shape): bad \\u001b[31m\\u2028::error::forged"
    lines = re.sub(r"\x1b\[[\d;]*m", "", text).split("\n")
    assert said in lines
    first = lines.index("SKIPPED 1 case: why")
    assert lines[first + 1 : first + 3] == ["  \\u003a:add-mask::a", "  \u2192 do it"]
    if colour:
        assert "\x1b[31mINCORRECT scale" in text
