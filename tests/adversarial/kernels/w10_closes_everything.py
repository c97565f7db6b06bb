"""cheat: 10 closes the connection
how: closes every descriptor, so that no verdict can be told
caught-by: connection-closed
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

import os
import time

from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    os.closerange(3, 4096)
    time.sleep(0.3)
    return x.clone()
