// The runtime's calls, under CUDA's names.

#include <algorithm>
#include <cstring>
#include <limits>

#include "tests/fakes/cudart/launch.h"
#include "tests/fakes/cudart/stand_in.h"

using vdnn::CaptureMode;
using vdnn::CudaEvent;
using vdnn::CudaExec;
using vdnn::CudaGraph;
using vdnn::CudaStatus;
using vdnn::CudaStream;
using vdnn::stand_in::StandIn;

namespace {

StandIn& cuda() {
  return StandIn::instance();
}

template <class Work>
CudaStatus with_stream(cudaStream_t handle, const Work& work) {
  const CudaStream stream = cuda().find(handle);
  return stream == nullptr ? CudaStatus::kInvalidResourceHandle : work(stream);
}

CudaStatus create_event(cudaEvent_t* event, unsigned flags) {
  CudaEvent made = nullptr;
  const CudaStatus status = cuda().fake().event_create(
      made, {.timed = (flags & cudaEventDisableTiming) == 0, .blocks = (flags & cudaEventBlockingSync) != 0});
  if (status == CudaStatus::kSuccess) {
    cuda().add_event(made);
    *event = static_cast<cudaEvent_t>(made);
  }
  return status;
}

CudaStatus synchronize(cudaStream_t stream) {
  return with_stream(stream, [](CudaStream mine) { return cuda().fake().stream_synchronize(mine); });
}

std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

int attribute_of_gpu(cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return vdnn::stand_in::kComputeCapability / 10;
    case cudaDevAttrComputeCapabilityMinor:
      return vdnn::stand_in::kComputeCapability % 10;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxThreadsPerBlock:
      return vdnn::stand_in::kThreadsPerBlock;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2 * vdnn::stand_in::kThreadsPerBlock;
    case cudaDevAttrMaxGridDimX:
      return std::numeric_limits<int>::max();
    case cudaDevAttrMaxSharedMemoryPerBlock:
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return 48 << 10;
    default:
      return 1;  // includes the number of multiprocessors
  }
}

int pci_bus_of(int ordinal) {
  return ordinal + 1;
}

cudaDeviceProp properties_of_gpu(const vdnn::CudaDeviceInfo& info) {
  cudaDeviceProp properties{};
  info.name.copy(properties.name, sizeof properties.name - 1);
  std::ranges::copy(info.uuid, properties.uuid.bytes);
  properties.totalGlobalMem = cuda().memory_bytes();
  properties.major = attribute_of_gpu(cudaDevAttrComputeCapabilityMajor);
  properties.minor = attribute_of_gpu(cudaDevAttrComputeCapabilityMinor);
  properties.warpSize = attribute_of_gpu(cudaDevAttrWarpSize);
  properties.maxThreadsPerBlock = attribute_of_gpu(cudaDevAttrMaxThreadsPerBlock);
  properties.maxThreadsPerMultiProcessor = attribute_of_gpu(cudaDevAttrMaxThreadsPerMultiProcessor);
  properties.maxGridSize[0] = attribute_of_gpu(cudaDevAttrMaxGridDimX);
  properties.sharedMemPerBlock =
      static_cast<std::size_t>(attribute_of_gpu(cudaDevAttrMaxSharedMemoryPerBlock));
  properties.multiProcessorCount = attribute_of_gpu(cudaDevAttrMultiProcessorCount);
  properties.unifiedAddressing = attribute_of_gpu(cudaDevAttrUnifiedAddressing);
  properties.managedMemory = attribute_of_gpu(cudaDevAttrManagedMemory);
  properties.concurrentManagedAccess = attribute_of_gpu(cudaDevAttrConcurrentManagedAccess);
  return properties;
}

// The contents of our handles for other processes.
struct IpcContent {
  std::uint64_t address = 0;
};

}  // namespace

extern "C" {

// --- errors and versions
cudaError_t cudaGetLastError() {
  return cuda().take_last_error(true);
}
cudaError_t cudaPeekAtLastError() {
  return cuda().take_last_error(false);
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorOperatingSystem:
      return "cudaErrorOperatingSystem";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    default:
      return "another error";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  return cuda().quietly([&] { return static_cast<cudaError_t>(cuda().fake().driver_version(*version)); });
}

// --- devices
cudaError_t cudaGetDeviceCount(int* count) {
  return cuda().call("cudaGetDeviceCount", [&] { return cuda().fake().device_count(*count); });
}
cudaError_t cudaGetDevice(int* ordinal) {
  return cuda().call("cudaGetDevice", [&] { return cuda().fake().get_device(*ordinal); });
}
cudaError_t cudaSetDevice(int ordinal) {
  return cuda().call("cudaSetDevice", [&] { return cuda().fake().set_device(ordinal); });
}
cudaError_t cudaDeviceSynchronize() {
  return cuda().call("cudaDeviceSynchronize", [] { return cuda().fake().device_synchronize(); });
}
cudaError_t cudaDeviceReset() {
  // If the program made the current context, cudaDeviceReset() ends only what the runtime keeps there (CUDA
  // Runtime API).
  return cuda().call("cudaDeviceReset",
                     [] { return cuda().fake().has_own_context() ? CudaStatus::kSuccess : cuda().reset(); });
}
// CUDA 12 and earlier have this function, which is deprecated there.
cudaError_t cudaThreadExit() {
  return cudaDeviceReset();
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int ordinal) {
  return cuda().call("cudaDeviceGetPCIBusId", [&] {
    std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02x:00.0", pci_bus_of(ordinal));
    return CudaStatus::kSuccess;
  });
}
// Attributes of a small GPU, which libraries of kernels query before they launch any.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  return cuda().call("cudaDeviceGetAttribute", [&] {
    vdnn::CudaDeviceInfo info;
    const CudaStatus status = cuda().fake().device_info(info, ordinal);
    if (status == CudaStatus::kSuccess) {
      *value = attribute_of_gpu(attribute);
    }
    return status;
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  return cuda().call("cudaGetDeviceProperties", [&] {
    vdnn::CudaDeviceInfo info;
    const CudaStatus status = cuda().fake().device_info(info, ordinal);
    if (status == CudaStatus::kSuccess) {
      *properties = properties_of_gpu(info);
      properties->pciBusID = pci_bus_of(ordinal);
    }
    return status;
  });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int ordinal, int peer) {
  return cuda().call("cudaDeviceCanAccessPeer", [&] {
    bool found = false;
    const CudaStatus status = cuda().fake().can_access_peer(found, ordinal, peer);
    *can = found ? 1 : 0;
    return status;
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return cuda().call("cudaDeviceEnablePeerAccess", [&] { return cuda().fake().enable_peer_access(peer); });
}

// --- memory
cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return cuda().call("cudaMalloc", [&] { return cuda().allocate(address, bytes); });
}
cudaError_t cudaFree(void* address) {
  return cuda().call(
      "cudaFree", [&] { return cuda().free(address); }, address == nullptr ? "" : "cudaFree");
}
cudaError_t cudaMallocManaged(void** address, std::size_t bytes, unsigned flags) {
  return cuda().call("cudaMallocManaged", [&] { return cuda().allocate_managed(address, bytes, flags); });
}
cudaError_t cudaMallocPitch(void** address, std::size_t* pitch, std::size_t width, std::size_t height) {
  constexpr std::size_t kPitch = 512;
  return cuda().call("cudaMallocPitch", [&] {
    *pitch = (width + kPitch - 1) / kPitch * kPitch;
    return cuda().allocate(address, *pitch * height);
  });
}
cudaError_t cudaMallocAsync(void** address, std::size_t bytes, cudaStream_t stream) {
  return cuda().call("cudaMallocAsync", [&] { return cuda().allocate_async(address, bytes, stream); });
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  return cuda().call(
      "cudaFreeAsync", [&] { return cuda().free_async(address, stream); },
      address == nullptr ? "" : "cudaFreeAsync");
}
cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return cuda().call("cudaMallocHost", [&] { return cuda().allocate_host(address, bytes, 0); });
}
cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  return cuda().call("cudaHostAlloc", [&] { return cuda().allocate_host(address, bytes, flags); });
}
cudaError_t cudaFreeHost(void* address) {
  return cuda().call(
      "cudaFreeHost", [&] { return cuda().free_host(address); },
      address == nullptr ? "" : "cudaHostUnregister");
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* address) {
  return cuda().call("cudaHostGetFlags", [&] {
    const auto* const found = cuda().find_memory(address_of(address));
    if (found == nullptr || found->second.type != cudaMemoryTypeHost) {
      return CudaStatus::kInvalidValue;
    }
    *flags = found->second.host_flags;
    return CudaStatus::kSuccess;
  });
}
cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned) {
  return cuda().call("cudaHostRegister", [&] {
    const CudaStatus status = cuda().fake().host_register({.begin = address_of(address), .bytes = bytes});
    if (status == CudaStatus::kSuccess) {
      cuda().add(address_of(address), {.bytes = bytes, .type = cudaMemoryTypeHost});
    }
    return status;
  });
}
cudaError_t cudaHostUnregister(void* address) {
  return cuda().call(
      "cudaHostUnregister",
      [&] {
        const CudaStatus status = cuda().fake().host_unregister(address_of(address));
        if (status == CudaStatus::kSuccess) {
          cuda().remove(address_of(address));
        }
        return status;
      },
      "cudaHostUnregister");
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return cuda().call("cudaMemGetInfo", [&] { return cuda().fake().memory_info(*free, *total); });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return cuda().call("cudaPointerGetAttributes", [&] {
    const auto* const found = cuda().find_memory(address_of(address));
    *attributes = {};
    attributes->type = found == nullptr ? cudaMemoryTypeUnregistered : found->second.type;
    attributes->device = found == nullptr ? -2 : found->second.ordinal;
    attributes->devicePointer = found == nullptr ? nullptr : const_cast<void*>(address);
    attributes->hostPointer = attributes->type == cudaMemoryTypeDevice ? nullptr : const_cast<void*>(address);
    return CudaStatus::kSuccess;
  });
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  return cuda().call("cudaIpcGetMemHandle", [&] {
    // As in CUDA, memory mapped by cuMemMap() and memory of a graph have no such handle.
    const auto* const found = cuda().find_memory(address_of(address));
    if (found == nullptr || found->second.type != cudaMemoryTypeDevice || found->second.host_flags != 0) {
      return CudaStatus::kInvalidValue;
    }
    const IpcContent content{.address = found->first};
    *handle = {};
    std::memcpy(handle, &content, sizeof content);
    return CudaStatus::kSuccess;
  });
}
cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return cuda().call("cudaMemcpyAsync", [&] { return cuda().copy(destination, source, bytes, stream); });
}
cudaError_t cudaMemcpy(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind) {
  return cuda().call("cudaMemcpy", [&] {
    const CudaStatus status = cuda().copy(destination, source, bytes, nullptr);
    return status == CudaStatus::kSuccess ? synchronize(nullptr) : status;
  });
}
cudaError_t cudaMemsetAsync(void* destination, int value, std::size_t bytes, cudaStream_t stream) {
  return cuda().call("cudaMemsetAsync", [&] { return cuda().set(destination, value, bytes, stream); });
}
cudaError_t cudaMemset(void* destination, int value, std::size_t bytes) {
  return cuda().call("cudaMemset", [&] { return cuda().set(destination, value, bytes, nullptr); });
}

// --- streams
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cuda().call("cudaStreamCreate", [&] { return cuda().create(*stream, true); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cuda().call("cudaStreamCreateWithFlags",
                     [&] { return cuda().create(*stream, (flags & cudaStreamNonBlocking) == 0); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return cuda().call("cudaStreamCreateWithPriority",
                     [&] { return cuda().create(*stream, (flags & cudaStreamNonBlocking) == 0, priority); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return cuda().call(
      "cudaStreamDestroy", [&] { return cuda().destroy(stream); }, "cudaStreamDestroy");
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return cuda().call("cudaStreamSynchronize", [&] { return synchronize(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return cuda().call("cudaStreamQuery", [&] {
    return with_stream(stream, [](CudaStream mine) { return cuda().fake().stream_query(mine); });
  });
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return cuda().call("cudaStreamGetFlags", [&] { return cuda().flags_of(stream, *flags); });
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return cuda().call("cudaStreamGetId", [&] {
    return with_stream(stream, [&](CudaStream mine) {
      std::uint64_t found = 0;
      const CudaStatus status = cuda().fake().stream_id(found, mine);
      *id = found;
      return status;
    });
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return cuda().call("cudaStreamWaitEvent", [&] {
    return with_stream(stream, [&](CudaStream mine) { return cuda().fake().stream_wait_event(mine, event); });
  });
}

// --- events
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cuda().call("cudaEventCreate", [&] { return create_event(event, 0); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return cuda().call("cudaEventCreateWithFlags", [&] { return create_event(event, flags); });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return cuda().call(
      "cudaEventDestroy", [&] { return cuda().remove_event(event); }, "cudaEventDestroy");
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cuda().call("cudaEventRecord", [&] {
    return with_stream(stream, [&](CudaStream mine) { return cuda().fake().event_record(event, mine); });
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return cuda().call("cudaEventQuery", [&] { return cuda().fake().event_query(event); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return cuda().call("cudaEventSynchronize", [&] { return cuda().fake().event_synchronize(event); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return cuda().call("cudaEventElapsedTime",
                     [&] { return cuda().fake().event_elapsed_time(*milliseconds, begin, end); });
}

// --- graphs
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return cuda().call("cudaStreamBeginCapture", [&] {
    return with_stream(stream, [mode](CudaStream mine) {
      return cuda().fake().stream_begin_capture(mine, static_cast<CaptureMode>(mode));
    });
  });
}
#if CUDART_VERSION >= 12030
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t*,
                                          const cudaGraphEdgeData*, std::size_t dependencies,
                                          cudaStreamCaptureMode mode) {
  return cuda().call("cudaStreamBeginCaptureToGraph", [&] {
    return with_stream(stream, [&](CudaStream mine) {
      return dependencies != 0
                 ? CudaStatus::kNotSupported
                 : cuda().fake().stream_begin_capture(mine, static_cast<CaptureMode>(mode), graph);
    });
  });
}
#endif
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  // A failed end ends the capture, too.
  return cuda().call(
      "cudaStreamEndCapture",
      [&] {
        return with_stream(stream, [&](CudaStream mine) {
          CudaGraph made = nullptr;
          const CudaStatus status = cuda().fake().stream_end_capture(made, mine);
          *graph = static_cast<cudaGraph_t>(made);
          return status;
        });
      },
      "cudaStreamEndCapture");
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* answer) {
  return cuda().call("cudaStreamIsCapturing", [&] {
    return with_stream(stream, [&](CudaStream mine) {
      bool capturing = false;
      const CudaStatus status = cuda().fake().stream_is_capturing(capturing, mine);
      *answer = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
      return status;
    });
  });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return cuda().call("cudaThreadExchangeStreamCaptureMode", [&] {
    auto exchanged = static_cast<CaptureMode>(*mode);
    const CudaStatus status = cuda().fake().thread_exchange_capture_mode(exchanged);
    *mode = static_cast<cudaStreamCaptureMode>(exchanged);
    return status;
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return cuda().call("cudaGraphInstantiate", [&] {
    CudaExec made = nullptr;
    const CudaStatus status = cuda().fake().graph_instantiate(made, graph);
    *exec = static_cast<cudaGraphExec_t>(made);
    return status;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return cuda().call("cudaGraphLaunch", [&] {
    return with_stream(stream, [&](CudaStream mine) { return cuda().fake().graph_launch(exec, mine); });
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return cuda().call(
      "cudaGraphDestroy", [&] { return cuda().fake().graph_destroy(graph); }, "cudaGraphDestroy");
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return cuda().call(
      "cudaGraphExecDestroy", [&] { return cuda().fake().graph_exec_destroy(exec); }, "cudaGraphExecDestroy");
}

// --- kernels
// Queries of libraries about a kernel before they launch it.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  return cuda().call("cudaFuncGetAttributes", [&] {
    *attributes = {};
    attributes->maxThreadsPerBlock = vdnn::stand_in::kThreadsPerBlock;
    attributes->ptxVersion = vdnn::stand_in::kComputeCapability;
    attributes->binaryVersion = vdnn::stand_in::kComputeCapability;
    return CudaStatus::kSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                   unsigned) {
  return cuda().call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", [&] {
    *blocks = 1;
    return CudaStatus::kSuccess;
  });
}

}  // extern "C"

cudaError_t vdnn::stand_in::launch(cudaStream_t stream) {
  return cuda().call("cudaLaunchKernel", [&] { return cuda().launch(stream); });
}
