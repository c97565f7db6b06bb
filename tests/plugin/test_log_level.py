"""`--cgins-log-level`, `-vv` and `-vvv`: which messages are shown, and that they get past capture and xdist."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

# Stands for our own code: messages of a build and of a worker at each level.
TALKS = """
import logging

def test_talks():
    print("printed by the test")
    for area in ("building.build", "run.process"):
        logger = logging.getLogger("pytest_cgins." + area)
        for level in ("debug", "info", "warning", "error"):
            getattr(logger, level)("a message of level %s", level)
    logging.getLogger("elsewhere").error("not ours")
"""
MESSAGE = re.compile(
    r"cgins\.(?:building\.(build)|run\.(process)): (?:(?:warning|error): )?a message of level (\w+)"
)


def shown(text: str) -> set[tuple[str, str]]:
    """`{("build", "info"), …}`: the messages in an output, each at the start of its line and once."""
    lines = [line for line in text.splitlines() if "a message of level" in line]
    found = [MESSAGE.fullmatch(line) for line in lines]
    assert all(found), text
    assert len(set(lines)) == len(lines), text
    return {(one[1] or one[2], one[3]) for one in found if one}


def both(*levels: str) -> set[tuple[str, str]]:
    return {(area, level) for area in ("build", "process") for level in levels}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], both("warning", "error")),
        (["-v"], both("warning", "error")),
        (["-vv"], both("warning", "error") | {("build", "info")}),
        (["-vvv"], both("debug", "info", "warning", "error")),
        (["--cgins-log-level=error"], both("error")),
        (["--cgins-log-level=info", "-q"], both("info", "warning", "error")),
        (["--cgins-log-level=debug"], both("debug", "info", "warning", "error")),
        (["--cgins-log-level=error", "-vv"], both("error") | {("build", "info"), ("build", "warning")}),
        (["--cgins-log-level=error", "--log-level=DEBUG"], both("error")),
        (["--cgins-log-level=debug", "-p", "no:logging"], both("debug", "info", "warning", "error")),
    ],
)
def test_levels(pytester: pytest.Pytester, options: list[str], expected: set[tuple[str, str]]) -> None:
    """Each level lets through what is at least as grave; -vv adds what builds say, -vvv everything."""
    pytester.makepyfile(TALKS)
    before = logging.getLogger("pytest_cgins").level
    text = pytester.runpytest_inprocess("--cgins", *options).stdout.str()
    assert "1 passed" in text
    assert shown(text) == expected
    assert "printed by the test" not in text
    assert "not ours" not in text
    assert logging.getLogger("pytest_cgins").level == before


@pytest.mark.parametrize("options", [["-s"], ["--capture=sys"]])
def test_every_kind_of_capture(pytester: pytest.Pytester, options: list[str]) -> None:
    """Messages come out once, however output is captured."""
    pytester.makepyfile(TALKS.replace("print(", "str("))
    text = pytester.runpytest_inprocess("--cgins", "--cgins-log-level=info", *options).stdout.str()
    assert shown(text) == both("info", "warning", "error")


@pytest.mark.exam
def test_messages_of_xdist_workers(pytester: pytest.Pytester) -> None:
    """Messages of a process of -n come out on the controller's stderr, whenever they are said."""
    pytester.makeconftest(
        "import logging, pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_sessionfinish(session):\n"
        "    if hasattr(session.config, 'workerinput'):\n"
        "        logging.getLogger('pytest_cgins.run.process').error('a message of level last')\n"
    )
    pytester.makepyfile(TALKS)
    result = pytester.runpytest_subprocess("--cgins", "--cgins-log-level=info", "-n", "1")
    result.assert_outcomes(passed=1)
    assert shown(result.stderr.str()) == both("info", "warning", "error") | {("process", "last")}
    assert not shown(result.stdout.str())


def test_pytest_s_own_live_log_is_not_doubled(pytester: pytest.Pytester) -> None:
    """With log_cli pytest shows the messages, in its format, and we do not show them again."""
    pytester.makepyfile(TALKS)
    result = pytester.runpytest_inprocess("--cgins", "--cgins-log-level=info", "-o", "log_cli=true")
    lines = [line for line in result.outlines if "a message of level info" in line]
    assert len(lines) == 2
    assert all("INFO" in line for line in lines)


def test_messages_are_in_the_report_of_a_failure(pytester: pytest.Pytester) -> None:
    """A failing test's section "Captured log" has what was asked for, for --junitxml and for scrolling back."""
    pytester.makepyfile(TALKS + "    assert False\n")
    text = pytester.runpytest_inprocess("--cgins", "--cgins-log-level=info").stdout.str()
    captured = text.partition("Captured log call")[2]
    assert "INFO     pytest_cgins.run.process" in captured
    assert "DEBUG" not in captured


def test_unknown_level_is_a_usage_error(pytester: pytest.Pytester) -> None:
    """Exit 4, with the levels that there are."""
    result = pytester.runpytest_inprocess("--cgins", "--cgins-log-level=loud")
    assert result.ret == 4
    assert "debug, info, warning, error" in result.stderr.str().replace("'", "")


@pytest.mark.exam
def test_what_a_run_says(project: Path, run: Callable[..., Run]) -> None:
    """-vvv shows compilers' command lines, requests with sizes and times, and verdicts; never what travels."""
    found = run(project, "--cgins", "--cgins-no-timing", "-vvv", "-k", "relu and right and 4x8")
    assert found.code == 0, found.out
    traffic = [line.split(": ", 1)[1] for line in found.lines if line.startswith("cgins.run.process: ")]
    for pattern in (
        r"verification: process \d+ started for pytest_cgins\.run\.verification_service:VerificationService",
        r"verification: <- run\([\w, ]*kernel[\w, ]*\), \d+ buffers of [\d +.]+ bytes",
        r"verification: -> run: result, \d+ buffers of [\d +.]+ bytes after \d+\.\d ms",
        r"verification: process \d+ ended: -?\d+",
    ):
        assert any(re.fullmatch(pattern, line) for line in traffic), (pattern, traffic)
    grammar = re.compile(
        r"\S+: (process \d+ (started for \S+|ended: \S+)|<- \w+\([\w, ]*\)(, .* bytes)?|-> \w+: \S+.* after [\d.]+ ms)"
    )
    assert all(grammar.fullmatch(line) for line in traffic), traffic
    said = ("cgins.building.build: relu/right: ", "cgins.building.compilers.process: relu/right: ")
    built = [line for line in found.lines if line.startswith(said)]
    assert any(
        re.search(r": (cached, once )?done in \d+\.\d\d s: .*g\+\+ .*relu\.cpp", line) for line in built
    ), built
    (verdict,) = [line for line in found.lines if line.startswith("cgins.gate.evaluate: ")]
    assert re.search(
        r"relu/cpu-right/tiny/\S+: PASSED \(ok\) in \d+\.\d\d s, error_share_of_tolerance", verdict
    )
