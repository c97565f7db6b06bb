"""How long cases took, in a file to be committed (`--cgins-durations`), and parts of a suite that take as long as each other."""

from __future__ import annotations

import hashlib
import heapq
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.core import atomic, documents
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Status

VERSION = 1
DIGITS = 2
"""Of a second: a case that takes as long as before changes no line of the file."""
UNKNOWN_S = 1.0
"""A case of a suite of which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations(Document):
    """The file."""

    version: int
    """Of this document: 1."""
    seconds: dict[str, float]
    """Wall time of a case by its name, `KERNEL/IMPLEMENTATION/PACK/SIGNATURE`, its build included if it was built then."""

    @property
    def digest(self) -> str:
        """Of what was read: parts that read different files may leave out a case."""
        return hashlib.sha256(documents.dump(self).encode()).hexdigest()[:16]

    def expected(self, names: Iterable[str]) -> dict[str, float]:
        """Seconds of each case: as recorded, else the median of its kernel's, else that of all."""
        by_kernel: defaultdict[str, list[float]] = defaultdict(list)
        for name, seconds in self.seconds.items():
            by_kernel[name.partition("/")[0]].append(seconds)
        usual = statistics.median(self.seconds.values()) if self.seconds else UNKNOWN_S
        medians = {kernel: statistics.median(seconds) for kernel, seconds in by_kernel.items()}
        return {name: self.seconds.get(name, medians.get(name.partition("/")[0], usual)) for name in names}


def read(path: Path) -> Durations:
    """The file.

    Raises:
        ConfigError: it is not there, or is none.
    """
    try:
        durations = documents.load(Durations, path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"{path} is not there, and shards are cut by it",
            remedy=f"run once with --cgins-durations={path} and without --cgins-shard, and commit it",
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} has no durations: {error}",
            remedy=f"write it anew: --cgins-durations={path} without --cgins-shard, or `cgins merge --durations`",
        ) from error
    return durations


def write(path: Path, evaluations: Iterable[Evaluation]) -> None:
    """Keep how long cases took; what the file has of others stays, as after a run with `-k`.

    Raises:
        OSError: it cannot be written.
    """
    try:
        known: Mapping[str, float] = read(path).seconds
    except ConfigError:
        known = {}
    new: defaultdict[str, float] = defaultdict(float)
    for evaluation in evaluations:
        if evaluation.verdict.status is not Status.SKIPPED and evaluation.stored is None:
            new[evaluation.case.name] += evaluation.seconds
    seconds = {**known, **{name: round(value, DIGITS) for name, value in new.items()}}
    durations = Durations(version=VERSION, seconds=dict(sorted(seconds.items())))
    atomic.write_text(path, documents.dump(durations, indent=1) + "\n")


def parts(seconds: Mapping[tuple[str, str], float], count: int) -> list[list[tuple[str, str]]]:
    """Cases, by name and pack, in so many parts that take about as long.

    The longest come first, each to the part that has least until then: a part takes at most 4/3 of the best possible
    (Graham 1969, Bounds on multiprocessing timing anomalies).
    """
    divided: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    loads = [(0.0, index) for index in range(count)]
    for case in sorted(seconds, key=lambda case: (-seconds[case], case)):
        load, index = heapq.heappop(loads)
        divided[index].append(case)
        heapq.heappush(loads, (load + seconds[case], index))
    return divided
