"""README.md: its links, options, statuses and counts are those of the tree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from tables import document, rows, sections
from walk import blocks

from pytest_cgins.core.verdict import Status

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())


def test_failures_are_quoted_from_the_tutorial() -> None:
    """What the README shows of a wrong and of a slower kernel is what the tutorial's walk was shown."""
    quoted = [block.text for block in blocks(TEXT) if block.language == "text"]
    assert [text.split()[0] for text in quoted] == ["INCORRECT", "SLOWER"]
    for text in quoted:
        assert text in document("tutorial.md")


def test_counts_are_those_of_the_benchmark() -> None:
    """How many deceitful, honest and variant kernels were judged, and that none was misjudged."""
    path = ROOT / "tests/benchmarks/results/adversarial-2core.json"
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    wrong = {case["kernel"] for case in cases if case["expected"]}
    variants = sum(case["disguise"] == "variant of an example" for case in cases)
    honest = sum(not case["expected"] for case in cases) - variants
    assert f"Of {len(wrong)} kernels written to deceive" in WORDS
    assert f"Of {honest} cases of honest but unusual kernels and {variants} of legitimate variants" in WORDS
    assert all(case["as_it_should"] for case in cases)


def test_statuses_exist() -> None:
    """Each status of the table is one of the model's."""
    for row in rows(sections(TEXT)["Verdicts"]):
        for name in re.findall(r"`([A-Z_]+)`", row[0]):
            assert name in Status.__members__, name


def test_counts_are_those_of_the_example_project() -> None:
    """How many ops, backward ones, Triton kernels and packs there are is what the README says."""
    config = yaml.safe_load((ROOT / "example_project" / "cgins.yaml").read_text())
    kernels = config["kernels"].values()
    backwards = sum("@backward" in kernel["op"] for kernel in kernels)
    named = [{one["name"] for one in kernel["implementations"]} for kernel in kernels]
    words = {3: "three", 8: "eight", 12: "twelve"}
    triton = sum("triton" in names for names in named)
    assert f"has {len(kernels)} ops, {words[backwards]} of them backward" in WORDS
    device = sum("nvrtc" in names for names in named)
    assert f"{words[triton]} with a Triton one, {words[device]} by the device contract" in WORDS
    assert f"and {words[len(config['traces'])]} packs" in WORDS
    assert all({"cpp", "cuda"} <= names for names in named)
