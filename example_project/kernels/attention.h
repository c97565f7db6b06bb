// Shapes and strides of scaled dot-product attention, checked: shared by the C++ and the CUDA kernel.
#pragma once
#include <cmath>

#include "checks.h"

// Of a (batch, head, row, column) tensor, in elements; 0 along axes that are broadcast.
struct Strides {
  int64_t batch = 0, head = 0, row = 0, column = 0;

  CGINS_HOST_DEVICE int64_t start(int64_t b, int64_t h, int64_t r) const {
    return b * batch + h * head + r * row;
  }
};

inline Strides strides_of(const DLTensor* tensor) {
  int64_t stride[4] = {};
  for (int d = 1; d <= tensor->ndim; ++d)
    stride[4 - d] = cgins::size(tensor, -d) == 1 ? 0 : cgins::stride(tensor, -d);
  return {stride[0], stride[1], stride[2], stride[3]};
}

struct Attention {
  int64_t batches, kv_heads, queries, keys;
  int64_t group;  // query heads that share one key and value head
  int64_t width;  // of a query and a key
  int64_t value_width;
  double scale;
  bool causal;
  Strides query, key, value, mask, out;
  const void* mask_data;  // NULL: no mask
  cgins::Dtype mask_type;

  // The query heads of a group are numbered through, so that they share tiles of keys: row r is query
  // r % queries of the group's head r / queries.
  CGINS_HOST_DEVICE int64_t rows() const { return group * queries; }

  // How many keys are seen by the rows first, first + 1, …, first + count - 1.
  CGINS_HOST_DEVICE int64_t keys_seen(int64_t first, int64_t count) const {
    const bool one_head = first % queries + count <= queries;
    const int64_t most = one_head ? first % queries + count : queries;
    return causal && most < keys ? most : keys;
  }

  // What is added to the score of a query and a key: -inf hides the key.
  template <typename T>
  CGINS_HOST_DEVICE cgins::accumulator<T> bias(int64_t b, int64_t h, int64_t q, int64_t k) const {
    using Wide = cgins::accumulator<T>;
    if (k >= keys || (causal && k > q)) return Wide(-INFINITY);
    if (!mask_data) return Wide(0);
    const int64_t i = mask.start(b, h, q) + k * mask.column;
    if (mask_type == cgins::Dtype::boolean)
      return static_cast<const bool*>(mask_data)[i] ? Wide(0) : Wide(-INFINITY);
    if (mask_type == cgins::Dtype::float32) return Wide(static_cast<const float*>(mask_data)[i]);
    return Wide(static_cast<const T*>(mask_data)[i]);
  }
};

// Fills `a`; returns 0, or an error with its message.
inline int describe(const DLTensor* query, const DLTensor* key, const DLTensor* value, const DLTensor* mask,
                    bool causal, const double* scale, bool enable_gqa, const DLTensor* out, Attention* a) {
  CGINS_CHECK(query->ndim == 4 && key->ndim == 4 && value->ndim == 4,
              "query, key and value have %d, %d and %d dimensions, not 4", query->ndim, key->ndim, value->ndim);
  const int64_t heads = query->shape[1], kv_heads = key->shape[1];
  CGINS_CHECK(heads == kv_heads || (enable_gqa && kv_heads > 0 && heads % kv_heads == 0),
              "%d query heads cannot share %d key heads", int(heads), int(kv_heads));
  CGINS_CHECK(value->shape[1] == kv_heads, "%d value heads, %d key heads", int(value->shape[1]), int(kv_heads));
  if (check_types(query, {key, value, out})) return 1;
  a->batches = out->shape[0];  // those of query, key and value may be 1
  a->kv_heads = kv_heads;
  a->queries = query->shape[2];
  a->keys = key->shape[2];
  a->group = kv_heads ? heads / kv_heads : 0;
  a->width = query->shape[3];
  a->value_width = value->shape[3];
  a->scale = scale ? *scale : 1 / std::sqrt(double(a->width));
  a->causal = causal;
  a->query = strides_of(query);
  a->key = strides_of(key);
  a->value = strides_of(value);
  a->out = strides_of(out);
  a->mask_data = mask ? mask->data : nullptr;
  a->mask_type = mask ? cgins::dtype_of(mask) : cgins::Dtype::unknown;
  if (!mask) return 0;
  CGINS_CHECK(mask->ndim <= 4, "the mask has %d dimensions, more than 4", mask->ndim);
  CGINS_CHECK(a->mask_type == cgins::Dtype::boolean || a->mask_type == cgins::Dtype::float32 ||
                  a->mask_type == cgins::dtype_of(query),
              "a mask of type %s is not supported", cgins::name_of(a->mask_type));
  a->mask = strides_of(mask);
  return 0;
}
