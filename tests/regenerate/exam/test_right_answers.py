"""Answers that are right, in all the dresses that models give them: each becomes a kernel, and is accepted.

One run of pytest has a kernel for each; all have the same mistake in the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_cgins.regenerate.answers import read
from tests.regenerate import answers
from tests.regenerate.exam import projects, right_kernels
from tests.regenerate.exam.answers import collect
from tests.regenerate.llm_server import LlmServer, Reply

RIGHT = {answer.name: answer for answer in collect("right")}
OP = "torch.nn.functional.relu"


def _answer(asked: Any) -> Reply:
    """What the server says: the answer that is for the file which the prompt asks for."""
    found = re.search(r"You may write `native/(\w+)\.cpp`", asked["messages"][-1]["content"])
    assert found is not None
    return RIGHT[found[1]].reply()


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[projects.RunResult]:
    """All right answers, one for each kernel."""
    folder = tmp_path_factory.mktemp("exam") / "project"
    projects.record(folder, OP)
    files = {f"native/{name}.cpp": right_kernels.BROKEN_RELU for name in RIGHT}
    kernels = {name: {"op": OP, "source": f"native/{name}.cpp"} for name in RIGHT}
    with LlmServer(_answer) as server:
        projects.make(folder, kernels, files, base_url=server.base_url, attempts=1)
        yield projects.regenerate(folder, "--cgins-no-timing")


def test_the_exam_is_whole() -> None:
    """It has as many dresses as it is to have."""
    assert len({answer.text for answer in RIGHT.values()}) >= 15


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_answer_is_read(name: str) -> None:
    """Its source comes out of the dress as it was meant."""
    path = f"native/{name}.cpp"
    answer = answers.answer(RIGHT[name].text)
    assert _bare(read(answer, {path: right_kernels.BROKEN_RELU}).files[path]) == right_kernels.RELU


@pytest.mark.exam
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_answer_is_accepted(ran: projects.RunResult, name: str) -> None:
    """The first answer is the kernel: it passes check and acceptance, and its source has nothing of the dress."""
    (attempt,) = ran.attempts(name)
    assert attempt.outcome == "accepted", f"{RIGHT[name].title}: {attempt.reason}: {attempt.message}"
    assert [trial.stage for trial in attempt.trials] == ["check", "acceptance"]
    source = ran.journal.sources(ran.target(name), 1)[f"native/{name}.cpp"]
    assert _bare(source) == right_kernels.RELU


def _bare(source: str) -> str:
    """A source without the comment that one of them has."""
    return re.sub(r"/\*.*?\*/\n+", "", source, flags=re.DOTALL)
