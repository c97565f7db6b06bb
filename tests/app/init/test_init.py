"""`cgins init`: a repository's kernels are found in its text, entered where their op is certain, and then gated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

import pytest_cgins
from pytest_cgins.app.init import files
from pytest_cgins.app.init.known_ops import KNOWN, Match, examples, functions, match, plain_name
from pytest_cgins.app.init.plan import Plan, make_plan
from pytest_cgins.app.init.scan import Parameter, scan
from pytest_cgins.config import load_without_traces
from tests.forked_python import gate_python

Command = Callable[..., subprocess.CompletedProcess[str]]

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _half(x):
    return x * 0.5


@triton.jit
def _softmax_kernel(out, x, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    values = tl.load(x + row * n + columns, mask, other=-float("inf")).to(tl.float32)
    powers = tl.exp(_half(2 * (values - tl.max(values, 0))))
    tl.store(out + row * n + columns, (powers / tl.sum(powers, 0)).to(out.dtype.element_ty), mask)


@triton.autotune(configs=[triton.Config({"BLOCK": 256})], key=[])
@triton.jit
def _relu_kernel(out, x, n, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + places, places < n)
    tl.store(out + places, tl.where(values < 0.0, 0.0, values), places < n)


@triton.jit
def _silu_mul_kernel(out, x, y, n, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + places, places < n).to(tl.float32)
    values = gate / (1 + tl.exp(-gate)) * tl.load(y + places, places < n).to(tl.float32)
    tl.store(out + places, values.to(out.dtype.element_ty), places < n)


@triton.jit
def _rope_kernel(x, BLOCK: tl.constexpr):
    pass


def _softmax_forward(x):
    out = torch.empty_like(x)
    _softmax_kernel[(x.numel() // x.size(-1),)](out, x, x.size(-1), BLOCK=triton.next_power_of_2(x.size(-1)))
    return out


class FastSoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, in_place=False):
        return _softmax_forward(x.contiguous())


def relu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    _relu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](out, x, x.numel())
    return out


def fused_silu_mul(x, y):
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    _silu_mul_kernel[(triton.cdiv(x.numel(), 1024),)](out, x, y, x.numel(), BLOCK=1024)
    return out


def relu_(x):
    return x.copy_(relu(x))


def rope(x, cos):
    _rope_kernel[(1,)](x, BLOCK=16)
"""
MISH = """#include <torch/extension.h>

torch::Tensor run_mish(torch::Tensor x) { return x * torch::tanh(torch::softplus(x)); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("mish", &run_mish); }
"""
SILU = """// cgins: silu(Tensor input) -> Tensor
#include <cgins.h>
#include <cmath>
extern "C" int silu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input has strides");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const T* from = cgins::data<T>(input);
    T* to = cgins::data<T>(out);
    for (int64_t i = 0; i < cgins::numel(input); ++i) to[i] = T(float(from[i]) / (1 + std::exp(-float(from[i]))));
    return 0;
  });
}
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository in the layout that many have, with kernels of several languages."""
    package = tmp_path / "src" / "fastops"
    (package / "ops").mkdir(parents=True)
    (package / "__init__.py").write_text("from fastops.ops.basic import relu\n")
    (package / "ops" / "__init__.py").write_text("")
    (package / "ops" / "basic.py").write_text(KERNELS)
    (package / "functional.py").write_text(
        "from .ops.basic import FastSoftmaxFunction\n\n\ndef fast_softmax(x):\n    return FastSoftmaxFunction.apply(x)\n"
    )
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "mish.cpp").write_text(MISH)
    (tmp_path / "csrc" / "bare.cu").write_text("__global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_relu.py").write_text("import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n")
    return tmp_path


def plan_of(repository: Path) -> Plan:
    return make_plan(scan(repository))


def reasons(plan: Plan) -> dict[str, str]:
    """Why something is left out, by the last word of its name."""
    return {item.rpartition(" ")[2]: why for item, why in plan.left_out}


def passed(repository: Path, select: str) -> set[str]:
    """Record and gate a repository as init says; the cases that passed, as kernel, implementation and dtype."""
    paths = [str(Path(pytest_cgins.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    subprocess.run([sys.executable, files.SCRIPT], cwd=repository, env=environment, check=True)
    words = [
        "-m",
        "pytest",
        "-p",
        "no:cgins",
        "-p",
        "pytest_cgins.plugin",
        "--cgins",
        "-o",
        "pythonpath=src",
        "-rA",
    ]
    gate = gate_python().run([*words, "--cgins-no-timing", "-k", select], cwd=repository)
    assert gate.returncode == 0, gate.stdout
    cases = re.findall(r"^PASSED cgins.yaml::(\w+/\w+-\w+)/init/(b?f\d+)", gate.stdout, re.MULTILINE)
    return {" ".join(case) for case in cases}


def test_a_repository_is_gated_as_init_wrote_it(repository: Path, cgins: Command) -> None:
    """From sources to verdicts without an edit: Triton in the interpreter, and a launcher."""
    (repository / "csrc" / "silu.cpp").write_text(SILU)
    done = cgins(repository, "init", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    entered = "entered   softmax/triton: torch.nn.functional.softmax by fastops.functional:fast_softmax"
    assert entered in done.stdout
    assert "left out  src/fastops/ops/basic.py _rope_kernel: " in done.stdout
    command = f"python {files.SCRIPT} && python -m pytest --cgins -o pythonpath=src"
    assert done.stdout.endswith(f"next      {command}\n")
    assert passed(repository, "f32-8x96 and not mish") == {
        "relu/cpu-triton f32", "silu/cpu-cpp f32", "silu_mul/cpu-triton f32", "softmax/cpu-triton f32",
    }  # fmt: skip


def test_what_is_found_and_why_not_all_of_it_is_entered(repository: Path) -> None:
    """Helpers and tests are no kernels; each kernel that is launched, and each source, is entered or has a reason."""
    plan = plan_of(repository)
    assert {one.name for one in plan.kernels.values()} == {
        "_softmax_kernel", "_relu_kernel", "_silu_mul_kernel", "_rope_kernel",
    }  # fmt: skip
    entered = {f"{entry.match.name}/{entry.implementation}": entry for entry in plan.entries}
    assert set(entered) == {"mish/cpp", "relu/triton", "silu_mul/triton", "softmax/triton"}
    assert entered["softmax/triton"].match.fixed == ("dim",)
    assert reasons(plan) == {
        "_rope_kernel": "fastops.ops.basic.rope: no op of torch is known that is called rope",
        "csrc/bare.cu": "it exports nothing: give it a schema line (cgins schema --op OP prints it) or a PYBIND11_MODULE",
    }


def test_what_users_call_is_entered_not_what_it_calls(repository: Path) -> None:
    """A launcher may count on contiguous arguments, which the function around it makes."""
    basic = repository / "src" / "fastops" / "ops" / "basic.py"
    launcher = KERNELS.replace("def relu(x):\n    x = x.contiguous()", "def relu_forward(x):").replace(
        "copy_(relu(", "copy_(relu_forward("
    )
    basic.write_text(launcher + "\n\ndef triton_relu(x):\n    return relu_forward(x.contiguous())\n")
    entered = [entry.function.name for entry in plan_of(repository).entries if entry.match.op == "torch.relu"]
    assert entered == ["triton_relu"]


def test_what_is_left_out_is_gated_as_the_hint_says(repository: Path, cgins: Command) -> None:
    """An op of the repository's own is held against a function of torch that its entry names."""
    assert (
        "reference: MODULE:FUNCTION, a function of torch that does the same"
        in cgins(repository, "init").stdout
    )
    (repository / "traces" / "init").mkdir(parents=True)
    by_hand = "op: fastops.ops.basic.rope, target: fastops.ops.basic:rope, reference: tests.reference:rope, device: cuda"
    config = repository / files.CONFIG
    config.write_text(f"{config.read_text()}  rope: {{{by_hand}}}\n")
    (kernel,) = (kernel for kernel in load_without_traces(config).kernels if kernel.name == "rope")
    assert kernel.judged_by == "tests.reference.rope"


def test_an_op_is_entered_in_one_form(repository: Path) -> None:
    """Each kernel of an op meets each of its traces: one for scalars would fail on tensors."""
    basic = repository / "src" / "fastops" / "ops" / "basic.py"
    basic.write_text(
        KERNELS + "\n\ndef eq(A, B):\n    return relu(A)\n\n\ndef eq_scalar(A, B):\n    return rope(A, B)\n"
    )
    plan = plan_of(repository)
    assert [entry.match.call for entry in plan.entries if entry.match.op == "torch.eq"] == [
        "torch.eq(input, other=other)"
    ]
    assert (
        reasons(plan)["_rope_kernel"]
        == "fastops.ops.basic.eq_scalar: torch.eq is entered with other arguments, by eq"
    )


def test_nothing_of_the_repository_runs(repository: Path, cgins: Command) -> None:
    """Modules that cannot be imported are read all the same."""
    basic = repository / "src" / "fastops" / "ops" / "basic.py"
    basic.write_text(f"open({str(repository / 'ran')!r}, 'w')\nraise SystemExit(3)\n{KERNELS}")
    assert cgins(repository, "init").returncode == 0
    assert not (repository / "ran").exists()
    config = yaml.safe_load((repository / files.CONFIG).read_text())
    assert config["kernels"]["relu"]["implementations"] == [
        {
            "name": "triton", "device": "cuda", "target": "fastops.ops.basic:relu",
            "sources": ["src/fastops/ops/basic.py"],
        }
    ]  # fmt: skip


def test_files_that_are_there_stay(repository: Path, cgins: Command) -> None:
    """All are refused for one that is there, until --force."""
    (repository / files.SCRIPT).write_text("mine")
    done = cgins(repository, "init")
    assert done.returncode == 2
    assert f"{files.SCRIPT} is already in" in done.stderr
    assert not (repository / files.CONFIG).exists()
    assert (repository / files.SCRIPT).read_text() == "mine"
    assert cgins(repository, "init", "--force").returncode == 0
    assert (repository / files.SCRIPT).read_text() != "mine"


def test_a_second_run_writes_the_same(repository: Path, cgins: Command) -> None:
    """What the first one wrote is no kernel of the repository's."""
    written = [files.CONFIG, files.SCRIPT, files.ADAPTERS, files.OPS]
    assert cgins(repository, "init").returncode == 0
    first = [(repository / name).read_text() for name in written]
    assert cgins(repository, "init", "--force").returncode == 0
    assert [(repository / name).read_text() for name in written] == first


def test_ops_that_torch_has_not_are_written_as_functions_of_torch(repository: Path, cgins: Command) -> None:
    """Those that are needed, and where it is certain which argument is which."""
    assert cgins(repository, "init").returncode == 0
    assert re.findall(r"def (\w+)", (repository / files.OPS).read_text()) == ["silu_mul"]
    basic = repository / "src" / "fastops" / "ops" / "basic.py"
    basic.write_text(KERNELS.replace("def fused_silu_mul(x, y)", "def fused_silu_mul(left, right)"))
    assert reasons(plan_of(repository))["_silu_mul_kernel"] == (
        "fastops.ops.basic.fused_silu_mul: its parameter left is not one that init knows of cgins_ops.silu_mul (input, other)"
    )


def test_operators_wait_for_a_recording(repository: Path, cgins: Command) -> None:
    """A function that is registered with torch is told with its entry, which becomes one when the # goes."""
    basic = repository / "src" / "fastops" / "ops" / "basic.py"
    operator = '\n\n@torch.library.custom_op("fast::rope_op", mutates_args=())\ndef rope_op(x):\n    return rope(x, x)\n'
    basic.write_text(KERNELS + operator)
    assert cgins(repository, "init").returncode == 0
    config = (repository / files.CONFIG).read_text()
    assert "# fast_rope_op: {op: torch.ops.fast.rope_op, load: [fastops.ops.basic], device: cuda" in config
    (repository / "traces" / "init").mkdir(parents=True)
    (repository / files.CONFIG).write_text(config.replace("# fast_", "fast_"))
    kernels = load_without_traces(repository / files.CONFIG).kernels
    assert [one.implementations[0].target for one in kernels if one.name == "fast_rope_op"] == [
        "torch.ops.fast.rope_op"
    ]


def test_an_operator_that_no_op_of_torch_is_called_like_can_be_the_op(tmp_path: Path, cgins: Command) -> None:
    """Whoever registers operators in C++ is told how they are entered."""
    (tmp_path / "bindings.cpp").write_text(
        'TORCH_LIBRARY(fast, m) { m.def("scaled_add(Tensor x) -> Tensor"); }\n'
    )
    done = cgins(tmp_path, "init")
    assert (
        "→ a registered operator can be the op itself: op: torch.ops.fast.scaled_add, load: [MODULE], which registers it; "
        "cgins record SCRIPT --out traces/own records it as a script of yours calls it; without a reference the recorded gold "
        "alone decides\n"
    ) in done.stdout


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("softmax(Tensor input, int dim) -> Tensor", ""),
        ("gelu(Tensor input, str approximate) -> Tensor", ""),
        ("softmax(Tensor input) -> Tensor", "it takes no dim, as torch.nn.functional.softmax does"),
        ("relu(Tensor x) -> Tensor", "its parameter x is not one of relu's (input)"),
        ("relu(Tensor(a!) input) -> Tensor(a!)", "it works in place"),
        ("rope(Tensor input) -> Tensor", "no op of torch is known that is called rope"),
    ],
)
def test_a_schema_line_is_held_against_the_op(tmp_path: Path, line: str, why: str) -> None:
    """A launcher has the op's own parameters, or the gate would refuse it."""
    (tmp_path / "kernel.cu").write_text(f"// cgins: {line}\n// cgins-launch: grid=(1) block=(1)\n")
    plan = plan_of(tmp_path)
    assert [entry.function.contract for entry in plan.entries] == ([] if why else ["device"])
    assert list(reasons(plan).values()) == ([why] if why else [])


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("gelu(at::Tensor x, c10::string_view approximate)", ""),
        ("softmax(at::Tensor input, int64_t dim)", ""),
        (
            "softmax(at::Tensor input, int64_t dim, at::ScalarType dtype)",
            "its parameters are not those of torch.nn.functional.softmax in order: an adapter must call it",
        ),
        ("gelu(at::Tensor x, double scale)", "its parameter scale is not one that init knows of torch.nn.functional.gelu (input)"),
    ],
)  # fmt: skip
def test_an_extension_may_take_what_else_the_op_takes(tmp_path: Path, signature: str, why: str) -> None:
    """In the op's order, since nothing names the arguments of a C++ function."""
    name = signature.partition("(")[0]
    (tmp_path / "ops.cpp").write_text(
        f"#include <torch/extension.h>\nat::Tensor {signature} {{}}\n"
        f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{name}", &{name}); }}\n'
    )
    plan = plan_of(tmp_path)
    assert [entry.function.contract for entry in plan.entries] == ([] if why else ["torch-extension"])
    assert list(reasons(plan).values()) == ([why] if why else [])


def test_a_repository_without_kernels_is_left_alone(tmp_path: Path, cgins: Command) -> None:
    """It says so, with exit status 1; a folder that is none is an error."""
    done = cgins(tmp_path, "init")
    assert done.returncode == 1
    assert "nothing was written" in done.stdout
    assert not list(tmp_path.iterdir())
    assert cgins(tmp_path, "init", "missing").returncode == 2


def test_an_extension_is_entered_with_what_it_needs(repository: Path) -> None:
    """The file that defines what another exports; one whose headers lie elsewhere would not build."""
    csrc = repository / "csrc"
    (csrc / "mish.cpp").write_text(MISH.replace("torch::Tensor run_mish", "// ", 1))
    (csrc / "mish_cuda.cu").write_text(
        '#include "mish.h"\n__global__ void k() {}\ntorch::Tensor run_mish(torch::Tensor x) {}\n'
    )
    (csrc / "mish.h").write_text("")
    entry = next(entry for entry in plan_of(repository).entries if entry.match.name == "mish")
    assert list(map(str, entry.function.files)) == ["csrc/mish.cpp", "csrc/mish_cuda.cu"]
    assert entry.language == "cuda"
    (csrc / "mish.h").write_text('#include "mish/config.h"\n')
    why = reasons(plan_of(repository))["mish"]
    assert why == "it includes mish/config.h, which is not beside it: enter it with its flags by hand"


def test_the_layout_of_hugging_faces_kernels(repository: Path, cgins: Command) -> None:
    """A build.toml is the source: it names the files and where headers are found."""
    hub = repository / "hub"
    (hub / "torch-ext").mkdir(parents=True)
    (hub / "gelu").mkdir()
    (hub / "build.toml").write_text(
        '[general]\nname = "hub"\n[torch]\nsrc = ["torch-ext/torch_binding.cpp"]\n'
        '[kernel.gelu]\nbackend = "cuda"\nsrc = ["gelu/gelu.cu"]\n'
    )
    (hub / "torch-ext" / "torch_binding.cpp").write_text(
        '#include "registration.h"\nTORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {\n'
        '  ops.def("gelu(Tensor input) -> Tensor");\n  ops.def("gelu_into(Tensor! out, Tensor input) -> ()");\n}\n'
    )
    (hub / "gelu" / "gelu.cu").write_text(
        "__global__ void k() {}\ntorch::Tensor gelu(torch::Tensor input) { return input; }\n"
        "void gelu_into(torch::Tensor& out, torch::Tensor input) {}\n"
    )
    assert cgins(repository, "init").returncode == 0
    entry = yaml.safe_load((repository / files.CONFIG).read_text())["kernels"]["gelu"]["implementations"]
    assert entry == [
        {
            "name": "cuda",
            "contract": "torch-extension",
            "entry": "gelu",
            "device": "cuda",
            "source": "hub/build.toml",
        }
    ]
    (repository / "traces" / "init").mkdir(parents=True)
    kernels = {one.name: one for one in load_without_traces(repository / files.CONFIG).kernels}
    assert [file.name for file in kernels["gelu"].implementations[0].sources] == [
        "torch_binding.cpp",
        "gelu.cu",
    ]
    assert reasons(plan_of(repository))["gelu_into"] == "no op of torch is known that is called gelu_into"


@pytest.mark.parametrize(
    ("name", "parameters", "why"),
    [
        ("rope", ["x"], "no op of torch is known that is called rope"),
        ("softmax", ["x", "scale"], "its parameter scale is not one that init knows of torch.nn.functional.softmax (input, dim)"),
        ("mse_loss", ["x", "y", "reduction='sum'"], "its reduction is 'sum' by default, that of torch.nn.functional.mse_loss is not"),
        ("linear", ["x"], "it does not take weight, as torch.nn.functional.linear does"),
    ],
)  # fmt: skip
def test_an_op_that_is_not_certain_is_not_guessed(name: str, parameters: list[str], why: str) -> None:
    """A name alone is not enough: the function must take what the op takes, and do by default what it does."""
    assert match(name, parsed(parameters), by_place=False) == why


@pytest.mark.parametrize(
    ("name", "parameters", "arguments"),
    [
        ("softmax", ["x", "axis"], "input, dim"),
        ("rms_norm", ["X", "W", "eps"], "input, weight, eps"),
        ("rms_norm", ["x", "residual=None", "weight=None", "eps=1e-6"], "input, weight=weight, eps=eps"),
        ("mse_loss", ["input", "target", "reduction='mean'"], "input, target"),
        ("add", ["A", "B", "alpha=1"], "input, other"),
        ("swiglu", ["up", "gate"], "other, input"),
    ],
)
def test_arguments_are_paired_by_what_they_are_called(
    name: str, parameters: list[str], arguments: str
) -> None:
    """Whatever its author calls them; what the op does not have stays at its default."""
    how = match(name, parsed(parameters), by_place=False)
    assert isinstance(how, Match)
    assert ", ".join(how.arguments) == arguments


def parsed(parameters: list[str]) -> list[Parameter]:
    """`x` and `y=1` as parameters."""
    return [
        Parameter(name, default or None) for name, _, default in (word.partition("=") for word in parameters)
    ]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("LigerRMSNormFunction", "rms_norm"), ("triton_rmsnorm_fwd", "rms_norm"), ("layernorm", "layer_norm"),
        ("CrossEntropyFunction", "cross_entropy"), ("swish", "silu"), ("fused_add_rms_norm", "add_rms_norm"),
        ("softmax_backward", "softmax_backward"), ("log_softmax_kernel", "log_softmax"),
    ],
)  # fmt: skip
def test_names_say_the_op(name: str, plain: str) -> None:
    """Without the words for how it is written; a fused op or a backward is another op."""
    assert plain_name(name)[0] == plain


@pytest.mark.filterwarnings("ignore:reduction")
def test_every_known_op_takes_its_example() -> None:
    """The calls of the recording script run as written, in each dtype, whichever kernels were found."""
    every = [
        how
        for name, known in KNOWN.items()
        if isinstance(how := match(name, taken(known.examples), by_place=False), Match)
    ]
    assert len(every) == len(KNOWN)
    calls = [how.call for how in every]
    own = types.SimpleNamespace()
    for code in functions([how.op for how in every]):
        exec(
            compile(code, "functions", "exec"), {"torch": torch, "functional": torch.nn.functional}, vars(own)
        )
    script = "\n".join([*examples(" ".join(calls)), *calls])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        scope = {"torch": torch, "DEVICE": "cpu", "rows": 8, "columns": 96, "dtype": dtype, "cgins_ops": own}
        scope["draw"] = lambda *shape, dtype=dtype: torch.randn(*shape).to(dtype)
        exec(compile(script, "calls", "exec"), scope)


def taken(names: Iterable[str]) -> list[Parameter]:
    return [Parameter(name) for name in names]


@pytest.mark.exam
@given(
    st.text(alphabet=st.sampled_from("def kernel(x, y=1):\n @triton.jit\"'#&;{}")),
    st.sampled_from([".py", ".cu", ".cpp"]),
)
def test_no_text_stops_the_search(tmp_path_factory: pytest.TempPathFactory, text: str, suffix: str) -> None:
    """What is neither Python nor C++ is left out, or ignored."""
    folder = tmp_path_factory.mktemp("any")
    (folder / f"kernel{suffix}").write_text(
        f"import triton\n{text}" if suffix == ".py" else f"// cgins: {text}"
    )
    assert isinstance(make_plan(scan(folder)), Plan)
