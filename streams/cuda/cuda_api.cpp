#include "streams/cuda/cuda_api.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "streams/cuda/cuda_runtime_table.h"
#include "streams/cuda/nvml.h"
#include "streams/cuda/uuid_text.h"
#include "streams/mapping.h"

namespace vdnn {

namespace {

// Checks that the numbers of CudaStatus equal those of CUDA.
template <CudaStatus ours, cudaError_t runtime, CUresult driver>
constexpr bool kSame = static_cast<int>(ours) == static_cast<int>(runtime) &&
                       static_cast<int>(ours) == static_cast<int>(driver);
static_assert(static_cast<int>(CaptureMode::kGlobal) == cudaStreamCaptureModeGlobal &&
              static_cast<int>(CaptureMode::kThreadLocal) == cudaStreamCaptureModeThreadLocal &&
              static_cast<int>(CaptureMode::kRelaxed) == cudaStreamCaptureModeRelaxed);
static_assert(kSame<CudaStatus::kSuccess, cudaSuccess, CUDA_SUCCESS>);
static_assert(kSame<CudaStatus::kInvalidValue, cudaErrorInvalidValue, CUDA_ERROR_INVALID_VALUE>);
static_assert(kSame<CudaStatus::kMemoryAllocation, cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY>);
static_assert(static_cast<int>(CudaStatus::kInsufficientDriver) == cudaErrorInsufficientDriver);
static_assert(kSame<CudaStatus::kNoDevice, cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE>);
static_assert(kSame<CudaStatus::kInvalidDevice, cudaErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE>);
static_assert(kSame<CudaStatus::kInvalidContext, cudaErrorDeviceUninitialized, CUDA_ERROR_INVALID_CONTEXT>);
static_assert(kSame<CudaStatus::kEccUncorrectable, cudaErrorECCUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE>);
static_assert(
    kSame<CudaStatus::kNvlinkUncorrectable, cudaErrorNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE>);
static_assert(
    kSame<CudaStatus::kInvalidResourceHandle, cudaErrorInvalidResourceHandle, CUDA_ERROR_INVALID_HANDLE>);
static_assert(kSame<CudaStatus::kNotReady, cudaErrorNotReady, CUDA_ERROR_NOT_READY>);
static_assert(kSame<CudaStatus::kIllegalAddress, cudaErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS>);
static_assert(kSame<CudaStatus::kLaunchTimeout, cudaErrorLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT>);
static_assert(kSame<CudaStatus::kPeerAccessAlreadyEnabled, cudaErrorPeerAccessAlreadyEnabled,
                    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED>);
static_assert(
    kSame<CudaStatus::kContextIsDestroyed, cudaErrorContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED>);
static_assert(kSame<CudaStatus::kAssert, cudaErrorAssert, CUDA_ERROR_ASSERT>);
static_assert(
    kSame<CudaStatus::kHardwareStackError, cudaErrorHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR>);
static_assert(
    kSame<CudaStatus::kIllegalInstruction, cudaErrorIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION>);
static_assert(
    kSame<CudaStatus::kMisalignedAddress, cudaErrorMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS>);
static_assert(
    kSame<CudaStatus::kInvalidAddressSpace, cudaErrorInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE>);
static_assert(kSame<CudaStatus::kInvalidPc, cudaErrorInvalidPc, CUDA_ERROR_INVALID_PC>);
static_assert(kSame<CudaStatus::kLaunchFailure, cudaErrorLaunchFailure, CUDA_ERROR_LAUNCH_FAILED>);
static_assert(
    kSame<CudaStatus::kMpsClientTerminated, cudaErrorMpsClientTerminated, CUDA_ERROR_MPS_CLIENT_TERMINATED>);
static_assert(kSame<CudaStatus::kNotSupported, cudaErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED>);
static_assert(kSame<CudaStatus::kStreamCaptureUnsupported, cudaErrorStreamCaptureUnsupported,
                    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED>);
static_assert(kSame<CudaStatus::kStreamCaptureInvalidated, cudaErrorStreamCaptureInvalidated,
                    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED>);
static_assert(kSame<CudaStatus::kStreamCaptureUnmatched, cudaErrorStreamCaptureUnmatched,
                    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED>);
static_assert(kSame<CudaStatus::kStreamCaptureUnjoined, cudaErrorStreamCaptureUnjoined,
                    CUDA_ERROR_STREAM_CAPTURE_UNJOINED>);
static_assert(kSame<CudaStatus::kStreamCaptureIsolation, cudaErrorStreamCaptureIsolation,
                    CUDA_ERROR_STREAM_CAPTURE_ISOLATION>);
static_assert(kSame<CudaStatus::kStreamCaptureImplicit, cudaErrorStreamCaptureImplicit,
                    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT>);
static_assert(kSame<CudaStatus::kCapturedEvent, cudaErrorCapturedEvent, CUDA_ERROR_CAPTURED_EVENT>);
static_assert(kSame<CudaStatus::kStreamCaptureWrongThread, cudaErrorStreamCaptureWrongThread,
                    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD>);
static_assert(kSame<CudaStatus::kExternalDevice, cudaErrorExternalDevice, CUDA_ERROR_EXTERNAL_DEVICE>);
static_assert(kSame<CudaStatus::kUnknown, cudaErrorUnknown, CUDA_ERROR_UNKNOWN>);

// CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, which toolkits before 12.2 do not name.
constexpr auto kHostNumaId = static_cast<CUdevice_attribute>(134);

CudaStatus status(cudaError_t error) {
  return static_cast<CudaStatus>(error);
}

CudaStatus status(CUresult result) {
  return static_cast<CudaStatus>(result);
}

cudaStream_t native(CudaStream stream) {
  return static_cast<cudaStream_t>(stream);
}

cudaEvent_t native_event(CudaEvent event) {
  return static_cast<cudaEvent_t>(event);
}

cudaGraphExec_t native_exec(CudaExec exec) {
  return static_cast<cudaGraphExec_t>(exec);
}

// The device memory of the GPU `ordinal`.
CUmemLocation location(int ordinal) {
  CUmemLocation place{};
  place.type = CU_MEM_LOCATION_TYPE_DEVICE;
  place.id = ordinal;
  return place;
}

CUmemAllocationProp properties(const CudaMemoryKind& kind) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = location(kind.ordinal);
  if (kind.file_handles) {
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  wanted.allocFlags.gpuDirectRDMACapable = kind.rdma ? 1 : 0;
  return wanted;
}

void add_name(std::string& names, const char* name) {
  names += (names.empty() ? "" : ", ") + std::string(name);
}

// In this class, CUDA's names refer to the members of RuntimeTable.
class RealCudaApi final : public CudaApi, private cuda::RuntimeTable {
 public:
  RealCudaApi(const cuda::RuntimeTable& runtime, std::string missing)
      : cuda::RuntimeTable(runtime),
        missing_(missing.empty() ? "" : "the CUDA runtime has no " + std::move(missing)) {
    if (missing_.empty()) {
      load_driver();
    }
  }

  std::string why_missing() const override { return missing_; }
  std::string error_name(CudaStatus error) const override {
    return cudaGetErrorName(static_cast<cudaError_t>(error));
  }
  CudaStatus get_last_error() override { return status(cudaGetLastError()); }
  CudaStatus peek_at_last_error() override { return status(cudaPeekAtLastError()); }

  CudaStatus driver_version(int& version) override { return status(cudaDriverGetVersion(&version)); }
  int runtime_version() const override {
    int version = 0;
    cudaRuntimeGetVersion(&version);
    return version;
  }
  CudaStatus device_count(int& count) override { return status(cudaGetDeviceCount(&count)); }
  CudaStatus get_device(int& ordinal) override { return status(cudaGetDevice(&ordinal)); }
  CudaStatus set_device(int ordinal) override { return status(cudaSetDevice(ordinal)); }
  CudaStatus current_context(CudaContextHandle& context) override {
    if (current_context_ == nullptr) {
      return CudaStatus::kInsufficientDriver;  // there is no driver
    }
    CUcontext found = nullptr;
    const CudaStatus result = status(current_context_(&found));
    context = found;
    return result;
  }
  CudaStatus set_current_context(CudaContextHandle context) override {
    return status(set_context_(static_cast<CUcontext>(context)));
  }
  CudaStatus device_info(CudaDeviceInfo& info, int ordinal) override;
  CudaStatus context_is_active(bool& active, int ordinal) override;
  CudaStatus gpu_free_bytes(std::uint64_t& free, int ordinal) override;
  CudaStatus card_free_bytes(std::uint64_t& free, int ordinal) override;
  CudaStatus memory_info(std::uint64_t& free, std::uint64_t& total) override;

  CudaStatus can_access_peer(bool& can, int ordinal, int peer) override {
    int found = 0;
    const CudaStatus result = status(cudaDeviceCanAccessPeer(&found, ordinal, peer));
    can = found != 0;
    return result;
  }
  CudaStatus enable_peer_access(int peer) override { return status(cudaDeviceEnablePeerAccess(peer, 0)); }

  CudaStatus stream_create(CudaStream& stream) override {
    cudaStream_t made = nullptr;
    const CudaStatus result = status(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    stream = made;
    return result;
  }
  CudaStatus stream_destroy(CudaStream stream) override { return status(cudaStreamDestroy(native(stream))); }
  CudaStatus stream_synchronize(CudaStream stream) override {
    return status(cudaStreamSynchronize(native(stream)));
  }
  CudaStatus stream_query(CudaStream stream) override { return status(cudaStreamQuery(native(stream))); }
  CudaStatus stream_id(std::uint64_t& id, CudaStream stream) override {
    unsigned long long found = 0;
    const CudaStatus result = status(cudaStreamGetId(native(stream), &found));
    id = found;
    return result;
  }
  CudaStatus stream_is_capturing(bool& capturing, CudaStream stream) override {
    cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
    const CudaStatus result = status(cudaStreamIsCapturing(native(stream), &found));
    capturing = found != cudaStreamCaptureStatusNone;
    return result;
  }
  CudaStatus device_synchronize() override { return status(cudaDeviceSynchronize()); }
  CudaStatus stream_wait_event(CudaStream stream, CudaEvent event) override {
    return status(cudaStreamWaitEvent(native(stream), native_event(event), 0));
  }
  CudaStatus event_create(CudaEvent& event, const CudaEventKind& kind) override {
    cudaEvent_t made = nullptr;
    const unsigned flags =
        (kind.blocks ? cudaEventBlockingSync : 0U) | (kind.timed ? 0U : cudaEventDisableTiming);
    const CudaStatus result = status(cudaEventCreateWithFlags(&made, flags));
    event = made;
    return result;
  }
  CudaStatus event_destroy(CudaEvent event) override { return status(cudaEventDestroy(native_event(event))); }
  CudaStatus event_record(CudaEvent event, CudaStream stream) override {
    return status(cudaEventRecord(native_event(event), native(stream)));
  }
  CudaStatus event_query(CudaEvent event) override { return status(cudaEventQuery(native_event(event))); }
  CudaStatus event_synchronize(CudaEvent event) override {
    return status(cudaEventSynchronize(native_event(event)));
  }
  CudaStatus event_elapsed_time(float& milliseconds, CudaEvent begin, CudaEvent end) override {
    return status(cudaEventElapsedTime(&milliseconds, native_event(begin), native_event(end)));
  }
  CudaStatus memcpy_async(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes,
                          CopyDirection direction, CudaStream stream) override {
    const cudaMemcpyKind kind =
        direction == CopyDirection::kDeviceToHost ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    return status(cudaMemcpyAsync(pointer_to<void>(destination), pointer_to<void>(source), bytes, kind,
                                  native(stream)));
  }

  CudaStatus stream_begin_capture(CudaStream stream) override {
    return status(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal));
  }
  CudaStatus thread_exchange_capture_mode(CaptureMode& mode) override {
    auto exchanged = static_cast<cudaStreamCaptureMode>(mode);
    const CudaStatus result = status(cudaThreadExchangeStreamCaptureMode(&exchanged));
    mode = static_cast<CaptureMode>(exchanged);
    return result;
  }
  CudaStatus stream_end_capture(CudaGraph& graph, CudaStream stream) override {
    cudaGraph_t captured = nullptr;
    const CudaStatus result = status(cudaStreamEndCapture(native(stream), &captured));
    graph = captured;
    return result;
  }
  CudaStatus graph_destroy(CudaGraph graph) override {
    return status(cudaGraphDestroy(static_cast<cudaGraph_t>(graph)));
  }
  CudaStatus graph_instantiate(CudaExec& exec, CudaGraph graph) override {
    cudaGraphExec_t made = nullptr;
    const CudaStatus result = status(cudaGraphInstantiate(&made, static_cast<cudaGraph_t>(graph), 0));
    exec = made;
    return result;
  }
  CudaStatus graph_exec_destroy(CudaExec exec) override {
    return status(cudaGraphExecDestroy(native_exec(exec)));
  }
  CudaStatus graph_launch(CudaExec exec, CudaStream stream) override {
    return status(cudaGraphLaunch(native_exec(exec), native(stream)));
  }

  void range_push(const std::string& name) override { nvtxRangePushA(name.c_str()); }
  void range_pop() override { nvtxRangePop(); }

  CudaStatus host_register(AddressRange range) override {
    prefer_huge_pages(range);
    touch_pages(range);
    return status(cudaHostRegister(pointer_to<void>(range.begin), range.bytes, cudaHostRegisterPortable));
  }
  CudaStatus host_unregister(std::uint64_t address) override {
    return status(cudaHostUnregister(pointer_to<void>(address)));
  }

  CudaStatus malloc(std::uint64_t& address, std::uint64_t bytes) override {
    void* made = nullptr;
    const CudaStatus result = status(cudaMalloc(&made, bytes));
    address = reinterpret_cast<std::uintptr_t>(made);
    return result;
  }
  CudaStatus free(std::uint64_t address) override { return status(cudaFree(pointer_to<void>(address))); }

  CudaStatus allocation_granularity(std::uint64_t& bytes, const CudaMemoryKind& kind) override {
    const CUmemAllocationProp wanted = properties(kind);
    return status(granularity_(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  }
  CudaStatus address_reserve(std::uint64_t& address, std::uint64_t bytes, std::uint64_t alignment) override {
    CUdeviceptr reserved = 0;
    const CudaStatus result = status(address_reserve_(&reserved, bytes, alignment, 0, 0));
    address = reserved;
    return result;
  }
  CudaStatus address_free(AddressRange reservation) override {
    return status(address_free_(reservation.begin, reservation.bytes));
  }
  CudaStatus memory_create(std::uint64_t& handle, std::uint64_t bytes, const CudaMemoryKind& kind) override {
    const CUmemAllocationProp wanted = properties(kind);
    CUmemGenericAllocationHandle created = 0;
    const CudaStatus result = status(create_(&created, bytes, &wanted, 0));
    handle = created;
    return result;
  }
  CudaStatus memory_release(std::uint64_t handle) override { return status(release_(handle)); }
  CudaStatus memory_map(AddressRange range, std::uint64_t handle) override {
    return status(map_(range.begin, range.bytes, 0, handle, 0));
  }
  CudaStatus memory_set_access(AddressRange range, std::span<const int> ordinals) override {
    std::vector<CUmemAccessDesc> access(ordinals.size());
    std::ranges::transform(ordinals, access.begin(), [](int ordinal) {
      CUmemAccessDesc granted{};
      granted.location = location(ordinal);
      granted.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      return granted;
    });
    return status(set_access_(range.begin, range.bytes, access.data(), access.size()));
  }
  CudaStatus memory_unmap(AddressRange range) override { return status(unmap_(range.begin, range.bytes)); }

 private:
  // The version that introduced virtual memory management. Runtimes before 12.5 return their newest versions
  // of the functions, which have the same signatures.
  static constexpr unsigned kVersion = 10020;
  // From this version on, the UUID on a divided GPU (MIG) is the instance's, not the GPU's.
  static constexpr unsigned kVersionOfInstances = 11040;
  static constexpr unsigned kVersionOfRelease = 11000;  // the first version that cuda.h declares

  void load_driver() {
    std::string missing;
    const auto load = [this, &missing](const char* name, auto& function, unsigned version = kVersion) {
      if (!find_in_driver(name, version, function)) {
        add_name(missing, name);
      }
    };
    load("cuCtxGetCurrent", current_context_);
    load("cuCtxPopCurrent", pop_context_);
    load("cuCtxPushCurrent", push_context_);
    load("cuCtxSetCurrent", set_context_);
    load("cuDeviceGet", device_get_);
    load("cuDeviceGetAttribute", device_attribute_);
    load("cuDeviceGetName", device_name_);
    load("cuDeviceGetUuid", device_uuid_);
    load("cuDeviceGetUuid", instance_uuid_, kVersionOfInstances);
    load("cuDevicePrimaryCtxGetState", context_state_);
    load("cuDevicePrimaryCtxRelease", release_context_, kVersionOfRelease);
    load("cuDevicePrimaryCtxRetain", retain_context_);
    load("cuMemGetInfo", memory_info_);
    load("cuMemGetAllocationGranularity", granularity_);
    load("cuMemAddressReserve", address_reserve_);
    load("cuMemAddressFree", address_free_);
    load("cuMemCreate", create_);
    load("cuMemRelease", release_);
    load("cuMemMap", map_);
    load("cuMemUnmap", unmap_);
    load("cuMemSetAccess", set_access_);
    missing_ = missing.empty() ? "" : "the CUDA driver has no " + missing;
  }

  template <class Function>
  bool find_in_driver(const char* name, unsigned version, Function& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion == nullptr
            ? cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &answer)
            : cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &answer);
    if (error != cudaSuccess) {
      cudaGetLastError();  // why_missing() reports the error; the program's next check must not
    }
    if (error != cudaSuccess || answer != cudaDriverEntryPointSuccess) {
      return false;
    }
    function = reinterpret_cast<Function>(found);
    return true;
  }

  using UuidOf = PFN_cuDeviceGetUuid_v9020;
  CudaStatus uuid_of(std::array<unsigned char, 16>& uuid, int ordinal, UuidOf ask);

  std::string missing_;
  PFN_cuCtxGetCurrent_v4000 current_context_ = nullptr;
  PFN_cuCtxSetCurrent_v4000 set_context_ = nullptr;
  PFN_cuCtxPushCurrent_v4000 push_context_ = nullptr;
  PFN_cuCtxPopCurrent_v4000 pop_context_ = nullptr;
  PFN_cuDeviceGet_v2000 device_get_ = nullptr;
  PFN_cuDeviceGetName_v2000 device_name_ = nullptr;
  UuidOf device_uuid_ = nullptr;
  UuidOf instance_uuid_ = nullptr;
  PFN_cuDeviceGetAttribute_v2000 device_attribute_ = nullptr;
  PFN_cuDevicePrimaryCtxGetState_v7000 context_state_ = nullptr;
  PFN_cuDevicePrimaryCtxRetain_v7000 retain_context_ = nullptr;
  PFN_cuDevicePrimaryCtxRelease_v11000 release_context_ = nullptr;
  PFN_cuMemGetInfo_v3020 memory_info_ = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 granularity_ = nullptr;
  PFN_cuMemAddressReserve_v10020 address_reserve_ = nullptr;
  PFN_cuMemAddressFree_v10020 address_free_ = nullptr;
  PFN_cuMemCreate_v10020 create_ = nullptr;
  PFN_cuMemRelease_v10020 release_ = nullptr;
  PFN_cuMemMap_v10020 map_ = nullptr;
  PFN_cuMemUnmap_v10020 unmap_ = nullptr;
  PFN_cuMemSetAccess_v10020 set_access_ = nullptr;
};

CudaStatus RealCudaApi::device_info(CudaDeviceInfo& info, int ordinal) {
  CUdevice device = 0;
  if (const CUresult result = device_get_(&device, ordinal); result != CUDA_SUCCESS) {
    return status(result);
  }
  std::array<char, 256> name{};
  if (const CUresult result = device_name_(name.data(), name.size(), device); result != CUDA_SUCCESS) {
    return status(result);
  }
  info.name = name.data();
  if (const CudaStatus result = uuid_of(info.uuid, ordinal, device_uuid_); result != CudaStatus::kSuccess) {
    return result;
  }
  int major = 0;
  int minor = 0;
  if (device_attribute_(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) == CUDA_SUCCESS &&
      device_attribute_(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) == CUDA_SUCCESS) {
    info.compute_capability = 10 * major + minor;
  }
  int supported = 0;
  const CUresult result =
      device_attribute_(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  info.virtual_memory = supported != 0;
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    return device_attribute_(&value, attribute, device) == CUDA_SUCCESS && value != 0;
  };
  info.file_handles = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  info.rdma = has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  int node = -1;
  if (device_attribute_(&node, kHostNumaId, device) == CUDA_SUCCESS && node >= 0) {
    info.host_node = node;
  }
  return status(result);
}

CudaStatus RealCudaApi::uuid_of(std::array<unsigned char, 16>& uuid, int ordinal, UuidOf ask) {
  CUdevice device = 0;
  if (const CUresult result = device_get_(&device, ordinal); result != CUDA_SUCCESS) {
    return status(result);
  }
  CUuuid found{};
  const CUresult result = ask(&found, device);
  std::ranges::copy(found.bytes, uuid.begin());
  return status(result);
}

CudaStatus RealCudaApi::context_is_active(bool& active, int ordinal) {
  CUdevice device = 0;
  if (const CUresult result = device_get_(&device, ordinal); result != CUDA_SUCCESS) {
    return status(result);
  }
  unsigned flags = 0;
  int found = 0;
  const CUresult result = context_state_(device, &flags, &found);
  active = found != 0;
  return status(result);
}

CudaStatus RealCudaApi::card_free_bytes(std::uint64_t& free, int ordinal) {
  std::array<char, 32> bus_id{};
  if (const cudaError_t error = cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), ordinal);
      error != cudaSuccess) {
    return status(error);
  }
  std::array<unsigned char, 16> uuid{};
  if (const CudaStatus result = uuid_of(uuid, ordinal, instance_uuid_); result != CudaStatus::kSuccess) {
    return result;
  }
  const std::optional<std::uint64_t> found = nvml_free_bytes(bus_id.data(), "MIG-" + uuid_text(uuid));
  free = found.value_or(0);
  return found ? CudaStatus::kSuccess : CudaStatus::kNotSupported;
}

// Uses only the driver, which counts references to the context. The runtime would keep it until the process
// ends.
CudaStatus RealCudaApi::gpu_free_bytes(std::uint64_t& free, int ordinal) {
  CUdevice device = 0;
  if (const CUresult result = device_get_(&device, ordinal); result != CUDA_SUCCESS) {
    return status(result);
  }
  CUcontext context = nullptr;
  if (const CUresult result = retain_context_(&context, device); result != CUDA_SUCCESS) {
    return status(result);
  }
  std::size_t free_bytes = 0;
  CUresult asked = push_context_(context);
  if (asked == CUDA_SUCCESS) {
    std::size_t total_bytes = 0;
    asked = memory_info_(&free_bytes, &total_bytes);
    pop_context_(&context);
  }
  free = free_bytes;
  const CUresult released = release_context_(device);
  return status(asked == CUDA_SUCCESS ? released : asked);
}

CudaStatus RealCudaApi::memory_info(std::uint64_t& free, std::uint64_t& total) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  const CudaStatus result = status(cudaMemGetInfo(&free_bytes, &total_bytes));
  free = free_bytes;
  total = total_bytes;
  return result;
}

}  // namespace

namespace cuda {

std::unique_ptr<CudaApi> make_cuda_api(const RuntimeTable& runtime) {
  return std::make_unique<RealCudaApi>(runtime, "");
}

std::unique_ptr<CudaApi> make_cuda_api(const RuntimeSymbols& symbols) {
  RuntimeTable runtime;
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbols(name));
    if (function == nullptr) {
      add_name(missing, name);
    }
  };
#define VDNN_CUDA_RUNTIME_FOUND(call) find(#call, runtime.call);
  VDNN_CUDA_RUNTIME_CALLS(VDNN_CUDA_RUNTIME_FOUND)
#undef VDNN_CUDA_RUNTIME_FOUND
  runtime.cudaGetDriverEntryPointByVersion =
      reinterpret_cast<FindInDriverByVersion>(symbols("cudaGetDriverEntryPointByVersion"));
  if (runtime.cudaGetDriverEntryPointByVersion == nullptr) {
    find("cudaGetDriverEntryPoint", runtime.cudaGetDriverEntryPoint);
  }
  return std::make_unique<RealCudaApi>(runtime, std::move(missing));
}

}  // namespace cuda

}  // namespace vdnn
