"""`cgins.yaml` as pytest sees it: a file whose items are the cases, of which `--cgins-shard I/N` leaves a part."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app.session import outcome, results
from pytest_cgins.app.session.gate import Gate
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.session_report import Shard
from pytest_cgins.core.text import upwards
from pytest_cgins.gate.cases import operator_checks
from pytest_cgins.report.durations import Durations, parts


def take_from_above(config: pytest.Config) -> None:
    """Have a run that was begun in a folder below a `cgins.yaml`, without paths, take that file."""
    folder = config.invocation_params.dir
    if config.args_source is not pytest.Config.ArgsSource.INVOCATION_DIR or _has_own(config, folder):
        return
    found = upwards(folder)
    if found is not None:
        config.args.append(str(found))


def _has_own(config: pytest.Config, folder: Path) -> bool:
    """Whether pytest would come by a `cgins.yaml` in or below a folder."""
    skipped = config.getini("norecursedirs")
    for _, folders, files in os.walk(folder):
        if "cgins.yaml" in files:
            return True
        folders[:] = [name for name in folders if not any(fnmatch(name, pattern) for pattern in skipped)]
    return False


def node_id(path: Path, parent: pytest.Collector) -> Any:
    """Where pytest has no name for a file, above its root, the path to it."""
    root = parent.config.rootpath
    return None if root in path.parents else os.path.relpath(path, root)


class CginsFile(pytest.File):
    """One `cgins.yaml`."""

    def __init__(self, *, gate: Gate, path: Path, parent: pytest.Collector, **arguments: Any) -> None:
        super().__init__(path=path, parent=parent, nodeid=node_id(path, parent), **arguments)
        self._gate = gate

    def collect(self) -> Iterator[pytest.Item]:
        """One item a case, and one a model; whatever is wrong with the file or its packs is a collection error."""
        try:
            cases = self._gate.cases(self.path)
        except CginsError as error:
            raise self.CollectError(str(error)) from error
        config = self._gate.evaluator(self.path).config
        for case in cases:
            line = config.implementations[case.key][1].line
            checks = operator_checks(config, case) if self.config.getoption("--cgins-opcheck") else ()
            for member in (case, *checks):
                find = partial(self._gate.evaluate, self.path, member)
                yield CaseItem.from_parent(
                    self, name=member.name, case=member, line=line, find=find, gate=self._gate
                )
        yield from self._gate.model_items(self)


class GatedItem(pytest.Item):
    """A case, model or build of a line of `cgins.yaml`: what is found when it is set up is judged when it is run.

    `kind` is what it is called before its name.
    """

    def __init__(
        self, *, kind: str, line: int, find: Callable[[], outcome.Result], gate: Gate, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._kind = kind
        self._line = line
        self._find = find
        self._gate = gate
        self._found: outcome.Result | None = None

    def mark(self, *, kernel: str, op: str, implementation: str) -> None:
        """Have it be chosen by these names, too."""
        # The op is no part of the name, and `-k softmax` should find `attention` that replaces softmax.
        self.extra_keyword_matches.add(op)
        self.add_marker(pytest.mark.cgins(kernel=kernel, op=op, implementation=implementation))

    def setup(self) -> None:
        """Find it out.

        pytest calls what fails here an error and what fails in `runtest` a failure. A drifted trace or a
        lost device is an error and says nothing about the kernel, so the work has to be done here.
        """
        self._found = self._find()
        results.keep(self, self.path, self._found)
        outcome.settle_setup(self, self._found, self._gate)

    def runtest(self) -> None:
        """Fail if the kernel did."""
        assert self._found is not None
        outcome.settle_call(self, self._found, self._gate)

    def locate_skip(self, report: pytest.TestReport) -> None:
        """Have a skip read as one of this line of `cgins.yaml`: pytest would name the line that raised it."""
        if report.skipped and isinstance(report.longrepr, tuple):
            report.longrepr = (str(self.path), self._line, report.longrepr[2])

    def reportinfo(self) -> tuple[Path, int, str]:
        """File, line of the implementation (from 0), and the headline of a failure.

        A headline that were just the name would have pytest rewrite the dots in it for `-v`, after which
        the printed node id could not be pasted back.
        """
        return self.path, max(self._line - 1, 0), f"{self._kind} {self.name}"


class CaseItem(GatedItem):
    """A case."""

    def __init__(self, *, case: Case, **arguments: Any) -> None:
        super().__init__(kind="kernel", **arguments)
        self.case = case
        self.mark(kernel=case.kernel, op=case.op, implementation=case.implementation)


def left_out(items: list[pytest.Item], shard: Shard, durations: Durations | None) -> list[pytest.Item]:
    """Take the cases of other parts out of the items; what runs no case of `cgins.yaml` belongs to the first part."""
    kept = set(chosen([_key(item) for item in items], shard, durations))
    others = [item for index, item in enumerate(items) if index not in kept]
    items[:] = [item for index, item in enumerate(items) if index in kept]
    return others


def chosen(
    keys: Sequence[tuple[str, str] | None], shard: Shard, durations: Durations | None = None
) -> list[int]:
    """Indices of the items of a part.

    Items with the same key, the name of a case and its pack, stay together; those without one are the first part's. Without
    durations parts have about as many cases as each other.
    """
    distinct = list(dict.fromkeys(key for key in keys if key is not None))
    if durations is None:
        own = set(distinct[shard.number - 1 :: shard.count])
    else:
        expected = durations.expected(name for name, _ in distinct)
        own = set(parts({key: expected[key[0]] for key in distinct}, shard.count)[shard.number - 1])
    return [index for index, key in enumerate(keys) if (key in own if key is not None else shard.number == 1)]


def _key(item: pytest.Item) -> tuple[str, str] | None:
    """The case that an item evaluates: a user's test on it goes where the item of `cgins.yaml` goes."""
    if isinstance(item, CaseItem):
        return item.case.name, item.case.pack_path
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("cgins_case") if callspec is not None else None
    if case is not None:
        return case.name, case.pack_path
    return (item.nodeid, "") if item.nodeid.partition("::")[0].endswith("cgins.yaml") else None
