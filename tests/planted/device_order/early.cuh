// A launch that may begin before the work ahead of it on its stream has ended (programmatic dependent launch).
#pragma once
#include <cgins.h>
#include <cuda_bf16.h>

template <typename... Taken, typename... Given>
cudaError_t early(void (*kernel)(Taken...), int64_t blocks, cudaStream_t stream, Given... given) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(256);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, Taken(given)...);
}
