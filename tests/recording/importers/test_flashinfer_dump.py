from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs.replay import load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.packs.values import decode
from pytest_cgins.recording.importers.flashinfer_dump import _axis

PREAMBLE = "from __future__ import annotations\nimport math\nimport torch\n\n"
REFERENCE = (
    PREAMBLE
    + """
def _scaled(x, by):
    return x * by


@torch.no_grad()
def _rmsnorm_reference(hidden_states, weight, eps=1e-6, **_unused):
    \"\"\"Root mean square normalisation.\"\"\"
    x = hidden_states.float()
    return _scaled(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps), weight).to(hidden_states.dtype)
"""
)
INIT = (
    PREAMBLE
    + """
def _rmsnorm_init(*, batch_size, hidden_size=4096, device="cuda", seed=0):
    torch.manual_seed(seed)
    return {
        "input": torch.randn(batch_size, hidden_size, dtype=torch.bfloat16, device=device),
        "weight": torch.rand(hidden_size, dtype=torch.bfloat16, device=device),
    }
"""
)
DUMP = {
    "name": "rmsnorm_h32",
    "description": "Root Mean Square Normalization.",
    "op_type": "rmsnorm",
    "tags": ["fi_api:flashinfer.norm.rmsnorm", "status:verified"],
    "axes": {"batch_size": {"type": "var"}, "hidden_size": {"type": "const", "value": 32}},
    "inputs": {
        "hidden_states": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden_size"], "dtype": "bfloat16"},
    },
    "outputs": {"output": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"}},
    "reference": REFERENCE,
    "init": INIT,
}


@pytest.fixture
def dump(write: Callable[..., Path]) -> Callable[..., None]:
    def make(**changes: Any) -> None:
        document = {key: value for key, value in {**DUMP, **changes}.items() if value is not None}
        write("dump/rmsnorm_h32.json", document)

    return make


def test_definitions_become_traces(cgins: Callable[..., Any], dump: Callable[..., None]) -> None:
    """The code makes inputs, for the constant sizes of the dump and two of what varies; the reference is the op."""
    dump()
    run = cgins("import", "flashinfer-dump", "dump", "--allow-code")
    assert run.ops() == ["references.fid_rmsnorm_h32.run"] * 2, run.out
    assert sorted(trace.signature[:10] for trace in run.pack.traces) == ["bf16-16x32", "bf16-7x32-"]


@pytest.mark.parametrize("init", [INIT, None])
def test_sizes_can_be_given(cgins: Callable[..., Any], dump: Callable[..., None], init: str | None) -> None:
    """One call then; without a function that makes inputs they are drawn."""
    dump(init=init)
    run = cgins(
        "import",
        "flashinfer-dump",
        "dump/rmsnorm_h32.json",
        "--allow-code",
        "--axis",
        "batch_size=3",
        "--tier",
        "full",
    )
    reader = open_pack(Path("pack"))
    (x, weight) = load_inputs(run.pack.traces[0], reader, "cpu")
    assert len(run.pack.traces) == 1
    assert (x.shape, x.dtype, weight.shape) == ((3, 32), torch.bfloat16, (32,))


def test_inputs_of_wrappers_are_found_by_their_form(
    cgins: Callable[..., Any], dump: Callable[..., None]
) -> None:
    """A wrapper is planned and run, its cache is a pair: what the reference names otherwise has the definition's form."""
    code = (
        "\ndef _x_init(*, n, device='cuda', seed=0):\n"
        "    cache = (torch.ones(n, 4, device=device), 2 * torch.ones(n, 4, device=device))\n"
        "    return {'plan': {'indptr': torch.arange(3, device=device)}, 'run': {'q': torch.ones(4, device=device), 'cache': cache}}\n"
    )
    reference = "\ndef _x_reference(q, k_cache, v_cache, starts, sm_scale):\n    return sm_scale * q + k_cache[starts] - v_cache[starts]\n"
    form = {"shape": ["n", "head_dim"], "dtype": "float32"}
    inputs = {
        "q": {"shape": ["head_dim"], "dtype": "float32"}, "k_cache": form, "v_cache": form,
        "starts": {"shape": ["s"], "dtype": "unknown"}, "sm_scale": {"shape": None, "dtype": "float32", "optional": True},
    }  # fmt: skip
    axes = {"n": {"type": "var"}, "head_dim": {"type": "const", "value": 4}, "s": {"type": "const"}}
    dump(init=PREAMBLE + code, reference=PREAMBLE + reference, inputs=inputs, axes=axes)
    run = cgins("import", "flashinfer-dump", "dump", "--allow-code", "--tier", "full", "--axis", "n=5")
    assert run.code == 0, run.out
    _, keys, values, starts = load_inputs(run.pack.traces[0], open_pack(Path("pack")), "cpu")
    assert (keys.unique().tolist(), values.unique().tolist(), starts.tolist()) == ([1.0], [2.0], [0, 1, 2])
    (scale,) = (one.value for one in run.pack.traces[0].call.arguments if one.name == "sm_scale")
    assert decode(scale, []) == 0.5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reference": None}, "flashinfer has no reference for it"),
        ({"reference": "def go():\n    pass\n"}, "its reference does not end with a function NAME_reference"),
        ({"reference": PREAMBLE + "\ndef _x_reference(q):\n    return q\n"}, "nothing makes q, which the reference takes"),
        ({"init": PREAMBLE + "\ndef _x_init(*, batch_size, device, seed=0):\n    return {'x': torch.empty(batch_size * 10**9, 32, device=device)}\n"}, "MiB of --max-mib"),
        ({"init": "import flashinfer_is_not_here\n\n\ndef _x_init():\n    pass\n"}, "No module named 'flashinfer_is_not_here'"),
        ({"name": 3}, "has no text 'name'"),
        ({"init": None, "inputs": {**DUMP["inputs"], "weight": {"shape": ["hidden_size"], "dtype": "unknown"}}}, "unknown is not a dtype"),  # type: ignore[dict-item]
    ],
)  # fmt: skip
def test_what_is_left_out(
    cgins: Callable[..., Any], dump: Callable[..., None], changes: dict[str, Any], reason: str
) -> None:
    """Each has its reason, and too big inputs take no memory first."""
    dump(**changes)
    run = cgins("import", "flashinfer-dump", "dump", "--allow-code")
    assert run.code == 1
    assert reason in run.out


def test_it_is_code(cgins: Callable[..., Any], dump: Callable[..., None], write: Callable[..., Path]) -> None:
    """Nothing runs without --allow-code; a folder without files, and a wrong axis, are errors."""
    dump(reference="open('ran', 'w')\n" + REFERENCE)
    assert "--allow-code" in cgins("import", "flashinfer-dump", "dump").err
    assert not Path("ran").exists()
    assert (
        "--axis batch is not NAME=SIZE"
        in cgins("import", "flashinfer-dump", "dump", "--allow-code", "--axis", "batch").err
    )
    assert (
        "has no *.json"
        in cgins("import", "flashinfer-dump", write("empty/x.txt", "").parent, "--allow-code").err
    )


@pytest.mark.exam
@given(st.text())
def test_an_axis_is_a_name_and_a_size_or_refused(text: str) -> None:
    """Whatever is typed."""
    try:
        name, size = _axis(text)
    except RecordError:
        return
    assert size >= 0
    assert text.startswith(f"{name}=")
