"""README.md: its links, options, statuses and counts are those of the tree."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from tables import document, rows, sections
from walk import blocks, commands, links

from pytest_cgins.model import Status

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())


def test_links_lead_somewhere() -> None:
    """Each relative link and picture is a file of the repository."""
    found = links(TEXT)
    assert len(found) > 12
    for link in found:
        assert (ROOT / link).exists(), link


def test_options_are_documented_ones() -> None:
    """Each row of the options is one of options.md, with its name and values; none of pytest's is left out."""
    full = {row[0] for row in rows(sections(document("options.md"))["pytest --cgins"])}
    short = {row[0].strip("`") for row in rows(sections(TEXT)["Options"])}
    assert {cell.split()[0] for cell in short} == {cell.strip("`").split()[0] for cell in full}
    for cell in short:
        assert f"`{re.sub(r' ([a-z|-]+)$', lambda m: ' {' + m[1].replace('|', ',') + '}', cell)}`" in full, (
            cell
        )


def test_a_slower_kernel_is_told_as_in_the_tutorial() -> None:
    """What the README quotes of a slowdown is what the tutorial's walk was shown."""
    (told,) = [block.text for block in blocks(sections(TEXT)["No slower than before"])]
    assert told in document("tutorial.md")


def test_statuses_exist() -> None:
    """Each status of the table is one of the model's."""
    for row in rows(sections(TEXT)["Verdicts"]):
        for name in re.findall(r"`([A-Z_]+)`", row[0]):
            assert name in Status.__members__, name


def test_commands_exist() -> None:
    """Each `cgins` command is one that options.md describes."""
    known = sections(document("options.md"))
    lines = [
        command.line for block in blocks(TEXT) if block.language == "console" for command in commands(block)
    ]
    for line in [*lines, *re.findall(r"`(cgins [a-z][^`]*)`", TEXT)]:
        words = line.split()
        if words[0] == "cgins":
            named = " ".join(words[:2]), " ".join(words[:3])
            assert any(
                heading == name or heading.startswith(f"{name} ") for heading in known for name in named
            ), line


def test_counts_are_those_of_the_example_project() -> None:
    """How many ops, backwards, Triton kernels and packs there are is what the README says."""
    config = yaml.safe_load((ROOT / "example_project" / "cgins.yaml").read_text())
    kernels = config["kernels"].values()
    backwards = sum("@backward" in kernel["op"] for kernel in kernels)
    named = [{one["name"] for one in kernel["implementations"]} for kernel in kernels]
    words = {3: "three", 8: "eight", 12: "twelve"}
    triton = sum("triton" in names for names in named)
    assert f"has {len(kernels)} ops, {words[backwards]} of them backwards" in WORDS
    device = sum("nvrtc" in names for names in named)
    assert f"{words[triton]} with a Triton one, {words[device]} by the device contract" in WORDS
    assert f"and {words[len(config['traces'])]} packs" in WORDS
    assert all({"cpp", "cuda"} <= names for names in named)
