from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

GOOD = '[{"operations": [{"operation": "torch.sin", "inputs": ["a"]}], "definitions": [{"variable": "a", "value": "torch.ones(3)"}]}]'


def test_the_pack_can_be_named(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """--name is the pack's name; its folder's is the default."""
    source = write("g.json", GOOD)
    assert cgins("import", "gins", source).pack.name == "pack"
    assert cgins("import", "gins", source, "--name", "mine").pack.name == "mine"


def test_a_missing_source(cgins: Callable[..., Any]) -> None:
    """A source that is not there is an error of the command, and no pack is begun."""
    run = cgins("import", "gins", "nowhere.json")
    assert run.code == 2
    assert "nowhere.json does not exist" in run.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about hosts without a GPU")
def test_a_missing_gpu(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """--device cuda without a GPU says so before anything is read."""
    run = cgins("import", "backendbench", write("o.txt", ""), "--device", "cuda")
    assert "--device cuda: torch sees no CUDA device here" in run.err


def test_a_failed_import_keeps_the_old_pack(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """An import of nothing exits with 1 and leaves a pack of before in place."""
    cgins("import", "gins", write("g.json", GOOD))
    run = cgins("import", "gins", write("h.json", GOOD.replace("torch.sin", "torch.nope")))
    assert run.code == 1
    assert "nothing was imported, 1 left out" in run.err
    assert run.ops() == ["torch.sin"]


@pytest.mark.exam
def test_help_imports_no_torch() -> None:
    """Help on the commands costs no import of torch."""
    code = (
        "import sys\nfrom pytest_cgins.app.cli import main\n"
        "try:\n    main(['import', 'kernelbench', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--allow-code" in done.stdout


def test_foreign_names_are_only_shown(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """Brackets are no markup, and nothing of a name is obeyed by a terminal or a runner."""
    name = "[/x] [bold]y\x1b[31m\n::error::z"
    operations = [
        {"assignment": name, "operation": "torch.sin", "inputs": ["torch.ones(3)"]},
        {"assignment": name, "operation": "torch.nope", "inputs": []},
    ]
    run = cgins("import", "gins", write("g.json", [{"name": "p", "operations": operations}]))
    assert run.code == 0
    shown = r"[/x] [bold]y\u001b[31m\u000a::error::z"
    assert f"p/0:{shown}" in run.out
    assert f"left out  p/1:{shown}" in run.out
    assert "\x1b" not in run.out


@pytest.mark.parametrize("limit", ["nan", "-1", "0", "x"])
def test_limits_that_are_none(cgins: Callable[..., Any], limit: str) -> None:
    """--max-mib is a number above 0."""
    with pytest.raises(SystemExit):
        cgins("import", "gins", "g.json", "--max-mib", limit)
