"""What users say of an op, in cgins.yaml and as plain data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_cgins.config import Config, Declared, IndexOutput, declared, load
from pytest_cgins.config.coupled import Lengths, Offsets, Routing, Sorted, yaml_of
from pytest_cgins.core import documents
from pytest_cgins.core.errors import ConfigError


def loaded(folder: Path, semantics: str) -> Config:
    (folder / "k.cpp").write_text("")
    text = f"version: 1\nkernels:\n  k:\n    op: torch.sin\n    source: k.cpp\n    semantics: {semantics}\n"
    (folder / "cgins.yaml").write_text(text)
    return load(folder / "cgins.yaml")


def test_all_keys_are_read(tmp_path: Path) -> None:
    """Numbers, open ends, dimensions and arguments."""
    text = '{kind: norm, roles: {x: data, i: index}, domain: {p: [0, 1.5], q: [null, -1]}, rows: {x: [0, 2]}, fixed: ["x[1]", h], mutated: [s], outputs: {1: random, 2: {random: [0, null]}, 3: {index_into: x, dim: -1}, 4: {index_into: y, dim: [1, 2], distinct: true, stable: false}}, coupled: {o: {offsets: "x[0]", most: n, last: false}, l: {lengths: "t[1]*16", sum: true}, e: sorted, r: {routing: E, weights: g}}}'
    said = loaded(tmp_path, text).kernels[0].semantics
    assert said == Declared(
        kind="norm",
        roles=(("x", "data"), ("i", "index")),
        domain=(("p", 0.0, 1.5), ("q", None, -1.0)),
        rows=(("x", (0, 2)),),
        fixed=(("x", 1), ("h", None)),
        mutated=("s",),
        outputs=((1, None, None), (2, 0.0, None)),
        indices=(
            IndexOutput(number=3, into="x", dims=(-1,)),
            IndexOutput(number=4, into="y", dims=(1, 2), distinct=True),
        ),
        coupled=(
            Offsets(argument="o", size=(("x", 0),), most=(("n", None),), last=False),
            Lengths(argument="l", size=(("t", 1), ("16", None)), sum=True),
            Sorted(argument="e"),
            Routing(argument="r", size=(("E", None),), weights="g"),
        ),
    )
    assert declared(yaml.safe_load(text)) == said
    assert documents.load_python(Declared, documents.dump_python(said)) == said
    assert said.names == ("x", "i", "p", "q", "h", "o", "n", "l", "t", "e", "r", "g", "E", "s", "y")
    assert [declared(yaml.safe_load(yaml_of(one))["semantics"]).coupled for one in said.coupled] == [
        (one,) for one in said.coupled
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{kinds: norm}", r'cgins.yaml:6: unknown key "kinds"'),
        ("{kind: nrom}", r'6: "kind" in semantics of kernel "k" is "nrom"\n→ did you mean "norm"\?'),
        ("{roles: {x: date}}", r'"x" in roles of semantics of kernel "k" is "date"\n→ did you mean "data"\?'),
        (
            "{roles: [x]}",
            r'"roles" in semantics of kernel "k" is a list, not a mapping\n→ write a mapping, roles: \{KEY: VALUE\}',
        ),
        (
            "{domain: {x: 1}}",
            r'"x" in domain of semantics of kernel "k" is not two numbers\n→ write x: \[0, 1\], and null',
        ),
        ("{domain: {x: [2, 1]}}", r'"x" in domain of semantics of kernel "k" is empty: \[2, 1\]'),
        (
            "{rows: {x: [-1]}}",
            r'"x" in rows of .* is a whole number \(-1\), not a whole number of at least 0\n→ write a whole number of at least 0',
        ),
        (
            "{mutated: x}",
            r'"mutated" in semantics of kernel "k" is text \(x\), not a list\n→ write a list, mutated: \[A, B\]',
        ),
        (
            "{outputs: {out: random}}",
            r'the output "out" is not a number\n→ write e.g. outputs: \{1: random\}',
        ),
        (
            "{outputs: {0: ramdom}}",
            r'"0" in outputs of semantics of kernel "k" is "ramdom"\n→ did you mean "random"\?',
        ),
        (
            "{outputs: {0: {index_ino: x}}}",
            r'6: unknown key "index_ino" in output 0 of semantics of kernel "k"\n→ did you mean "index_into"\?',
        ),
        (
            "{outputs: {0: {dim: 1}}}",
            r'output 0 of semantics of kernel "k" has no "index_into"\n→ write e.g. 0: \{index_into: x, dim: -1\}',
        ),
        (
            "{outputs: {0: {index_into: x, dim: last}}}",
            r'"dim" in output 0 of semantics of kernel "k" is neither a dimension nor a list of them\n→ write',
        ),
        (
            "{outputs: {0: {index_into: x, dim: [1, 1]}}}",
            r'"dim" in output 0 of .* is neither a dimension nor a list of them',
        ),
        (
            "{outputs: {0: {index_into: x, stable: maybe}}}",
            r'"stable" in output 0 of .* is text \(maybe\), not true or false\n→ write true or false',
        ),
        (
            "{outputs: {0: {random: [0, 1], dim: 1}}}",
            r'unknown key "dim" in output 0 of semantics of kernel "k"\n→ known keys: random',
        ),
        (
            "{outputs: {0: {random: [1]}}}",
            r'"random" in output 0 of .* is not two numbers\n→ write random: \[0, 1\], and null for an end',
        ),
        (
            "{coupled: {o: {ofsets: 'x[0]'}}}",
            r'6: unknown key "ofsets" in "o" in coupled of semantics of kernel "k"\n→ did you mean "offsets"\?',
        ),
        (
            "{coupled: {o: {last: false}}}",
            r'"o" in coupled of semantics of kernel "k" has no kind\n→ write one of offsets, lengths, pages',
        ),
        (
            "{coupled: {o: {offsets: 'x[0]', unique: 'x[0]'}}}",
            r'"o" in coupled of semantics of kernel "k" has offsets and unique\n→ write one of',
        ),
        (
            "{coupled: {o: {offsets: 'x[-1]'}}}",
            r'"offsets" in "o" in coupled of .* is "x\[-1\]", which is no size\n→ write a dimension of an argument',
        ),
        (
            "{coupled: {o: sort}}",
            r'"o" in coupled of semantics of kernel "k" is "sort"\n→ did you mean "sorted"\?',
        ),
        (
            "{coupled: {o: {pages: 'x[0]', most: 4}}}",
            r'unknown key "most" in "o" in coupled of semantics of kernel "k"\n→ known keys: pages',
        ),
        (
            "{fixed: x}",
            r'"fixed" in semantics of kernel "k" is text \(x\), not a list\n→ write a list, fixed: \[A, B\]',
        ),
    ],
)
def test_mistakes_are_told_with_line_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    """Nothing unknown is passed over."""
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, text)


def test_the_first_of_two_declarations_comes_first() -> None:
    """What is said of one argument is replaced, what is said of others is added."""
    first: dict[str, Any] = {"roles": {"x": "mask"}, "fixed": ["h"]}
    marked: dict[str, Any] = {"kind": "norm", "roles": {"x": "data", "y": "index"}, "fixed": ["w"]}
    first["outputs"] = {0: "random", 1: {"index_into": "x"}}
    marked["outputs"] = {0: {"index_into": "y"}, 1: "random", 2: {"index_into": "y"}}
    both = declared(first) | declared(marked)
    assert [entry[0] for entry in both.outputs] == [0]
    assert [(one.number, one.into) for one in both.indices] == [(1, "x"), (2, "y")]
    assert both.kind == "norm"
    assert dict(both.roles) == {"x": "mask", "y": "index"}
    assert both.fixed == (("h", None), ("w", None))


def test_plain_data_is_checked_as_the_file_is() -> None:
    """`mark(semantics=…)` has the same errors."""
    assert declared({"domain": {"x": (0, math.inf)}}).domain == (("x", 0.0, None),)
    with pytest.raises(ConfigError, match="semantics is no plain data"):
        declared({"domain": {"x": [object(), 1]}})
    with pytest.raises(ConfigError, match=r'unknown key "kin" in semantics\n→ did you mean "kind"\?'):
        declared({"kin": "norm"})
