"""One trivial kernel, `input * other` in fp32, under every contract: what builds.py builds."""

from __future__ import annotations

SCHEMA = "// cgins: scale(Tensor input, float other) -> Tensor\n"
CHECK = 'CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32, "input is not float32");'
CPP_LAUNCHER = f"""{SCHEMA}#include <cgins.h>
extern "C" int scale(const DLTensor* input, double other, DLTensor* out, cgins_stream) {{
  {CHECK}
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const int64_t n = cgins::numel(input);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * float(other);
  return 0;
}}
"""
KERNEL = """__global__ void scale_kernel(const float* x, float* y, long n, float other) {
  const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * other;
}
"""
CUDA_LAUNCHER = f"""{SCHEMA}#include <cgins.h>
{KERNEL}
extern "C" int scale(const DLTensor* input, double other, DLTensor* out, cgins_stream stream) {{
  {CHECK}
  const float* x = cgins::data<float>(input);
  const long n = cgins::numel(input);
  if (n) scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, cgins::data<float>(out), n, other);
  CGINS_LAUNCH_CHECK();
  return 0;
}}
"""
DEVICE = (
    f"{SCHEMA}// cgins-launch: grid=(ceil_div(numel(input), 256)) block=(256)\n"
    f"//               args=(input, out, numel(input), other)\n" + KERNEL.replace("scale_kernel", "scale")
)
EXTENSION_CUDA = f"""#include <torch/extension.h>
{KERNEL}
torch::Tensor scale(torch::Tensor input, double other) {{
  TORCH_CHECK(input.scalar_type() == torch::kFloat32, "input is not float32");
  auto x = input.contiguous();
  auto out = torch::empty_like(x);
  const long n = x.numel();
  if (n) scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n, (float)other);
  return out;
}}
"""
EXTENSION_CPP = """#include <torch/extension.h>
torch::Tensor scale(torch::Tensor input, double other) {
  TORCH_CHECK(input.scalar_type() == torch::kFloat32, "input is not float32");
  auto x = input.contiguous();
  auto out = torch::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] * (float)other;
  return out;
}
"""
DECLARATION = "torch::Tensor scale(torch::Tensor input, double other);"
BROKEN = ("y[i] = x[i] * other", "y[i] = x[i] * undeclared_name")

# Name, entry in cgins.yaml, file, text.
IMPLEMENTATIONS = {
    "launcher C++": ("{name: it, source: scale.cpp}", "scale.cpp", CPP_LAUNCHER),
    "launcher CUDA": ("{name: it, source: scale.cu}", "scale.cu", CUDA_LAUNCHER),
    "launcher CUDA, broken": ("{name: it, source: scale.cu}", "scale.cu", CUDA_LAUNCHER.replace(*BROKEN)),
    "device": ("{name: it, contract: device, source: scale.cu}", "scale.cu", DEVICE),
    "device, broken": ("{name: it, contract: device, source: scale.cu}", "scale.cu", DEVICE.replace(*BROKEN)),
    "extension CUDA": (
        "{name: it, contract: torch-extension, source: scale.cu, entry: scale}",
        "scale.cu",
        EXTENSION_CUDA,
    ),
    "extension CUDA, other": (
        "{name: it, contract: torch-extension, source: scale.cu, entry: scale}",
        "scale.cu",
        EXTENSION_CUDA + "// another text\n",
    ),
    "extension C++": (
        "{name: it, contract: torch-extension, source: scale.cpp, entry: scale}",
        "scale.cpp",
        EXTENSION_CPP,
    ),
    "extension C++, other": (
        "{name: it, contract: torch-extension, source: scale.cpp, entry: scale}",
        "scale.cpp",
        EXTENSION_CPP + "// another text\n",
    ),
}
