// exemplar: torch.nn.functional.log_softmax, reduction, launcher, cuda
// cgins: log_softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
constexpr int kThreads = 256, kMaxDims = 8;

// A tensor seen as rows along one axis, whatever its strides; it is passed to the kernel by value.
struct Rows {
  int64_t count = 1, width = 1, step = 1;
  int dims = 0;
  int64_t shape[kMaxDims] = {}, stride[kMaxDims] = {};

  Rows(const DLTensor* tensor, int64_t axis) {
    for (int d = 0; d < tensor->ndim; ++d) {
      if (d == (axis < 0 ? axis + tensor->ndim : axis)) {
        width = tensor->shape[d];
        step = tensor->strides[d];
      } else {
        shape[dims] = tensor->shape[d];
        stride[dims++] = tensor->strides[d];
        count *= tensor->shape[d];
      }
    }
  }

  __device__ int64_t start(int64_t row) const {
    int64_t offset = 0;
    for (int d = dims - 1; d >= 0; --d) {
      offset += row % shape[d] * stride[d];
      row /= shape[d];
    }
    return offset;
  }
};

// The same in all threads of a block; `join` is associative, its order fixed.
template <typename Wide, typename Join>
__device__ Wide block_reduce(Wide value, Join join) {
  __shared__ Wide shared[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, offset));
  __syncthreads();  // `shared` may still be read from the reduction before
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) value = join(value, shared[warp]);
  return value;
}

// One block a row. As torch has it, the input is converted to the output's element type first.
template <typename In, typename Out>
__global__ void log_softmax_rows(const In* input, Rows in, Out* output, Rows out) {
  using Wide = cgins::accumulator<Out>;
  const In* x = input + in.start(blockIdx.x);
  Out* y = output + out.start(blockIdx.x);
  Wide largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) largest = fmax(largest, Wide(Out(x[i * in.step])));
  largest = block_reduce(largest, [](Wide a, Wide b) { return fmax(a, b); });
  Wide sum = 0;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) sum += exp(Wide(Out(x[i * in.step])) - largest);
  sum = log(block_reduce(sum, [](Wide a, Wide b) { return a + b; }));
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads)
    y[i * out.step] = Out(Wide(Out(x[i * in.step])) - largest - sum);
}

extern "C" int log_softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(input->ndim <= kMaxDims, "%d dimensions, more than %d", input->ndim, kMaxDims);
  const Rows rows(input, dim);
  CGINS_CHECK(rows.count <= INT32_MAX, "%lld rows are too many for one grid", static_cast<long long>(rows.count));
  if (cgins::numel(out) == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto in_zero) {
    return cgins::dispatch_floating(out, [&](auto out_zero) {
      log_softmax_rows<<<rows.count, kThreads, 0, stream>>>(cgins::data<decltype(in_zero)>(input), rows,
                                                            cgins::data<decltype(out_zero)>(out), Rows(out, dim));
      CGINS_LAUNCH_CHECK();
      return 0;
    });
  });
}
