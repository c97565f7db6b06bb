"""recording.md: its examples are recorded, and its pitfalls look as it says."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tables import document, rows
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from walk import blocks, run

from pytest_cgins.core.errors import CginsError
from pytest_cgins.recording.record import Recording, record

TEXT = document("recording.md")
NET = next(block.text for block in blocks(TEXT) if block.file == "net.py")
HIDDEN = """
import pytest_cgins
calls = 0
@pytest_cgins.mark
def step(x):
    global calls
    calls += 1
    return x * calls
"""
SUBCLASS = """
import torch
class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
"""
OPAQUE_SAYS = (
    "net.scores cannot be recorded: an argument or result of type net.Window is opaque: …\n"
    "→ register an adapter for it beside the op:"
)
OPAQUE = NET.replace("@pytest_cgins.adapter(Window)\n", "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder whose modules can be imported, and are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(f"{tmp_path}/"):
            del sys.modules[name]


@pytest.mark.exam
def test_every_example_works(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Models are written, recorded and looked at as the document says, with the tables that it quotes."""
    ran = run(TEXT, capfd)
    commands = {" ".join(line.split()[1:3]) for line in ran if line.startswith("cgins traces")}
    assert commands == {f"traces {word}" for word in ("show", "verify", "audit", "diff", "gc")}


PITFALLS: list[tuple[str, str, str, list[str] | None]] = [
    ("no call of a recordable op was seen", "", "torch.nn.LSTM(4, 3)(torch.ones(2, 1, 4))", None),
    (
        "a tensor inside a torch.func transform … has no storage to record",
        "",
        "torch.vmap(torch.relu)(torch.ones(2, 3))",
        None,
    ),
    ("… has no strided storage to record", "", "torch.relu(torch.eye(2).to_sparse())", None),
    (
        "a tensor of dtype torch.qint8 cannot be recorded",
        "",
        "torch.relu(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))",
        None,
    ),
    (
        "its result is uninitialised memory, so there is no gold",
        "",
        "torch.empty(2)",
        ["torch.empty"],
    ),
    (
        "changes what torch's functions do, and a replay has plain tensors",
        SUBCLASS,
        "torch.relu(torch.ones(2).as_subclass(made.Loud))",
        None,
    ),
    ("does not give its own gold", HIDDEN, "made.step(torch.ones(2))", None),
    (
        "no call of torch.matmul was seen\n→ did you mean torch.Tensor.matmul?",
        "",
        "torch.eye(2) @ torch.eye(2)",
        ["torch.matmul"],
    ),
    (
        OPAQUE_SAYS,
        OPAQUE,
        "made.scores(torch.eye(2), made.Window(torch.eye(2)))",
        ["made.scores"],
    ),
    (
        "net.Gated reads self.lut, a …, which a trace cannot hold",
        OPAQUE.replace("self.by = 2.0", "self.lut = Window(1)").replace("self.by", "self.lut.keys"),
        "made.Gated(2)(torch.eye(2))",
        ["made.Gated"],
    ),
]


@pytest.mark.parametrize(("quoted", "source", "call", "ops"), PITFALLS, ids=[one[2] for one in PITFALLS])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pitfalls_look_as_described(
    folder: Path, quoted: str, source: str, call: str, ops: list[str] | None
) -> None:
    """What a pitfall is said to look like stands in the document, and is what the recorder says."""
    assert quoted in TEXT
    (folder / "made.py").write_text(source)
    scope: dict[str, Any] = {}
    exec(f"import made, torch\ndef body():\n    {call}", scope)
    with pytest.raises(CginsError) as caught, record(folder / "pack", ops):
        scope["body"]()
    pattern = re.escape(quoted.replace("net.", "made.")).replace("…", ".+")
    assert re.search(pattern, str(caught.value)), str(caught.value)


def test_modules_in_other_threads_are_named(folder: Path) -> None:
    """Ops in another thread are not recorded, and the warning says whose they are."""

    def both() -> Recording:
        with record(folder / "pack") as recording:
            torch.relu(torch.ones(2))
            thread = threading.Thread(target=torch.nn.GELU(), args=(torch.ones(2),))
            thread.start()
            thread.join()
        return recording

    with pytest.warns(UserWarning, match="modules ran in other threads"):
        recording = both()
    assert recording.pack is not None
    assert [trace.call.op for trace in recording.pack.traces] == ["torch.relu"]


def test_random_ops_are_recorded_by_name_only(folder: Path) -> None:
    """Dropout is no default op; named, it is recorded with a seed."""
    with record(folder / "pack") as recording:
        functional.dropout(functional.relu(torch.ones(9)))
    assert recording.pack is not None
    assert [trace.call.op for trace in recording.pack.traces] == ["torch.nn.functional.relu"]
    with record(folder / "pack", ["torch.nn.functional.dropout"]) as recording:
        functional.dropout(torch.ones(9))
    assert recording.pack is not None
    assert recording.pack.traces[0].context.rng_seed is not None


def test_checkpointed_calls_count_once(folder: Path) -> None:
    """The forward that a backward repeats is not seen."""
    x = torch.ones(3, requires_grad=True)
    with record(folder / "pack", ["torch.nn.functional.gelu"]) as recording:
        checkpoint(lambda a: functional.gelu(a.square()), x, use_reentrant=False).sum().backward()
    assert recording.pack is not None
    assert [trace.count for trace in recording.pack.traces] == [1]


@pytest.mark.parametrize("reentrant", [True, False])
def test_backwards_inside_a_reentrant_checkpoint_are_not_seen(folder: Path, reentrant: bool) -> None:
    """With the other kind they are."""
    x = torch.ones(3, requires_grad=True)
    with record(folder / "pack", ["torch.nn.functional.gelu"], backward=True) as recording:
        checkpoint(lambda a: functional.gelu(a.square()), x, use_reentrant=reentrant).sum().backward()
    assert recording.pack is not None
    assert len(recording.pack.traces) == (1 if reentrant else 2)


def test_what_the_backward_of_a_custom_function_runs_is_not_seen(folder: Path) -> None:
    """Its forward is."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.square(x)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return torch.exp(grad)

    x = torch.ones(3, requires_grad=True)
    with (
        pytest.warns(UserWarning, match=r"no call of torch\.exp was seen"),
        record(folder / "pack", ["torch.square", "torch.exp"]) as recording,
    ):
        Square.apply(x).sum().backward()
    assert recording.pack is not None
    assert [trace.call.op for trace in recording.pack.traces] == ["torch.square"]


def test_tables_are_complete() -> None:
    """No cell is empty."""
    for row in rows(TEXT):
        assert all(row), row
