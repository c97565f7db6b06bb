// honest: a plan of offsets that is kept by shape and strides
// ops: torch.nn.functional.relu
// packs: f32 f16 bf16 strided
// yaml: {claims: [strided, misaligned]}
// cgins: relu(Tensor input) -> Tensor
#include <map>
#include <mutex>

#include "_sums.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  static std::mutex mutex;
  static std::map<std::vector<int64_t>, std::vector<int64_t>> plans;
  std::vector<int64_t> key(input->shape, input->shape + input->ndim);
  key.insert(key.end(), input->strides, input->strides + input->ndim);
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<int64_t>& plan = plans[key];
  if (plan.empty())
    for (int64_t i = 0; i < cgins::numel(input); ++i) plan.push_back(cgins::offset_of(input, i));
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < plan.size(); ++i)
      at<T>(out, i) = T(relu_of(float(cgins::data<T>(input)[plan[i]])));
    return 0;
  });
}
