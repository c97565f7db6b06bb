"""The command `cgins`."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from pytest_cgins import __version__, cli
from pytest_cgins.errors import ConfigError
from pytest_cgins.kernels import commands


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from pytest_cgins.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_version_is_told_without_heavy_imports() -> None:
    """`cgins --version` prints the version and loads neither torch nor numpy nor pydantic."""
    code = (
        "import sys\nfrom pytest_cgins.cli import main\n"
        "try: main(['--version'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print([name for name in ('torch', 'numpy', 'pydantic', 'yaml', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"pytest-cgins {__version__}\n[]\n"


def test_help_lists_all_commands() -> None:
    """The subcommands of traces and kernels are there."""
    done = run("--help")
    assert done.returncode == 0
    for command in ("record", "traces", "build", "schema"):
        assert command in done.stdout


@pytest.mark.parametrize("arguments", [[], ["recrod"], ["--cgins"]])
def test_wrong_arguments_are_exit_2(arguments: list[str]) -> None:
    """No command, an unknown one, an unknown option: usage on stderr."""
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: cgins")


def test_own_errors_are_messages(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An error of ours is its text on stderr and exit 2, not a traceback."""
    missing = tmp_path_factory.mktemp("empty") / "nowhere"
    done = run("traces", "show", str(missing))
    assert done.returncode == 2
    assert done.stderr.startswith("cgins: ")
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (ConfigError("the file is wrong", remedy="mend it"), 2, "cgins: the file is wrong\n→ mend it\n"),
        (KeyboardInterrupt(), 130, ""),
        (PermissionError(13, "Permission denied", "/the/file"), 2, "cgins: /the/file: Permission denied\n"),
        (ConfigError("a\x1b[31mb\u2028c\n::error::d"), 2, "cgins: a\\u001b[31mb\\u2028c\n\\u003a:error::d\n"),
        (PermissionError(13, "no", "/\x1b[31m"), 2, "cgins: /\\u001b[31m: no\n"),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException,
    code: int,
    text: str,
) -> None:
    """Errors of ours and of the system end in 2, Ctrl-C in 130; neither a terminal nor a runner obeys what they quote."""

    def fail(arguments: argparse.Namespace) -> int:
        raise raised

    def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        subparsers.add_parser("fail").set_defaults(run=fail)

    monkeypatch.setattr(commands, "add_parsers", add_parsers)
    assert cli.main(["fail"]) == code
    assert capsys.readouterr().err == text


def test_a_reader_that_has_enough() -> None:
    """A closed pipe ends the command without a traceback."""
    code = (
        "import sys\nfrom pytest_cgins import cli\n"
        "class Endless:\n    @staticmethod\n    def add_parsers(subparsers):\n"
        "        subparsers.add_parser('endless').set_defaults(run=lambda _: [print('x' * 99) for _ in range(99999)])\n"
        "cli.kernels = Endless\nsys.exit(cli.main(['endless']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 2


def test_a_locale_without_arrows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stdout takes no more than ASCII, other characters are spelled out."""
    code = (
        "import sys\nfrom pytest_cgins import cli\n"
        "class Arrow:\n    @staticmethod\n    def add_parsers(subparsers):\n"
        "        subparsers.add_parser('arrow').set_defaults(run=lambda _: print('\\u2192'))\n"
        "cli.kernels = Arrow\nsys.exit(cli.main(['arrow']))"
    )
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "\\u2192\n", done.stderr
