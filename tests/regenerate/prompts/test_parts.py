"""Parts of prompts: advice, hardware, schema lines, fences."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.trace import Value
from pytest_cgins.regenerate.prompts import blocks, hardware, schema_line, templating, workload
from pytest_cgins.regenerate.prompts.target_prompts import read_advice
from tests.regenerate.prompts.example import config, context_of


@pytest.mark.parametrize(
    "answer",
    [
        '{"advice": "Mask the tail.", "do_not_repeat": ["unrolling"]}',
        'Sure!\n```json\n{"advice": "Mask the tail.", "do_not_repeat": ["unrolling"]}\n```\nGood luck.',
        'thoughts {not json} … {"text": ["Mask the tail."], "avoid": "unrolling"}',
        "Mask the tail.\n\n## Do not repeat\n- unrolling\n",
        "Mask the tail.\n**Don't try again:**\n1. unrolling",
    ],
)
def test_advice_is_read_in_any_dress(answer):
    """JSON bare, fenced or in prose, and plain sections give the same advice."""
    found = read_advice(answer)
    assert found.text == "Mask the tail."
    assert found.avoid == ("unrolling",)


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        (
            "the bits change\n→ read no other row; if it is intended, set `repeatable: tolerance` in cgins.yaml",
            "the bits change\n→ read no other row",
        ),
        (
            "→ the second is right as well: if it is intended (atomics), set `repeatable: tolerance` in cgins.yaml",
            "→ the second is right as well",
        ),
        (
            "a race\n→ look for races in shared memory: --cgins-sanitize=racecheck",
            "a race\n→ look for races in shared memory",
        ),
        (
            "compute in fp32, or allow it in cgins.yaml, with which this passes: precision: {x: y}",
            "compute in fp32",
        ),
        (
            "torch takes them: x, y (if not, say so in cgins.yaml: semantics: {domain: {x: [0, null]}})",
            "torch takes them: x, y",
        ),
        ("too slow\n→ run again with --cgins-timeout=600", "too slow"),
        ("it refuses what its claims in cgins.yaml say it takes: [4, 5]", None),
        ("a plain line: with (brackets); and more, or less", None),
    ],
)
def test_a_model_is_told_no_remedy_in_files_that_it_may_not_touch(message, kept):
    """A verdict's message ends where it would have cgins.yaml or an option changed; all else of it stays."""
    assert blocks.without_settings(message) == (message if kept is None else kept)


def test_advice_of_garbage_is_the_text():
    """Broken JSON is taken as words; nothing gives empty advice."""
    assert read_advice('{"advice": "Mask').text == '{"advice": "Mask'
    assert read_advice("").text == ""
    assert read_advice("Avoid bank conflicts by padding.").text == "Avoid bank conflicts by padding."


@pytest.mark.exam
@given(
    st.text()
    | st.recursive(
        st.none() | st.text() | st.integers(),
        lambda x: (
            st.lists(x) | st.dictionaries(st.sampled_from(["advice", "avoid", "do_not_repeat", "x"]), x)
        ),
    ).map(json.dumps)
)
def test_advice_never_raises_and_is_bounded(answer):
    """Whatever a model answers becomes advice of bounded size."""
    found = read_advice(answer)
    assert len(found.text) < 7000
    assert len(found.avoid) <= 10
    assert all(len(line) <= 300 and "\n" not in line for line in found.avoid)


@given(st.text(alphabet="`~\n ab\x1b[\u202e", max_size=200))
def test_no_text_ends_its_fence(text):
    """No text has a line that closes the fence around it."""
    fence, *inside, last = blocks.fenced(text).split("\n")
    ticks = re.match("`+", fence)[0]
    assert last == ticks
    assert not any(re.match(f" {{0,3}}`{{{len(ticks)},}}", line) for line in inside)


def _described(it):
    return templating.render("hardware.md", hardware=it)


def test_unknown_hardware_stays_unknown(tmp_path):
    """Where nobody tells anything, it says unknown."""
    cpu = replace(hardware.read("cpu", proc=tmp_path, sys_folder=tmp_path), cores=3)
    assert (cpu.name, cpu.vector_flags, cpu.caches) == ("", (), ())
    text = _described(cpu)
    assert "unknown model, 3 cores" in text
    assert "vector instructions: unknown" in text
    gpu = hardware.read("cuda:0", library="libno-such-driver.so", proc=tmp_path)
    assert gpu.sm_count == 0
    assert "unknown" in _described(gpu)
    assert "0 SMs" not in _described(gpu)


def test_a_cpu_is_read_from_its_files(tmp_path):
    """Model, instruction sets and caches come from /proc and /sys."""
    (tmp_path / "cpuinfo").write_text("model name\t: Big CPU\nflags\t\t: fpu avx2 fma avx512f\n")
    cache = tmp_path / "devices/system/cpu/cpu0/cache/index2"
    cache.mkdir(parents=True)
    for name, text in (("level", "2\n"), ("type", "Unified\n"), ("size", "2048K\n")):
        (cache / name).write_text(text)
    told = replace(hardware.read("cpu", proc=tmp_path, sys_folder=tmp_path), peak_bytes_per_s=2e10)
    assert told.name == "Big CPU"
    assert told.vector_flags == ("avx2", "fma", "avx512f") or set(told.vector_flags) == {
        "fma",
        "avx2",
        "avx512f",
    }
    assert told.caches == (("L2", 2 << 20),)
    assert "20 GB/s" in _described(told)
    assert "- versions:" not in _described(told)
    versions = ("torch 2.13.0", "g++ 12.2.0")
    assert "- versions: torch 2.13.0, g++ 12.2.0\n" in _described(replace(told, versions=versions))


@pytest.mark.parametrize("kernel", [one.name for one in config().kernels])
def test_schema_lines_from_traces_cover_the_recorded_calls(kernel, monkeypatch):
    """A line derived from recorded arguments alone parses, and names only the op's own parameters."""
    monkeypatch.setattr(schema_line, "overloads", lambda op: ())
    monkeypatch.setattr(schema_line, "defaults", lambda op: {})
    implementation = next(i for k in config().kernels if k.name == kernel for i in k.implementations)
    context = context_of(kernel, implementation.name, "generate")
    traces = [trace for _, trace in context.traces]
    line = schema_line.from_traces(kernel, context.target.op, traces)
    parsed = schemas.parse(line)
    names = {argument.name for trace in traces for argument in trace.call.arguments}
    assert {argument.name for argument in parsed.arguments} <= names


@pytest.mark.exam
def test_schema_lines_take_torchs_types_and_defaults():
    """With torch's own schemas a line has its types and defaults."""
    context = context_of("conv2d", "cpp", "generate")
    line = schema_line.from_traces("conv2d", context.target.op, [trace for _, trace in context.traces])
    assert line == (
        "conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] dilation=1, "
        "int groups=1) -> Tensor"
    )


def test_calls_that_no_schema_line_takes_together_are_refused(monkeypatch):
    """Before a model is asked: a line has one type, and a word is no number."""
    monkeypatch.setattr(schema_line, "overloads", lambda op: ())
    context = context_of("conv2d", "cpp", "generate")
    traces = [trace for _, trace in context.traces]
    call = traces[0].call
    word = Value(kind="str", value="same")
    arguments = tuple(replace(it, value=word) if it.name == "padding" else it for it in call.arguments)
    traces.append(replace(traces[0], call=replace(call, arguments=arguments)))
    with pytest.raises(RegenerateError) as refused:
        schema_line.from_traces("conv2d", context.target.op, traces)
    told = (
        f"padding of {context.target.op} was recorded as int, int[], str: a schema line has one type for it"
    )
    assert refused.value.what in (
        told,
        told.replace("int, int[]", "int"),
        told.replace("int, int[]", "int[]"),
    )
    assert refused.value.remedy == (
        "record calls of one type alone, or ask for a kernel without a schema line: --implementation triton"
    )


@pytest.mark.parametrize(
    ("op", "family"),
    [
        ("torch.nn.functional.linear", "matmul"),
        ("torch.nn.functional.conv2d", "convolution"),
        ("torch.nn.functional.relu_", "elementwise"),
        ("torch.nn.functional.layer_norm@backward(input,weight,bias)", "norm"),
        ("torch.nn.functional.softmax", "reduction"),
        ("torch.nn.functional.scaled_dot_product_attention", "attention"),
        ("torch.nn.functional.embedding", "embedding"),
        ("torch.nn.functional.max_pool2d", "pooling"),
        ("models.blocks.conv_relu_pool", "convolution"),
        ("models.decoder.apply_rotary", "fused"),
        ("torch.ops.aten.mm.default", "matmul"),
    ],
)
def test_families(op, family):
    """Methods follow the kind of op."""
    assert workload.family_of(op) == family


DRIVER = r"""
#include <cstdio>
#include <cstring>
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return index == 1 ? 0 : 101; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  if (attribute == 38) return 1;
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : attribute * 1000;
  return 0;
}
int cuDeviceGetName(char* text, int, int) { strcpy(text, "Model `X`"); return 0; }
int cuDeviceTotalMem_v2(size_t* nbytes, int) { *nbytes = size_t{1} << 37; return 0; }
int cuDriverGetVersion(int* version) { *version = 12080; return 0; }
}
"""


def test_a_gpu_is_asked_through_its_driver(tmp_path):
    """What the driver's library answers is read by a program of its own; what it does not answer is unknown."""
    (tmp_path / "driver.cpp").write_text(DRIVER)
    library = tmp_path / "libdriver.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "driver.cpp")], check=True)
    told = hardware.read("cuda:1", library=str(library), proc=tmp_path)
    assert (told.name, told.arch, told.sm_count, told.cuda) == ("Model 'X'", "sm_90", 132, "12.8")
    assert (told.memory_nbytes, told.shared_nbytes_per_block_opt_in, told.clock_mhz) == (1 << 37, 97000, 13)
    assert told.l2_nbytes == 0
    assert "L2 unknown" in _described(told)
    assert hardware.read("cuda:0", library=str(library), proc=tmp_path).name == ""
