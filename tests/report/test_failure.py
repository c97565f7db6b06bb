"""The message of one failed case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status, WorstElement
from pytest_cgins.report import failure

Make = Callable[..., Evaluation]


def test_message_has_all_a_person_needs(make_evaluation: Make) -> None:
    """Status, reason, place, both values, tolerance, map, output and the command to see it again."""
    evaluation = make_evaluation(
        Status.INCORRECT,
        reason=Reason.REFERENCE_MISMATCH,
        message="2 of 6 elements are wrong",
        share=12.5,
        worst=WorstElement(output=0, index=(1, 2), expected="0.5", got="nan", tolerance=1.25e-6),
        picture="row 1 |..X|",
        output="a line of the kernel\n",
    )
    text = failure.message(evaluation, command="pytest --cgins --cgins-seed=7 cgins.yaml::scale")
    assert text.startswith("INCORRECT (reference-mismatch): 2 of 6 elements are wrong\n")
    for part in (
        "reference rule on fresh inputs: reference-mismatch; 2 of 6 elements wrong, error 12.5 times the tolerance",
        "output 0 at [1, 2]",
        "expected 0.5",
        "got      nan",
        "allowed  ±1.25e-06",
        "row 1 |..X|",
        "  | a line of the kernel",
        "call    torch.nn.functional.gelu",
        "again   pytest --cgins --cgins-seed=7 cgins.yaml::scale",
    ):
        assert part in text
    assert text.count("2 of 6 elements are wrong") == 1


def test_only_the_first_failed_check_is_shown_at_length(make_evaluation: Make) -> None:
    """Further failed checks are a line each: their maps would repeat the first."""
    evaluation = make_evaluation(Status.INCORRECT, reason=Reason.SHAPE, picture="the map")
    assert evaluation.correctness is not None
    (check,) = evaluation.correctness.checks
    twice = replace(evaluation.correctness, checks=(check, replace(check, inputs="edge")))
    text = failure.message(replace(evaluation, correctness=twice), command="-")
    assert text.count("the map") == 1
    assert "reference rule on fresh inputs: shape;" in text
    assert "reference rule on edge inputs: shape;" in text


def test_message_of_a_case_that_never_ran(make_evaluation: Make) -> None:
    """Without a comparison the message is the verdict's, all lines of it, once."""
    evaluation = make_evaluation(
        Status.BUILD_ERROR, reason=Reason.COMPILER, message="g++ refused scale.cpp\nscale.cpp:3: error: x"
    )
    text = failure.message(evaluation, command="again please")
    assert text.startswith("BUILD_ERROR (compiler): g++ refused scale.cpp\n\nscale.cpp:3: error: x\n")
    assert text.count("scale.cpp:3") == 1


def test_long_output_is_quoted_from_its_end(make_evaluation: Make) -> None:
    """The last lines are shown, and how many are not."""
    output = "\n".join(f"line {number}" for number in range(100))
    text = failure.message(make_evaluation(Status.TIMEOUT, output=output), command="-")
    assert "… 60 earlier lines" in text
    assert "| line 60\n" in text
    assert "| line 99\n" in text
    assert "| line 59\n" not in text


def test_compiler_errors_stand_once(make_evaluation: Make) -> None:
    """The message has the first errors and the path of the log: the log is not quoted below them."""
    log = "/full/path/scale.cpp:3: error: x\n"
    message = "g++ refused scale.cpp\nscale.cpp:3: error: x"
    evaluation = make_evaluation(
        Status.BUILD_ERROR, reason=Reason.COMPILER, message=message, output=log, picture=""
    )
    assert failure.message(evaluation, command="-").count("scale.cpp:3: error: x") == 1


def test_output_that_the_message_has_is_not_repeated(make_evaluation: Make) -> None:
    """A traceback that is the verdict's message already is no output besides."""
    trace = "Traceback:\n  here\n"
    evaluation = make_evaluation(
        Status.RUNTIME_ERROR, reason=Reason.RAISED, message=f"it raised\n{trace}", output=trace
    )
    assert failure.message(evaluation, command="-").count("Traceback") == 1


def test_long_lines_of_output_are_cut(make_evaluation: Make) -> None:
    """The list of extension modules after a crash is one line, and says how much of it is not shown."""
    line = "Extension modules: " + "numpy.core, " * 200
    evaluation = make_evaluation(Status.RUNTIME_ERROR, reason=Reason.CRASHED, output=f"first\n{line}\nlast")
    quoted = [one for one in failure.message(evaluation, command="-").splitlines() if "  | " in one]
    assert [quoted[0], quoted[2]] == ["  | first", "  | last"]
    assert quoted[1] == f"  | {line[:200]} ... ({len(line) - 200} more characters)"


def test_headline_is_one_line(make_evaluation: Make) -> None:
    """The short summary of pytest shows one line: it ends before the details begin."""
    evaluation = make_evaluation(Status.TIMEOUT, reason=Reason.TIMED_OUT, message="too late\ndetails")
    assert failure.headline(evaluation) == "TIMEOUT (timed-out): too late"
    assert failure.headline(make_evaluation()) == "PASSED (ok)"
