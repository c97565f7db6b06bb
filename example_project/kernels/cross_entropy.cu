// cgins: cross_entropy(Tensor input, Tensor target, int ignore_index=-100, str reduction='mean') -> Tensor
#include "cross_entropy.h"
#include "reduce.cuh"

// One block a row: its loss goes to `losses`, and to the output if that is not reduced.
template <typename T>
__global__ void row_losses(const T* input, Rows rows, const int64_t* target, int64_t ignore_index,
                           cgins::accumulator<T>* losses, T* output) {
  using Wide = cgins::accumulator<T>;
  const int64_t row = blockIdx.x, index = target[row];
  const T* x = input + rows.start(row);
  Wide largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < rows.width; i += kThreads) largest = fmax(largest, Wide(x[i * rows.step]));
  largest = block_max(largest);
  Wide sum = 0;
  for (int64_t i = threadIdx.x; i < rows.width; i += kThreads) sum += exp(Wide(x[i * rows.step]) - largest);
  sum = block_sum(sum);
  if (threadIdx.x > 0) return;
  Wide loss = 0;
  if (index != ignore_index) {
    const bool inside = index >= 0 && index < rows.width;
    loss = inside ? log(sum) + largest - Wide(x[index * rows.step]) : Wide(NAN);
  }
  losses[row] = loss;
  if (output) output[row] = T(loss);
}

// One block: sums in the same order every time.
template <typename T>
__global__ void reduce_losses(const cgins::accumulator<T>* losses, const int64_t* target, int64_t count,
                              int64_t ignore_index, bool mean, T* output) {
  using Wide = cgins::accumulator<T>;
  Wide sum = 0, counted = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    sum += losses[i];
    counted += target[i] != ignore_index;
  }
  sum = block_sum(sum);
  counted = block_sum(counted);
  if (threadIdx.x == 0) output[0] = T(mean ? sum / counted : sum);
}

extern "C" int64_t cross_entropy_workspace(const DLTensor* input, const DLTensor* target, int64_t, const char*,
                                           int64_t, DLTensor*) {
  (void)input;
  return cgins::numel(target) * int64_t{sizeof(double)};
}

extern "C" int cross_entropy(const DLTensor* input, const DLTensor* target, int64_t ignore_index,
                             const char* reduction, int64_t reduction_len, DLTensor* out, void* workspace, int64_t,
                             cgins_stream stream) {
  Reduction reduce;
  if (describe(input, target, out, reduction, reduction_len, &reduce)) return 1;
  const Rows rows = classes_of(input);
  if (check_grid(rows.count)) return 1;
  const int64_t* index = cgins::data<const int64_t>(target);
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    auto* losses = static_cast<cgins::accumulator<T>*>(workspace);
    T* y = cgins::data<T>(out);
    const bool none = reduce == Reduction::none;
    if (rows.count > 0) {
      row_losses<<<rows.count, kThreads, 0, stream>>>(cgins::data<const T>(input), rows, index, ignore_index, losses,
                                                      none ? y : nullptr);
      CGINS_LAUNCH_CHECK();
    }
    if (!none) {
      reduce_losses<<<1, kThreads, 0, stream>>>(losses, index, rows.count, ignore_index, reduce == Reduction::mean, y);
      CGINS_LAUNCH_CHECK();
    }
    return 0;
  });
}
