// linear on the tensor cores of Hopper, in CuTe: fp16 and bf16, sums in fp32. Other types, and rows that are not
// dense or not of 16 bytes, go to linear.cu.
//
// cgins: linear_cute(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include <algorithm>

#include "rows.h"

#include <cute/tensor_impl.hpp>
// The host has no use for the rest, and reading it would take longer than what the device does with it.
#ifdef __CUDA_ARCH__
#include <cute/algorithm/clear.hpp>
#include <cute/algorithm/gemm.hpp>
#include <cute/arch/copy_sm80.hpp>
#include <cute/atom/mma_atom.hpp>
#endif

constexpr int kTile = 64;    // rows, columns and depth of a block's tile
constexpr int kStages = 3;   // tiles of each factor in shared memory
constexpr int kThreads = 128;  // a warpgroup
constexpr int kVector = 8;   // elements in 16 bytes

#ifdef __CUDA_ARCH__
using namespace cute;

template <typename T>
struct Cute;
template <>
struct Cute<cgins::float16> {
  using Element = half_t;
  using Product = SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;
};
template <>
struct Cute<cgins::bfloat16> {
  using Element = bfloat16_t;
  using Product = SM90_64x64x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>;
};

// Starts to copy one tile of a row-major matrix to shared memory, 16 bytes at a time; zeros outside of the matrix.
template <typename T, typename Stages>
CUTE_DEVICE void load_tile(const T* matrix, int rows, int depth, int first_row, int first_k, Stages& stages, int stage) {
  for (int i = threadIdx.x * kVector; i < kTile * kTile; i += kThreads * kVector) {
    const int row = first_row + i / kTile, k = first_k + i % kTile;
    const bool inside = row < rows && k < depth;
    using Load = SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>;
    Load::copy(*reinterpret_cast<const uint128_t*>(inside ? matrix + int64_t(row) * depth + k : matrix),
               *reinterpret_cast<uint128_t*>(&stages(i / kTile, i % kTile, stage)), inside);
  }
}
#endif

// A 64×64 tile of the output a block.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    linear_products(const T* input, const T* weight, const T* bias, T* out, int rows, int columns, int depth) {
#ifdef __CUDA_ARCH__
  using Element = typename Cute<T>::Element;
  using Tile = Shape<Int<kTile>, Int<kTile>>;
  using Stages = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<Element>{}, append(Tile{}, Int<kStages>{})));
  __shared__ alignas(1024) Element x_stages[cosize_v<Stages>], w_stages[cosize_v<Stages>];
  Tensor x = make_tensor(make_smem_ptr(x_stages), Stages{});
  Tensor w = make_tensor(make_smem_ptr(w_stages), Stages{});

  auto product = make_tiled_mma(typename Cute<T>::Product{});
  auto mine = product.get_thread_slice(threadIdx.x);
  Tensor x_parts = mine.make_fragment_A(mine.partition_A(x));
  Tensor w_parts = mine.make_fragment_B(mine.partition_B(w));
  Tensor where = mine.partition_C(make_identity_tensor(Tile{}));  // rows and columns of this thread's sums
  Tensor sum = mine.make_fragment_C(where);
  clear(sum);

  const int first_row = blockIdx.x * kTile, first_column = blockIdx.y * kTile;
  const auto load = [&](int k) {
    if (k * kTile < depth) {
      load_tile(input, rows, depth, first_row, k * kTile, x, k % kStages);
      load_tile(weight, columns, depth, first_column, k * kTile, w, k % kStages);
    }
    cp_async_fence();  // a group also where nothing is left to load: waiting counts groups
  };
  for (int k = 0; k < kStages - 1; ++k) load(k);
  for (int k = 0; k * kTile < depth; ++k) {
    cp_async_wait<kStages - 2>();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads past what threads see
    __syncthreads();
    load(k + kStages - 1);  // into the stage that the last product has read
    warpgroup_fence_operand(sum);
    warpgroup_arrive();
    gemm(product, x_parts(_, _, _, k % kStages), w_parts(_, _, _, k % kStages), sum);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    warpgroup_fence_operand(sum);
  }
  for (int i = 0; i < size(sum); ++i) {
    const int row = first_row + get<0>(where(i)), column = first_column + get<1>(where(i));
    if (row < rows && column < columns)
      out[int64_t(row) * columns + column] = T(sum(i) + (bias ? float(bias[column]) : 0.0f));
  }
#endif
}

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      cgins_stream stream);

// Whether rows lie one behind the other, each a whole number of 16 bytes.
static bool loads_whole(const DLTensor* tensor) {
  return cgins::is_contiguous(tensor) && cgins::size(tensor, -1) % kVector == 0 &&
         reinterpret_cast<uintptr_t>(tensor->data) % 16 == 0;
}

extern "C" int linear_cute(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                           cgins_stream stream) {
  const auto type = cgins::dtype_of(input);
  const bool half = type == cgins::Dtype::float16 || type == cgins::Dtype::bfloat16;
  const int64_t depth = weight->shape[weight->ndim - 1], columns = weight->shape[0];
  const int64_t rows = depth ? cgins::numel(input) / depth : 0;
  const int64_t down = (rows + kTile - 1) / kTile, across = (columns + kTile - 1) / kTile;
  if (!half || !loads_whole(input) || !loads_whole(weight) || !cgins::is_contiguous(out) || weight->ndim != 2 ||
      rows * columns == 0 || std::max({rows, columns, depth}) > INT32_MAX - kTile || across > 65535)
    return linear(input, weight, bias, out, stream);
  if (check_types(input, {weight, out}) || check_parameters(input, columns, {bias})) return 1;
  const auto launch = [&](auto zero) {
    using T = decltype(zero);
    linear_products<<<dim3(down, across), kThreads, 0, stream>>>(
        cgins::data<const T>(input), cgins::data<const T>(weight), bias ? cgins::data<const T>(bias) : nullptr,
        cgins::data<T>(out), int(rows), int(columns), int(depth));
    CGINS_LAUNCH_CHECK();
    return 0;
  };
  return type == cgins::Dtype::float16 ? launch(cgins::float16{}) : launch(cgins::bfloat16{});
}
