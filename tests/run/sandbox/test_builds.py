"""What compilers are shown in the sandbox."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.compilers import toolchain
from pytest_cgins.config import load
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.run.sandbox.builds import BuildFence, sources_of
from pytest_cgins.run.sandbox.sandbox import Sandbox

from .conftest import run

YAML = """\
version: 1
kernels:
  it: {op: torch.mul, device: cpu, source: k.cpp, flags: [-I%s/include, '-Wl,-rpath,%s/lib', -DROOT=%s/whole, -lm]}
"""


def test_sources_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its repository, and what flags name; a repository around the home folder is not the project's."""
    project, other = tmp_path / "repository/kernels", tmp_path / "other"
    project.mkdir(parents=True)
    (tmp_path / "repository/.git").mkdir()
    (project / "k.cpp").write_text("")
    (project / "cgins.yaml").write_text(YAML % (other, other, other))
    config = load(project / "cgins.yaml", require_traces=False)
    seen = set(sources_of(config))
    assert {tmp_path / "repository", project / "k.cpp", other / "include", other / "lib"} <= seen
    assert other / "whole" not in seen
    monkeypatch.setenv("HOME", str(tmp_path / "repository"))
    assert tmp_path / "repository" not in set(sources_of(config))
    assert config.root in set(sources_of(config))


def test_an_installation_in_a_home_folder_is_not_the_home_folder(tmp_path: Path) -> None:
    """Of a compiler's place only what compilers have is shown, behind a link and a script as well."""
    for name in ("bin", "lib", "share", ".ssh"):
        (tmp_path / "real" / name).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "real/bin/cc"
    tool.write_text("#!/bin/sh\nexec /bin/true\n")
    tool.chmod(0o755)
    script = tmp_path / "bin/nvcc"
    script.write_text(f'#!/bin/sh\nexec {tool} "$@"\n')
    script.chmod(0o755)
    (tmp_path / "bin/cc").symlink_to(tool)
    wanted = {tmp_path / "bin", tmp_path / "real/bin", tmp_path / "real/lib"}
    for name in ("nvcc", "cc"):
        assert (
            set(toolchain.installation(str(tmp_path / "bin" / name), ("bin", "lib", "*-linux-*"))) == wanted
        )
    assert list(toolchain.installation("", ("bin",))) == []
    assert list(toolchain.installation("no-such-compiler", ("bin",))) == []


def test_shown_later_is_seen_later(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence is widened for each project, and follows the environment; what is hidden wins."""
    folders = [tmp_path / name for name in ("first", "second", "work")]
    for folder in folders:
        (folder / "gold").mkdir(parents=True)
        (folder / "gold/secret").write_text("")
    fence = BuildFence(replace(sandbox, visible=(), hidden=()))
    command = ["/bin/sh", "-c", f"ls -R {tmp_path}; env"]

    def said() -> str:
        # As the shell that starts it would be: its parent is found at the start.
        return run(["/bin/sh", "-c", '"$@"; exit $?', "sh", *fence(command, folders[2])]).stdout

    fence.show(visible=[folders[0]])
    assert "first" in said()
    assert "second" not in said()
    fence.show(visible=[folders[1]], hidden=[folders[1] / "gold"])
    assert f"{folders[0]}/gold:\nsecret" in said()
    assert f"{folders[1]}/gold:" in said()
    assert f"{folders[1]}/gold:\nsecret" not in said()
    monkeypatch.setenv("HARMLESS", "unread")
    assert "unread" not in said()


def test_what_was_shown_and_is_gone_keeps_no_compiler_from_its_work(sandbox: Sandbox, tmp_path: Path) -> None:
    """The files of a base revision are removed while others build; what was remembered and what was begun hold."""
    for name in ("stays", "goes", "goes_later", "work"):
        (tmp_path / name / "gold").mkdir(parents=True)
    fence = BuildFence(replace(sandbox, visible=(), hidden=()))
    shown = [tmp_path / name for name in ("stays", "goes", "goes_later")]
    fence.show(visible=shown, hidden=[folder / "gold" for folder in shown])
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    assert run([*shell, *fence(["/bin/ls", str(tmp_path)], tmp_path / "work")]).stdout.split() == [
        "goes", "goes_later", "stays", "work"
    ]  # fmt: skip
    shutil.rmtree(tmp_path / "goes")
    begun = fence(["/bin/ls", str(tmp_path)], tmp_path / "work")
    shutil.rmtree(tmp_path / "goes_later")
    assert run([*shell, *begun]).stdout.split() == ["stays", "work"]


def test_builds_beside_a_sandbox_are_fenced_in(tmp_path: Path) -> None:
    """An evaluator with a sandbox takes no builds whose compilers would run outside of it."""
    (tmp_path / "k.cpp").write_text("")
    (tmp_path / "cgins.yaml").write_text("version: 1\nkernels:\n  it: {op: torch.mul, source: k.cpp}\n")
    config = load(tmp_path / "cgins.yaml", require_traces=False)
    with pytest.raises(TypeError, match="whose compilers run outside"):
        Evaluator(config, seed=1, sandbox=Sandbox(), builds=BuildQueue(cache=tmp_path / "builds"))
