"""A report as commands of GitHub's runner: where they point, how many there are, and that no text of a report is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.app.cli import main
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Status
from pytest_cgins.pull_request.annotations import LIMIT, Annotation, annotate, commands
from pytest_cgins.report import document
from tests.evaluations import make_evaluation
from tests.regenerate import proposals

CONFIG = """\
version: 1
traces: []
kernels:
  scale:
    op: torch.nn.functional.gelu
    implementations:
      - {name: cpp, device: cpu, source: kernels/scale.cpp}
      - {name: py, device: cpu, contract: python, target: "kernels.scale:scale"}
      - {name: gone, device: cpu, source: kernels/gone.cpp}
      - {name: outside, device: cpu, source: ../../outside.cpp}
"""


def report(*evaluations: Evaluation, strict: bool = False) -> SessionReport:
    return replace(proposals.accepted(*evaluations), strict=strict)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout whose project lies in `my project`."""
    project = tmp_path / "checkout" / "my project"
    (project / "kernels").mkdir(parents=True)
    (project / "cgins.yaml").write_text(CONFIG)
    (project / "kernels" / "scale.cpp").write_text("// a comment\n\n// cgins: scale(Tensor x) -> Tensor\n")
    (project / "kernels" / "scale.py").write_text("import torch\n\n\ndef scale(x):\n    return x\n")
    (tmp_path / "outside.cpp").write_text("// cgins: secret(Tensor x) -> Tensor\n")
    return tmp_path / "checkout"


def places(root: Path, *evaluations: Evaluation) -> list[tuple[str, int]]:
    found = annotate(report(*evaluations), folder=root / "my project", root=root)
    return [(one.path, one.line) for one in found]


def test_each_implementation_is_annotated_where_it_begins(root: Path) -> None:
    """A launcher at its schema line, a Python kernel at its function, one without a source at its entry."""
    for name, place in (
        ("cpp", ("my project/kernels/scale.cpp", 3)),
        ("py", ("my project/kernels/scale.py", 4)),
        ("gone", ("my project/cgins.yaml", 9)),
        ("unknown", ("my project/cgins.yaml", 1)),
    ):
        one = make_evaluation(Status.INCORRECT, kernel="scale", implementation=name)
        assert places(root, one) == [place]


def test_compilers_line_is_annotated(root: Path) -> None:
    """Where a compiler names a line of the source, that is the line; a line of another file is not taken."""
    message = "scale.cpp:17:4: error: expected ';'\nother.h:3: note"
    one = make_evaluation(Status.BUILD_ERROR, kernel="scale", implementation="cpp", message=message)
    assert places(root, one) == [("my project/kernels/scale.cpp", 17)]
    one = make_evaluation(
        Status.BUILD_ERROR, kernel="scale", implementation="cpp", message="other.h:17: error"
    )
    assert places(root, one) == [("my project/kernels/scale.cpp", 3)]


def test_nothing_outside_of_the_checkout_is_named(root: Path) -> None:
    """A source that lies elsewhere is annotated at its entry; a report's own path cannot leave the checkout."""
    one = make_evaluation(Status.INCORRECT, kernel="scale", implementation="outside")
    assert places(root, one) == [("my project/cgins.yaml", 10)]
    far = annotate(report(one), folder=root / "..", root=root)
    assert [(found.path, "file=" in found.command()) for found in far] == [("", False)]


def test_worst_is_first_and_cases_are_counted(root: Path) -> None:
    """One annotation an implementation, with its worst case; slower ones come after wrong ones, weak ones are warnings."""
    cases = [
        make_evaluation(Status.WEAK, kernel="scale", implementation="py"),
        make_evaluation(Status.SLOWER, kernel="scale", implementation="gone"),
        make_evaluation(Status.SLOWER, kernel="scale", implementation="cpp"),
        make_evaluation(Status.INCORRECT, kernel="scale", implementation="cpp", signature="worst"),
        make_evaluation(Status.PASSED, kernel="scale", implementation="outside"),
    ]
    found = annotate(report(*cases), folder=root / "my project", root=root)
    assert [(one.level, one.title) for one in found] == [
        ("error", "cgins: scale/cpp INCORRECT"),
        ("error", "cgins: scale/gone SLOWER"),
        ("warning", "cgins: scale/py WEAK"),
    ]
    assert "worst" in found[0].text.partition(":")[0]
    assert found[0].text.endswith("and 1 more of this implementation")
    strict = annotate(report(*cases, strict=True), folder=root / "my project", root=root)
    assert {one.level for one in strict} == {"error"}


def test_no_more_than_github_shows(root: Path) -> None:
    """Ten of a level are shown; of more, nine, and how many are left out."""
    for count, more in ((LIMIT, ""), (LIMIT + 5, "6 more implementations")):
        cases = [make_evaluation(Status.INCORRECT, kernel=f"k{number}") for number in range(count)]
        lines = commands(annotate(report(*cases), folder=root, root=root)).splitlines()
        assert len(lines) == LIMIT
        assert more in lines[-1]


@given(texts=st.tuples(*[st.text(max_size=60)] * 3))
def test_no_text_is_a_command_of_its_own(texts: tuple[str, str, str]) -> None:
    """Whatever names and messages say, an annotation is one line, and its properties end where they should."""
    path, title, text = texts
    line = Annotation(level="error", path=path, line=3, title=title, text=text).command()
    assert len(line.splitlines()) == 1
    properties, end, _ = line.removeprefix("::error ").partition("::")
    assert end
    assert len(properties.split(",")) == (3 if path else 1)


def test_command_prints_them(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`cgins annotate` reads a report and prints its commands; a file that is not a report is exit 2, and no command."""
    hostile = make_evaluation(
        Status.INCORRECT, kernel="scale", implementation="cpp", message="x\n::error::forged"
    )
    document.write(report(hostile), root / "report.json")
    options = ["annotate", "--folder", str(root / "my project"), "--root", str(root)]
    assert main([*options, str(root / "report.json")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "::error file=my project/kernels/scale.cpp,line=3,title=cgins%3A scale/cpp INCORRECT::"
    )
    (root / "report.json").write_text("::error::forged")
    assert main([*options, str(root / "report.json")]) == 2
    assert capsys.readouterr().out == ""
