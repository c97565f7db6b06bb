"""The base revision's kernels, built and loaded beside those of the working tree."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.builders import extension_pch
from pytest_cgins.building.kernel_builds import KernelBuilds
from pytest_cgins.building.revision import base_sources
from pytest_cgins.building.revision.base_kernels import BaseKernel, BaseKernels
from pytest_cgins.building.revision.merge_base import MERGE_BASE, NONE, TARGETS
from pytest_cgins.config import Config, load
from pytest_cgins.core import documents
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.errors import InfrastructureError, RevisionError
from tests.building.processes import python
from tests.repository import commit, git

CPP = """\
// cgins: scale(Tensor input) -> Tensor
#include <cgins.h>
#include "factor.h"
template <class T> struct Counter { static int calls; };
template <class T> int Counter<T>::calls = 0;
inline int& of_function() { static int calls = 0; return calls; }
extern "C" int scale(const DLTensor* input, DLTensor* out, cgins_stream) {
  float calls = float(++Counter<float>::calls + 10 * ++of_function());
  for (int64_t i = 0; i < cgins::numel(input); ++i) cgins::data<float>(out)[i] = FACTOR * calls;
  return 0;
}
"""
EXTENSION = """\
#include <torch/extension.h>
#include "twice.h"
inline int& calls() { static int count = 0; return count; }
torch::Tensor twice(torch::Tensor input) { return torch::full_like(input, TWICE * ++calls()); }
"""
YAML = """\
version: 1
kernels:
  scale:
    op: torch.relu
    implementations:
      - {name: cpp, device: cpu, source: native/scale.cpp}
      - {name: python, device: cpu, target: 'kernels.scale:scale'}
      - {name: installed, device: cpu, target: 'torch:relu'}
      - {name: extension, device: cpu, contract: torch-extension, source: native/twice.cpp, entry: twice, flags: [-O0]}
"""
FILES = {
    "cgins.yaml": YAML,
    "native/scale.cpp": CPP,
    "native/factor.h": "#define FACTOR 2\n",
    "native/twice.cpp": EXTENSION,
    "native/twice.h": "#define TWICE 2\n",
    "kernels/__init__.py": "",
    "kernels/scale.py": "from kernels.common import FACTOR\ndef scale(input):\n    return input * 0 + FACTOR\n",
    "kernels/common.py": "FACTOR = 2\n",
    "notes.md": "notes\n",
}
CALL = """\
import gc, json, os, sys
gc.disable()  # not worth its time while torch is imported, nor is what Python takes apart at the end
import torch
from pytest_cgins.run.kernels import KernelCache
from pytest_cgins.core import documents
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta, Value
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.packs.ops import resolve
from pytest_cgins.packs.signature import bind
from pytest_cgins.packs.values import encode
tensors = []
arguments = tuple(Argument(name=n, value=encode(v, tensors), passed=p)
                  for n, v, p in bind(resolve("torch.relu"), (torch.zeros(2),), {}))
call = OpCall(op="torch.relu", arguments=arguments)
meta = TensorMeta(dtype="float32", shape=(2,), stride=(1,), offset=0, storage=0)
cache = KernelCache()
said = []
for document in json.load(sys.stdin):
    bound = cache.load(documents.load_python(CompiledKernel, document)).bind(call, tensors, [meta], "cpu")
    said.append([float(bound.run()[0][0]) for _ in range(2)])
print(json.dumps(said), flush=True)
os._exit(0)
"""
Of = Callable[..., BaseKernel]
Made = Callable[..., BaseKernels]


@pytest.fixture(autouse=True)
def _no_precompiled_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making it takes longer than the few builds here would save."""
    monkeypatch.setattr(extension_pch, "USES_BEFORE", 1000)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository's folder `project` with kernels of all contracts, committed."""
    for name in TARGETS:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "repository" / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    commit(folder.parent)
    return folder


def config_of(project: Path) -> Config:
    return load(project / "cgins.yaml", require_traces=False)


@pytest.fixture
def made(project: Path) -> Iterator[Made]:
    """Makes the base kernels of the project as it is; closed at the end."""
    with ExitStack() as stack:

        def make(wanted: str = MERGE_BASE) -> BaseKernels:
            kernels = BaseKernels(config_of(project), wanted=wanted)
            stack.callback(kernels.close)
            return kernels

        yield make


def head(project: Path, implementation: str) -> CompiledKernel:
    with closing(KernelBuilds(config_of(project))) as kernel_builds:
        return kernel_builds.kernel("scale", implementation, "cpu")


@pytest.fixture
def of(project: Path, made: Made) -> Of:
    """The base's counterpart of an implementation of the project as it is now."""

    def find(implementation: str, wanted: str = MERGE_BASE) -> BaseKernel:
        return made(wanted).of("scale", implementation, "cpu", head(project, implementation))

    return find


def called(*compiled: CompiledKernel) -> list[list[float]]:
    """What kernels in one process write, each called twice."""
    done = python(CALL, input=json.dumps([documents.dump_python(one) for one in compiled]))
    found: list[list[float]] = json.loads(done.stdout)
    return found


def both(project: Path, of: Of, implementation: str) -> list[list[float]]:
    """What the head's and the base's kernel write in one process, and in which order they are loaded is the same."""
    base = of(implementation)
    assert (base.state, base.note) == ("changed", "")
    assert base.compiled is not None
    assert base.revision == git(project, "rev-parse", "main")
    ours = head(project, implementation)
    found = called(ours, base.compiled)
    assert called(base.compiled, ours) == found[::-1]
    return found


def test_where_nothing_differs_nothing_is_written_or_built(
    project: Path, of: Of, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prose and trace packs may differ; git alone tells that all kernels are unchanged."""
    (project / "notes.md").write_text("other notes\n")
    monkeypatch.setattr(base_sources.revisions, "Checkout", None)
    for name in ("cpp", "python", "installed"):
        assert of(name) == BaseKernel(state="unchanged", revision=git(project, "rev-parse", "HEAD"))
    kernels = made()
    kernels.build_ahead([("scale", "cpp", "cpu")])
    assert kernels.root is None
    assert kernels.label == f"{git(project, 'rev-parse', 'HEAD')[:10]} (merge-base with main)"


def test_nothing_is_asked_before_it_is_needed(
    project: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make them costs no process and no file."""
    monkeypatch.setattr(base_sources.revisions, "resolve", None)
    made()
    made("no-such-commit")


@pytest.mark.exam
def test_a_changed_source_is_built_beside_the_heads(project: Path, of: Of) -> None:
    """Two launchers of one name share nothing, not even statics of templates and of inline functions."""
    (project / "native" / "scale.cpp").write_text(CPP.replace("FACTOR *", "3 *"))
    assert both(project, of, "cpp") == [[33.0, 66.0], [22.0, 44.0]]


@pytest.mark.exam
def test_a_changed_header_is_another_build(project: Path, of: Of) -> None:
    """The text of the source is the same, and that of what it includes is not."""
    (project / "native" / "factor.h").write_text("#define FACTOR 5\n")
    assert both(project, of, "cpp") == [[55.0, 110.0], [22.0, 44.0]]


@pytest.mark.exam
def test_another_file_leaves_built_kernels_unchanged_and_python_ones_in_doubt(project: Path, of: Of) -> None:
    """A module that a Python kernel imports is in no digest."""
    (project / "kernels" / "common.py").write_text("FACTOR = 7\n")
    assert of("cpp").state == "unchanged"
    assert of("installed").state == "unchanged"
    assert both(project, of, "python") == [[7.0, 7.0], [2.0, 2.0]]


def test_a_new_file_that_git_does_not_know_counts(project: Path, of: Of) -> None:
    """An untracked module may be what a Python kernel imports."""
    (project / "kernels" / "other.py").write_text("FACTOR = 7\n")
    assert of("python").state == "changed"


def test_an_ignored_source_has_no_base(project: Path, of: Of) -> None:
    """A generated source is not in git: what it was is not known."""
    (project / ".gitignore").write_text("native/twice.cpp\n")
    git(project, "rm", "-q", "--cached", "native/twice.cpp")
    commit(project)
    found = of("python")
    assert found.state == "unchanged"
    base = BaseKernels(config_of(project), wanted="HEAD")
    twice = head(project, "python")
    files = (str(project / "native" / "twice.cpp"),)
    told = base.of("scale", "extension", "cpu", replace(twice, source=replace(twice.source, files=files)))
    assert told.state == "refused"
    assert "git does not have all of its files at" in told.note


@pytest.mark.exam
def test_a_torch_extension_of_both_revisions(project: Path, of: Of) -> None:
    """pybind11 binds both functions, which have statics of their own, though only a header differs."""
    (project / "native" / "twice.h").write_text("#define TWICE 3\n")
    assert both(project, of, "extension") == [[3.0, 6.0], [2.0, 4.0]]


REGISTERED = EXTENSION + 'TORCH_LIBRARY(cgins_base_test, m) { m.def("twice", &twice); }\n'


@pytest.mark.exam
def test_an_extension_that_registers_operators_is_timed_apart(project: Path, made: Made) -> None:
    """torch has one operator of a name in a process, and would end it: alone, it can be loaded."""
    file = project / "cgins.yaml"
    file.write_text(YAML.replace("entry: twice", "entry: 'cgins_base_test::twice'"))
    (project / "native" / "twice.cpp").write_text(REGISTERED)
    commit(project)
    (project / "native" / "twice.h").write_text("#define TWICE 3\n")
    found = made().of("scale", "extension", "cpu", head(project, "python"))
    assert (found.state, found.compiled) == ("apart", None)
    told = "it registers operators with torch (TORCH_LIBRARY), which has one of each name in a process"
    assert told in found.note
    assert "let entry name a function on torch::Tensor" in found.note


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n@torch.library.custom_op('a::b', mutates_args=())\ndef f(x: torch.Tensor) -> None: ...\n",
        "from torch.library import triton_op\n",
        "import torch\nlib = torch.library.Library('a', 'DEF')\n",
        "SOURCE = 'TORCH_LIBRARY(a, m) {}'\n",
    ],
)
def test_a_module_that_registers_operators_is_timed_apart(project: Path, of: Of, text: str) -> None:
    """The second registration would take the place of the first one, and head would run the base's code."""
    (project / "kernels" / "ops.py").write_text(text)
    (project / "kernels" / "common.py").write_text("FACTOR = 2\ndef lazily():\n    from . import ops\n")
    commit(project)
    (project / "kernels" / "common.py").write_text("FACTOR = 3\n")
    found = of("python")
    assert found.state == "apart"
    assert "ops.py:" in found.note
    assert "registers an operator with torch" in found.note


def test_a_kernel_that_the_base_does_not_have_is_new(project: Path, of: Of) -> None:
    """As is every kernel of a file that it does not have."""
    (project / "cgins.yaml").write_text(
        YAML + "      - {name: more, device: cpu, target: 'kernels.scale:scale'}\n"
    )
    found = of("more")
    commit_id = git(project, "rev-parse", "HEAD")
    assert found == BaseKernel(
        state="new", note=f"the kernel is not at {commit_id[:10]} (merge-base with main)", revision=commit_id
    )
    assert of("cpp").state == "unchanged"
    git(project, "mv", "-f", "cgins.yaml", "gone.yaml")
    commit(project)
    (project / "cgins.yaml").write_text(YAML)
    assert "cgins.yaml is not at" in of("cpp").note


def test_a_base_that_cannot_be_built_is_refused_in_one_line(project: Path, of: Of) -> None:
    """Its sources do not compile, are not there, or were for another op."""
    (project / "native" / "scale.cpp").write_text("// cgins: scale(Tensor input) -> Tensor\nnonsense\n")
    commit(project)
    (project / "native" / "scale.cpp").write_text(CPP)
    found = of("cpp")
    assert found.state == "refused"
    assert found.note.startswith("cannot be built at")
    assert "\n" not in found.note
    (project / "native" / "scale.cpp").unlink()
    commit(project)
    (project / "native" / "scale.cpp").write_text(CPP)
    gone = of("cpp")
    assert gone.state == "refused"
    assert gone.note.endswith("no such file: native/scale.cpp")
    git(project, "add", "-A")
    (project / "cgins.yaml").write_text(YAML.replace("torch.relu", "torch.sigmoid"))
    commit(project)
    (project / "cgins.yaml").write_text(YAML)
    assert of("cpp").note.endswith("it was a kernel for torch.sigmoid")


def test_without_a_base_revision(project: Path, of: Of, made: Made) -> None:
    """None was wanted, there is no repository, or the commit that was named does not exist."""
    assert of("python", NONE) == BaseKernel(state="none", note="compared with nothing, as asked")
    with pytest.raises(RevisionError, match='git knows no commit "nowhere"'):
        of("python", "nowhere")
    with pytest.raises(RevisionError, match='git knows no commit "nowhere"'):
        _ = made("nowhere").root
    (project.parent / ".git").rename(project.parent / "no-git")
    found = of("python")
    assert found.state == "none"
    assert found.note.startswith(f"no base revision: {project} is in no git repository")
    assert made().label == ""
    assert made().root is None


def test_files_stay_until_it_is_closed(project: Path) -> None:
    """The folder is there for workers, and the answers are remembered."""
    (project / "kernels" / "common.py").write_text("FACTOR = 7\n")
    kernels = BaseKernels(config_of(project), wanted="main")
    root = kernels.root
    assert root is not None
    ours = head(project, "python")
    found = kernels.of("scale", "python", "cpu", ours)
    assert found.compiled is not None
    assert Path(found.compiled.source.files[0]) == root / "project" / "kernels" / "scale.py"
    assert kernels.of("scale", "python", "cpu", ours) is found
    kernels.close()
    assert not root.exists()


@pytest.mark.exam
def test_kernels_from_a_folder_of_sources_beside_the_file(
    project: Path, of: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package in `src`, which an editable installation has put on the path, is the base's own as well."""
    source = project.parent / "src"
    (project / "kernels").rename(source / "kernels") if source.mkdir() is None else None
    monkeypatch.setattr(sys, "path", [str(source), *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")]))
    commit(project.parent)
    (source / "kernels" / "common.py").write_text("FACTOR = 7\n")
    assert both(project, of, "python") == [[7.0, 7.0], [2.0, 2.0]]


def test_trace_packs_are_not_shown_to_workers(project: Path, of: Of, made: Made) -> None:
    """The base's files have no gold in them, neither of packs that it lists nor of those that are listed now."""
    for pack in ("old", "new"):
        (project / "traces" / pack).mkdir(parents=True)
        (project / "traces" / pack / "gold.bin").write_text(pack)
    (project / "cgins.yaml").write_text(YAML + "traces: [traces/old]\n")
    commit(project)
    (project / "cgins.yaml").write_text(YAML + "traces: [traces/new]\n")
    (project / "kernels" / "common.py").write_text("FACTOR = 3\n")
    root = made().root
    assert root is not None
    assert (root / "project" / "cgins.yaml").is_file()
    assert not list(root.rglob("gold.bin"))


@pytest.mark.exam
@pytest.mark.parametrize("implementation", ["cpp", "python"])
def test_a_twin_of_an_unchanged_kernel(project: Path, made: Made, implementation: str) -> None:
    """It is built or imported once more, and has counters of its own."""
    ours = head(project, implementation)
    found = made().twin(ours)
    assert (found.state, found.note) == ("changed", "")
    assert found.compiled is not None
    assert found.compiled.key != ours.key
    said = called(ours, found.compiled)
    assert said[0] == said[1]


def test_what_changed_is_built_ahead(project: Path) -> None:
    """Only kernels whose own files changed; compilers rest and end with those of the run."""
    (project / "native" / "scale.cpp").write_text(CPP.replace("FACTOR *", "9 *"))
    config = config_of(project)
    builds = BuildQueue()
    kernels = BaseKernels(config, wanted=MERGE_BASE, builds=builds)
    names = [("scale", one.name, one.device) for one in config.kernels[0].implementations]
    kernels.build_ahead(names)
    found = kernels.of(*names[0], head(project, "cpp"))
    assert found.state == "changed"
    assert kernels._build_queue.progress().total == 1
    assert builds.progress().total == 0
    kernels.close()
    builds.close()


@pytest.mark.parametrize(
    ("file", "touched"),
    [
        ("notes.md", []),
        ("native/scale.cpp", ["cpp", "python", "installed"]),
        ("native/factor.h", ["cpp", "extension", "python", "installed"]),
        ("native/new.cuh", ["cpp", "extension", "python", "installed"]),
        ("kernels/common.py", ["python", "installed"]),
        ("kernels/tuned.json", ["python", "installed"]),
        ("cgins.yaml", ["cpp", "extension", "python", "installed"]),
    ],
)
def test_what_a_changed_file_touches(project: Path, made: Made, file: str, touched: list[str]) -> None:
    """Only for these a process is started in which the base is timed alone; too many cost time, too few a wait."""
    (project / file).write_text((project / file).read_text() + "\n" if (project / file).exists() else "")
    kernels = made()
    names = ("cpp", "extension", "python", "installed")
    assert [name for name in names if kernels.is_touched("scale", name, "cpu")] == touched
    assert not kernels.is_touched("scale", "unknown", "cpu")


def test_a_base_that_git_cannot_give_is_nobody_s_pass(project: Path) -> None:
    """A clone that lost a file of the base cannot compare with it, which is not the same as having no base."""
    blob = git(project, "rev-parse", "HEAD:./cgins.yaml")
    (Path(git(project, "rev-parse", "--absolute-git-dir")) / "objects" / blob[:2] / blob[2:]).unlink()
    sources = base_sources.BaseSources(load(project / "cgins.yaml"), MERGE_BASE)
    for _ in range(2):  # the first answer is not remembered as another
        with pytest.raises(InfrastructureError):
            sources.source("scale", "cpp", "cpu")
    sources.close()
