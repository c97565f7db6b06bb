"""What an op sets beside its gold is named in the trace, and in what a verdict says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pytest_cgins.packs.store import open_pack
from pytest_cgins.packs.validate import problems
from pytest_cgins.recording.record import record
from pytest_cgins.verify.prepare import prepare

HEAD = "import torch, pytest_cgins\nfrom torch import nn\n"
EMA = (
    HEAD
    + """
@pytest_cgins.mark
class Ema(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))
        self.register_buffer("ema", torch.zeros(8))
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.kept, self.last = 0, 3, None
        self.inner = nn.Identity()
    def forward(self, x):
        self.ema = 0.9 * self.ema + 0.1 * x.mean(0)
        self.seen.add_(1)
        self.calls += 1
        self.kept = 3
        self.last = object()
        self.inner.shape = tuple(x.shape)
        return x * self.weight
"""
)
CACHE = (
    HEAD
    + """
class Cache:
    def __init__(self, keys, values):
        self.keys, self.values = keys, values
@pytest_cgins.adapter(Cache)
class CacheAdapter:
    to_plain = staticmethod(lambda cache: [cache.keys.clone(), cache.values])
    from_plain = staticmethod(lambda plain: Cache(*plain))
@pytest_cgins.mark
def grow(x, cache):
    cache.values = torch.cat([cache.values, x])
    return x * cache.values.sum()
@pytest_cgins.mark
def write(x, cache):
    cache.values[:2] = x
    return x * cache.values.sum()
@pytest_cgins.mark
def push(x, seen):
    seen.append(x + 1)
    return x * 2
"""
)


@pytest.mark.parametrize("tier", ["shapes", "recipe", "full"])
def test_state_that_a_module_sets_anew_is_named(project, recorded, tier) -> None:
    """Buffers that are replaced, counters, opaque and new attributes; not what is written into, or set as it was."""
    model = project(EMA).Ema()
    (trace,) = recorded(lambda: model(torch.randn(4, 8)), tier=tier).traces
    assert trace.rebound == ("self.calls", "self.ema", "self.inner.shape", "self.last")


@pytest.mark.parametrize(("name", "expected"), [("grow", ("cache",)), ("write", ())])
def test_an_object_that_a_call_makes_longer_is_named(project, recorded, name, expected) -> None:
    """One whose tensors are written into is not, though its adapter copies them."""
    source = project(CACHE)
    cache = source.Cache(torch.randn(2, 3), torch.randn(2, 3))
    (trace,) = recorded(lambda: getattr(source, name)(torch.randn(2, 3), cache)).traces
    assert trace.rebound == expected


def test_a_list_that_a_call_appends_to_is_named(project, recorded) -> None:
    """Its items are arguments before the call, and more of them after it."""
    source = project(CACHE)
    (trace,) = recorded(lambda: source.push(torch.randn(2), [])).traces
    assert trace.rebound == ("seen",)


def test_ops_of_torch_set_nothing(recorded) -> None:
    """Neither a function nor one that writes into its argument, nor modules with counters and running means."""

    def body() -> None:
        torch.nn.functional.gelu(torch.randn(4))
        torch.randn(4).add_(1)
        torch.nn.BatchNorm1d(8)(torch.randn(4, 8))
        torch.nn.LSTM(3, 3)(torch.randn(2, 1, 3))

    names = ["nn.functional.gelu", "Tensor.add_", "nn.BatchNorm1d", "nn.LSTM"]
    traces = recorded(body, ops=[f"torch.{name}" for name in names]).traces
    assert [trace.rebound for trace in traces] == [(), (), (), ()]


def test_what_is_not_compared_is_said(project, recorded, tmp_path) -> None:
    """A kernel that never sets it passes: the note is with the verdict."""
    model = project(EMA).Ema()
    recorded(lambda: model(torch.randn(4, 8)))
    reader = open_pack(tmp_path / "pack")
    trace = reader.pack.traces[0]
    said = "the op also sets self.calls, self.ema, self.inner.shape, self.last, which are not compared"
    assert said in prepare(trace, reader, "cpu", seed=0).notes
    one = replace(trace, rebound=("self.ema",))
    assert "the op also sets self.ema, which is not compared" in prepare(one, reader, "cpu", seed=0).notes
    many = replace(trace, rebound=tuple("abcdefg"))
    assert (
        "the op also sets a, b, c, d, 3 more, which are not compared"
        in prepare(many, reader, "cpu", seed=0).notes
    )


def test_names_in_a_pack_are_short(project, recorded) -> None:
    """A name without end, or none, is a problem of the manifest."""
    pack = recorded(lambda: torch.nn.functional.gelu(torch.randn(4)))
    bad = replace(pack, traces=(replace(pack.traces[0], rebound=("", "x" * 2000)),))
    assert [problem.field for problem in problems(bad)] == ["traces[0].rebound[0]", "traces[0].rebound[1]"]


def test_ids_do_not_depend_on_it(project, tmp_path) -> None:
    """A pack whose call set nothing, and an older one, have the ids that they had."""
    x = torch.randn(4)
    for name in ("a", "b"):
        with record(tmp_path / name):
            torch.nn.functional.gelu(x)
    manifest = tmp_path / "b" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(',"rebound":[]', ""))
    assert '"rebound"' not in manifest.read_text()
    assert open_pack(tmp_path / "a").pack == replace(open_pack(tmp_path / "b").pack, name="a")
