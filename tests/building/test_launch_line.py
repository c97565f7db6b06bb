"""Launch lines: what may stand in them, what it means, and how mistakes are named."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.expression import ExpressionError, TensorFacts, evaluate, kind, parse

SCHEMA = schemas.parse(
    "scale(Tensor x, Tensor? bias, float a, int n, str mode='sum', Tensor[] parts=[]) -> Tensor"
)
X = TensorFacts("x", (6, 50), (50, 1), "float16", 2)
TURNED = TensorFacts("turned", (50, 6), (1, 50), "float32", 4)
VALUES = {"x": X, "turned": TURNED, "bias": None, "a": 0.5, "n": 7, "mode": "tanh", "parts": [X, TURNED]}


def value_of(text: str) -> object:
    return evaluate(parse(text), VALUES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ceil_div(numel(x), 256)", 2),
        ("x.numel() // 7 % 5", 2),
        ("size(x, -1) + x.size(0) + x.shape[1]", 106),
        ("stride(x, 0) - x.stride(1)", 49),
        ("x.ndim * ndim(x)", 4),
        ("element_size(x) + sizeof(x) + sizeof(float) + sizeof(double)", 16),
        ("min(1024, max(32, next_power_of_2(size(x, 1))))", 64),
        ("2 ** 10 << 2 >> 1", 2048),
        ("n / 2", 3.5),
        ("32 if n > 5 and not bias is not None else 64", 32),
        ("1 < n <= 7 != a", True),
        ("mode == 'tanh'", True),
        ("has(bias) or has(x)", True),
        ("is_contiguous(x) and not is_contiguous(turned)", True),
        ("same_layout(x, x)", True),
        ("same_layout(x, turned)", False),
        ("len(parts) + numel(parts[1])", 302),
        ("prod(x.shape)", 300),
        ("x.dtype in ('float16', 'bfloat16')", True),
        ("int(a * 4) + -n", -5),
    ],
)
def test_expressions(text: str, value: object) -> None:
    """Arithmetic on sizes, strides and scalars has Python's meaning."""
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("numl(x)", "no function 'numl'; did you mean \"numel\""),
        ("rows * 2", "nothing is called 'rows'"),
        ("size(x, 2)", "x has 2 dimensions, none with number 2"),
        ("n // 0", "zero"),
        ("2 ** 65", "at most 64"),
        ("(2 ** 62) * 4", "does not fit into 64 bits"),
        ("x.__class__", "no '__class__' here"),
        ("x.numel", "is called: write .numel()"),
        ("[i for i in x.shape]", "ListComp has no meaning here"),
        ("(lambda: 1)()", "no meaning here|can be called"),
        ("open('/etc/passwd')", "no function 'open'"),
        ("f'{n}'", "JoinedStr has no meaning"),
        ("numel(x", "is not an expression"),
        ("numel(*parts)", "plain arguments only"),
        ("mode * 1000000000", "'tanh' is not a number"),
        ("bias.shape", "None is not a tensor"),
        ("sizeof(flaot)", "sizeof"),
        ("at(x, 100000)", "outside of x"),
        ("-" * 1500 + "n", "more than 64 levels|is not an expression"),
        ("9" * 30, "does not fit into 64 bits"),
        ("n + " * 700 + "n", "an expression of 2801 characters"),
    ],
)
def test_what_is_not_an_expression(text: str, message: str) -> None:
    """What the language has not is refused, with its name."""
    with pytest.raises(ExpressionError, match=message.replace("(", r"\(").replace(")", r"\)")):
        value_of(text)


@pytest.mark.exam
@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """No text makes the parser raise anything else, or run anything."""
    with suppress(ExpressionError):
        value_of(text)


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_ceil_div_and_powers(n: int, block: int) -> None:
    """ceil_div covers all elements with no block to spare; powers of two are the next ones."""
    blocks = evaluate(parse("ceil_div(n, block)"), {"n": n, "block": block})
    assert (blocks - 1) * block < n <= blocks * block or n == blocks == 0
    power = evaluate(parse("next_power_of_2(n)"), {"n": n})
    assert power >= n
    assert power.bit_count() == 1
    assert power == 1 or power // 2 < n


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x", "tensor"), ("data(x)", "tensor"), ("at(x, 4)", "tensor"), ("parts[0]", "tensor"), ("numel(x)", "int"),
        ("x.shape[0]", "int"), ("n * 2", "int"), ("a", "float"), ("n / 2", "float"), ("n * a", "float"),
        ("mode == 'sum'", "bool"), ("not has(bias)", "bool"), ("n if has(bias) else a", "number"), ("-a", "float"),
        ("max(n, 3)", "number"), ("mode", "other"),
    ],
)  # fmt: skip
def test_kinds(text: str, wanted: str) -> None:
    """What an argument passes follows from the schema line, so that a compiler can check it."""
    assert kind(parse(text).tree, launch_line.kinds(SCHEMA, workspace=False)) == wanted


def read(*lines: str) -> launch_line.LaunchPlan:
    text = "// cgins: …\n" + "\n".join(f"// {line}" for line in lines) + "\n__global__ void scale() {}\n"
    return launch_line.read(launch_line.locate(text, Path("k.cu")), SCHEMA, "k.cu")


def test_a_whole_line() -> None:
    """Keys come in any order, over several comment lines; several launches keep theirs."""
    plan = read(
        "cgins-launch: kernel=a::first<dtype(x, float32, float16), TILE, 4> grid=(ceil_div(n, 4),",
        "              2, 1) block=(32, 4)",
        "              args=(x, bias, out, a, n), smem=4 * n workspace=n * 4 zero=(out, workspace)",
        "cgins-launch: grid=1 block=64 args=() cooperative=true cluster=(2) when=(n > 4)",
        "              require=(n < 10, is_contiguous(x))",
        "A comment of its own.",
    )
    first, second = plan.launches
    assert (first.line, second.line) == (2, 5)
    assert [one.text for one in first.grid] == ["ceil_div(n, 4)", "2", "1"]
    assert [one.text for one in first.arguments] == ["x", "bias", "out", "a", "n"]
    assert [first.expression(variant) for variant in plan.variants()] == [
        "a::first<float, TILE, 4>",
        "a::first<cgins::float16, TILE, 4>",
    ]
    assert plan.workspace_nbytes is not None
    assert plan.workspace_nbytes.text == "n * 4"
    assert first.zero == ("out", "workspace")
    assert (second.kernel, second.cooperative, len(second.cluster), len(second.require)) == (
        "scale",
        True,
        1,
        2,
    )
    assert second.when is not None


def test_variants() -> None:
    """Each axis is one tensor or number, however often it is named; unnamed types are the floating ones."""
    plan = read(
        "cgins-launch: kernel=f<dtype(x), choose(n, 1, 2), cuda_type(x)> grid=1 block=1 args=(x)",
        "cgins-launch: kernel=g<dtype(x)> grid=1 block=1 args=(x)",
    )
    assert [axis.choices for axis in plan.axes] == [("float32", "float64", "float16", "bfloat16"), (1, 2)]
    assert len(plan.variants()) == 8
    assert plan.launches[0].expression(("float16", 2)) == "f<cgins::float16, 2, __half>"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("block=1 args=()", "k.cu:2: launch line: grid= is missing"),
        ("grid=1 block=1", "args= is missing"),
        ("grid=1 blocks=1 args=()", "unknown key 'blocks'; did you mean \"block\""),
        ("grid=1 grid=2 block=1 args=()", "grid is there twice"),
        ("grid=(1,2,3,4) block=1 args=()", "grid has 4 dimensions, not 1 to 3"),
        ("grid=(1 block=1 args=()", "brackets or quotes are not closed"),
        ("grid= block=1 args=()", "grid= has no value"),
        ("256 threads", "does not begin with KEY="),
        ("kernel=f<dtype(y)> grid=1 block=1 args=()", "'y' is not a tensor of the schema line"),
        ("kernel=f<dtype(x, half)> grid=1 block=1 args=()", "no element type 'half'"),
        ("kernel=f<choose(n)> grid=1 block=1 args=()", r"not choose\(EXPRESSION, NUMBER"),
        ("kernel=f( grid=1", "not closed"),
        ("kernel=3f grid=1 block=1 args=()", "is not NAME or NAME<ARGUMENTS>"),
        ("cooperative=maybe grid=1 block=1 args=()", "neither true nor false"),
        ("grid=1 block=1 args=(workspace)", "no launch line says its size"),
        ("grid=1 block=1 args=() zero=(x)", "zero=x is not an output"),
        (
            "kernel=f<choose(n, 1,2,3,4,5,6,7,8,9), choose(a, 1,2,3,4,5,6,7,8)> grid=1 block=1 args=()",
            "72 instantiations, more than 64",
        ),
    ],
)
def test_wrong_lines(line: str, message: str) -> None:
    """A wrong launch line is refused with file and line before anything is compiled."""
    with pytest.raises(SourceError, match=message):
        read(f"cgins-launch: {line}")


def test_no_launch_line() -> None:
    """A source without a launch line says what to write."""
    with pytest.raises(SourceError, match=r"k\.cu: no launch line") as caught:
        launch_line.locate("// cgins: f(Tensor x) -> Tensor\n", Path("k.cu"))
    assert "cgins-launch: kernel=" in caught.value.remedy


def test_prototypes() -> None:
    """A declaration that fits the launch line, for `cgins schema`."""
    plan = read(
        "cgins-launch: kernel=f<dtype(x), choose(n, 1, 2)> grid=1 block=1 args=(x, view(out), bias, n, a, has(bias))",
        "cgins-launch: grid=1 block=1 workspace=4 args=(at(workspace, 4), numel(x), data(out))",
    )
    first, second = launch_line.prototypes(plan, SCHEMA)
    assert first == (
        "template <typename T0, int N1> __global__ void f(const T0* x, cgins::tensor<T0> out, const T0* bias, "
        "int64_t n, float a, bool argument6);"
    )
    assert second == "__global__ void scale(void* workspace, int64_t argument2, float* out);"


def test_constants_of_a_source() -> None:
    """Whole numbers that the source names can be used; what the compiler would have to compute or choose cannot."""
    text = """\
#define TILE 128
constexpr int kThreads = 256;  // a block
static constexpr unsigned int kRows = 0x10u;
  constexpr int kInner = 4;
constexpr int kTwice = 2 * TILE;
#define HALF (TILE / 2)
constexpr float kScale = 0.5f;
constexpr int kOctal = 010;
#if BIG
#define STEP 8
#else
#define STEP 4
#endif
"""
    assert launch_line.constants(text) == {"TILE": 128, "kThreads": 256, "kRows": 16, "kInner": 4}
