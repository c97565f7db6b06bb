"""The size of the code: lines, statements, files, depth of imports, import cycles, words of documents.

python tests/benchmarks/house.py [--json FILE] [--markdown FILE]

Counts files that git tracks. A line of code carries at least one token that is neither a comment nor a docstring,
which may stand below a field or a constant as well (PEP 258).
Imports inside functions and under TYPE_CHECKING count like any other. Depth is the number of files on the longest
chain of imports, where the files of a cycle count as one.
"""

from __future__ import annotations

import argparse
import ast
import datetime as dt
import io
import json
import platform
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grimp
import networkx as nx

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "pytest_cgins"
DOCUMENTS = ("README.md", f"{PACKAGE}/docs", ".github/*.md", "action/*.md")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures and the environment here")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # for grimp, which finds packages as an import does
    figures = measure()
    print(table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(table(figures))


def measure() -> dict[str, Any]:
    """All figures, and what they were measured with."""
    return {
        "environment": {
            "python": platform.python_version(),
            "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
            "commit": git("rev-parse", "HEAD").strip(),
        },
        "package": python_figures(PACKAGE),
        "tests": python_figures("tests"),
        "rooms": rooms(),
        "other_lines": other_lines(),
        "document_words": sum(len(path.read_text().split()) for path in tracked(*DOCUMENTS)),
        "readme_lines": len((ROOT / "README.md").read_text().splitlines()),
    }


def git(*arguments: str) -> str:
    """What a git command prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def tracked(*patterns: str) -> list[Path]:
    """Files that git tracks; a pattern's `*` stays within a folder."""
    globs = [f":(glob){pattern}" for pattern in patterns]
    return [ROOT / name for name in git("ls-files", "-z", "--", *globs).split("\0") if name]


def python_figures(package: str) -> dict[str, Any]:
    """Size and shape of one folder of Python files."""
    sources = [path.read_text() for path in tracked(f"{package}/**/*.py")]
    graph = import_graph(package)
    return {
        "files": len(sources),
        "lines": sum(lines_of_code(source) for source in sources),
        "statements": sum(statements(source) for source in sources),
        "depth": nx.dag_longest_path_length(nx.condensation(graph)) + 1,
        "cycles": cycles(graph),
    }


def lines_of_code(source: str) -> int:
    """Lines that are not blank, a comment or a docstring."""
    docstring_starts = {(node.lineno, node.col_offset) for node in docstrings(ast.parse(source))}
    text, lines = source.splitlines(), set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE and token.start not in docstring_starts:
            lines.update(range(token.start[0], token.end[0] + 1))
    return sum(bool(text[line - 1].strip()) for line in lines)


def statements(source: str) -> int:
    """Statements of a source without its docstrings."""
    tree = ast.parse(source)
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) - len(list(docstrings(tree)))


def docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    """Statements that are a string alone: of modules, classes and functions, and below fields and constants."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                yield node


def import_graph(package: str) -> nx.DiGraph:
    """The imports between files of a package, wherever in a file they stand."""
    modules = grimp.build_graph(package, exclude_type_checking_imports=False, cache_dir=None)
    graph = nx.DiGraph()
    graph.add_nodes_from(modules.modules)
    for module in modules.modules:
        graph.add_edges_from((module, other) for other in modules.find_modules_directly_imported_by(module))
    return graph


def cycles(graph: nx.DiGraph) -> list[list[str]]:
    """The files that import each other, directly or through others: one list a cycle."""
    components = nx.strongly_connected_components(graph)
    return sorted(sorted(component) for component in components if len(component) > 1)


def rooms() -> list[str]:
    """The packages and modules directly below the package."""
    inits, modules = tracked(f"{PACKAGE}/*/__init__.py"), tracked(f"{PACKAGE}/*.py")
    return sorted(
        [path.parent.name for path in inits] + [path.stem for path in modules if path.stem != "__init__"]
    )


def other_lines() -> dict[str, int]:
    """Lines of the package's files that are not Python, by suffix; those of its documents under `docs`."""
    lines: Counter[str] = Counter()
    docs = ROOT / PACKAGE / "docs"
    for path in tracked(f"{PACKAGE}/**"):
        if path.suffix != ".py":
            kind = "docs" if docs in path.parents else path.suffix or "no suffix"
            lines[kind] += len(path.read_text().splitlines())
    return {kind: count for kind, count in sorted(lines.items()) if count}


def table(figures: dict[str, Any]) -> str:
    """The figures as markdown, with the files of each cycle below."""
    environment, package, tests = (figures[key] for key in ("environment", "package", "tests"))
    counts = {
        "Python files": "files",
        "lines of code": "lines",
        "statements": "statements",
        "depth of imports": "depth",
    }
    rows = [(name, f"{package[key]:,}", f"{tests[key]:,}") for name, key in counts.items()]
    rows += [
        ("import cycles", str(len(package["cycles"])), str(len(tests["cycles"]))),
        ("files in cycles", *(str(sum(map(len, part["cycles"]))) for part in (package, tests))),
        ("rooms at the root", str(len(figures["rooms"])), ""),
    ]
    rows += [(f"lines of other files: {kind}", f"{n:,}", "") for kind, n in figures["other_lines"].items()]
    rows += [
        ("words of documents", f"{figures['document_words']:,}", ""),
        ("lines of README", f"{figures['readme_lines']:,}", ""),
    ]
    lines = [
        f"Python {environment['python']}, {environment['date']}, commit {environment['commit'][:12]}",
        "",
        f"| figure | {PACKAGE} | tests |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    for cycle in package["cycles"] + tests["cycles"]:
        lines += ["", "An import cycle:", "", *(f"- `{module}`" for module in cycle)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
