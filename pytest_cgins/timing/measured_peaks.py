"""What a device was measured to reach, kept in the user's cache folder; free of torch.

Unlike `timing.peaks`, which are bounds that nothing passes, these are what a plain copy and a library's product of
matrices get: the scale of a roofline. They gate nothing.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cgins.core import atomic, documents
from pytest_cgins.core.device import device_of
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.environment_key import Key, key_of
from pytest_cgins.core.session_report import Environment

logger = logging.getLogger(__name__)
MOST_AGE_S = 30 * 86400.0
MATMUL_DTYPES = ("float32", "tf32", "float16", "bfloat16")
LARGEST_FILE = 1 << 16
_SANE = (1e6, 1e18)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeaks(Document):
    """One measurement of one device."""

    key: Key
    """The device, driver and torch that the peaks belong to."""
    copy_bytes_per_s: float
    """A copy between two buffers beyond the last-level cache, bytes read and written."""
    matmul_flops_per_s: dict[str, float]
    """Product of two square matrices by `float32` (TF32 off), `tf32`, `float16`, `bfloat16`, a multiply-add being two;
    what the device has not, or takes too long for, is missing."""
    measured_at_s: float
    """When, in seconds since 1970."""
    seconds: float
    """How long it took."""

    def __post_init__(self) -> None:
        for name in self.matmul_flops_per_s:
            if name not in MATMUL_DTYPES:
                raise ValueError(f"no product of {name} is measured")
        for rate in (self.copy_bytes_per_s, *self.matmul_flops_per_s.values()):
            if not _SANE[0] <= rate <= _SANE[1]:  # NaN is not
                raise ValueError(f"no device reaches {rate} a second")
        if not (math.isfinite(self.measured_at_s) and math.isfinite(self.seconds)):
            raise ValueError("a time is not finite")

    def at_least(self, other: MeasuredPeaks) -> MeasuredPeaks:
        """The larger of each quantity in this and in a later measurement of the same device."""
        rates = (self.matmul_flops_per_s, other.matmul_flops_per_s)
        return replace(
            other,
            copy_bytes_per_s=max(self.copy_bytes_per_s, other.copy_bytes_per_s),
            matmul_flops_per_s={
                name: max(rate.get(name, 0.0) for rate in rates)
                for name in MATMUL_DTYPES
                if any(name in rate for rate in rates)
            },
        )

    def flops_per_s_of(self, dtype: str, *, tf32: bool = False) -> float:
        """Peak operations a second of products in a dtype by torch's name, 0 where none was measured.

        At least what float32 reaches, since a kernel may convert: a library's product of a type that the CPU has no
        arithmetic for can take a hundred times as long. With `tf32` factors of float32 may be rounded to TF32.
        """
        if dtype == "float32" and tf32:
            dtype = "tf32" if "tf32" in self.matmul_flops_per_s else dtype
        rate = self.matmul_flops_per_s.get(dtype, 0.0)
        return max(rate, self.matmul_flops_per_s.get("float32", 0.0)) if rate else 0.0


def key(environment: Environment) -> Key:
    """What a change of which makes peaks another thing.

    Peaks are stored under it: device, driver, torch, clock policy, and the cores of a CPU.
    """
    parts = {
        "device": environment.device_uuid or environment.device_name,
        "driver": environment.driver,
        "torch": environment.torch,
        "clocks": environment.clock_policy,
    }
    if not device_of(environment.device).is_accelerator:
        parts["cores"] = str(environment.host_cores)
    return key_of(parts)


def default_folder() -> Path:
    """`$CGINS_CACHE_DIR/peaks`, else in the user's cache folder."""
    return atomic.cache_folder("peaks")


def stored(
    environment: Environment, folder: Path | None = None, *, now_s: float | None = None
) -> MeasuredPeaks | None:
    """What is stored for a device; None if that is nothing, older than 30 days, from the future, or damaged."""
    wanted = key(environment)
    file = (folder or default_folder()) / f"{wanted.digest}.json"
    try:
        with file.open("rb") as opened:
            found = documents.load(MeasuredPeaks, opened.read(LARGEST_FILE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.info("measured peaks in %s are not used: %s", file, error)
        return None
    age = (time.time() if now_s is None else now_s) - found.measured_at_s
    return found if found.key == wanted and -86400 <= age <= MOST_AGE_S else None


def store(peaks: MeasuredPeaks, folder: Path | None = None) -> None:
    """Keep peaks for `stored`; a folder that cannot be written is logged, and the next run measures again."""
    folder = folder or default_folder()
    try:
        atomic.write_text(folder / f"{peaks.key.digest}.json", documents.dump(peaks, indent=1) + "\n")
    except OSError as error:
        logger.info("measured peaks are not kept in %s: %s", folder, error)
