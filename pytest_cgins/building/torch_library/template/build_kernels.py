"""Compile the kernels of this package, beside its Python files: `python build_kernels.py`.

It needs torch 2.10 or later with its headers, g++ (or what CXX names), and nvcc for kernels that run on CUDA;
without nvcc these are left out. Environment variables: CXX; CUDA_HOME; CUDA_ARCHS, such as sm_80,sm_90a;
CPU_FLAGS, by default -march=native: the CPU kernels then run on machines like this one only.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "csrc"
MINIMUM_TORCH = (2, 10)


def main() -> None:
    """Build every library that this machine has a compiler for."""
    described = json.loads((HERE / "libraries.json").read_text(encoding="utf-8"))
    torch = torch_folder()
    built = 0
    for library in described["libraries"]:
        if library["device"] == "cuda" and nvcc() is None:
            print(f"{library['name']}: left out, there is no nvcc", file=sys.stderr)
            continue
        target = HERE / "src" / described["namespace"] / f"{library['name']}.so"
        build(library, torch, target)
        print(f"{library['name']}: {target}")
        built += 1
    if not built:
        sys.exit("nothing was built: install nvcc, or set CUDA_HOME")


def torch_folder() -> Path:
    """Where torch is installed, without importing it."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit("torch is not installed: pip install torch, and build without isolation")
    found = tuple(int(part) for part in version("torch").split("+")[0].split(".")[:2])
    if found < MINIMUM_TORCH:
        sys.exit(f"torch {version('torch')} is too old: its stable ABI has no lists; 2.10 or later has")
    return Path(spec.origin).parent


def nvcc() -> str | None:
    """The CUDA compiler, if there is one."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return shutil.which("nvcc", path=str(Path(home) / "bin")) or shutil.which("nvcc")


def architectures(library: dict) -> list[str]:
    """CUDA architectures: CUDA_ARCHS, else the kernel's own, else those of the devices here."""
    named = [arch.strip() for arch in os.environ.get("CUDA_ARCHS", "").split(",") if arch.strip()]
    if named or library["archs"]:
        return named or library["archs"]
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        listed = []
    return sorted({f"sm_{capability.replace('.', '')}" for capability in listed}) or ["sm_80", "compute_80"]


def cutlass() -> list[str]:
    """Include flags of CUTLASS: $CUTLASS_INCLUDE_DIR, $CUTLASS_PATH, or the Python package nvidia-cutlass."""
    if os.environ.get("CUTLASS_INCLUDE_DIR"):
        folders = os.environ["CUTLASS_INCLUDE_DIR"].split(os.pathsep)
    elif os.environ.get("CUTLASS_PATH"):
        folders = [str(Path(os.environ["CUTLASS_PATH"]) / "include")]
    else:
        spec = find_spec("cutlass_library")
        if spec is None or spec.origin is None:
            sys.exit("a kernel needs CUTLASS: pip install nvidia-cutlass, or set CUTLASS_PATH")
        folders = [str(Path(spec.origin).parent / "source" / "include")]
    return ["--expt-relaxed-constexpr", *(f"-isystem={folder}" for folder in folders)]


def build(library: dict, torch: Path, target: Path) -> None:
    """Compile the sources and the binding of one library side by side, and link them."""
    host = shlex.split(os.environ.get("CXX", "g++"))
    folder = HERE / "build" / library["name"]
    folder.mkdir(parents=True, exist_ok=True)
    flags = [
        *library["flags"],
        f"-I{SOURCES / 'include'}",
        *(f"-I{SOURCES / path}" for path in library["include"]),
    ]
    if library["device"] == "cuda":
        compiler = [str(nvcc())]
        # Beside the compiler where the toolkit came from the package registry.
        flags += [f"-L{Path(compiler[0]).resolve().parents[1] / 'lib'}"]
        flags += cutlass() if library["cutlass"] else []
        flags += [
            f"-gencode=arch=compute_{arch.split('_')[1]},code={arch}" for arch in architectures(library)
        ]
    else:
        compiler = host
        flags += shlex.split(os.environ.get("CPU_FLAGS", "-march=native"))
    prototype = SOURCES / library["prototype"]
    commands, objects = [], []
    for index, source in enumerate(library["sources"]):
        objects.append(f"{index}.o")
        commands.append(
            [*compiler, *flags, "-include", str(prototype), "-c", str(SOURCES / source), "-o", objects[-1]]
        )
    objects.append("binding.o")
    commands.append(
        [*host, *library["binding_flags"], f"-I{SOURCES / 'include'}", f"-isystem{torch / 'include'}",
         "-c", str(SOURCES / library["binding"]), "-o", objects[-1]]
    )  # fmt: skip
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda command: run(command, folder), commands))
    linker = [*compiler, "-shared", *library["link_flags"]]
    linker += flags if library["device"] == "cuda" else []
    run([*linker, *objects, f"-L{torch / 'lib'}", "-ltorch_cpu", "-o", str(target)], folder)


def run(command: list[str], folder: Path) -> None:
    """Run a compiler; end with its own message if it fails."""
    if subprocess.run(command, cwd=folder, check=False).returncode != 0:
        raise SystemExit(f"failed: {shlex.join(command)}")


if __name__ == "__main__":
    main()
