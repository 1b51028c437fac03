#pragma once
// The calls of CUDA that the driver makes, as one table: the only way to them. So a fake runtime can stand in
// (tests/fakes/fake_cuda.h), the driver compiles and is tested, under sanitizers too, where no toolkit is,
// and a program that was built with one starts where there is no driver: nothing of libcuda is linked, its
// entry points are asked for at run time.
//
// Functions are named after CUDA's; errors are returned as CUDA numbers them. CUresult and cudaError_t use
// the same numbers, so one type holds both.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "vdnn/device.h"

namespace vdnn {

// Those that something here depends on or tests ask for.
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
// of all threads, in kThreadLocal its own, in kRelaxed none. The numbers are those of cudaStreamCaptureMode.
enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

using CudaContextHandle = void*;  // a CUcontext
using CudaStream = void*;         // a cudaStream_t
using CudaEvent = void*;          // a cudaEvent_t
using CudaGraph = void*;          // a cudaGraph_t
using CudaExec = void*;           // a cudaGraphExec_t

struct CudaDeviceInfo {
  std::string name;
  std::array<unsigned char, 16> uuid{};  // the card's, whatever CUDA_VISIBLE_DEVICES makes of ordinals
  int compute_capability = 0;            // 10 * major + minor: 80 for an A100
  bool virtual_memory = false;           // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  bool file_handles = false;             // CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
  bool rdma = false;                     // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
  std::optional<int> host_node;          // the NUMA node of the host beside it, where driver and system say
};

// Of virtual memory: where it is, and what else than this process's work may reach it (CUmemAllocationProp).
struct CudaMemoryKind {
  int ordinal = 0;
  bool file_handles = false;  // other processes, by a file descriptor that is exported
  bool rdma = false;          // network cards, by GPUDirect RDMA
};

// An event with neither is the cheapest to record, to wait for on a stream and to query
// (cudaEventCreateWithFlags).
struct CudaEventKind {
  bool timed = false;   // event_elapsed_time() takes it
  bool blocks = false;  // a host that waits for it sleeps; else it spins (cudaEventBlockingSync)
};

class CudaApi {
 public:
  CudaApi() = default;
  virtual ~CudaApi() = default;
  CudaApi(const CudaApi&) = delete;
  CudaApi& operator=(const CudaApi&) = delete;

  // Empty, or why none of the calls below can work whatever the machine has.
  virtual std::string why_missing() const = 0;
  // Of cudaError_t: "cudaErrorMemoryAllocation".
  virtual std::string error_name(CudaStatus status) const = 0;
  // Of the calls of the runtime that the calling thread has made, the program's own too. Calls of the driver
  // (cu...) leave none, nor does kNotReady. The first forgets it.
  virtual CudaStatus get_last_error() = 0;
  virtual CudaStatus peek_at_last_error() = 0;

  // 1000 * major + 10 * minor. Of the driver 0: there is none.
  virtual CudaStatus driver_version(int& version) = 0;
  virtual int runtime_version() const = 0;
  virtual CudaStatus device_count(int& count) = 0;
  virtual CudaStatus get_device(int& ordinal) = 0;
  // Makes the GPU's primary context current to the calling thread, in place of any other.
  virtual CudaStatus set_device(int ordinal) = 0;
  // The calling thread's; null: it has none. Where it has none, calls of the runtime begin to use the
  // thread's GPU.
  virtual CudaStatus current_context(CudaContextHandle& context) = 0;
  virtual CudaStatus set_current_context(CudaContextHandle context) = 0;
  virtual CudaStatus device_info(CudaDeviceInfo& info, int ordinal) = 0;
  // Whether the process uses the GPU already (its primary context).
  virtual CudaStatus context_is_active(bool& active, int ordinal) = 0;
  // The GPU's free memory beside the process's primary context. The call makes one where there is none, and
  // releases it at its end.
  virtual CudaStatus gpu_free_bytes(std::uint64_t& free, int ordinal) = 0;
  // What the card has free, asked of the driver's management library (NVML), which does not begin to use the
  // GPU. kNotSupported where there is none.
  virtual CudaStatus card_free_bytes(std::uint64_t& free, int ordinal) = 0;
  // Of the calling thread's device, in bytes.
  virtual CudaStatus memory_info(std::uint64_t& free, std::uint64_t& total) = 0;

  // Whether `ordinal` can touch memory of `peer`.
  virtual CudaStatus can_access_peer(bool& can, int ordinal, int peer) = 0;
  // From now on the calling thread's device may touch all that malloc() gave or gives on `peer`; of virtual
  // memory, nothing.
  virtual CudaStatus enable_peer_access(int peer) = 0;

  // Streams do not synchronise with the legacy default stream.
  virtual CudaStatus stream_create(CudaStream& stream) = 0;
  virtual CudaStatus stream_destroy(CudaStream stream) = 0;
  virtual CudaStatus stream_synchronize(CudaStream stream) = 0;
  virtual CudaStatus stream_query(CudaStream stream) = 0;
  // Never another stream's, not of one that was destroyed either. kInvalidResourceHandle where there is none.
  virtual CudaStatus stream_id(std::uint64_t& id, CudaStream stream) = 0;
  virtual CudaStatus stream_is_capturing(bool& capturing, CudaStream stream) = 0;
  // Of the calling thread's device: all streams.
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

  // Until the end, what the stream is given, and streams that wait for an event of it, becomes a graph and
  // does not run. Meanwhile this thread, and no other, may make no call that might have to wait.
  virtual CudaStatus stream_begin_capture(CudaStream stream) = 0;
  // The calling thread's mode from now on. Tells the one before.
  virtual CudaStatus thread_exchange_capture_mode(CaptureMode& mode) = 0;
  // Ends the capture also where it fails; then there is no graph.
  virtual CudaStatus stream_end_capture(CudaGraph& graph, CudaStream stream) = 0;
  virtual CudaStatus graph_destroy(CudaGraph graph) = 0;
  // The graph may be destroyed afterwards.
  virtual CudaStatus graph_instantiate(CudaExec& exec, CudaGraph graph) = 0;
  // Launches that are in flight run on.
  virtual CudaStatus graph_exec_destroy(CudaExec exec) = 0;
  virtual CudaStatus graph_launch(CudaExec exec, CudaStream stream) = 0;

  // Names what the calling thread submits until the matching pop, for profilers (NVTX). Where none listens,
  // nothing happens.
  virtual void range_push(const std::string& name) = 0;
  virtual void range_pop() = 0;

  // Page-locks what is mapped already, for every device. Its pages are made to be there first, huge ones
  // where the system has them, by several threads: CUDA would bring them one by one.
  virtual CudaStatus host_register(AddressRange range) = 0;
  virtual CudaStatus host_unregister(std::uint64_t address) = 0;

  // Of the calling thread's device; free waits for all work on it.
  virtual CudaStatus malloc(std::uint64_t& address, std::uint64_t bytes) = 0;
  virtual CudaStatus free(std::uint64_t address) = 0;

  // The driver's cuMem...
  virtual CudaStatus allocation_granularity(std::uint64_t& bytes, const CudaMemoryKind& kind) = 0;
  virtual CudaStatus address_reserve(std::uint64_t& address, std::uint64_t bytes,
                                     std::uint64_t alignment) = 0;
  virtual CudaStatus address_free(AddressRange reservation) = 0;
  virtual CudaStatus memory_create(std::uint64_t& handle, std::uint64_t bytes,
                                   const CudaMemoryKind& kind) = 0;
  virtual CudaStatus memory_release(std::uint64_t handle) = 0;
  virtual CudaStatus memory_map(AddressRange range, std::uint64_t handle) = 0;
  virtual CudaStatus memory_set_access(AddressRange range, std::span<const int> ordinals) = 0;
  // A range that was mapped as a whole.
  virtual CudaStatus memory_unmap(AddressRange range) = 0;
};

// CUDA itself. Works on any machine: what is missing there the calls say, or why_missing(). Throws
// DeviceError in a build without CUDA.
std::unique_ptr<CudaApi> make_cuda_api();

}  // namespace vdnn
