"""Where and with what something is recorded or measured."""

from __future__ import annotations

import torch

from pytest_cgins.core.device import device_of
from pytest_cgins.core.model import Origin


def origin_of(device: torch.device | str) -> Origin:
    """Device and torch of this process."""
    name = str(device)
    return Origin(device=name.partition(":")[0], device_name=device_of(name).model(), torch=torch.__version__)
