"""The words in which a run's builds are told."""

from __future__ import annotations

import pytest

from pytest_cgins.building.progress import Progress, joined

RUNNING = (("softmax/cuda", 3.4), ("scaled_dot_product_attention/cuda", 0.2))


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (110, "cgins: 7 of 25 kernels ready, building softmax/cuda 3 s, scaled_dot_product_attention/cuda 0 s"),
        (80, "cgins: 7 of 25 kernels ready, building softmax/cuda 3 s, 1 more"),
        (45, "cgins: 7 of 25 kernels ready, building 2"),
        (20, "cgins: 7 of 25 kerne"),
    ],
)  # fmt: skip
def test_the_line_fits(width: int, text: str) -> None:
    """As many of the running builds as fit are named, longest first."""
    assert Progress(cached=4, built=2, failed=1, waiting=16, running=RUNNING).line(width) == text


def test_one_kernel() -> None:
    """One is one kernel."""
    assert Progress(running=(("a/cpp", 0.0),)).line(80) == "cgins: 0 of 1 kernel ready, building a/cpp 0 s"
    assert Progress(failed=1).summary() == "cgins: 1 kernel: 1 failed"


def test_the_summary_says_where_the_time_went() -> None:
    """Wall time, and the sum over the builds, are told apart; what was not built is told."""
    whole = Progress(cached=21, built=4, seconds=6.26, compile_seconds=13.1)
    assert whole.summary() == "cgins: 25 kernels: 21 from the cache, 4 built in 6.3 s (13.1 s of compiling)"
    ended = Progress(built=1, failed=1, waiting=2, running=RUNNING[:1], seconds=1.0, compile_seconds=1.0)
    assert ended.summary() == "cgins: 5 kernels: 1 built in 1.0 s (1.0 s of compiling), 1 failed, 3 not built"
    assert Progress(cached=3).summary() == ""


def test_processes_with_the_same_kernels_are_one_run() -> None:
    """Two workers that built two and one of four kernels have built three; a refusal met twice is one."""
    sent = [
        Progress(built=2, cached=1, failed=1, seconds=3.0, compile_seconds=2.5),
        Progress(built=1, cached=2, failed=1, seconds=2.0, compile_seconds=1.5),
    ]
    found = joined([Progress(**one.numbers()) for one in sent])
    assert found == Progress(built=3, failed=1, seconds=3.0, compile_seconds=4.0)
    assert joined([]) == Progress()
