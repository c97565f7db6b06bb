"""Every parser of what others wrote, under inputs that are wrong on purpose.

    python tests/benchmarks/fuzz.py [--inputs N] [--seconds S] [--parser NAME] [--seed N] [--engine atheris|own]
                                    [--jobs N] [--json FILE] [--keep FOLDER]

Inputs are valid documents (packs of the example project, fixtures of the importers' tests) with their structure
changed, and a list of hostile ones. Where atheris is installed, mutation follows the coverage of the package; without
it, inputs that are answered from a new place are mutated further.

Each parser runs in a process of its own. An input fails if anything but the documented error comes out of it, if it
takes more than 2 s of CPU or 20 s, if its error cannot be printed, or if it ends the process. Code events are what
Python's audit hook sees while an input is read: code run or imported, processes started, files written outside of the
scratch folder. Exit code 1 if there is any of these.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

MAXIMUM_BYTES = 65_536
MEMORY_GIB = 6
"""Address space above that of the start: what wants more gets a MemoryError, which is a crash."""
STUCK_S = 90.0
RESTARTS = 8
NOT_COVERED = "proposals of models: not written yet (issue 7)"


def main() -> int:
    options = _options()
    engine = options.engine or ("atheris" if importlib.util.find_spec("atheris") else "own")
    if engine == "own" and not options.engine:
        print("atheris is not installed: own structure-aware mutation, led by where answers come from")
    parsers = _imported(engine)
    chosen = [parsers.parser_named(name) for name in options.parser] or list(parsers.PARSERS)
    shares = sum(parser.share for parser in chosen)
    start = time.monotonic()
    shared = Path("/dev/shm")  # in memory: no disk is waited for
    with tempfile.TemporaryDirectory(prefix="cgins-fuzz-", dir=shared if shared.is_dir() else None) as place:
        waiting = [
            _Attack(
                parser, -(-options.inputs * parser.share // shares), engine, options, Path(place, str(number))
            )
            for number, parser in enumerate(chosen)
        ]
        attacks, running = list(waiting), []
        while waiting or running:
            while waiting and len(running) < options.jobs:
                running.append(waiting.pop(0))
                running[-1].start()
            time.sleep(0.1)
            running = [attack for attack in running if not attack.ended()]
    rows = [attack.total for attack in attacks]
    _print(rows)
    if options.json:
        _write(options.json, rows, engine, options.seed, time.monotonic() - start)
    bad = sum(row["crashes"] + row["hangs"] + row["code_events"] for row in rows)
    return 1 if bad else 0


def _imported(engine: str) -> Any:
    """The parsers; atheris must see them as they are imported."""
    if engine == "atheris":
        import atheris

        # First what is not followed: atheris would look at each of torch's thousand modules.
        for module in ("torch", "torch._dynamo", "safetensors.torch", "pydantic", "rich.table", "yaml"):
            importlib.import_module(module)
        with atheris.instrument_imports(include=["pytest_cgins"]):
            importlib.import_module("tests.fuzz.parsers")
    return importlib.import_module("tests.fuzz.parsers")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000, help="over all parsers; default: 20000")
    parser.add_argument("--seconds", type=float, default=600.0, help="most time of one parser; default: 600")
    parser.add_argument(
        "--parser",
        action="append",
        default=[],
        help="only this one, by the beginning of its name; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("atheris", "own"), help="default: atheris where it is installed")
    parser.add_argument("--jobs", type=int, default=2, help="parsers at a time; default: 2")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="rows of parsers that are not run stay as they are in it"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write inputs that failed there")
    return parser.parse_args()


# ---- the process of one parser ------------------------------------------------------------------


def _child(parser: Any, engine: str, inputs: int, until: float, seed: int, folder: Path) -> None:
    import torch

    from tests.fuzz.watch import Watch

    torch.set_num_threads(1)
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    os.chdir(scratch)
    parse = parser.make(scratch)
    valid = list(parser.seeds())
    for data in valid:  # libraries load parts of themselves at first use
        parse(data)
    hostile = list(parser.hostile())
    run = _Run(inputs, until, folder, Watch(folder), parse, parser.documented)
    _limit_memory()
    for data in [*valid, *hostile]:
        if not run.over():
            run.one(data)
    start = [*valid, *hostile] if parser.together else valid
    if engine == "atheris":
        _follow_coverage(run, parser.mutate, start, seed, folder / "corpus")
    else:
        _follow_outcomes(run, parser.mutate, start, seed)
    run.save()


class _Run:
    """Inputs given to one parser, and what came of them; written to a file as it goes."""

    def __init__(
        self, inputs: int, until: float, folder: Path, watch: Any, parse: Any, documented: Any
    ) -> None:
        self._inputs, self._until, self._folder = inputs, until, folder
        self._watch, self._parse, self._documented = watch, parse, documented
        self._saved = 0.0
        self._last = os.open(folder / "last", os.O_RDWR | os.O_CREAT)
        Path("/proc/self/clear_refs").write_text("5")
        self._before = _memory("VmRSS")
        self.found: dict[str, Any] = {
            "inputs": 0, "read": 0, "crashes": 0, "hangs": 0, "code_events": 0, "slowest_ms": 0.0, "peak_mib": 0.0,
            "troubles": {}, "events": Counter(), "lazy_imports": {},
        }  # fmt: skip

    def over(self) -> bool:
        return self.found["inputs"] >= self._inputs or time.monotonic() > self._until

    def one(self, data: bytes) -> str:
        os.ftruncate(self._last, 0)
        os.pwrite(self._last, data, 0)
        ending = self._watch.run(self._parse, data, self._documented)
        found = self.found
        found["inputs"] += 1
        found["read"] += ending.outcome == "read" and not ending.trouble
        found["slowest_ms"] = max(found["slowest_ms"], 1000 * ending.cpu_s)
        found["code_events"] += len(ending.events)
        found["events"].update(ending.events)
        if ending.trouble:
            found["hangs" if ending.trouble.startswith("hang") else "crashes"] += 1
            known = found["troubles"].setdefault(
                ending.trouble, {"times": 0, "detail": ending.detail, "input": None}
            )
            known["times"] += 1
            if known["input"] is None or len(data) < known["length"]:
                known["length"] = len(data)
                known["input"] = base64.b64encode(data[:MAXIMUM_BYTES]).decode()
        if time.monotonic() - self._saved > 1:
            self.save()
        return ending.trouble or ending.outcome

    def save(self) -> None:
        self._saved = time.monotonic()
        self.found["peak_mib"] = _memory("VmHWM") - self._before
        self.found["lazy_imports"] = dict(self._watch.lazy)
        draft = self._folder / "found.tmp"
        draft.write_text(json.dumps(self.found))
        draft.replace(self._folder / "found.json")


def _memory(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _limit_memory() -> None:
    limit = int(_memory("VmSize") * 2**20) + MEMORY_GIB * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _follow_outcomes(run: _Run, mutate: Any, start: list[bytes], seed: int) -> None:
    """Mutate seeds, and inputs that were answered from a place that none before had reached."""
    rng = random.Random(seed)
    seen: set[str] = set()
    further: list[bytes] = []
    while not run.over():
        data = rng.choice(further) if further and rng.random() < 0.4 else rng.choice(start)
        made = mutate(rng, data, start)[:MAXIMUM_BYTES]
        outcome = run.one(made)
        if outcome not in seen:
            seen.add(outcome)
            further = [*further[-500:], made]


def _follow_coverage(run: _Run, mutate: Any, start: list[bytes], seed: int, corpus: Path) -> None:
    import atheris

    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(start):
        (corpus / str(number)).write_bytes(data[:MAXIMUM_BYTES])

    def one(data: bytes) -> None:
        if run.over():
            run.save()
            os._exit(0)
        run.one(data)

    def custom(data: bytes, most: int, key: int) -> bytes:
        rng = random.Random(key)
        if rng.random() < 0.2:
            return bytes(atheris.Mutate(data, most))
        base = rng.choice(start) if rng.random() < 0.35 else data
        return bytes(mutate(rng, base, start)[:most])

    settings = [f"-seed={seed}", f"-max_len={MAXIMUM_BYTES}", "-timeout=0", "-rss_limit_mb=0", "-verbosity=0", "-len_control=0"]  # fmt: skip
    atheris.Setup([sys.argv[0], *settings, str(corpus)], one, custom_mutator=custom)
    atheris.Fuzz()


# ---- over all processes -------------------------------------------------------------------------


class _Attack:
    """One parser under attack, in a new process whenever one is ended by an input."""

    def __init__(
        self, parser: Any, inputs: int, engine: str, options: argparse.Namespace, folder: Path
    ) -> None:
        self._parser, self._inputs, self._engine, self._options = parser, inputs, engine, options
        self._folder = folder
        self._attempt = -1
        self.total: dict[str, Any] = {
            "parser": parser.name, "inputs": 0, "read": 0, "crashes": 0, "hangs": 0, "code_events": 0,
            "slowest_ms": 0.0, "peak_mib": 0.0, "events": {}, "lazy_imports": {}, "troubles": {},
        }  # fmt: skip

    def start(self) -> None:
        """Begin, or go on where the last process ended."""
        if self._attempt < 0:
            self._until = time.monotonic() + self._options.seconds
        self._attempt += 1
        self._place = self._folder / str(self._attempt)
        self._place.mkdir(parents=True)
        self._since = time.monotonic()
        self._seen = 0
        self._pid = os.fork()
        if self._pid == 0:
            log = os.open(self._place / "log", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            try:
                left = self._inputs - self.total["inputs"]
                seed = self._options.seed + self._attempt
                _child(self._parser, self._engine, left, self._until, seed, self._place)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the parent shows it
                traceback.print_exc()
                os._exit(70)

    def ended(self) -> bool:
        """Whether all inputs were given, or the time is over."""
        how = self._how_it_ended()
        if how is None:
            return False
        _add(self.total, self._place, how)
        more = self.total["inputs"] < self._inputs and time.monotonic() < self._until
        if how and more and self._attempt < RESTARTS:
            self.start()
            return False
        if self._options.keep:
            _keep(self._options.keep, self.total)
        print(f"{self._parser.name}: {self.total['inputs']} inputs", file=sys.stderr, flush=True)
        return True

    def _how_it_ended(self) -> str | None:
        """None while it runs; "" if it came to its end, else what ended it."""
        last = self._place / "last"
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            said = (self._place / "log").read_text(errors="replace")[-1500:]
            if code and not last.exists():
                raise SystemExit(f"{self._parser.name} did not start:\n{said}")
            return f"crash: the process ended with {code}: {said.strip().splitlines()[-1:]}" if code else ""
        stamp = last.stat().st_mtime_ns if last.exists() else 0
        if stamp != self._seen:
            self._seen, self._since = stamp, time.monotonic()
        elif time.monotonic() - self._since > STUCK_S:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            return "hang: nothing interrupts it"
        return None


def _add(total: dict[str, Any], folder: Path, how: str) -> None:
    file = folder / "found.json"
    found = json.loads(file.read_text()) if file.exists() else {"inputs": 1}
    for key in ("inputs", "read", "crashes", "hangs", "code_events"):
        total[key] += found.get(key, 0)
    for key in ("slowest_ms", "peak_mib"):
        total[key] = max(total[key], found.get(key, 0.0))
    for key in ("events", "lazy_imports", "troubles"):
        total[key].update(found.get(key, {}))
    if how:
        total["hangs" if how.startswith("hang") else "crashes"] += 1
        data = (folder / "last").read_bytes() if (folder / "last").exists() else b""
        total["troubles"][how] = {"times": 1, "detail": "", "input": base64.b64encode(data).decode()}


def _keep(folder: Path, total: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (what, trouble) in enumerate(total["troubles"].items()):
        stem = f"{total['parser'].split()[0].strip('.')}-{number}"
        (folder / stem).write_bytes(base64.b64decode(trouble["input"]))
        (folder / f"{stem}.txt").write_text(f"{what}\n{trouble['times']} times\n{trouble['detail']}")


def _print(rows: list[dict[str, Any]]) -> None:
    head = f"{'parser':32}{'inputs':>9}{'read':>9}{'crashes':>9}{'hangs':>7}{'slowest ms':>12}{'peak MiB':>10}{'code events':>13}"
    print(head, "-" * len(head), sep="\n")
    total = {"parser": "all"}
    for key in ("inputs", "read", "crashes", "hangs", "code_events"):
        total[key] = sum(row[key] for row in rows)
    for key in ("slowest_ms", "peak_mib"):
        total[key] = max(row[key] for row in rows)
    for row in [*rows, total]:
        print(
            f"{row['parser']:32}{row['inputs']:>9}{row['read']:>9}{row['crashes']:>9}{row['hangs']:>7}"
            f"{row['slowest_ms']:>12.0f}{row['peak_mib']:>10.0f}{row['code_events']:>13}"
        )
    print(f"not covered: {NOT_COVERED}")
    for row in rows:
        for what, trouble in row["troubles"].items():
            print(
                f"\n{row['parser']}: {what}, {trouble['times']} times\n{base64.b64decode(trouble['input'])[:200]!r}"
            )
        for event, times in row["events"].items():
            print(f"\n{row['parser']}: {event}, {times} times")


def _write(path: Path, rows: list[dict[str, Any]], engine: str, seed: int, seconds: float) -> None:
    from pytest_cgins.core import documents
    from pytest_cgins.timing.environment import describe

    rows = [{key: value for key, value in row.items() if key != "lazy_imports"} for row in rows]
    if path.exists():
        done = {row["parser"] for row in rows}
        rows = [row for row in json.loads(path.read_text())["parsers"] if row["parser"] not in done] + rows
    document = {
        "environment": documents.dump_python(describe("cpu")),
        "engine": engine,
        "seed": seed,
        "seconds": seconds,
        "inputs": sum(row["inputs"] for row in rows),
        "not_covered": [NOT_COVERED],
        "parsers": rows,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
