"""The contract as prompts tell it is the contract: cgins.h and CONTRACT.md are held against the prompts' words."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import pytest_cgins
from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.core import expression
from pytest_cgins.core.case import Specialized
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta, Value
from pytest_cgins.packs.store import PackReader
from pytest_cgins.regenerate.prompts import assembly, templating
from pytest_cgins.regenerate.prompts.context import Context
from tests.regenerate.prompts.example import context_of

KERNELS = Path(pytest_cgins.__file__).parent / "building"
HEADER = (KERNELS / "include" / "cgins.h").read_text()
DOCUMENT = (KERNELS / "CONTRACT.md").read_text()
STRUCTS = templating.text("contract/cgins_h.txt")
DEVICE_HELPERS = templating.text("contract/device_helpers.txt")
LAUNCH_LINE = templating.text("contract/launch_line.txt")
OF_THE_TOOL = {"CGINS_H_", "CGINS_CONTRACT_VERSION", "CGINS_MESSAGE_NBYTES", "CGINS_HOST_DEVICE", "cgins_last_error",
    "cgins_message", "cgins_status"}  # fmt: skip
"""What cgins.h has for itself or for the caller."""


def _contract(context: Context) -> str:
    return assembly.section("contract.md", context)


def _launcher(kernel: str = "layer_norm", implementation: str = "cpp") -> str:
    return _contract(context_of(kernel, implementation))


def _unknown() -> str:
    """A prompt for an op of which nothing gives a schema line."""
    context = context_of("silu_mul", "cpp", "generate")
    alone = replace(context.entry, implementations=(context.implementation,))
    config = replace(context.config, kernels=())
    return _contract(replace(context, entry=alone, config=config, sources={"k.cpp": ""}, packs=()))


def _device() -> str:
    return _contract(context_of("softmax", "nvrtc"))


def _types() -> str:
    """A prompt whose line has every odd type."""
    line = (
        "f(Tensor x, Tensor? maybe, Tensor(a!) y, Tensor?[] xs, int[]? n, float? a, Scalar s, str t, ScalarType d, "
        "Generator? g) -> Tensor"
    )
    schemas.parse(line)
    context = context_of("silu_mul", "cpp", "generate")
    return _contract(replace(context, sources={"k.cpp": f"// cgins: {line}\n"}, packs=()))


def test_what_cgins_h_has_is_told_and_nothing_else() -> None:
    """Every function, macro and type of cgins.h is in a prompt, and every one that a prompt names is in cgins.h."""
    own = re.sub(r"namespace detail \{.*?\}  // namespace detail", "", HEADER, flags=re.DOTALL)
    declared = {
        *re.findall(r"^(?:template <[^>]*>\s*)?inline [\w: *]*?\b(\w+)\(", own, re.MULTILINE),
        *re.findall(r"#define (CGINS_\w+)", own),
        *re.findall(r"\b(cgins_\w+)\b", own),
        *re.findall(r"^(?:struct|using|enum class) (\w+)\b", own, re.MULTILINE),
        *re.findall(r"\b(CGINS_(?:BOOL|INT|FLOAT|COMPLEX))\b", own),
    }
    needed = {"numel", "dispatch_floating", "CGINS_CHECK", "float16", "accumulator", "tensor", "cgins_stream"}
    assert needed <= declared
    told = STRUCTS + DEVICE_HELPERS + "cgins_stream cgins_scalar_kind"
    assert [name for name in sorted(declared - OF_THE_TOOL) if not re.search(rf"\b{name}\b", told)] == []
    said = "\n".join((_launcher(), _launcher("gelu", "cuda"), _unknown(), _device(), _types()))
    named = {*re.findall(r"\bcgins::(\w+)", said), *re.findall(r"\b(CGINS_[A-Z_]*[A-Z])\b", said)}
    assert [name for name in sorted(named) if name not in HEADER] == []


def test_element_types_and_fields_are_those_of_cgins_h() -> None:
    """The prompt's Dtype has all members; fields of the structs are there."""
    (members,) = re.findall(r"enum class Dtype : int \{(.*?)\}", HEADER, re.DOTALL)
    (told,) = re.findall(r"enum class Dtype \{(.*?)\}", STRUCTS, re.DOTALL)
    assert re.findall(r"\w+", told) == re.findall(r"\w+", members)
    for struct in re.findall(r"typedef struct \{([^{}]*)\} (?:DLTensor|cgins_scalar);", HEADER):
        for field in re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", struct)):
            assert re.search(rf"\b{field}\b", STRUCTS), field


RULES = {
    "Schema line": (_unknown, ("exactly one schema line", "up to the one with `->`", "none of C's library", "passes its default", "needs a default")),
    "Types": (_types, ("`maybe`: NULL is None", "`y`: changed in place", "items may be NULL", "a list of one; NULL and 0 are None", "`a`: pointer, NULL is None", "->imaginary", "UTF-8 with a zero byte", "cgins::dtype_of(*d)")),
    "Tensors": (_launcher, ("caller owns all memory", "Keep, free and resize nothing", "NULL if there are no elements", "aligned to its element only", "64 bytes (CPU) or 512 (CUDA)", "any strides", "never NULL or negative; 0 where expanded", "nothing is converted", "write every element", "read only", "same memory as each other", "Outputs share no memory", "ndim 0 and one element")),
    "Errors": (_launcher, ("Return 0", "Never throw", "printf's language", "1023 bytes", "CGINS_CUDA_CHECK", "CGINS_LAUNCH_CHECK")),
    "Streams": (lambda: _launcher() + _launcher("gelu", "cuda"), ("NULL on the CPU", "all work goes to it, memsets and copies too", "does not wait", "while a stream is captured", "device is current", "a grid of 0 blocks is an error")),
    "Scratch memory": (_launcher, ("`extern \"C\" int64_t layer_norm_workspace(const DLTensor* input, ", "shapes, strides and dtypes, never from data", "less than 0 is an error", "uninitialised", "before `stream`")),
    "Mutation, lists, optional arguments, random numbers": (_types, ("a 64-bit seed; the same seed gives the same numbers",)),
    "Modules": (_unknown, ("`self.a.b` is `a_b`", "a first digit gets a `_` before it", "what two attributes would be called has no name", "where the kernel does not read it")),
    "How it is built": (lambda: _launcher() + _launcher("gelu", "cuda") + _launcher("linear", "cute"), ("-O3 -std=c++17 -fopenmp -Wall", "nvcc -O3 -lineinfo -std=c++17", "--expt-relaxed-constexpr", "as many threads as torch", "compiled apart and linked", "looked up beside the source", "sm_90a", "layout of __half")),
    "Launch lines": (_device, ("in order, all on one stream", "while a bracket is open", "1 to 3 sizes", "the schema line's name", "on one launch line, undefined content", "set to 0 before this", "left out unless it holds", "refused with an error", "48 KiB", "all outputs are empty", "write // or ceil_div")),
    "Arguments": (_device, ("NULL for None", "whatever the strides", "cgins::tensor<const T>", "void* takes any", "float4* stands for its elements", "pointers of the element type, const for inputs", "unless the launch line looks at its strides")),
    "Templates": (_device, ("dtype(i, int32, int64)", "cuda_type(x)", "choose(EXPR, 128, 256, 512)", "others stand as they are", "At most 64 instantiations")),
    "How a device kernel is built": (_device, ("NVRTC --std=c++17", "int64_t is long long there", "cooperative_groups.h", "cuda/std/", "cub/", "<cmath>")),
}  # fmt: skip
"""What of each heading of CONTRACT.md an author must know, as prompts say it, and a prompt that does."""


def test_each_heading_of_the_contract_is_looked_at() -> None:
    """A new heading of CONTRACT.md has to be given its words in prompts here."""
    assert re.findall(r"^## (.*)$", DOCUMENT, re.MULTILINE) == list(RULES)
    assert re.findall(r"^# (.*)$", DOCUMENT, re.MULTILINE) == [
        "The launcher contract, version 1",
        "The device contract, version 1",
    ]


@pytest.mark.parametrize("heading", RULES)
def test_every_rule_is_told(heading: str) -> None:
    """What CONTRACT.md demands of an author, a prompt of that contract says."""
    prompt, words = RULES[heading]
    text = " ".join(prompt().split())
    assert [one for one in words if one not in text] == []


def test_the_language_of_launch_lines_is_told() -> None:
    """Each key and each function that launch lines may have is in the prompt and in CONTRACT.md."""
    for name in launch_line.KEYS:
        assert f"{name}=" in LAUNCH_LINE, name
        assert f"`{name}=" in DOCUMENT, name
    for name in expression.FUNCTIONS:
        assert re.search(rf"\b{name}\b", LAUNCH_LINE), name
        assert re.search(rf"\b{name}\(|`{name}`", DOCUMENT), name
    assert str(launch_line.MAX_VARIANTS) in LAUNCH_LINE


def _value(kind: str, value: object = None, *items: Value) -> Value:
    return Value(kind=kind, value=value, items=items)  # type: ignore[arg-type]


def _module(kernel: str = "silu_mul", implementation: str = "cpp", goal: str = "generate") -> Context:
    """A new kernel for a class of modules, of which one attribute has no type and two one name."""
    context = context_of(kernel, implementation, goal)  # type: ignore[arg-type]
    pack, trace = context.traces[0]
    odd = _value("list", None, _value("list", None, _value("str", "a")), _value("int", 1))
    state = {
        "training": _value("bool", False),
        "gate.weight": _value("tensor", 1),
        "gate.bias": _value("none"),
        "eps": _value("float", (0.5).hex()),
        "odd": odd,
        "a.b_c": _value("int", 1),
        "a_b.c": _value("int", 2),
    }
    given = Argument(name="x", value=_value("tensor", 0), passed="positional")
    rest = [Argument(name=f"self.{name}", value=one, passed="state") for name, one in state.items()]
    meta = TensorMeta(dtype="float32", shape=(2, 3), stride=(3, 1), offset=0, storage=0)
    made = replace(
        trace,
        call=OpCall(op="models.blocks.Gate", arguments=(given, *rest)),
        tensors=(meta, replace(meta, storage=1)),
    )
    return replace(
        context,
        target=replace(context.target, op="models.blocks.Gate"),
        entry=replace(context.entry, name="gate", op="models.blocks.Gate"),
        config=replace(context.config, kernels=()),
        sources=dict.fromkeys(context.sources, ""),
        packs=(PackReader(pack.folder, replace(pack.pack, traces=(made,))),),
        profiles=(),
    )


def test_a_new_kernel_for_a_module_names_the_state_that_it_reads() -> None:
    """The line has what a line can name of the module; what the kernel does not read may be left out of it."""
    context = _module()
    context = replace(context, entry=replace(context.entry, implementations=(context.implementation,)))
    text = _contract(context)
    assert "// cgins: gate(Tensor x, bool training, Tensor gate_weight, float eps) -> Tensor" in text
    assert (
        "write it as it is here, but for what it names of the module's state (`training`, `gate_weight`, `eps`): leave out "
        "of it what the kernel does not read, and the prototype has no such parameter either" in text
    )
    assert "but for" not in _contract(context_of("silu_mul", "cpp", "generate"))


def test_a_line_with_less_state_is_kept_in_the_next_prompt() -> None:
    """A candidate that leaves state out has its own line and prototype shown when it is asked again."""
    context = _module()
    candidate = {context.main: "// cgins: gate(Tensor gate_weight, Tensor x) -> Tensor\n"}
    text = _contract(replace(context, candidate=candidate))
    assert (
        "int gate(const DLTensor* gate_weight, const DLTensor* x, DLTensor* out, cgins_stream stream);"
        in text
    )


def test_other_contracts_say_where_the_state_is() -> None:
    """A Python target is given the module first, a torch extension the module's tensors last."""
    text = _contract(_module("rms_norm", "triton"))
    assert "The op is a module: the first argument is a module of its class" in text
    assert "(x)" in text
    text = _contract(_module("relu", "extension"))
    assert "Behind these come the tensors of the module's state, in this order: `self.gate.weight`." in text
    for kernel, implementation in (("rms_norm", "triton"), ("relu", "extension")):
        assert "module" not in _contract(context_of(kernel, implementation)).replace("module:", "")


def test_a_whole_prompt_for_a_module() -> None:
    """The maker of prompts takes it."""
    assert "`models.blocks.Gate`" in assembly.generator(_module())[-1].text


def test_a_prompt_tells_the_macros_of_every_build():
    """A source that is built for some sizes is told each build's macros, and that it must do without them."""
    context = context_of("softmax", "cuda", "optimise")
    it = Specialized(
        macros=("ROWS", "COLS"), sizes=("input.size(0)", "input.size(-1)"), builds=((128, 768), (1, 50257))
    )
    specialized = replace(context, implementation=replace(context.implementation, specialized=it))
    text = _contract(specialized)
    assert "`ROWS` is `input.size(0)`, `COLS` is `input.size(-1)`" in text
    assert "`-DROWS=128 -DCOLS=768`; `-DROWS=1 -DCOLS=50257`; and one without these macros" in text
    assert "Without the macros the source must be right for all sizes" in text
    assert "compiled several times" not in _contract(context)


def test_what_only_python_kernels_are_tried_with_is_told_to_them_alone():
    """Autotuners and recompilations are nothing that a C++ kernel has."""
    for kernel, implementation, is_told in (("softmax", "triton", True), ("softmax", "cpp", False)):
        text = assembly.generator(context_of(kernel, implementation))[-1].text
        assert ("triton.autotune" in text) == ("compiles nothing" in text) == is_told


@pytest.mark.parametrize(
    ("arch", "archs", "facts"),
    [("sm_90", (), ("TMA",)), ("sm_90", ("sm_90a",), ("TMA", "wgmma alone")), ("sm_80", ("sm_90a",), ())],
)
def test_hopper_is_told_what_it_alone_has(arch, archs, facts):
    """TMA and clusters where the device is one, wgmma where the build takes it; nothing elsewhere, nor of a CPU."""
    context = context_of("linear", "cuda")
    context = replace(
        context,
        hardware=replace(context.hardware, arch=arch),
        implementation=replace(context.implementation, archs=archs),
    )
    text = assembly.generator(context)[-1].text
    assert [fact for fact in ("TMA", "wgmma alone") if f"{fact} " in text.partition("Hopper: ")[2]] == list(
        facts
    )
    assert "Hopper" not in assembly.generator(context_of("linear", "cpp"))[-1].text
