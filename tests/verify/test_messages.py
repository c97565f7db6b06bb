"""What passes for a message of a worker."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.verify.judge import JudgeService
from pytest_cgins.verify.messages import KernelAnswers, RaisedError, read

SET = {"name": "7", "tensors": {"metas": [], "spans": []}}


@pytest.mark.parametrize(
    "told",
    [
        5,
        None,
        [],
        {},
        {"sets": 5},
        {"sets": [5]},
        {"sets": [{"name": 7, "tensors": {}}]},
        {"sets": [{"name": "7"}]},
        {"sets": [{**SET, "devices": "cpu"}]},
        {"sets": [{**SET, "inputs_changed": ["0"]}]},
        {"sets": [{**SET, "overrun": True}]},
        {"sets": [{**SET, "error": "tired"}]},
        {"sets": [{**SET, "error": {"kind": "E", "message": "tired", "phase": "asleep"}}]},
        {"sets": [{**SET, "error": {"kind": "E", "message": "x" * 2**18}}]},
        {"sets": [SET], "deviations": [SET]},
        {"sets": [SET], "observed": []},
        {"sets": [SET], "more": 1},
        {"sets": [SET], "x" * 10**6: 1},
    ],
    ids=lambda told: str(told)[:60].strip(),
)
def test_what_is_no_answer_is_refused_in_few_words(told: Any) -> None:
    """Of any type, length or depth; what was sent does not fill the report."""
    with pytest.raises(ValueError, match="KernelAnswers") as refused:
        read(KernelAnswers, told)
    assert len(str(refused.value)) < 1000


def test_what_is_nested_too_deep_is_refused() -> None:
    """And does not end pytest's own process."""
    told: Any = []
    for _ in range(3000):
        told = [told]
    with pytest.raises(ValueError, match="KernelAnswers"):
        read(KernelAnswers, {"sets": [], "observed": {"integrity": told}})


def test_a_kernel_s_words_need_not_be_text() -> None:
    """Bytes that are no characters are spelled out, so that they can be written again."""
    error = read(RaisedError, {"kind": "E", "message": "\udcff"})
    assert read(RaisedError, {"kind": "E", "message": error.message}) == error
    error.message.encode()


def test_a_service_says_what_was_wrong_with_its_request() -> None:
    """By the method's name and the field."""
    with pytest.raises(ProtocolError, match=r"'prepare' was asked is malformed: CaseRequest case\.kernel"):
        JudgeService().prepare({"case": {}, "tolerance": {}, "seed": "one"}, [])
