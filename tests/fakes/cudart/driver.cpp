// The functions of the driver that a program can request from the runtime.

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string_view>
#include <vector>

#include "tests/fakes/cudart/stand_in.h"

namespace {

using vdnn::CudaStatus;
using vdnn::stand_in::StandIn;

StandIn& cuda() {
  return StandIn::instance();
}

template <class Work>
CUresult call(std::string_view name, const Work& work, std::string_view releases = {}) {
  return static_cast<CUresult>(cuda().call(name, work, releases));
}

// --- contexts
// These functions are called inside a call of the stand-in that has begun.

CUcontext current() {
  vdnn::CudaContextHandle found = nullptr;
  cuda().fake().current_context(found);
  return static_cast<CUcontext>(found);
}

CudaStatus find_primary(CUcontext& context, int ordinal) {
  const CUcontext before = current();
  const CudaStatus status = cuda().fake().set_device(ordinal);
  if (status == CudaStatus::kSuccess) {
    context = current();
  }
  cuda().fake().set_current_context(before);
  return status;
}

// The contexts of a thread below the current one. The type is trivial to destroy, because programs call the
// driver after their threads' own objects are gone.
struct Contexts {
  std::array<CUcontext, 16> below{};
  std::size_t count = 0;

  // If the array is full, throws and changes nothing.
  void push(CUcontext context) {
    below.at(count) = context;
    ++count;
  }
};
thread_local Contexts contexts;

// --- calls that use contexts

CUresult current_context(CUcontext* context) {
  return static_cast<CUresult>(cuda().quietly([&] {
    *context = current();
    return CudaStatus::kSuccess;
  }));
}

CUresult set_context(CUcontext context) {
  return static_cast<CUresult>(cuda().quietly([&] { return cuda().fake().set_current_context(context); }));
}

CUresult push_context(CUcontext context) {
  return call("cuCtxPushCurrent", [&] {
    contexts.push(current());
    return cuda().fake().set_current_context(context);
  });
}

// This call never fails on request: a program has no other way to remove a context that it pushed.
CUresult pop_context(CUcontext* context) {
  return static_cast<CUresult>(cuda().quietly([&] {
    if (contexts.count == 0) {
      return CudaStatus::kInvalidContext;
    }
    *context = current();
    return cuda().fake().set_current_context(contexts.below.at(--contexts.count));
  }));
}

CUresult create_context(CUcontext* context, unsigned, CUdevice device) {
  return call("cuCtxCreate", [&] {
    contexts.push(current());
    *context = static_cast<CUcontext>(cuda().fake().make_context(device));
    return cuda().fake().set_current_context(*context);
  });
}

CUresult destroy_context(CUcontext context) {
  return call("cuCtxDestroy", [&] {
    return current() == context ? cuda().fake().set_current_context(contexts.below.at(--contexts.count))
                                : CudaStatus::kSuccess;
  });
}

CUresult context_device(CUdevice* device) {
  return call("cuCtxGetDevice", [&] { return cuda().fake().get_device(*device); });
}

CUresult stream_context(CUstream stream, CUcontext* context) {
  return call("cuStreamGetCtx", [&] {
    if (cuda().find(stream) == nullptr) {
      return CudaStatus::kInvalidResourceHandle;
    }
    return find_primary(*context, cuda().ordinal_of(stream));
  });
}

// The fake never destroys a primary context, so no release is the last.
CUresult primary_retain(CUcontext* context, CUdevice device) {
  return call("cuDevicePrimaryCtxRetain", [&] { return find_primary(*context, device); });
}

CUresult error_string(CUresult error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

CUresult primary_release(CUdevice) {
  return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult device_get_name(char* name, int bytes, CUdevice device) {
  return call("cuDeviceGetName", [&] {
    vdnn::CudaDeviceInfo info;
    const CudaStatus status = cuda().fake().device_info(info, device);
    std::snprintf(name, static_cast<std::size_t>(bytes), "%s", info.name.c_str());
    return status;
  });
}

CUresult device_get_uuid(CUuuid* uuid, CUdevice device) {
  return call("cuDeviceGetUuid", [&] {
    vdnn::CudaDeviceInfo info;
    const CudaStatus status = cuda().fake().device_info(info, device);
    std::ranges::copy(info.uuid, uuid->bytes);
    return status;
  });
}

CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return call("cuDeviceGetAttribute", [&] {
    vdnn::CudaDeviceInfo info;
    const CudaStatus status = cuda().fake().device_info(info, device);
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = info.compute_capability / 10;
        break;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = info.compute_capability % 10;
        break;
      case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value = int{info.file_handles};
        break;
      case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        *value = int{info.rdma};
        break;
      case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = int{info.virtual_memory};
        break;
      default:
        *value = -1;
    }
    return status;
  });
}

CUresult primary_state(CUdevice device, unsigned* flags, int* active) {
  return call("cuDevicePrimaryCtxGetState", [&] {
    *flags = 0;
    *active = cuda().fake().uses(device) ? 1 : 0;
    return CudaStatus::kSuccess;
  });
}

CUresult memory_info(std::size_t* free, std::size_t* total) {
  return call("cuMemGetInfo", [&] {
    std::uint64_t free_bytes = 0;
    std::uint64_t total_bytes = 0;
    const CudaStatus status = cuda().fake().memory_info(free_bytes, total_bytes);
    *free = free_bytes;
    *total = total_bytes;
    return status;
  });
}

vdnn::CudaMemoryKind kind_of(const CUmemAllocationProp& wanted) {
  return {.ordinal = wanted.location.id,
          .file_handles = (wanted.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0,
          .rdma = wanted.allocFlags.gpuDirectRDMACapable != 0};
}

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp* wanted,
                     CUmemAllocationGranularity_flags) {
  return call("cuMemGetAllocationGranularity", [&] {
    std::uint64_t found = 0;
    const CudaStatus status = cuda().fake().allocation_granularity(found, kind_of(*wanted));
    *bytes = found;
    return status;
  });
}

CUresult address_reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                         unsigned long long) {
  return call("cuMemAddressReserve", [&] {
    std::uint64_t made = 0;
    const CudaStatus status = cuda().fake().address_reserve(made, bytes, alignment);
    if (status == CudaStatus::kSuccess) {
      cuda().add(made,
                 {.bytes = bytes, .ordinal = cuda().ordinal(), .host_flags = vdnn::stand_in::kNotShareable});
      *address = made;
    }
    return status;
  });
}

CUresult address_free(CUdeviceptr address, std::size_t bytes) {
  return call(
      "cuMemAddressFree",
      [&] {
        const CudaStatus status = cuda().fake().address_free({.begin = address, .bytes = bytes});
        if (status == CudaStatus::kSuccess) {
          cuda().remove(address);
        }
        return status;
      },
      "cuMemAddressFree");
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* wanted,
                unsigned long long) {
  return call("cuMemCreate", [&] {
    std::uint64_t made = 0;
    const CudaStatus status = cuda().fake().memory_create(made, bytes, kind_of(*wanted));
    *handle = made;
    return status;
  });
}

CUresult release(CUmemGenericAllocationHandle handle) {
  return call(
      "cuMemRelease", [&] { return cuda().fake().memory_release(handle); }, "cuMemRelease");
}

CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
             unsigned long long) {
  return call("cuMemMap",
              [&] { return cuda().fake().memory_map({.begin = address, .bytes = bytes}, handle); });
}

CUresult unmap(CUdeviceptr address, std::size_t bytes) {
  return call(
      "cuMemUnmap", [&] { return cuda().fake().memory_unmap({.begin = address, .bytes = bytes}); },
      "cuMemUnmap");
}

CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                    std::size_t count) {
  return call("cuMemSetAccess", [&] {
    std::vector<int> ordinals;
    for (std::size_t i = 0; i < count; ++i) {
      ordinals.push_back(access[i].location.id);
    }
    return cuda().fake().memory_set_access({.begin = address, .bytes = bytes}, ordinals);
  });
}

CUresult refused() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <class Function>
void* pointer(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

void* vdnn::stand_in::find_driver_function(std::string_view name) {
  static const std::map<std::string_view, void*> functions{
      {"cuCtxCreate", pointer(create_context)},
      {"cuCtxDestroy", pointer(destroy_context)},
      {"cuCtxGetCurrent", pointer(current_context)},
      {"cuCtxGetDevice", pointer(context_device)},
      {"cuCtxPopCurrent", pointer(pop_context)},
      {"cuCtxPushCurrent", pointer(push_context)},
      {"cuCtxSetCurrent", pointer(set_context)},
      {"cuStreamGetCtx", pointer(stream_context)},
      {"cuDeviceGet", pointer(device_get)},
      {"cuDeviceGetName", pointer(device_get_name)},
      {"cuDeviceGetUuid", pointer(device_get_uuid)},
      {"cuDeviceGetAttribute", pointer(device_get_attribute)},
      {"cuDevicePrimaryCtxGetState", pointer(primary_state)},
      {"cuDevicePrimaryCtxRelease", pointer(primary_release)},
      {"cuDevicePrimaryCtxRetain", pointer(primary_retain)},
      {"cuGetErrorString", pointer(error_string)},
      {"cuMemGetInfo", pointer(memory_info)},
      {"cuMemGetAllocationGranularity", pointer(granularity)},
      {"cuMemAddressReserve", pointer(address_reserve)},
      {"cuMemAddressFree", pointer(address_free)},
      {"cuMemCreate", pointer(create)},
      {"cuMemRelease", pointer(release)},
      {"cuMemMap", pointer(map)},
      {"cuMemUnmap", pointer(unmap)},
      {"cuMemSetAccess", pointer(set_access)},
      // PyTorch must find these functions, whether or not it calls them.
      {"cuCtxFromGreenCtx", pointer(refused)},
      {"cuDevResourceGenerateDesc", pointer(refused)},
      {"cuDevSmResourceSplitByCount", pointer(refused)},
      {"cuDeviceGetDevResource", pointer(refused)},
      {"cuGreenCtxCreate", pointer(refused)},
      {"cuGreenCtxDestroy", pointer(refused)},
      {"cuGreenCtxStreamCreate", pointer(refused)},
      {"cuLogsRegisterCallback", pointer(refused)},
      {"cuLogsUnregisterCallback", pointer(refused)},
      {"cuMemExportToShareableHandle", pointer(refused)},
      {"cuMemGetAddressRange", pointer(refused)},
      {"cuMemGetAllocationPropertiesFromHandle", pointer(refused)},
      {"cuMemImportFromShareableHandle", pointer(refused)},
      {"cuMemRetainAllocationHandle", pointer(refused)},
      {"cuMemsetD32Async", pointer(refused)},
      {"cuMulticastAddDevice", pointer(refused)},
      {"cuMulticastBindMem", pointer(refused)},
      {"cuMulticastCreate", pointer(refused)},
      {"cuMulticastUnbind", pointer(refused)},
      {"cuStreamWriteValue32", pointer(refused)}};
  const auto it = functions.find(name);
  return it == functions.end() ? nullptr : it->second;
}

namespace {

cudaError_t find_in_driver(std::string_view call, const char* symbol, void** function,
                           cudaDriverEntryPointQueryResult* answer) {
  return cuda().call(call, [&] {
    *function = vdnn::stand_in::find_driver_function(symbol);
    if (answer != nullptr) {
      *answer = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    }
    return CudaStatus::kSuccess;
  });
}

}  // namespace

extern "C" {

#ifndef VDNN_STAND_IN_OF_12_0
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult* answer) {
  return find_in_driver("cudaGetDriverEntryPointByVersion", symbol, function, answer);
}
#endif
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* answer) {
  return find_in_driver("cudaGetDriverEntryPoint", symbol, function, answer);
}

}  // extern "C"
