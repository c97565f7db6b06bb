// One small kernel a family of signatures; compiled for sm_80, sm_90a and sm_100a, disassembled, and kept in listings/.
// They are compiled and never run. Written for this test: `python -m tests.regenerate.methods.write_listings` makes the listings anew.
#include <cstdint>
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void
#ifdef __CUDA_ARCH__
#define ARCH __CUDA_ARCH__
#else
#define ARCH 0
#endif

__device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

KERNEL plain(const float* a, float* b) { b[threadIdx.x] = 2 * a[threadIdx.x] + 1; }

KERNEL vector_access(const float4* a, float4* b) {
  float4 v = a[threadIdx.x];
  v.x *= 2;
  b[threadIdx.x] = v;
}

KERNEL packed_half(const half2* a, half2* b) { b[threadIdx.x] = __hfma2(a[threadIdx.x], a[threadIdx.x + 32], b[threadIdx.x]); }

KERNEL scalar_half(const half* a, half* b) { b[threadIdx.x] = __hfma(a[threadIdx.x], a[threadIdx.x + 32], b[threadIdx.x]); }

KERNEL shared_tile(const float* a, float* b) {
  __shared__ float tile[256];
  tile[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = tile[255 - threadIdx.x];
}

KERNEL warp_shuffle(float* a) {
  float x = a[threadIdx.x];
  for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
  a[threadIdx.x] = x;
}

KERNEL fast_exp(float* a) { a[threadIdx.x] = __expf(a[threadIdx.x]); }

KERNEL atomic_sum(float* a, const float* b) { atomicAdd(a, b[threadIdx.x]); }

KERNEL aggregated_atomic(int* counter, int* out, const int* in) {
  bool wanted = in[threadIdx.x] > 0;
  unsigned votes = __ballot_sync(~0u, wanted);
  int lane = threadIdx.x & 31, leader = __ffs(votes) - 1, base = 0;
  if (wanted && lane == leader) base = atomicAdd(counter, __popc(votes));
  base = __shfl_sync(~0u, base, leader);
  if (wanted) out[base + __popc(votes & ((1u << lane) - 1))] = threadIdx.x;
}

KERNEL warp_mma(const uint32_t* p, float* c) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(p[4]), "r"(p[5]));
}

KERNEL tf32_mma(const uint32_t* p, float* c) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(p[4]), "r"(p[5]));
}

KERNEL int8_mma(const uint32_t* p, int* c) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(p[4]), "r"(p[5]));
}

KERNEL ldmatrix(const uint32_t* a, uint32_t* b) {
  __shared__ __align__(16) uint32_t tile[256];
  tile[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  uint32_t r0, r1, r2, r3;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(shared_address(tile + threadIdx.x * 4)));
  b[threadIdx.x] = r0 + r1 + r2 + r3;
}

KERNEL async_pipeline(const float4* a, float4* b, int n) {
  __shared__ float4 ring[4][128];
  float4 sum = {};
  unsigned to = shared_address(&ring[0][threadIdx.x]);
  for (int i = 0; i < 3; i++)
    asm volatile("cp.async.cg.shared.global [%0],[%1],16; cp.async.commit_group;" ::"r"(to + i * 2048), "l"(a + i * 128 + threadIdx.x));
  for (int i = 0; i < n; i++) {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    __syncthreads();
    sum.x += ring[i & 3][127 - threadIdx.x].x;
    asm volatile("cp.async.cg.shared.global [%0],[%1],16; cp.async.commit_group;" ::"r"(to + ((i + 3) & 3) * 2048),
                 "l"(a + (i + 3) * 128 + threadIdx.x));
  }
  b[threadIdx.x] = sum;
}

#if ARCH >= 900
KERNEL tma_load(const __grid_constant__ char map[128], float* out) {
  __shared__ __align__(128) float tile[1024];
  __shared__ uint64_t barrier;
  unsigned full = shared_address(&barrier);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0],1; fence.proxy.async.shared::cta;" ::"r"(full));
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],4096;" ::"r"(full));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%2}],[%3];" ::"r"(
                     shared_address(tile)), "l"(map), "r"(0), "r"(full) : "memory");
  }
  __syncthreads();
  asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p,[%0],0; @!p bra again;}" ::"r"(full));
  out[threadIdx.x] = tile[threadIdx.x];
}

KERNEL tma_multicast(const __grid_constant__ char map[128], float* out) {
  __shared__ __align__(128) float tile[1024];
  __shared__ uint64_t barrier;
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0],[%1,{%2,%2}],[%3],%4;" ::"r"(shared_address(tile)), "l"(map), "r"(0), "r"(shared_address(&barrier)),
               "h"((short)3) : "memory");
  out[threadIdx.x] = tile[threadIdx.x];
}

KERNEL tma_store(const __grid_constant__ char map[128]) {
  __shared__ __align__(128) float tile[1024];
  tile[threadIdx.x] = threadIdx.x;
  asm volatile("fence.proxy.async.shared::cta;");
  __syncthreads();
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0,{%1,%1}],[%2];" ::"l"(map), "r"(0),
               "r"(shared_address(tile)) : "memory");
}

KERNEL dependent_launch(float* a) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  a[threadIdx.x] *= 2;
  asm volatile("griddepcontrol.launch_dependents;");
}

KERNEL __launch_bounds__(256, 1) register_reallocation(float* a) {
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    a[threadIdx.x] = 1;
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    a[threadIdx.x] = 2;
  }
}

KERNEL __cluster_dims__(2, 1, 1) cluster_memory(float* a) {
  __shared__ float values[256];
  values[threadIdx.x] = a[threadIdx.x];
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  unsigned there;
  float x;
  asm volatile("mapa.shared::cluster.u32 %0,%1,1;" : "=r"(there) : "r"(shared_address(values + threadIdx.x)));
  asm volatile("ld.shared::cluster.f32 %0,[%1];" : "=f"(x) : "r"(there));
  a[threadIdx.x] = x;
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WGMMA(SHAPE, TYPES, REST)                                                                                    \
  asm volatile("wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPES                         \
               " {%0,%1,%2,%3},%4,%4,1,1,1" REST "; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(tile))

KERNEL wgmma(float* out, uint64_t tile) {
  float c[4] = {};
  WGMMA("m64n8k16", "f16.f16", ",0,0");
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = c[i];
}

KERNEL two_level_fp8(float* out, uint64_t tile) {
  float sum[4] = {};
  for (int k = 0; k < 4; k++) {
    float c[4] = {};
    WGMMA("m64n8k32", "e4m3.e4m3", "");
    for (int i = 0; i < 4; i++) sum[i] += c[i];
  }
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = sum[i];
}

KERNEL __launch_bounds__(384, 1) ping_pong(float* out, uint64_t tile) {
  float c[4] = {};
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    asm volatile("bar.arrive 1,256;");
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  asm volatile("bar.sync 1,256;" ::: "memory");
  WGMMA("m64n8k16", "f16.f16", ",0,0");
  asm volatile("bar.arrive 2,256;");
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = c[i];
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM100_ALL
KERNEL tcgen05(int to, int kind, uint64_t tile) {
  asm volatile("{.reg .pred p; setp.ne.u32 p,1,0; tcgen05.mma.cta_group::1.kind::f16 [%0],%1,%1,%2,p;}" ::"r"(to), "l"(tile), "r"(kind));
}

KERNEL packed_fp32(uint64_t* a) {
  uint64_t x = a[threadIdx.x];
  asm volatile("fma.rn.f32x2 %0,%0,%0,%0;" : "+l"(x));
  a[threadIdx.x] = x;
}
#endif
