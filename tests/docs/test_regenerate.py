"""regenerate.md and SKILL.md against the commands, options and files that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tables import document, sections
from walk import blocks, commands, links

from pytest_cgins.app import cli
from pytest_cgins.regenerate.run_setup import EXIT_WAITING

PACKAGE = Path(cli.__file__).parents[1]
GUIDE = document("regenerate.md")
SKILL = (PACKAGE / "regenerate" / "SKILL.md").read_text(encoding="utf-8")


def test_links_lead_somewhere() -> None:
    """Each relative link is to a file, and each link to a section to one that is there."""
    folder = PACKAGE / "docs"
    assert len(links(GUIDE)) > 5
    for link in links(GUIDE):
        assert (folder / link).exists(), link
    for file, section in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", GUIDE):
        text = (folder / file).read_text() if file else GUIDE
        anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in sections(text)}
        assert section in anchors, section


@pytest.mark.parametrize("text", [GUIDE, SKILL], ids=["guide", "skill"])
def test_options_and_commands_exist(text: str) -> None:
    """Each option is one of options.md, and so is each command, but for the one that has no options."""
    known = document("options.md")
    for option in set(re.findall(r"--[a-z][a-z-]*", text)):
        assert f"`{option}" in known, option
    lines = [one.line for block in blocks(text) if block.language == "console" for one in commands(block)]
    lines += re.findall(r"`(cgins [a-z][^`]*)`", text)
    assert len(lines) > 4
    for line in lines:
        words = [word for word in line.split()[:3] if re.fullmatch(r"[a-z-]+", word)]
        named = [" ".join(words[:number]) for number in (2, 3)]
        there = any(title == name for title in sections(known) for name in named)
        assert words[0] != "cgins" or there or words == ["cgins", "runs", "skill"], line


def test_the_exit_code_is_told() -> None:
    """The number is the program's."""
    assert f"exit code {EXIT_WAITING}" in GUIDE
    assert f"exit code {EXIT_WAITING}" in SKILL
