"""The service that times kernels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import LaunchError, ProtocolError
from pytest_cgins.core.tensors import unpack
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.timing_service import TimingService
from pytest_cgins.timing.devices.cpu import Cpu
from tests.run.relu import relu_set, text_kernel, zoo_kernel
from tests.whole_timing import here, measured, of_worker

ARGUMENTS = torch.linspace(-1, 1, 1000)


def request_for(
    function: str, base: str = "", tensor: torch.Tensor = ARGUMENTS, **changes: Any
) -> tuple[dict[str, Any], list[Buffer]]:
    """A request to time a kernel of `zoo.py`, and its buffers."""
    one, buffer = relu_set(tensor, name="0")
    more = {"base": zoo_kernel(base)} if base else {}
    rest = {"kernel": zoo_kernel(function), "device": "cpu", "import_root": ""}
    return {"sets": [one], **rest, "limit_s": 0.05, **more, **changes}, [buffer]


@pytest.fixture
def service() -> TimingService:
    return TimingService()


# ---- what comes out


@pytest.mark.exam
def test_a_slow_kernel_is_slower_than_torch(workers: WorkerPool) -> None:
    """A kernel that does the work fifty times over comes out far below 1, all quartiles of it."""
    whole = measured(of_worker(workers), *request_for("slow_relu"))
    found = whole.measurement
    assert found.method == "perf-counter"
    assert found.speedup_low <= found.speedup_vs_torch <= found.speedup_high < 0.5
    assert len(found.kernel.samples_ns_per_call) == 2 * len(found.orders.split())
    assert found.kernel.host_ns_per_call is None
    assert found.clocks is None
    assert found.comparisons == ()


@pytest.mark.exam
@pytest.mark.parametrize(
    ("kernel", "base", "outcome"), [("slow_relu", "relu", "slower"), ("relu", "slow_relu", "faster")]
)
def test_a_kernel_is_held_against_its_base(workers: WorkerPool, kernel: str, base: str, outcome: str) -> None:
    """Both in one process, with as many calls in a batch."""
    params, buffers = request_for(kernel, base)
    whole = measured(of_worker(workers), params, buffers)
    assert whole.refused == {}
    assert whole.prepared.calls["kernel"] == whole.prepared.calls["base"]
    (comparison,) = whole.measurement.comparisons
    assert (comparison.against, comparison.outcome) == ("base", outcome)


def test_blocks_are_those_that_were_asked_for(service: TimingService) -> None:
    """One time a letter; a CPU tells no clock."""
    params, buffers = request_for("quiet_relu", "slow_relu")
    ready, _ = service.open(params, buffers)
    assert ready["arms"] == ["kernel", "base", "torch"]
    assert ready["host_ns_per_call"] == {}
    result, none = service.blocks({"orders": ["TKBBKT", "BKKB"]}, [])
    first, second = result["blocks"]
    assert (first["order"], second["order"], none) == ("TKBBKT", "BKKB", [])
    assert [len(one["ns_per_call"]) for one in (first, second)] == [6, 4]
    assert [len(one["mean_ns_per_call"]) for one in (first, second)] == [6, 4]
    assert min(first["mean_ns_per_call"]) > 0
    assert (first["sm_mhz"], first["throttled"]) == (None, [])
    base_ns, kernel_ns, *_ = second["ns_per_call"]
    assert base_ns > 2 * kernel_ns
    assert service.blocks({"orders": []}, []) == ({"blocks": []}, [])


@pytest.mark.parametrize("names", [["0", "1"], ["0"]])
def test_answers_are_right_whatever_the_base_does(
    service: TimingService,
    tmp_path: Path,
    names: list[str],
) -> None:
    """It runs on the kernel's tensors: where it overwrites the inputs, they are restored before the last calls."""
    inputs = {"0": ARGUMENTS, "1": ARGUMENTS.flip(0) * 2}
    sets = [relu_set(inputs[name], name=name) for name in names]
    params, _ = request_for("quiet_relu", probes=["after_timing"], sets=[one for one, _ in sets])
    params["base"] = text_kernel(tmp_path, "def relu(input): return input.fill_(7.0)")
    whole = measured(here(service), params, [buffer for _, buffer in sets])
    assert "base" in whole.prepared.arms
    assert {(one["name"], one["when"]) for one in whole.answers} == {
        (name, when) for name in names for when in ("last", "after")
    }
    for one, buffer in zip(whole.answers, whole.buffers, strict=True):
        (output,) = unpack(one["tensors"], buffer, "cpu")
        assert torch.equal(output, inputs[one["name"]].relu()), one["when"]
    assert not service.fatal


def test_batches_are_as_long_as_is_wanted(service: TimingService) -> None:
    """The factor is that of all arms' calls, within what a busy host adds."""
    usual, _ = service.open(*request_for("slow_relu"))
    longer, _ = service.open(*request_for("slow_relu", longer=16.0, limit_s=0.8))
    assert longer["calls"]["kernel"] > 4 * usual["calls"]["kernel"]
    assert longer["batch_seconds"]["kernel"] > 4 * usual["batch_seconds"]["kernel"]


def test_a_warm_cache_is_had_for_the_asking(service: TimingService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that outrun the cache are rotated, unless they shall not."""
    monkeypatch.setattr(Cpu, "last_level_cache_nbytes", lambda _: 2**20)
    tensor = torch.linspace(-1, 1, 2**16)
    assert service.open(*request_for("quiet_relu", tensor=tensor))[0]["cold"] is True
    assert service.open(*request_for("quiet_relu", tensor=tensor, cache="warm"))[0]["cold"] is False


@pytest.mark.exam
def test_torch_compile_is_an_arm(workers: WorkerPool) -> None:
    """If it is asked for; its compilation is not timed."""
    whole = measured(of_worker(workers), *request_for("relu", compile=True))
    assert whole.refused == {}
    assert whole.measurement.compiled is not None
    assert whole.measurement.compiled.median_ns_per_call < 1e6
    assert whole.measurement.speedup_vs_compile is not None


# ---- arms that are not there


def test_a_base_that_cannot_be_loaded_is_refused(service: TimingService, tmp_path: Path) -> None:
    """With the reason; the others are timed."""
    params, buffers = request_for("quiet_relu", base="no_such_function")
    whole = measured(here(service), params, buffers)
    assert whole.prepared.arms == ("kernel", "torch")
    assert whole.refused["base"].startswith("it cannot be loaded: ")
    assert "no_such_function" in whole.refused["base"]
    params["base"] = text_kernel(tmp_path, "raise ImportError('no such package')")
    whole = measured(here(service), params, buffers)
    assert whole.refused["base"].startswith("it cannot be loaded: ")
    assert "ImportError: no such package" in whole.refused["base"]
    assert whole.measurement.base is None


def test_a_base_that_raises_is_refused(service: TimingService) -> None:
    """Where the working tree's kernel does not: nothing of it is an error of the kernel."""
    params, buffers = request_for("quiet_relu", "fails_on_two_rows", torch.ones(2, 5))
    whole = measured(here(service), params, buffers)
    assert set(whole.refused) == {"base"}
    assert whole.refused["base"].startswith("it does not run on these inputs: LaunchError: ")
    assert whole.refused["base"].endswith("ValueError: two rows are too many")
    assert whole.prepared.arms == ("kernel", "torch")
    assert not service.fatal


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (
            "import torch\ntorch.set_float32_matmul_precision('medium')\ndef relu(input): return input.clamp(min=0)",
            False,
        ),
        (
            "import torch\ndef relu(input): torch.set_float32_matmul_precision('medium'); return input.clamp(min=0)",
            True,
        ),
    ],
)
def test_what_the_base_sets_is_not_the_kernel_s_doing(
    service: TimingService, tmp_path: Path, text: str, refused: bool
) -> None:
    """Set at import it is put back before the kernel is loaded; a base that sets it in each call is not timed."""
    params, buffers = request_for("quiet_relu", probes=["integrity"])
    before = torch.get_float32_matmul_precision()
    whole = measured(here(service), {**params, "base": text_kernel(tmp_path, text)}, buffers)
    assert whole.observed["integrity"] == []
    assert torch.get_float32_matmul_precision() == before
    assert ("base" in whole.refused) is refused
    if refused:
        assert (
            "it changes settings that others are timed with: the float32 matmul precision"
            in whole.refused["base"]
        )


def test_what_cannot_be_compiled_is_refused(service: TimingService, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason; the others are timed."""

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler here\nand a long story")

    monkeypatch.setattr(torch, "compile", fails)
    ready, _ = service.open(*request_for("quiet_relu", compile=True))
    assert ready["refused"] == {"compile": "it does not run on these inputs: RuntimeError: no compiler here"}
    assert ready["arms"] == ["kernel", "torch"]


# ---- the order of requests


def test_nothing_is_timed_that_is_not_open(service: TimingService) -> None:
    """Before `open`, and after `finish`."""
    with pytest.raises(ProtocolError, match="no measurement is open"):
        service.blocks({"orders": ["KTTK"]}, [])
    with pytest.raises(ProtocolError, match="no measurement is open"):
        service.finish({}, [])
    service.open(*request_for("quiet_relu"))
    service.finish({}, [])
    with pytest.raises(ProtocolError, match="no measurement is open"):
        service.blocks({"orders": ["KTTK"]}, [])
    with pytest.raises(ProtocolError, match="no measurement is open"):
        service.finish({}, [])


def test_a_second_open_ends_the_first(service: TimingService, tmp_path: Path) -> None:
    """What the first kernel set is put back, and the second one's arms are there."""
    params, buffers = request_for("quiet_relu")
    ran: list[str] = []
    torch.cgins_ran = ran  # type: ignore[attr-defined]
    try:
        for name in ("first", "second"):
            text = (
                f"import torch\ndef relu(input): torch.cgins_ran.append({name!r}); return input.clamp(min=0)"
            )
            service.open({**params, "kernel": text_kernel(tmp_path, text)}, buffers)
        ran.clear()
        service.blocks({"orders": ["KTTK"]}, [])
        whole, _ = service.finish({}, [])
        assert set(ran) == {"second"}
        assert whole["answers"] == []
    finally:
        del torch.cgins_ran  # type: ignore[attr-defined]


def test_a_kernel_that_raises_is_told_and_closed(
    service: TimingService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once, and later; the process lives on, since a CPU forgets."""
    params, buffers = request_for("fails_on_two_rows", tensor=torch.ones(2, 5))
    with pytest.raises(LaunchError, match="two rows are too many"):
        service.open(params, buffers)
    with pytest.raises(ProtocolError, match="no measurement is open"):
        service.blocks({"orders": ["KTTK"]}, [])
    text = (
        "import os\ndef relu(input):\n    if 'CGINS_TIRED' in os.environ: raise ValueError('tired')\n"
        "    return input.clamp(min=0)"
    )
    params, buffers = request_for("quiet_relu")
    service.open({**params, "kernel": text_kernel(tmp_path, text)}, buffers)
    service.blocks({"orders": ["KTTK"]}, [])
    monkeypatch.setenv("CGINS_TIRED", "1")
    with pytest.raises(LaunchError, match="tired"):
        service.blocks({"orders": ["KTTK"]}, [])
    with pytest.raises(ProtocolError, match="no measurement is open"):
        service.finish({}, [])
    assert not service.fatal


def test_an_arm_that_is_not_there_is_no_order(service: TimingService) -> None:
    """Whoever asks for it has made a mistake."""
    service.open(*request_for("quiet_relu"))
    with pytest.raises(KeyError):
        service.blocks({"orders": ["KBBK"]}, [])


def test_one_buffer_is_expected(service: TimingService) -> None:
    """A request without its tensors is the caller's error."""
    params, _ = request_for("quiet_relu")
    with pytest.raises(ProtocolError, match="1 set came with 0 buffers"):
        service.open(params, [])
    with pytest.raises(ProtocolError, match="0 sets came with 0 buffers"):
        service.open({**params, "sets": []}, [])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not tell")
def test_cpus_are_given_back(service: TimingService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between requests the process runs where it ran before; while it is timed, on as many CPUs as it has threads."""
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    seen: list[set[int]] = []
    torch.cgins_seen = seen  # type: ignore[attr-defined]
    params, buffers = request_for("tells_cpus")
    try:
        service.open(params, buffers)
        assert os.sched_getaffinity(0) == before
        seen.clear()
        service.blocks({"orders": ["KTTK"]}, [])
        assert {len(one) for one in seen} == {1}
        assert os.sched_getaffinity(0) == before
        service.finish({}, [])
        assert os.sched_getaffinity(0) == before
    finally:
        del torch.cgins_seen  # type: ignore[attr-defined]
