"""Modules of two revisions in one process: each sees its own, whichever way it imports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.building.processes import python

pytestmark = pytest.mark.exam

RUN = """\
import gc, json, os, sys
gc.disable()  # not worth its time while torch is imported, nor is what Python takes apart at the end
from pytest_cgins.building.contracts.functions import import_target
from pytest_cgins.core.documents import load_python
from pytest_cgins.core.case import KernelSource, Namespace
head, base, module, entry = sys.argv[1:5]
def load(root, namespace):
    source = KernelSource(kernel="k", implementation="i", op="o", device="cpu", contract="python", entry=entry,
        schema="", files=(), module=module, import_root=root, namespace=namespace, interpret="interpret" in sys.argv)
    return import_target(source)
order = [(head, None), (base, Namespace(name="_cgins_base_0", folders=(base,), apart_from=head))]
if "base first" in sys.argv:
    order.reverse()
said = []
for root, namespace in order:
    try:
        said.append(load(root, namespace))
    except Exception as error:
        said.append(str(error))
said = [one() if callable(one) else one for one in said]
print(json.dumps(said[::-1] if "base first" in sys.argv else said), flush=True)
os._exit(0)
"""
FILES = {
    "kernels/__init__.py": "",
    "kernels/common.py": "from . import numbers\ndef which():\n    return '{} ' + numbers.TEXT\n",
    "kernels/numbers.py": "TEXT = '{}'\n",
    "plain.py": "TEXT = '{}'\n",
    "spread/part.py": "TEXT = '{}'\n",
}
FORMS = {
    "from a package": "from kernels.common import which\n",
    "a module by its dotted name": "import kernels.common\ndef which():\n    return kernels.common.which()\n",
    "under another name": "import kernels.common as c\ndef which():\n    return c.which()\n",
    "a star": "from kernels.common import *\n",
    "relative": "from . import common\nwhich = common.which\n",
    "relative, a name": "from .common import which\n",
    "lazily": "def which():\n    from kernels.common import which\n    return which()\n",
    "lazily, relative": "def which():\n    from .common import which\n    return which()\n",
    "lazily, dotted": "def which():\n    import kernels.common\n    return kernels.common.which()\n",
    "in a lambda": "which = lambda: __import__('kernels.common').common.which()\n",
    "by importlib": (
        "import importlib\nimport importlib.util\nassert importlib.util.find_spec\n"
        "def which():\n    return importlib.import_module('kernels.common').which()\n"
    ),
    "by a function of importlib": (
        "from importlib import import_module\ndef which():\n"
        "    return import_module('.common', __package__).which()\n"
    ),
    "in code that is made": "scope = dict()\nexec('from kernels.common import which', scope)\nwhich = scope['which']\n",
    "a module at the top": "import plain\ndef which():\n    return plain.TEXT + ' ' + plain.TEXT\n",
    "a folder without __init__": (
        "from spread import part\nimport spread.part as p\ndef which():\n    return part.TEXT + ' ' + p.TEXT\n"
    ),
}


def write(root: Path, files: dict[str, str], which: str) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text.replace("{}", which))
    return root


def said(
    head: Path, base: Path, module: str, *words: str, entry: str = "which", **environment: str
) -> list[str]:
    """What the target of both trees says, or why it cannot be imported: the head's, the base's."""
    done = python(RUN, head, base, module, entry, *words, environment=environment, cwd="/")
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """The head's and the base's files, which differ in what they say."""
    return write(tmp_path / "head", FILES, "head"), write(tmp_path / "base", FILES, "base")


@pytest.mark.parametrize("order", ["head first", "base first"])
def test_each_revision_sees_its_own_modules(trees: tuple[Path, Path], order: str) -> None:
    """In every form of an import, at the top and when a function is called, in either order of loading."""
    calls = "".join(f"    {name!r}: lazy({index}),\n" for index, name in enumerate(FORMS))
    every = (
        "def lazy(index):\n    from importlib import import_module\n"
        "    return import_module(f'kernels.form{index}').which()\n"
        f"def which():\n    return {{\n{calls}    }}\n"
    )
    for root in trees:
        write(root, {f"kernels/form{index}.py": text for index, text in enumerate(FORMS.values())}, "")
        write(root, {"kernels/every.py": every}, "")
    head, base = said(*trees, "kernels.every", order)
    assert head == dict.fromkeys(FORMS, "head head")
    assert base == dict.fromkeys(FORMS, "base base")


def test_a_module_that_only_the_working_tree_has_is_not_taken(trees: tuple[Path, Path]) -> None:
    """The base revision's module would otherwise run code of the head's."""
    head, base = trees
    write(head, {"extra.py": "def which():\n    return 'head'\n"}, "")
    write(head, {"kernels/it.py": "from extra import which\n"}, "")
    write(base, {"kernels/it.py": "from extra import which\n"}, "")
    ours, theirs = said(head, base, "kernels.it")
    assert ours == "head"
    assert "No module named 'extra' at the base revision; that of the working tree is not taken" in theirs


def test_what_is_installed_is_shared_and_comes_before_a_bare_folder(trees: tuple[Path, Path]) -> None:
    """A folder `installed` without `__init__.py` is no package where an installed one has its name."""
    head, base = trees
    site = head.parent / "site"
    write(site, {"installed.py": "TEXT = 'installed'\n", "plain.py": "TEXT = 'installed'\n"}, "")
    for root in trees:
        write(root, {"installed/notes.txt": ""}, "")
        text = "import installed, plain, torch\ndef which():\n    return [installed.TEXT, plain.TEXT, id(torch)]\n"
        write(root, {"kernels/it.py": text}, "")
    ours, theirs = said(head, base, "kernels.it", PYTHONPATH=str(site))
    assert (ours[:2], theirs[:2]) == (["installed", "head"], ["installed", "base"])
    assert ours[2] == theirs[2]


def test_bytecode_and_reserved_names_are_passed_over_as_for_the_head(trees: tuple[Path, Path]) -> None:
    """A file `torch.py` of the base is no torch, and none of its bytecode is read or written."""
    head, base = trees
    write(
        base,
        {
            "torch.py": "raise SystemExit(9)\n",
            "kernels/it.py": "import torch\nwhich = torch.__name__.title\n",
        },
        "",
    )
    write(head, {"kernels/it.py": "import torch\nwhich = torch.__name__.title\n"}, "")
    assert said(head, base, "kernels.it") == ["Torch", "Torch"]
    assert not list(base.rglob("__pycache__"))


def test_a_target_that_is_installed_needs_no_namespace(trees: tuple[Path, Path]) -> None:
    """One that the base revision does not have itself is the process's own."""
    assert said(*trees, "os.path", entry="curdir.title") == [".", "."]


TRITON = """\
import torch
import triton
import triton.language as tl
from kernels.numbers import FACTOR
from . import numbers

@triton.jit
def helper(x, FACTOR: tl.constexpr):
    return numbers.scaled(x, FACTOR)

@triton.jit
def scale(x, out, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(out + index, helper(tl.load(x + index), FACTOR))

def which():
    x = torch.arange(4.0)
    out = torch.empty(4)
    scale[(1,)](x, out, BLOCK=4, FACTOR=FACTOR)
    return out.tolist()
"""


def test_triton_kernels_of_both_revisions(trees: tuple[Path, Path]) -> None:
    """Triton reads each kernel's own source, and the functions that it calls are of the same revision."""
    pytest.importorskip("triton")
    numbers = "import triton\nimport triton.language as tl\nFACTOR = {}\n@triton.jit\ndef scaled(x, f):\n    return x * f + {}\n"
    for root, factor in zip(trees, ("2", "3"), strict=True):
        write(root, {"kernels/it.py": TRITON, "kernels/numbers.py": numbers}, factor)
    expected = [[2.0, 4.0, 6.0, 8.0], [3.0, 6.0, 9.0, 12.0]]
    assert said(*trees, "kernels.it", "interpret", TRITON_INTERPRET="1") == expected


def test_a_compiled_function_of_the_base(trees: tuple[Path, Path]) -> None:
    """torch.compile traces a function with builtins of its own, and what it calls."""
    text = (
        "import torch\nfrom kernels.plain import f\n"
        "@torch.compile(backend='eager', fullgraph=True)\ndef g(x):\n    return f(x) + len([x])\n"
        "def which():\n    return g(torch.ones(2)).tolist()\n"
    )
    for root, factor in zip(trees, ("2", "3"), strict=True):
        write(
            root,
            {
                "kernels/it.py": text,
                "kernels/plain.py": "def f(x):\n    return max(x * {}, key=len) if 0 else x * {}\n",
            },
            factor,
        )
    assert said(*trees, "kernels.it") == [[3.0, 3.0], [4.0, 4.0]]
