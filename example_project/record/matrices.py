"""Record a sine and matrix products, plain and batched: `python -m record.matrices`."""

from pathlib import Path

import torch

import pytest_cgins
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = ["torch.matmul", "torch.sin"]


def main() -> None:
    torch.manual_seed(0)
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/matrices", ops=OPS):
        for dtype in DTYPES:
            torch.sin(3 * torch.randn(33, 129).to(dtype))
            torch.matmul(torch.randn(96, 200).to(dtype), torch.randn(200, 67).to(dtype))
            # One matrix for all heads, and the other factor transposed: neither lies row by row.
            query, key = torch.randn(2, 1, 37, 64).to(dtype), torch.randn(2, 3, 41, 64).to(dtype)
            torch.matmul(query, key.transpose(-1, -2))


if __name__ == "__main__":
    main()
