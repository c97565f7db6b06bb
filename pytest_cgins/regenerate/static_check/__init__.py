"""What a candidate's sources may not have in them, found before anything is built or run.

A first filter, for what models write without bad intent and for the plain cheats; it saves a build and tells the model
why. It is not the defence: that is the sandbox, the probes and the hashes. So it does not try to win against code that
hides, and where honest kernels and cheats look alike, it lets both pass.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial

from pytest_cgins.core import syntax
from pytest_cgins.regenerate.attempt import Finding
from pytest_cgins.regenerate.static_check import cpp, python_tree

MAXIMUM_FINDINGS = 40
_LIBRARIES = re.compile(
    r"#\s*include\s*[<\"](?:cublas|cudnn|cusparse|cufft|cusolver|mkl|cblas|dnnl|oneapi)", re.IGNORECASE
)


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
                path, text, contract=contract, allow_libraries=allow_libraries, headers={*headers, *files}
            )
    unique = {(each.file, each.line, each.code, each.message): each for each in found}
    order = {path: index for index, path in enumerate(files)}
    return tuple(sorted(unique.values(), key=lambda each: (order[each.file], each.line)))[:MAXIMUM_FINDINGS]


def check_beside(
    incumbent: Mapping[str, str],
    files: Mapping[str, str],
    *,
    op: str,
    contract: str,
    headers: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Look through a candidate's sources: what a person wrote into the incumbent may stay, and be used anew.

    Args:
        incumbent: the sources that the candidate would replace.
        files: the candidate's, and the other arguments as of `check`.
        op: likewise.
        contract: likewise.
        headers: likewise.
    """
    look = partial(
        check,
        op=op,
        contract=contract,
        allow_libraries=any(_LIBRARIES.search(text) for text in incumbent.values()),
        allowed_imports=_imports_of(incumbent),
        headers=headers,
    )
    known = {(finding.file, finding.code, finding.message) for finding in look(incumbent)}
    return tuple(one for one in look(files) if (one.file, one.code, one.message) not in known)


def _imports_of(files: Mapping[str, str]) -> frozenset[str]:
    """Modules that Python sources import, by their whole names; relative ones keep their dots."""
    trees = (syntax.readable(text) for path, text in files.items() if path.endswith(".py"))
    # An incumbent that is broken allows nothing.
    imported = (each for tree in trees if tree is not None for each in syntax.imports(tree))
    return frozenset("." * level + module for level, module, _ in imported)
