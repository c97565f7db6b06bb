"""A service whose module opens a device as it is imported."""

from __future__ import annotations

from pathlib import Path

from toys import Toy

_device = Path("/dev/ptmx").open("rb")  # noqa: SIM115


class Service(Toy):
    """As every toy."""
