"""Kernels in two environments on this device: planted slowdowns, two equal environments, other flags and assemblers.

    python tests/benchmarks/two_environments.py RUN… [--pairs N] [--permutations N] [--toolkit FOLDER] [--select WORDS] [--json PATH]

RUN is any of `planted` (5% more work in the environment under test), `equal` (twice the same, each built by itself,
for --pairs pairs of processes, whose order is then permuted into further verdicts), `flags` (`-Xptxas -O1`,
`--maxrregcount=32`), `assembler` (Triton with the toolkit's ptxas), `toolkits` (the host's nvcc and that of --toolkit,
such as a folder that the nvidia-cuda-nvcc wheel was unpacked to) and `example` (minutes that a hundred cases of
example_project take, with all probes, in two equal environments). The suite is silu as a chain of multiply-adds,
CUDA and Triton, at sizes between 10 µs and 400 µs a call, and `rows`, whose sixty-four sums a thread need registers.
Each run is `pytest --cgins --cgins-base-env`, whose report the figures are read from. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_cgins.timing.sequential import Rule, SequentialTest

SIZES = (4_096, 65_536, 262_144, 1_048_576, 4_194_304)
ROWS = ((64, 4096), (512, 4096), (2048, 4096))
PLANTED = 8440
"""Steps of a chain of 8000: 5.5% more, of which the launch takes a part."""
SUITE = 200
EQUAL = "NVCC_APPEND_FLAGS=-DEQUAL=1"
"""Another build of the same code."""
CUDA = """
// cgins: silu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>
#ifndef STEPS
#define STEPS 8000
#endif
__global__ void chain(const float* x, float* y, long n, float one, float zero) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  for (int step = 0; step < STEPS; ++step) v = fmaf(v, one, zero);
  y[i] = v / (1.0f + expf(-v));
}
extern "C" int silu(const DLTensor* input, bool inplace, DLTensor* out, cgins_stream stream) {
  long n = 1;
  for (int d = 0; d < input->ndim; ++d) n *= input->shape[d];
  volatile float one = 1.0f, zero = 0.0f;
  chain<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const float*)input->data, (float*)out->data, n, one, zero);
  return cudaGetLastError();
}
"""
ROWS_CUDA = """
// cgins: row_powers(Tensor input) -> Tensor
#include <cgins.h>
__global__ void __launch_bounds__(256) powers(const float* x, float* y, int columns) {
  float sums[64];
  #pragma unroll
  for (int k = 0; k < 64; ++k) sums[k] = 0.0f;
  for (int c = threadIdx.x; c < columns; c += 256) {
    float v = x[blockIdx.x * (long)columns + c], p = 1.0f;
    #pragma unroll
    for (int k = 0; k < 64; ++k) { sums[k] = fmaf(p, v, sums[k]); p *= 0.5f; }
  }
  float total = 0.0f;
  #pragma unroll
  for (int k = 0; k < 64; ++k) total += sums[k];
  __shared__ float part[256];
  part[threadIdx.x] = total;
  __syncthreads();
  for (int s = 128; s; s /= 2) {
    if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    __syncthreads();
  }
  if (!threadIdx.x) y[blockIdx.x] = part[0];
}
extern "C" int row_powers(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  powers<<<input->shape[0], 256, 0, (cudaStream_t)stream>>>(
      (const float*)input->data, (float*)out->data, (int)input->shape[1]);
  return cudaGetLastError();
}
"""
TRITON = """
import os

import torch
import triton
import triton.language as tl

STEPS = int(os.environ.get("CHAIN_STEPS", 8000))


@triton.jit
def chain(x, y, n, one, zero, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    for step in range(STEPS):
        v = v * one + zero
    tl.store(y + at, v / (1.0 + tl.exp(-v)), mask=at < n)


def silu(input, inplace=False):
    output = torch.empty_like(input)
    chain[(triton.cdiv(input.numel(), 512),)](input, output, input.numel(), 1.0 + 0 * STEPS, 0.0, STEPS=STEPS, BLOCK=512)
    return output
"""
OPS = """
import torch
import pytest_cgins


@pytest_cgins.mark
def row_powers(input: torch.Tensor) -> torch.Tensor:
    return input.sum(1) * 2.0
"""
CONFIG = """
version: 1
traces: [traces/suite]
gate: {gate}
kernels:
  silu:
    op: torch.nn.functional.silu
    implementations:
      - {{name: cuda, source: silu.cu}}
      - {{name: triton, device: cuda, target: silu:silu, sources: [silu.py]}}
  rows:
    op: ops.row_powers
    tolerance: {{rtol: 1e-3, atol: 1e-3}}
    implementations:
      - {{name: cuda, source: rows.cu}}
"""


def project(folder: Path, gate: str = "{}") -> Path:
    """The suite, recorded here."""
    folder.mkdir(parents=True)
    for name, text in (("silu.cu", CUDA), ("rows.cu", ROWS_CUDA), ("silu.py", TRITON), ("ops.py", OPS)):
        (folder / name).write_text(text)
    (folder / "cgins.yaml").write_text(CONFIG.format(gate=gate))
    record = (
        "import torch, pytest_cgins, ops\n"
        "with pytest_cgins.record('traces/suite', max_per_op=99, ops=['torch.nn.functional.silu', 'ops.row_powers']):\n"
        f"    for n in {SIZES}: torch.nn.functional.silu(torch.randn(n))\n"
        f"    for shape in {ROWS}: ops.row_powers(torch.randn(shape))\n"
    )
    subprocess.run([sys.executable, "-c", record], cwd=folder, check=True, env=environ())
    return folder


def environ() -> dict[str, str]:
    """This process's variables, and the folder of this package."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


def gated(folder: Path, base: str, *options: str, env: str = ".") -> dict[str, Any]:
    """The report of a run in two environments."""
    report = folder / "report.json"
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "no:cgins", "-p", "pytest_cgins.plugin", "--cgins", "-q",
            "-p", "no:cacheprovider", "--cgins-device=cuda", "--cgins-baseline=none", "--cgins-probes=fast",
            f"--cgins-suite-tests={SUITE}", f"--cgins-base-env={base}", f"--cgins-env={env}",
            f"--cgins-json={report}", f"--log-file={folder}.log", "--log-file-level=INFO",
            "--log-file-format=%(asctime)s %(message)s", *options,
        ],
        cwd=folder, env=environ(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not report.is_file():
        raise SystemExit(f"no report: {done.stdout[-3000:]}{done.stderr[-2000:]}")
    read: dict[str, Any] = json.loads(report.read_text())
    return {**read, "wall_seconds": time.monotonic() - began}


def lines(report: dict[str, Any]) -> list[dict[str, Any]]:
    """A line a case."""
    found = []
    for evaluation in report["evaluations"]:
        measured, case = evaluation["measurement"], evaluation["case"]
        test = measured["comparisons"][0] if measured else None
        found.append({
            "case": f"{case['kernel']}/{case['implementation']} {case['signature']}",
            "status": evaluation["verdict"]["status"],
            "message": evaluation["verdict"]["message"].partition("\n")[0][:160],
            "ratio": test and test["ratio"],
            "pairs": test and len(test["log_ratios"]),
            "sigma": test and test["power"]["sigma"],
            "microseconds": measured and measured["kernel"]["median_ns_per_call"] / 1e3,
            "environments": evaluation["environments"],
            "log_ratios": test and test["log_ratios"],
        })  # fmt: skip
    return found


def permuted(cases: Sequence[dict[str, Any]], permutations: int, seed: int) -> dict[str, Any]:
    """Verdicts of the recorded pairs in other orders, with either side as the base."""
    rule = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=SUITE, most_blocks=48)
    choice = random.Random(seed)
    outcomes: Counter[str] = Counter()
    pairs: list[int] = []
    for case in cases:
        for _ in range(permutations if case["log_ratios"] else 0):
            sign = choice.choice((-1, 1))
            test = SequentialTest(rule, unit="pair")
            for ratio in choice.sample(case["log_ratios"], min(rule.most_blocks, len(case["log_ratios"]))):
                test.add(sign * ratio)
                if test.done:
                    break
            comparison = test.comparison("base")
            outcomes[comparison.outcome] += 1
            pairs.append(len(comparison.log_ratios))
    return {"verdicts": sum(outcomes.values()), **outcomes, "mean_pairs": sum(pairs) / len(pairs)}


def shown(title: str, report: dict[str, Any]) -> dict[str, Any]:
    """Print the cases of a run."""
    found = lines(report)
    print(f"\n{title}: {len(found)} cases in {report['wall_seconds']:.0f} s")
    for line in found:
        ratio = "-" if line["ratio"] is None else f"{line['ratio']:.4f}x"
        us = "-" if line["microseconds"] is None else f"{line['microseconds']:.1f} us"
        takes = line["environments"] or {}
        told = {
            name: takes.get(name)
            for name in ("registers_per_thread", "spill_nbytes", "drift")
            if takes.get(name)
        }
        print(
            f"  {line['status']:<13} {ratio:>9} {line['pairs'] or 0:>3} pairs {us:>10}  {line['case']}  {told}"
        )
        if line["status"] not in ("SAME", "SLOWER", "FASTER"):
            print(f"      {line['message']}")
    return {"seconds": report["wall_seconds"], "cases": found}


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description="Kernels in two environments.")
    parser.add_argument(
        "runs", nargs="+", choices=("planted", "equal", "flags", "assembler", "toolkits", "example")
    )
    parser.add_argument("--pairs", type=int, default=50, help="pairs of processes of two equal environments")
    parser.add_argument("--permutations", type=int, default=250, help="verdicts a case")
    parser.add_argument("--toolkit", type=Path, help="root of another CUDA toolkit")
    parser.add_argument(
        "--select", default="decoder or mnist", help="CUDA cases of example_project, as of -k"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="two-environments-"))
    os.environ.setdefault("CGINS_CACHE_DIR", str(work / "cache"))
    told: dict[str, Any] = {}
    if "planted" in arguments.runs:
        steps = f"'NVCC_APPEND_FLAGS=-DSTEPS={PLANTED}' CHAIN_STEPS={PLANTED}"
        told["planted"] = shown("planted 5.5%", gated(project(work / "planted"), ".", env=steps))
    if "equal" in arguments.runs:
        endless = f"{{alpha: 1e-9, beta: 1e-30, max_blocks: {arguments.pairs}}}"
        equal = project(work / "equal", endless)
        report = gated(equal, EQUAL)
        told["equal"] = shown("two equal environments", report)
        told["equal"]["permuted"] = permuted(told["equal"]["cases"], arguments.permutations, 1)
        print(f"  permuted: {told['equal']['permuted']}")
    if "flags" in arguments.runs:
        for flags in ("-Xptxas=-O1", "--maxrregcount=32"):
            folder = project(work / f"flags{len(told)}")
            report = gated(folder, ".", "-k", "cuda-cuda or /cuda/", env=f"'NVCC_APPEND_FLAGS={flags}'")
            told[flags] = shown(f"nvcc {flags}", report)
    if "assembler" in arguments.runs:
        ptxas = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
        report = gated(project(work / "assembler"), ".", "-k", "triton", env=f"TRITON_PTXAS_PATH={ptxas}")
        told["assembler"] = shown(f"Triton with {ptxas}", report)
    if "toolkits" in arguments.runs:
        report = gated(
            project(work / "toolkits"), ".", "-k", "cuda-cuda or /cuda/", env=f"CUDA_HOME={arguments.toolkit}"
        )
        version = subprocess.run(
            [arguments.toolkit / "bin/nvcc", "--version"], check=True, capture_output=True, text=True
        )
        told["toolkits"] = shown(f"nvcc of {version.stdout.splitlines()[-2]}", report)
    if "example" in arguments.runs:
        example = work / "example"
        shutil.copytree(Path(__file__).resolve().parents[2] / "example_project", example)
        report = gated(
            example, EQUAL, "-k", f"(cuda-cuda or /cuda/) and ({arguments.select})", "--cgins-probes=full"
        )
        told["example"] = shown("example_project in two equal environments", report)
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=1) + "\n")
    shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
