"""The static check of C++ and CUDA sources, on their tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from pytest_cgins.regenerate.model import Finding
from pytest_cgins.regenerate.static_check import forbidden, includes, same_work, torch_calls
from pytest_cgins.regenerate.static_check.tokens import Token, Unit, read

KEYWORDS = frozenset(
    [
        "return",
        "else",
        "do",
        "throw",
        "case",
        "goto",
        "sizeof",
        "new",
        "delete",
        "co_return",
        "co_await",
        "co_yield",
        "and",
        "or",
        "not",
        "using",
        "namespace",
        "typename",
        "operator",
        "if",
        "while",
        "for",
        "switch",
        "decltype",
        "alignof",
        "static_assert",
        "template",
        "noexcept",
        "public",
        "private",
        "protected",
    ]
)
ASM = frozenset({"asm", "__asm", "__asm__"})
ASM_FORBIDDEN = re.compile(
    r"\b(?:syscall|sysenter|svc|int\s+(?:\$)?0x80|vmcall)\b|\.byte\b|\.(?:inc(?:bin|lude)|section|symver|weak|globl)\b"
)
ATTRIBUTES = frozenset({"constructor", "destructor", "ifunc", "weakref", "init_priority", "alias", "weak"})
ATTRIBUTES |= {f"__{name}__" for name in ATTRIBUTES}
PRAGMAS = re.compile(
    r"(?:GCC|clang)?\s*(?:plugin|dependency|include_alias|redefine_extname|weak|init|fini|comment)\b"
)
PLACES = re.compile(r"/proc/|/dev/shm|/sys/class|\.cgins\b|cgins\.yaml")
RECOGNITION = re.compile(r"pytest|CGINS_WORKER|cgins_worker", re.IGNORECASE)
SECTIONS = re.compile(r"\.(?:init_array|fini_array|preinit_array|ctors|dtors|init|fini)\b")


def check(
    path: str,
    text: str,
    *,
    op: str,
    contract: str,
    entry: str,
    allow_libraries: bool,
    headers: Collection[str],
) -> list[Finding]:
    """Look through one C++ or CUDA source; the arguments are those of the package's `check`."""
    unit = read(text)
    work = same_work.of(op)
    found: list[tuple[int, str, str]] = []
    for directive in unit.directives:
        against = includes.check(
            directive, path, contract=contract, work=work, allow_libraries=allow_libraries, headers=headers
        )
        found += [(directive.line, code, words) for code, words in against]
        if directive.name == "pragma" and PRAGMAS.match(" ".join(token.text for token in directive.tokens)):
            found.append((directive.line, "static-code", f"#pragma {directive.tokens[0].text}"))
    declared = _declared(unit)
    for tokens in (unit.code, *(each.tokens for each in unit.directives if each.name not in includes.LINES)):
        found += _names(tokens, declared, allow_libraries=allow_libraries)
        found += _assembly(tokens)
        if contract == "torch-extension":
            found += torch_calls.check(tokens, work, declared=declared | {entry})
        else:
            found += _torch(tokens)
    found += _strings(unit)
    found += _pasted(unit)
    return [
        Finding(code=code, file=path, line=line, message=f"{words}: {forbidden.REMEDY[code]}")
        for line, code, words in found
    ]


def _declared(unit: Unit) -> frozenset[str]:
    """Names that the file declares itself: functions with a body, variables, parameters, macros."""
    names = {
        directive.tokens[0].text
        for directive in unit.directives
        if directive.name == "define" and directive.tokens and not _names_itself(directive.tokens)
    }
    code = unit.code
    closings = _closings(code)
    for index in range(1, len(code) - 1):
        token, before, after = code[index], code[index - 1], code[index + 1]
        if token.kind != "name":
            continue
        is_typed = (before.kind == "name" and before.text not in KEYWORDS) or before.text in (
            "*",
            "&",
            ">",
            "]",
        )
        if is_typed and after.text in (";", "=", ",", ")", "{", "[", ":"):
            is_value = before.text in ("*", "&") and (index < 2 or not _ends_type(code[index - 2]))
            if not is_value:
                names.add(token.text)
        elif (after.text == "(" and is_typed and _has_body(code, closings.get(index + 1))) or before.text in (
            "struct",
            "class",
            "enum",
            "namespace",
            "using",
            "typename",
        ):
            names.add(token.text)
    return frozenset(names)


def _names_itself(tokens: Sequence[Token]) -> bool:
    """Whether a macro's body has the macro's own name, which then means what it meant before."""
    return any(token.text == tokens[0].text for token in tokens[1:])


def _ends_type(token: Token) -> bool:
    return (token.kind == "name" and token.text not in KEYWORDS) or token.text in (">", "*", "&")


def _closings(code: Sequence[Token]) -> dict[int, int]:
    """Where each round bracket is closed, by where it opens."""
    found, opened = {}, []
    for index, token in enumerate(code):
        if token.kind == "mark" and token.text == "(":
            opened.append(index)
        elif token.kind == "mark" and token.text == ")" and opened:
            found[opened.pop()] = index
    return found


def _has_body(code: Sequence[Token], closing: int | None) -> bool:
    """Whether the brackets that close there are a function's parameters, and its body follows."""
    if closing is None:
        return False
    for token in code[closing + 1 : closing + 12]:
        if token.text == "{":
            return True
        if token.text in (";", ")", ",", "="):
            return False
    return False


def _by_name(table: Mapping[str, Collection[str]]) -> dict[str, str]:
    return {name: code for code, names in table.items() for name in names}


STRONG = _by_name(forbidden.STRONG)
WEAK = _by_name(forbidden.WEAK)
OF_STD = _by_name(forbidden.OF_STD)


def _names(
    tokens: Sequence[Token], declared: frozenset[str], *, allow_libraries: bool
) -> Iterator[tuple[int, str, str]]:
    for index, token in enumerate(tokens):
        if token.kind != "name":
            continue
        name, space, after = token.text, _space(tokens, index), _next(tokens, index)
        if name in ATTRIBUTES and _in_attribute(tokens, index):
            yield token.line, "static-code", f"the attribute {name}"
        elif forbidden.OF_PYTHON.fullmatch(name):
            yield token.line, "process", f"{name}, of Python's own API"
        elif RECOGNITION.search(name):
            yield token.line, "self-recognition", name
        elif not allow_libraries and _is_library(name, space, after):
            yield token.line, "vendor-library", name
        elif code := _code(name, space, after, declared):
            yield token.line, code, f"{name}, of C's library" if name in WEAK else name


def _is_library(name: str, space: str, after: str) -> bool:
    is_function = forbidden.LIBRARY.fullmatch(name) is not None and space != "."
    return is_function or (name in forbidden.LIBRARY_SPACES and after == "::")


def _code(name: str, space: str, after: str, declared: frozenset[str]) -> str:
    """Code of a name that is not to be named there; "" if it may be."""
    if space == "." or space in forbidden.KNOWN_SPACES:
        return ""
    if name in STRONG:
        return STRONG[name]
    if space == "std":
        return OF_STD.get(name, "")
    if name not in WEAK or after in (".", "->", "::"):
        return ""
    return WEAK[name] if space == "::" or (not space and name not in declared) else ""


def _space(tokens: Sequence[Token], index: int) -> str:
    """What stands before a name: "." of a member, "::" of the global scope, the name of its namespace, or "" for none."""
    before = tokens[index - 1].text if index else ""
    if before in (".", "->"):
        return "."
    if before != "::":
        return ""
    scope = tokens[index - 2] if index > 1 else None
    if scope is None or scope.kind != "name" or scope.text in KEYWORDS:
        return "::" if scope is None or scope.text != ">" else ">"
    return scope.text


def _next(tokens: Sequence[Token], index: int) -> str:
    return tokens[index + 1].text if index + 1 < len(tokens) else ""


def _in_attribute(tokens: Sequence[Token], index: int) -> bool:
    before = [token.text for token in tokens[max(index - 12, 0) : index]]
    return any(word in before for word in ("__attribute__", "__attribute")) or any(
        pair == ("[", "[") for pair in pairwise(before)
    )


def _assembly(tokens: Sequence[Token]) -> Iterator[tuple[int, str, str]]:
    for index, token in enumerate(tokens):
        if token.kind != "name" or token.text not in ASM:
            continue
        for part in tokens[index + 1 : index + 60]:
            if part.text in (";", "{") and part.kind == "mark":
                break
            words = set(re.findall(r"[A-Za-z_]\w*", part.text)) if part.kind == "text" else set()
            named = sorted(words & STRONG.keys())
            hit = ASM_FORBIDDEN.search(part.text) if part.kind == "text" else None
            if hit or named:
                yield part.line, "process", f"assembly with {hit[0] if hit else named[0]}"


def _torch(tokens: Sequence[Token]) -> Iterator[tuple[int, str, str]]:
    for index, token in enumerate(tokens):
        is_space = token.text in ("at", "torch", "c10", "pybind11") and _next(tokens, index) == "::"
        if token.kind == "name" and is_space and _space(tokens, index) in ("", "::"):
            yield token.line, "torch-in-launcher", f"{token.text}::"


def _strings(unit: Unit) -> Iterator[tuple[int, str, str]]:
    for token in unit.strings():
        if RECOGNITION.search(token.text):
            yield token.line, "self-recognition", f'the text "{_short(token.text)}"'
        elif PLACES.search(token.text) or ".incbin" in token.text:
            yield token.line, "file-access", f'the text "{_short(token.text)}"'
        elif SECTIONS.fullmatch(token.text.strip()):
            yield token.line, "static-code", f'the section "{_short(token.text)}"'


def _pasted(unit: Unit) -> Iterator[tuple[int, str, str]]:
    """Forbidden names that `##` can make of words of the file."""
    pasting = [
        directive
        for directive in unit.directives
        if directive.name == "define" and any(token.text in ("##", "%:%:") for token in directive.tokens)
    ]
    if not pasting:
        return
    tokens = [token for part in (unit.code, *(each.tokens for each in unit.directives)) for token in part]
    words = {token.text for token in tokens if token.kind in ("name", "number")}
    for name, code in forbidden.FORMS.items():
        if _is_made_of(name, words, 3):
            yield pasting[0].line, code, f"{name}, pasted together by ##"


def _is_made_of(name: str, words: set[str], most: int, *, least: int = 2) -> bool:
    if least <= 1 and name in words:
        return True
    return most > 1 and any(
        name[:cut] in words and _is_made_of(name[cut:], words, most - 1, least=least - 1)
        for cut in range(1, len(name))
    )


def _short(text: str) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "…"
