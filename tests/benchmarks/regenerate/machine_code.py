"""Whether a source without one method gives other machine code than the one that it was taken from."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_cgins.regenerate.attempt import Attempt, Target
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.profiling import disassembly
from pytest_cgins.regenerate.profiling.evidence_documents import SassRow

FILE = "machine-code.json"
MOST_CHANGES = 8
LEFT_OUT = shutil.ignore_patterns(".git", ".cgins", "__pycache__", ".pytest_cache")


class MachineCode:
    """Opcodes of candidates; kept in a file, so that each is disassembled once.

    Sources are built outside of the sandbox, and one in Python is called there: the answers must be trusted.
    """

    def __init__(self, work: Path) -> None:
        self._file = work / FILE
        self._known: dict[str, dict[str, Any]] = (
            json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else {}
        )

    def ablations(
        self, journal: Journal, target: Target, project: Path, *, look: bool = True
    ) -> list[dict[str, Any]]:
        """What became of each answer that was to leave a method out.

        Args:
            journal: of the run.
            target: whose candidates.
            project: of the run.
            look: whether to disassemble what was not yet; else only what is known is told.
        """
        attempts = journal.attempts(target)
        asked = [one for one in attempts if one.ask.kind == "ablate"]
        return [self._ablation(journal, target, one, project, look=look) for one in asked]

    def _ablation(
        self, journal: Journal, target: Target, one: Attempt, project: Path, *, look: bool
    ) -> dict[str, Any]:
        built = bool(one.trials) and one.outcome != "build-error"
        found = [
            self._opcodes(journal, target, number, project, look=look and built)
            for number in (one.ask.parent, one.number)
        ]
        told = {
            "attempt": one.number,
            "champion": one.ask.parent,
            "method": one.ask.method,
            "built": built,
            "passed": one.is_right,
            "ratio_to_champion": _ratio(one, journal.attempt(target, one.ask.parent)),
        }
        missing = next((code["why"] for code in found if code.get("why")), "")
        if missing or not all(code.get("functions") for code in found):
            return {**told, "differs": None, "why": missing or "not disassembled"}
        champion, ablated = (code["functions"] for code in found)
        differs = _mixes(champion) != _mixes(ablated)
        return {**told, "differs": differs, "changes": _changes(champion, ablated)}

    def _opcodes(
        self, journal: Journal, target: Target, number: int, project: Path, *, look: bool
    ) -> dict[str, Any]:
        key = f"{journal.record.id}/{target.name}/{number}"
        if key not in self._known and look:
            self._known[key] = _disassembled(journal, target, number, project)
            self._file.write_text(json.dumps(self._known, indent=1) + "\n", encoding="utf-8")
        return self._known.get(key, {})


def _disassembled(journal: Journal, target: Target, number: int, project: Path) -> dict[str, Any]:
    if target.device != "cuda":
        return {"why": "a kernel for the CPU has no machine code of a GPU"}
    if target.contract != "python":
        rows = [journal.sass_signatures(target, number) or _built(journal, target, number, project)]
    else:  # what Triton compiles hangs on the call
        rows = [
            _built(journal, target, number, project, one) for one in _calls(journal.attempt(target, number))
        ]
    missing = [row for row in rows if not row.functions]
    if missing:
        return {"why": "; ".join(missing[0].degraded)}
    functions = {
        f"{one.function} {one.arch} {call}": dict(one.modified)
        for call, row in enumerate(rows)
        for one in row.functions
    }
    return {"functions": functions}


def _calls(attempt: Attempt | None) -> list[str]:
    """Signatures of the cases that a candidate was tried on."""
    trials = attempt.trials if attempt is not None else ()
    return sorted({one.case.signature for trial in trials for one in trial.evaluations})


def _built(journal: Journal, target: Target, number: int, project: Path, call: str = "") -> SassRow:
    with tempfile.TemporaryDirectory(prefix="optimise-") as name:
        copy = Path(name) / "project"
        shutil.copytree(project, copy, ignore=LEFT_OUT)
        for path, text in journal.sources(target, number).items():
            (copy / path).write_text(text, encoding="utf-8")
        wanted = f"{target.kernel}/{target.implementation}"
        return disassembly.evidence(copy / "cgins.yaml", wanted, text=call).rows[0]


def _mixes(functions: Mapping[str, Mapping[str, int]]) -> Counter[frozenset[tuple[str, int]]]:
    """Numbers of opcodes a function, whatever it is called: another name is no other code."""
    return Counter(frozenset(mix.items()) for mix in functions.values())


def _changes(
    champion: Mapping[str, Mapping[str, int]], ablated: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """Opcodes whose number over all functions changed most, with both numbers."""
    before, after = (sum(map(Counter, code.values()), Counter()) for code in (champion, ablated))
    changed = [one for one in {*before, *after} if before[one] != after[one]]
    changed.sort(key=lambda one: (-abs(before[one] - after[one]), one))
    return [f"{one} {before[one]} → {after[one]}" for one in changed[:MOST_CHANGES]]


def _ratio(one: Attempt, champion: Attempt | None) -> float | None:
    if one.time_ratio is None or champion is None or champion.time_ratio is None:
        return None
    return one.time_ratio / champion.time_ratio
