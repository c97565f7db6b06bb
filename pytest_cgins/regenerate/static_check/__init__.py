"""What a candidate's sources may not have in them, found before anything is built or run.

A first filter, for what models write without bad intent and for the plain cheats; it saves a build and tells the model
why. It is not the defence: that is the sandbox, the probes and the hashes. So it does not try to win against code that
hides, and where honest kernels and cheats look alike, it lets both pass.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

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
    incumbent: Mapping[str, str] | None = None,
    headers: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Look through a candidate's sources: what a person wrote into the incumbent may stay, and be used anew.

    Args:
        files: path relative to the project, and text.
        op: what the kernel replaces, as cgins.yaml names it: calls of it, or of what does the same, are refused.
        contract: of the implementation.
        incumbent: the sources that the candidate would replace. Libraries such as cuBLAS and modules of the project that
            these use may be used.
        headers: the project's own headers, relative to the project, which sources may include.

    Returns:
        What is against them, file by file from top to bottom; empty if nothing is.
    """
    known = incumbent or {}
    imports, has_library = _imports_of(known), any(map(_LIBRARIES.search, known.values()))

    def against(files: Mapping[str, str]) -> dict[tuple[str, str, str, int], Finding]:
        found: list[Finding] = []
        for path, text in files.items():
            if path.endswith((".py", ".pyi")):
                found += python_tree.check(path, text, op=op, files=files, allowed=imports)
            else:
                own = {*headers, *files}
                found += cpp.check(path, text, contract=contract, allow_libraries=has_library, headers=own)
        return {(one.file, one.code, one.message, one.line): one for one in found}

    before = {key[:3] for key in against(known)}
    order = {path: index for index, path in enumerate(files)}
    new = [one for key, one in against(files).items() if key[:3] not in before]
    return tuple(sorted(new, key=lambda one: (order[one.file], one.line)))[:MAXIMUM_FINDINGS]


def _imports_of(files: Mapping[str, str]) -> frozenset[str]:
    """Modules that Python sources import, by their whole names; relative ones keep their dots."""
    trees = (syntax.readable(text) for path, text in files.items() if path.endswith(".py"))
    # An incumbent that is broken allows nothing.
    imported = (each for tree in trees if tree is not None for each in syntax.imports(tree))
    return frozenset("." * level + module for level, module, _ in imported)
