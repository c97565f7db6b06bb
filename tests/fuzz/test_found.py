"""What fuzzing has found, each with its least input and the message that it has now."""

from __future__ import annotations

import json
import os
import resource
import tracemalloc
import zipfile
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.building import resources
from pytest_cgins.building.contracts import launch_line, schema
from pytest_cgins.config.load import load
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ConfigError, PackError, ProtocolError, RecordError, SourceError
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.core.tensors import unpack
from pytest_cgins.core.trace import Recipe, Storage
from pytest_cgins.packs import recipe, store
from pytest_cgins.packs.validate import problems
from pytest_cgins.recording.importers import (  # fmt: skip
    backendbench,
    collect,
    expressions,
    files,
    gins,
    pt_files,
    references,
    refpy,
    robustkbench,
)
from tests.fuzz import hostile, seeds

HUGE = "9" * 5000
F = "// cgins: f(Tensor x) -> Tensor\n// cgins-launch: "


@pytest.mark.exam
@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        (f"version: {HUGE}", "is a whole number (999", "a whole number of at most 18 digits"),
        ('version: "\\UFFFFFFFF"', "cgins.yaml: not YAML: ", "correct it"),
        ("? !!str [a]\n: 1", "cgins.yaml:1: the tag tag:yaml.org,2002:str does not fit its value", "remove the tag"),
        ("version: 1\ntraces: !!seq a\nkernels: {}", "cgins.yaml:2: the tag tag:yaml.org,2002:seq does not fit", "remove"),
        ("version: 1\nkernels: !!map a", "cgins.yaml:2: the tag tag:yaml.org,2002:map does not fit", "remove"),
        ('version: 1\ntraces: ["\\ud800"]\nkernels: {}', "cgins.yaml:2: '\\ud800' has an unpaired", "itself"),
        ("a: [" + "b," * 130_000 + "]", "cgins.yaml:1: more than 100000 values", "fewer values"),
    ],
)  # fmt: skip
def test_configurations(text: str, what: str, remedy: str, tmp_path: Path) -> None:
    """Numbers, characters, tags and amounts that YAML's own reader does not survive are errors with a line."""
    (tmp_path / "cgins.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "cgins.yaml")
    assert what in caught.value.what
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_configurations_are_regular_files(kind: str, tmp_path: Path) -> None:
    """A FIFO is not waited for, and a device is not read to its end, which it does not have."""
    file = _special(kind, tmp_path / "cgins.yaml")
    with pytest.raises(ConfigError, match="not a regular file"):
        load(file)
    with pytest.raises(RecordError, match="is not a regular file"):
        files.read_text(file)


def _special(kind: str, path: Path) -> Path:
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize(
    ("text", "what"),
    [
        # Read as UTF-16, it is nested 5000 deep; read byte for byte, the brackets are in a string.
        (
            '["\u2200",'.encode("utf-16-le") + ("[" * 5000).encode("utf-16-le") + '"x"'.encode("utf-16-le"),
            "is not JSON: Expecting value: line 1 column 2",
        ),
        (b'"' + b'\\"' * 20_000, "is not JSON: Unterminated string"),
        (b'{"traces":[' + b"[]," * 600_000, "has more than 1048576 values"),
        (b'{"version":1,"traces":[' + b"0," * 1000 + b"0]}", "1003 values are wrong for a TracePack"),
    ],
)
def test_manifests(text: bytes, what: str, tmp_path: Path) -> None:
    """Depth is counted in the text that is parsed, in linear time, and a thousand complaints are not spelled out."""
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(PackError) as caught:
        store.open_pack(tmp_path)
    assert what in caught.value.what


@pytest.mark.exam
def test_counting_takes_no_memory() -> None:
    """To count a document's brackets takes a few times its bytes, not a hundred times."""
    for text in (b'"' + b"a" * 2**19 + b'"', b'"' + b'\\"' * 2**18 + b'"', b'"' * 2**19, b"[]" * 2**18):
        tracemalloc.start()
        documents.extent(text, 2**20)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * len(text) + 2**23, text[:10]
    assert documents.extent(b'{"a\\"[[": [1, {"b\\\\": []}], "]]": "["}', 99) == (10, 4)


def test_many_storages() -> None:
    """A trace of many storages is checked in linear time."""
    pack = seeds.packs()[0][1]
    trace = pack.traces[0]
    meta = replace(trace.tensors[0], dtype="uint8", shape=(0,), stride=(1,), offset=0, storage=0)
    storage = Storage(nbytes=0, dtype="uint8")
    many = replace(trace, storages=(storage,) * 20_000, tensors=(meta,) * 20_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    assert list(problems(replace(pack, traces=(many,))))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 5


@pytest.mark.parametrize("distribution", ["integer", "bernoulli"])
def test_recipes_take_what_they_claim(distribution: str) -> None:
    """A storage of bytes is made in no more than a few times its bytes: its random words are made in parts."""
    dtype = "int8" if distribution == "integer" else "bool"
    made = Recipe(distribution=distribution, seed=3, mean=0.5, low=-5, high=90, sha256="")
    storage = Storage(nbytes=2**22, dtype=dtype, recipe=replace(made, mean=0.5, low=-5.0, high=90.0))
    tracemalloc.start()
    _, content = recipe.seal(storage, store.PackReader(Path(), seeds.packs()[0][1]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * storage.nbytes
    whole = recipe.words(3, storage.nbytes)
    expected = (
        ((whole % np.uint64(96)).astype(np.int64) - 5).astype(np.int8).view(np.uint8)
        if distribution == "integer"
        else ((whole >> np.uint64(11)) < np.uint64(2**52)).view(np.uint8)
    )
    assert np.array_equal(content, expected)


def test_reports() -> None:
    """A report with a thousand faults is refused with their number."""
    with pytest.raises(ValueError, match="values are wrong for a SessionReport"):
        documents.load(SessionReport, b'{"evaluations":[' + b"[]," * 2000 + b"[]]}")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"f(Tensor x, int a={'-' * 3000}1) -> Tensor", "argument 'a' has the default '---"),
        ("f(Tensor x, int a={[]}) -> Tensor", "argument 'a' has the default '{[]}'"),
        (f"f({'Tensor x, ' * 900}int y) -> Tensor", "a schema line of 9018 characters; 8192 are allowed"),
    ],
)
def test_schema_lines(text: str, what: str) -> None:
    """Defaults that Python's parser does not take are the line's error, and a line has an end."""
    with pytest.raises(SourceError) as caught:
        schema.parse(text)
    assert what in caught.value.what


def test_blanks_in_comments() -> None:
    """Thousands of blanks within a comment are read once, and kept."""
    blanks = " " * 4000
    assert schema.locate(f"// cgins: f(Tensor{blanks}x)\n//{blanks}-> Tensor {blanks}*/{blanks}", Path("k.cpp")) == (
        f"f(Tensor{blanks}x) -> Tensor",
        1,
    )  # fmt: skip
    located = launch_line.locate(f"{F}grid=({blanks}1\n//{blanks}) block=1 args=(){blanks}*/", Path("k.cu"))
    assert located == f"2: grid=({blanks}1 ) block=1 args=()"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"{F}kernel=k<choose(n, {HUGE})> grid=1 block=1 args=(x)", "is not choose(EXPRESSION, NUMBER, NUMBER, …)"),
        (f"{F}grid=(\n" + "// x(\n" * 30_000, "a launch line of more than 65536 characters"),
    ],
)  # fmt: skip
def test_launch_lines(text: str, what: str) -> None:
    """Numbers of thousands of digits, and brackets that are never closed, are the line's error."""
    with pytest.raises(SourceError) as caught:
        launch_line.read(
            launch_line.locate(text, Path("k.cu")), schema.parse("f(Tensor x) -> Tensor"), "k.cu"
        )
    assert what in caught.value.what


def test_constants() -> None:
    """Constants of a source are found beside lines that a slower pattern would try for minutes."""
    text = f"constexpr {'a ' * 30_000}\n#define A {HUGE}\n#define TILE 128\nconstexpr int k = 0x40u;\n"
    assert launch_line.constants(text) == {"TILE": 128, "k": 64}


def test_numbers_in_logs() -> None:
    """A number of thousands of digits, which a source can print into the log, is no figure."""
    log = "Compiling entry function 'f' for 'sm_90'\nUsed 7 registers\n"
    assert resources.parse(
        f"{log}Used {HUGE} registers, 1 bytes smem\n{'1' * 60_000}", "sm_90"
    ) == resources.parse(log, "sm_90")


def test_factories_allocate_nothing_to_be_measured(tmp_path: Path) -> None:
    """What an op without tensors would make is found without making it."""
    source = tmp_path / "ops.txt"
    source.write_text("Operator: aten.ones.default\ncnt: 1, (([2147483648],), {})\n")
    before = _resident_mib()
    with collect.Collector(tmp_path / "out", "full") as collector:
        backendbench.run(
            Namespace(source=source, max_mib=1.0, device="cpu", functional=False, only=""), collector
        )
    assert (
        "its outputs have 8192 MiB, more than the 1 MiB of --max-mib" in collector.report.left_out[0].reason
    )
    assert _resident_mib() - before < 512


def _resident_mib() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_tensors_of_a_call_are_counted_together() -> None:
    """Forty tensors of the size that one may have are refused before the second is made."""
    args = f"(([{'T([262144], f32), ' * 40}],), {{}})"
    with pytest.raises(RecordError, match="inputs of 2 MiB, more than --max-mib, 1") as caught:
        backendbench._call(backendbench.Recorded("aten.cat.default", args, 1), 1.0, functional=False)
    assert "raise --max-mib" in caught.value.remedy


def test_counts_are_bounded(tmp_path: Path) -> None:
    """Calls that are met more often than 63 bits can say are so many."""
    source = tmp_path / "ops.txt"
    line = f"cnt: {'9' * 18}, ((T([2], f32),), {{}})\n"
    source.write_text("Operator: aten.sin.default\n" + line * 12)
    with collect.Collector(tmp_path / "out", "full") as collector:
        backendbench.run(
            Namespace(source=source, max_mib=1.0, device="cpu", functional=False, only=""), collector
        )
        report = collector.finish()
    assert report.pack is not None
    assert report.pack.traces[0].count == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("-" * 100 + "1", "has more than 64 levels"),
        ("(" + "torch.zeros(262144)," * 9 + ")", "more than 8 MiB on the way (8 times --max-mib)"),
    ],
)
def test_expressions(text: str, what: str) -> None:
    """An expression has bounded depth, and what it makes on its way is counted together."""
    with pytest.raises(RecordError) as caught:
        expressions.Evaluator(1.0, lambda _: "cpu").evaluate(text)
    assert what in caught.value.what


def test_names_of_a_program_are_counted_together(tmp_path: Path) -> None:
    """Definitions that together take many times --max-mib are refused, each small enough by itself."""
    evaluator = expressions.Evaluator(1.0, lambda _: "cpu")
    for number in range(9):
        evaluator.names[f"v{number}"] = evaluator.evaluate("torch.zeros(262144)")
    with pytest.raises(RecordError, match=r"the names before it have 9 MiB already; 8 MiB are allowed"):
        evaluator.evaluate("torch.zeros(1)")


def test_programs_without_operations_cost_nothing(tmp_path: Path) -> None:
    """A hundred thousand empty programs are passed over, and none is seeded."""
    source = tmp_path / "p.json"
    source.write_text("[" + "{}," * 100_000 + "{}]")
    state = torch.random.get_rng_state()
    with collect.Collector(tmp_path / "out", "full") as collector:
        gins.run(Namespace(source=source, max_mib=1.0), collector)
    assert collector.report.left_out == []
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[" * 97 + "]" * 97, "nested 97 deep; 96 is allowed"),
        ("[" + "0," * 2**22, "has more than 4194304 values"),
    ],
)
def test_json_of_others(text: str, what: str) -> None:
    """JSON of an importer is bounded in depth and values before it is parsed."""
    with pytest.raises(RecordError, match=what):
        files.parse_json(text, "x.json")


@settings(max_examples=25, derandomize=True, database=None, deadline=None)
@given(st.recursive(st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_extents_are_those_of_the_document(value: object) -> None:
    """Depth and values of JSON are counted as its parser would, whatever its texts hold, also across pieces."""

    def depth(node: object) -> int:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    text = json.dumps(value, ensure_ascii=False).encode()
    assert documents.extent(text, 2**20)[1] == depth(value)
    filler = b'"' + b"[" * 2**18 + b'",'
    assert documents.extent(b"[" + filler + text + b"," + filler, 2**20)[1] == 1 + depth(value)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (hostile.nested("args"), "it is nested deeper than 32 containers"),
        (hostile.nested("function_name"), "it is nested deeper than 32 containers"),
        (b"\x80\x02" + b"]" * 20_000, "cannot be read with weights_only=True: "),
    ],
)
def test_pairs(data: bytes, what: str, tmp_path: Path) -> None:
    """A file of lists in lists leaves its own entry out, and not the whole import."""
    (tmp_path / "entry_0.pt").write_bytes(data)
    with collect.Collector(tmp_path / "out", "full") as collector:
        pt_files.run(Namespace(source=tmp_path, op=[], device="cpu"), collector)
    assert what in collector.report.left_out[0].reason


def test_endless_pairs(tmp_path: Path) -> None:
    """A list that holds itself leaves its entry out, and so does a FIFO; a compressed file is not unpacked."""
    endless: list[object] = []
    endless.append(endless)
    torch.save({"args": endless, "output": 1, "function_name": "torch.sin"}, tmp_path / "entry_0.pt")
    os.mkfifo(tmp_path / "entry_1.pt")
    with zipfile.ZipFile(tmp_path / "entry_2.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 2**16)
    with collect.Collector(tmp_path / "out", "full") as collector:
        pt_files.run(Namespace(source=tmp_path, op=[], device="cpu"), collector)
    reasons = [left.reason for left in collector.report.left_out]
    assert "nested deeper than 32" in reasons[0]
    assert "is not a regular file" in reasons[1]
    assert "is compressed, as torch.save never does" in reasons[2]


@pytest.mark.parametrize("code", ["x =", "\0", "a = " + "-" * 50_000 + "1", "a" + ".b" * 50_000])
def test_code_of_others(code: str) -> None:
    """Code that is none, or is nested too deeply, is an error that names its file."""
    with pytest.raises(RecordError, match="1_x\\.py is not Python"):
        references.override(code, {}, "1_x.py")


def test_configurations_combine(tmp_path: Path) -> None:
    """Three lists of settings that combine to millions are refused before the first."""
    path = tmp_path / "config_forward.json"
    path.write_bytes(hostile.configurations()[0])
    with pytest.raises(RecordError, match="combines to 64000000 configurations; 10000 are allowed"):
        next(robustkbench._settings(path, "multi"))


@pytest.mark.parametrize(
    "text", ["/*" * 100_000, 'extern "C" void solve(' + "a" * 5000 + "!)", 'extern "C" void solve(' * 20_000]
)
def test_kernels_of_others(text: str, tmp_path: Path) -> None:
    """Comments and brackets that are not closed, and endless parameters, are read once and refused."""
    (tmp_path / "k.cu").write_text(text)
    with pytest.raises(RecordError, match=r"has no extern|cannot be read"):
        refpy._of_kernel(tmp_path / "k.cu", {"M": 2}, None, 1.0)


def test_buffers_of_kernels_are_counted_first(tmp_path: Path) -> None:
    """The buffers of `solve` are refused before they are made, if they are too big."""
    (tmp_path / "k.cu").write_text(seeds.KERNEL)
    with pytest.raises(RecordError, match="A of 4194304 MiB, more than --max-mib, 1"):
        refpy._of_kernel(tmp_path / "k.cu", {"M": 2**20, "N": 2**20}, None, 1.0)


META = {"dtype": "uint8", "shape": [1], "stride": [1], "offset": 0, "storage": 0}


@pytest.mark.parametrize(
    ("header", "nbytes", "what"),
    [
        ({"metas": [META], "spans": [2**60]}, 2**60, "cannot be mapped"),
        ({"metas": [META], "spans": [1, *[0] * 100_000]}, 1, "1 tensor on 100001 spans; each span has one"),
        (
            {"metas": [META] * 65_537, "spans": [1]},
            1,
            "65537 tensors on 1 span; each span has one, and 65536",
        ),
    ],
)
def test_tensors_of_workers(header: object, nbytes: int, what: str) -> None:
    """Spans without tensors, and a buffer that says it is larger than any memory, are malformed."""
    buffer = Buffer(os.memfd_create("fuzz"), nbytes)
    os.ftruncate(buffer.fileno(), min(nbytes, 8))
    with buffer, pytest.raises(ProtocolError, match=what):
        unpack(header, buffer, "cpu")
