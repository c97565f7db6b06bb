"""Files beside `cgins.yaml` that decide what is gated: pytest's settings, and the pipelines that start the gate."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from pytest_cgins.building.revision.merge_base import Revision, changes, text_of

SETTINGS = frozenset({
    "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg"
})  # fmt: skip
"""Files from which pytest takes its settings."""
DECISIVE = ("addopts", "norecursedirs", "testpaths", "python_files", "python_classes", "python_functions")
"""Settings of pytest that decide what is collected and run, and how."""
PIPELINES = (
    ":(glob).github/workflows/*", ":(glob).github/actions/**", ":(glob)**/action.yml", ":(literal).gitlab-ci.yml",
    ":(literal)Jenkinsfile", ":(literal)azure-pipelines.yml", ":(literal)bitbucket-pipelines.yml",
    ":(glob).circleci/*", ":(glob).buildkite/**",
)  # fmt: skip
"""Git pathspecs of the files in which CI services look for pipelines."""
GATE = "cgins"
"""What a pipeline that starts the gate has in its text."""


def moved(base: Revision, folders: Iterable[Path]) -> Iterator[str]:
    """What of these files differs from the base revision's so that less may be gated, one line each.

    Args:
        base: the commit.
        folders: absolute, those of `cgins.yaml` files; pytest's settings count in them and in those around them.

    Raises:
        RevisionError: git cannot tell.
    """
    for kind, path in changes(base, PIPELINES):
        if kind != "A" and GATE in text_of(base, path):
            yield f"{path}: the pipeline that starts the gate was {'removed' if kind == 'D' else 'changed'}"
    around = {place for folder in folders for place in (folder, *folder.parents)}
    inside = {place.relative_to(base.repository) for place in around if place.is_relative_to(base.repository)}
    specs = [f":(literal){place / name}" for place in sorted(inside) for name in sorted(SETTINGS)]
    for kind, path in changes(base, specs):
        before = _settings(path, "" if kind == "A" else text_of(base, path))
        file = base.repository / path
        now = _settings(path, file.read_text(encoding="utf-8", errors="replace") if file.is_file() else "")
        for key in DECISIVE:
            if before.get(key) != now.get(key):
                yield f"{path}: {key} {before.get(key, 'none')} → {now.get(key, 'none')}"


def _settings(path: str, text: str) -> dict[str, str]:
    """What pytest reads in a file; of one that it refuses, which ends its run, nothing."""
    from _pytest.config.exceptions import UsageError
    from _pytest.config.findpaths import load_config_dict_from_file

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, PurePosixPath(path).name)
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        try:
            found = load_config_dict_from_file(file) or {}
        except UsageError:
            return {}
    return {key: str(getattr(value, "value", value)) for key, value in found.items()}
