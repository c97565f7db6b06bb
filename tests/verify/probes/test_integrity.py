"""What a kernel replaces in its process, and the settings that it changes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.loading import launcher
from pytest_cgins.core import waiting
from pytest_cgins.verify.probe_support import process_settings
from pytest_cgins.verify.probe_support.origin import Origins
from pytest_cgins.verify.probes import integrity

Watched = Callable[..., dict[str, Any]]
RIGHT = "import torch\ndef relu(input):\n    return torch.where(input > 0, input, 0.0)\n"


@pytest.fixture(autouse=True)
def _same_process() -> Iterator[None]:
    """Whatever a test's kernel did is undone, by the probe or here."""
    before = process_settings.read()
    yield
    process_settings.put_back(before)


def _message(watched: Watched, text: str) -> str:
    result = watched(text, integrity.NAME)
    assert result["sets"][0]["error"] is None, result["sets"][0]["error"]
    message = integrity.judge(result["observed"][integrity.NAME])
    assert result["fatal"] == bool(message)
    return message


@pytest.mark.exam
@pytest.mark.parametrize(
    ("preparation", "words"),
    [
        ("torch.equal = lambda a, b: True", "replaced torch.equal by <lambda> of relu_of_text_"),
        ("torch.equal = torch.allclose", "replaced torch.equal by a builtins.builtin_function_or_method"),
        ("torch.cuda.synchronize = lambda *a: None", "replaced torch.cuda.synchronize"),
        ("torch.Tensor.to = lambda self, *a: self", "replaced torch.Tensor.to "),
        ("import time; time.perf_counter = lambda: 0.0", "replaced time.perf_counter"),
        (
            "from unittest import mock; torch.isnan = mock.Mock()",
            "replaced torch.isnan by a unittest.mock.Mock",
        ),
        (
            "class Event: pass\ntorch.cuda.Event = Event",
            "replaced torch.cuda.Event by the class relu_of_text_",
        ),
        (
            "import sys, types; sys.modules['pytest_cgins.core.tensors'] = types.ModuleType('tensors')",
            "replaced sys.modules.pytest_cgins.core.tensors by another module",
        ),
        ("import os; del os.listdir", "replaced os.listdir by nothing"),
        (
            "import sys; sys.modules['pytest_cgins.building.loading.launcher'].GUARD_NBYTES = 0",
            "replaced pytest_cgins.building.loading.launcher.GUARD_NBYTES by a builtins.int",
        ),
        (
            "import sys; sys.modules['pytest_cgins.verify.probes.integrity'].Integrity.check = lambda *a: None",
            "replaced pytest_cgins.verify.probes.integrity.Integrity.check",
        ),
        (
            "torch.nn.functional.relu.__code__ = (lambda input, inplace=False: input).__code__",
            "replaced __code__ of",
        ),
        (
            "torch.nn.functional.of_the_kernel = 1\ntorch.einsum.__defaults__ = (1,)",
            "replaced __defaults__ of",
        ),
        ("torch.backends.cudnn.benchmark = True", "set torch.backends.cudnn.benchmark from False to True"),
        (
            "torch.set_float32_matmul_precision('medium')",
            "set the float32 matmul precision from highest to medium",
        ),
        ("torch.set_default_dtype(torch.float64)", "set the default dtype from float32 to float64"),
        # They choose what torch's own op runs.
        (
            "torch.backends.cuda.enable_flash_sdp(False)",
            "set torch.backends.cuda.flash_sdp_enabled from True to False",
        ),
        ("torch.set_grad_enabled(False)", "set grad mode from True to False"),
        ("import gc; gc.disable()", "set the garbage collector from True to False"),
        (
            "import sys; sys.setprofile(print)",
            "set the profile function from None to builtin_function_or_method",
        ),
        (
            "from torch.overrides import TorchFunctionMode\nclass Mode(TorchFunctionMode): pass\nMode().__enter__()",
            "set the number of function modes from 0 to 1",
        ),
    ],
)
def test_what_a_module_changes_at_import_is_named(watched: Watched, preparation: str, words: str) -> None:
    """Each of these trips with what was changed, and the process serves nobody else."""
    originals = (torch.relu, time.perf_counter, launcher.GUARD_NBYTES)
    message = _message(watched, f"import torch\n{preparation}\n{RIGHT}")
    assert words in message
    assert "as it was loaded" in message or "relu_of_text_" in message
    assert (torch.relu, time.perf_counter, launcher.GUARD_NBYTES) == originals


def test_what_changes_as_it_runs_is_named(watched: Watched) -> None:
    """The first run is looked at, too."""
    text = (
        "import torch\ndef relu(input):\n    torch.equal = lambda a, b: True\n    return input.clamp(min=0)\n"
    )
    assert "replaced torch.equal by relu.<locals>.<lambda>" in _message(watched, text)


def test_what_is_replaced_is_put_back(watched: Watched) -> None:
    """A debugger's session, in which no worker is replaced, goes on with the true functions."""
    equal, enabled = torch.equal, torch.is_grad_enabled()
    code = torch.nn.functional.relu.__code__
    text = (
        f"import torch\ntorch.equal = None\ntorch.set_grad_enabled({not enabled})\n"
        "torch.nn.functional.relu.__code__ = (lambda input, inplace=False: input).__code__\n"
    )
    _message(watched, text + RIGHT)
    assert torch.nn.functional.relu.__code__ is code
    assert torch.equal is equal
    assert torch.is_grad_enabled() == enabled


def test_another_implementation_of_an_operator_is_named(watched: Watched) -> None:
    """torch.library can replace what torch.equal runs without touching torch.equal."""
    text = (
        "import torch, warnings\nwarnings.simplefilter('ignore')\n"
        "library = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('frac', lambda x: x, 'CPU')\n"
    )
    message = _message(watched, text + RIGHT)
    for name in [name for name in sys.modules if name.startswith("relu_of_text_")]:
        library = getattr(sys.modules[name], "library", None)
        if library is not None:
            library._destroy()
    assert "registered another implementation of aten/frac/CPU" in message


@pytest.mark.parametrize(
    "preparation",
    [
        "import functools, dataclasses, inspect, collections, enum, typing, logging",
        "import torch._dynamo",  # puts a manual_seed of its own before torch's
        "torch.my_helper = lambda: 1",
        "import numpy, statistics, multiprocessing, unittest.mock",
        "import sys, threading\ndef told(*what): pass\nsys.excepthook = threading.excepthook = told",  # as CuTe's DSL does
        "with torch.no_grad():\n    torch.zeros(1)",
        "def helper(x): pass\nhelper.__defaults__ = (1,)\nhelper.__code__ = (lambda x: 1).__code__",
        "torch.library.define('cgins_test::nothing', '(Tensor x) -> Tensor')",
        "torch.func.vmap(torch.sin)(torch.zeros(2, 2))",  # registers decompositions the first time
    ],
)
def test_what_honest_modules_do_does_not_trip(watched: Watched, preparation: str) -> None:
    """New attributes, lazy imports of libraries, context managers and the kernel's own functions."""
    assert _message(watched, f"import torch\n{preparation}\n{RIGHT}") == ""


@pytest.mark.exam
def test_a_kernel_answers_for_its_own_changes_only(watched: Watched) -> None:
    """What an earlier kernel of the process did is not the next one's doing."""
    assert _message(watched, f"import torch\ntorch.equal = None\n{RIGHT}")
    assert _message(watched, RIGHT) == ""


def test_it_is_not_fooled_by_what_it_is_made_of(watched: Watched) -> None:
    """Replaced builtins, and our own names for them, do not hide what is replaced beside them."""
    text = (
        "import builtins, sys, torch\n"
        "ours = sys.modules['pytest_cgins.verify.probes.integrity']\n"
        "def is_(a, b): return True\n"
        "ours.is_ = is_\n"
        "ours._finder = ours._find = lambda spaces: []\n"
        "torch.equal = lambda a, b: True\n"
    )
    message = _message(watched, text + RIGHT)
    assert "torch.equal" in message
    assert "pytest_cgins.verify.probes.integrity.is_" in message


def test_facts_of_a_broken_worker_are_refused() -> None:
    """The judge takes nothing but what our own watch tells."""
    with pytest.raises((TypeError, KeyError)):
        integrity.judge([{"nothing": 1}])


@pytest.mark.exam
def test_a_check_costs_a_fraction_of_taking_the_fingerprint() -> None:
    """Thousands of functions are compared by identity; both are timed here, since machines differ."""
    taken, checked = [], []
    for _ in range(5):
        start = time.process_time()
        integrity.Fingerprint()
        taken.append(time.process_time() - start)
        one = integrity.Integrity(Origins((), ()))
        one.check("warm")
        start = time.process_time()
        one.check("again")
        checked.append(time.process_time() - start)
    assert min(checked) < min(taken) / 2
    assert one.facts() == []


def test_whose_file_it_is(tmp_path: Path) -> None:
    """A project's files are the kernel's, but for an environment in it."""
    library = tmp_path / ".venv/lib/python3/site-packages/library.py"
    origins = Origins((str(library),), (str(tmp_path),))
    assert origins.kind(str(library)) == "installed"
    assert origins.kind(str(tmp_path / "kernels/relu.py")) == "kernel"
    assert origins.kind(str(tmp_path / ".venv/lib/python3/site-packages/x.py")) == "installed"
    assert origins.kind(torch.__file__) == "installed"
    assert origins.kind("<string>") == "made"
    assert origins.kind(os.__file__) == "standard"


def test_settings_are_put_back_for_the_next_kernel_though_nobody_asked(watched: Watched) -> None:
    """With the probe off nothing is told, and nothing leaks."""
    text = f"{RIGHT}\ntorch.set_num_threads(1)\ndef relu(input, right=relu):\n    torch.use_deterministic_algorithms(True)\n    return right(input)\n"
    before = process_settings.read()
    torch.set_num_threads(2)
    assert watched(text, "plain_outputs")["observed"] == {}
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
    process_settings.put_back(before)


@pytest.mark.exam
def test_how_the_processor_computes_does_not_leak_either(watched: Watched) -> None:
    """Flushed subnormals and another rounding are gone with the request, and are no offence as a kernel is loaded."""
    flush = f"{RIGHT}\nimport ctypes\ntorch.set_flush_denormal(True)\nctypes.CDLL(None).fesetround(0x400)\n"
    least = torch.tensor([1e-40])
    thirds = [torch.ones(1) / 3, torch.ones(1) * 2 / 3]
    assert _message(watched, flush) == ""
    _message(watched, RIGHT)
    assert (least * 1.0).item() != 0.0
    assert [torch.ones(1) / 3, torch.ones(1) * 2 / 3] == thirds


@pytest.mark.exam
@pytest.mark.parametrize(
    ("set_by", "words"),
    [
        ("torch.set_flush_denormal(True)", "set subnormal numbers from kept to flushed (as it ran)"),
        ("libc.fesetround(0x400)", "set the processor's rounding mode from 0 to"),
    ],
)
def test_calls_that_leave_the_processor_computing_otherwise_are_an_offence(
    watched: Watched, set_by: str, words: str
) -> None:
    """If each of them does; what is set once, as by a library that the first call loads, or put back, is none."""
    header = f"{RIGHT}\nimport ctypes\nlibc = ctypes.CDLL(None)\ncalls = []\n"
    every = f"{header}def relu(input, right=relu):\n    {set_by}\n    return right(input)\n"
    once = every.replace(set_by, f"calls.append(1)\n    if len(calls) == 1: {set_by}")
    inside = every.replace(
        "return right(input)",
        "out = right(input)\n    torch.set_flush_denormal(False)\n    libc.fesetround(0)\n    return out",
    )

    def repeated(text: str, *_: str) -> dict[str, Any]:
        return watched(text, integrity.NAME, "repeat")

    assert words in _message(repeated, every)
    assert _message(repeated, once) == _message(repeated, inside) == ""
    assert (torch.tensor([1e-40]) * 1.0).item() != 0.0


@pytest.mark.exam
def test_overwritten_machine_code_shows(tmp_path: Path) -> None:
    """Though the bytes are what they were, and by a way that asks for no permission; what a process only runs does not."""
    script = tmp_path / "overwrites.py"
    script.write_text(
        "import ctypes, os\n"
        "import torch\n"
        "from pytest_cgins.verify.probes import integrity\n"
        "before = integrity.fingerprint()\n"
        "before.refresh()\n"
        "torch.randn(64, 64).matmul(torch.randn(64, 64)).softmax(1)\n"
        "assert before.overwritten() == []\n"
        "memory = os.open('/proc/self/mem', os.O_RDWR)\n"
        "address = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value\n"
        "os.pwrite(memory, os.pread(memory, 4, address), address)\n"
        "print(*before.overwritten())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("libc")


def test_a_fork_s_own_locks_are_no_offence() -> None:
    """A worker is forked from a server that has taken its fingerprint; what modules make anew at a fork is theirs."""
    before = integrity.Fingerprint()
    waiting._guard = threading.Lock()
    assert [change.name for change in before.changes()] == ["_guard"]
    before._process = -1
    before.refresh()
    assert before.changes() == []
