"""The device code of a CUDA source that also has host code: host functions blanked out, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/                                     # comments
      | (?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"   # raw strings
      | "(?:\\.|[^"\\\n])*" | (?<![\w'])'(?:\\.|[^'\\\n])+'         # strings and characters
      | ^[ \t]*\#(?:\\\n|[^\n])*                                    # directives
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
DEVICE = re.compile(r"\b__(?:device|global)__\b")
SCOPE = re.compile(r"\s*(?:inline\s+)?(?:namespace\b[^(]*|extern\s*)$")
TYPE = re.compile(
    r"^\s*(?:template\s*<.*>\s*)?(?:typedef\s+)?(?:struct|class|union|enum)\b[^()]*$", re.DOTALL
)
BINDING = re.compile(r"^\s*(?:PYBIND11_MODULE|TORCH_LIBRARY\w*|STABLE_TORCH_LIBRARY\w*)\s*\(")
TEMPLATE = re.compile(
    r"\s*template\s*<\s*((?:typename|class)\s+\w+\s*(?:,\s*(?:typename|class)\s+\w+\s*)*)>"
    r"[^()]*?(?:__launch_bounds__\s*\([^()]*\)[^()]*?)?(\w+)\s*\("
)
NAME = re.compile(r"([A-Za-z_]\w*)\s*\(")
# Words in front of a function that may hide __device__: macros, and functions that relaxed rules let devices call.
MAYBE = re.compile(r"\b(?:[A-Z][A-Z0-9_]{2,}|__\w+__|constexpr|consteval)\b")
NO_FUNCTION = re.compile(
    r"^\s*(?:using|typedef|static_assert|friend|asm|template\s*(?!<)|extern\s+template)\b|="
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """What is left of a source."""

    text: str
    """The source with host functions blanked; lines and columns are those of the source."""
    lines: frozenset[int]
    """1-based lines that lie in bodies of functions marked `__device__` or `__global__`."""
    removed: frozenset[str]
    """Names of the functions that are gone."""
    launches: bool
    """Whether a device function launches a kernel."""
    templates: tuple[str, ...]
    """Kernel templates with types for all parameters, as expressions such as `scale<float, float>`."""


def device_code(text: str) -> DeviceCode:
    """Blank the host functions of a CUDA source.

    Only what is clearly host code goes: a function at namespace scope that is neither marked for the device nor
    in front of which a macro stands. Classes stay as they are.
    """
    masked = TOKEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    kept = list(text)
    lines: set[int] = set()
    removed: set[str] = set()
    launches = False
    templates: list[str] = []
    for begin, brace, end in _statements(masked):
        head = masked[begin : brace if brace >= 0 else end]
        if DEVICE.search(head):
            if brace >= 0:
                lines.update(range(masked.count("\n", 0, brace) + 1, masked.count("\n", 0, end) + 2))
                launches |= "<<<" in masked[brace:end]
                templates += _of_types(head)
            continue
        if not _is_host_function(head, declaration=brace < 0):
            continue
        removed.update(NAME.findall(head)[:1])
        for index in range(begin, min(end + 1, len(kept))):
            # Directives stay: what they define or include may be the device's, too.
            if masked[index] != " " and kept[index] != "\n":
                kept[index] = " "
        _blank_literals(text, kept, begin, end)
    return DeviceCode(
        text="".join(kept),
        lines=frozenset(lines),
        removed=frozenset(removed),
        launches=launches,
        templates=tuple(templates),
    )


def _of_types(head: str) -> Iterator[str]:
    """The kernel of a function's head with float for each of its template parameters, if these are plain types."""
    found = TEMPLATE.match(head)
    if found and "__global__" in head:
        count = found[1].count(",") + 1
        yield f"{found[2]}<{', '.join(['float'] * count)}>"


def _blank_literals(text: str, kept: list[str], begin: int, end: int) -> None:
    for found in TOKEN.finditer(text, begin, end + 1):
        if not found[0].lstrip().startswith("#"):
            for index in range(found.start(), found.end()):
                if kept[index] != "\n":
                    kept[index] = " "


def _is_host_function(head: str, *, declaration: bool) -> bool:
    if BINDING.match(head):
        return True
    if "(" not in head or MAYBE.search(head):
        return False
    before = head[: head.index("(")]
    return not NO_FUNCTION.search(before) and (not declaration or len(before.split()) > 1)


def _statements(masked: str) -> Iterator[tuple[int, int, int]]:
    """Statements at namespace scope: where each begins, its function body's brace or -1, and where it ends."""
    begin, depth, index = 0, 0, 0
    while index < len(masked):
        character = masked[index]
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == ";" and depth == 0:
            yield begin, -1, index
            begin = index + 1
        elif character == "}":
            begin, depth = index + 1, 0
        elif character == "{":
            head = masked[begin:index]
            if depth == 0 and SCOPE.match(head):
                begin = index + 1
            else:
                end = _closing(masked, index)
                if depth == 0 and "(" in head and not TYPE.match(head) and "=" not in _outside(head):
                    yield begin, index, end
                    begin = end + 1
                index = end
        index += 1


def _outside(head: str) -> str:
    """A head without what stands in brackets: default arguments have an `=`, too."""
    previous = ""
    while previous != head:
        previous, head = head, re.sub(r"\([^()]*\)|<[^<>]*>", "", head)
    return re.sub(r"operator\s*[=<>!+*/%-]+", "operator", head)


def _closing(masked: str, opening: int) -> int:
    depth = 0
    for found in re.finditer(r"[{}]", masked[opening:]):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return opening + found.start()
    return len(masked) - 1
