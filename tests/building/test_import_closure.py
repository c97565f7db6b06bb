"""What Python code is made of, by reading its import statements."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pytest

from pytest_cgins.building.contracts.import_closure import OPAQUE, ImportReader


def closure(folder: Path, texts: dict[str, str], *names: str) -> set[str]:
    """Files below the folder that `kernel.py` and names are made of."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = ImportReader(folder, sys.path).closure([folder / "kernel.py"], names)
    return {str(file.relative_to(folder)) for file in found}


@pytest.mark.parametrize(
    "statement",
    [
        "import parts.inner",
        "import parts.inner as other",
        "from parts import inner",
        "from parts.inner import name",
        "from parts.inner import *",
        "from .parts import inner",
        "from .parts.inner import name",
        "from . import parts\nfrom .parts import inner",
        "def kernel():\n    from parts import inner",
        "try:\n    import parts.inner\nexcept ImportError:\n    pass",
    ],
)
def test_each_form_of_import_is_followed(tmp_path: Path, statement: str) -> None:
    """Through packages and functions, and on from there."""
    texts = {
        "kernel.py": statement,
        "parts/__init__.py": "",
        "parts/inner.py": "from ..far import x\nname = 1",
        "parts/unused.py": "",
        "far.py": "import torch, json, pytest_cgins, numpy",
    }
    assert closure(tmp_path, texts) == {"kernel.py", "parts/__init__.py", "parts/inner.py", "far.py"}


def test_names_lead_to_modules(tmp_path: Path) -> None:
    """The last parts of an op's name are no modules; what is installed is not listed."""
    texts = {"kernel.py": "", "models/__init__.py": "", "models/blocks.py": "import layers", "layers.py": ""}
    found = closure(tmp_path, texts, "models.blocks.Block.forward", "torch.nn.functional.relu", "yaml.dump")
    assert found == {"kernel.py", "models/__init__.py", "models/blocks.py", "layers.py"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("import importlib\n", "importlib"),
        ("from importlib import import_module", "importlib"),
        ("import torch.utils.cpp_extension", "cpp_extension"),
        ("from torch.utils import cpp_extension", "cpp_extension"),
        ("import torch\ntorch.load('x')", "torch.load"),
        ("from torch import load", "import load"),
        ("exec('import numpy')", "exec"),
        ("with open('x') as file: pass", "open"),
        ("read = open", "open"),
        ("from pathlib import Path\nPath('x').read_text()", "read_text"),
        ("import sys\nsys.path.append('x')", "sys.path"),
        ("import torch\ntorch.ops.load_library('x.so')", "load_library"),
        ("std::ifstream file(name);", "ifstream"),
        ("void* library = dlopen(name, 1);", "dlopen"),
        ("model.eval()", ""),
        ("tl.load(p)", ""),
        ("# as in open source, a system of its own", ""),
    ],
)
def test_what_may_read_more_is_seen(text: str, word: str) -> None:
    """Code that gets at files or modules by other ways is not known whole; what only looks like it is."""
    found = OPAQUE.search(text)
    assert (found[0] if found else "") == word


def test_an_editable_installation_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sources are where their author changes them, and no installer notes what they hold; finders lead there."""
    for name in ("own_layers/__init__.py", "own_layers/norm.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "kernel.py").write_text("from own_layers import norm")

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            return PathFinder.find_spec(name, [str(tmp_path)]) if name == "own_layers" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    found = ImportReader(tmp_path / "project", []).closure([tmp_path / "kernel.py"], ())
    names = ("kernel.py", "own_layers/__init__.py", "own_layers/norm.py")
    assert found == {tmp_path / name for name in names}
