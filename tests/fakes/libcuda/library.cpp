// CUDA's driver for programs that know nothing of vdnn: libcuda.so.1 over the same fake as the stand-in
// runtime (tests/fakes/cudart/stand_in.h), whose calls do the work. Error numbers, handles and arguments are
// the same in both. The driver adds contexts: without a context, or with a destroyed one, its calls fail.

#include <cuda.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "tests/fakes/cudart/stand_in.h"

// CUDA's headers declare these only in programs compiled for per-thread default streams.
extern "C" {
cudaError_t cudaMallocAsync_ptsz(void** address, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void* address, cudaStream_t stream);
}

namespace {

using vdnn::CudaStatus;
using vdnn::stand_in::StandIn;

StandIn& cuda() {
  return StandIn::instance();
}

// The handle of a context is its address.
struct Context {
  int ordinal = 0;
  bool lives = true;
  int references = 0;  // of a primary context
};

Context* context_of(CUcontext handle) {
  return reinterpret_cast<Context*>(handle);
}

CUcontext handle_of(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}

// The contexts of a thread. The type is trivial to destroy, because programs call the driver after their
// threads' own objects are gone.
struct Stack {
  std::array<Context*, 16> contexts{};
  std::size_t count = 0;

  Context*& top() { return contexts.at(count - 1); }
  void push(Context* context) { contexts.at(count++) = context; }
  void pop() { --count; }
};

class Contexts {
 public:
  static Contexts& instance() {
    static auto* const instance = new Contexts;
    return *instance;
  }

  Context* make(int ordinal) {
    const std::lock_guard lock(mutex_);
    return &all_.emplace_back(Context{.ordinal = ordinal});
  }
  Context* retain_primary(int ordinal) {
    const std::lock_guard lock(mutex_);
    Context*& mine = primary_[ordinal];
    if (mine == nullptr) {
      mine = &all_.emplace_back(Context{.ordinal = ordinal});
    }
    ++mine->references;
    return mine;
  }
  bool release_primary(int ordinal) {
    const std::lock_guard lock(mutex_);
    Context*& mine = primary_[ordinal];
    if (mine == nullptr) {
      return false;
    }
    if (--mine->references == 0) {
      end(mine);
    }
    return true;
  }
  bool has_primary(int ordinal) {
    const std::lock_guard lock(mutex_);
    return primary_[ordinal] != nullptr;
  }
  // A thread for which the context is current then has a destroyed context. Each retain still requires a
  // release.
  void reset_primary(int ordinal) {
    const std::lock_guard lock(mutex_);
    Context*& mine = primary_[ordinal];
    const int references = mine == nullptr ? 0 : mine->references;
    if (mine != nullptr) {
      end(mine);
    }
    if (references != 0) {
      mine = &all_.emplace_back(Context{.ordinal = ordinal, .references = references});
    }
  }

  static Stack& of_thread() {
    thread_local Stack stack;
    return stack;
  }
  static Context* current() { return of_thread().count == 0 ? nullptr : of_thread().top(); }

 private:
  static void end(Context*& context) { std::exchange(context, nullptr)->lives = false; }

  std::mutex mutex_;  // guards all members below
  std::deque<Context> all_;
  std::map<int, Context*> primary_;
};

// Sets the thread's GPU to the GPU of its context.
CUresult follow() {
  Context* const mine = Contexts::current();
  return mine == nullptr
             ? CUDA_SUCCESS
             : static_cast<CUresult>(cuda().quietly([&] { return cuda().fake().set_device(mine->ordinal); }));
}

CUresult context_error() {
  const Context* const mine = Contexts::current();
  if (mine == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return mine->lives ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// The runtime's call of that name, within a context.
template <auto kCall>
struct InContext;

template <class... Arguments, cudaError_t (*kCall)(Arguments...)>
struct InContext<kCall> {
  static CUresult call(Arguments... arguments) {
    const CUresult error = context_error();
    return error == CUDA_SUCCESS ? static_cast<CUresult>(kCall(arguments...)) : error;
  }
};

template <auto kCall>
void* in_context() {
  return reinterpret_cast<void*>(InContext<kCall>::call);
}

template <class Function>
void* pointer(Function* function) {
  return reinterpret_cast<void*>(function);
}

// --- contexts

bool exists(CUdevice device) {
  vdnn::CudaDeviceInfo info;
  return cuda().quietly([&] { return cuda().fake().device_info(info, device); }) == CudaStatus::kSuccess;
}

CUresult primary_retain(CUcontext* context, CUdevice device) {
  return static_cast<CUresult>(cuda().call("cuDevicePrimaryCtxRetain", [&] {
    *context = handle_of(Contexts::instance().retain_primary(device));
    return CudaStatus::kSuccess;
  }));
}

CUresult primary_release(CUdevice device) {
  return Contexts::instance().release_primary(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult primary_state(CUdevice device, unsigned* flags, int* active) {
  return static_cast<CUresult>(cuda().call("cuDevicePrimaryCtxGetState", [&] {
    *flags = 0;
    *active = Contexts::instance().has_primary(device) ? 1 : 0;
    return CudaStatus::kSuccess;
  }));
}

CUresult primary_reset(CUdevice device) {
  return static_cast<CUresult>(cuda().call("cuDevicePrimaryCtxReset", [&] {
    const int before = cuda().ordinal();
    cuda().fake().set_device(device);
    const CudaStatus status = cuda().reset();
    cuda().fake().set_device(before);
    if (status == CudaStatus::kSuccess) {
      Contexts::instance().reset_primary(device);
    }
    return status;
  }));
}

CUresult create_context(CUcontext* context, unsigned, CUdevice device) {
  *context = handle_of(Contexts::instance().make(device));
  Contexts::of_thread().push(context_of(*context));
  return follow();
}

CUresult destroy_context(CUcontext context) {
  context_of(context)->lives = false;
  if (Contexts::current() == context_of(context)) {
    Contexts::of_thread().pop();
  }
  return follow();
}

CUresult current_context(CUcontext* context) {
  *context = handle_of(Contexts::current());
  return CUDA_SUCCESS;
}

CUresult set_context(CUcontext context) {
  return static_cast<CUresult>(cuda().call("cuCtxSetCurrent", [&] {
    if (Contexts::current() != nullptr) {
      Contexts::of_thread().pop();
    }
    if (context != nullptr) {
      Contexts::of_thread().push(context_of(context));
      return cuda().fake().set_device(context_of(context)->ordinal);
    }
    return CudaStatus::kSuccess;
  }));
}

CUresult push_context(CUcontext context) {
  return static_cast<CUresult>(cuda().call("cuCtxPushCurrent", [&] {
    Contexts::of_thread().push(context_of(context));
    return cuda().fake().set_device(context_of(context)->ordinal);
  }));
}

// This call never fails on request: a program has no other way to remove a context that it pushed.
CUresult pop_context(CUcontext* context) {
  if (Contexts::current() == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = handle_of(Contexts::current());
  Contexts::of_thread().pop();
  return follow();
}

CUresult context_device(CUdevice* device) {
  const CUresult error = context_error();
  if (error == CUDA_SUCCESS) {
    *device = Contexts::current()->ordinal;
  }
  return error;
}

CUresult enable_peer_access(CUcontext peer, unsigned flags) {
  return static_cast<CUresult>(cudaDeviceEnablePeerAccess(context_of(peer)->ordinal, flags));
}

// --- queries that the runtime answers differently

CUresult init(unsigned) {
  return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return exists(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult error_name(CUresult result, const char** name) {
  *name = cudaGetErrorName(static_cast<cudaError_t>(result));
  return CUDA_SUCCESS;
}

// The contexts of streams that the driver has created.
std::map<CUstream, Context*>& contexts_of_streams() {
  static auto* const contexts = new std::map<CUstream, Context*>;
  return *contexts;
}

CUresult create_stream(CUstream* stream, unsigned flags) {
  const CUresult result = InContext<cudaStreamCreateWithFlags>::call(stream, flags);
  if (result == CUDA_SUCCESS) {
    cuda().quietly([&] { return contexts_of_streams()[*stream] = Contexts::current(); });
  }
  return result;
}

CUresult stream_context(CUstream stream, CUcontext* context) {
  return static_cast<CUresult>(cuda().call("cuStreamGetCtx", [&] {
    const auto found = contexts_of_streams().find(stream);
    *context = handle_of(found == contexts_of_streams().end() ? Contexts::current() : found->second);
    return cuda().find(stream) == nullptr ? CudaStatus::kInvalidResourceHandle : CudaStatus::kSuccess;
  }));
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  cudaPointerAttributes found{};
  const cudaError_t error = cudaPointerGetAttributes(&found, vdnn::pointer_to<void>(address));
  *static_cast<int*>(data) = found.device;
  return static_cast<CUresult>(error);
}

cudaError_t copy_async(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  return cudaMemcpyAsync(vdnn::pointer_to<void>(destination), vdnn::pointer_to<void>(source), bytes,
                         cudaMemcpyDefault, stream);
}
cudaError_t copy(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) {
  return cudaMemcpy(vdnn::pointer_to<void>(destination), vdnn::pointer_to<void>(source), bytes,
                    cudaMemcpyDefault);
}
cudaError_t set_async(CUdeviceptr destination, unsigned char value, std::size_t bytes, CUstream stream) {
  return cudaMemsetAsync(vdnn::pointer_to<void>(destination), value, bytes, stream);
}
cudaError_t set(CUdeviceptr destination, unsigned char value, std::size_t bytes) {
  return cudaMemset(vdnn::pointer_to<void>(destination), value, bytes);
}
cudaError_t launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   CUstream stream, void**, void**) {
  return cuda().call("cuLaunchKernel", [&] { return cuda().launch(stream); });
}

void* find(std::string_view name) {
  static const std::map<std::string_view, void*> functions {
    {"cuInit", pointer(init)}, {"cuDriverGetVersion", pointer(cudaDriverGetVersion)},
        {"cuGetErrorName", pointer(error_name)}, {"cuDeviceGet", pointer(device_get)},
        {"cuDeviceGetCount", pointer(cudaGetDeviceCount)},
        {"cuDeviceGetPCIBusId", pointer(cudaDeviceGetPCIBusId)},
        {"cuDeviceCanAccessPeer", pointer(cudaDeviceCanAccessPeer)},
        {"cuDevicePrimaryCtxRetain", pointer(primary_retain)},
        {"cuDevicePrimaryCtxRelease", pointer(primary_release)},
        {"cuDevicePrimaryCtxGetState", pointer(primary_state)},
        {"cuDevicePrimaryCtxReset", pointer(primary_reset)}, {"cuCtxCreate", pointer(create_context)},
        {"cuCtxDestroy", pointer(destroy_context)}, {"cuCtxGetCurrent", pointer(current_context)},
        {"cuCtxSetCurrent", pointer(set_context)}, {"cuCtxPushCurrent", pointer(push_context)},
        {"cuCtxPopCurrent", pointer(pop_context)}, {"cuCtxGetDevice", pointer(context_device)},
        {"cuCtxSynchronize", in_context<cudaDeviceSynchronize>()},
        {"cuCtxEnablePeerAccess", pointer(enable_peer_access)}, {"cuMemAlloc", in_context<cudaMalloc>()},
        {"cuMemFree", in_context<cudaFree>()}, {"cuMemAllocAsync", in_context<cudaMallocAsync>()},
        {"cuMemAllocAsync_ptsz", in_context<cudaMallocAsync_ptsz>()},
        {"cuMemFreeAsync", in_context<cudaFreeAsync>()},
        {"cuMemFreeAsync_ptsz", in_context<cudaFreeAsync_ptsz>()},
        {"cuMemHostAlloc", in_context<cudaHostAlloc>()}, {"cuMemAllocHost", in_context<cudaMallocHost>()},
        {"cuMemFreeHost", in_context<cudaFreeHost>()}, {"cuMemHostGetFlags", in_context<cudaHostGetFlags>()},
        {"cuMemHostRegister", in_context<cudaHostRegister>()},
        {"cuPointerGetAttribute", pointer(pointer_attribute)},
        {"cuMemHostUnregister", in_context<cudaHostUnregister>()},
        {"cuMemGetInfo", in_context<cudaMemGetInfo>()},
        {"cuIpcGetMemHandle", in_context<cudaIpcGetMemHandle>()}, {"cuMemcpy", in_context<copy>()},
        {"cuMemcpyAsync", in_context<copy_async>()}, {"cuMemsetD8", in_context<set>()},
        {"cuMemsetD8Async", in_context<set_async>()}, {"cuLaunchKernel", in_context<launch>()},
        {"cuStreamCreate", pointer(create_stream)}, {"cuStreamGetCtx", pointer(stream_context)},
        {"cuStreamDestroy", in_context<cudaStreamDestroy>()},
        {"cuStreamSynchronize", in_context<cudaStreamSynchronize>()},
        {"cuStreamQuery", in_context<cudaStreamQuery>()}, {"cuStreamGetId", in_context<cudaStreamGetId>()},
        {"cuStreamWaitEvent", in_context<cudaStreamWaitEvent>()},
        {"cuEventCreate", in_context<cudaEventCreateWithFlags>()},
        {"cuEventDestroy", in_context<cudaEventDestroy>()}, {"cuEventRecord", in_context<cudaEventRecord>()},
        {"cuEventQuery", in_context<cudaEventQuery>()},
        {"cuEventSynchronize", in_context<cudaEventSynchronize>()},
        {"cuEventElapsedTime", in_context<cudaEventElapsedTime>()},
        {"cuStreamBeginCapture", in_context<cudaStreamBeginCapture>()},
#if CUDA_VERSION >= 12030
        {"cuStreamBeginCaptureToGraph", in_context<cudaStreamBeginCaptureToGraph>()},
#endif
        {"cuStreamEndCapture", in_context<cudaStreamEndCapture>()},
        {"cuStreamIsCapturing", in_context<cudaStreamIsCapturing>()},
        {"cuThreadExchangeStreamCaptureMode", in_context<cudaThreadExchangeStreamCaptureMode>()},
        {"cuGraphInstantiateWithFlags", in_context<cudaGraphInstantiate>()},
        {"cuGraphLaunch", in_context<cudaGraphLaunch>()}, {"cuGraphDestroy", in_context<cudaGraphDestroy>()},
    {
      "cuGraphExecDestroy", in_context<cudaGraphExecDestroy>()
    }
  };
  const auto it = functions.find(name);
  return it == functions.end() ? vdnn::stand_in::find_driver_function(name) : it->second;
}

}  // namespace

#undef cuGetProcAddress  // both are defined here

extern "C" {

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags);
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* answer);

static void* look_up_of(int version) {
  return version < 12000 ? pointer(cuGetProcAddress) : pointer(cuGetProcAddress_v2);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* answer) {
  int of_driver = 0;
  if (cudaDriverGetVersion(&of_driver) != cudaSuccess || version > of_driver) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  void* found = per_thread ? find(std::string(symbol) + "_ptsz") : nullptr;
  if (found == nullptr) {
    found = symbol == std::string_view("cuGetProcAddress") ? look_up_of(version) : find(symbol);
  }
  *function = found;
  if (answer != nullptr) {
    *answer = found == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return CUDA_SUCCESS;  // even if `function` is null, which `answer` reports
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

// Functions that programs look up by the names that the library exports.
CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  return InContext<cudaMalloc>::call(reinterpret_cast<void**>(address), bytes);
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  return InContext<cudaFree>::call(vdnn::pointer_to<void>(address));
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  return InContext<cudaMallocAsync_ptsz>::call(reinterpret_cast<void**>(address), bytes, stream);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return InContext<cudaFreeAsync_ptsz>::call(vdnn::pointer_to<void>(address), stream);
}

}  // extern "C"
