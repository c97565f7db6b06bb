"""Commands on packs make modules as the tests of packs do."""

from tests.packs.conftest import _seeded, project, recorded

__all__ = ["_seeded", "project", "recorded"]
