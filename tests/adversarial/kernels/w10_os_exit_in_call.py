"""cheat: 10 os._exit(0) in the call
how: prints what a test runner would print, and is gone
caught-by: exited
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import os

from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    print("cgins.yaml::relu PASSED", flush=True)
    os._exit(0)
