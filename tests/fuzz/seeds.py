"""Valid inputs to start from, by parser."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from pytest_cgins.core import documents
from pytest_cgins.core.session_report import Environment, SessionReport
from pytest_cgins.core.trace import TracePack
from pytest_cgins.core.verdict import Status
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.profile import AtenCall, DeviceKernel, PackProfile, TraceProfile
from pytest_cgins.run.protocol import PROTOCOL_VERSION
from tests.evaluations import make_evaluation

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "example_project" / "traces"
KERNELS = ROOT / "example_project" / "kernels"


@cache
def packs() -> tuple[tuple[Path, TracePack], ...]:
    """Small packs of the example, and their folders."""
    names = ("initial_testing", "matrices", "gpt2", "training", "mnist_training")
    found = []
    for name in names:
        reader = open_pack(TRACES / name)
        found.append((TRACES / name, replace(reader.pack, traces=reader.pack.traces[:3])))
    return tuple(found)


def manifests() -> list[bytes]:
    return [documents.dump(pack).encode() for _, pack in packs()]


def blobs() -> list[bytes]:
    files = sorted((TRACES / "mnist_training" / "blobs").iterdir(), key=lambda path: path.stat().st_size)[:5]
    tiny = blob({"data": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}, b"abcd")
    return [tiny, *(file.read_bytes() for file in files)]


def blob(header: object, data: bytes, length: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def profiles() -> list[bytes]:
    pack = packs()[0][1]
    share = 1 / len(pack.traces)
    traces = tuple(
        TraceProfile(
            trace=trace.id, op=trace.call.op, signature=trace.signature, calls=trace.count,
            aten=(AtenCall(name="aten.mm.default", count=1, view=False),),
            kernels=(DeviceKernel(name="gemm", count=1, ns_per_call=10.0),), median_ns_per_call=1000.0, samples=3,
            time_share=share,
        )
        for trace in pack.traces
    )  # fmt: skip
    made = PackProfile(
        version=1, pack=pack.name, device="cpu", device_name="a CPU", torch="2.0", traces=traces
    )
    return [documents.dump(made).encode()]


def configs() -> list[bytes]:
    full = b"""version: 1
traces:
  - traces
kernels:
  scale: &one
    op: torch.mul
    tolerance: {rtol: 1e-3, atol: 0.0}
    gate: {registers: 64, spill_bytes: 0}
    repeatable: {rtol: 1e-5}
    claims: [strided, misaligned]
    precision: {allow_tf32: true}
    implementations:
      - {name: cpp, device: cpu, source: k.cpp, flags: ["-I", include, -O2], defines: {TILE: 4}}
      - {name: cuda, source: k.cu, archs: [sm_90], entry: f, contract: torch-extension}
      - {name: py, device: cpu, target: "kernels.scale:scale", interpret: yes}
"""
    return [
        full,
        b"version: 1\nkernels:\n  add: {op: torch.add, source: kernels/add.cpp, probes: {repeat: {off: because it may}}}\n",
        b"version: 1\nkernels: {}\n",
        b"""version: 1
kernels: {}
llm:
  provider: compatible
  base_url: http://localhost:8000/v1
  api_key_env: MY_KEY
  models: {generator: [a, b/c:d], helper: a, verifier: a}
  temperature: {generator: 0.7, helper: 0}
  max_answer_tokens: 16000
  stream: true
  timeout_s: 300
  budget: {repair_attempts: 5, rounds: 3, branches: 4, tokens: 200000, usd: 5.0, minutes: none}
  prices: {a: {input: 1.25, cached_input: 0.125, output: 10}, "b/c:d": {input: 1, output: 2}}
  runs: .cgins/runs
""",
        b"version: 1\nkernels: {}\nllm: {provider: replay, path: talks, temperature: 1, budget: {tokens: 5}}\n",
        b"version: 1\nkernels: {}\nllm: {provider: openai, model: m, base_url: 'https://h:1/v1', timeout_s: 2.5}\n",
    ]


EXPRESSIONS = (
    "torch.randn(4, 4)", "torch.zeros((2, 3), dtype=torch.float16, device='cuda')", "torch.tril(torch.ones(3, 3)).bool()",
    "x.T @ x + 1.5", "torch.arange(0, 12).reshape(3, 4).to(torch.int32)", "torch.full((2,), 3.0) > y", "int(4.5) ** 2 // 3",
    "torch.cat([x, x], dim=0)", "(1, [2, 'a', None], inf)", "torch.randint(0, 5, size=(3,))", "x.to('cuda', torch.half).view(-1)",
    "torch.where(x > 0, x, -x)", "torch.tensor([[1, 2], [3, 4]])", "torch.sort(x, dim=-1)", "torch.linspace(0, 1, steps=5)",
)  # fmt: skip


def gins() -> list[bytes]:
    program = [
        {
            "name": "p",
            "operations": [
                {"assignment": "c", "operation": "torch.matmul", "inputs": ["a", "b"]},
                {"assignment": "d", "operation": "torch.nn.functional.softmax", "inputs": ["c", "dim=-1"]},
            ],
            "definitions": [
                {"variable": "a", "value": "torch.randn(4, 4)"},
                {"variable": "b", "value": "a.T + 1"},
            ],
        }
    ]
    return [json.dumps(program).encode()]


BACKENDBENCH = (
    "Operator: aten.add.Tensor\ncnt: 3, ((T([5, 5], f32), T([5, 5], f32)), {'alpha': 2})\n",
    "Operator: aten.embedding.default\ncnt: 2, ((T([30, 8], f32), T([4, 7], i64)), {})\n",
    "Operator: aten._softmax.default\ncnt: 4, ((T([4, 9], f32, [1, 4]), -1, False), {})\n",
    "Operator: aten.cat.default\ncnt: 1, (([T([2, 3], bf16), T([4, 3], bf16)],), {'dim': 0})\n",
    "Operator: aten.sum.dim_IntList\ncnt: 1, ((T([2, 3], f16), [0], True), {'dtype': torch.float32})\n",
    "Operator: aten.index_select.default\ncnt: 1, ((T([8, 3], c64), 0, T([4], i32)), {})\n",
)


def reports() -> list[bytes]:
    made = (
        make_evaluation(),
        make_evaluation(Status.INCORRECT, message="wrong", output="x\ny", accepted=("zeros",)),
    )
    report = SessionReport(
        version=1, cgins="0", seed=1, started_at="2026-01-01T00:00:00", seconds=1.0, exit_status=0, evaluations=made,
        environments=(Environment(device="cpu", device_name="x", python="3", torch="2", cuda="", driver="", triton="", host_cores=2),),
    )  # fmt: skip
    return [documents.dump(report).encode()]


def histories() -> list[bytes]:
    from pytest_cgins.report import history

    report = replace(documents.load(SessionReport, reports()[0]), started_at="2026-01-01T00:00:00+00:00")
    head = history.Head(commit="c" * 40, dirty=False, branch="main")
    return [b"".join(documents.dump(one).encode() + b"\n" for one in history.entries(report, head)) * 2]


def headers() -> list[bytes]:
    """Tensor headers, with the length of the buffer that comes with them."""
    meta = {
        "dtype": "float32",
        "shape": [2, 3],
        "stride": [3, 1],
        "offset": 0,
        "storage": 0,
        "requires_grad": False,
    }
    other = {**meta, "dtype": "int64", "shape": [], "stride": [], "storage": 1}
    return [
        json.dumps({"header": {"metas": [meta, other], "spans": [24, 8]}, "nbytes": 32}).encode(),
        json.dumps(
            {"header": {"metas": [meta, {**meta, "stride": [0, 1]}], "spans": [24]}, "nbytes": 24}
        ).encode(),
    ]


def frames() -> list[bytes]:
    bodies = [
        {"nonce": "a", "result": {"x": [1, 2.5, None]}, "version": PROTOCOL_VERSION, "buffers": 0},
        {
            "nonce": "b",
            "error": {"kind": "ValueError", "text": "no", "trace": "…"},
            "version": PROTOCOL_VERSION,
            "buffers": 0,
        },
    ]
    return [frame(json.dumps(body).encode()) for body in bodies]


def frame(body: bytes, length: int | None = None) -> bytes:
    """A frame, whose length may lie."""
    return (len(body) if length is None else length).to_bytes(4, "big") + body


SCHEMAS = (
    "// cgins: scale(Tensor x, float a=1.0) -> Tensor\nint f();\n",
    "// cgins: topk(Tensor input, int k, int dim=-1, bool largest=True, *, int[2]? s=None) -> (Tensor values, Tensor indices)\n",
    "/* cgins: add_(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!) */\n",
    "//  cgins: cat(Tensor[] xs, Tensor?[] ys, int[2] dims=1, str mode=\"a\",\n//    ScalarType? dtype=None, Generator? g=None) -> Tensor[]\n",
)  # fmt: skip
LAUNCHES = (
    *((KERNELS / name).read_text() for name in ("gelu_device.cu", "softmax_device.cu", "rms_norm_device.cu")),
    "// cgins: f(Tensor x, int n, float a, Tensor? bias) -> Tensor\n// cgins-launch: kernel=a::first<dtype(x, float32), choose(n, 1, 2)> grid=(ceil_div(n, 4), 1) block=(64)\n//   args=(x, out, n, a, has(bias)) smem=4 * 64 cluster=(2) zero=(out) require=(n > 4) cooperative=true\n",
    "// cgins: f(Tensor x) -> Tensor\n// cgins-launch: grid=numel(x) block=32 args=(view(x), at(workspace, 8)) workspace=numel(x) * 4 when=(x.ndim == 2)\n#define TILE 128\nconstexpr int kTile = 64;\n",
)  # fmt: skip
LAUNCH_EXPRESSIONS = (
    "ceil_div(numel(x), 256)", "x.size(0) // x.stride(-1) * 2 ** 3", "sizeof(float) * n + sizeof(x)", "1 if has(bias) else len(xs)", "n > 4 and not is_contiguous(x)",
    "min(n, max(1, 7)) << 2", "xs[0].shape[1] % 7", "next_power_of_2(n)", "at(x, 4)", "same_layout(x, x)", "x.dtype == 'float32'", "prod(x.shape)", "int(a) in (1, 2)",
)  # fmt: skip
PTXAS = (
    """ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'
ptxas info    : Function properties for _Z1kPf
    13376 bytes stack frame, 13100 bytes spill stores, 31740 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 512+0 bytes smem, 360 bytes cmem[0]
""",
)
SASS = (
    "arch = sm_90a\n\t\tFunction : _Z1kPf\n        /*0000*/    @!P0 LDC.64 R2, c[0x0][0x210] ;  /* 0x00008400ff027b82 */\n        /*0010*/    EXIT ;\n",
)
LOGS = (
    "k.cpp: In function 'int f()':\nk.cpp:3:5: error: 'x' was not declared\n    3 |     x;\n      |     ^\nk.cpp:1:1: note: here\n",
    'k.cu(12): error: identifier "x" is undefined\n      x;\n      ^\n          detected during instantiation of "void f<T>()" at line 4\n\n1 error detected.\n',
    "/usr/bin/ld: a.o: in function `f':\nk.cpp:(.text+0x5): undefined reference to `g'\ncollect2: error: ld returned 1 exit status\n",
    "nvcc fatal   : Unsupported gpu architecture 'compute_12'\n", "sh: 1: cicc: not found\n", "g++: fatal error: Killed signal terminated program cc1plus\n",
)  # fmt: skip
REFERENCE = (
    "import torch\nbatch_size = 16\ndim = (4, 8)\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n\n"
    "def get_inputs():\n    return [torch.randn(batch_size, 4)]\n\ndef get_init_inputs():\n    return []\n"
)
KERNEL = 'extern "C" void solve(const float* A, const float* B, float* C, int M, int N) { /* */ }\n'
CONFIGURATION = {
    "single_input_configs": [{"batch": 2}],
    "multi_input_configs": [{"batch": 2}, {"batch": 3}],
    "multi_init_configs": [{"init_method": "ones"}, {"init_method": "random"}],
    "multi_shared_configs": [{"features": 4, "unknown": 1}],
}


def flashinfer() -> list[bytes]:
    """A definition and a workload."""
    definition = {
        "name": "gather",
        "op_type": "gather",
        "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 8}},
        "inputs": {
            "x": {"shape": ["rows", "width"], "dtype": "float32"},
            "scale": {"shape": None, "dtype": "float32"},
        },
    }
    inputs = {"x": {"type": "random"}, "scale": {"type": "scalar", "value": 0.5}}
    stored = {**inputs, "x": {"type": "safetensors", "path": "blob/i.safetensors", "tensor_key": "i"}}
    return [
        json.dumps(
            {"definition": definition, "workload": {"uuid": "1", "axes": {"rows": 4}, "inputs": chosen}}
        ).encode()
        for chosen in (inputs, stored)
    ]


def saved(value: object, *, zipped: bool = True) -> bytes:
    made = io.BytesIO()
    torch.save(value, made, _use_new_zipfile_serialization=zipped)
    return made.getvalue()


def pairs() -> list[bytes]:
    """`entry_0.pt` files."""
    x = torch.arange(12.0).reshape(3, 4)
    entry = {
        "function_name": "torch.nn.functional.softmax",
        "args": [x],
        "kwargs": {"dim": -1},
        "output": torch.softmax(x, -1),
    }
    plain = {"function_name": "torch.sin", "args": [x.half()], "output": torch.sin(x.half())}
    return [saved(entry), saved(plain), saved(entry, zipped=False)]
