"""The command `cgins`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cgins import __version__
from pytest_cgins.app import cli
from pytest_cgins.app.commands import schema
from pytest_cgins.core.errors import ConfigError

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.exam
def test_version_is_told_without_heavy_imports() -> None:
    """`cgins --version` prints the version and loads neither torch nor numpy nor pydantic."""
    code = (
        "import sys\nfrom pytest_cgins.app.cli import main\n"
        "try: main(['--version'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print([name for name in ('torch', 'numpy', 'pydantic', 'yaml', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"pytest-cgins {__version__}\n[]\n"


COMPLETE = """
source <(printf '%s' "$SCRIPT")
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
"$(complete -p cgins | sed 's/.*-F \\([^ ]*\\).*/\\1/')" cgins
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does at Tab: it calls the function that was registered for the command with the words of the line."""


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("cgins tr", {"traces"}),
        ("cgins traces au", {"audit"}),
        ("cgins traces audit --st", {"--strict"}),
        ("cgins traces audit pac", {"pack.json"}),
        ("cgins record --tier re", {"recipe"}),
        ("cgins completion ", {"bash", "zsh", "fish"}),
        ("cgins export t", {"torch-library"}),
        ("cgins ann", {""}),
    ],
)
def test_bash_completes_commands_options_and_files(
    line: str, offered: set[str], tmp_path: Path, cgins: Command
) -> None:
    """Commands, options, their choices and paths; commands of pipelines are not offered."""
    (tmp_path / "pack.json").touch()
    script = cgins(Path(), "completion", "bash").stdout
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", *line.split(" ")],
        cwd=tmp_path,
        env={**os.environ, "SCRIPT": script},
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(done.stdout.removesuffix("\n").split("\n")) == offered, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script(shell: str, cgins: Command) -> None:
    """It has every command and leaves out none of its options; where the shell is here, it reads the script."""
    done = cgins(Path(), "completion", shell)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("traces", "audit", "record"))
    assert "strict" in done.stdout
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=done.stdout, text=True, check=True)


def test_an_unknown_shell_is_refused(cgins: Command) -> None:
    """With the shells that there are."""
    done = cgins(Path(), "completion", "bsh")
    assert done.returncode == 2
    assert 'bsh is not known → did you mean "bash"?' in done.stderr


def test_help_lists_all_commands_in_groups(cgins: Command) -> None:
    """Each command once, below a heading, on one line of a usual terminal; without arguments the same is shown."""
    done = cgins(Path(), "help", "--all")
    commands = next(one for one in cli._parser()._actions if one.metavar == "COMMAND").choices
    grouped = " ".join(cli.GROUPS.values()).split()
    assert sorted(grouped) == sorted(commands or ())
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("  ") and line[2].isalpha()]
    assert [line[0] for line in lines] == grouped
    assert all(len(line) > 1 for line in lines)
    alone = cgins(Path())
    assert (alone.returncode, alone.stderr) == (2, cgins(Path(), "--help").stdout)


def test_a_missing_subcommand_is_answered_with_those_that_there_are(cgins: Command) -> None:
    """Instead of the name of an argument."""
    done = cgins(Path(), "export")
    assert "KIND is missing → there are flashinfer-bench, torch-library" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["recrod"], ["--cgins"]])
def test_wrong_arguments_are_exit_2(arguments: list[str], cgins: Command) -> None:
    """No command, an unknown one, an unknown option: usage on stderr."""
    done = cgins(Path(), *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: cgins")


def test_own_errors_are_messages(tmp_path_factory: pytest.TempPathFactory, cgins: Command) -> None:
    """An error of ours is its text on stderr and exit 2, not a traceback."""
    missing = tmp_path_factory.mktemp("empty") / "nowhere"
    done = cgins(Path(), "traces", "show", str(missing))
    assert done.returncode == 2
    assert done.stderr.startswith("cgins: ")
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (ConfigError("the file is wrong", remedy="fix it"), 2, "cgins: the file is wrong\n→ fix it\n"),
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

    monkeypatch.setattr(schema, "add_parsers", add_parsers)
    monkeypatch.setattr(cli, "_parser", cli._parser.__wrapped__)
    assert cli.main(["fail"]) == code
    assert capsys.readouterr().err == text


@pytest.mark.exam
def test_a_reader_that_has_enough() -> None:
    """A closed pipe ends the command without a traceback."""
    code = (
        "import sys\nfrom pytest_cgins.app import cli\n"
        "class Endless:\n    @staticmethod\n    def add_parsers(subparsers):\n"
        "        subparsers.add_parser('endless').set_defaults(run=lambda _: [print('x' * 99) for _ in range(99999)])\n"
        "sys.modules['pytest_cgins.app.commands.doctor'] = Endless\nsys.exit(cli.main(['endless']))"
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


@pytest.mark.exam
def test_a_locale_without_arrows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stdout takes no more than ASCII, other characters are spelled out."""
    code = (
        "import sys\nfrom pytest_cgins.app import cli\n"
        "class Arrow:\n    @staticmethod\n    def add_parsers(subparsers):\n"
        "        subparsers.add_parser('arrow').set_defaults(run=lambda _: print('\\u2192'))\n"
        "sys.modules['pytest_cgins.app.commands.doctor'] = Arrow\nsys.exit(cli.main(['arrow']))"
    )
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "\\u2192\n", done.stderr


@pytest.mark.parametrize(
    ("words", "guess"),
    [
        (["recrd"], "record"),
        (["traces", "shw"], "show"),
        (["--log-level", "inof", "doctor"], "info"),
        (["record", "--tier", "ful", "x"], "full"),
        (["docter"], "doctor"),
    ],
)
def test_a_misspelt_word_is_guessed(words: list[str], guess: str, cgins: Command) -> None:
    """Of commands, their own commands, and values of options."""
    done = cgins(Path(), *words)
    assert done.returncode == 2
    assert done.stderr.endswith(f'is not known → did you mean "{guess}"?\n')


def test_a_word_like_none_lists_what_there_is(cgins: Command) -> None:
    """What is offered is what the word stands for."""
    assert "is not known → there are ls, show, verify" in cgins(Path(), "traces", "zzz").stderr


def test_commands_of_pipelines_are_not_in_the_first_help(cgins: Command) -> None:
    """They run as ever, and `cgins help --all` lists them."""
    first, whole = cgins(Path(), "--help").stdout, cgins(Path(), "help", "--all").stdout
    for command in cli.PLUMBING:
        assert f"\n  {command} " not in first
        assert f"\n  {command} " in whole
        assert cgins(Path(), command, "--help").returncode == 0
    assert cgins(Path(), "help").stdout == first


def test_the_schema_of_a_kernel_that_is_not_written_yet(cgins: Command, tmp_path: Path) -> None:
    """Says where its first line comes from."""
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\ntraces: [t]\nkernels: {relu: {op: torch.relu, source: kernels/relu.cpp}}\n"
    )
    told = cgins(tmp_path, "schema", "relu").stderr
    assert told.endswith(
        "relu.cpp: no such file\n→ write it; cgins schema --op torch.relu prints the line that it begins with\n"
    )


@pytest.mark.exam
def test_schema_lines_of_ops(cgins: Command) -> None:
    """By any name that people have for an op; a misspelt one is guessed."""
    assert cgins(Path(), "schema", "--op", "F.silu").stdout == "// cgins: silu(Tensor input) -> Tensor\n"
    assert "// cgins: topk(Tensor input, int k," in cgins(Path(), "schema", "--op", "topk").stdout
    assert "// cgins: add(Tensor self, Tensor other" in cgins(Path(), "schema", "--op", "aten::add").stdout
    missed = cgins(Path(), "schema", "--op", "tpok")
    assert missed.returncode == 2
    assert "did you mean torch.topk" in missed.stderr
    assert cgins(Path(), "schema").returncode == 2


def test_schema_lines_of_backwards_and_of_ops_of_a_project(cgins: Command, tmp_path: Path) -> None:
    """From torch's schemas where they have the op's own parameters, else from the calls that are recorded."""

    def line(op: str) -> str:
        return cgins(tmp_path, "schema", "--op", op).stdout.removeprefix("// cgins: ").rstrip()

    assert line("F.linear@backward(input,weight)") == (
        "linear_backward(Tensor grad_output, Tensor input, Tensor weight, Tensor? bias=None) "
        "-> (Tensor grad_input, Tensor grad_weight)"
    )
    (tmp_path / "net.py").write_text(
        "import pytest_cgins\n\n@pytest_cgins.mark\ndef scaled(x, w, *, by=2.0):\n    return x * w * by\n"
    )
    (tmp_path / "run.py").write_text(
        "import torch, net\nfrom torch.nn import functional as F\n"
        "x, w = torch.randn(3, requires_grad=True), torch.randn(3)\n"
        "F.huber_loss(net.scaled(x, w), w).backward()\n"
    )
    (tmp_path / "cgins.yaml").write_text("version: 1\ntraces: [traces/t]\nkernels: {}\n")
    scaled, loss = "net.scaled@backward(x)", "torch.nn.functional.huber_loss@backward(input)"
    for op in (scaled, loss):
        missed = cgins(tmp_path, "schema", "--op", op).stderr
        assert f"cgins record SCRIPT.py --out traces/NAME --ops '{op}' --backward" in missed
    done = cgins(tmp_path, "record", "run.py", "--out", "traces/t", "--ops", f"{scaled},{loss}", "--backward")
    assert done.returncode == 0, done.stderr
    assert line(scaled) == "scaled_backward(Tensor grad_output, Tensor x, Tensor w, float by=2.0) -> Tensor"
    assert "str reduction='mean'" in line(loss)
