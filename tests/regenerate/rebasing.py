"""A repository with a real kernel that is wrong and slow as its header says, and a proposal that does without the header."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_cgins.regenerate import proposal
from tests.evaluations import make_evaluation
from tests.regenerate import proposals
from tests.regenerate.projects import write
from tests.regenerate.proposals import git

PATH, HEADER = "kernels/clamp.cpp", "kernels/clamp.h"
YAML = """\
version: 1
traces: [traces/tiny]
kernels:
  clamp:
    op: torch.nn.functional.relu
    implementations:
      - {name: cpp, device: cpu, source: kernels/clamp.cpp}
"""
ODD = """\
      - {name: odd, device: cpu, source: kernels/clamp.cpp, defines: {ODD: 1}}
"""
"""A further implementation of the same source, which is wrong."""
_SOURCE = """\
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>
#include "clamp.h"

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const int64_t count = cgins::numel(input);
  LINE
#ifdef ODD
  y[0] += 1;
#endif
  return 0;
}
"""
OLD = _SOURCE.replace("LINE", "for (int64_t i = 0; i < count; ++i) y[i] = CLAMP(x[i]);")
NEW = _SOURCE.replace("LINE", "for (int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0 : x[i];")
"""Right for float32."""
WRONG = "#define CLAMP(v) (v)\n"
RIGHT = "#define CLAMP(v) ((v) < 0 ? 0 : (v))\n"
SLOW = """\
static float spun(float v) {
  for (volatile int i = 0; i < 2000; ++i) {}
  return v < 0 ? 0 : v;
}
#define CLAMP(v) spun(v)
"""
_RECORD = """\
import torch
import pytest_cgins
for name, dtype in (("tiny", torch.float32), ("double", torch.float64)):
    torch.manual_seed(0)
    with pytest_cgins.record(f"traces/{name}", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.randn(3, 8, dtype=dtype))
"""


def record(folder: Path) -> None:
    """The packs `tiny`, which the proposal is right for, and `double`, which it is not."""
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", _RECORD], cwd=folder, check=True)


def move(folder: Path, files: Mapping[str, str]) -> str:
    """Commit files; gives back the commit."""
    write(folder, files)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Work")
    return git(folder, "rev-parse", "HEAD")


def propose(folder: Path, **changes: Any) -> proposal.Proposal:
    """The proposal, with evidence that was made up."""
    goal = changes.setdefault("goal", "repair")
    known = {
        "target": proposals.target(kernel="clamp", op="torch.nn.functional.relu", goal=goal),
        "base": {PATH: OLD},
        "new": {PATH: NEW},
        "before": [],
        "after": proposals.accepted(make_evaluation(kernel="clamp")),
    }
    return proposals.write(folder, **known | changes)
