"""Whether NVRTC already knows that nvcc will refuse a source: no process need be started for its kernel meanwhile.

nvcc is asked all the same, and its word alone counts: a source that NVRTC refuses and nvcc takes is only tried later.
"""

from __future__ import annotations

from pathlib import Path

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.builders import prefilter
from pytest_cgins.building.compilers import architectures
from pytest_cgins.building.contracts.source import read
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.model import KernelSource

LIMIT_S = 1.0
"""Longer than that it is not asked: a source with headers of thousands of lines may take NVRTC as long as nvcc."""


def is_doomed(source: KernelSource, builds: BuildQueue) -> bool:
    """Whether NVRTC refuses device code of a source that nvcc builds; False where there is no NVRTC, or it cannot tell.

    Args:
        source: of any contract; `device` is built by NVRTC itself.
        builds: whose sandbox is put around it, and which rest while something is timed.
    """
    files = [Path(file) for file in source.files if file.endswith(".cu")]
    if source.contract not in ("launcher", "torch-extension") or not files:
        return False
    try:
        arch = (source.archs or architectures.present_archs())[0]
        with builds.lent():
            return any(
                prefilter.check(read(file), file, arch, flags=source.flags, limit_s=LIMIT_S).verdict
                == "refused"
                for file in files
            )
    except (CginsError, OSError):
        return False
