"""Finding sources: what is read, digested, and refused without compiling or importing anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building.contracts import source as sources
from pytest_cgins.core.errors import SourceError

PYTHON = "{op: torch.mul, device: cuda, target: TARGET}"


def test_launcher(project: Any, scale_text: str) -> None:
    """A launcher's entry is the name in its schema line; defines and flags become compiler flags."""
    path = project.write("kernel.cpp", scale_text)
    found = project.source("{op: torch.mul, source: kernel.cpp, defines: {TILE: 128}, flags: [-g]}")
    assert (found.entry, found.contract, found.device) == ("scale", "launcher", "cpu")
    assert found.schema == "scale(Tensor input, float other) -> Tensor"
    assert found.files == (str(path),)
    assert found.flags == ("-DTILE=128", "-g")
    assert len(found.digest) == 64


@pytest.mark.parametrize(
    "kernel",
    [
        "{op: torch.mul, source: kernel.cpp, defines: {TILE: 64}}",
        "{op: torch.mul, source: kernel.cpp, flags: [-g]}",
        "{op: torch.div, source: kernel.cpp}",
    ],
)
def test_digest_follows_options(project: Any, scale_text: str, kernel: str) -> None:
    """The digest changes with the op, the defines and the flags."""
    project.write("kernel.cpp", scale_text)
    base = project.source("{op: torch.mul, source: kernel.cpp}").digest
    assert project.source("{op: torch.mul, source: kernel.cpp}").digest == base
    assert project.source(kernel).digest != base


def test_digest_follows_every_listed_source(project: Any) -> None:
    """Of a Python target, files under `sources` count besides the module."""
    project.write("cgins_test_a.py", "def f(): ...\n")
    project.write("helper.py", "A = 1\n")
    kernel = "{op: torch.mul, device: cuda, target: cgins_test_a:f, sources: [helper.py]}"
    before = project.source(kernel)
    assert [Path(file).name for file in before.files] == ["cgins_test_a.py", "helper.py"]
    project.write("helper.py", "A = 2\n")
    assert project.source(kernel).digest != before.digest


def test_code_of() -> None:
    """Comments and strings are blanked, lines are kept."""
    text = 'a // f_workspace(\n/* f_workspace(\n*/ "f_workspace(" b'
    assert sources.code_of(text).split() == ["a", "b"]
    assert sources.code_of(text).count("\n") == 2
    assert not sources.wants_workspace(text, "f")
    assert sources.wants_workspace("int64_t f_workspace (const DLTensor*);", "f")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("def f(): ...", "m:f"),
        ("async def g(): ...\nf = g", "m:f"),
        ("from os import path as f", "m:f"),
        ("if True:\n    def f(): ...", "m:f"),
        ("try:\n    import f\nexcept ImportError:\n    f: object = None", "m:f"),
        ("from os.path import *", "m:f"),
        ("def __getattr__(name): ...", "m:f"),
        ("a, (f, b) = 1, (2, 3)", "m:f"),
    ],
)
def test_names_that_a_module_defines(project: Any, text: str, target: str) -> None:
    """Every way of binding a top-level name counts; a module that cannot be judged is believed."""
    project.write("cgins_test_m.py", text)
    assert project.source(PYTHON.replace("TARGET", f"cgins_test_{target}")).entry == "f"


@pytest.mark.parametrize(
    ("target", "what", "remedy"),
    [
        ("cgins_pkg.mod:sofmax", 'mod.py: module "cgins_pkg.mod" defines no "sofmax"', '"softmax"'),
        ("cgins_pkg.mood:softmax", 'no module "mood" in package cgins_pkg', '"mod"'),
        ("cgins_pgk.mod:softmax", 'no module "cgins_pgk" in', '"cgins_pkg"'),
        ("cgins_pkg:softmax", '"cgins_pkg" is a folder without __init__.py', "cgins_pkg.FILE:FUNCTION"),
        ("cgins_pkg.bad:softmax", "bad.py:2: ", "correct the syntax"),
    ],
)
def test_python_target_refused(project: Any, target: str, what: str, remedy: str) -> None:
    """A wrong module or function is refused with the nearest right name, and nothing is imported."""
    project.write("cgins_pkg/mod.py", "raise SystemExit\ndef softmax(): ...\n")
    project.write("cgins_pkg/bad.py", "x = 1\ndef softmax(:\n")
    with pytest.raises(SourceError) as caught:
        project.source(PYTHON.replace("TARGET", target))
    assert what in caught.value.what
    assert remedy in caught.value.remedy


def test_installed_module(project: Any) -> None:
    """A target may live in an installed library."""
    found = project.source(PYTHON.replace("TARGET", "json.decoder:JSONDecoder"))
    assert found.files[0].endswith("json/decoder.py")


def test_extension_entry(project: Any) -> None:
    """The entry of a torch extension must occur in its source."""
    project.write("k.cpp", "torch::Tensor scale(torch::Tensor x) { return x; }\n")
    kernel = "{op: torch.mul, contract: torch-extension, source: k.cpp, entry: scael}"
    with pytest.raises(SourceError) as caught:
        project.source(kernel)
    assert 'k.cpp: no function "scael"' in caught.value.what
    assert caught.value.remedy == 'did you mean "scale"?'


def test_source_that_is_gone_or_not_text(tmp_path: Path) -> None:
    """A source that vanished after loading, or is no text, is refused by name."""
    (tmp_path / "kernel.cpp").write_bytes(b"\xff\xfe")
    with pytest.raises(SourceError, match=r"kernel\.cpp: not UTF-8 at byte 0"):
        sources.read(tmp_path / "kernel.cpp")
    with pytest.raises(SourceError) as caught:
        sources.read(tmp_path / "kernl.cpp")
    assert caught.value.remedy == 'did you mean "kernel.cpp"?'
