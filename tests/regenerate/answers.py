"""Sources and answers that the tests of reading answers share."""

from __future__ import annotations

from pytest_cgins.regenerate.conversation import Answer, Finish, Usage

CU = "kernels/softmax.cu"
PY = "kernels/softmax.py"
HEADER = "kernels/rows.cuh"
OLD = """// cgins: softmax(Tensor input, int dim) -> Tensor
#include <cgins.h>

__global__ void rows(const float* x, float* y, int n) {
  const int i = blockIdx.x;
  if (i < n) y[i] = x[i];
}

extern "C" int softmax(const DLTensor* input, int64_t dim, DLTensor* out, cgins_stream stream) {
  rows<<<1, 32, 0, stream>>>(cgins::data<float>(input), cgins::data<float>(out), 1);
  return 0;
}
"""
NEW = OLD.replace("y[i] = x[i];", 'y[i] = 2 * x[i];  // "twice"')
OLD_PY = "import torch\n\n\ndef softmax(input, dim):\n    return torch.empty_like(input)\n"
NEW_PY = OLD_PY.replace("empty_like", "zeros_like")


def answer(text: str, finish: Finish = "stop") -> Answer:
    usage = Usage(prompt_tokens=1, cached_tokens=0, answer_tokens=1, usd=None)
    return Answer(text=text, finish=finish, model="m", usage=usage, seconds=0.1)
