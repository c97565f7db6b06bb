"""`models:` of cgins.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.config import Config, Tolerance, load
from pytest_cgins.core.errors import ConfigError

FILE = """\
version: 1
gate: {tolerate: 3%, catch: 6%}
kernels:
  relu: {op: torch.relu, source: relu.cu}
models:
"""


def config(folder: Path, models: str) -> Config:
    (folder / "cgins.yaml").write_text(FILE + models)
    return load(folder / "cgins.yaml", require_sources=False)


def test_a_model_has_a_maker_and_the_gate_of_the_file(tmp_path: Path) -> None:
    """All else has a default; its own gate comes before the file's."""
    short, long = config(
        tmp_path,
        "  bert: {make: 'models.bert:make'}\n"
        "  net: {make: 'm:f', device: cpu, kernels: [relu/cuda], tolerance: {rtol: 1e-3}, gate: {catch: 9%}}\n",
    ).whole_models
    assert (short.name, short.make, short.device, short.chosen) == ("bert", "models.bert:make", "cuda", ())
    assert (short.tolerance, short.timing.tolerate, short.line) == (Tolerance(), 0.03, 6)
    assert (long.device, long.chosen, long.tolerance.rtol) == ("cpu", ("relu/cuda",), 1e-3)
    assert (long.timing.tolerate, long.timing.catch) == (0.03, 0.09)


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ("  bert: {device: cpu}\n", ':6: model "bert" has no "make"\n→ name what makes it, e.g. make: models.bert:make'),
        ("  bert: {make: models.bert}\n", 'make "models.bert" is not MODULE:FUNCTION'),
        ("  bert: {make: 'a:b', kernel: [x]}\n", 'unknown key "kernel" in model "bert"'),
        ("  bert: {make: 'a:b', device: tpu}\n", "device"),
        ("  b/c: {make: 'a:b'}\n", 'model name "b/c" has characters that a test id cannot have'),
        ("  bert: {make: 'a:b', gate: {registers: 2}}\n", "has limits of registers or spills\n→ give them to its kernels"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, models: str, told: str) -> None:
    """And what to write."""
    with pytest.raises(ConfigError) as error:
        config(tmp_path, models)
    assert told in str(error.value)
