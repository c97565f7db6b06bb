"""Torch operators: what registers them is found, built by the project's own command, digested, and loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch

from pytest_cgins.building import build_command
from pytest_cgins.building.build import build
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.kernel_builds import KernelBuilds
from pytest_cgins.building.loading.callable import load as load_kernel
from pytest_cgins.building.revision.base_kernels import BaseKernel, BaseKernels
from pytest_cgins.config import Config, load
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import BuildError, CginsError, InfrastructureError, LaunchError, SourceError
from tests.repository import commit, git

OPERATOR = "op: torch.ops.cgins_lib.twice, device: cpu"
LIBRARY = """\
import torch

@torch.library.custom_op("cgins_lib::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Config]:
    """Writes files, and a cgins.yaml of one kernel."""

    def write(kernel: str, files: dict[str, str] | None = None) -> Config:
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        file = tmp_path / "cgins.yaml"
        file.write_text(f"version: 1\nkernels:\n  twice: {{{kernel}}}\n")
        return load(file)

    return write


def source_of(config: Config) -> KernelSource:
    entry = config.kernels[0]
    return find(config, entry, entry.implementations[0])


def test_an_operator_is_its_own_implementation(write: Callable[..., Config]) -> None:
    """What is loaded is enough; libraries of a package are digested with it."""
    config = write(f"{OPERATOR}, load: [lib]", {"lib/__init__.py": "", "lib/_C.abi3.so": "one"})
    source = source_of(config)
    assert config.kernels[0].implementations[0].name == "operator"
    assert (source.contract, source.operator) == ("python", "cgins_lib.twice")
    assert [Path(file).name for file in source.files] == ["__init__.py", "_C.abi3.so"]
    (config.root / "lib/_C.abi3.so").write_text("another")
    assert source_of(config).digest != source.digest


@pytest.mark.parametrize(
    ("kernel", "what", "remedy"),
    [
        ("load: [build/lib.so]", "cgins.yaml:3: no such file: build/lib.so", "add build: COMMAND"),
        ("load: [build/lib.so], build: 'true'", "cgins.yaml:3: no such file: build/lib.so", "its build did not make it"),
        ("load: [libs]", 'no module "libs"', "modules are looked up"),
    ],
)  # fmt: skip
def test_what_is_not_there(write: Callable[..., Config], kernel: str, what: str, remedy: str) -> None:
    """A library or module that is missing is named with the line, and what to do."""
    with pytest.raises(SourceError) as caught:
        source_of(write(f"{OPERATOR}, {kernel}"))
    assert what in caught.value.what
    assert remedy in caught.value.remedy


def test_an_operator_is_loaded_and_bound(write: Callable[..., Config]) -> None:
    """A module registers it; a name that it does not register is told with the nearest one, and so is a bad library."""
    loaded = "load: [cgins_registers]"
    config = write(f"{OPERATOR}, {loaded}", {"cgins_registers.py": LIBRARY, "empty.so": "no library"})
    load_kernel(build(source_of(config)))
    assert torch.ops.cgins_lib.twice(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    for target, near in (("twic", '"cgins_lib::twice"'), ("twice.out", '"cgins_lib::twice"')):
        with pytest.raises(SourceError, match="no operator cgins_lib::") as caught:
            load_kernel(
                build(source_of(write(f"{OPERATOR}, target: torch.ops.cgins_lib.{target}, {loaded}")))
            )
        assert near in caught.value.remedy
    with pytest.raises(LaunchError, match="empty"):
        load_kernel(build(source_of(write(f"{OPERATOR}, load: [empty.so]"))))


def error_of(config: Config, cache: Path) -> CginsError | None:
    """What the builds of a run say of the kernel; None for nothing."""
    with closing(KernelBuilds(config, cache=cache / "builds")) as builds:
        try:
            builds.kernel("twice", "operator", "cpu")
        except CginsError as error:
            return error
    return None


def test_the_command_makes_what_is_loaded(
    write: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs once a run and not once a kernel, with this Python; the processes of one run of xdist share that."""
    command = (
        "echo ran >> log && mkdir -p build && python -c 'import sys; print(sys.executable)' > build/lib.so"
    )
    config = write(f'{OPERATOR}, load: [build/lib.so], build: "{command}"')
    monkeypatch.delenv(build_command.RUN, raising=False)
    for _ in range(2):
        assert error_of(config, tmp_path) is None
    assert (config.root / "log").read_text().splitlines() == ["ran"] * 2
    assert Path((config.root / "build/lib.so").read_text().strip()).parent == Path(sys.executable).parent
    monkeypatch.setenv(build_command.RUN, "one run")
    for _ in range(3):
        assert error_of(config, tmp_path) is None
    assert len((config.root / "log").read_text().splitlines()) == 3


def test_a_command_that_fails(write: Callable[..., Config], tmp_path: Path) -> None:
    """Its last lines are told, its whole log is kept; in the sandbox it is not run at all."""
    config = write(f"{OPERATOR}, load: [lib.so], build: 'seq 30; echo no such header >&2; exit 3'")
    error = error_of(config, tmp_path)
    assert isinstance(error, BuildError)
    assert "ended with status 3\n  … 19 lines before\n  20\n" in error.what
    assert "no such header" in error.what
    assert error.log.splitlines()[0] == "1"
    assert "folder of cgins.yaml" in error.remedy
    with pytest.raises(InfrastructureError, match="sandbox"):
        build_command.Commands(tmp_path, tmp_path / "cache", fenced=True).run("true", "k")
    with pytest.raises(BuildError, match="was not done after 0"):
        build_command.Commands(tmp_path, tmp_path / "cache", timeout_s=0.2).run("sleep 9", "k")


def base_of(config: Config, cache: Path) -> BaseKernel:
    compiled = build(source_of(config))
    with closing(BaseKernels(config, wanted="HEAD", cache=cache)) as bases:
        return bases.of("twice", "operator", "cpu", compiled)


def test_the_base_revision(write: Callable[..., Config], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Unchanged only if git has what is loaded, or what builds it; what cannot be compared says why."""
    cache = tmp_path_factory.mktemp("cache")
    config = write(
        f"{OPERATOR}, load: [lib.so]", {"lib.so": "one", "lib.cpp": "int f();", ".gitignore": "*.so\n"}
    )
    git(config.root, "init", "-q")
    commit(config.root)
    untracked = base_of(config, cache)
    assert (untracked.state, "git does not have" in untracked.note) == ("refused", True)
    (config.root / "lib.cpp").write_text("int g();")
    changed = base_of(config, cache)
    assert changed.state == "refused"
    assert "lib.so is not in git at " in changed.note
    (config.root / ".gitignore").write_text("")
    commit(config.root)
    assert base_of(config, cache).state == "unchanged"
    (config.root / "notes.md").write_text("prose")
    assert base_of(config, cache).state == "unchanged"
    (config.root / "lib.so").write_text("two")
    tracked = base_of(config, cache)
    assert (tracked.state, "one operator of a name in a process" in tracked.note) == ("apart", True)
    (config.root / "lib.so").write_text("one")
    config = write(f"{OPERATOR}, load: [lib.so], build: 'true'", {".gitignore": "*.so\n"})
    git(config.root, "rm", "-q", "--cached", "lib.so")
    commit(config.root)
    assert base_of(config, cache).state == "unchanged"
