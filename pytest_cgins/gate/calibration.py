"""What is known of a device's noise: kept in the user's cache folder, found again under the same environment."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.core import atomic, documents
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.environment_key import Key, hard_key, key_of, soft_key
from pytest_cgins.core.session_report import Environment
from pytest_cgins.gate.case_timing import Noise, NoiseOf
from pytest_cgins.timing.process_noise import ProcessNoise

logger = logging.getLogger(__name__)
CALIBRATION_VERSION = 1
LARGEST_FILE = 1 << 18
MOST_FILES = 256
"""So many files of the folder, at most, are looked at."""
BOUNDS_NS: dict[str, tuple[float, float]] = {
    "under-3us": (0.0, 3e3),
    "3-to-30us": (3e3, 3e4),
    "30-to-150us": (3e4, 1.5e5),
    "over-150us": (1.5e5, math.inf),
}
"""Size classes: what a call takes, from the first bound on and below the second."""
ASSUMED_SPREADS = {"under-3us": 0.007, "3-to-30us": 0.003, "30-to-150us": 0.003, "over-150us": 0.003}
"""Between processes, where nothing was calibrated: what an H200 had. It is not 0 on any device."""
LONGER = (1.0, 2.0, 4.0, 8.0)
"""Factors for the length of batches that are tried."""
COMMAND = "cgins calibrate"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass(ProcessNoise, Document):
    """Noise of calls of about one length. Log ratios: 0.01 is 1%."""

    name: str
    """One of `under-3us`, `3-to-30us`, `30-to-150us`, `over-150us`: what a call takes."""
    cases: tuple[str, ...]
    """Names of the cases that were timed against a second build of themselves."""
    processes: int
    """Processes that each was timed in."""
    blocks: int
    """Most blocks of a case in a process."""
    longer: float
    """Factor for the length of batches, at which all of this was measured and is to be: 1, 2, 4 or 8."""

    def __post_init__(self) -> None:
        if self.name not in BOUNDS_NS:
            raise ValueError(f"{self.name!r} is not a size class: they are {', '.join(BOUNDS_NS)}")
        if self.longer not in LONGER:
            raise ValueError(f"batches are longer by {self.longer}: one of {LONGER} is meant")
        for name in ("spread", "spread_upper", "sigma", "rho_error", "offset"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be finite and at least 0")
        if not -1 <= self.rho <= 1:
            raise ValueError(f"rho is {self.rho}: it must lie between -1 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(Document):
    """One device under one set of versions."""

    version: int
    """Schema version, `CALIBRATION_VERSION`."""
    key: Key
    """Device, clocks, driver and libraries: of another it says nothing."""
    cgins: str
    """Version of pytest-cgins that measured."""
    measured_at_s: float
    """When, in seconds since 1970."""
    seconds: float
    """How long it took."""
    classes: tuple[SizeClass, ...]
    """The size classes that had a kernel, from short calls to long ones."""

    def __post_init__(self) -> None:
        if self.version != CALIBRATION_VERSION:
            raise ValueError(f"version is {self.version}: {CALIBRATION_VERSION} is read")
        names = [one.name for one in self.classes]
        if not names or names != [name for name in BOUNDS_NS if name in names]:
            raise ValueError(f"the size classes are {names}: each once at most, one at least, by size")
        if not (math.isfinite(self.measured_at_s) and math.isfinite(self.seconds)):
            raise ValueError("a time is not finite")


@dataclass(frozen=True, slots=True)
class Found:
    """What is stored for a device, or why nothing is."""

    calibration: Calibration | None
    why: str = ""


class Calibrations:
    """Noise by environment, from the files that are there as this is made: before any kernel runs, which could write some."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: another one than `default_folder`."""
        self._files = contents(folder)
        self._known: dict[str, NoiseOf] = {}

    def noise(self, environment: Environment) -> NoiseOf:
        """What is known of the noise of the device of an environment."""
        wanted = key(environment)
        if wanted.digest not in self._known:
            found = stored(environment, self._files)
            self._known[wanted.digest] = noise_of(found)
        return self._known[wanted.digest]


def key(environment: Environment) -> Key:
    """What a change of which makes noise another thing: both keys of the environment."""
    return key_of({**hard_key(environment).parts, **soft_key(environment).parts})


def size_class(ns_per_call: float) -> str:
    """Name of the class that calls of so many nanoseconds are in."""
    return next(name for name, (_, below) in BOUNDS_NS.items() if ns_per_call < below)


def stands_in(calibration: Calibration, name: str) -> SizeClass:
    """The class of this name, else the next shorter one, else the shortest there is.

    Shorter calls are noisier, so that the class below says rather too much.
    """
    classes = {one.name: one for one in calibration.classes}
    names = list(BOUNDS_NS)
    shorter = reversed(names[: names.index(name) + 1])
    return next((classes[one] for one in shorter if one in classes), calibration.classes[0])


def noise_of(found: Found) -> NoiseOf:
    """The noise of calls of any length, from their class or a substitute for it."""
    calibration = found.calibration
    if calibration is None:
        return lambda ns: Noise(spread_upper=ASSUMED_SPREADS[size_class(ns)], why=found.why)

    def noise(ns_per_call: float) -> Noise:
        one = stands_in(calibration, size_class(ns_per_call))
        return Noise(spread_upper=one.spread_upper, longer=one.longer)

    return noise


def default_folder() -> Path:
    """`$CGINS_CACHE_DIR/calibration`, else in the user's cache folder."""
    return atomic.cache_folder("calibration")


def contents(folder: Path | None = None) -> dict[Path, bytes]:
    """What the files of a folder have, by default those of `default_folder`; what cannot be read is left out."""
    found: dict[Path, bytes] = {}
    folder = folder or default_folder()
    for file in sorted(folder.glob("*.json"))[:MOST_FILES] if folder.is_dir() else ():
        try:
            with file.open("rb") as opened:
                found[file] = opened.read(LARGEST_FILE)
        except OSError as error:
            logger.warning("the calibration in %s is not used: %s", file, error)
    return found


def stored(environment: Environment, files: Mapping[Path, bytes]) -> Found:
    """What is stored for a device under this driver and these libraries, in files as of `contents`."""
    wanted = key(environment)
    known = _newest(files)
    for one in known:
        if one.key == wanted:
            return Found(one)
    for other in known:
        if other.key.parts.get("device") == wanted.parts["device"]:
            changes = ", ".join(other.key.changes_to(wanted))
            return Found(None, f"{environment.device_name} was calibrated under other conditions: {changes}")
    return Found(None, f"{environment.device_name} was not calibrated")


def store(calibration: Calibration, folder: Path | None = None) -> Path:
    """Keep a calibration for `stored`, in the place of an older one.

    Returns:
        Its file.

    Raises:
        OSError: the folder cannot be written.
    """
    path = (folder or default_folder()) / f"{calibration.key.digest}.json"
    atomic.write_text(path, documents.dump(calibration, indent=1) + "\n")
    return path


def _newest(files: Mapping[Path, bytes]) -> list[Calibration]:
    """All that can be read, the latest first."""
    found = []
    for file, text in files.items():
        try:
            found.append(documents.load(Calibration, text))
        except ValueError as error:
            logger.warning("the calibration in %s is not used: %s", file, error)
    return sorted(found, key=lambda one: -one.measured_at_s)
