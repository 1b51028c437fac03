// The hooks in front of functions of CUDA's shared runtime.

#include "allocator/dropin/preload/preload.h"

namespace {

using vdnn::preload::Preload;

// The meaning of stream 0 in programs that are compiled for per-thread default streams.
cudaStream_t of_thread(cudaStream_t stream) {
  return stream == nullptr ? cudaStreamPerThread : stream;
}

// Preload itself catches what its pools throw and passes the call on to the runtime. This function turns any
// other exception into an error.
template <class Work>
cudaError_t with_preload(const Work& work) noexcept {
  try {
    Preload* const preload = Preload::of_runtime();
    return preload == nullptr ? cudaErrorInitializationError : work(*preload);
  } catch (...) {
    return cudaErrorUnknown;
  }
}

// Calls a function of the runtime that allocates. If there is no memory, the pools give back their free
// memory, and the function is called again. `name` is the function's name in the library.
template <class... Parameters, class... Arguments>
cudaError_t take_of_runtime(const char* name, cudaError_t (*)(Parameters...),
                            Arguments... arguments) noexcept {
  return with_preload([&](Preload& preload) {
    const auto next = reinterpret_cast<cudaError_t (*)(Parameters...)>(preload.next().find(name));
    return next == nullptr ? cudaErrorNotSupported : preload.with_memory([&] { return next(arguments...); });
  });
}

// Runs after the program's static objects are destroyed.
__attribute__((destructor)) void finish() {
  Preload::finish();
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return with_preload([&](Preload& preload) { return preload.allocate(address, bytes); });
}
cudaError_t cudaFree(void* address) {
  return with_preload([&](Preload& preload) { return preload.free(address); });
}
cudaError_t cudaMallocAsync(void** address, std::size_t bytes, cudaStream_t stream) {
  return with_preload([&](Preload& preload) { return preload.allocate(address, bytes, stream); });
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  return with_preload([&](Preload& preload) { return preload.free(address, stream); });
}
// CUDA declares functions with the suffix _ptsz only for programs that are compiled for per-thread default
// streams.
cudaError_t cudaMallocAsync_ptsz(void** address, std::size_t bytes, cudaStream_t stream) {
  return with_preload([&](Preload& preload) { return preload.allocate(address, bytes, of_thread(stream)); });
}
cudaError_t cudaFreeAsync_ptsz(void* address, cudaStream_t stream) {
  return with_preload([&](Preload& preload) { return preload.free(address, of_thread(stream)); });
}
cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return with_preload(
      [&](Preload& preload) { return preload.allocate_host(address, bytes, cudaHostAllocDefault); });
}
cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  return with_preload([&](Preload& preload) { return preload.allocate_host(address, bytes, flags); });
}
cudaError_t cudaMallocManaged(void** address, std::size_t bytes, unsigned flags) {
  return take_of_runtime("cudaMallocManaged", cudaMallocManaged, address, bytes, flags);
}
cudaError_t cudaMallocPitch(void** address, std::size_t* pitch, std::size_t width, std::size_t height) {
  return take_of_runtime("cudaMallocPitch", cudaMallocPitch, address, pitch, width, height);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* memory, cudaExtent extent) {
  return take_of_runtime("cudaMalloc3D", cudaMalloc3D, memory, extent);
}
cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* format, std::size_t width,
                            std::size_t height, unsigned flags) {
  return take_of_runtime("cudaMallocArray", cudaMallocArray, array, format, width, height, flags);
}
cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* format, cudaExtent extent,
                              unsigned flags) {
  return take_of_runtime("cudaMalloc3DArray", cudaMalloc3DArray, array, format, extent, flags);
}
cudaError_t cudaMallocFromPoolAsync(void** address, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return take_of_runtime("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync, address, bytes, pool, stream);
}
cudaError_t cudaMallocFromPoolAsync_ptsz(void** address, std::size_t bytes, cudaMemPool_t pool,
                                         cudaStream_t stream) {
  return cudaMallocFromPoolAsync(address, bytes, pool, of_thread(stream));
}
cudaError_t cudaFreeHost(void* address) {
  return with_preload([&](Preload& preload) { return preload.free_host(address); });
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return with_preload([&](Preload& preload) { return preload.memory_info(free, total); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return with_preload([&](Preload& preload) { return preload.destroy_stream(stream); });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return with_preload([&](Preload& preload) { return preload.begin_capture(stream, mode); });
}
cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return with_preload([&](Preload& preload) { return preload.begin_capture(of_thread(stream), mode); });
}
#if CUDART_VERSION >= 12030  // the first version that declares this function
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* after, const cudaGraphEdgeData* edges,
                                          std::size_t count, cudaStreamCaptureMode mode) {
  return with_preload([&](Preload& preload) {
    const auto next = reinterpret_cast<decltype(&::cudaStreamBeginCaptureToGraph)>(
        preload.next().find("cudaStreamBeginCaptureToGraph"));
    return next == nullptr ? cudaErrorNotSupported : preload.begin_capture(stream, [&] {
      return next(stream, graph, after, edges, count, mode);
    });
  });
}
cudaError_t cudaStreamBeginCaptureToGraph_ptsz(cudaStream_t stream, cudaGraph_t graph,
                                               const cudaGraphNode_t* after, const cudaGraphEdgeData* edges,
                                               std::size_t count, cudaStreamCaptureMode mode) {
  return cudaStreamBeginCaptureToGraph(of_thread(stream), graph, after, edges, count, mode);
}
#endif
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return with_preload([&](Preload& preload) { return preload.end_capture(stream, graph); });
}
cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* graph) {
  return with_preload([&](Preload& preload) { return preload.end_capture(of_thread(stream), graph); });
}
cudaError_t cudaDeviceReset() {
  return with_preload([&](Preload& preload) { return preload.reset_device(); });
}
// Another name for cudaDeviceReset(), in CUDA 12 and earlier.
cudaError_t cudaThreadExit() {
  return cudaDeviceReset();
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  return with_preload([&](Preload& preload) { return preload.ipc_handle(handle, address); });
}

}  // extern "C"
