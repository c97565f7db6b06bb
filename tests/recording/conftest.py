"""A recording is read back as a pack: the fixtures are those of `packs`."""

from tests.packs.conftest import _seeded, project, recorded

__all__ = ["_seeded", "project", "recorded"]
