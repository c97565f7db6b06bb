// Attention with one thread an element of the output: scores are made again wherever they are needed.
#pragma once
#include "attention.h"
#include "variant.h"

// A query, and a column of the values.
template <typename T>
struct Query {
  const Attention& a;
  const T *query, *key, *value;  // the query's row, the first key, the value column's first element
  int64_t batch, head, position;

  // Before the softmax, in `Number`; -inf where the key is hidden.
  template <typename Number>
  CGINS_HOST_DEVICE Number score(int64_t k, bool scale_first) const {
    Number sum = 0;
    for (int64_t c = 0; c < a.width; ++c) {
      const Number q = Number(Wide<T>(query[c * a.query.column]));
      sum += (scale_first ? q * Number(a.scale) : q) * Number(Wide<T>(key[k * a.key.row + c * a.key.column]));
    }
    if (!scale_first) sum *= Number(a.scale);
    return sum + Number(a.bias<T>(batch, head, position, k));
  }

  template <typename Number>
  CGINS_HOST_DEVICE Number at(int64_t k) const {
    return Number(Wide<T>(value[k * a.value.row]));
  }
};

template <typename T, typename Form>
struct AttentionElement {
  Attention a;
  const T *query, *key, *value;
  T* out;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t heads = a.kv_heads * a.group, column = i % a.value_width, position = i / a.value_width % a.queries;
    const int64_t head = i / a.value_width / a.queries % heads, b = i / a.value_width / a.queries / heads;
    const int64_t kv_head = head / a.group;
    const Query<T> one{a,
                       query + a.query.start(b, head, position),
                       key + a.key.start(b, kv_head, 0),
                       value + a.value.start(b, kv_head, 0) + column * a.value.column,
                       b,
                       head,
                       position};
    out[a.out.start(b, head, position) + column * a.out.column] = T(Form::template of<T>(one, a.keys));
  }
};

// Form::of<T>(query, keys) gives one element of the output.
template <typename Form>
int attention_by(const DLTensor* query, const DLTensor* key, const DLTensor* value, const DLTensor* mask, bool causal,
                 const double* scale, bool enable_gqa, DLTensor* out, cgins_stream stream) {
  Attention a;
  if (int error = describe(query, key, value, mask, causal, scale, enable_gqa, out, &a)) return error;
  return cgins::dispatch_floating(query, [&](auto zero) {
    using T = decltype(zero);
    const AttentionElement<T, Form> element{a, cgins::data<T>(query), cgins::data<T>(key), cgins::data<T>(value),
                                            cgins::data<T>(out)};
    return each(cgins::numel(out), stream, element);
  });
}

// Greatest score first, then weights and their sum; a query that sees no key gives 0.
template <typename T, typename Number>
CGINS_HOST_DEVICE Number softmax_in_two_passes(const Query<T>& query, int64_t keys, bool scale_first) {
  Number largest = -INFINITY, sum = 0, result = 0;
  for (int64_t k = 0; k < keys; ++k) largest = fmax(largest, query.template score<Number>(k, scale_first));
  if (largest == Number(-INFINITY)) return 0;
  for (int64_t k = 0; k < keys; ++k) {
    const Number weight = std::exp(query.template score<Number>(k, scale_first) - largest);
    sum += weight;
    result += weight * query.template at<Number>(k);
  }
  return result / sum;
}
