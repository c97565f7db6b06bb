"""What a kernel does besides computing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.verify.probe_support import audit_hook
from pytest_cgins.verify.probes import snooping

Watched = Callable[..., dict[str, Any]]
RIGHT = "import torch\ndef relu(input):\n    return torch.where(input > 0, input, 0.0)\n"


def _message(watched: Watched, text: str) -> str:
    result = watched(text, snooping.NAME)
    assert result["sets"][0]["error"] is None, result["sets"][0]["error"]
    message = snooping.judge(result["observed"][snooping.NAME])
    assert result["fatal"] == bool(message)
    return message


@pytest.mark.exam
@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("import gc; gc.get_objects()", "calls gc.get_objects (relu_of_text_"),
        ("import gc; gc.get_referrers(input)", "calls gc.get_referrers"),
        (
            "import gc, threading; t = threading.Thread(target=gc.get_objects); t.start(); t.join()",
            "calls gc.get_objects (in a thread)",
        ),
        (
            (
                "import gc\n    from concurrent.futures import ThreadPoolExecutor\n    with ThreadPoolExecutor(1) as pool: "
                "pool.submit(gc.get_objects).result()"
            ),
            "calls gc.get_objects (in a thread)",
        ),
        (
            (
                "from multiprocessing.pool import ThreadPool\n    with ThreadPool(1) as pool: "
                "pool.map(open, ['/proc/self/maps'])[0].close()"
            ),
            "opens /proc/self/maps (in a thread)",
        ),
        (
            "import pathlib; pathlib.Path(__file__).with_name('ops.py').write_text('')",
            "leaves ops.py in the project",
        ),
        (
            (
                "import os, pathlib\n    p = pathlib.Path(__file__).parent\n    (p / 'a').write_text('')\n    "
                "os.rename(p / 'a', p / 'sitecustomize.py')"
            ),
            "leaves sitecustomize.py in the project",
        ),
        (
            "import os\n    os.close(os.open(os.path.dirname(__file__) + '/x.so', os.O_CREAT | os.O_WRONLY))",
            "leaves x.so in the project",
        ),
        ("import sys; sys._getframe(1).f_locals", "walks the stack"),
        ("import inspect; inspect.stack(0)", "walks the stack"),
        ("exec('import gc; gc.get_referents(input)')", "calls gc.get_referents"),
        ("import sys; sys._current_frames()", "looks at the stacks of all threads"),
        (
            "try: 1 / 0\n    except ZeroDivisionError as error: error.__traceback__.tb_frame.f_back",
            "takes the frame of a traceback",
        ),
        ("g = (None for _ in ()); g.gi_frame", "takes the frame of a generator"),
        (
            "import ctypes; ctypes.CDLL(torch.__path__[0] + '/lib/libtorch_cpu.so').aoti_torch_device_type_cpu",
            "takes aoti_torch_device_type_cpu of libtorch_cpu.so",
        ),
        ("import sys; sys.settrace(None)", "sets a trace function"),
        ("open('/proc/self/maps').close()", "opens /proc/self/maps"),
        ("from pathlib import Path; Path('/proc/1/cmdline').read_bytes()", "opens /proc/1/cmdline"),
        ("import os; os.listdir('/proc/self/fd')", "opens /proc/self/fd"),
        ("open(FOLDER + '/traces/manifest.json').close()", "opens manifest.json of the tests"),
        (
            "import numpy; numpy.fromfile(FOLDER + '/traces/blobs/1.safetensors', 'u1')",
            "opens 1.safetensors of the",
        ),
        ("open(FOLDER + '/cgins.yaml').close()", "opens cgins.yaml of the tests"),
        ("import os; os.listdir(FOLDER + '/traces')", "lists the trace pack traces"),
        ("import ctypes; ctypes.string_at(input.data_ptr(), 4)", "reads memory by its address"),
        ("import ctypes; ctypes.c_float.from_address(input.data_ptr())", "takes memory by its address"),
        (
            (
                "import ctypes, sys; p = input.data_ptr(); sys.audit('ctypes.cdata/buffer', p, 4, 0)\n"
                "    ctypes.c_float.from_address(p)"
            ),
            "takes memory by its address",
        ),
        (
            (
                "import ctypes; b = bytearray(4); p = ctypes.addressof(ctypes.c_float.from_buffer(b))\n"
                "    ctypes.c_float.from_buffer_copy(b); ctypes.c_float.from_address(p)"
            ),
            "takes memory by its address",
        ),
        (
            "import ctypes; ctypes.pythonapi.PyGILState_Check()",
            "takes PyGILState_Check from the interpreter's",
        ),
        ("import socket; socket.socket().close()", "opens a socket"),
        (
            (
                "import socket, types; world = {**vars(socket), '_socket': types.SimpleNamespace(socketpair=lambda *_: a)}\n"
                "    a = (types.SimpleNamespace(detach=lambda: None),) * 2\n"
                "    types.FunctionType(socket.socketpair.__code__, world)(socket.AF_INET, 1, 0)"
            ),
            "opens a socket",
        ),
        ("import subprocess; subprocess.run(['true'])", "starts a process"),
        ("import os; os.system('true')", "starts a process"),
        ("import os; os.kill(os.getppid(), 0)", "sends signal 0 to process"),
        ("import pytest_cgins.run.sandbox.landlock_of_nobody", "imports pytest_cgins.run.sandbox"),
        ("import torch; compile('1', torch.__file__, 'eval')", "compiles code in the name of __init__.py"),
        ("(lambda: 1).__code__.replace(co_name='x')", "makes code objects"),
        (
            "import gc, threading\n    t = threading.Thread(target=lambda: gc.get_objects()); t.start(); t.join()",
            "calls gc.get_objects",
        ),
    ],
)
def test_what_a_kernel_looks_at_is_named(watched: Watched, tmp_path: Path, act: str, words: str) -> None:
    """Each of these trips, with the kernel's own line, from whatever thread and through the standard library."""
    (tmp_path / "traces/blobs").mkdir(parents=True)
    (tmp_path / "traces/manifest.json").write_text("{}")
    (tmp_path / "traces/blobs/1.safetensors").write_bytes(b"12345678")
    (tmp_path / "cgins.yaml").write_text("")
    text = (
        f"import torch\nFOLDER = {str(tmp_path)!r}\n"
        f"def snoop(input):\n    {act}\n"
        "def relu(input):\n    try: snoop(input)\n    except ImportError: pass\n"
        "    return torch.where(input > 0, input, 0.0)\n"
    )
    assert words in _message(watched, text)


@pytest.mark.exam
@pytest.mark.parametrize(
    "text", ["import gc\ngc.get_objects()\n", "from pytest_cgins.verify.probe_support import set_trial\n"]
)
def test_a_module_is_watched_as_it_is_loaded(watched: Watched, text: str) -> None:
    """What is done at import counts, and so do parts of this package, though they have been imported before."""
    assert _message(watched, text + RIGHT)


@pytest.mark.exam
@pytest.mark.parametrize(
    "preparation",
    [
        "import functools\n@functools.lru_cache\ndef helper(n): return n\nhelper(1)",
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Tile:\n    rows: int = 4\nTile()",
        "import inspect\ninspect.signature(torch.nn.functional.softmax)\ndef f(): pass\ninspect.getsource(f)",
        "import collections, enum\nP = collections.namedtuple('P', 'a')\nE = enum.Enum('E', 'A B')",
        "import typing\nT = typing.TypeVar('T')\nclass N(typing.NamedTuple):\n    a: int",
        "import logging\nlogging.getLogger('k').warning('x')\nimport warnings\nwarnings.warn('x')",
        "import ctypes.util, platform\nctypes.util.find_library('c')\nplatform.processor()\nctypes.CDLL(None).abs(1)",
        "import ctypes\nctypes.CDLL('libm.so.6').exp",
        "import pytest_cgins\n@pytest_cgins.mark\ndef other(x):\n    return x\nfrom pytest_cgins import mark",
        "import numpy, os\nos.getpid()\nopen(__file__).close()\nos.kill(os.getpid(), 0)",
        "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.format_exc()",
        "import torch.utils.cpp_extension\nimport pickle, copy\ncopy.deepcopy(torch.zeros(2))",
        "compile('1', __file__, 'eval')\nexec('x = 1')",
        (
            "import sys\nwas, sys.pycache_prefix = sys.pycache_prefix, "
            "'/dev/null'\nimport sympy.unify.rewrite\nsys.pycache_prefix = was"
        ),
        (
            "import array, ctypes\nx = array.array('d', [1, 2])\n(ctypes.c_double * 2).from_buffer(x)[0] = 3\n"
            "ctypes.c_double.from_buffer(memoryview(x), 8)\nctypes.c_double.from_buffer_copy(x)"
        ),
        "import asyncio\nasyncio.run(asyncio.sleep(0))",
        "import socket, multiprocessing\nsocket.socketpair()\nmultiprocessing.Pipe()",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as p: p.submit(abs, 1).result()",
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_honest_modules_do_does_not_trip(watched: Watched, preparation: str) -> None:
    """The standard library looks around for its own purposes."""
    assert _message(watched, f"import torch\n{preparation}\n{RIGHT}") == ""


def test_nobody_listens_afterwards(watched: Watched) -> None:
    """Between runs, and in the code that a test itself runs, the hook sleeps."""
    heard: list[str] = []
    watched(RIGHT, snooping.NAME)
    compile("1", "here", "eval")
    with audit_hook.listening(lambda event, *_: heard.append(event), {"compile"}):
        compile("1", "here", "eval")
    compile("1", "here", "eval")
    assert heard == ["compile"]
