"""The lists that `workload` chooses from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Place = Literal["cpu", "cuda", "triton", "cute"]

COMMON: Mapping[Place, tuple[str, ...]] = {
    "cpu": (
        (
            "Contiguous inner loops over plain pointers with __restrict, strides hoisted out; a fast "
            "path where the last stride is 1, a general one besides."
        ),
        (
            "Half precision: convert a block to float in a small array on the stack, compute there, "
            "convert back: such loops vectorize."
        ),
    ),
    "cuda": (
        (
            "Consecutive threads read consecutive elements. 16-byte loads (float4, 8 halves) where "
            "address and row length allow, tested at run time; a scalar tail "
            "or path besides."
        ),
        (
            "Specialize on what the recorded calls have in common (row width, element type) by template, "
            "with a general kernel behind it."
        ),
        "Short kernels are bound by the launch: one kernel, no second pass where one can do.",
    ),
    "triton": (
        (
            "Give constants as tl.constexpr, so that masks and divisions fold; several rows or tiles a "
            "program where rows are short."
        ),
        (
            "num_warps 4 for 1 KiB of a row, 8 for 4 KiB, 16 beyond; num_stages 3 to 4 for loops with "
            "tl.dot, else 1 to 2."
        ),
        "Contiguous fast path with plain offsets; multiply strides only where they are not 1.",
        (
            "The wrapper is Python and costs microseconds: no reshape, movedim or contiguous where a "
            "stride argument does."
        ),
    ),
    "cute": (
        "Name layouts once as static ones; change tile shapes there and nowhere else.",
        "Predicated copies by 128-bit vector atoms where alignment allows it.",
        "Swizzled shared-memory layouts (3, 3, 3 for 16-bit rows of 64) against bank conflicts.",
    ),
}
"""For every kernel of a place."""

SPELLED: Mapping[str, tuple[str, ...]] = {
    "cute": (
        (
            "Names: copy_if, UniversalCopy<uint128_t> and SM80_CP_ASYNC_CACHEGLOBAL for copies, "
            "SM80_16x8x16_F32F16F16F32_TN and SM90_64x128x16_F32F16F16_SS for products, Swizzle<3,3,3>, Int<128>{}."
        ),
    ),
    "cute-dsl": (
        (
            "Names: cute.copy(…, pred=…) with cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype, "
            "num_bits_per_copy=128) or cute.nvgpu.cpasync.CopyG2SOp(), cute.make_tiled_copy_tv(atom, thread_layout, "
            "value_layout), cute.make_tiled_mma(cute.nvgpu.warp.MmaF16BF16Op(dtype, cutlass.Float32, (16, 8, 16))), "
            "cute.make_swizzle(3, 3, 3), cute.arch.shuffle_sync_bfly. Constants are cutlass.Constexpr, loops over them "
            "cutlass.range_constexpr."
        ),
    ),
}
"""How the languages of one place write the same thing."""

ADVICE: Mapping[str, Mapping[Place, tuple[str, ...]]] = {
    "matmul": {
        "cpu": (
            (
                "Block for the caches: pack a panel of the second factor once, keep a tile of 6×16 "
                "floats (AVX2) or 14×32 (AVX-512) in registers, loop over K inside."
            ),
            (
                "Threads over tiles of the output, not over K. A matrix-vector product (one row) is "
                "bound by memory: stream the weight once, split over its rows."
            ),
            "Half precision: convert panels to float as they are packed.",
        ),
        "cuda": (
            (
                "fp16 and bf16: tensor cores (mma.sync m16n8k16 by ldmatrix, or nvcuda::wmma) with "
                "fp32 accumulators, tiles of 128×128×32, cp.async in 3 stages. fp32: "
                "FFMA with 8×8 outputs a thread, tiles of 128×128×8, double buffered."
            ),
            (
                "Few rows (M ≤ 16): a warp a column of the output, or split K with a second pass in "
                "fixed order: the weight is read once and decides the time."
            ),
            "Pad or swizzle shared memory; predicate loads of the last tile, zeros beyond K.",
        ),
        "triton": (
            (
                "Tiles 128×128×32 (fp16) or 64×64×32 (fp32, input_precision='ieee'), fp32 accumulator, K "
                "loop with masks only in the last round where EVEN_K is not set."
            ),
            (
                "Order programs in groups of 8 rows of tiles, so that L2 keeps the second factor. Few "
                "rows: BLOCK_M 16 and split K in a fixed order."
            ),
        ),
        "cute": (
            (
                "sm_90a: wgmma with TMA loads, warp-specialized producer, 128×128×64 tiles and 4 stages; "
                "sm_80: warp-level 16×8×16 products with matrix loads and asynchronous copies."
            ),
            (
                "Accumulators in fp32, epilogue (bias, activation) on the fragments before they are "
                "stored. Predicate M, N and K remainders."
            ),
        ),
    },
    "convolution": {
        "cpu": (
            (
                "Threads over (sample, output channel block); vectorize along output columns for planar "
                "images, along channels for channels-last."
            ),
            (
                "1×1: a matrix product. 3×3: keep the filter's values in registers, several output "
                "columns at once; test the border outside of the inner loop."
            ),
            "Many channels: im2col of a row block into a small buffer, then a blocked product.",
        ),
        "cuda": (
            (
                "Implicit GEMM: M = pixels, N = output channels, K = C·kh·kw; compute addresses from "
                "k, never build the column matrix. Few channels: a tile of the "
                "input with its halo in shared memory, filter in registers, several outputs a "
                "thread, loops over the window unrolled by template."
            ),
            "Read by the recorded strides: channels-last input lets a warp read channels side by side.",
        ),
        "triton": (
            (
                "Implicit GEMM with tl.dot over blocks of channels; loop over kh·kw outside, mask rows "
                "and columns that fall into the padding."
            ),
            "Divisions of pixel numbers into (n, y, x) once a program, not a step.",
        ),
        "cute": (
            (
                "Implicit GEMM: an im2col view of the input as a layout or computed offsets, predicates "
                "for the padding; the rest as for products."
            ),
        ),
    },
    "elementwise": {
        "cpu": (
            (
                "Bound by memory: one pass, `omp parallel for simd` over the flat array where input and "
                "output have one layout."
            ),
            (
                "Libm calls (erf, exp, tanh) are the cost: gcc does not vectorize erff and expf "
                "without -ffast-math; a polynomial good to an ulp or two in a "
                "branch-free loop does."
            ),
        ),
        "cuda": (
            (
                "Bound by memory: a grid-stride loop with 16-byte accesses, 256 threads, several "
                "independent loads in flight a thread."
            ),
            (
                "Equal, gap-free layouts of input and output (channels-last too) need no index "
                "arithmetic: treat them as flat arrays. Others: index by strides."
            ),
        ),
        "triton": (
            "Flat blocks of 1024 to 4096 elements, one load and one store; treat gap-free layouts as flat.",
        ),
        "cute": (
            "zipped_divide into vectors of 16 bytes a thread, one copy in, one out, remainder predicated.",
        ),
    },
    "norm": {
        "cpu": (
            (
                "Threads over rows. Mean first, then the variance of centered numbers (two passes over a "
                "row that is in L1): the one-pass formula cancels."
            ),
            (
                "Several partial sums, so that additions do not wait for each other; write scale and "
                "shift as one multiply-add."
            ),
        ),
        "cuda": (
            (
                "Rows up to 1024: a warp a row, values kept in registers, shuffles; longer: a block a "
                "row, registers or shared memory, so that the row is read once."
            ),
            (
                "Two steps (mean, then centered squares) on the kept values: free, and exact. Weight and "
                "bias by vector loads."
            ),
            (
                "Batch norm in inference: scale and shift by channel, then elementwise. In training: "
                "Welford or two passes, partial results joined in fixed order."
            ),
        ),
        "triton": (
            (
                "One program a row (or several short rows as a 2-D block), the row in registers; set "
                "masked elements to 0 again after centering."
            ),
            "Rows above 64 KiB: loop over blocks.",
        ),
        "cute": (
            (
                "A row a warp or block by local_partition, values in fragments, shuffles for sums, two "
                "steps on kept values."
            ),
        ),
    },
    "reduction": {
        "cpu": (
            (
                "Reduce contiguous rows with several partial sums; over other dimensions keep a vector "
                "of results and walk rows, so that access stays contiguous."
            ),
            (
                "Softmax: maximum, then exp stored to the output while summed, then scale: two exps less "
                "than recomputing. A row of -inf alone is NaN."
            ),
        ),
        "cuda": (
            (
                "Short rows: a warp a row, values in registers. Long rows: a block, shuffles and one "
                "shared array; few long rows: several blocks a row and a "
                "second pass in fixed order (no atomics on floats)."
            ),
            (
                "Softmax: one read with the running maximum and sum (rescale by exp(old - new); old = "
                "-inf needs care) or the row in registers; one write."
            ),
            "Dimensions that are not last: threads along the contiguous dimension, each with its own reduction.",
        ),
        "triton": (
            (
                "The row in registers where next_power_of_2(width) is at most 16384, else a loop with "
                "running values; other=-inf for maxima."
            ),
            "Short rows: a 2-D block with several rows a program, reduce over axis 1.",
        ),
        "cute": (
            (
                "Values in fragments, shuffles within a warp, shared memory between warps, running "
                "maximum and sum for long rows."
            ),
        ),
    },
    "attention": {
        "cpu": (
            (
                "Tiles of queries by tiles of keys with a running maximum and sum: scores never leave "
                "L1. Threads over (batch, head, query tile)."
            ),
            (
                "Causal: stop at the diagonal. One query (generation): a dot product a key, bound by "
                "reading the cache; split over heads."
            ),
        ),
        "cuda": (
            (
                "Online softmax over tiles of keys: 64 to 128 queries a block, K and V tiles by "
                "cp.async, both products on tensor cores for half precision, fp32 "
                "accumulators, rescale when the maximum grows."
            ),
            (
                "One query: split the keys over blocks, join parts in a second pass in fixed order. "
                "Grouped heads share the tile of their key head."
            ),
            (
                "Masks: -inf, not a large number; a row that sees nothing has sum 0: write 0, do not "
                "divide. Skip tiles beyond the diagonal."
            ),
        ),
        "triton": (
            (
                "BLOCK_M 64 to 128 queries, BLOCK_N 32 to 64 keys, head width padded to a power of two "
                "with masks; m = -inf at the start: guard exp(-inf - -inf)."
            ),
            "exp2 with scale·log2(e) folded into the scores. Skip tiles beyond the diagonal, mask only those on it.",
        ),
        "cute": (
            (
                "Two products with the scores' fragment reused as the second's operand (convert the "
                "layout), online softmax on the fragment's rows."
            ),
        ),
    },
    "embedding": {
        "cpu": (
            "memcpy a row where rows are dense; threads over indices above some thousand. Bound by memory.",
        ),
        "cuda": (
            (
                "A warp a row with 16-byte accesses; several rows a block; read the index once a warp. "
                "Copy bits: no conversion."
            ),
            "Check nothing on the device that the op does not define, but never read beyond the table.",
        ),
        "triton": ("One program a row or several, columns as the block; index loads in int64.",),
        "cute": ("A row a warp, 128-bit copies.",),
    },
    "pooling": {
        "cpu": (
            (
                "Threads over (sample, channel); clip the window to the image once an output, outside of "
                "the inner loops. Bound by memory."
            ),
        ),
        "cuda": (
            (
                "One thread an output (or two neighbours), consecutive threads along the contiguous "
                "dimension of the output; windows unrolled by template; clip instead "
                "of testing each element. NaN wins: `!(v <= best)`."
            ),
        ),
        "triton": ("A block of outputs of one row; loop over the window with masks, -inf for maxima.",),
        "cute": ("Outputs over threads along the contiguous dimension; the window as a static shape.",),
    },
    "fused": {
        "cpu": (
            (
                "One pass over the data: results between the ops stay in registers or in a tile that "
                "fits L1/L2, never in a whole tensor."
            ),
        ),
        "cuda": (
            (
                "One kernel: what the ops hand on stays in registers or shared memory. Fuse the "
                "elementwise tail into the producer's store, compute halos again rather than "
                "write them out."
            ),
        ),
        "triton": ("One kernel: load once, all ops in registers, store once.",),
        "cute": ("One kernel: the tail as an epilogue on the accumulator's fragments.",),
    },
    "backward": {
        "cpu": (
            (
                "Gradients of parameters are sums over rows: partial sums a thread or column block, "
                "joined in a fixed order, in fp32 or wider."
            ),
        ),
        "cuda": (
            (
                "Input gradients row by row as the forward; parameter gradients in two steps "
                "(partial sums a block into scratch memory, then a sum in fixed order): "
                "atomics on floats are not repeatable."
            ),
            "Recompute cheap forward values (mean, scale) instead of reading more.",
        ),
        "triton": (
            (
                "Parameter gradients: partial sums a program into a (programs, width) buffer, then a "
                "second kernel sums it."
            ),
        ),
        "cute": ("Parameter gradients in two steps through scratch memory, in a fixed order.",),
    },
}
"""By family, then by place."""
