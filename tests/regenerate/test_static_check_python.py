"""The static check of Python: each code with what it catches, and the legal code beside it."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.config import load
from pytest_cgins.regenerate.static_check import check

SOFTMAX = "torch.nn.functional.softmax"
CHECKS, DECODER = ({"before.py": f"import {name}"} for name in ("kernels.checks", "models.decoder"))
"""Sources that may be replaced, and import a module of the project."""
EXAMPLE = Path(__file__).parents[2] / "example_project"


def codes(text: str, *, op: str = SOFTMAX) -> list[tuple[str, int]]:
    text = textwrap.dedent(text)
    ast.parse(text)
    found = check({"kernels/softmax.py": text}, op=op, contract="python", incumbent=CHECKS)
    return [(each.code, each.line) for each in found]


CAUGHT = {
    "torch": ("import torch\ny = torch.softmax(x, 1)", "calls-op"),
    "functional": ("import torch\ny = torch.nn.functional.softmax(x, 1)", "calls-op"),
    "alias": ("import torch.nn.functional as F\ny = F.softmax(x, 1)", "calls-op"),
    "from": ("from torch.nn import functional as g\ny = g.softmax(x, 1)", "calls-op"),
    "name": ("from torch.nn.functional import softmax as s\ny = s(x, 1)", "calls-op"),
    "star": ("from torch.nn.functional import *\ny = softmax(x, 1)", "dynamic-code"),
    "assigned": ("import torch\nt = torch\nn = t.nn\ny = n.functional.softmax(x, 1)", "calls-op"),
    "tuple": ("import torch\na, b = torch, 1\ny = a.softmax(x, 1)", "calls-op"),
    "default": ("import torch\ndef f(x, t=torch):\n    return t.softmax(x, 1)", "calls-op"),
    "walrus": ("import torch\ny = (t := torch).softmax(x, 1)", "calls-op"),
    "reference": ("import torch\nf = torch.softmax", "calls-op"),
    "getattr": ("import torch\nf = getattr(torch, 'softmax')", "calls-op"),
    "getattr in parts": ('import torch\nf = getattr(torch, "soft" + "max")', "calls-op"),
    "getattr of an f-string": ("import torch\nf = getattr(torch, f\"soft{'max'}\")", "calls-op"),
    "getattr computed": ("import torch\nf = getattr(torch, ''.join(n))", "dynamic-code"),
    "method": ("y = x.softmax(1)", "calls-op"),
    "other of the family": ("import torch\ny = torch.log_softmax(x, 1).exp()", "calls-op"),
    "special": ("import torch\ny = torch.special.softmax(x, 1)", "calls-op"),
    "internal": ("import torch\ny = torch._softmax(x, 1, False)", "calls-op"),
    "aten": ("import torch\ny = torch.ops.aten._softmax(x, 1, False)", "calls-op"),
    "C": ("import torch\ny = torch._C._nn.softmax(x)", "calls-op"),
    "module": ("from torch import nn\ny = nn.Softmax(1)(x)", "calls-op"),
    "compile": ("import torch\nf = torch.compile(g)", "calls-op"),
    "jit": ("import torch\nf = torch.jit.script(g)", "calls-op"),
    "unbound method": ("import torch\ny = torch.Tensor.softmax(x, 1)", "calls-op"),
    "partial": ("import functools\nimport torch\nf = functools.partial(torch.softmax, dim=1)", "calls-op"),
    "in a lambda": ("import torch\nf = lambda x: torch.softmax(x, 1)", "calls-op"),
    "autograd": ("import torch\ny = torch.autograd.grad(x, y)", "calls-op"),
    "backward": ("x.backward()", "calls-op"),
    "os": ("import os", "process"),
    "subprocess": ("from subprocess import run", "process"),
    "in a function": ("def f():\n    import subprocess", "process"),
    "ctypes": ("import ctypes", "process"),
    "os of another": ("import functools\nfunctools.os.system('x')", "dynamic-code"),
    "os of torch": ("import torch\ntorch.os.system('x')", "process"),
    "cpp_extension": ("from torch.utils.cpp_extension import load_inline", "process"),
    "exit": ("exit()", "process"),
    "SystemExit": ("raise SystemExit(0)", "process"),
    "open": ("open('x').read()", "file-access"),
    "pathlib": ("from pathlib import Path", "file-access"),
    "pickle": ("import pickle", "file-access"),
    "torch.load": ("import torch\ntorch.load('x')", "file-access"),
    "tofile": ("x.tofile('x')", "file-access"),
    "file": ("here = __file__", "file-access"),
    "proc": ("p = '/proc/self/maps'", "file-access"),
    "socket": ("import socket", "network"),
    "requests": ("import requests", "network"),
    "hub": ("import torch\ntorch.hub.load('a', 'b')", "network"),
    "threading": ("import threading", "threads"),
    "multiprocessing": ("from torch.multiprocessing import Pool", "threads"),
    "async": ("async def f():\n    pass", "threads"),
    "exec": ("exec('x')", "dynamic-code"),
    "eval by another name": ("e = eval\ne('1')", "dynamic-code"),
    "import by name": ("__import__('os')", "dynamic-code"),
    "importlib": ("import importlib", "dynamic-code"),
    "builtins": ("b = __builtins__", "dynamic-code"),
    "globals": ("g = globals()", "introspection"),
    "sys": ("import sys", "introspection"),
    "frames": ("f = x.gi_frame", "introspection"),
    "subclasses": ("c = ().__class__.__base__.__subclasses__()", "introspection"),
    "code": ("f.__code__ = g", "introspection"),
    "finalizer": ("class A:\n    def __del__(self): pass", "introspection"),
    "gc": ("import gc", "introspection"),
    "patch": ("import torch\ntorch.allclose = f", "patches-torch"),
    "patch of a class": ("from torch import Tensor\nTensor.clone = f", "patches-torch"),
    "patch in a function": ("import torch\ndef f():\n    torch.cuda.Event.elapsed_time = g", "patches-torch"),
    "patch of a tuple": ("import torch\na, torch.equal = 1, f", "patches-torch"),
    "setattr": ("import torch\nsetattr(torch, 'equal', f)", "patches-torch"),
    "flags": ("import torch\ntorch.backends.cuda.matmul.allow_tf32 = True", "patches-torch"),
    "default type": ("import torch\ntorch.set_default_dtype(torch.half)", "patches-torch"),
    "library": ("import torch\nl = torch.library.Library('aten', 'IMPL')", "patches-torch"),
    "subclass": ("import torch\nclass A(torch.Tensor): pass", "patches-torch"),
    "patch of triton": ("import triton\ntriton.testing.do_bench = f", "patches-torch"),
    "device": ("import torch\ntorch.cuda.set_device(0)", "device-state"),
    "pytest": ("import pytest", "self-recognition"),
    "own": ("from pytest_cgins.packs import recipe", "self-recognition"),
    "variable": ("x = 'PYTEST_CURRENT_TEST'", "self-recognition"),
    "unknown import": ("import numpy", "import"),
    "other module of the project": ("from models.decoder import rms_norm", "import"),
    "relative import": ("from .other import f", "import"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "code"), CAUGHT.values(), ids=list(CAUGHT))
def test_caught(text: str, code: str) -> None:
    """What a kernel may not do is found, by whatever name it goes."""
    assert code in {each for each, _ in codes(text)}


LEGAL = {
    "Triton": """
        import math
        import torch
        import triton
        import triton.language as tl
        from triton.language.extra import libdevice
        from kernels.checks import check_types

        @triton.autotune(configs=[triton.Config({"BLOCK": 128}, num_warps=4)], key=["n"])
        @triton.jit
        def rows(x, y, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            v = tl.load(x + i, mask=i < n, other=-float("inf"))
            tl.store(y + i, tl.softmax(v).to(y.dtype.element_ty), mask=i < n)

        def softmax(input, dim, dtype=None):
            check_types(input)
            open_ = input.contiguous().view(-1, input.shape[dim])
            out = torch.empty_like(open_)
            rows[(triton.cdiv(open_.numel(), 128),)](open_, out, open_.numel())
            return out.view(input.shape).to(input.dtype)
        """,
    "docstring": '"""Replaces torch.softmax; open(), exec, pytest and os are words here."""\n# import os\n',
    "string": "x = 'torch.softmax and import os'",
    "own function": "def softmax(x):\n    return x\ny = softmax(1)",
    "parameter of a builtin's name": "def f(input, vars=1):\n    return input, vars",
    "allocation and views": "import torch\ny = torch.zeros(3).view(1, 3).transpose(0, 1).expand(3, 3).contiguous()\n"
    "z = torch.empty((2,), dtype=torch.float32, device=y.device).as_strided((1,), (1,))",
    "math of others": "import math\nimport torch\ny = torch.exp(x - x.amax(-1, keepdim=True)) * math.exp(1)",
    "streams": "import torch\ns = torch.cuda.current_stream().cuda_stream\nn = torch.cuda.get_device_properties(0)",
    "autograd function": "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
    "        return x\n    @staticmethod\n    def backward(ctx, g):\n        return g\ny = F.apply(x)",
    "no grad": "import torch\nwith torch.no_grad():\n    pass",
    "own attributes": "class A:\n    def __init__(self):\n        self.x = 1\na = A()\na.x = 2\na.y[0] = 3",
    "kernel cache": "from functools import cache, lru_cache\n@cache\ndef f(n):\n    return n",
    "dataclass": "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int",
    "errors": "def f(x):\n    if x.ndim != 2:\n        raise ValueError(f'{x.ndim} axes')",
    "getattr": "n = getattr(x, 'ndim', 0)\nh = hasattr(x, 'shape')",
    "warnings": "import warnings\nwarnings.warn('slow', stacklevel=2)",
    "custom op": "import torch\n@torch.library.custom_op('mine::f', mutates_args=())\ndef f(x: torch.Tensor) -> torch.Tensor:\n"
    "    return torch.empty_like(x)",
    "matrix product of another op": "y = a @ b",
    "typing": "from typing import TYPE_CHECKING\nfrom collections.abc import Sequence\n__all__ = ['f']\nn = f.__name__",
}  # fmt: skip


@pytest.mark.parametrize("text", LEGAL.values(), ids=list(LEGAL))
def test_legal(text: str) -> None:
    """What kernels are made of is no finding."""
    assert codes(text) == []


@pytest.mark.parametrize(
    ("op", "text"),
    [
        ("torch.matmul", "y = a @ b"),
        ("torch.nn.functional.linear", "import torch\ny = torch.addmm(b, x, w)"),
        ("torch.nn.functional.linear", "import torch\ny = torch.einsum('ij,kj->ik', x, w)"),
        ("torch.nn.functional.layer_norm", "import torch\ny = torch.nn.LayerNorm(4)(x)"),
        ("torch.nn.functional.conv2d", "from torch import nn\ny = nn.Conv2d(1, 1, 3)(x)"),
        ("torch.nn.functional.batch_norm", "from torch import nn\ny = nn.BatchNorm2d(3)(x)"),
        ("torch.nn.functional.relu", "import torch\ny = torch.clamp_min(x, 0)"),
        ("torch.nn.functional.relu", "y = x.relu_()"),
        ("torch.nn.functional.relu_", "import torch\ny = torch.relu_(x)"),
        ("torch.nn.functional.relu@backward(input)", "import torch\ny = torch.threshold_backward(g, x, 0)"),
        ("torch.nn.functional.cross_entropy", "from torch import nn\ny = nn.CrossEntropyLoss()(x, t)"),
        ("torch.nn.functional.gelu", "from torch import nn\ny = nn.GELU()(x)"),
        ("torch.sin", "y = x.sin()"),
        ("torch.add", "y = x.add_(z)"),
        (
            "torch.nn.functional.scaled_dot_product_attention",
            "import torch\ny = torch.softmax(q @ k, -1) @ v",
        ),
        ("models.decoder.rms_norm", "import torch\ny = torch.nn.functional.rms_norm(x, (4,))"),
    ],
)
def test_family(op: str, text: str) -> None:
    """What does the work of an op under another name is a call of it."""
    assert "calls-op" in {code for code, _ in codes(text, op=op)}


def test_function_of_the_users() -> None:
    """A marked function may not be called by its kernel, even if its module may be imported."""
    for text in (
        "from models.decoder import rms_norm\ny = rms_norm(x)",
        "import models.decoder as d\ny = d.rms_norm(x)",
        "import models.decoder\ny = models.decoder.rms_norm(x)",
    ):
        found = check(
            {"k.py": text},
            op="models.decoder.rms_norm",
            contract="python",
            incumbent=DECODER,
        )
        assert {each.code for each in found} == {"calls-op"}
    legal = "from models.decoder import EPS\ny = EPS"
    assert not check({"k.py": legal}, op="models.decoder.rms_norm", contract="python", incumbent=DECODER)


def test_what_the_incumbent_has_may_stay_and_nothing_else_of_its_kind() -> None:
    """A person's own finding is none against the model that left it there, wherever it stands by now."""
    before = {"k.py": "import torch, os\ny = torch.softmax(x, 1)\n"}
    after = {"k.py": "import math\n" + before["k.py"] + "import socket\n"}
    assert {each.code for each in check(before, op=SOFTMAX, contract="python")} == {"calls-op", "process"}
    (found,) = check(after, op=SOFTMAX, contract="python", incumbent=before)
    assert (found.code, found.line) == ("network", 4)


def test_own_modules() -> None:
    """A kernel's own sources import each other, also relatively."""
    text = "from kernels.rows import rows\nfrom .rows import rows as again\nfrom . import rows as module"
    assert not check({"kernels/a.py": text, "kernels/rows.py": "rows = 1"}, op=SOFTMAX, contract="python")


def test_syntax() -> None:
    """What Python cannot read is a finding with its line, whatever is wrong with it."""
    (found,) = check({"a.py": "x = 1\ndef f(:\n"}, op=SOFTMAX, contract="python")
    assert (found.code, found.line) == ("syntax", 2)
    for text in ("(" * 5000, "x = " + "-" * 100_000 + "1", "a\0b"):
        (found,) = check({"a.py": text}, op=SOFTMAX, contract="python")
        assert found.code == "syntax"


def test_message() -> None:
    """A finding says what was found, on which line, and what to do instead."""
    (found,) = check({"a.py": "import torch\ny = torch.softmax(x, 1)"}, op=SOFTMAX, contract="python")
    assert (found.line, found.message) == (
        2,
        "torch.softmax: compute the answer in a kernel of your own; of torch take only allocation, views and shapes",
    )


def test_example_project() -> None:
    """No kernel of the example project has a finding against its own op."""
    headers = [str(file.relative_to(EXAMPLE)) for file in EXAMPLE.glob("kernels/*.*h") if file.is_file()]
    count = 0
    for kernel in load(EXAMPLE / "cgins.yaml").kernels:
        for implementation in kernel.implementations:
            files = {str(file.relative_to(EXAMPLE)): file.read_text() for file in implementation.sources}
            found = check(
                files,
                op=kernel.op,
                contract=implementation.contract,
                headers=headers,
                incumbent=CHECKS,
            )
            assert found == (), kernel.name
            count += len(files)
    assert count > 60


def test_adversarial_calls() -> None:
    """Every specimen that calls its op from Python is caught before it runs, but for what only a run shows."""
    folder = Path(__file__).parents[1] / "adversarial" / "kernels"
    missed = set()
    for file in folder.glob("w15_*.py"):
        text = file.read_text()
        op = text.partition("ops: ")[2].split()[0]
        if not check({f"kernels/{file.name}": text}, op=op, contract="python"):
            missed.add(file.stem)
    assert missed == {"w15_log_softmax_gather"}  # only as it runs


def test_honest_kernels() -> None:
    """Honest specimens pass, but for those that use what a model is not given: threads, files, clocks, libraries, modules beside, global settings, torch's own transforms."""
    folder = Path(__file__).parents[1] / "honest" / "kernels"
    refused = set()
    for file in folder.glob("*.*"):
        text = file.read_text()
        if file.suffix not in (".py", ".cpp") or "ops: " not in text:
            continue
        op = text.partition("ops: ")[2].split()[0]
        contract = {".py": "python", ".cpp": "torch-extension" if "torch::" in text else "launcher"}[
            file.suffix
        ]
        headers = [f"kernels/{header.name}" for header in folder.glob("*.h")]
        if check({f"kernels/{file.name}": text}, op=op, contract=contract, headers=headers):
            refused.add(file.name)
    assert refused == {
        "relu_flushes_at_load.cpp", "relu_flushes_inside.py", "relu_late_imports.py", "relu_numpy.py", "relu_short_threads.py", "softmax_sorted_rows.py", "sum_rank_order.py", "relu_threads.py", "relu_tuned_file.py",
        "linear_warms_up.py", "sum_atomic.cpp", "sum_autotuned.py", "sum_thread_pool.cpp",
        "argsort_any.py", "cummax_first.py", "kthvalue_any.py", "max_last.py", "median_last.py", "mode_greatest.py",
        "sort_unstable.py", "topk_any.py", "unique_descending.py", "relu_function_state.py", "relu_named_tuple.py", "sum_async.cpp",
        "relu_tuned_by_environment.cpp", "softmax_mapped_scratch.cpp", "h_pool_kept_alive.cpp",
        "dropout_forked_generator.py", "gelu_scripted.py", "layer_norm_asyncio.py", "relu_forward_ad.py", "relu_from_dlpack.py",
        "relu_futex.cpp", "relu_logged_fallback.py", "relu_processor_shards.cpp", "softmax_guard_page.cpp", "softmax_libm_ctypes.py",
        "softmax_memmap.py", "softmax_profiled.py", "softmax_settings_put_back.py", "softmax_vmap.py", "topk_return_type.py",
    }  # fmt: skip


@given(st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_text(text: str) -> None:
    """Any text is checked without an error."""
    check({"a.py": text}, op=SOFTMAX, contract="python")
