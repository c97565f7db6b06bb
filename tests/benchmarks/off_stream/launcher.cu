// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
// One right softmax, launched in as many ways as there are macros VARIANT: see matrix.py for what each is called.
#if VARIANT == 19 || VARIANT == 20
#include <cublas_v2.h>
#endif
#include <thread>

#include "rows.cuh"

#define SOFTMAX(rows, stream) softmax_rows<<<rows, kThreads, 0, stream>>>(x, y, width)

static void CUDART_CB nothing(void*) {}

extern "C" int softmax(const DLTensor* input, int64_t, const DLDataType*, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(cgins::is_contiguous(input) && cgins::is_contiguous(out), "contiguous rows only");
  const int64_t width = input->shape[input->ndim - 1], rows = cgins::numel(input) / width;
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  Side& side = side_of(rows, width);
  const size_t nbytes = sizeof(float) * rows * width;
#if VARIANT == 0  // honest
  SOFTMAX(rows, stream);
#elif VARIANT == 1  // legacy
  softmax_rows<<<rows, kThreads>>>(x, y, width);
#elif VARIANT == 2  // legacy-by-name
  SOFTMAX(rows, cudaStreamLegacy);
#elif VARIANT == 3  // per-thread
  SOFTMAX(rows, cudaStreamPerThread);
#elif VARIANT == 4  // own
  SOFTMAX(rows, side.free);
#elif VARIANT == 5  // own-blocking
  SOFTMAX(rows, side.blocking);
#elif VARIANT == 6  // forked-and-joined
  cudaEventRecord(side.fork, stream), cudaStreamWaitEvent(side.free, side.fork, 0);
  SOFTMAX(rows, side.free);
  cudaEventRecord(side.join, side.free), cudaStreamWaitEvent(stream, side.join, 0);
#elif VARIANT == 7  // own-synchronized
  SOFTMAX(rows, side.free);
  cudaStreamSynchronize(side.free);
#elif VARIANT == 8  // joined-not-forked
  SOFTMAX(rows, side.free);
  cudaEventRecord(side.join, side.free), cudaStreamWaitEvent(stream, side.join, 0);
#elif VARIANT == 9  // forked-not-joined
  cudaEventRecord(side.fork, stream), cudaStreamWaitEvent(side.free, side.fork, 0);
  SOFTMAX(rows, side.free);
#elif VARIANT == 10  // thread
  std::thread([=] { softmax_rows<<<rows, kThreads>>>(x, y, width); }).join();
#elif VARIANT == 11  // thread-synchronized
  std::thread([=] { softmax_rows<<<rows, kThreads>>>(x, y, width), cudaDeviceSynchronize(); }).join();
#elif VARIANT == 12  // thread-detached
  cudaStream_t own = side.free;
  std::thread([=] { SOFTMAX(rows, own); }).detach();
#elif VARIANT == 13  // legacy-synchronized
  softmax_rows<<<rows, kThreads>>>(x, y, width);
  cudaDeviceSynchronize();
#elif VARIANT == 14  // half
  const int64_t half = rows / 2 * width;
  SOFTMAX(rows / 2, stream);
  softmax_rows<<<rows - rows / 2, kThreads>>>(x + half, y + half, width);
#elif VARIANT == 15  // copied
  softmax_rows<<<rows, kThreads, 0, stream>>>(x, side.copy, width);
  cudaStreamSynchronize(stream);
  cudaMemcpyAsync(y, side.copy, nbytes, cudaMemcpyDeviceToDevice, 0);
#elif VARIANT == 16  // scratch
  row_stats<<<rows, kThreads>>>(x, side.stats, width);
  finish_rows<<<rows, kThreads, 0, stream>>>(x, side.stats, y, width);
#elif VARIANT == 17 || VARIANT == 18  // graph-elsewhere, graph
  cudaGraph_t graph;
  cudaGraphExec_t made;
  cudaStreamBeginCapture(side.free, cudaStreamCaptureModeRelaxed);
  SOFTMAX(rows, side.free);
  cudaStreamEndCapture(side.free, &graph);
  cudaGraphInstantiate(&made, graph, 0);
  cudaGraphLaunch(made, VARIANT == 17 ? side.free : stream);
  cudaGraphDestroy(graph);
  if (VARIANT == 18) cudaGraphExecDestroy(made);
#elif VARIANT == 19 || VARIANT == 20  // cublas-elsewhere, cublas
  static cublasHandle_t handle = nullptr;
  if (!handle) cublasCreate(&handle);
  if (VARIANT == 20) cublasSetStream(handle, stream);
  softmax_rows<<<rows, kThreads, 0, stream>>>(x, side.copy, width);
  if (VARIANT == 19) cudaStreamSynchronize(stream);
  cublasScopy(handle, int(rows * width), side.copy, 1, y, 1);
#elif VARIANT == 21  // callback
  SOFTMAX(rows, side.free);
  cudaLaunchHostFunc(side.free, nothing, nullptr);
#elif VARIANT == 22  // dependent-launch
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(rows), config.blockDim = dim3(kThreads), config.stream = stream;
  config.attrs = &early, config.numAttrs = 1;
  cudaLaunchKernelEx(&config, softmax_rows, x, y, width);
#elif VARIANT == 23  // memset
  cudaMemset(y, 0, nbytes);
  SOFTMAX(rows, stream);
#elif VARIANT == 24  // thread-on-stream
  std::thread([=] { SOFTMAX(rows, stream); }).join();
#elif VARIANT == 25  // forked-synchronized
  cudaEventRecord(side.fork, stream), cudaStreamWaitEvent(side.free, side.fork, 0);
  SOFTMAX(rows, side.free);
  cudaStreamSynchronize(side.free);
#elif VARIANT == 26  // synchronized
  SOFTMAX(rows, stream);
  cudaStreamSynchronize(stream);
#endif
  (void)side, (void)nbytes, (void)nothing;
  CGINS_LAUNCH_CHECK();
  return 0;
}
