"""`--cgins-shard I/N`: part I of N of a session's cases, so that N machines share a suite."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytest_cgins.app.session.collect import CaseItem
from pytest_cgins.core.model import Shard


class Sharding:
    """Leaves the cases of one part to the run; what runs no case of `cgins.yaml` belongs to the first part."""

    plugin_name = "cgins-sharding"

    def __init__(self, shard: Shard) -> None:
        self.shard = shard

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the rest, before `-k` and `--lf` look: the parts must not hang on what these leave."""
        kept = set(chosen([_key(item) for item in items], self.shard))
        left_out = [item for index, item in enumerate(items) if index not in kept]
        items[:] = [item for index, item in enumerate(items) if index in kept]
        if left_out:
            config.hook.pytest_deselected(items=left_out)


def chosen(keys: Iterable[tuple[str, str] | None], shard: Shard) -> list[int]:
    """Indices of the items of a part. Items with the same key stay together; those without one are the first part's."""
    places: dict[tuple[str, str], int] = {}
    found = []
    for index, key in enumerate(keys):
        place = 0 if key is None else places.setdefault(key, len(places))
        if place % shard.count == shard.number - 1:
            found.append(index)
    return found


def _key(item: pytest.Item) -> tuple[str, str] | None:
    """The case that an item evaluates: a user's test on it goes where the item of `cgins.yaml` goes."""
    if isinstance(item, CaseItem):
        return item.case.pack_path, item.case.name
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("cgins_case") if callspec is not None else None
    if case is not None:
        return case.pack_path, case.name
    return ("", item.nodeid) if item.nodeid.partition("::")[0].endswith("cgins.yaml") else None
