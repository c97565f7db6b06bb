from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs import ops
from pytest_cgins.packs.replay import check
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.importers import collect
from pytest_cgins.recording.importers.collect import Collector, check_size, on


def call(op: str, *args: object) -> object:
    return ops.resolve(op)(*args)


def test_one_failure_leaves_the_others_alone(tmp_path: Path) -> None:
    """A call that raises is left out by name with its reason; the calls around it become traces."""
    with Collector(tmp_path / "pack", "full") as collector:
        x = torch.rand(3, 4)
        assert collector.record("first", "torch.sin", lambda: call("torch.sin", x)).recorded
        failed = collector.record("second", "torch.mm", lambda: call("torch.mm", x, x))
        assert not failed.ran
        assert collector.record("third", "torch.cos", lambda: call("torch.cos", x)).result.equal(x.cos())
        report = collector.finish()
    assert [one.entry for one in report.imported] == ["first", "third"]
    (left,) = report.left_out
    assert left.entry == "second"
    assert left.reason.startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    reader = open_pack(tmp_path / "pack")
    assert [check(trace, reader) for trace in reader.pack.traces] == ["bitwise", "bitwise"]


def test_a_long_import_tells_what_it_is_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At most every few seconds; a short one tells nothing."""
    with Collector(tmp_path / "pack", "full") as collector, collector.leaving_out("first"):
        pass
    assert not capsys.readouterr().err
    monkeypatch.setattr(collect, "TELLS_EVERY_S", 0.0)
    with Collector(tmp_path / "other", "full") as collector, collector.leaving_out("tasks/second"):
        pass
    assert capsys.readouterr().err == "cgins: 0 recorded, at 'tasks/second'\n"


def test_nothing_imported_writes_nothing(tmp_path: Path) -> None:
    """Without a trace there is no pack, and nothing else is left behind."""
    with Collector(tmp_path / "pack", "recipe") as collector:
        collector.leave_out("all", "no reason")
        assert collector.finish().pack is None
    assert list(tmp_path.iterdir()) == []


def test_same_form_with_other_values_is_a_trace_of_its_own(tmp_path: Path) -> None:
    """Two calls of one form and other values keep signatures of their own; the same call twice is counted."""
    x, y = torch.rand(4), torch.rand(4)
    with Collector(tmp_path / "pack", "full") as collector:
        for name, value, count in (("x", x, 3), ("y", y, 1), ("x again", x, 2)):
            collector.record(name, "torch.sin", lambda value=value: call("torch.sin", value), count)
        report = collector.finish()
    assert report.pack is not None
    assert sorted(trace.count for trace in report.pack.traces) == [1, 5]
    assert len({trace.signature for trace in report.pack.traces}) == 2


def test_check_size() -> None:
    """Tensors anywhere in the arguments count, modules' parameters too; the limit names the option."""
    values = [torch.zeros(1024, 256), {"m": torch.nn.Linear(8, 8)}, 3]
    check_size(values, 1.1)
    with pytest.raises(RecordError, match="1 MiB, more than the 1 MiB of --max-mib"):
        check_size(values, 1)


def test_moving_keeps_gaps_and_overlaps() -> None:
    """A tensor lies on the other device as it did on this one."""
    base = torch.randn(64)
    for size, stride in (((3, 4), (8, 1)), ((3, 4), (1, 1)), ((5, 4), (0, 1)), ((4, 3), (1, 4))):
        moved = on("meta", [base.as_strided(size, stride, 2)])[0]
        assert (moved.shape, moved.stride(), moved.device.type) == (size, stride, "meta")


def test_a_name_that_no_pack_may_have(tmp_path: Path) -> None:
    """It is refused before anything is imported, with the option that names the pack."""
    with pytest.raises(RecordError, match="cannot be named 'my pack'") as caught:
        Collector(tmp_path / "my pack", "recipe")
    assert "--name" in caught.value.remedy
    Collector(tmp_path / "my pack", "recipe", "mine")
