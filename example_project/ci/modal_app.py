"""Parts of the cases on GPUs of Modal, and one verdict here: `modal run ci/modal_app.py`, in the folder of cgins.yaml.

The folder travels with its history, which has the base revision. A part without a report fails the merge. With a
committed durations.json add --cgins-durations=durations.json: the parts then take about equally long.
"""

import subprocess
import sys
from pathlib import Path

import modal

PARTS = 4
PROJECT = "/project"
image = (
    modal.Image.from_registry("nvidia/cuda:13.0.1-devel-ubuntu24.04", add_python="3.12")
    .apt_install("git")
    .pip_install("torch", "pytest-cgins")
    .add_local_dir(".", PROJECT)
)
app = modal.App("cgins", image=image)


@app.function(gpu="H200", cpu=8, timeout=1800)
def gate(part: int, project: str = PROJECT) -> str:
    """The report of a part of the cases; "" if there is none."""
    report = Path(project, "reports", f"{part}.json")
    report.parent.mkdir(exist_ok=True)
    options = ["--cgins", f"--cgins-shard={part}/{PARTS}", f"--cgins-json={report}"]
    subprocess.run([sys.executable, "-m", "pytest", *options], cwd=project, check=False)
    return report.read_text() if report.exists() else ""


@app.local_entrypoint()
def main() -> None:
    """Gate all parts, and end as a gate over all of them would."""
    reports = Path("reports")
    reports.mkdir(exist_ok=True)
    files = []
    for part, report in enumerate(gate.map(range(1, PARTS + 1)), 1):
        if report:
            files.append(reports / f"{part}.json")
            files[-1].write_text(report)
    sys.exit(subprocess.run(["cgins", "merge", *files, "--out", "report.json"], check=False).returncode)
