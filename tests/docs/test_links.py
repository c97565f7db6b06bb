"""Links of all documents, and the options and commands that some name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tables import document, sections
from walk import blocks, commands, links

import pytest_cgins

PACKAGE = Path(pytest_cgins.__file__).parent
REPOSITORY = Path(__file__).parents[2]
GITHUB = REPOSITORY / ".github"
DOCUMENTS = [REPOSITORY / "README.md", *GITHUB.glob("*.md"), *(PACKAGE / "docs").glob("*.md")]
COMMANDS = [REPOSITORY / "README.md", PACKAGE / "docs" / "regenerate.md", PACKAGE / "regenerate" / "SKILL.md"]


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.stem)
def test_links_lead_somewhere(file: Path) -> None:
    """Each relative link is to a file, and each link to a section to a heading that is there."""
    text = file.read_text(encoding="utf-8")
    for link in links(text):
        assert (file.parent / link).exists(), link
    for other, section in re.findall(r"\]\(((?!https?:)[\w./-]*)#([\w-]+)\)", text):
        linked = (file.parent / other).read_text(encoding="utf-8") if other else text
        anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in sections(linked)}
        assert section in anchors, section


@pytest.mark.parametrize(
    "file",
    [*COMMANDS, *(PACKAGE / "docs" / f"{name}.md" for name in ("importing", "recording"))],
    ids=lambda file: file.stem,
)
def test_options_exist(file: Path) -> None:
    """Each `--option` is one of options.md; the README names some of its own tools' besides."""
    known = set(re.findall(r"`(--[a-z-]+)", document("options.md"))) | {"--cgins"}
    pattern = r"--cgins[a-z-]*" if file.stem == "README" else r"--[a-z][a-z-]*"
    named = set(re.findall(pattern, file.read_text(encoding="utf-8")))
    assert named
    assert named <= known


@pytest.mark.parametrize("file", COMMANDS, ids=lambda file: file.stem)
def test_commands_exist(file: Path) -> None:
    """Each `cgins` command or group is one of options.md, but for the one that has no options."""
    text = file.read_text(encoding="utf-8")
    known = sections(document("options.md"))
    lines = [
        command.line for block in blocks(text) if block.language == "console" for command in commands(block)
    ]
    lines += re.findall(r"`(cgins [a-z][^`]*)`", text)
    assert len(lines) > 4
    for line in lines:
        words = [word for word in line.split()[:3] if re.fullmatch(r"[a-z-]+", word)]
        group_or_command = any(f"{heading} ".startswith(f"{' '.join(words)} ") for heading in known)
        known_command = group_or_command or " ".join(words[:2]) in known
        assert words[0] != "cgins" or known_command or words == ["cgins", "runs", "skill"], line
