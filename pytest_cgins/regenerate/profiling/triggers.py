"""Evidence as plain figures by name: what methods are triggered by, and prompts tell."""

from __future__ import annotations

import math
import re

from pytest_cgins.core.measurement import Measurement
from pytest_cgins.regenerate.profiling.model import CaseProfile, ProfiledKernel
from pytest_cgins.regenerate.profiling.profile import main_kernel

_MOVED = ("dram__bytes_read.sum", "dram__bytes_write.sum")


def figures(
    measured: Measurement | None, profile: CaseProfile | None, *, sm_count: int = 0
) -> dict[str, float]:
    """All that is known of one case; what is not known is missing, and never 0.

    Args:
        measured: its times, with its roofline.
        profile: of the same build and case. Of several launches the longest counts.
        sm_count: multiprocessors of the device; 0 if that is not known.
    """
    found = _of_times(measured) if measured is not None else {}
    if profile is None:
        return found
    registers = max((one.registers_per_thread for one in profile.functions), default=0)
    found |= {"registers_per_thread": float(registers)} if registers else {}
    if profile.functions:
        found["local_nbytes"] = max(one.stack_nbytes_per_thread for one in profile.functions)
        spills = [one.spill_nbytes_per_thread for one in profile.functions]
        known = [nbytes for nbytes in spills if nbytes is not None]
        found |= {"spill_nbytes": float(max(known))} if known else {}
    if profile.timeline:
        found["launches_per_call"] = float(sum(one.count for one in profile.timeline))
    if profile.kernels:
        main = main_kernel(profile.kernels)
        found["launches_per_call"] = float(len(profile.kernels))
        found |= main.raw
        found |= {one.name: one.value for one in main.metrics}
        found |= _blocks(main, sm_count)
        found |= _moved(profile, measured)
    return found


def _of_times(measured: Measurement) -> dict[str, float]:
    found = {"us_per_call": measured.kernel.median_ns_per_call / 1e3}
    if measured.kernel.host_ns_per_call is not None:
        found["host_us_per_call"] = measured.kernel.host_ns_per_call / 1e3
    if measured.roofline is not None:
        found["share_of_bandwidth"] = measured.roofline.share_of_bandwidth
        found["share_of_compute"] = measured.roofline.share_of_compute
    return found


def _blocks(main: ProfiledKernel, sm_count: int) -> dict[str, float]:
    sizes = [int(size) for size in re.findall(r"\d{1,10}", main.grid)]
    return {"blocks_per_sm": math.prod(sizes) / sm_count} if sizes and sm_count > 0 else {}


def _moved(profile: CaseProfile, measured: Measurement | None) -> dict[str, float]:
    """Bytes that memory moved over those that the call must move."""
    needed = measured.roofline.nbytes if measured is not None and measured.roofline is not None else 0
    if not needed or not all(name in one.raw for one in profile.kernels for name in _MOVED):
        return {}
    moved = sum(one.raw[name] for one in profile.kernels for name in _MOVED)
    return {"bytes_over_minimum": moved / needed}
