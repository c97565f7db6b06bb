from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from pytest_cgins.errors import PackError, RecordError
from pytest_cgins.trace.commands import add_parsers
from pytest_cgins.trace.store import open_pack

SCRIPT = """
import sys, torch
print("arguments", sys.argv[1:])
torch.nn.functional.gelu(torch.randn(2, 3))
torch.nn.functional.silu(torch.randn(2, 3))
"""


def cgins(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers(required=True))
    args = parser.parse_args([str(argument) for argument in arguments])
    return int(args.run(args))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_is_recorded_as_python_would_run_it(script: Path, tmp_path: Path, capsys) -> None:
    """Arguments arrive, the table says what was recorded, the pack is there."""
    assert cgins("record", script, "--out", tmp_path / "pack", "--args", "--batch", "4") == 0
    out = capsys.readouterr().out
    assert "arguments ['--batch', '4']" in out
    assert "torch.nn.functional.gelu" in out
    assert "2 traces, 0.0" in out
    assert len(open_pack(tmp_path / "pack").pack.traces) == 2


def test_ops_tier_and_name_are_passed_on(script: Path, tmp_path: Path) -> None:
    """--ops takes a comma-separated list and may be repeated."""
    ops = ("--ops", "torch.nn.functional.gelu,torch.nn.functional.silu", "--ops", "torch.nn.functional.gelu")
    cgins("record", script, "--out", tmp_path / "pack", *ops, "--tier", "shapes", "--name", "toy")
    pack = open_pack(tmp_path / "pack").pack
    assert (pack.name, pack.tier, len(pack.traces)) == ("toy", "shapes", 2)


def test_a_script_may_exit_and_a_failing_one_leaves_no_pack(script: Path, tmp_path: Path, capsys) -> None:
    """sys.exit(0) ends a recording well; another status is passed on."""
    script.write_text(SCRIPT + "sys.exit(0)\n")
    assert cgins("record", script, "--out", tmp_path / "good") == 0
    script.write_text(SCRIPT + "sys.exit(3)\n")
    assert cgins("record", script, "--out", tmp_path / "bad") == 3
    assert "exited with 3: nothing was recorded" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()


def test_a_missing_script_is_an_error(tmp_path: Path) -> None:
    """The path is named."""
    with pytest.raises(RecordError, match=r"nope\.py is not a file"):
        cgins("record", tmp_path / "nope.py", "--out", tmp_path / "pack")


def test_a_function_of_the_script_itself_cannot_be_an_op(script: Path, tmp_path: Path) -> None:
    """What is marked in __main__ could not be imported at replay."""
    script.write_text(
        "import torch, pytest_cgins\n@pytest_cgins.mark\ndef f(x):\n    return x + 1\nf(torch.ones(2))\n"
    )
    with pytest.raises(RecordError, match="is defined in the script that runs") as caught:
        cgins("record", script, "--out", tmp_path / "pack")
    assert "into a module of its own" in str(caught.value)


def test_ls_lists_packs_and_reports_damaged_ones(script: Path, tmp_path: Path, capsys) -> None:
    """Good packs are in the table, a bad one makes the status 1."""
    cgins("record", script, "--out", tmp_path / "traces" / "a")
    assert cgins("traces", "ls", tmp_path) == 0
    assert "recipe" in capsys.readouterr().out
    (tmp_path / "traces" / "b").mkdir()
    (tmp_path / "traces" / "b" / "manifest.json").write_text("{}")
    assert cgins("traces", "ls", tmp_path) == 1
    captured = capsys.readouterr()
    assert "traces/a" in captured.out
    assert "version: None is not a schema version" in captured.err


def test_show_lists_traces(script: Path, tmp_path: Path, capsys) -> None:
    """One line a trace, restricted by --op."""
    cgins("record", script, "--out", tmp_path / "pack")
    capsys.readouterr()
    assert cgins("traces", "show", tmp_path / "pack", "--op", "silu") == 0
    out = capsys.readouterr().out
    assert "torch.nn.functional.silu" in out
    assert "bitwise" in out
    assert "gelu" not in out


def test_verify_replays_every_trace(script: Path, tmp_path: Path, capsys) -> None:
    """A line an op, with how many were bitwise; a damaged file is an error."""
    cgins("record", script, "--out", tmp_path / "pack")
    capsys.readouterr()
    assert cgins("traces", "verify", tmp_path / "pack") == 0
    assert "  torch.nn.functional.gelu: 1 bitwise" in capsys.readouterr().out
    blob = next((tmp_path / "pack" / "blobs").iterdir())
    content = bytearray(blob.read_bytes())
    content[-1] ^= 64
    blob.write_bytes(content)
    with pytest.raises(PackError, match="its content has sha256"):
        cgins("traces", "verify", tmp_path / "pack")


def test_verify_fails_when_an_op_gives_another_answer(project, tmp_path: Path, capsys) -> None:
    """A marked function that was changed since no longer gives its gold: status 1, with the reason."""
    import torch

    from pytest_cgins.trace.record import record

    module = project("import pytest_cgins\nby = 2.0\n@pytest_cgins.mark\ndef scale(x):\n    return x * by\n")
    with record(tmp_path / "pack"):
        module.scale(torch.randn(4))
    module.by = 2.5
    assert cgins("traces", "verify", tmp_path / "pack") == 1
    captured = capsys.readouterr()
    assert f"{module.__name__}.scale: 1 failed" in captured.out
    assert "does not give its own gold: output 0, element" in captured.err


def test_an_unmarked_op_is_replayed_only_when_trusted(project, tmp_path: Path, capsys, monkeypatch) -> None:
    """A pack cannot name a function to run; the user can."""
    import torch

    from pytest_cgins.trace import ops
    from pytest_cgins.trace.record import record

    module = project("def scale(x):\n    return x * 2\n")
    op = f"{module.__name__}.scale"
    with record(tmp_path / "pack", ops=[op]):
        module.scale(torch.randn(4))
    monkeypatch.setattr(ops, "_trusted", set())
    assert cgins("traces", "verify", tmp_path / "pack") == 1
    assert "neither a torch op nor a marked function" in capsys.readouterr().err
    assert cgins("traces", "verify", tmp_path / "pack", "--trust", op) == 0


def test_the_published_schema_is_current() -> None:
    """pytest_cgins/schemas/trace-pack-1.json is what the dataclasses say."""
    import pytest_cgins
    from pytest_cgins import documents
    from pytest_cgins.model import TRACE_PACK_VERSION, TracePack

    file = Path(pytest_cgins.__file__).parent / "schemas" / f"trace-pack-{TRACE_PACK_VERSION}.json"
    assert json.loads(file.read_text()) == documents.json_schema(TracePack)


def test_a_pack_fits_the_published_schema(script: Path, tmp_path: Path) -> None:
    """Other tools can validate manifests with the schema alone."""
    import jsonschema

    import pytest_cgins

    cgins("record", script, "--out", tmp_path / "pack")
    schema = json.loads((Path(pytest_cgins.__file__).parent / "schemas" / "trace-pack-1.json").read_text())
    jsonschema.validate(json.loads((tmp_path / "pack" / "manifest.json").read_text()), schema)
