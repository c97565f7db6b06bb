"""The schema line: what is accepted, what it becomes in C, and how it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts import torch_schema
from pytest_cgins.core.errors import InfrastructureError, SourceError

PROTOTYPES = [
    ("f(Tensor x) -> Tensor", "const DLTensor* x, DLTensor* out"),
    ("f(Tensor? x) -> Tensor", "const DLTensor* x, DLTensor* out"),
    ("f(Tensor[] x) -> Tensor", "const DLTensor* const* x, int64_t x_len, DLTensor* out"),
    ("f(Tensor?[] x) -> Tensor", "const DLTensor* const* x, int64_t x_len, DLTensor* out"),
    ("f(Tensor(a!) x) -> ()", "DLTensor* x"),
    ("f(Tensor(a!) self) -> Tensor(a!)", "DLTensor* self"),
    ("f(int n, int? m) -> Tensor", "int64_t n, const int64_t* m, DLTensor* out"),
    ("f(int[] n) -> Tensor", "const int64_t* n, int64_t n_len, DLTensor* out"),
    ("f(int[]? n) -> Tensor", "const int64_t* n, int64_t n_len, DLTensor* out"),
    ("f(float a, float? b, float[] c) -> Tensor",
     "double a, const double* b, const double* c, int64_t c_len, DLTensor* out"),
    ("f(bool a, bool? b) -> Tensor", "bool a, const bool* b, DLTensor* out"),
    ("f(Scalar a, Scalar? b) -> Tensor", "const cgins_scalar* a, const cgins_scalar* b, DLTensor* out"),
    ("f(str a, str? b) -> Tensor",
     "const char* a, int64_t a_len, const char* b, int64_t b_len, DLTensor* out"),
    ("f(ScalarType a, ScalarType? b) -> Tensor",
     "const DLDataType* a, const DLDataType* b, DLTensor* out"),
    ("f(Generator? g) -> Tensor", "uint64_t g, DLTensor* out"),
    ("f(Tensor x) -> (Tensor, Tensor)", "const DLTensor* x, DLTensor* out0, DLTensor* out1"),
    ("f(Tensor x) -> (Tensor values, Tensor indices)", "const DLTensor* x, DLTensor* values, DLTensor* indices"),
    ("f(Tensor x) -> Tensor[]", "const DLTensor* x, DLTensor* const* out, int64_t out_len"),
    ("f(Tensor x, *, float double) -> Tensor", "const DLTensor* x, double double_, DLTensor* out"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), PROTOTYPES)
def test_prototype(line: str, expected: str) -> None:
    """Every schema type has one C type, outputs come after the arguments, and the stream is last."""
    assert schemas.prototype(schemas.parse(line)) == f"int f({expected}, cgins_stream stream);"


def test_prototype_with_workspace() -> None:
    """A source that asks for scratch memory gets it before the stream, and its size function sees the rest."""
    schema = schemas.parse("f(Tensor x) -> Tensor")
    assert schemas.prototype(schema, workspace=True).splitlines() == [
        "int f(const DLTensor* x, DLTensor* out, void* workspace, int64_t workspace_nbytes, cgins_stream stream);",
        "int64_t f_workspace(const DLTensor* x, DLTensor* out);",
    ]


def test_defaults() -> None:
    """Defaults become Python values."""
    line = "f(Tensor x, float a=1e-5, int[] n=[1,2], str s='none', bool b=True, int? m=None) -> Tensor"
    defaults = [argument.default for argument in schemas.parse(line).arguments]
    assert defaults == [None, 1e-5, [1, 2], "none", True, None]
    assert [argument.has_default for argument in schemas.parse(line).arguments] == [False] + 5 * [True]


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("scale", "'scale' is not a schema", "write NAME(TYPE argument, …) -> Tensor"),
        ("f(Tnsor x) -> Tensor", "no type 'Tnsor'", 'did you mean "Tensor"?'),
        ("f(SymInt x) -> Tensor", "no type 'SymInt'", "its types are Tensor, int, float"),
        ("f(str[] x) -> Tensor", "no type str[]", "its lists are Tensor[], Tensor?[], int[]"),
        ("f(Tensor x) -> int", "returns tensors, not 'int'", "write -> Tensor"),
        ("f(Tensor x) -> Tnsor", "unrecognized type Tnsor", "native_functions.yaml"),
        ("f(Tensor x,, int y) -> Tensor", "'x,' is not an argument name", "separate arguments"),
        ("f(Tensor x, Tensor x) -> Tensor", "two parameters named 'x'", "rename"),
        ("f(int[] x, int x_len) -> Tensor", "two parameters named 'x_len'", "rename"),
        ("f(Tensor stream) -> Tensor", "two parameters named 'stream'", "rename"),
        ("f(int x=foo) -> Tensor", "argument 'x' has the default 'foo'", "defaults are None"),
        ("f(Tensor x) -> Tensor(a!)", "output 0 is marked (a!), and no argument is", "Tensor(a!)"),
        ("double(Tensor x) -> Tensor", "'double' is a keyword of C++", "double_kernel"),
    ],
)
def test_refused(line: str, what: str, remedy: str) -> None:
    """A wrong line is refused with its place, the wrong word and the right one."""
    with pytest.raises(SourceError) as caught:
        schemas.parse(line, "k.cpp:3")
    assert caught.value.what.startswith("k.cpp:3: ")
    assert what in caught.value.what
    assert remedy in caught.value.remedy


@given(st.text(max_size=60) | st.from_regex(r"f\([A-Za-z?\[\](!), =*]{0,40}\) -> [A-Za-z\[\](), ]{1,20}"))
def test_parse_never_raises_anything_else(line: str) -> None:
    """Whatever stands in a schema line, it is parsed or refused as a source error."""
    try:
        schema = schemas.parse(line)
    except SourceError:
        return
    assert schema.entry in line


@pytest.mark.parametrize(
    "text",
    [
        "// cgins: f(Tensor x, float a) -> Tensor\n",
        "#include <cgins.h>\n\n  //cgins:f(Tensor x, float a) -> Tensor  \nint y;",
        "/* cgins: f(Tensor x, float a) -> Tensor */",
        "// cgins: f(Tensor x,\n//          float a) -> Tensor\n// a comment",
    ],
)
def test_locate(text: str) -> None:
    """The line is found in any comment style, also when it goes on over further comment lines."""
    found, _ = schemas.locate(text, Path("k.cpp"))
    assert schemas.parse(found) == schemas.parse("f(Tensor x, float a) -> Tensor")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("int f();", "k.cpp: no schema line"),
        ("// cgins-launch: grid=(1)", "k.cpp: no schema line"),
        ("// cgins: f() -> Tensor\n\n// cgins: g() -> Tensor", "k.cpp: 2 schema lines, in lines 1 and 3"),
    ],
)
def test_locate_refuses(text: str, what: str) -> None:
    """A source has exactly one schema line."""
    with pytest.raises(SourceError) as caught:
        schemas.locate(text, Path("k.cpp"))
    assert caught.value.what == what


def test_match_returns_what_the_schema_lacks() -> None:
    """Parameters of the op that the schema leaves out are returned; a default needs no parameter."""
    schema = schemas.parse("f(Tensor input, int tile=4) -> Tensor")
    assert schemas.match(schema, ["input", "approximate"], "it/cpp") == ("approximate",)


def test_code_of_our_own_namespace_is_no_schema_line() -> None:
    """A dereferenced call at the begin of a line looks like a comment's star, and is none."""
    text = "// cgins: relu(Tensor input) -> Tensor\nint relu() {\n  *cgins::data<float>(out) -= 1;\n}\n"
    assert schemas.locate(text, Path("relu.cpp")) == ("relu(Tensor input) -> Tensor", 1)


def test_a_torch_that_does_not_answer_is_no_op_without_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an op of torch was said to have no schema."""
    monkeypatch.setattr(torch_schema, "_LIMIT_S", 0.01)
    with pytest.raises(InfrastructureError) as error:
        torch_schema.overloads("torch.hardtanh")
    assert "could not be asked for the schemas of torch.hardtanh" in error.value.what
    assert "timed out after 0.01 seconds" in error.value.what
    assert "import torch" in error.value.remedy
