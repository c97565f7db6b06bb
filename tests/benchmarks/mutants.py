"""How many small mistakes in the package the tests notice: mutants drawn by a seed, each with the tests nearest to it.

    python tests/benchmarks/mutants.py [--tree DIR] [--count 200] [--seed 1] [--jobs N] [--limit-s 60] [--minutes M]
        [--json FILE] [--markdown FILE]

A mutant is one change of one expression: a comparison turned or moved by its border, + for -, `and` for `or`, a dropped
`not`, a number one higher, True for False, None returned. DIR is a checkout, this one if none is told, so that the same
draw can be made of an older commit. Tests are run file by file until one fails: first those that import the mutated
module, then those that import what imports it, then those of the folder that mirrors its room. A failing test is run
again without the mutant: one that fails there too is left out from then on and proves nothing. What runs into the
limit is undecided, for a mutant may be an endless loop and a test may be slow.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "pytest_cgins"
TURNED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-x",
    "-p",
    "no:cgins",
    "-p",
    f"{PACKAGE}.plugin",
    "-p",
    "no:cacheprovider",
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed expression."""

    file: str
    """Below the checkout."""
    line: int
    start: int
    """First byte of the expression in the file."""
    end: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests made of a mutant."""

    mutant: Mutant
    result: str
    """`noticed`, `survived`, `undecided` at the limit, or `untested` where no test file was near."""
    test: str
    """The test that noticed it."""
    seconds: float


def mutants(tree: Path) -> Iterator[Mutant]:
    """All mutants of a checkout's package, in the order of its files."""
    for path in sorted((tree / PACKAGE).rglob("*.py")):
        source = path.read_bytes()
        try:
            parsed = ast.parse(source)
        except SyntaxError:  # a template
            continue
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for node, changed in _changes(parsed):
            start, end = (
                starts[node.lineno - 1] + node.col_offset,
                starts[node.end_lineno - 1] + node.end_col_offset,
            )
            before = source[start:end].decode()
            yield Mutant(
                str(path.relative_to(tree)), node.lineno, start, end, before, f"({ast.unparse(changed)})"
            )


def _changes(node: ast.AST) -> Iterator[tuple[Any, ast.AST]]:
    """Expressions below a node that run, each with what it may become; annotations and f-strings are left."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield node.value, ast.Constant(None)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node, ast.Compare(node.left, [TURNED[type(node.ops[0])]()], node.comparators)  # type: ignore[list-item]
    if isinstance(node, ast.BinOp) and type(node.op) in TURNED:
        yield node, ast.BinOp(node.left, TURNED[type(node.op)](), node.right)  # type: ignore[arg-type]
    if isinstance(node, ast.BoolOp):
        yield node, ast.BoolOp(TURNED[type(node.op)](), node.values)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield node, ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    skipped = {"annotation", "returns", "decorator_list", "type_params"}
    for name, value in ast.iter_fields(node):
        if name not in skipped:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child)


class NearestTests:
    """Which test files of a checkout are near a module.

    Args:
        tree: the checkout.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._modules = {_module(path.relative_to(tree)): path for path in (tree / PACKAGE).rglob("*.py")}
        self._importers: dict[str, set[str]] = {name: set() for name in self._modules}
        for name, path in self._modules.items():
            for imported in self._imports(path):
                self._importers[imported].add(name)
        self._tests: dict[str, set[str]] = {name: set() for name in self._modules}
        for path in (tree / "tests").rglob("test_*.py"):
            if {"gpu", "timing"}.isdisjoint(path.parts):
                for imported in self._imports(path):
                    self._tests[imported].add(str(path.relative_to(tree)))

    def of(self, file: str) -> list[str]:
        """Test files, the nearest first."""
        module = _module(Path(file))
        seen, level, found = {module}, {module}, list[str]()
        for _ in range(3):
            # Of a level, a file that is named after the module is the nearest, and a small one is soon done.
            files = {test for name in level for test in self._tests[name]} - set(found)
            found += sorted(files, key=lambda test: (self._is_namesake(test, module), self._size(test)))
            level = {name for upper in level for name in self._importers[upper]} - seen
            seen |= level
        mirror = self._tree / "tests" / Path(file).parts[1].removesuffix(".py")
        rest = {str(path.relative_to(self._tree)) for path in mirror.rglob("test_*.py")} - set(found)
        return found + sorted(rest, key=self._size)

    def _is_namesake(self, test: str, module: str) -> bool:
        return Path(test).stem.removeprefix("test_") != module.rpartition(".")[2]

    def _size(self, test: str) -> int:
        return (self._tree / test).stat().st_size

    def _imports(self, path: Path) -> set[str]:
        names = set()
        try:
            nodes = list(ast.walk(ast.parse(path.read_bytes())))
        except SyntaxError:
            return set()
        for node in nodes:
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
        return names & set(self._modules)


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


class Trials:
    """Copies of a checkout in which mutants are tried side by side.

    Args:
        tree: the checkout.
        folder: for the copies.
        jobs: mutants at once.
        limit_s: for all tests of a mutant, in seconds.
    """

    def __init__(self, tree: Path, folder: Path, jobs: int, limit_s: float) -> None:
        self._limit_s, self._tests = limit_s, NearestTests(tree)
        self._copies: queue.Queue[Path] = queue.Queue()
        self._lock, self._fail_anyway = threading.Lock(), set[str]()
        for number in range(jobs):
            copy = folder / f"copy-{number}"
            shutil.copytree(
                tree,
                copy,
                symlinks=True,
                ignore=shutil.ignore_patterns(".venv", ".whl", ".dev", "__pycache__"),
            )
            self._copies.put(copy)

    def trial(self, mutant: Mutant) -> Outcome:
        """Try a mutant in a copy that is free."""
        copy, started = self._copies.get(), time.monotonic()
        path = copy / mutant.file
        source = path.read_bytes()
        try:
            path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
            result, test = self._noticed_by(copy, mutant, path, source)
        finally:
            path.write_bytes(source)
            self._copies.put(copy)
        outcome = Outcome(mutant, result, test, time.monotonic() - started)
        print(
            f"{result:9} {outcome.seconds:5.1f} s {mutant.file}:{mutant.line} {mutant.after[:80]} {test}",
            flush=True,
        )
        return outcome

    def _noticed_by(self, copy: Path, mutant: Mutant, path: Path, source: bytes) -> tuple[str, str]:
        deadline = time.monotonic() + self._limit_s
        files = [file for file in self._tests.of(mutant.file) if file not in self._fail_anyway]
        if not files:
            return "untested", ""
        mutated = path.read_bytes()
        # Files are collected before the first test runs: many at once would take most of the limit.
        batches = [files[:3], files[3:12], files[12:]]
        while batches := [batch for batch in batches if batch]:
            status, test = self._run(copy, batches[0], deadline - time.monotonic())
            if status is None:
                return "undecided", ""
            if not test and status not in (0, 5):
                return "noticed", f"exit status {status}"
            if not test:
                batches.pop(0)
                continue
            path.write_bytes(source)
            status_without, _ = self._run(copy, [test], self._limit_s)
            path.write_bytes(mutated)
            if status_without == 0:
                return "noticed", test
            with self._lock:
                self._fail_anyway.add(test)
            # A file that cannot be collected stops all others, whatever is deselected.
            batches = [[file for file in batch if file not in self._fail_anyway] for batch in batches]
        return "survived", ""

    def _run(self, copy: Path, tests: list[str], limit_s: float) -> tuple[int | None, str]:
        """The exit status of pytest, None at the limit, and the first test that failed."""
        if limit_s <= 0:
            return None, ""
        left_out = [word for test in sorted(self._fail_anyway) for word in ("--deselect", test)]
        environment = {
            **os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "", "XDG_CACHE_HOME": str(copy / ".cache"),
        }  # fmt: skip
        command = [
            *PYTEST,
            "-rfE",
            "--tb=no",
            "-m",
            "not exam and not gpu",
            f"--basetemp={copy}/.tmp",
            *left_out,
            *tests,
        ]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command,
                cwd=copy,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            failed = [line.split()[1] for line in output if line.startswith(("FAILED ", "ERROR "))]
        return process.returncode, failed[0] if failed else ""


def table(figures: dict[str, Any]) -> str:
    """The counts, in all and by room."""
    lines = [
        "| room | mutants | noticed | survived | undecided | untested |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    kinds = ("noticed", "survived", "undecided", "untested")
    by_room: dict[str, Counter[str]] = {}
    for outcome in figures["outcomes"]:
        room = Path(outcome["mutant"]["file"]).parts[1].removesuffix(".py")
        by_room.setdefault(room, Counter())[outcome["result"]] += 1
    total = sum(by_room.values(), Counter[str]())
    for room, counts in [*sorted(by_room.items()), ("**all**", total)]:
        lines.append(
            f"| {room} | {counts.total()} | " + " | ".join(str(counts[kind]) for kind in kinds) + " |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit-s", type=float, default=60, help="seconds for all tests of a mutant")
    parser.add_argument("--minutes", type=float, default=600, help="begin no mutant after so many")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    tree = arguments.tree.resolve()
    drawn = random.Random(arguments.seed).sample(list(mutants(tree)), arguments.count)
    end = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        trials = Trials(tree, Path(folder), arguments.jobs, arguments.limit_s)
        outcomes = list(pool.map(lambda one: trials.trial(one) if time.monotonic() < end else None, drawn))
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True, check=False
    )
    figures = {
        "environment": {
            "commit": commit.stdout.strip(), "python": platform.python_version(), "cores": len(os.sched_getaffinity(0)),
            "seed": arguments.seed, "limit_s": arguments.limit_s, "asked": arguments.count,
        },
        "outcomes": [asdict(outcome) for outcome in outcomes if outcome is not None],
    }  # fmt: skip
    print(table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown:
        arguments.markdown.write_text(table(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
