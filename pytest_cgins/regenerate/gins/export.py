"""A run in the layout of GinS: what it read and wrote for each op, under the names that it gives them.

    <op>_inputs.pt  <op>_gold.pt          the op's first trace: arguments, and what torch gives for them
    <op>_iter1.log  <op>_iter2.log  …     an attempt each: prompt, answer, outcome, compiler, verdicts
    <op>_kernel_final.cu                  the accepted source (.cpp, .py); helpers as <op>_kernel_final_<file>
    <op>_kernel_final_FAILED.cu           the last source of an op for which none was accepted

`<op>` is the last word of its name; where that is not one op's or one target's alone, all of its words, and the
target's name. `cgins import pt` reads the pairs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.text import counted, text_of
from pytest_cgins.regenerate import run_setup
from pytest_cgins.regenerate.attempt import Attempt, Target
from pytest_cgins.regenerate.journal.files import read_files
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.new_kernel import word_of
from pytest_cgins.run.forking import PATH

PROMPT_CHARACTERS = 4000
"""So much of a prompt's end is in a log; all of it is in the journal."""


def export(journal: Journal, out: Path) -> tuple[Path, ...]:
    """Write a run's files.

    Args:
        journal: of the run.
        out: folder; made if need be. Files of these names are replaced.

    Returns:
        What was written. Pairs that cannot be made are told, and the others are written.

    Raises:
        ConfigError: the project is not there any more.
        RegenerateError: the process that makes the pairs died.
    """
    out.mkdir(parents=True, exist_ok=True)
    targets = journal.record.targets
    ops = stems_of_ops(targets)
    written = _pairs(journal, {stem: op for op, stem in ops.items()}, out)
    shared = Counter(target.op for target in targets)
    for target in targets:
        stem = ops[target.op] if shared[target.op] == 1 else target.name
        for attempt in journal.attempts(target):
            file = out / f"{stem}_iter{attempt.number}.log"
            file.write_text(log(journal, target, attempt), encoding="utf-8", errors="backslashreplace")
            written.append(file)
        for name, text in _sources(journal, target, stem):
            (out / name).write_text(text, encoding="utf-8", newline="")
            written.append(out / name)
    return tuple(written)


def stems_of_ops(targets: tuple[Target, ...]) -> dict[str, str]:
    """How the files of each op begin."""
    ops = tuple(dict.fromkeys(target.op for target in targets))
    words = Counter(map(word_of, ops))
    return {op: _plain(word_of(op) if words[word_of(op)] == 1 else op) for op in ops}


def log(journal: Journal, target: Target, attempt: Attempt) -> str:
    """All that there is about an attempt, in one text."""
    folder = journal.folder_of(target, attempt.number)
    prompt = text_of(folder / "generator" / "prompt.md")
    cut = len(prompt) - PROMPT_CHARACTERS
    start = (
        f"(the first {counted(cut, 'character is', 'characters are')} in {folder / 'generator' / 'prompt.md'})\n"
        if cut > 0
        else ""
    )
    parts = {
        "prompt": start + prompt[max(0, cut) :],
        "answer": text_of(folder / "generator" / "answer.md"),
        "outcome": f"{attempt.outcome} ({attempt.reason})\n{attempt.message}",
        "build": attempt.log,
        "verdicts": "\n".join(_verdicts(attempt)),
        "advice": text_of(folder / "helper" / "answer.md"),
    }
    return "\n".join(f"===== {name} =====\n{text.strip()}\n" for name, text in parts.items() if text.strip())


def _verdicts(attempt: Attempt) -> Iterator[str]:
    for trial in attempt.trials:
        yield f"{trial.stage}, seed {trial.seed}, {trial.seconds:.1f} s:"
        for evaluation in trial.evaluations:
            verdict = evaluation.verdict
            said = f": {verdict.message}" if verdict.message else ""
            yield f"{evaluation.case.name}: {verdict.status.value} ({verdict.reason.value}){said}"


def _sources(journal: Journal, target: Target, stem: str) -> Iterator[tuple[str, str]]:
    """Name and text of the sources with which a target ended; the main one has the plain name."""
    result = journal.result(target)
    if result is None:
        return
    accepted = result.state == "accepted"
    found = read_files(journal.folder / target.name / ("final" if accepted else "FAILED"))
    start = f"{stem}_kernel_final{'' if accepted else '_FAILED'}"
    main = _main(journal, target, found)
    for path, text in found.items():
        other = "" if path == main else f"_{_plain(str(Path(path).with_suffix('')))}"
        yield f"{start}{other}{Path(path).suffix}", text


def _main(journal: Journal, target: Target, found: Mapping[str, str]) -> str:
    """The file that the answer began with, which is how the journal's project lists it; the first of the names else."""
    known = run_setup.config_of(journal).implementations.get(target.key)
    sources = known[1].sources if known is not None else ()
    listed = [path for source in sources for path in found if str(source).endswith(f"/{path}")]
    return next(iter([*listed, *found]), "")


def _pairs(journal: Journal, ops: Mapping[str, str], out: Path) -> list[Path]:
    config = run_setup.config_of(journal)
    with tempfile.TemporaryDirectory(prefix="cgins-export-") as folder:
        told = Path(folder) / "told.json"
        order = {
            "root": str(config.root),
            "packs": [str(pack) for pack in config.traces],
            "ops": dict(ops),
            "out": str(out.absolute()),
            "told": str(told),
        }
        done = subprocess.run(
            [sys.executable, "-c", f"{PATH}from pytest_cgins.regenerate.gins.pairs import main; main()"],
            input=json.dumps(order), text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        if done.returncode or not told.exists():
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise RegenerateError(f"inputs and gold could not be written: {last}", remedy="report this")
        found: dict[str, str] = json.loads(told.read_text(encoding="utf-8"))
    for stem, why in found.items():
        if why:
            print(f"cgins: no {stem}_inputs.pt and {stem}_gold.pt: {why}", file=sys.stderr)
    return [
        out / f"{stem}_{kind}.pt" for stem, why in found.items() if not why for kind in ("inputs", "gold")
    ]


def _plain(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")
