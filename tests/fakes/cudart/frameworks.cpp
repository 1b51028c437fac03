// Functions of the runtime that only PyTorch calls, and launches of kernels that the stand-in executes
// (declared_launch.h). It executes no other kernels.

#include <cuda_runtime_api.h>

#include <vector>

#include "tests/fakes/cudart/declared_launch.h"
#include "tests/fakes/cudart/refused.h"
#include "tests/fakes/cudart/stand_in.h"

using vdnn::Access;
using vdnn::CudaStatus;
using vdnn::CudaStream;
using vdnn::FakeAccesses;
using vdnn::FakeCuda;
using vdnn::stand_in::StandIn;

namespace {

StandIn& framework_cuda() {
  return StandIn::instance();
}

std::vector<Access> accesses_of(const vdnn_stand_in_range* ranges, std::size_t count) {
  std::vector<Access> accesses;
  for (std::size_t i = 0; i < count; ++i) {
    if (ranges[i].bytes != 0) {
      accesses.push_back(
          {.range = {.begin = reinterpret_cast<std::uintptr_t>(ranges[i].begin), .bytes = ranges[i].bytes}});
    }
  }
  return accesses;
}

cudaError_t launch_on(std::string_view call, cudaStream_t stream, const std::function<void()>& work,
                      const FakeAccesses& accesses) {
  return framework_cuda().call(call, [&] {
    const CudaStream mine = framework_cuda().find(stream);
    return mine == nullptr ? CudaStatus::kInvalidResourceHandle : FakeCuda::launch(mine, work, accesses);
  });
}

}  // namespace

int vdnn::stand_in::refuse(const char* name) {
  return framework_cuda().call(name, [] { return CudaStatus::kNotSupported; });
}

extern "C" {

cudaError_t cudaStandInLaunch(cudaStream_t stream, const char* name, void (*kernel)(void*), void* data,
                              const vdnn_stand_in_range* reads, std::size_t read_count,
                              const vdnn_stand_in_range* writes, std::size_t write_count) {
  const std::vector<Access> read = accesses_of(reads, read_count);
  const std::vector<Access> written = accesses_of(writes, write_count);
  return launch_on("cudaStandInLaunch", stream, [kernel, data] { kernel(data); },
                   {.name = name, .reads = read, .writes = written});
}

// --- work on streams
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return launch_on("cudaLaunchHostFunc", stream, [function, data] { function(data); },
                   {.name = "a host function"});
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
  return launch_on("cudaStreamAddCallback", stream, [=] { function(stream, cudaSuccess, data); },
                   {.name = "a callback"});
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaMemcpyPeerAsync(void* destination, int, const void* source, int, std::size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream);
}
cudaError_t cudaMemcpy2DAsync(void* destination, std::size_t destination_pitch, const void* source,
                              std::size_t source_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  for (std::size_t row = 0; row < height && error == cudaSuccess; ++row) {
    error = cudaMemcpyAsync(static_cast<char*>(destination) + row * destination_pitch,
                            static_cast<const char*>(source) + row * source_pitch, width, kind, stream);
  }
  return error;
}

// --- streams and events
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return framework_cuda().call("cudaDeviceGetStreamPriorityRange", [&] {
    *least = 0;
    *greatest = vdnn::stand_in::kGreatestPriority;
    return CudaStatus::kSuccess;
  });
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return framework_cuda().call("cudaStreamGetPriority",
                               [&] { return framework_cuda().priority_of(stream, *priority); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return flags == cudaEventRecordDefault
             ? cudaEventRecord(event, stream)
             : static_cast<cudaError_t>(vdnn::stand_in::refuse("cudaEventRecordWithFlags"));
}
#if CUDART_VERSION >= 13000
// Reports that there is a capture, but not its contents.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t*) {
  const cudaError_t error = cudaStreamIsCapturing(stream, status);
  if (error != cudaSuccess || *status == cudaStreamCaptureStatusNone || id == nullptr) {
    return error;
  }
  return static_cast<cudaError_t>(vdnn::stand_in::refuse("cudaStreamGetCaptureInfo"));
}
#endif

// --- kernels and profilers
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared_bytes,
                                                                cudaOccupancyDefault);
}
cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}

}  // extern "C"
