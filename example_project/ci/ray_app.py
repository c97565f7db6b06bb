"""Parts of the cases on GPUs of a Ray cluster, and one verdict here: `python ci/ray_app.py`, in the folder of cgins.yaml.

All machines see the folder under the same path, and have the same environment.
"""

import subprocess
import sys
from pathlib import Path

import ray

PARTS = 4


@ray.remote(num_gpus=1)
def gate(part: int, project: str) -> None:
    """Write the report of a part of the cases."""
    options = ["--cgins", f"--cgins-shard={part}/{PARTS}", f"--cgins-json=reports/{part}.json"]
    subprocess.run([sys.executable, "-m", "pytest", *options], cwd=project, check=False)


if __name__ == "__main__":
    Path("reports").mkdir(exist_ok=True)
    ray.init()
    ray.get([gate.remote(part, str(Path.cwd())) for part in range(1, PARTS + 1)])
    files = [f"reports/{part}.json" for part in range(1, PARTS + 1)]
    sys.exit(subprocess.run(["cgins", "merge", *files, "--out", "report.json"], check=False).returncode)
