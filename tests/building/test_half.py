"""Floating point of 16 and 8 bits in cgins.h against torch, on every value there is."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

CONVERT = """\
// cgins: convert(Tensor input) -> Tensor
extern "C" int convert(const DLTensor* input, DLTensor* out, cgins_stream) {
  const float* x = cgins::data<float>(input);
  return cgins::dispatch_floating(out, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(input); ++i) cgins::data<T>(out)[i] = T(x[i]);
    return 0;
  });
}
extern "C" void widen(const void* from, float* to, int bfloat) {
  for (int i = 0; i < 65536; ++i)
    to[i] = bfloat ? float(static_cast<const cgins::bfloat16*>(from)[i])
                   : float(static_cast<const cgins::float16*>(from)[i]);
}
"""


@pytest.fixture(params=[torch.float16, torch.bfloat16])
def dtype(request: Any) -> Any:
    return request.param


def every_value(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(dtype)


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Bitwise equal, but for the payload of a NaN."""
    bits = torch.int32 if got.dtype == torch.float32 else torch.int16
    return bool(((got.view(bits) == want.view(bits)) | (got.isnan() & want.isnan())).all())


def test_widening_is_exact(project: Any, dtype: torch.dtype) -> None:
    """All 65536 values become the float that torch makes of them."""
    library = ctypes.CDLL(project.launcher(CONVERT).library)
    values, widened = every_value(dtype), torch.empty(65536)
    library.widen(
        ctypes.c_void_p(values.data_ptr()),
        ctypes.c_void_p(widened.data_ptr()),
        ctypes.c_int(dtype == torch.bfloat16),
    )
    assert same(widened, values.float())


def test_narrowing_rounds_to_nearest_even(bind: Any, dtype: torch.dtype) -> None:
    """Every value, its neighbours in fp32, and every midpoint round as torch rounds, subnormals included."""
    bits = every_value(dtype).float().view(torch.int32).long()
    half_step = 1 << (15 if dtype == torch.bfloat16 else 12)
    near = torch.cat([bits + step for step in (-1, 0, 1, half_step - 1, half_step, half_step + 1)])
    generator = torch.Generator().manual_seed(5)
    anywhere = torch.randint(-(2**31), 2**31, (200_000,), generator=generator)
    x = torch.cat([near & 0xFFFFFFFF, anywhere & 0xFFFFFFFF]).to(torch.uint32).view(torch.float32)
    # Midpoints between half-precision subnormals, and their neighbours.
    middle = (torch.arange(0, 2050, dtype=torch.float64) * 2.0**-25).float()
    around = [torch.nextafter(middle, middle + step) for step in (1, -1)]
    x = torch.cat([x, middle, -middle, *around])
    want = x.to(dtype)
    (got,) = bind(CONVERT, "torch.neg", x, outputs=[want]).run()
    assert same(got, want)
    assert want.isinf().any()
    assert ((want != 0) & (want.abs().float() < torch.finfo(dtype).tiny)).any()


EIGHT = """\
// cgins: convert(Tensor input) -> Tensor
template <typename T> void narrow(const float* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}
template <typename T> void widen(const T* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}
extern "C" int convert(const DLTensor* input, DLTensor* out, cgins_stream) {
  using namespace cgins;
  const int64_t count = numel(input);
  if (dtype_of(out) == Dtype::float8_e4m3fn) narrow(data<float>(input), data<float8_e4m3fn>(out), count);
  else if (dtype_of(out) == Dtype::float8_e5m2) narrow(data<float>(input), data<float8_e5m2>(out), count);
  else if (dtype_of(input) == Dtype::float8_e4m3fn) widen(data<float8_e4m3fn>(input), data<float>(out), count);
  else if (dtype_of(input) == Dtype::float8_e5m2) widen(data<float8_e5m2>(input), data<float>(out), count);
  else if (dtype_of(out) == Dtype::float8_e8m0fnu) narrow(data<float>(input), data<float8_e8m0fnu>(out), count);
  else if (dtype_of(input) == Dtype::float8_e8m0fnu) widen(data<float8_e8m0fnu>(input), data<float>(out), count);
  else return cgins_fail("%s", name_of(dtype_of(input)));
  return 0;
}
"""


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bits_convert_as_torch_does(bind: Any, dtype: torch.dtype) -> None:
    """Every code; every number of fp32 near a number of the grid or a middle of two; what is too large saturates or is infinite."""
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    (wide,) = bind(EIGHT, "torch.neg", codes, outputs=[torch.empty(256)]).run()
    assert same(wide, codes.float())
    grid = codes.double()
    grid = grid[grid.isfinite()].sort().values
    exact = torch.cat([grid, (grid[1:] + grid[:-1]) / 2]).float()
    finite = torch.finfo(dtype).max
    anywhere = torch.randn(100_000, generator=torch.Generator().manual_seed(5)) * finite / 3
    large = torch.tensor([finite * 1.01, finite * 1.1, -3e38, torch.nan, -torch.nan, 1e-40, -0.0])
    x = torch.cat([exact, *(torch.nextafter(exact, exact + step) for step in (1, -1)), anywhere, large])
    want = x.clamp(-finite, finite).to(dtype) if dtype == torch.float8_e4m3fn else x.to(dtype)
    (got,) = bind(EIGHT, "torch.neg", x, outputs=[want]).run()
    bits = got.view(torch.uint8) == want.view(torch.uint8)
    assert bool((bits | (got.isnan() & want.isnan())).all())


@pytest.mark.skipif(not hasattr(torch, "float8_e8m0fnu"), reason="this torch has no float8_e8m0fnu")
def test_exponents_convert_as_torch_does(bind: Any) -> None:
    """Every code; every number of fp32 near a power of two or a middle of two; subnormal, infinite and no numbers."""
    dtype = torch.float8_e8m0fnu
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    (wide,) = bind(EIGHT, "torch.neg", codes, outputs=[torch.empty(256)]).run()
    assert same(wide.nan_to_num(), codes.float().nan_to_num())
    assert wide.isnan().tolist() == [False] * 255 + [True]
    exact = codes[:255].double()
    exact = torch.cat([exact, 1.5 * exact]).float()
    others = torch.tensor([0.0, 1e-45, 3e-39, 8.8e-39, 3.4e38, torch.inf, torch.nan])
    x = torch.cat([exact, *(torch.nextafter(exact, exact + step) for step in (exact, -exact)), others])
    want = x.to(dtype)
    (got,) = bind(EIGHT, "torch.neg", x, outputs=[want]).run()
    assert got.view(torch.uint8).tolist() == want.view(torch.uint8).tolist()
