"""What the Triton kernels ask of their tensors."""

import torch


def check_types(*tensors: torch.Tensor | None) -> None:
    """Raise TypeError unless those given have one type, fp32 or a narrower one: the kernels compute in fp32."""
    types = {tensor.dtype for tensor in tensors if tensor is not None}
    if len(types) != 1 or not types <= {torch.float16, torch.bfloat16, torch.float32}:
        raise TypeError(f"all must be float16, bfloat16 or float32, not {', '.join(sorted(map(str, types)))}")
