// Kernels whose length is set by the caller: for verdicts.py, which compiles this file once for the kernel and once,
// with another COPY, for its base.
#include <cuda_runtime.h>

#ifndef COPY
#define COPY 0
#endif

// A function that only one copy has moves all others in the library.
#if COPY
__global__ void padding(float* y, int rounds) {
    float value = y[threadIdx.x];
    for (int i = 0; i < rounds; i++) value = value * 1.0001f + static_cast<float>(i);
    y[threadIdx.x] = value;
}
#endif

// Bound by memory: length grows with n.
__global__ void scale(const float4* __restrict__ x, float4* __restrict__ y, long n) {
    for (long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x; i < n; i += gridDim.x * static_cast<long>(blockDim.x)) {
        float4 v = x[i];
        y[i] = make_float4(v.x * 1.5f, v.y * 1.5f, v.z * 1.5f, v.w * 1.5f);
    }
}

// Bound by arithmetic: length grows with rounds. All blocks work on the same few numbers.
__global__ void rounds_of_fma(const float4* __restrict__ x, float4* __restrict__ y, long n, long rounds) {
    const long i = (blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x) % n;
    float4 v = x[i];
#pragma unroll 1
    for (long r = 0; r < rounds; r++) {
        v.x = fmaf(v.x, 1.0001f, 0.5f);
        v.y = fmaf(v.y, 0.9999f, 0.5f);
        v.z = fmaf(v.z, 1.0002f, 0.5f);
        v.w = fmaf(v.w, 0.9998f, 0.5f);
    }
    y[i] = v;
}

// Reductions of rows, a block each, that wait for each other: length grows with n.
__global__ void row_norm(const float4* __restrict__ x, float4* __restrict__ y, long n, int columns) {
    __shared__ float partial[32];
    const long rows = n / columns;
    for (long row = blockIdx.x; row < rows; row += gridDim.x) {
        float sum = 0.f;
        for (int c = threadIdx.x; c < columns; c += blockDim.x) {
            float4 v = x[row * columns + c];
            sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
        for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
        __syncthreads();
        float total = 0.f;
        for (int w = 0; w < static_cast<int>(blockDim.x) / 32; w++) total += partial[w];
        const float inverse = rsqrtf(total + 1e-6f);
        for (int c = threadIdx.x; c < columns; c += blockDim.x) {
            float4 v = x[row * columns + c];
            y[row * columns + c] = make_float4(v.x * inverse, v.y * inverse, v.z * inverse, v.w * inverse);
        }
        __syncthreads();
    }
}

// n counts groups of four numbers; work is n, or rounds for kinds 1 and 3.
extern "C" int launch(int kind, const void* x, void* y, long n, long work, cudaStream_t stream) {
    const float4* in = static_cast<const float4*>(x);
    float4* out = static_cast<float4*>(y);
    const int threads = 256;
    if (kind == 0) {
        long blocks = (work + threads - 1) / threads;
        scale<<<static_cast<int>(blocks < 1056 ? blocks : 1056), threads, 0, stream>>>(in, out, work);
    } else if (kind == 1) {
        rounds_of_fma<<<1, threads, 0, stream>>>(in, out, n, work);
    } else if (kind == 3) {
        rounds_of_fma<<<528, threads, 0, stream>>>(in, out, n, work);
    } else {
        const int columns = 256;
        long rows = work / columns;
        row_norm<<<static_cast<int>(rows < 1056 ? (rows ? rows : 1) : 1056), threads, 0, stream>>>(in, out, work, columns);
    }
    return cudaGetLastError();
}
