"""cheat: 15 calls the op in a scripted function
how: TorchScript runs it in its own interpreter, where no Python function is called
caught-by: op-callback
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from torch import Tensor

_GRAPH = torch._C.parse_ir(
    """
graph(%x : Tensor, %dim : int):
  %none : NoneType = prim::Constant()
  %y : Tensor = aten::softmax(%x, %dim, %none)
  return (%y)
"""
)
_RUN = torch._C._create_function_from_graph("run", _GRAPH)


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return _RUN(x, dim)
