#pragma once
// CUDA's runtime for programs that link with it and know nothing of vdnn. It replaces the toolkit's
// libcudart.so, over one fake runtime (tests/fakes/fake_cuda.h) that lives as long as the process. It adds
// what the fake lacks: handles that are reused for other streams, pageable host memory in copies, settings
// from the environment, and a report at the end of the process.
//
//   VDNN_STAND_IN_SEED=7            the order in which streams run
//   VDNN_STAND_IN_MEMORY=64MiB      of each GPU
//   VDNN_STAND_IN_GPUS=2
//   VDNN_STAND_IN_VIRTUAL_MEMORY=0  the GPUs have no virtual memory management
//   VDNN_STAND_IN_FAIL_EVERY=50     every 50th call fails
//   VDNN_STAND_IN_FAIL_PERCENT=2    this share of the calls fails, chosen by seed
//   VDNN_STAND_IN_LOSE_WAIT=9       the 9th cudaStreamWaitEvent has no effect
//   VDNN_STAND_IN_REPORT=FILE       lines: "misuse ..." and "finding ..." as they occur; at the end of the
//                                   process "call NAME COUNT", "failed NAME" and "leak ..."
//
// Kernels are not executed: a launch only has its place in the order of its stream. Tests that execute them
// use declared_launch.h.

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/fakes/fake_cuda.h"

namespace vdnn::stand_in {

// Properties that each GPU reports.
inline constexpr int kComputeCapability = 90;
inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kGreatestPriority = -5;  // of streams; the least is 0

// A stream of the program. Its handle is this object's address, which a later stream may reuse.
struct Stream {
  CudaStream fake = nullptr;  // null: none
  int ordinal = 0;
  bool blocking = false;  // takes turns with the legacy default stream
  int priority = 0;
};

// Marks device memory that cannot be shared with another process: memory that cuMemMap() maps, and memory of
// graphs.
inline constexpr unsigned kNotShareable = 1;

struct Memory {
  std::uint64_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeDevice;
  int ordinal = 0;
  unsigned host_flags = 0;
  std::optional<Mapping> host;  // memory of cudaMallocHost
};

struct Settings {
  FakeCudaOptions fake;
  std::uint64_t fail_every = 0;  // 0: none
  unsigned fail_percent = 0;
  std::uint64_t lost_wait = 0;  // 0: none
  std::string report;           // a file, or ""
};

class StandIn {
 public:
  // Lives as long as the process, even while static objects are destroyed.
  static StandIn& instance();

  explicit StandIn(Settings settings);

  FakeCuda& fake() { return fake_; }

  // Runs the program's call `name`, or makes it fail if it has been chosen to. `work` returns a CudaStatus.
  // `releases`: for a call that releases a resource, the name of the fake's call that does this. The failure
  // is then the fake's, which does not count the resource as leaked. If `work` throws, the call fails, and
  // the report has a misuse with the exception's text: no exception may cross the C interface.
  template <class Work>
  cudaError_t call(std::string_view name, const Work& work, std::string_view releases = {}) {
    if (is_in_child(name)) {
      return cudaErrorInitializationError;
    }
    const std::lock_guard lock(mutex_);
    enter_thread();
    ++calls_[std::string(name)];
    const CudaStatus failure = next_failure(name);
    if (failure != CudaStatus::kSuccess && releases.empty()) {
      return finish(name, failure);
    }
    if (failure != CudaStatus::kSuccess) {
      fake_.fail_call(1, failure, releases);
    }
    const cudaError_t error = finish(name, without_exceptions(name, work));
    fake_.fail_call(0, CudaStatus::kSuccess);  // in case the failing call was not reached
    report_what_is_wrong();
    return error;
  }
  // Runs a call that cannot fail. It is not counted.
  template <class Work>
  auto quietly(const Work& work) {
    const std::lock_guard lock(mutex_);
    return work();
  }
  cudaError_t take_last_error(bool forget);

  // --- for what calls do -----------------------------------------------------------------------------------
  int ordinal();
  // The fake's stream; null if there is no such stream.
  CudaStream find(cudaStream_t handle);
  CudaStatus create(cudaStream_t& handle, bool blocking, int priority = 0);
  CudaStatus destroy(cudaStream_t handle);
  CudaStatus flags_of(cudaStream_t handle, unsigned& flags);
  CudaStatus priority_of(cudaStream_t handle, int& priority);
  // The GPU of a stream; the thread's GPU for default streams.
  int ordinal_of(cudaStream_t handle);

  void add(std::uint64_t address, Memory memory) { memory_.emplace(address, std::move(memory)); }
  void remove(std::uint64_t address) { memory_.erase(address); }
  // The memory that contains `address`; null for ordinary host memory.
  const std::pair<const std::uint64_t, Memory>* find_memory(std::uint64_t address) const;

  std::uint64_t memory_bytes() const { return settings_.fake.memory_bytes; }
  CudaStatus allocate(void** address, std::size_t bytes);
  CudaStatus allocate_managed(void** address, std::size_t bytes, unsigned flags);
  CudaStatus allocate_async(void** address, std::size_t bytes, cudaStream_t stream);
  CudaStatus free(void* address);
  CudaStatus free_async(void* address, cudaStream_t stream);
  CudaStatus allocate_host(void** address, std::size_t bytes, unsigned flags);
  // Waits for all used GPUs, since any of them may still read the memory.
  CudaStatus free_host(void* address);
  CudaStatus copy(void* destination, const void* source, std::size_t bytes, cudaStream_t stream);
  CudaStatus set(void* destination, int value, std::size_t bytes, cudaStream_t stream);
  CudaStatus launch(cudaStream_t stream);
  CudaStatus add_event(CudaEvent event);
  CudaStatus remove_event(CudaEvent event);
  CudaStatus reset();

  void write_report();

 private:
  // Whether the process is a child of fork(), where CUDA must not be used. Reports a misuse if so.
  bool is_in_child(std::string_view name) const;
  void enter_thread();
  void forget(const void* address);
  // `make(address)` allocates the memory.
  template <class Make>
  CudaStatus allocate_by(void** address, std::size_t bytes, int ordinal, const Make& make);
  CudaStatus next_failure(std::string_view name);
  template <class Work>
  CudaStatus without_exceptions(std::string_view name, const Work& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      report_misuse(std::string(name) + ": " + error.what());
      return CudaStatus::kUnknown;
    }
  }
  cudaError_t finish(std::string_view name, CudaStatus status);
  // Reports at once, so that nothing is lost if the process dies.
  void report_what_is_wrong();
  void report_misuse(const std::string& text);
  CudaStatus synchronize_used();
  Stream* find_made(cudaStream_t handle);

  const Settings settings_;
  const pid_t process_ = getpid();
  std::mutex mutex_;  // guards all members below
  std::ofstream report_;
  std::size_t misuses_reported_ = 0;
  std::size_t findings_reported_ = 0;
  FakeCuda fake_;
  std::mt19937_64 random_;
  std::uint64_t failable_calls_ = 0;
  std::map<std::string, std::uint64_t> calls_;
  std::vector<std::string> failed_;
  std::map<std::uint64_t, cudaError_t> last_errors_;  // by thread_number()
  std::set<std::uint64_t> threads_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::set<CudaEvent> events_;
  std::map<std::uint64_t, Memory> memory_;  // by begin
};

// The driver's function that a program can request from the runtime, or null.
void* find_driver_function(std::string_view name);

}  // namespace vdnn::stand_in
