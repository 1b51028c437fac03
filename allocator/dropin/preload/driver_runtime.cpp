#include "allocator/dropin/preload/driver_runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "streams/cuda/cuda_runtime_table.h"

namespace vdnn::preload {

namespace {

static_assert(static_cast<int>(CU_GET_PROC_ADDRESS_SUCCESS) == cudaDriverEntryPointSuccess);
static_assert(static_cast<int>(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) == cudaDriverEntryPointSymbolNotFound);
static_assert(static_cast<int>(CU_STREAM_CAPTURE_STATUS_ACTIVE) == cudaStreamCaptureStatusActive);
static_assert(static_cast<int>(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == cudaStreamCaptureModeThreadLocal);
static_assert(static_cast<int>(CU_STREAM_CAPTURE_MODE_RELAXED) == cudaStreamCaptureModeRelaxed);
static_assert(static_cast<int>(CU_STREAM_NON_BLOCKING) == cudaStreamNonBlocking);
static_assert(static_cast<int>(CU_EVENT_BLOCKING_SYNC) == cudaEventBlockingSync);
static_assert(static_cast<int>(CU_EVENT_DISABLE_TIMING) == cudaEventDisableTiming);
static_assert(CU_MEMHOSTREGISTER_PORTABLE == cudaHostRegisterPortable);
static_assert(CU_MEMHOSTALLOC_PORTABLE == cudaHostAllocPortable);
static_assert(CU_MEMHOSTALLOC_DEVICEMAP == cudaHostAllocMapped);
static_assert(CU_MEMHOSTALLOC_WRITECOMBINED == cudaHostAllocWriteCombined);
static_assert(sizeof(CUipcMemHandle) == sizeof(cudaIpcMemHandle_t));

constexpr std::size_t kGpus = 64;  // more than CUDA shows a process

struct Process {
  std::atomic<const DriverTable*> driver = nullptr;
  std::array<std::atomic<CUcontext>, kGpus> primary{};  // null: not retained yet, or reset since
};

Process& process() {
  static Process the_process;
  return the_process;
}

// Null if there is no such GPU.
std::atomic<CUcontext>* kept_context(int ordinal) {
  return ordinal < 0 || ordinal >= static_cast<int>(kGpus)
             ? nullptr
             : &process().primary.at(static_cast<std::size_t>(ordinal));
}

const DriverTable& cu() {
  return *process().driver;
}

cudaError_t runtime(CUresult result) {
  return static_cast<cudaError_t>(result);
}

// Converts an argument of the runtime to the driver's type: the driver's addresses are numbers.
template <class To, class From>
To as(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_enum_v<To>) {
    return static_cast<To>(value);
  } else {
    return reinterpret_cast<To>(value);
  }
}

// A function of the runtime that only calls one member of the driver's table.
template <auto kMember, class RuntimeFunction>
struct Forward;

template <auto kMember, class... Arguments>
struct Forward<kMember, cudaError_t (*)(Arguments...)> {
  static cudaError_t forward(Arguments... arguments) { return pass(cu().*kMember, arguments...); }

 private:
  template <class... Taken>
  static cudaError_t pass(CUresult (*function)(Taken...), Arguments... arguments) {
    return runtime(function(as<Taken>(arguments)...));
  }
};

cudaError_t set_device(int ordinal) {
  CUcontext context = nullptr;
  const CUresult result = primary_context(context, ordinal);
  return runtime(result == CUDA_SUCCESS ? cu().cuCtxSetCurrent(context) : result);
}

// As in the runtime, a thread without a context uses the first GPU.
cudaError_t get_device(int* ordinal) {
  if (current_context() == nullptr) {
    *ordinal = 0;
    return cudaSuccess;
  }
  return runtime(cu().cuCtxGetDevice(ordinal));
}

cudaError_t enable_peer_access(int peer, unsigned flags) {
  CUcontext context = nullptr;
  const CUresult result = primary_context(context, peer);
  return runtime(result == CUDA_SUCCESS ? cu().cuCtxEnablePeerAccess(context, flags) : result);
}

cudaError_t reset_device() {
  int ordinal = 0;
  if (const cudaError_t error = get_device(&ordinal); error != cudaSuccess) {
    return error;
  }
  forget_primary_context(ordinal);
  return runtime(cu().cuDevicePrimaryCtxReset(ordinal));
}

const char* error_name(cudaError_t error) {
  const char* name = nullptr;
  return cu().cuGetErrorName(static_cast<CUresult>(error), &name) == CUDA_SUCCESS ? name : "unknown error";
}

cudaError_t runtime_version(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t find_in_driver(const char* symbol, void** function, unsigned version, unsigned long long flags,
                           cudaDriverEntryPointQueryResult* answer) {
  auto found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult result = cu().cuGetProcAddress(symbol, function, static_cast<int>(version), flags, &found);
  if (answer != nullptr) {
    *answer = static_cast<cudaDriverEntryPointQueryResult>(found);
  }
  return runtime(result);
}

// The driver keeps no last error.
cudaError_t last_error() {
  return cudaSuccess;
}

cudaError_t copy_async(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind,
                       cudaStream_t stream) {
  return runtime(cu().cuMemcpyAsync(reinterpret_cast<std::uintptr_t>(destination),
                                    reinterpret_cast<std::uintptr_t>(source), bytes, stream));
}

struct Entry {
  const char* name;
  void* function;
};

template <auto kMember, class RuntimeFunction>
Entry forwarded(const char* name) {
  return {name, reinterpret_cast<void*>(Forward<kMember, RuntimeFunction>::forward)};
}

template <class RuntimeFunction>
Entry own(const char* name, RuntimeFunction function) {
  return {name, reinterpret_cast<void*>(function)};
}

#define VDNN_PRELOAD_FORWARDED(call, driver_call) \
  forwarded<&DriverTable::driver_call, decltype(&::call)>(#call)
#define VDNN_PRELOAD_OWN(call, function) own<decltype(&::call)>(#call, function)

// Static in a function, since another library may look up CUDA before this library's static objects are
// constructed.
const auto& entries() {
  static const std::array all = {
      VDNN_PRELOAD_FORWARDED(cudaDeviceCanAccessPeer, cuDeviceCanAccessPeer),
      VDNN_PRELOAD_FORWARDED(cudaDeviceGetPCIBusId, cuDeviceGetPCIBusId),
      VDNN_PRELOAD_FORWARDED(cudaDeviceSynchronize, cuCtxSynchronize),
      VDNN_PRELOAD_FORWARDED(cudaDriverGetVersion, cuDriverGetVersion),
      VDNN_PRELOAD_FORWARDED(cudaEventCreateWithFlags, cuEventCreate),
      VDNN_PRELOAD_FORWARDED(cudaEventDestroy, cuEventDestroy),
      VDNN_PRELOAD_FORWARDED(cudaEventElapsedTime, cuEventElapsedTime),
      VDNN_PRELOAD_FORWARDED(cudaEventQuery, cuEventQuery),
      VDNN_PRELOAD_FORWARDED(cudaEventRecord, cuEventRecord),
      VDNN_PRELOAD_FORWARDED(cudaEventSynchronize, cuEventSynchronize),
      VDNN_PRELOAD_FORWARDED(cudaFree, cuMemFree),
      VDNN_PRELOAD_FORWARDED(cudaFreeAsync, cuMemFreeAsync),
      VDNN_PRELOAD_FORWARDED(cudaFreeHost, cuMemFreeHost),
      VDNN_PRELOAD_FORWARDED(cudaGetDeviceCount, cuDeviceGetCount),
      VDNN_PRELOAD_FORWARDED(cudaGraphDestroy, cuGraphDestroy),
      VDNN_PRELOAD_FORWARDED(cudaGraphExecDestroy, cuGraphExecDestroy),
      VDNN_PRELOAD_FORWARDED(cudaGraphInstantiate, cuGraphInstantiateWithFlags),
      VDNN_PRELOAD_FORWARDED(cudaGraphLaunch, cuGraphLaunch),
      VDNN_PRELOAD_FORWARDED(cudaHostAlloc, cuMemHostAlloc),
      VDNN_PRELOAD_FORWARDED(cudaHostRegister, cuMemHostRegister),
      VDNN_PRELOAD_FORWARDED(cudaHostUnregister, cuMemHostUnregister),
      VDNN_PRELOAD_FORWARDED(cudaIpcGetMemHandle, cuIpcGetMemHandle),
      VDNN_PRELOAD_FORWARDED(cudaMalloc, cuMemAlloc),
      VDNN_PRELOAD_FORWARDED(cudaMallocAsync, cuMemAllocAsync),
      VDNN_PRELOAD_FORWARDED(cudaMemGetInfo, cuMemGetInfo),
      VDNN_PRELOAD_FORWARDED(cudaStreamBeginCapture, cuStreamBeginCapture),
      VDNN_PRELOAD_FORWARDED(cudaStreamCreateWithFlags, cuStreamCreate),
      VDNN_PRELOAD_FORWARDED(cudaStreamDestroy, cuStreamDestroy),
      VDNN_PRELOAD_FORWARDED(cudaStreamEndCapture, cuStreamEndCapture),
      VDNN_PRELOAD_FORWARDED(cudaStreamGetId, cuStreamGetId),
      VDNN_PRELOAD_FORWARDED(cudaStreamIsCapturing, cuStreamIsCapturing),
      VDNN_PRELOAD_FORWARDED(cudaStreamQuery, cuStreamQuery),
      VDNN_PRELOAD_FORWARDED(cudaStreamSynchronize, cuStreamSynchronize),
      VDNN_PRELOAD_FORWARDED(cudaStreamWaitEvent, cuStreamWaitEvent),
      VDNN_PRELOAD_FORWARDED(cudaThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode),
      VDNN_PRELOAD_OWN(cudaDeviceEnablePeerAccess, enable_peer_access),
      VDNN_PRELOAD_OWN(cudaDeviceReset, reset_device),
      VDNN_PRELOAD_OWN(cudaGetDevice, get_device),
      own<cuda::FindInDriverByVersion>("cudaGetDriverEntryPointByVersion", find_in_driver),
      VDNN_PRELOAD_OWN(cudaGetErrorName, error_name),
      VDNN_PRELOAD_OWN(cudaGetLastError, last_error),
      VDNN_PRELOAD_OWN(cudaMemcpyAsync, copy_async),
      VDNN_PRELOAD_OWN(cudaPeekAtLastError, last_error),
      VDNN_PRELOAD_OWN(cudaRuntimeGetVersion, runtime_version),
      VDNN_PRELOAD_OWN(cudaSetDevice, set_device),
  };
  return all;
}
#undef VDNN_PRELOAD_OWN
#undef VDNN_PRELOAD_FORWARDED

}  // namespace

void set_driver(const DriverTable& driver) {
  static std::mutex mutex;
  static DriverTable table;
  const std::lock_guard lock(mutex);
  if (process().driver == nullptr) {
    table = driver;
    process().driver = &table;
  }
}

const DriverTable* driver() {
  return process().driver;
}

void* find_in_driver_runtime(const char* name) {
  const auto& all = entries();
  const auto* const found =
      std::ranges::find_if(all, [&](const Entry& entry) { return std::strcmp(entry.name, name) == 0; });
  return found == all.end() ? nullptr : found->function;
}

CUcontext current_context() {
  CUcontext context = nullptr;
  return cu().cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

CUresult primary_context(CUcontext& context, int ordinal) {
  std::atomic<CUcontext>* const kept = kept_context(ordinal);
  if (kept == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  context = *kept;
  if (context != nullptr) {
    return CUDA_SUCCESS;
  }
  const CUresult result = cu().cuDevicePrimaryCtxRetain(&context, ordinal);
  CUcontext none = nullptr;
  if (result == CUDA_SUCCESS && !kept->compare_exchange_strong(none, context)) {
    cu().cuDevicePrimaryCtxRelease(ordinal);  // another thread has set it first
  }
  return result;
}

bool is_primary(CUcontext context, int ordinal) {
  const std::atomic<CUcontext>* const kept = kept_context(ordinal);
  if (kept != nullptr && *kept == context) {
    return true;
  }
  unsigned flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  return cu().cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS && active != 0 &&
         primary_context(primary, ordinal) == CUDA_SUCCESS && primary == context;
}

void forget_primary_context(int ordinal) {
  std::atomic<CUcontext>* const kept = kept_context(ordinal);
  if (kept != nullptr && kept->exchange(nullptr) != nullptr) {
    cu().cuDevicePrimaryCtxRelease(ordinal);
  }
}

}  // namespace vdnn::preload
