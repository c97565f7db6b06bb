"""How long it takes from a kernel's source to something that can be called, against `load_inline`.

    python tests/benchmarks/builds.py [--rounds N] [--only WORD,…] [--json PATH] [--markdown PATH]

Every sample is a process of its own that has imported torch before its clock starts, with an empty build cache
unless the row says otherwise. All rows run in every round, in an order drawn by lot. Where there is a GPU the
clock stops at the first result, which must be right. Where there is none it stops when the function is loaded:
`load_inline` is then linked against empty stand-ins for torch's CUDA libraries, which a CPU build of torch has
not got, and a device kernel ends as machine code. Seconds: median, least and greatest sample. A ratio is one of
medians.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scale_sources import DECLARATION, EXTENSION_CPP, EXTENSION_CUDA, IMPLEMENTATIONS

import pytest_cgins

EXAMPLE = Path(__file__).parents[2] / "example_project"
ARCHS = "sm_80,sm_90a,sm_100"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    measure: Callable[[Path], float]
    """Runs in a child process, in an empty folder; returns seconds."""
    against: str = ""
    """Name of the row that is divided by this one."""
    asked: float | None = None
    """Least ratio, or greatest number of seconds where `against` is empty."""
    rounds: int | None = None
    """At most so many samples; None for all rounds."""


# ---- in a child process -------------------------------------------------------------------------


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def load_inline(folder: Path, suffix: str) -> float:
    """torch's own way. `folder` is its build directory."""
    from torch.utils import cpp_extension

    cuda = suffix == "cu"
    flags: list[str] = []
    if cuda and not has_gpu():
        # A CPU build of torch neither looks for CUDA nor brings the libraries that the link names.
        cpp_extension.CUDA_HOME = str(Path(shutil.which("nvcc") or "").resolve().parents[1])
        if not Path(cpp_extension.CUDA_HOME, "nvvm").is_dir():
            cpp_extension.CUDA_HOME = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        for library in ("c10_cuda", "torch_cuda"):
            command = ["g++", "-shared", "-x", "c++", os.devnull, "-o", str(folder / f"lib{library}.so")]
            subprocess.run(command, check=True)
        flags = [f"-L{folder}", f"-Wl,-rpath,{folder}"]
        os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
    build = folder / "build"
    build.mkdir()
    text = (EXTENSION_CUDA if cuda else EXTENSION_CPP).replace("#include <torch/extension.h>\n", "")
    started = time.perf_counter()
    module = cpp_extension.load_inline(
        name="scale_inline",
        cpp_sources=DECLARATION if cuda else text,
        cuda_sources=text if cuda else None,
        functions=["scale"],
        extra_cflags=["-O3"],
        extra_ldflags=flags,
        build_directory=str(build),
        with_cuda=cuda,
    )
    return finished(started, module.scale, "cuda" if cuda else "cpu")


def finished(started: float, function: Callable[..., Any], device: str) -> float:
    """Seconds up to the first result, or up to now where its device is absent."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        return time.perf_counter() - started
    x = torch.arange(1000, dtype=torch.float32).to(device)
    y = function(x, 2.5)
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    assert torch.equal(y.cpu(), x.cpu() * 2.5), "wrong result"
    return seconds


def project(folder: Path, implementation: str) -> Callable[[], Any]:
    """A project with one kernel; what finds its source, as the gate does for an edited file."""
    from pytest_cgins import config as configuration
    from pytest_cgins.building.contracts.source import find

    stanza, file, text = IMPLEMENTATIONS[implementation]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    (folder / "cgins.yaml").write_text(
        "version: 1\ntraces: []\nkernels:\n  scale:\n    op: torch.mul\n    implementations:\n"
        f"      - {stanza}\n"
    )
    config = configuration.load(folder / "cgins.yaml", require_traces=False)
    return lambda: find(config, config.kernels[0], config.kernels[0].implementations[0])


def callable_of(compiled: Any) -> Callable[..., Any]:
    """A built kernel as a function of a tensor and a number, bound as the gate binds it."""
    from pytest_cgins.building.loading.callable import load

    loaded = load(compiled)

    def call(input: Any, other: float) -> Any:  # noqa: A002 (the op's own name)
        from pytest_cgins.core.layout import lay_out
        from pytest_cgins.core.trace import Argument, OpCall
        from pytest_cgins.packs.values import encode

        tensors: list[Any] = []
        arguments = tuple(
            Argument(name=name, value=encode(value, tensors), passed="positional")
            for name, value in (("input", input), ("other", other))
        )
        outputs = lay_out([input]).metas
        bound = loaded.bind(OpCall(op="torch.mul", arguments=arguments), tensors, outputs, str(input.device))
        return bound.run()[0]

    return call


def loadable(device: str, contract: str) -> bool:
    return device == "cpu" or contract != "device" or has_gpu()


def cold(implementation: str, *, warmed_by: str = "") -> Callable[[Path], float]:
    """From an edited source to a loaded callable, through the build cache, which is empty.

    Args:
        implementation: key of `IMPLEMENTATIONS`.
        warmed_by: another implementation that is built first: precompiled headers are then there.
    """

    def measure(folder: Path) -> float:
        import pytest_cgins.building.loading.callable  # noqa: F401 (what load_inline's side has imported by now, too)
        from pytest_cgins.building.build import build

        if warmed_by:
            build(project(folder / "other", warmed_by)())
        find = project(folder / "project", implementation)
        started = time.perf_counter()
        source = find()
        compiled = build(source)
        assert not compiled.cached
        if not loadable(source.device, source.contract):
            return time.perf_counter() - started
        return finished(started, callable_of(compiled), source.device)

    return measure


def hit(implementation: str) -> Callable[[Path], float]:
    """The same in another process, when nothing has changed: find, look up, load."""

    def measure(folder: Path) -> float:
        from pytest_cgins.building.build import build

        find = project(folder / "project", implementation)
        source = find()
        if "--filled" not in sys.argv:
            build(source)
            command = [sys.executable, *sys.argv, "--filled"]
            return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        started = time.perf_counter()
        compiled = build(find())
        seconds = time.perf_counter() - started
        assert compiled.cached
        return seconds

    return measure


def refused(implementation: str) -> Callable[[Path], float]:
    """From an edited source to the compiler's message in the caller's hands."""

    def measure(folder: Path) -> float:
        from pytest_cgins.building.build import build
        from pytest_cgins.core.errors import BuildError

        find = project(folder / "project", implementation)
        build(project(folder / "other", implementation.replace(", broken", ""))())  # the compiler's first use
        message = ""
        started = time.perf_counter()
        try:
            build(find())
        except BuildError as error:
            message = str(error)
        seconds = time.perf_counter() - started
        assert "undeclared_name" in message, message or "it was built"
        return seconds

    return measure


def examples(*, warm: bool) -> Callable[[Path], float]:
    """All CUDA kernels of the example project, for three architectures, from the command line."""

    def measure(folder: Path) -> float:
        command = [
            sys.executable, "-c", "from pytest_cgins.app.cli import main; raise SystemExit(main())", "build", "--arch", ARCHS, "--all",
            "--config", str(EXAMPLE / "cgins.yaml"),
        ]  # fmt: skip
        for _ in range(2 if warm else 1):
            started = time.perf_counter()
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            seconds = time.perf_counter() - started
            assert done.returncode == 0, done.stdout + done.stderr
        return seconds

    return measure


def cute_gemm(folder: Path) -> float:
    """The example project's GEMM in CuTe, on tensor cores."""
    from pytest_cgins import config as configuration
    from pytest_cgins.building.build import build
    from pytest_cgins.building.contracts.source import find

    config = configuration.load(EXAMPLE / "cgins.yaml")
    kernel = next(kernel for kernel in config.kernels if kernel.name == "linear")
    implementation = next(one for one in kernel.implementations if one.name == "cute")
    started = time.perf_counter()
    compiled = build(find(config, kernel, implementation))
    seconds = time.perf_counter() - started
    assert not compiled.cached
    return seconds


INLINE_CUDA = "load_inline, CUDA"
INLINE_CPP = "load_inline, C++"
ROWS = (
    Row(INLINE_CUDA, lambda folder: load_inline(folder, "cu")),
    Row("launcher by nvcc", cold("launcher CUDA"), INLINE_CUDA, 30),
    Row("device contract by NVRTC", cold("device"), INLINE_CUDA, 300),
    Row("torch extension, CUDA", cold("extension CUDA", warmed_by="extension CUDA, other"), INLINE_CUDA, 2),
    Row("torch extension, CUDA, first of a machine", cold("extension CUDA"), INLINE_CUDA, 2),
    Row(INLINE_CPP, lambda folder: load_inline(folder, "cpp")),
    Row("launcher by g++", cold("launcher C++"), INLINE_CPP, 200),
    Row("torch extension, C++", cold("extension C++", warmed_by="extension C++, other"), INLINE_CPP),
    Row("error of a device kernel (NVRTC)", refused("device, broken"), asked=0.05),
    Row("error of a launcher (nvcc)", refused("launcher CUDA, broken"), asked=0.5),
    *(
        Row(f"cache hit, {name}", hit(name), asked=0.02)
        for name in ("launcher C++", "launcher CUDA", "device", "extension CUDA")
    ),
    Row("CuTe GEMM, wgmma", cute_gemm, asked=10),
    Row(f"examples for {ARCHS}, cold", examples(warm=False), asked=180, rounds=1),
    Row(f"examples for {ARCHS}, warm", examples(warm=True), asked=5, rounds=1),
)


# ---- the driver ----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="samples a row (default: %(default)s)")
    parser.add_argument("--only", default="", help="rows whose name has one of these words in it")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--markdown", type=Path, help="where to write the table")
    parser.add_argument("--seed", type=int, default=0, help="of the order (default: %(default)s)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--filled", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments.child, arguments.folder)
    words = [word for word in arguments.only.split(",") if word]
    rows = [row for row in ROWS if not words or any(word in row.name for word in words)]
    # As pip does it: a checkout's modules would be compiled in every process where PYTHONDONTWRITEBYTECODE is set.
    compileall.compile_dir(Path(pytest_cgins.__file__).parent, quiet=2)
    samples = measured(rows, arguments.rounds, random.Random(arguments.seed))
    figures = summarized(rows, samples)
    text = table(figures)
    print(text)
    document = {"environment": environment(), "rounds": arguments.rounds, "rows": figures}
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n")
    return 1 if any(row["reached"] is False for row in figures) else 0


def child(name: str, folder: Path) -> int:
    import torch

    if torch.cuda.is_available():
        torch.ones(1, device="cuda")  # the context is no part of any build
    row = next(row for row in ROWS if row.name == name)
    print(row.measure(folder))
    return 0


def measured(rows: list[Row], rounds: int, lot: random.Random) -> dict[str, list[float]]:
    """Seconds of every sample; an error of a row ends its samples and is told."""
    samples: dict[str, list[float]] = {row.name: [] for row in rows}
    failed: set[str] = set()
    for number in range(rounds):
        for row in lot.sample(rows, len(rows)):
            if row.name in failed or number >= (row.rounds or rounds):
                continue
            with tempfile.TemporaryDirectory() as name:
                command = [sys.executable, __file__, "--child", row.name, "--folder", name]
                variables = {
                    **os.environ,
                    "CGINS_CACHE_DIR": f"{name}/cache",
                    "TORCH_EXTENSIONS_DIR": f"{name}/torch",
                }
                variables.setdefault("CGINS_CUDA_ARCHS", "sm_90a")
                done = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
            if done.returncode != 0:
                failed.add(row.name)
                print(f"{row.name}: failed\n{done.stderr[-3000:]}", file=sys.stderr)
                continue
            samples[row.name].append(float(done.stdout.split()[-1]))
            print(f"round {number + 1}: {row.name}: {samples[row.name][-1]:.3f} s", file=sys.stderr)
    return samples


def summarized(rows: list[Row], samples: dict[str, list[float]]) -> list[dict[str, Any]]:
    medians = {name: statistics.median(values) for name, values in samples.items() if values}
    figures = []
    for row in rows:
        values = samples[row.name]
        seconds = medians.get(row.name)
        ratio = medians[row.against] / seconds if seconds and row.against in medians else None
        reached = None
        if row.asked is not None and (ratio or seconds) and not (row.against and ratio is None):
            reached = ratio >= row.asked if ratio is not None else bool(seconds and seconds <= row.asked)
        figures.append(
            {
                "name": row.name,
                "samples_s": values,
                "median_s": seconds,
                "least_s": min(values, default=None),
                "greatest_s": max(values, default=None),
                "against": row.against,
                "ratio": ratio,
                "asked": row.asked,
                "reached": reached,
            }
        )
    return figures


def table(figures: list[dict[str, Any]]) -> str:
    lines = [
        "| way | median s (least – greatest) | against load_inline | asked | reached |",
        "|---|---|---|---|---|",
    ]
    for row in figures:
        if row["median_s"] is None:
            lines.append(f"| {row['name']} | failed | | | no |")
            continue
        seconds = f"{row['median_s']:.3f} ({row['least_s']:.3f} – {row['greatest_s']:.3f})"
        ratio = f"{row['ratio']:.1f}×" if row["ratio"] else ""
        asked = (
            "" if row["asked"] is None else f"≥ {row['asked']}×" if row["against"] else f"≤ {row['asked']} s"
        )
        reached = {True: "yes", False: "no", None: ""}[row["reached"]]
        lines.append(f"| {row['name']} | {seconds} | {ratio} | {asked} | {reached} |")
    return "\n".join(lines)


def environment() -> dict[str, Any]:
    import torch

    compilers = {}
    for name in ("nvcc", "g++"):
        done = subprocess.run([name, "--version"], check=False, capture_output=True, text=True)
        compilers[name] = next(
            (line for line in done.stdout.splitlines() if "release" in line or "g++" in line), ""
        )
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU",
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "pytest_cgins": version("pytest-cgins") if has_metadata() else "from its checkout",
        **compilers,
    }


def has_metadata() -> bool:
    from importlib.metadata import PackageNotFoundError

    try:
        version("pytest-cgins")
    except PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
