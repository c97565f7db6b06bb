"""honest: tries a fast way that this machine has not, logs the exception with its traceback, and goes another way
ops: torch.nn.functional.relu
packs: f32 bf16
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import logging
import traceback

import torch
from torch import Tensor

_LOG = logging.getLogger(__name__)


@functools.cache
def _has_fast_way() -> bool:
    try:
        importlib.import_module("a_library_that_nobody_has")
    except ImportError:
        _LOG.exception("no fast way")
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            traceback.print_exc(file=told)
        _LOG.debug(told.getvalue(), stack_info=True, stacklevel=2)
        return False
    return True


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    assert not _has_fast_way()
    return torch.where(x < 0, torch.zeros((), dtype=x.dtype), x)
