"""A model inside a CUDA graph must do what it does outside, or a graph's time is of another program.

transformers builds attention masks while a graph is captured, which a run leaves out where they are empty: with them BERT's
and ViT's layers took two to three times as long on an H200.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from pytest_cgins.core.text import counted

_SHOWN = 3


@contextmanager
def untold() -> Iterator[None]:
    """Python code that asks torch whether a graph is being captured hears that none is."""
    places: tuple[Any, ...] = (torch.cuda, torch.cuda.graphs)
    own = torch.cuda.is_current_stream_capturing

    def none() -> bool:
        return False

    try:
        for place in places:
            place.is_current_stream_capturing = none
        yield
    finally:
        for place in places:
            place.is_current_stream_capturing = own


def other_work(in_run: Mapping[Any, int], in_capture: Mapping[Any, int]) -> str:
    """How the operators that a capture calls differ from a run's, the most frequent first; "" if they do not.

    Args:
        in_run: how often each is called outside of a capture.
        in_capture: how often inside.
    """
    more = Counter(in_capture) - Counter(in_run)
    fewer = Counter(in_run) - Counter(in_capture)
    told = [f"{number} × {name} more" for name, number in more.most_common(_SHOWN)]
    told += [f"{number} × {name} fewer" for name, number in fewer.most_common(_SHOWN)]
    rest = len(more) + len(fewer) - len(told)
    return ", ".join(told) + (f", and {counted(rest, 'other')}" if rest else "")
