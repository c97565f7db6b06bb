"""Where a worker finds a project's modules: their text, and never a planted file in its place."""

from __future__ import annotations

import importlib.util
import marshal
import py_compile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from pytest_cgins.building.contracts.source import find_target
from pytest_cgins.core.errors import SourceError
from tests.building.processes import python

HONEST, PLANTED = "def which():\n    return 'honest'\n", "def which():\n    return 'planted'\n\n"
RUN = (
    "import sys; from pytest_cgins.building.loading.imports import import_from; import_from(sys.argv[1]); "
    "import importlib; print(importlib.import_module(sys.argv[2]).which())"
)


def which(root: Path, module: str, *, code: str = RUN, **environment: str) -> str:
    """What the module's function says in a process that imports as a worker does."""
    # `-c` puts the current folder first, which the boot of a worker takes out.
    done = python(code, root, module, environment=environment, cwd=root.anchor, check=False)
    return done.stdout.strip() or done.stderr


def bytecode(text: str, file: Path) -> CodeType:
    return compile(text, str(file), "exec")


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """`kernels/softmax.py`, in a package of a project."""
    file = tmp_path / "kernels" / "softmax.py"
    file.parent.mkdir()
    (file.parent / "__init__.py").touch()
    file.write_text(HONEST)
    return file


@pytest.mark.parametrize("kind", ["unchecked", "time and size"])
def test_planted_bytecode_does_not_run(module: Path, kind: str) -> None:
    """Bytecode that Python itself would trust for the source is not read, in the package or anywhere below."""
    cached = Path(importlib.util.cache_from_source(str(module)))
    cached.parent.mkdir()
    if kind == "unchecked":
        head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
    else:
        status = module.stat()
        numbers = (0, int(status.st_mtime), status.st_size)
        head = importlib.util.MAGIC_NUMBER + b"".join(number.to_bytes(4, "little") for number in numbers)
    cached.write_bytes(head + marshal.dumps(bytecode(PLANTED, module)))
    plain = "import sys; sys.path.insert(0, sys.argv[1]); import kernels.softmax as m; print(m.which())"
    assert which(module.parents[1], "", code=plain) == "planted"
    assert which(module.parents[1], "kernels.softmax") == "honest"


def test_bytecode_without_a_source_is_no_module(module: Path) -> None:
    """A `.pyc` in the place of a source is not found, neither when the kernel is read nor in a worker."""
    py_compile.compile(str(module), cfile=str(module.with_name("hidden.pyc")))
    assert "ModuleNotFoundError" in which(module.parents[1], "kernels.hidden")
    with pytest.raises(SourceError, match='no module "hidden"'):
        find_target("kernels.hidden", "which", module.parents[1])


def test_an_extension_beside_a_module_does_not_come_first(module: Path) -> None:
    """Python would load `softmax.cpython-….so` instead of `softmax.py`; a worker takes the text that was read."""
    planted = module.with_name(f"softmax{EXTENSION_SUFFIXES[0]}")
    planted.write_bytes(b"not even a library")
    assert which(module.parents[1], "kernels.softmax") == "honest"
    assert find_target("kernels.softmax", "which", module.parents[1]) == module


def test_a_compiled_module_of_the_project_is_in_its_digest(project: Any, tmp_path: Path) -> None:
    """A kernel that is a compiled module is found, and another file of that name is another kernel."""
    library = tmp_path / f"scan{EXTENSION_SUFFIXES[0]}"
    library.write_bytes(b"\x7fELF one")
    kernel = "{op: torch.relu, device: cpu, target: 'scan:scan'}"
    before = project.source(kernel)
    assert before.files == (str(library),)
    library.write_bytes(b"\x7fELF two")
    assert project.source(kernel).digest != before.digest


@pytest.mark.parametrize("name", ["torch", "pytest_cgins", "statistics", "sympy"])
def test_a_project_does_not_replace_what_the_worker_imports(tmp_path: Path, name: str) -> None:
    """Files at the top of a project that are named like torch's, our or Python's modules are passed over."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(HONEST)
    (tmp_path / "plain.py").write_text(HONEST)
    code = RUN.replace("importlib.import_module", "importlib.util.find_spec").replace(".which()", ".origin")
    found = which(tmp_path, name, code=code.replace("import importlib;", "import importlib.util;"))
    assert found.endswith(("__init__.py", f"{name}.py"))
    assert not found.startswith(str(tmp_path))
    assert which(tmp_path, "plain") == "honest"
    with pytest.raises(SourceError, match=f'"{name}" is the name of a module that Python, torch or'):
        find_target(f"{name}", "which", tmp_path)


def test_a_project_comes_before_installed_packages(tmp_path: Path) -> None:
    """Another package of the same name in the environment does not hide the project's."""
    for folder, text in (("project", HONEST), ("installed", PLANTED)):
        (tmp_path / folder / "kernels").mkdir(parents=True)
        (tmp_path / folder / "kernels" / "__init__.py").write_text(text)
    assert which(tmp_path / "project", "kernels", PYTHONPATH=str(tmp_path / "installed")) == "honest"


def test_an_environment_in_the_project_keeps_its_bytecode(tmp_path: Path) -> None:
    """Packages below `.venv` are not compiled anew in each worker."""
    site = tmp_path / ".venv" / "lib" / "python3" / "site-packages"
    site.mkdir(parents=True)
    (site / "installed_thing.py").write_text(HONEST)
    code = f"import sys; sys.path.append({str(site)!r}); {RUN}"
    assert which(tmp_path, "installed_thing", code=code, PYTHONDONTWRITEBYTECODE="") == "honest"
    assert (site / "__pycache__").is_dir()
