"""The production kernels at sizes beyond the L2, beside a copy, torch and torch.compile: `python tests/benchmarks/production_ops.py`.

Each row is timed in one process, all sides in turns, between CUDA events around a CUDA graph of enough calls for 2 ms: the
median of `--rounds` turns. A graph leaves out what Python takes to launch, as whole models do that are run as one.
Memory-bound rows move at least 256 MiB; their share is of the bandwidth of a copy that is timed in the same turns. A kernel
that the project has no module for is left out, and said.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

EXAMPLE = Path(__file__).parents[2] / "example_project"
BATCH_S = 2e-3
Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One kernel on one shape."""

    kernel: str
    shape: str
    kind: str
    """`memory`, `product`, `attention` or `decode`."""
    kernel_us: float
    eager_us: float
    compile_us: float
    """0 if torch.compile does not take it."""
    copy_share: float
    """Bandwidth of the kernel over that of the copy; 0 unless bound by memory."""
    compile_share: float
    """The same of torch.compile."""
    tflops: float
    """0 unless bound by arithmetic."""


@dataclass(frozen=True)
class Work:
    """What a row runs."""

    kernel: str
    shape: str
    ours: Call
    eager: Call
    compiled: Call | None
    kind: str = "memory"
    nbytes: int = 0
    flops: float = 0.0


def _graph(call: Call, calls: int) -> Call:
    """So many calls as one CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for _ in range(calls):
            call()
    return graph.replay


def _repeated(call: Call, calls: int) -> Call:
    def repeated() -> None:
        for _ in range(calls):
            call()

    return repeated


def _once(call: Call) -> float:
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    call()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1e3


def _timed(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Median seconds of a call of each, taken in turns."""
    counts, graphs = {}, {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        single = _graph(call, 1)
        _once(single)
        count = counts[name] = max(1, round(BATCH_S / _once(single)))
        # In a graph a copy is left to an engine that may be slower than the kernel it is elsewhere.
        graphs[name] = _repeated(call, count) if name == "copy" else _graph(call, count)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in sorted(calls, reverse=number % 2 == 1):
            found[name].append(_once(graphs[name]) / counts[name])
    return {name: statistics.median(times) for name, times in found.items()}


def _nbytes(*tensors: torch.Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)


def _forward(
    kernel: str, ours: Callable[..., Any], op: Callable[..., Any], shape: str, *args: Any, **more: Any
) -> Work:
    """A row of an op whose time is that of reading its tensors and writing its outputs once."""
    given = [one for one in args if isinstance(one, torch.Tensor)]
    out = ours(*args)
    outs = out if isinstance(out, tuple | list) else (out,)
    compiled = torch.compile(op, dynamic=False)
    more.setdefault("nbytes", _nbytes(*given, *outs))
    return Work(kernel, shape, lambda: ours(*args), lambda: op(*args), lambda: compiled(*args), **more)


def _memory(load: Callable[[str], Callable[..., Any]]) -> Iterator[Callable[[], Work]]:
    from models import decoder

    half = torch.float16
    yield lambda: _forward(
        "rms_norm",
        load("rms_norm"),
        decoder.rms_norm,
        "32768x4096 bf16",
        _randn(32768, 4096),
        _randn(4096),
        1e-5,
    )
    yield lambda: _forward(
        "layer_norm", load("layer_norm"), F.layer_norm, "131072x1024 f16",
        _randn(131072, 1024, dtype=half), (1024,), _randn(1024, dtype=half), _randn(1024, dtype=half), 1e-5,
    )  # fmt: skip
    yield lambda: _forward("gelu", load("gelu"), F.gelu, "32768x4096 f16", _randn(32768, 4096, dtype=half))
    yield lambda: _forward(
        "silu_mul",
        load("silu_mul"),
        decoder.silu_mul,
        "8192x14336 bf16",
        _randn(8192, 14336),
        _randn(8192, 14336),
    )
    angles = torch.randn(16384, 64, device="cuda").to(torch.bfloat16)
    yield lambda: _forward(
        "apply_rotary", load("apply_rotary"), decoder.apply_rotary, "1x32+8x16384x128 bf16",
        _randn(1, 16384, 32, 128).transpose(1, 2), _randn(1, 16384, 8, 128).transpose(1, 2), angles.cos(), angles.sin(),
    )  # fmt: skip
    for layout, name in (
        (torch.contiguous_format, "128x256x56x56 f16"),
        (torch.channels_last, "the same, channels last"),
    ):
        yield lambda layout=layout, name=name: _forward(
            "batch_norm", load("batch_norm"), F.batch_norm, name,
            _randn(128, 256, 56, 56, dtype=half).contiguous(memory_format=layout),
            *(_randn(256, dtype=half).abs() + 0.5 for _ in range(4)), False, 0.1, 1e-5,
        )  # fmt: skip
    classes = 128_256
    target = torch.randint(classes, (8192,), device="cuda")
    yield lambda: _forward(
        "cross_entropy",
        load("cross_entropy"),
        F.cross_entropy,
        f"8192x{classes} bf16",
        _randn(8192, classes),
        target,
    )
    yield lambda: _backward_of_layer_norm(load("layer_norm_backward"), _randn(65536, 1024))


def _backward_of_layer_norm(ours: Callable[..., Any], x: torch.Tensor) -> Work:
    width = x.shape[-1]
    weight, bias, grad = _randn(width), _randn(width), torch.randn_like(x)

    def autograd(function: Callable[..., Any]) -> Call:
        given = [one.detach().requires_grad_() for one in (x, weight, bias)]
        out = function(given[0], (width,), given[1], given[2], 1e-5)
        return lambda: torch.autograd.grad(out, given, grad, retain_graph=True)

    return Work(
        "layer_norm_backward", f"{x.shape[0]}x{width} bf16", lambda: ours(grad, x, (width,), weight, bias, 1e-5),
        autograd(F.layer_norm), autograd(torch.compile(F.layer_norm, dynamic=False)), nbytes=_nbytes(x, x, x),
    )  # fmt: skip


def _arithmetic(load: Callable[[str], Callable[..., Any]]) -> Iterator[Callable[[], Work]]:
    for m, k, n in ((2048, 4096, 14336), (8192, 8192, 8192)):
        yield lambda m=m, k=k, n=n: _forward(
            "linear", load("linear"), F.linear, f"{m}x{k}x{n} bf16", _randn(m, k), _randn(n, k), None,
            kind="product", flops=2.0 * m * n * k,
        )  # fmt: skip
    length = 8192

    def causal(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda q, k, v: function(q, k, v, is_causal=True, enable_gqa=True)

    yield lambda: _forward(
        "scaled_dot_product_attention", causal(load("scaled_dot_product_attention")), causal(F.scaled_dot_product_attention),
        f"1x32x{length}x128 causal, 8 heads of keys, bf16",
        _randn(1, 32, length, 128), _randn(1, 8, length, 128), _randn(1, 8, length, 128),
        kind="attention", flops=2.0 * 2 * 32 * length * length * 128 / 2,
    )  # fmt: skip

    def grouped(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda q, k, v: function(q, k, v, enable_gqa=True)

    for batch in (1, 16, 128):
        yield lambda batch=batch: _forward(
            "scaled_dot_product_attention", grouped(load("scaled_dot_product_attention")),
            grouped(F.scaled_dot_product_attention), f"{batch}x32x1x128 on 4097 keys, 8 heads of keys, bf16",
            _randn(batch, 32, 1, 128), _randn(batch, 8, 4097, 128), _randn(batch, 8, 4097, 128), kind="decode",
        )  # fmt: skip

    def experts() -> Work:
        from models import mixture

        ends = torch.arange(512, 4097, 512, device="cuda", dtype=torch.int32)
        return _forward(
            "grouped_matmul", load("grouped_matmul"), mixture.grouped_matmul, "4096 rows, 8 of 4096x14336 bf16",
            _randn(4096, 4096), _randn(8, 4096, 14336), ends, kind="product", flops=2.0 * 4096 * 4096 * 14336,
        )  # fmt: skip

    yield experts


def measure(project: Path, rounds: int, only: str, *, compiled: bool) -> tuple[list[Row], list[str]]:
    """The rows, and what was left out and why."""
    sys.path.insert(0, str(project))
    rows, left_out = [], []

    def load(name: str) -> Callable[..., Any]:
        if only and name != only:
            raise LookupError(name)
        function: Callable[..., Any] = getattr(importlib.import_module(f"kernels.{name}_triton"), name)
        return function

    # One stream for all: a graph takes down what autograd launches on the stream of the forward pass.
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        for number, make in enumerate((*_memory(load), *_arithmetic(load)), 1):
            try:
                with torch.enable_grad():
                    work = make()
                rows.append(_row(work if compiled else replace(work, compiled=None), rounds))
                print(rows[-1], file=sys.stderr, flush=True)
            except LookupError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever a kernel or a compiler raises is a row that is left out
                left_out.append(f"row {number}: {type(error).__name__}: {error}".splitlines()[0])
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    return rows, left_out


def _row(work: Work, rounds: int) -> Row:
    calls = {"kernel": work.ours, "eager": work.eager}
    if work.compiled is not None:
        try:
            work.compiled()
            calls["compile"] = work.compiled
        except Exception as error:  # noqa: BLE001 - as above
            print(f"torch.compile: {work.kernel}: {error}".splitlines()[0], file=sys.stderr)
    if work.kind == "memory":
        source = torch.empty(work.nbytes // 2, dtype=torch.uint8, device="cuda")
        copied = torch.empty_like(source)
        calls["copy"] = lambda: copied.copy_(source)
    times = _timed(calls, rounds)
    copy = times.get("copy", 0.0)
    return Row(
        kernel=work.kernel,
        shape=work.shape,
        kind=work.kind,
        kernel_us=round(1e6 * times["kernel"], 2),
        eager_us=round(1e6 * times["eager"], 2),
        compile_us=round(1e6 * times.get("compile", 0.0), 2),
        copy_share=round(copy / times["kernel"], 3),
        compile_share=round(copy / times["compile"], 3) if "compile" in times else 0.0,
        tflops=round(work.flops / times["kernel"] / 1e12, 1),
    )


def _page(rows: list[Row], left_out: list[str], device: str) -> str:
    lines = [
        f"{device}, torch {torch.__version__}, all sides of a row in turns.",
        "",
        "| kernel | shape | kernel us | torch us | compile us | against torch | against compile | of a copy | compile, of a copy | TFLOP/s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        against = f"{row.compile_us / row.kernel_us:.2f}×" if row.compile_us else "–"
        shares = [f"{share:.0%}" if share else "–" for share in (row.copy_share, row.compile_share)]
        lines.append(
            f"| {row.kernel} | {row.shape} | {row.kernel_us:.1f} | {row.eager_us:.1f} | {row.compile_us or '–'} | "
            f"{row.eager_us / row.kernel_us:.2f}× | {against} | {' | '.join(shares)} | {row.tflops or '–'} |"
        )
    bound = [row for row in rows if row.kind == "memory"]
    if bound:
        shares_of_copy = [row.copy_share for row in bound]
        mean = statistics.geometric_mean
        lines += [
            "",
            (
                f"Bound by memory: {statistics.median(shares_of_copy):.0%} of a copy in the median, {min(shares_of_copy):.0%} at least; "
                f"{mean([row.eager_us / row.kernel_us for row in bound]):.2f}× torch, "
                f"{mean([row.compile_us / row.kernel_us for row in bound if row.compile_us] or [1]):.2f}× torch.compile (geometric means of "
                f"{len(bound)})."
            ),
        ]
    return "\n".join([*lines, "", *(f"Left out: {one}" for one in left_out)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--project", type=Path, default=EXAMPLE / "production", help="folder with kernels/ and models/"
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", metavar="KERNEL", help="the rows of this kernel")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    sys.path.insert(0, str(EXAMPLE))
    rows, left_out = measure(
        arguments.project.resolve(), arguments.rounds, arguments.only, compiled=not arguments.no_compile
    )
    page = _page(rows, left_out, torch.cuda.get_device_name())
    print(page)
    if arguments.json:
        environment = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
        }
        found = {"environment": environment, "rows": [asdict(row) for row in rows], "left_out": left_out}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown:
        arguments.markdown.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
