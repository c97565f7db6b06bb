"""The keys that say which times and ratios may be compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core import documents
from pytest_cgins.core.environment_key import Key, hard_key, key_of, soft_key
from pytest_cgins.core.session_report import Environment

GPU = Environment(
    device="cuda", device_name="NVIDIA H200", python="3.11.9", torch="2.11.0", cuda="13.0", driver="580.65.06",
    triton="3.6.0", host_cores=16, device_uuid="GPU-1", sm_count=132, memory_nbytes=150_110_011_392, mig=False,
    ecc=True, clock_policy="default", cudnn="9.13.1", cublas="13.1.0", protocol=1,
)  # fmt: skip
CPU = Environment(
    device="cpu", device_name="a CPU", python="3.11.9", torch="2.11.0", host_cores=2,
    clock_policy="governor performance, turbo off", protocol=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "change", "moves_hard", "moves_soft"),
    [
        (GPU, {"device_name": "NVIDIA H100"}, True, False),
        (GPU, {"sm_count": 66}, True, False),
        (GPU, {"memory_nbytes": 75_000_000_000}, True, False),
        (GPU, {"mig": True}, True, False),
        (GPU, {"ecc": None}, True, False),
        (GPU, {"clock_policy": "applications-1410-mhz"}, True, False),
        (GPU, {"protocol": 2}, True, False),
        (GPU, {"driver": "581.10"}, False, True),
        (GPU, {"cuda": "13.1"}, False, True),
        (GPU, {"torch": "2.12.0"}, False, True),
        (GPU, {"triton": ""}, False, True),
        (GPU, {"cudnn": "9.14.0"}, False, True),
        (GPU, {"cublas": "13.2.0"}, False, True),
        (GPU, {"memory_nbytes": 150_000_000_000}, False, False),
        (GPU, {"device_uuid": "GPU-2"}, False, False),
        (GPU, {"host_cores": 8}, False, False),
        (GPU, {"python": "3.12.1"}, False, False),
        (CPU, {"device_name": "another CPU"}, True, False),
        (CPU, {"host_cores": 4}, True, False),
        (CPU, {"clock_policy": "governor powersave, turbo on"}, True, False),
        (CPU, {"torch": "2.12.0"}, False, True),
        (CPU, {"python": "3.12.1"}, False, True),
        (CPU, {"python": "3.11.10"}, False, False),
    ],
)
def test_keys_move_with_what_they_stand_for(
    environment: Environment, change: dict[str, Any], moves_hard: bool, moves_soft: bool
) -> None:
    """And with nothing else: two GPUs of one kind share a history, and a few MB that a driver keeps are no other GPU."""
    other = replace(environment, **change)
    assert (hard_key(environment).digest != hard_key(other).digest) is moves_hard
    assert (soft_key(environment).digest != soft_key(other).digest) is moves_soft


def test_a_case_is_part_of_the_hard_key() -> None:
    """The same op on other sizes takes another time."""
    one, two = (hard_key(GPU, {"trace": name}) for name in ("1b9c", "2f00"))
    assert one.digest != two.digest != hard_key(GPU).digest
    assert one.changes_to(two) == ("trace 1b9c → 2f00",)


def test_a_key_can_be_read() -> None:
    """All of it, in words."""
    assert str(soft_key(GPU)) == (
        "driver 580.65.06 · CUDA 13.0 · torch 2.11.0 · triton 3.6.0 · cuDNN 9.13.1 · cuBLAS 13.1.0"
    )
    assert "memory 140 GiB · MIG off · ECC on" in str(hard_key(GPU))
    assert str(soft_key(CPU)) == "torch 2.11.0 · triton none · python 3.11"


def test_a_part_that_comes_or_goes_is_a_change() -> None:
    """As when a version adds one."""
    assert key_of({"a": "1"}).changes_to(key_of({"b": ""})) == ("a 1 → none",)
    assert key_of({"a": "1"}).changes_to(key_of({"a": "1"})) == ()


@given(st.dictionaries(st.text(), st.text(min_size=1)), st.dictionaries(st.text(), st.text(min_size=1)))
def test_a_digest_stands_for_its_parts(one: dict[str, str], two: dict[str, str]) -> None:
    """Equal for equal ones, in whatever order, and only for them."""
    assert (key_of(one).digest == key_of(two).digest) is (one == two)
    assert key_of(dict(reversed(one.items()))).digest == key_of(one).digest


def test_a_digest_of_something_else_is_refused() -> None:
    """On reading too: breaks are found by digests and told by parts."""
    with pytest.raises(ValueError, match="the digest '0000000000000000' is not that of"):
        Key(digest="0" * 16, parts={"torch": "2"})
    text = documents.dump(soft_key(GPU))
    assert documents.load(Key, text) == soft_key(GPU)
    with pytest.raises(ValueError, match="is not that of"):
        documents.load(Key, text.replace("580", "581"))
