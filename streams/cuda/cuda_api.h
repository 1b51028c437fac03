#pragma once
// All CUDA calls of the `cuda` driver go through this table. So a fake runtime can replace it
// (tests/fakes/fake_cuda.h), and the driver compiles and is tested without a toolkit, under sanitizers too. A
// program built with a toolkit also starts without CUDA's driver: it does not link libcuda but looks up the
// driver's functions at run time.
//
// Functions have CUDA's names and return CUDA's error numbers. CUresult and cudaError_t share their numbers,
// so one type serves both.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "vdnn/device.h"

namespace vdnn {

// The statuses that this project or its tests use.
enum class CudaStatus : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInsufficientDriver = 35,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kEccUncorrectable = 214,
  kNvlinkUncorrectable = 220,
  kContained = 226,  // toolkits before 12.8 do not name it
  kInvalidResourceHandle = 400,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kPeerAccessAlreadyEnabled = 704,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailure = 719,
  kTensorMemoryLeak = 721,  // toolkits before 12.8 do not name it
  kNotSupported = 801,
  kMpsClientTerminated = 810,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kStreamCaptureImplicit = 906,
  kCapturedEvent = 907,
  kStreamCaptureWrongThread = 908,
  kExternalDevice = 911,
  kUnknown = 999,
};

// A capture forbids calls that might have to wait. In mode kGlobal, the default, a thread obeys the captures
// of all threads; in kThreadLocal, only its own; in kRelaxed, none. The numbers are those of
// cudaStreamCaptureMode.
enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

using CudaContextHandle = void*;  // a CUcontext
using CudaStream = void*;         // a cudaStream_t
using CudaEvent = void*;          // a cudaEvent_t
using CudaGraph = void*;          // a cudaGraph_t
using CudaExec = void*;           // a cudaGraphExec_t

struct CudaDeviceInfo {
  std::string name;
  std::array<unsigned char, 16> uuid{};  // of the card; independent of CUDA_VISIBLE_DEVICES
  int compute_capability = 0;            // 10 * major + minor: 80 for an A100
  bool virtual_memory = false;           // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  bool file_handles = false;             // CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
  bool rdma = false;                     // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
  std::optional<int> host_node;          // the host's NUMA node closest to the GPU, if known
};

// Properties of virtual memory: its GPU, and who else may access it (CUmemAllocationProp).
struct CudaMemoryKind {
  int ordinal = 0;
  bool file_handles = false;  // other processes can import it by file descriptor
  bool rdma = false;          // network cards can access it by GPUDirect RDMA
};

// An event with neither property is the cheapest to record, to wait for on a stream and to query
// (cudaEventCreateWithFlags).
struct CudaEventKind {
  bool timed = false;   // event_elapsed_time() accepts it
  bool blocks = false;  // a waiting host thread sleeps instead of spinning (cudaEventBlockingSync)
};

class CudaApi {
 public:
  CudaApi() = default;
  virtual ~CudaApi() = default;
  CudaApi(const CudaApi&) = delete;
  CudaApi& operator=(const CudaApi&) = delete;

  // Empty if CUDA is usable; else the reason why no call below can work, whatever GPUs the machine has.
  virtual std::string why_missing() const = 0;
  // The name of the cudaError_t, for example "cudaErrorMemoryAllocation".
  virtual std::string error_name(CudaStatus status) const = 0;
  // The last error of the calling thread's runtime calls, including the program's own calls. Driver calls
  // (cu...) and kNotReady set no last error. get_last_error() clears it.
  virtual CudaStatus get_last_error() = 0;
  virtual CudaStatus peek_at_last_error() = 0;

  // Versions are 1000 * major + 10 * minor. driver_version() sets 0 if there is no driver.
  virtual CudaStatus driver_version(int& version) = 0;
  virtual int runtime_version() const = 0;
  virtual CudaStatus device_count(int& count) = 0;
  virtual CudaStatus get_device(int& ordinal) = 0;
  // Makes the GPU's primary context current to the calling thread, in place of any other.
  virtual CudaStatus set_device(int ordinal) = 0;
  // Sets null if the calling thread has no context. Without a context, runtime calls begin to use the
  // thread's GPU.
  virtual CudaStatus current_context(CudaContextHandle& context) = 0;
  virtual CudaStatus set_current_context(CudaContextHandle context) = 0;
  virtual CudaStatus device_info(CudaDeviceInfo& info, int ordinal) = 0;
  // Whether the process already uses the GPU, that is, whether its primary context is active.
  virtual CudaStatus context_is_active(bool& active, int ordinal) = 0;
  // The GPU's free memory with a primary context in place. If the process has none, the call creates one and
  // releases it again.
  virtual CudaStatus gpu_free_bytes(std::uint64_t& free, int ordinal) = 0;
  // The card's free memory as reported by the driver's management library (NVML), which does not begin to use
  // the GPU. kNotSupported without NVML.
  virtual CudaStatus card_free_bytes(std::uint64_t& free, int ordinal) = 0;
  // Memory of the calling thread's device, in bytes.
  virtual CudaStatus memory_info(std::uint64_t& free, std::uint64_t& total) = 0;

  // Whether GPU `ordinal` can access memory of GPU `peer`.
  virtual CudaStatus can_access_peer(bool& can, int ordinal, int peer) = 0;
  // From now on, the calling thread's device may access all memory that malloc() has allocated or will
  // allocate on `peer`. This does not cover virtual memory.
  virtual CudaStatus enable_peer_access(int peer) = 0;

  // Creates a stream that does not synchronise with the legacy default stream.
  virtual CudaStatus stream_create(CudaStream& stream) = 0;
  virtual CudaStatus stream_destroy(CudaStream stream) = 0;
  virtual CudaStatus stream_synchronize(CudaStream stream) = 0;
  virtual CudaStatus stream_query(CudaStream stream) = 0;
  // An ID that no other stream ever has, even after `stream` is destroyed. kInvalidResourceHandle if there
  // is no such stream.
  virtual CudaStatus stream_id(std::uint64_t& id, CudaStream stream) = 0;
  virtual CudaStatus stream_is_capturing(bool& capturing, CudaStream stream) = 0;
  // Waits for all streams of the calling thread's device.
  virtual CudaStatus device_synchronize() = 0;
  virtual CudaStatus stream_wait_event(CudaStream stream, CudaEvent event) = 0;
  virtual CudaStatus event_create(CudaEvent& event, const CudaEventKind& kind) = 0;
  virtual CudaStatus event_destroy(CudaEvent event) = 0;
  virtual CudaStatus event_record(CudaEvent event, CudaStream stream) = 0;
  virtual CudaStatus event_query(CudaEvent event) = 0;
  virtual CudaStatus event_synchronize(CudaEvent event) = 0;
  virtual CudaStatus event_elapsed_time(float& milliseconds, CudaEvent begin, CudaEvent end) = 0;
  virtual CudaStatus memcpy_async(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes,
                                  CopyDirection direction, CudaStream stream) = 0;

  // Until stream_end_capture(), submissions to the stream and to streams that wait for its events become a
  // graph and do not run. Meanwhile the calling thread must not make calls that might have to wait; other
  // threads may.
  virtual CudaStatus stream_begin_capture(CudaStream stream) = 0;
  // Sets the calling thread's mode and returns the previous one in `mode`.
  virtual CudaStatus thread_exchange_capture_mode(CaptureMode& mode) = 0;
  // Ends the capture even if the call fails; then there is no graph.
  virtual CudaStatus stream_end_capture(CudaGraph& graph, CudaStream stream) = 0;
  virtual CudaStatus graph_destroy(CudaGraph graph) = 0;
  // The graph may be destroyed afterwards.
  virtual CudaStatus graph_instantiate(CudaExec& exec, CudaGraph graph) = 0;
  // Launches in flight still complete.
  virtual CudaStatus graph_exec_destroy(CudaExec exec) = 0;
  virtual CudaStatus graph_launch(CudaExec exec, CudaStream stream) = 0;

  // Names the calling thread's submissions until the matching pop, for profilers (NVTX). No effect without a
  // profiler.
  virtual void range_push(const std::string& name) = 0;
  virtual void range_pop() = 0;

  // Page-locks an existing mapping for every device. Several threads first populate its pages, with huge
  // pages if the system has them: CUDA alone would populate the pages one by one.
  virtual CudaStatus host_register(AddressRange range) = 0;
  virtual CudaStatus host_unregister(std::uint64_t address) = 0;

  // Memory of the calling thread's device; free() waits for all work on the device.
  virtual CudaStatus malloc(std::uint64_t& address, std::uint64_t bytes) = 0;
  virtual CudaStatus free(std::uint64_t address) = 0;

  // The driver's cuMem... calls.
  virtual CudaStatus allocation_granularity(std::uint64_t& bytes, const CudaMemoryKind& kind) = 0;
  virtual CudaStatus address_reserve(std::uint64_t& address, std::uint64_t bytes,
                                     std::uint64_t alignment) = 0;
  virtual CudaStatus address_free(AddressRange reservation) = 0;
  virtual CudaStatus memory_create(std::uint64_t& handle, std::uint64_t bytes,
                                   const CudaMemoryKind& kind) = 0;
  virtual CudaStatus memory_release(std::uint64_t handle) = 0;
  virtual CudaStatus memory_map(AddressRange range, std::uint64_t handle) = 0;
  virtual CudaStatus memory_set_access(AddressRange range, std::span<const int> ordinals) = 0;
  // `range` must have been mapped as a whole.
  virtual CudaStatus memory_unmap(AddressRange range) = 0;
};

// The real CUDA. Can be made on any machine: the calls or why_missing() report what the machine lacks.
// Throws DeviceError in a build without CUDA.
std::unique_ptr<CudaApi> make_cuda_api();

}  // namespace vdnn
