"""A call's work against what its device reaches."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.config import DeclaredWork, Implementation, KernelEntry
from pytest_cgins.core import documents
from pytest_cgins.core.case import Case
from pytest_cgins.core.environment_key import key_of
from pytest_cgins.core.measurement import Arm, Measurement
from pytest_cgins.core.trace import Argument, Autocast, Context, OpCall, TensorMeta, Value
from pytest_cgins.gate.timing_stage import with_roofline
from pytest_cgins.timing.measured_peaks import MeasuredPeaks
from pytest_cgins.timing.roofline import factors_dtype, roofline
from pytest_cgins.verify.messages import PackedInputs

PEAKS = MeasuredPeaks(
    key=key_of({"device": "GPU-1"}), copy_bytes_per_s=1e12,
    matmul_flops_per_s={"float32": 1e13, "tf32": 1e14, "bfloat16": 2e14}, measured_at_s=0.0, seconds=0.1,
)  # fmt: skip
CASE = Case(
    kernel="it", implementation="cuda", device="cuda:0", op="torch.mm", pack="p", pack_path="/p", trace_id="1" * 16,
    signature="s", dtype="float32",
)  # fmt: skip


def meta(*shape: int, storage: int = 0) -> TensorMeta:
    stride = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return TensorMeta(dtype="float32", shape=shape, stride=stride, offset=0, storage=storage)


def argument(name: str, kind: Any, value: Any = None, items: tuple[Value, ...] = ()) -> Argument:
    return Argument(name=name, value=Value(kind=kind, value=value, items=items), passed="positional")


MM = OpCall(op="torch.mm", arguments=(argument("input", "tensor", 0), argument("mat2", "tensor", 1)))
FACTORS, PRODUCT = (meta(1000, 500), meta(500, 2000, storage=1)), (meta(1000, 2000),)
NBYTES, FLOPS = 4 * (500_000 + 1_000_000 + 2_000_000), 2_000_000_000


def drawn(declared: DeclaredWork | None = None, *, call: OpCall = MM, **given: Any) -> Any:
    told = {
        "median_ns_per_call": 1e6,
        "dtype": "float32",
        "tf32": False,
        "cache": "cold",
        "peaks": PEAKS,
        **given,
    }
    return roofline(call, FACTORS, PRODUCT, [], declared or DeclaredWork(), **told)


def test_from_the_signature() -> None:
    """A product of matrices that takes 1 ms: 14 MB at 1 TB/s, 2 GFLOP at 10 TFLOP/s."""
    found, notes = drawn()
    assert (found.nbytes, found.flops, found.source) == (NBYTES, FLOPS, "signature")
    assert found.share_of_bandwidth == pytest.approx(0.014)
    assert found.share_of_compute == pytest.approx(0.2)
    assert (found.bound, notes) == ("compute", ())
    assert (found.peak_bytes_per_s, found.peak_flops_per_s) == (1e12, 1e13)


@pytest.mark.parametrize(
    ("given", "rate", "share", "bound"),
    [
        ({"tf32": True}, 1e14, 0.02, "compute"),
        ({"dtype": "bfloat16"}, 2e14, 0.01, "memory"),
        ({"dtype": "float64"}, 0.0, 0.0, "memory"),
    ],
)
def test_peaks_are_those_of_the_dtype(given: dict[str, Any], rate: float, share: float, bound: str) -> None:
    """Operations are held against products of their type; where none was measured, only bytes are told."""
    found, _ = drawn(**given)
    assert (found.peak_flops_per_s, found.bound) == (rate, bound)
    assert found.share_of_compute == pytest.approx(share)


@pytest.mark.parametrize(
    ("nbytes", "flops", "expected"),
    [
        ("1000", "", (1000, FLOPS)),
        ("", "2e9", (NBYTES, 2_000_000_000)),
        ("input.nbytes + out.nbytes", "2 * input.size(0) * numel(mat2)", (10_000_000, FLOPS)),
        ("3 * input.itemsize * outs[0].size(-1)", "0", (24_000, 0)),
        ("input.shape[0] // 3", "1.5 * 3", (333, 4)),
    ],
)
def test_declared_work(nbytes: str, flops: str, expected: tuple[int, int]) -> None:
    """What cgins.yaml declares comes before the signature, each of both by itself."""
    found, notes = drawn(DeclaredWork(nbytes=nbytes, flops=flops))
    assert (found.nbytes, found.flops) == expected
    assert (found.source, notes) == ("declared", ())


def test_names_of_declared_work() -> None:
    """Numbers, lists, missing tensors and a module's state are there under their names."""
    call = OpCall(
        op="m.f",
        arguments=(
            argument("xs", "list", None, (Value(kind="tensor", value=0), Value(kind="tensor", value=1))),
            argument("self.weight", "tensor", 1),
            argument("p", "none"),
            argument("scale", "float", (0.5).hex()),
            argument("heads", "int", 8),
            argument("out", "int", 7),
        ),
    )
    text = "len(xs) + xs[1].size(0) + size(self_weight, 1) + (1 if p is None else 0) + scale * heads + out"
    found, _ = drawn(DeclaredWork(flops=text), call=call)
    assert found.flops == 2 + 500 + 2000 + 1 + 4 + 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("inptu.numel()", "no roofline: nothing is called 'inptu'; did you mean \"input\"? (work of the kernel in cgins.yaml)"),
        ("input.size(5)", "no roofline: input has 2 dimensions, none with number 5"),
        ("numel(input) - 10**9", "is -9.995e+08, not a number from 0 up to 2^63"),
        ("input.shape", "is (1000, 500), not a number"),
        ("input.numel() ** 4", "a number does not fit into 64 bits"),
        ("1 / (numel(input) - 500000)", "division by zero"),
        ("numel(input) > 3", "is True, not a number"),
    ],
)  # fmt: skip
def test_work_without_a_value_is_a_note(text: str, said: str) -> None:
    """An expression that has no value for a call leaves that call without a roofline, and says why."""
    found, (note,) = drawn(DeclaredWork(flops=text))
    assert found is None
    assert said in note


def test_nothing_to_tell() -> None:
    """Without time or work there is no roofline."""
    assert drawn(median_ns_per_call=0.0) == (None, ())
    assert drawn(DeclaredWork(nbytes="0", flops="0")) == (None, ())


def test_more_than_a_copy_is_noted() -> None:
    """More than the bandwidth of a copy with cold caches has a note with its remedy; with warm ones it is what caches do."""
    quick: Any = {"median_ns_per_call": 1e4, "dtype": "float64"}
    found, (note,) = drawn(**quick)
    assert found.share_of_bandwidth == pytest.approx(1.4)
    assert note.startswith("roofline: 140% of the bandwidth of a copy, with inputs that no cache holds")
    assert "the 14,000,000 bytes that its signature has" in note
    assert "say what it moves with work: {bytes: …}, or measure them again: cgins calibrate --peaks" in note
    assert drawn(**quick, cache="warm")[1] == ()
    assert drawn(median_ns_per_call=1.3e4, dtype="float64")[1] == ()  # within the leeway


def test_who_counted_is_said_of_each() -> None:
    """Where operations alone are declared, bytes are still the signature's."""
    _, (note,) = drawn(DeclaredWork(flops="0"), median_ns_per_call=1e4)
    assert "the 14,000,000 bytes that its signature has" in note


def test_what_judges_knows_nothing_of_what_is_declared() -> None:
    """The probe `physical_floor` rests on the op's least work: neither it nor the judge can see cgins.yaml's `work`."""
    package = files("pytest_cgins")
    for place in ("verify", "run"):
        for file in (package / place).iterdir():
            if file.name.endswith(".py"):
                text = file.read_text(encoding="utf-8")
                assert not re.search(r"DeclaredWork|declared_work|kernel\.work|nominal", text), file.name


def test_more_than_a_product_is_noted() -> None:
    """Operations beyond the measured peak have a note, whoever counted them."""
    found, (note,) = drawn(DeclaredWork(flops="4e10"))
    assert found.share_of_compute == pytest.approx(4.0)
    assert "400% of what a product of matrices reaches" in note
    assert "the 40,000,000,000 operations that cgins.yaml declares" in note
    assert note.endswith("or measure them again: cgins calibrate --peaks")


@pytest.mark.parametrize(
    ("dtype", "autocast", "expected"),
    [
        ("float32", (), "float32"),
        ("float32", ("cuda",), "bfloat16"),
        ("float32", ("cpu",), "bfloat16"),
        ("float32", ("cpu", "cuda"), "bfloat16"),
        ("float16", ("cuda",), "float16"),
    ],
)
def test_autocast_lowers_factors(dtype: str, autocast: tuple[str, ...], expected: str) -> None:
    """Under autocast products of fp32 are held against the lower precision."""
    lower = {"cpu": "float16" if len(autocast) == 2 else "bfloat16", "cuda": "bfloat16"}
    states = tuple(Autocast(device_type=one, dtype=lower[one]) for one in autocast)
    assert factors_dtype(replace(CASE, dtype=dtype), Context(autocast=states)) == expected


def test_into_a_measurement() -> None:
    """A measurement gets its roofline from the set that was timed, and keeps its own notes."""
    arm = Arm(
        name="kernel",
        samples_ns_per_call=(1e4,),
        calls_per_batch=1,
        median_ns_per_call=1e4,
        iqr_ns_per_call=0.0,
    )
    measured = Measurement(
        method="cuda-graph", cache="cold", orders="KTTK", kernel=arm, torch=replace(arm, name="torch"),
        speedup_vs_torch=1.0, speedup_low=1.0, speedup_high=1.0, notes=("own",),
    )  # fmt: skip
    made = Implementation(name="cuda", device="cuda", contract="launcher", sources=())
    kernel = KernelEntry(name="it", op="torch.mm", implementations=(made,), allow_tf32=True)
    header = {"metas": [documents.dump_python(one) for one in FACTORS], "spans": []}
    inputs = PackedInputs(name="recorded", call=MM, tensors=header, outputs=tuple(PRODUCT))
    found = with_roofline(measured, inputs, kernel, CASE, PEAKS)
    assert found.roofline is not None
    assert found.roofline.peak_flops_per_s == 1e14
    assert found.notes[0] == "own"
    assert len(found.notes) == 3
    assert replace(found, roofline=None, notes=("own",)) == measured
    assert documents.load(Measurement, documents.dump(found)) == found


ATOMS = st.sampled_from(
    ["input", "mat2", "out", "outs", "p", "input.numel()", "input.nbytes", "mat2.size(0)", "input.shape", "2", "1e300",
     "0", "None", "'a'", "input.dtype", "outs[3]", "2**62"]
)  # fmt: skip
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]), inner)
        .map(" ".join)
        .map("({})".format),
        st.tuples(st.sampled_from(["numel", "len", "prod", "min", "int", "float", "has"]), inner).map(
            lambda pair: f"{pair[0]}({pair[1]})"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(EXPRESSIONS, st.text(max_size=20)), st.floats(1e-3, 1e12))
def test_whatever_is_declared(text: str, median: float) -> None:
    """Any text gives a roofline of finite, positive shares, or a note, and never raises."""
    found, notes = drawn(DeclaredWork(nbytes=text), median_ns_per_call=median)
    if found is None:
        assert len(notes) <= 1
        return
    assert 0 <= found.nbytes <= 2**63
    assert 0 <= found.share_of_bandwidth < math.inf
