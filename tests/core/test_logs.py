"""Which messages the command `cgins` lets through, and how they read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.app import cli
from pytest_cgins.core import logs

SOURCE = """\
// cgins: same(Tensor x) -> Tensor
#include <cgins.h>
extern "C" int same(const DLTensor*, DLTensor*, cgins_stream) { return 0; }
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one kernel, and loggers that must be left as they were."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "same.cpp").write_text(SOURCE)
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\nkernels:\n  same: {op: torch.clone, source: same.cpp}\n"
    )
    package = logging.getLogger("pytest_cgins")
    before = package.level, list(package.handlers)
    yield tmp_path
    assert (package.level, package.handlers) == before


def _of_the_kernel(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Without the questions to a compiler that this process has not asked yet."""
    return [line for line in capsys.readouterr().err.splitlines() if "same/cpp" in line]


def test_build_tells_its_commands(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """-v shows each compiler's command with its time on stderr, and from the cache what once made it."""
    assert cli.main(["build", "-v"]) == 0
    (line,) = _of_the_kernel(capsys)
    assert line.startswith("cgins.building.compilers.process: same/cpp: done in ")
    assert "same.cpp" in line
    assert cli.main(["build", "-v"]) == 0
    (line,) = _of_the_kernel(capsys)
    assert line.startswith("cgins.building.build: same/cpp: cached, once done in ")
    assert "same.cpp" in line


def test_failed_command_is_told_with_its_status(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A compiler that refuses is told with the status that it gave."""
    (project / "same.cpp").write_text(SOURCE.replace("return 0", "return nothing"))
    assert cli.main(["build", "-v"]) == 1
    assert "cgins.building.compilers.process: same/cpp: exit status 1 in " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (["build"], set()),
        (["--log-level=info", "build"], {"done"}),
        (["--log-level=debug", "build"], {"done", "not in the cache"}),
        (["build", "-vv"], {"done", "not in the cache"}),
    ],
)
def test_levels(
    project: Path, capsys: pytest.CaptureFixture[str], options: list[str], levels: set[str]
) -> None:
    """Without an option nothing is said; info has commands, debug and -vv the cache's doings as well."""
    assert cli.main(options) == 0
    err = capsys.readouterr().err
    assert {words for words in ("done", "not in the cache") if f"same/cpp: {words}" in err} == levels


def test_warnings_name_their_level() -> None:
    """From `warning` on, the level is said."""

    def text(level: int) -> str:
        return logs.text(
            logging.LogRecord("pytest_cgins.building.cache.store", level, "", 1, "%s waits", ("x",), None)
        )

    assert text(logging.INFO) == "cgins.building.cache.store: x waits"
    assert text(logging.WARNING) == "cgins.building.cache.store: warning: x waits"


def test_as_a_library_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """Where no handler is open, even errors are silent: the application decides."""
    logger = logging.getLogger("pytest_cgins.elsewhere")
    logger.propagate, root = True, logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        logger.error("no one asked")
    finally:
        root.handlers = handlers
    assert capfd.readouterr() == ("", "")
