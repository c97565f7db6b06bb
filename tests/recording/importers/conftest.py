from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cgins.app.cli import main
from pytest_cgins.core.trace import TracePack
from pytest_cgins.packs.store import open_pack


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    code: int
    out: str
    err: str
    pack: TracePack | None

    def ops(self) -> list[str]:
        assert self.pack is not None, self.out + self.err
        return [trace.call.op for trace in self.pack.traces]


@pytest.fixture
def cgins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Run]:
    """Run `cgins` in an empty project; an import goes to its folder `pack`."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> Run:
        arguments = [str(word) for word in words]
        if arguments[0] == "import" and "--out" not in arguments:
            arguments += ["--out", "pack"]
        code = main(arguments)
        captured = capsys.readouterr()
        folder = tmp_path / (arguments[arguments.index("--out") + 1])
        pack = open_pack(folder).pack if (folder / "manifest.json").exists() else None
        return Run(code, captured.out, captured.err, pack)

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, object], Path]:
    """Write a file of the project: a text, or JSON of anything else."""

    def put(name: str, content: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return put
