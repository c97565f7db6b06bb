"""Calls of torch in a C++ extension that do the work of the op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_cgins.regenerate.static_check.same_work import SameWork
from pytest_cgins.regenerate.static_check.tokens import Token

SPACES = frozenset({"at", "torch", "c10"})
PARTS = {
    "native": "calls-op",
    "_ops": "calls-op",
    "redispatch": "calls-op",
    "meta": "calls-op",
    "cpu": "calls-op",
    "autograd": "calls-op",
    "Dispatcher": "calls-op",
    "OperatorHandle": "calls-op",
    "jit": "calls-op",
    "load": "file-access",
    "save": "file-access",
    "globalContext": "patches-torch",
    "set_num_threads": "patches-torch",
    "set_num_interop_threads": "patches-torch",
    "setDeterministicAlgorithms": "patches-torch",
}
"""Parts of qualified names of torch that are refused whatever follows."""
NAMES = {
    "callBoxed": "calls-op",
    "findSchemaOrThrow": "calls-op",
    "findSchema": "calls-op",
    "findOp": "calls-op",
    "allow_tf32": "patches-torch",
    "setAllowTF32CuBLAS": "patches-torch",
    "setFloat32MatmulPrecision": "patches-torch",
    "setBenchmarkCuDNN": "patches-torch",
}
FREE = frozenset({"autograd", "cpu"})
"""Parts that are refused only with a name of the op's work behind them: `torch::autograd::Function` is legal."""


def check(
    tokens: Sequence[Token], work: SameWork, *, declared: frozenset[str]
) -> Iterator[tuple[int, str, str]]:
    """Line, code and words of what is against a torch extension's tokens."""
    called: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token.kind != "name":
            continue
        before = tokens[index - 1].text if index else ""
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if token.text in SPACES and after == "::" and before not in ("::", ".", "->"):
            parts = _parts(tokens, index)
            full = "::".join(parts)
            code = next((PARTS[part] for part in parts[1:] if part in PARTS and part not in FREE), "")
            if any(work.has(part) for part in parts[1:]):
                code = code or "calls-op"
            if code:
                yield token.line, code, full
            called.setdefault(parts[-1], token.line)
        elif token.text in NAMES:
            yield token.line, NAMES[token.text], token.text
        elif (
            token.text == "TORCH_LIBRARY_IMPL"
            and index + 2 < len(tokens)
            and tokens[index + 2].text == "aten"
        ):
            yield token.line, "patches-torch", "TORCH_LIBRARY_IMPL(aten, …)"
        elif after == "(" and before in (".", "->"):
            called.setdefault(token.text, token.line)
            if work.has(token.text):
                yield token.line, "calls-op", f".{token.text}()"
        elif after == "(" and before != "::" and token.text not in declared and work.has(token.text):
            yield token.line, "calls-op", f"{token.text}()"
    composed = work.composed(called)
    if composed:
        yield called[composed[-1]], "calls-op", " and ".join(composed)


def _parts(tokens: Sequence[Token], index: int) -> list[str]:
    parts = [tokens[index].text]
    while index + 2 < len(tokens) and tokens[index + 1].text == "::" and tokens[index + 2].kind == "name":
        index += 2
        parts.append(tokens[index].text)
    return parts
