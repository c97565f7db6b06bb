"""`--cgins-compile-only`: every `cgins.yaml` is a file whose items are builds, one an implementation and architecture."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins import config as configuration
from pytest_cgins.app.session.builds import RunBuilds
from pytest_cgins.app.session.collect import GatedItem, node_id
from pytest_cgins.app.session.gate import Gate
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.options import BASELINE, FIXTURES
from pytest_cgins.gate.compilation import Compiler, Target

NEEDS_KERNEL = "runs a kernel; --cgins-compile-only only builds them"


class CompileOnly:
    """The hooks that collect and build; `GateSession` reports."""

    plugin_name = "cgins-compile-only"

    def __init__(self, gate: Gate, builds: RunBuilds) -> None:
        self.gate = gate
        self._config = config = gate.config
        self._builds = builds
        self._compilers: dict[Path, Compiler] = {}
        archs: str = config.getoption("--cgins-arch") or ""
        self._archs = tuple(arch.strip() for arch in archs.split(",") if arch.strip())
        self._baseline: str = config.getoption("--cgins-baseline") or ""

    def compiler(self, file: Path) -> Compiler:
        """The compiler of one `cgins.yaml`, made at the first call.

        Raises:
            ConfigError: the file is wrong.
            RevisionError: the commit to compare with is unknown.
        """
        if file not in self._compilers:
            config = configuration.load(file, require_traces=False, require_sources=False)
            compiler = Compiler(
                config,
                archs=self._archs,
                baseline=self._baseline or config.baseline or BASELINE,
                build_queue=self._builds.ahead,
                on_wait=self._builds.show,
            )
            compiler.revision()
            self._compilers[file] = compiler
        return self._compilers[file]

    # ---- pytest's hooks

    def pytest_report_header(self) -> str:
        """Say what this run is not."""
        archs = f" for {', '.join(self._archs)}" if self._archs else ""
        base = self._baseline or f"gate.baseline, else {BASELINE}"
        return f"cgins: CUDA kernels are built{archs}, none is run; compared with {base}"

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Take every `cgins.yaml`."""
        if file_path.name == "cgins.yaml":
            file: pytest.Collector = BuildsFile.from_parent(parent, path=file_path, plugin=self)
            return file
        return None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Skip tests of the user's that take kernels."""
        for item in items:
            asks = item.get_closest_marker("cgins") or not FIXTURES.isdisjoint(
                getattr(item, "fixturenames", ())
            )
            if asks and not isinstance(item, BuildItem):
                item.add_marker(pytest.mark.skip(reason=NEEDS_KERNEL))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin to build what was selected."""
        if self._config.option.collectonly:
            return
        for file, compiler in self._compilers.items():
            items = [item for item in session.items if isinstance(item, BuildItem) and item.path == file]
            compiler.start(item.target for item in items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End builds that nobody waits for any more."""
        for compiler in self._compilers.values():
            compiler.close()


class BuildsFile(pytest.File):
    """One `cgins.yaml`."""

    def __init__(
        self, *, plugin: CompileOnly, path: Path, parent: pytest.Collector, **arguments: Any
    ) -> None:
        super().__init__(path=path, parent=parent, nodeid=node_id(path, parent), **arguments)
        self._plugin = plugin

    def collect(self) -> Iterator[BuildItem]:
        """One item a build; whatever is wrong with the file or the options is a collection error."""
        try:
            targets = self._plugin.compiler(self.path).targets()
        except CginsError as error:
            raise self.CollectError(str(error)) from error
        for target in targets:
            find = partial(self._plugin.compiler(self.path).compile, target)
            yield BuildItem.from_parent(
                self, name=target.name, target=target, find=find, gate=self._plugin.gate
            )


class BuildItem(GatedItem):
    """A build."""

    def __init__(self, *, target: Target, **arguments: Any) -> None:
        kernel, implementation = target.kernel, target.implementation
        super().__init__(kind="build", line=implementation.line, **arguments)
        self.target = target
        self.mark(kernel=kernel.name, op=kernel.op, implementation=implementation.name)
