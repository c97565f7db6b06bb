"""What becomes of a regeneration that is killed at any moment, and resumed until it ends.

    python tests/benchmarks/regenerate_killed.py [--kills N] [--machine-deaths M] [--seed S] [--json PATH]

Two kernels of a tiny project are repaired by a scripted model behind a real HTTP server that streams: each takes three
attempts, with a helper between. The run is done once undisturbed, then again and again: its processes are killed
(SIGKILL) at a moment drawn by lot over the length of the undisturbed run, it is resumed, killed again at a moment of what
is left, at most five times, and resumed until it ends; as many runs as it takes for N kills. In the first row the courier, which waits for answers, is left alone, as it
is when a job is cancelled; in the second it dies with the rest, as when the machine does.

Each run is held against the undisturbed one: outcome, reason, source and message of each attempt, advice, prompts,
proposals and their patches, tokens and money, and the names of all files in its folder. Counted are runs that end
otherwise, requests that the server was sent twice, processes that outlive the kill by more than two seconds, the courier
apart, or the end by more than five, temporary folders that the next run does not remove, and locks that are held. Exit code 1 unless the
first row has none of these, and the second no other than requests sent twice, each of which its journal tells.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pytest_cgins.core import documents, scratch  # noqa: E402
from pytest_cgins.regenerate.provider import files as places  # noqa: E402
from pytest_cgins.regenerate.provider.files import MOST_LOST  # noqa: E402
from pytest_cgins.timing.environment import describe  # noqa: E402
from tests.regenerate import scripted  # noqa: E402
from tests.regenerate.llm_server import LlmServer  # noqa: E402

KERNELS = ("relu", "scaled")
HANG_S, STALL_S = 0.3, 0.3
MOST_KILLS = 5
"""Of one run."""
LEAST_S = 5.0
"""A part of a run takes so long at least, for it starts its processes."""
WHOLE_S = 600.0
COUNTED = (
    "kills",
    "runs",
    "ended_otherwise",
    "sent_twice",
    "told_lost",
    "survivors",
    "stray_folders",
    "held_locks",
    "before_it_was_a_run",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--machine-deaths", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cgins-killed-") as name:
        bed = Bed(Path(name), random.Random(arguments.seed))
        died = bed.row(arguments.machine_deaths, with_courier=True)
        rows = {"run killed": bed.row(arguments.kills, with_courier=False), "machine dies": died}
    print(f"\nundisturbed: {bed.length_s:.1f} s, {len(bed.undisturbed['prompts'])} requests")
    print(f"{'':14}" + "".join(f"{column.replace('_', ' '):>21}" for column in COUNTED))
    for title, row in rows.items():
        print(f"{title:14}" + "".join(f"{row[column]:>21}" for column in COUNTED))
    if arguments.json:
        document = {
            "seed": arguments.seed,
            "undisturbed_seconds": bed.length_s,
            "requests": len(bed.undisturbed["prompts"]),
            "rows": rows,
            "environment": {
                **documents.dump_python(describe("cpu")),
                "cpus": os.cpu_count(),
                "openai": version("openai"),
                "kernel": os.uname().release,
            },
        }
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if _is_good(rows) else 1


def _is_good(rows: dict[str, dict[str, Any]]) -> bool:
    bad = ("ended_otherwise", "survivors", "stray_folders", "held_locks")
    first, second = rows["run killed"], rows["machine dies"]
    return (
        not any(row[name] for row in rows.values() for name in bad)
        and first["sent_twice"] == first["told_lost"] == 0
        and second["sent_twice"] <= second["told_lost"]
    )


class Bed:
    """Where runs are killed: a recorded project, and what an undisturbed run of it comes to."""

    def __init__(self, folder: Path, lot: random.Random) -> None:
        self._folder, self._lot, self._count = folder, lot, 0
        self._recorded = scripted.recorded(folder / "recorded")
        # The first one also measures the device, and builds.
        self._one_run([], with_courier=False)
        began = time.monotonic()
        found = self._one_run([], with_courier=False)
        self.length_s = time.monotonic() - began
        self.undisturbed: dict[str, Any] = found["ending"]

    def row(self, kills: int, *, with_courier: bool) -> dict[str, Any]:
        """As many runs as it takes for so many kills."""
        row: dict[str, Any] = dict.fromkeys(COUNTED, 0)
        row["details"] = []
        while row["kills"] < kills:
            # An answer that was lost three times is given up, and a person is asked why the machine dies.
            most = min(MOST_LOST - 1 if with_courier else MOST_KILLS, kills - row["kills"])
            began = time.monotonic()
            found = self._one_run(self._moments(most), with_courier=with_courier)
            if not found["kills"]:
                # The machine is less busy than it was: later moments would be missed as well.
                self.length_s = min(self.length_s, time.monotonic() - began)
            ending = found.pop("ending")
            differs = scripted.differences(self._known(with_courier, ending), ending)
            found["ended_otherwise"] = int(bool(differs))
            for name in COUNTED:
                row[name] += found[name]
            row["details"].append({**found, "differs": differs})
            print(json.dumps(row["details"][-1]), file=sys.stderr, flush=True)
        return row

    def _moments(self, most: int) -> list[float]:
        """When to kill each part: the first anywhere in the run, the others in what may be left of it."""
        moments: list[float] = []
        for _ in range(most):
            left_s = max(self.length_s - sum(moments), LEAST_S)
            moments.append(self._lot.uniform(0.0, left_s))
        return moments

    def _known(self, with_courier: bool, ending: dict[str, Any]) -> dict[str, Any]:
        """The undisturbed ending; where answers were lost, without what these cost and the files that tell of it."""
        known = json.loads(json.dumps(self.undisturbed))
        if with_courier:
            ending["files"] = [name for name in ending["files"] if not name.endswith(places.LOST)]
            for one in (known, ending):
                del one["spent"]
                for proposal in one["proposals"].values():
                    del proposal["cost"]
        return known  # type: ignore[no-any-return]

    def _one_run(self, moments: list[float], *, with_courier: bool) -> dict[str, Any]:
        """A run that is killed at some moments of its parts, until it ends."""
        self._count += 1
        script, mark = scripted.Script(HANG_S, STALL_S), f"{os.getpid()}-{self._count}"
        place = self._folder / f"run-{self._count}"
        temporary = place / "tmp"
        temporary.mkdir(parents=True)
        found: dict[str, Any] = dict.fromkeys(COUNTED, 0)
        found |= {"runs": 1, "killed_after_s": []}
        more: dict[str, Any] = {
            "log": place / "log",
            "env": {
                scripted.MARK: mark,
                "TMPDIR": str(temporary),
                "CGINS_CACHE_DIR": str(self._folder / "cache"),
                "CGINS_LOCK_DIR": str(temporary),
            },
        }
        with LlmServer(script) as server:
            project = scripted.project(self._recorded, place / "project", server.base_url)
            process = scripted.begin(project, KERNELS, **more)
            for moment in moments:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(moment)
                    break
                _kill(process, mark, with_courier=with_courier)
                found["kills"] += 1
                found["killed_after_s"].append(round(moment, 3))
                found["survivors"] += _survivors(mark)
                runs = list((project / ".cgins/runs").glob("*/run.json"))
                found["before_it_was_a_run"] += not runs
                process = (
                    scripted.resume(project, **more) if runs else scripted.begin(project, KERNELS, **more)
                )
            code = process.wait(WHOLE_S)
            if code:
                raise SystemExit(f"a run ended with {code}:\n{more['log'].read_text()[-4000:]}")
            scripted.until(lambda: not scripted.processes(mark), 5.0)
            found["survivors"] += len(scripted.processes(mark))
        (run,) = (file.parent for file in (project / ".cgins/runs").glob("*/run.json"))
        found["sent_twice"] = script.repeated
        found["told_lost"] = sum(places.lost_in(file.parent).count for file in run.rglob(places.LOST))
        scratch.sweep(temporary)
        found["stray_folders"] = len(list(temporary.glob(f"{scratch.PREFIX}*")))
        found["held_locks"] = sum(_is_held(file) for file in run.rglob("*.lock"))
        return {**found, "ending": scripted.ending(run)}


def _kill(process: subprocess.Popen[bytes], mark: str, *, with_courier: bool) -> None:
    """Kill the session's processes; workers, in sessions of their own, are to notice. The courier on demand."""
    os.killpg(process.pid, signal.SIGKILL)
    if with_courier:
        for pid, command in scripted.processes(mark).items():
            if scripted.is_courier(command):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    process.wait()


def _survivors(mark: str) -> int:
    def left() -> list[str]:
        return [command for command in scripted.processes(mark).values() if not scripted.is_courier(command)]

    scripted.until(lambda: not left(), 2.0)
    return len(left())


def _is_held(file: Path) -> bool:
    with file.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
