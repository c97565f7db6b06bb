"""Modules that build their extension as they are imported: by a compiler's limits, not by a kernel's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from pytest_cgins.recording.record import record

if TYPE_CHECKING:
    from conftest import Run

CONFIG = """
version: 1
traces: [traces/net]
kernels:
  negated:
    op: torch.neg
    target: inline:negated
    device: cpu
    probes: {op_callback: {off: "its arithmetic is torch's own"}}
"""
# Torch's own headers would take the compiler twenty seconds.
INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <Python.h>
static PyObject* negated(PyObject*, PyObject* arguments) {
  unsigned long long from, to;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(arguments, "KKn", &from, &to, &count)) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) ((float*)to)[i] = -((const float*)from)[i];
  Py_RETURN_NONE;
}
static PyMethodDef functions[] = {{"negated", negated, METH_VARARGS, ""}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "negated_inline", "", -1, functions};
PyMODINIT_FUNC PyInit_negated_inline() { return PyModule_Create(&definition); }
"""
module = load_inline(name="negated_inline", cpp_sources=SOURCE, no_implicit_headers=True)

def negated(input):
    output = torch.empty_like(input)
    module.negated(input.data_ptr(), output.data_ptr(), input.numel())
    return output
'''


@pytest.mark.exam
def test_an_extension_is_built_before_a_worker_imports_it(tmp_path: Path, run: Callable[..., Run]) -> None:
    """The compiler takes longer than a kernel may; the kernel passes, and the next run builds nothing."""
    with record(tmp_path / "traces" / "net", ops=["torch.neg"]):
        torch.neg(torch.randn(6, 10))
    for name, text in (("cgins.yaml", CONFIG), ("inline.py", INLINE), ("pytest.ini", "[pytest]\n")):
        (tmp_path / name).write_text(text)
    seconds = []
    for _ in range(2):
        options = (
            "--cgins-no-timing",
            "--cgins-probes=off",
            "--cgins-timeout=20",
            "--cgins-json=report.json",
            "-q",
        )
        done = run(tmp_path, "--cgins", *options, env={"CGINS_CACHE_DIR": str(tmp_path / "cache")})
        (evaluation,) = done.evaluations().values()
        assert evaluation["verdict"]["status"] == "PASSED", done.out
        seconds.append(evaluation["build_seconds"])
    assert seconds[0] > 0
    assert seconds[1] == 0
