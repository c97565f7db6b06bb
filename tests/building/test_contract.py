"""CONTRACT.md: its examples compile and its tables agree with the code."""

from __future__ import annotations

import re
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.core import expression
from pytest_cgins.core.case import CONTRACT_VERSION

TEXT = (files("pytest_cgins.building") / "CONTRACT.md").read_text(encoding="utf-8")
HEADER = (files("pytest_cgins.building") / "include" / "cgins.h").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```(c\+\+|cuda)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_versions_agree() -> None:
    """Document, header and package name the same version."""
    assert f"contract, version {CONTRACT_VERSION}\n" in TEXT
    assert f"#define CGINS_CONTRACT_VERSION {CONTRACT_VERSION}\n" in HEADER


@pytest.mark.exam
@pytest.mark.parametrize("index", range(len(EXAMPLES)))
def test_example_compiles(project: Any, index: int) -> None:
    """Every example is a whole kernel and compiles without a warning."""
    language, text = EXAMPLES[index]
    device = "cgins-launch:" in text
    if language == "cuda" and not device and not shutil.which("nvcc"):
        pytest.skip("no nvcc")
    suffix = {"c++": "cpp", "cuda": "cu"}[language]
    project.write(f"example.{suffix}", text)
    kernel = {"cpp": "flags: [-Wextra, -Werror]", "cu": "archs: [sm_90]"}[suffix]
    kernel += ", contract: device" if device else ""
    compiled = project.build(f"{{op: torch.mul, source: example.{suffix}, {kernel}}}")
    assert Path(compiled.library).stat().st_size > 0


def rows() -> list[tuple[str, str]]:
    """(schema, C parameters) pairs of the table of types, one spelling each."""
    table = re.findall(r"^\| (`.*?) \| (`?.*?) \| .*\|$", TEXT, re.MULTILINE)
    found = []
    for schema, c_types in table:
        schemas_there = re.findall(r"`(.*?)`", schema)
        c_there = re.findall(r"`(.*?)`", c_types) or [""]
        c_there = c_there if len(c_there) == len(schemas_there) else c_there * len(schemas_there)
        found += list(zip(schemas_there, c_there, strict=True))
    return found


@pytest.mark.parametrize(("spelling", "expected"), rows())
def test_table_of_types(spelling: str, expected: str) -> None:
    """Each row's C parameters are what the schema line gives."""
    if spelling.startswith("->"):
        arguments = "Tensor(a!) t" if "a!" in spelling else ""
        line = f"f({arguments}) {spelling}"
        expected = ", ".join(filter(None, ["DLTensor* t" if arguments else "", expected]))
    else:
        line = f"f({spelling}) -> ()"
    expected = ", ".join(filter(None, [expected, "cgins_stream stream"]))
    assert schemas.prototype(schemas.parse(line)) == f"int f({expected});"


def test_examples_were_found() -> None:
    """The document has examples in both languages, and a table."""
    assert {language for language, _ in EXAMPLES} == {"c++", "cuda"}
    assert sum("cgins-launch:" in text for _, text in EXAMPLES) == 3
    assert len(rows()) > 20


def test_device_contract_names_what_there_is() -> None:
    """Each key, function and stand-in header of device kernels is in the document, and no other."""
    section = TEXT.partition("## Launch lines")[2]
    keys = re.findall(r"^\| (`\w+=.*?) \|", section, re.MULTILINE)
    named = [name for row in keys for name in re.findall(r"`(\w+)=", row)]
    assert sorted(named) == sorted(launch_line.KEYS)
    functions = [*expression.FUNCTIONS, *expression.METHODS, *expression.ATTRIBUTES, "cuda_type", "choose"]
    for function in functions:
        assert re.search(rf"\b{function}\b", section), function
    headers = {path.name for path in (files("pytest_cgins.building") / "include/nvrtc").iterdir()}
    assert set(re.findall(r"`<(\w+)>`", section)) <= headers
