"""What clang-tidy says of sources, from the program itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.config import load
from pytest_cgins.regenerate.profiling import environment, tidy
from pytest_cgins.regenerate.profiling.evidence_documents import TidyEvidence
from pytest_cgins.run.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.exam

YAML = """\
version: 1
kernels:
  scale:
    op: torch.relu
    source: scale.cpp
"""
SOURCE = """\
// cgins: scale(Tensor input) -> Tensor
#include <cgins.h>
{more}
extern "C" int scale(const DLTensor* input, DLTensor* out, cgins_stream) {{
  const double half = cgins::numel(input) / 2;
  cgins::data<float>(out)[0] = half;
  return 0;
}}
"""


def tidied(folder: Path, more: str = "", *, sandbox: Sandbox | None = None) -> TidyEvidence:
    """What is found in a project of one kernel."""
    folder.mkdir()
    (folder / "cgins.yaml").write_text(YAML)
    (folder / "scale.cpp").write_text(SOURCE.format(more=more))
    config = load(folder / "cgins.yaml")
    (entry,) = config.kernels
    program = environment.find_clang_tidy()
    return tidy.evidence(config, entry, entry.implementations, program, sandbox=sandbox)


@pytest.mark.parametrize("fenced", [False, True])
def test_a_mistake_that_a_reader_sees_is_found(tmp_path: Path, fenced: bool) -> None:
    """A quotient of whole numbers becomes a double: file, line and the name of the check; in the sandbox, too."""
    made = tidied(tmp_path / "project", sandbox=Sandbox(devices=False) if fenced else None)
    assert made.degraded == ()
    assert [(one.file, one.line, one.check) for one in made.findings] == [
        ("scale.cpp", 5, "bugprone-integer-division")
    ]


def test_in_the_sandbox_a_source_cannot_have_other_files_quoted(tmp_path: Path) -> None:
    """What it includes from elsewhere is not there; outside of the sandbox it would be read."""
    secret = tmp_path / "secret.h"
    secret.write_text("int token = nonsense_of_the_user;\n")
    more = f'#include "{secret}"'
    assert "nonsense_of_the_user" in str(tidied(tmp_path / "open", more))
    made = tidied(tmp_path / "fenced", more, sandbox=Sandbox(devices=False))
    assert "nonsense_of_the_user" not in str(made)
    assert "secret.h" in str(made.degraded)
