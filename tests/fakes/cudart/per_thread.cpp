// The functions for programs compiled for per-thread default streams (CUDA_API_PER_THREAD_DEFAULT_STREAM,
// nvcc's --default-stream per-thread). The calls are the same, but stream 0 is the calling thread's.

#include <cuda_runtime_api.h>

#include <cstddef>

namespace {

cudaStream_t of_thread(cudaStream_t stream) {
  return stream == nullptr ? cudaStreamPerThread : stream;
}

}  // namespace

extern "C" {

// --- memory
cudaError_t cudaMallocAsync_ptsz(void** address, std::size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(address, bytes, of_thread(stream));
}
cudaError_t cudaFreeAsync_ptsz(void* address, cudaStream_t stream) {
  return cudaFreeAsync(address, of_thread(stream));
}
cudaError_t cudaMemcpyAsync_ptsz(void* destination, const void* source, std::size_t bytes,
                                 cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyAsync(destination, source, bytes, kind, of_thread(stream));
}
cudaError_t cudaMemsetAsync_ptsz(void* destination, int value, std::size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(destination, value, bytes, of_thread(stream));
}
cudaError_t cudaMemcpy_ptds(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(destination, source, bytes, kind, cudaStreamPerThread);
  return error == cudaSuccess ? cudaStreamSynchronize(cudaStreamPerThread) : error;
}
cudaError_t cudaMemset_ptds(void* destination, int value, std::size_t bytes) {
  return cudaMemsetAsync(destination, value, bytes, cudaStreamPerThread);
}

// --- streams and events
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return cudaStreamSynchronize(of_thread(stream));
}
cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) {
  return cudaStreamQuery(of_thread(stream));
}
cudaError_t cudaStreamGetFlags_ptsz(cudaStream_t stream, unsigned* flags) {
  return cudaStreamGetFlags(of_thread(stream), flags);
}
cudaError_t cudaStreamGetId_ptsz(cudaStream_t stream, unsigned long long* id) {
  return cudaStreamGetId(of_thread(stream), id);
}
cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return cudaStreamWaitEvent(of_thread(stream), event, flags);
}
cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, of_thread(stream));
}

// --- graphs
cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return cudaStreamBeginCapture(of_thread(stream), mode);
}
cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* graph) {
  return cudaStreamEndCapture(of_thread(stream), graph);
}
cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* answer) {
  return cudaStreamIsCapturing(of_thread(stream), answer);
}
cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t exec, cudaStream_t stream) {
  return cudaGraphLaunch(exec, of_thread(stream));
}
}  // extern "C"
