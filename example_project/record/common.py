"""What the recording scripts share."""

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
