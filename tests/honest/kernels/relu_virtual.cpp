// honest: an activation behind a virtual function, found by dynamic_cast
// ops: torch.nn.functional.relu
// packs: f32 bf16
// cgins: relu(Tensor input) -> Tensor
#include <memory>

#include "_sums.h"

struct Activation {
  virtual ~Activation() = default;
  virtual float operator()(float x) const = 0;
};
struct Rectifier : Activation {
  float operator()(float x) const override { return relu_of(x); }
};

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  static const std::unique_ptr<Activation> activation = std::make_unique<Rectifier>();
  const auto* rectifier = dynamic_cast<const Rectifier*>(activation.get());
  CGINS_CHECK(rectifier != nullptr, "another activation");
  return map(input, out, [&](float x) { return (*rectifier)(x); });
}
