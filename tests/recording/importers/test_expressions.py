from __future__ import annotations

import contextlib
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.errors import RecordError
from pytest_cgins.recording.importers.expressions import Evaluator


def evaluator(max_mib: float = 1.0, **names: object) -> Evaluator:
    made = Evaluator(max_mib, lambda asked: "cpu")
    made.names.update(names)
    return made


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ('torch.randn(3, 4, device="cuda")', (3, 4), torch.float32),
        ("torch.rand((2, 5), dtype=torch.float16) * 2 - 1", (2, 5), torch.float16),
        ("torch.randint(0, 10, (7,))", (7,), torch.int64),
        ("torch.tensor([[1.0, 2.0]]).T", (2, 1), torch.float32),
        ("torch.arange(6).reshape(2, 3).float()", (2, 3), torch.float32),
        ("a @ a.T + torch.eye(4) * 1e-3", (4, 4), torch.float32),
        ("a > 0.5", (4, 4), torch.bool),
        ("torch.zeros(4).cuda().half()", (4,), torch.float16),
        ("torch.tril(torch.ones(3, 3)).to(torch.device('cuda'))", (3, 3), torch.float32),
    ],
)
def test_tensors(text: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Factories, casts, arithmetic and names make the tensors that Python would."""
    made = evaluator(a=torch.rand(4, 4)).evaluate(text)
    assert (tuple(made.shape), made.dtype) == (shape, dtype)


@pytest.mark.parametrize(
    ("text", "value"),
    [("int('1')", 1), ("str('ij,jk->ik')", "ij,jk->ik"), ("-0.5", -0.5), ("(1, [2, 3])", (1, [2, 3])),
     ("inf", math.inf), ("None", None), ("torch.float16", torch.float16)],
)  # fmt: skip
def test_plain_values(text: str, value: object) -> None:
    """Numbers, texts, containers and dtypes are values."""
    assert evaluator().evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "torch.load('x.pt')",
        "torch.ops.load_library('x.so')",
        "torch.from_file('x')",
        "torch.hub.load('a', 'b')",
        "().__class__.__bases__",
        "a.numpy()",
        "a.__class__",
        "a.data",
        "[x for x in (1, 2)]",
        "(lambda: 1)()",
        "f'{a}'",
        "a if a else a",
        "torch.add(a, a, out=a)",
        "torch.randn(*[2, 2])",
        "torch.randn(**{'size': (2, 2)})",
        "open('/etc/passwd')",
        "2 ** 1000000",
        "9 ** 60",
        "[0] * 10",
        "'x' * 1000000000",
        "unknown",
        "import os",
        "a := 1",
        "",
    ],
)
def test_refused(text: str) -> None:
    """What is not on the allow-list is refused, and nothing of it runs."""
    with pytest.raises(RecordError):
        evaluator(a=torch.rand(2)).evaluate(text)


def test_refused_before_memory_is_taken() -> None:
    """A tensor beyond the limit is refused by its sizes alone, also where broadcasting makes it."""
    huge = evaluator(max_mib=1.0, row=torch.rand(1, 4096), column=torch.rand(4096, 1))
    for text in ("torch.zeros(10**6, 10**6)", "row * column", "column @ row", "torch.arange(10**12)"):
        with pytest.raises(RecordError, match="MiB; 1 MiB are allowed"):
            huge.evaluate(text)


def test_a_name_that_is_nearly_there_is_suggested() -> None:
    """An unknown factory names the nearest one."""
    with pytest.raises(RecordError, match=r'torch\.rann is not on the allow-list; did you mean "randn"'):
        evaluator().evaluate("torch.rann(3)")


def test_a_long_text_is_refused() -> None:
    """A text's length and its number of parts are bounded."""
    with pytest.raises(RecordError, match="characters; 4096 are allowed"):
        evaluator().evaluate("1+" * 4000 + "1")
    with pytest.raises(RecordError, match="more than 512 parts"):
        evaluator().evaluate("1+" * 600 + "1")


_NUMBERS = st.integers(-50, 50) | st.floats(-50, 50)


@given(left=_NUMBERS, right=_NUMBERS, sign=st.sampled_from(["+", "-", "*"]))
def test_arithmetic_is_pythons(left: float, right: float, sign: str) -> None:
    """Arithmetic on numbers gives what Python gives."""
    expected = {"+": left + right, "-": left - right, "*": left * right}[sign]
    assert evaluator().evaluate(f"({left!r}) {sign} ({right!r})") == expected


@given(text=st.text(max_size=40))
def test_any_text_is_a_value_or_an_error_of_ours(text: str) -> None:
    """Whatever the text, nothing but RecordError comes out of the syntax and the allow-list."""
    with contextlib.suppress(RecordError, ArithmeticError, TypeError, ValueError):
        evaluator().evaluate(text)
