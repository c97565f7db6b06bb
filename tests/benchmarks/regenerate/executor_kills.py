"""What becomes of a run on a Ray cluster whose nodes are killed.

    python tests/benchmarks/regenerate/executor_kills.py [--kills N] [--seed S] [--json PATH]

Three kernels of a tiny project are repaired by a scripted model, each in three attempts, with `--cgins-executor=ray` on three
nodes of this machine: a head without cores, and two that try candidates. Once undisturbed, on this machine alone; then again
and again on the cluster, where at moments drawn by lot a node that is evaluating a candidate is killed (kill -9 of its raylet and
all below it), and another one is added, until N were killed. A request is killed at most twice: three times end a run.

Each run is held against the undisturbed one: outcome, reason, source and message of each attempt, advice, proposals and
their patches, and the names of all files. Counted are attempts that are missing from the journal, those that are in it or in
its events more than once, requests to the model that were sent twice, and processes of the cluster that outlive it. Exit code 1
unless there are none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from importlib.metadata import version  # noqa: E402

from pytest_cgins.core import documents  # noqa: E402
from pytest_cgins.timing.environment import describe  # noqa: E402
from tests.regenerate import scripted  # noqa: E402
from tests.regenerate.llm_server import LlmServer  # noqa: E402
from tests.regenerate.ray_nodes import RayNodes  # noqa: E402

ATTEMPTS = 3 * len(scripted.KERNELS)
WHOLE_S = 900.0
MOST_OF_A_REQUEST = 2
COUNTED = (
    "kills",
    "runs",
    "tried_again",
    "attempts",
    "lost",
    "doubled",
    "sent_twice",
    "ended_otherwise",
    "survivors",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    lots = random.Random(arguments.seed)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="cgins-kills-") as name:
        work = Path(name)
        # Messages name logs in it.
        os.environ["CGINS_CACHE_DIR"] = str(work / "cache")
        recorded = scripted.recorded(work / "recorded")
        alone = run(recorded, work / "alone", None, lots, 0)
        print(f"alone: {alone['seconds']:.1f} s", flush=True)
        while (left := arguments.kills - sum(row["kills"] for row in rows)) > 0:
            with RayNodes() as nodes:
                row = run(recorded, work / f"run-{len(rows)}", nodes, lots, left)
            row["survivors"] = len(nodes.processes())
            row["differs"] = scripted.judged_differently(alone["ending"], row.pop("ending"))
            row["ended_otherwise"] = int(bool(row["differs"]))
            rows.append(row)
            print({name: row[name] for name in ("kills", "seconds", "tried_again", "differs")}, flush=True)
    total = {name: sum(row[name] for row in rows) for name in COUNTED}
    print(" ".join(f"{name.replace('_', ' '):>16}" for name in COUNTED))
    print(" ".join(f"{total[name]:>16}" for name in COUNTED))
    if arguments.json is not None:
        found = {
            "seed": arguments.seed, "alone_seconds": alone["seconds"], "total": total, "runs": rows,
            "ray": version("ray"), "environment": documents.dump_python(describe("cpu")),
        }  # fmt: skip
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(total[name] for name in COUNTED[4:]))


def run(
    recorded: Path, folder: Path, nodes: RayNodes | None, lots: random.Random, most: int
) -> dict[str, Any]:
    """One run, with so many kills at most."""
    folder.mkdir()
    (folder / "temporary").mkdir()
    script, began = scripted.Script(), time.monotonic()
    with LlmServer(script) as server:
        project = scripted.project(recorded, folder / "project", server.base_url)
        env = {scripted.EXECUTOR: nodes.executor if nodes else "", "TMPDIR": str(folder / "temporary")}
        process = scripted.begin(project, list(scripted.KERNELS), log=folder / "log", env=env)
        killed_s = [] if nodes is None else kill(nodes, process, project, lots, most, began)
        code = process.wait(WHOLE_S)
    assert code == 0, (folder / "log").read_text()
    (record,) = project.glob(".cgins/runs/*/run.json")
    events = events_of(project)
    told = Counter(re.findall(r"(?m)\S+ (\S+/attempt-\d+): ", events))
    kept = {
        str(file.parent.relative_to(record.parent)) for file in record.parent.glob("*/attempt-*/attempt.json")
    }
    return {
        "kills": len(killed_s), "killed_after_seconds": killed_s, "runs": 1, "attempts": len(kept),
        "tried_again": events.count("was tried again: lost with"), "lost": ATTEMPTS - len(kept & told.keys()),
        "doubled": sum(count - 1 for count in told.values()), "sent_twice": script.repeated,
        "seconds": time.monotonic() - began, "ending": scripted.ending(record.parent),
    }  # fmt: skip


def kill(
    nodes: RayNodes,
    process: subprocess.Popen[bytes],
    project: Path,
    lots: random.Random,
    most: int,
    began: float,
) -> list[float]:
    """Kill nodes until the run ends; the seconds after which."""
    killed: list[float] = []
    of_request, progress = 0, ""
    while process.poll() is None and len(killed) < most:
        time.sleep(lots.uniform(0.0, 3.0))
        actors = nodes.answering()
        if (now := events_of(project)) != progress:
            of_request, progress = 0, now
        if not actors or of_request == MOST_OF_A_REQUEST:
            time.sleep(0.1)
            continue
        nodes.kill_node_of(lots.choice(actors))
        killed.append(round(time.monotonic() - began, 3))
        of_request += 1
        nodes.add()
    return killed


def events_of(project: Path) -> str:
    """The run's log of events."""
    return "".join(file.read_text() for file in project.glob(".cgins/runs/*/events.log"))


if __name__ == "__main__":
    sys.exit(main())
