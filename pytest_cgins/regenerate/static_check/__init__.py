"""What a candidate's sources may not have in them, found before anything is built or run.

A first filter, for what models write without bad intent and for the plain cheats; it saves a build and tells the model
why. It is not the defence: that is the sandbox, the probes and the hashes. So it does not try to win against code that
hides, and where honest kernels and cheats look alike, it lets both pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pytest_cgins.regenerate.model import Finding
from pytest_cgins.regenerate.static_check import cpp, python_tree

MAXIMUM_FINDINGS = 40


def check(
    files: Mapping[str, str],
    *,
    op: str,
    contract: str,
    allow_libraries: bool = False,
    allowed_imports: Collection[str] = (),
    headers: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Look through a candidate's sources.

    Args:
        files: path relative to the project, and text.
        op: what the kernel replaces, as cgins.yaml names it: calls of it, or of what does the same, are refused.
        contract: of the implementation.
        allow_libraries: whether cuBLAS, cuDNN and the like may be called.
        allowed_imports: modules that a Python source may import besides torch, Triton and their like: those of the
            project that the incumbent imports.
        headers: the project's own headers, relative to the project, which sources may include.

    Returns:
        What is against them, file by file from top to bottom; empty if nothing is.
    """
    found: list[Finding] = []
    for path, text in files.items():
        if path.endswith((".py", ".pyi")):
            found += python_tree.check(path, text, op=op, files=files, allowed=allowed_imports)
        else:
            found += cpp.check(
                path,
                text,
                contract=contract,
                allow_libraries=allow_libraries,
                headers={*headers, *files},
            )
    unique = {(each.file, each.line, each.code, each.message): each for each in found}
    order = {path: index for index, path in enumerate(files)}
    return tuple(sorted(unique.values(), key=lambda each: (order[each.file], each.line)))[:MAXIMUM_FINDINGS]
