from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_cgins.app import cli
from pytest_cgins.app.commands.record import _share
from pytest_cgins.core.errors import PackError, RecordError
from pytest_cgins.packs.store import open_pack
from tests.json_schemas import json_schema

SCRIPT = """
import sys, torch
print("arguments", sys.argv[1:])
torch.nn.functional.gelu(torch.randn(2, 3))
torch.nn.functional.silu(torch.randn(2, 3))
"""


def cgins(*arguments: object) -> int:
    args = cli._parser().parse_args([str(argument) for argument in arguments])
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


@pytest.mark.parametrize("spelling", [("--ops", "{0},{1}"), ("--ops", "{0}", "--ops", "{1}")])
def test_backwards_are_asked_for_by_name(script: Path, tmp_path: Path, spelling: tuple[str, ...]) -> None:
    """Commas between parentheses do not part ops."""
    script.write_text(
        "import torch\nlayer = torch.nn.Linear(3, 2)\n"
        "torch.nn.functional.gelu(layer(torch.randn(4, 3, requires_grad=True))).sum().backward()\n"
    )
    names = ("torch.nn.functional.linear@backward(input,weight,bias)", "torch.nn.functional.gelu")
    assert (
        cgins("record", script, "--out", tmp_path / "pack", *(part.format(*names) for part in spelling)) == 0
    )
    assert {trace.call.op for trace in open_pack(tmp_path / "pack").pack.traces} == set(names)


def test_backward_lengths_and_top_time_are_passed_on(script: Path, tmp_path: Path, capsys) -> None:
    """And what was left out is printed."""
    script.write_text(
        "import torch\nfor n in range(3, 11):\n"
        "    torch.nn.functional.gelu(torch.randn(2, n, requires_grad=True)).sum().backward()\n"
    )
    for options, count in [(("--lengths", "all"), 8), ((), 4), (("--top-time", "100%"), 4)]:
        gelu = ("--ops", "torch.nn.functional.gelu", "--backward")
        assert cgins("record", script, "--out", tmp_path / "pack", *gelu, *options) == 0
        pack = open_pack(tmp_path / "pack").pack
        assert sum("gelu@backward(input)" in trace.call.op for trace in pack.traces) == count
    out = capsys.readouterr().out
    assert "up to 8 of them (3 … 10), are kept at four at most; --lengths all keeps all" in out
    assert "the traces cover 100.0% of the recorded ops' time; left out: 0 signatures (0 calls)" in out


def test_what_computes_and_is_not_recorded_unasked_is_told(script: Path, tmp_path: Path, capsys) -> None:
    """By how often it was called; no views, factories, copies, casts, comparisons and random numbers, and if none was named."""
    script.write_text(
        SCRIPT + "x = torch.randn(4, 4)\n"
        "for _ in range(2):\n    torch.nn.functional.huber_loss(torch.where(x > 0, x, 0.0).T.reshape(2, 8), torch.ones(2, 8))\n"
        "torch.where(torch.zeros_like(x).bool(), x.clone(), torch.rand_like(x))\n"
        "torch.fft.rfft(torch.nn.functional.dropout(x).half().float()[1:].expand(3, 4), out=None)\n"
    )
    assert cgins("record", script, "--out", tmp_path / "pack") == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "not recorded, since only common ops are unless they are named: torch.where (3 calls), "
        "torch.nn.functional.huber_loss (2 calls), torch.fft.rfft (1 call); ops=[…] / --ops records exactly what it names"
    )
    named = "torch.where,torch.nn.functional.huber_loss,torch.fft.rfft"
    assert cgins("record", script, "--out", tmp_path / "pack", "--ops", named) == 0
    assert "unless they are named" not in capsys.readouterr().out
    assert {trace.call.op for trace in open_pack(tmp_path / "pack").pack.traces} == set(named.split(","))


@pytest.mark.parametrize(
    ("text", "share"), [("80%", 0.8), ("0.8", 0.8), (" 5 %", 0.05), ("1", 1.0), ("100%", 1.0)]
)
def test_a_share_is_written_either_way(text: str, share: float) -> None:
    """In per cent or as a number."""
    assert _share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["80", "0", "101%", "-1%", "half", "", "nan", "%"])
def test_what_is_no_share_is_refused(script: Path, tmp_path: Path, capsys, text: str) -> None:
    """With a way to write it."""
    with pytest.raises(SystemExit):
        cgins("record", script, "--out", tmp_path / "pack", f"--top-time={text}")
    assert f"{text!r} is not a share: write 80% or 0.8" in capsys.readouterr().err


def test_a_script_may_exit_and_a_failing_one_leaves_no_pack(script: Path, tmp_path: Path, capsys) -> None:
    """sys.exit(0) ends a recording well; another status is passed on."""
    script.write_text(SCRIPT + "sys.exit(0)\n")
    assert cgins("record", script, "--out", tmp_path / "good") == 0
    script.write_text(SCRIPT + "sys.exit(3)\n")
    assert cgins("record", script, "--out", tmp_path / "bad") == 3
    assert "exited with 3: nothing was recorded" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()


def test_a_script_that_raises_is_shown_from_its_own_frame_on(script: Path, tmp_path: Path, capsys) -> None:
    """Its traceback begins in the script, then it is said that nothing was recorded; status 1."""
    script.write_text("import torch\ndef model():\n    torch.ones(2) @ torch.ones(3)\nmodel()\n")
    assert cgins("record", script, "--out", tmp_path / "pack") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{script}", line 4, in <module>'
    assert lines[-1] == f"{script} raised RuntimeError: nothing was recorded"
    assert not (tmp_path / "pack").exists()


def test_a_script_with_a_syntax_error_is_shown_without_our_frames(
    script: Path, tmp_path: Path, capsys
) -> None:
    """No line of it has run: only the place of the error is printed."""
    script.write_text("def (:\n")
    assert cgins("record", script, "--out", tmp_path / "pack") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f'  File "{script}", line 1'
    assert lines[-1] == f"{script} raised SyntaxError: nothing was recorded"


def test_wrong_options_fail_before_the_script_runs(script: Path, tmp_path: Path, capsys) -> None:
    """A limit below 1, a bad name and a folder that cannot be written are refused first."""
    (tmp_path / "file").write_text("")
    for options, what in [
        (("--out", tmp_path / "pack", "--max-per-op", "0"), "max_per_op is 0"),
        (("--out", tmp_path / "pack", "--name", "a/b"), "cannot be named 'a/b'"),
        (("--out", tmp_path / "file" / "pack"), "cannot be written"),
    ]:
        with pytest.raises(RecordError, match=what):
            cgins("record", script, *options)
    assert "arguments" not in capsys.readouterr().out


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


def test_ls_of_a_path_that_is_no_folder_is_an_error(script: Path, tmp_path: Path) -> None:
    """The path is named, instead of an empty table."""
    with pytest.raises(PackError, match=r"nope does not exist"):
        cgins("traces", "ls", tmp_path, tmp_path / "nope")
    with pytest.raises(PackError, match=r"script\.py is not a folder"):
        cgins("traces", "ls", script)


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
    assert cgins("traces", "verify", tmp_path / "pack") == 1
    assert "its content has sha256" in capsys.readouterr().err


def test_verify_goes_on_after_a_damaged_pack(script: Path, tmp_path: Path, capsys) -> None:
    """Every pack is looked at; what is wrong is said at the end, one remedy for the two missing ones."""
    cgins("record", script, "--out", tmp_path / "good")
    capsys.readouterr()
    assert cgins("traces", "verify", tmp_path / "a", tmp_path / "b", tmp_path / "good") == 1
    captured = capsys.readouterr()
    assert f"{tmp_path / 'good'}: 2 traces" in captured.out
    assert captured.err == (
        f"{tmp_path / 'a' / 'manifest.json'}: is not there\n{tmp_path / 'b' / 'manifest.json'}: is not there\n"
        "→ check the path, or record the pack again\n"
    )


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pack with two traces of a marked function of a project that is not on `sys.path` any more."""
    (tmp_path / "elsewhere").mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (project / "marked_there.py").write_text(
        "import pytest_cgins\n@pytest_cgins.mark\ndef double(x):\n    return x * 2\n"
    )
    script = project / "script.py"
    script.write_text(
        "import torch, marked_there\nfor size in (2, 3):\n    marked_there.double(torch.ones(size))\n"
    )
    assert cgins("record", script, "--out", project / "traces" / "pack", "--tier", "full") == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delitem(sys.modules, "marked_there")
    return project / "traces" / "pack"


def test_verify_finds_marked_functions_from_any_folder(packed: Path, capsys, monkeypatch) -> None:
    """They are looked up beside the nearest cgins.yaml above the pack, and sys.path is put back."""
    (packed.parent.parent / "cgins.yaml").write_text("")
    path = list(sys.path)
    assert cgins("traces", "verify", packed) == 0
    assert "marked_there.double: 2 bitwise" in capsys.readouterr().out
    assert sys.path == path
    monkeypatch.delitem(sys.modules, "marked_there")


def test_verify_gives_the_remedy_of_a_missing_module_once(packed: Path, capsys) -> None:
    """Two traces of an op that cannot be imported are two lines and one remedy."""
    assert cgins("traces", "verify", packed) == 1
    err = capsys.readouterr().err
    assert err.count("cannot be replayed: the module marked_there of op marked_there.double") == 2
    assert [line for line in err.splitlines() if line.startswith("→")] == [
        "→ run from the folder that has it, or put that folder on PYTHONPATH"
    ]


def test_verify_fails_when_an_op_gives_another_answer(project, tmp_path: Path, capsys) -> None:
    """A marked function that was changed since no longer gives its gold: status 1, with the reason."""
    import torch

    from pytest_cgins.recording.record import record

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

    from pytest_cgins.packs import ops
    from pytest_cgins.recording.record import record

    module = project("def scale(x):\n    return x * 2\n")
    op = f"{module.__name__}.scale"
    with record(tmp_path / "pack", ops=[op]):
        module.scale(torch.randn(4))
    monkeypatch.setattr(ops, "_trusted", set())
    assert cgins("traces", "verify", tmp_path / "pack") == 1
    assert "neither a torch op nor a marked function" in capsys.readouterr().err
    assert cgins("traces", "verify", tmp_path / "pack", "--trust", op) == 0


@pytest.mark.exam
def test_the_published_schema_is_current() -> None:
    """pytest_cgins/schemas/trace-pack-2.json is what the dataclasses say."""
    import pytest_cgins
    from pytest_cgins.core.trace import TRACE_PACK_VERSION, TracePack

    file = Path(pytest_cgins.__file__).parent / "schemas" / f"trace-pack-{TRACE_PACK_VERSION}.json"
    assert json.loads(file.read_text()) == json_schema(TracePack)


def test_a_pack_fits_the_published_schema(script: Path, tmp_path: Path) -> None:
    """Other tools can validate manifests with the schema alone."""
    import jsonschema

    import pytest_cgins

    cgins("record", script, "--out", tmp_path / "pack")
    schema = json.loads((Path(pytest_cgins.__file__).parent / "schemas" / "trace-pack-2.json").read_text())
    jsonschema.validate(json.loads((tmp_path / "pack" / "manifest.json").read_text()), schema)
