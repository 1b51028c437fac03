// CUDA's runtime inside a program that knows nothing of vdnn. Like the toolkit's static runtime, it opens
// libcuda.so.1, looks up cuGetProcAddress_v2 in it with dlsym(), and everything else with that function. Each
// call runs within the primary context of the thread's GPU. The toolkit's own runtime does not run on a
// machine without a GPU: it also requires undocumented tables from the driver.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tests/fakes/cudart/launch.h"

namespace {

using LookUp = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

class Driver {
 public:
  static Driver& instance() {
    static auto* const instance = new Driver;
    return *instance;
  }

  void* find(const std::string& name, int version, cuuint64_t flags) {
    const std::lock_guard lock(mutex_);
    void*& found = found_[{name, flags}];
    if (found == nullptr) {
      CUdriverProcAddressQueryResult answer = CU_GET_PROC_ADDRESS_SUCCESS;
      if (look_up_(name.c_str(), &found, version, flags, &answer) != CUDA_SUCCESS || found == nullptr) {
        std::fprintf(stderr, "static runtime: the driver has no %s\n", name.c_str());
        std::abort();
      }
    }
    return found;
  }

 private:
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    look_up_ = library == nullptr ? nullptr : reinterpret_cast<LookUp>(dlsym(library, "cuGetProcAddress_v2"));
    if (look_up_ == nullptr) {
      std::fprintf(stderr, "static runtime: %s\n", dlerror());
      std::abort();
    }
  }

  LookUp look_up_ = nullptr;
  std::mutex mutex_;  // guards what follows
  std::map<std::pair<std::string, cuuint64_t>, void*> found_;
};

thread_local cudaError_t last_error = cudaSuccess;
thread_local int gpu = 0;

cudaError_t finish(CUresult result) {
  const auto error = static_cast<cudaError_t>(result);
  if (error != cudaSuccess && error != cudaErrorNotReady) {
    last_error = error;
  }
  return error;
}

// The version whose signatures these calls use. Functions without a known version are looked up as the
// newest.
constexpr int kVersion = CUDA_VERSION;

template <class... Arguments>
CUresult ask(const char* name, cuuint64_t flags, Arguments... arguments) {
  using Function = CUresult (*)(Arguments...);
  return reinterpret_cast<Function>(Driver::instance().find(name, kVersion, flags))(arguments...);
}

CUresult enter_once() {
  CUcontext context = nullptr;
  const CUresult result = ask("cuDevicePrimaryCtxRetain", 0, &context, gpu);
  return result == CUDA_SUCCESS ? ask("cuCtxSetCurrent", 0, context) : result;
}

// Random failures are meant for the program's calls, so a call made here is repeated if it fails.
CUresult enter() {
  CUresult result = enter_once();
  for (int again = 0; again < 20 && result == CUDA_ERROR_OPERATING_SYSTEM; ++again) {
    result = enter_once();
  }
  return result;
}

template <class... Arguments>
cudaError_t driver(const char* name, Arguments... arguments) {
  const CUresult result = enter();
  return finish(result == CUDA_SUCCESS ? ask(name, CU_GET_PROC_ADDRESS_LEGACY_STREAM, arguments...) : result);
}

// Like driver(), for programs compiled for per-thread default streams.
template <class... Arguments>
cudaError_t driver_per_thread(const char* name, Arguments... arguments) {
  const CUresult result = enter();
  return finish(result == CUDA_SUCCESS
                    ? ask(name, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, arguments...)
                    : result);
}

cudaStream_t of_thread(cudaStream_t stream) {
  return stream == nullptr ? cudaStreamPerThread : stream;
}

CUdeviceptr number(const void* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

CUdeviceptr* number(void** address) {
  return reinterpret_cast<CUdeviceptr*>(address);
}

}  // namespace

namespace vdnn::stand_in {

cudaError_t launch(cudaStream_t stream) {
  void** const none = nullptr;
  return driver("cuLaunchKernel", CUfunction{}, 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream, none, none);
}

}  // namespace vdnn::stand_in

extern "C" {

// --- errors
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t error) {
  const char* name = nullptr;
  ask("cuGetErrorName", 0, static_cast<CUresult>(error), &name);
  return name;
}

// --- devices
cudaError_t cudaGetDeviceCount(int* count) {
  return finish(ask("cuDeviceGetCount", 0, count));
}
cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = gpu;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  CUdevice device = 0;
  const cudaError_t error = finish(ask("cuDeviceGet", 0, &device, ordinal));
  gpu = error == cudaSuccess ? ordinal : gpu;
  return error;
}
cudaError_t cudaDeviceSynchronize() {
  return driver("cuCtxSynchronize");
}
cudaError_t cudaDeviceReset() {
  return finish(ask("cuDevicePrimaryCtxReset", 0, gpu));
}

// --- memory
cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return driver("cuMemAlloc", number(address), bytes);
}
cudaError_t cudaFree(void* address) {
  return driver("cuMemFree", number(address));
}
cudaError_t cudaMallocAsync(void** address, std::size_t bytes, cudaStream_t stream) {
  return driver("cuMemAllocAsync", number(address), bytes, stream);
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  return driver("cuMemFreeAsync", number(address), stream);
}
cudaError_t cudaMallocAsync_ptsz(void** address, std::size_t bytes, cudaStream_t stream) {
  return driver_per_thread("cuMemAllocAsync", number(address), bytes, stream);
}
cudaError_t cudaFreeAsync_ptsz(void* address, cudaStream_t stream) {
  return driver_per_thread("cuMemFreeAsync", number(address), stream);
}
cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return driver("cuMemHostAlloc", address, bytes, 0U);
}
cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  return driver("cuMemHostAlloc", address, bytes, flags);
}
cudaError_t cudaFreeHost(void* address) {
  return driver("cuMemFreeHost", address);
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* address) {
  return driver("cuMemHostGetFlags", flags, address);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return driver("cuMemGetInfo", free, total);
}
// Supports only device memory.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  attributes->type = cudaMemoryTypeDevice;
  return driver("cuPointerGetAttribute", static_cast<void*>(&attributes->device),
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, number(address));
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  return driver("cuIpcGetMemHandle", reinterpret_cast<CUipcMemHandle*>(handle), number(address));
}
cudaError_t cudaMemcpy(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind) {
  return driver("cuMemcpy", number(destination), number(source), bytes);
}
cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return driver("cuMemcpyAsync", number(destination), number(source), bytes, stream);
}
cudaError_t cudaMemset(void* destination, int value, std::size_t bytes) {
  return driver("cuMemsetD8", number(destination), static_cast<unsigned char>(value), bytes);
}
cudaError_t cudaMemsetAsync(void* destination, int value, std::size_t bytes, cudaStream_t stream) {
  return driver("cuMemsetD8Async", number(destination), static_cast<unsigned char>(value), bytes, stream);
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

// --- streams and events
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return driver("cuStreamCreate", stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return driver("cuStreamDestroy", stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return driver("cuStreamSynchronize", stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return driver("cuStreamWaitEvent", stream, event, flags);
}
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return cudaStreamSynchronize(of_thread(stream));
}
cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return cudaStreamWaitEvent(of_thread(stream), event, flags);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return driver("cuEventCreate", event, flags);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return driver("cuEventDestroy", event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return driver("cuEventRecord", event, stream);
}
cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, of_thread(stream));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return driver("cuEventSynchronize", event);
}

// --- graphs
#if CUDART_VERSION >= 12030
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* after, const cudaGraphEdgeData* edges,
                                          std::size_t count, cudaStreamCaptureMode mode) {
  return driver("cuStreamBeginCaptureToGraph", stream, graph, after, edges, count,
                static_cast<CUstreamCaptureMode>(mode));
}
#endif
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return driver("cuStreamBeginCapture", stream, static_cast<CUstreamCaptureMode>(mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return driver("cuStreamEndCapture", stream, graph);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return driver("cuThreadExchangeStreamCaptureMode", reinterpret_cast<CUstreamCaptureMode*>(mode));
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return driver("cuGraphInstantiateWithFlags", exec, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return driver("cuGraphLaunch", exec, stream);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return driver("cuGraphDestroy", graph);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return driver("cuGraphExecDestroy", exec);
}

}  // extern "C"
