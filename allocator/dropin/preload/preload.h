#pragma once
// What libvdnn_preload.so does in place of CUDA's runtime: a stream pool (vdnn/stream_pool.h) for each GPU
// that the program allocates on, made at its first allocation. What the pool has not given is the runtime's,
// and goes there; so does everything where no pool can be made, and what a pool cannot serve for another
// reason than want of memory. No exception leaves.
//
// cudaFree synchronises the GPU, as CUDA's does, so that the block is idle and may go to anybody. Asked to
// (Settings::ordered_free) it does not: then what cudaMalloc gives belongs to the legacy default stream and
// is free in its order, which is right for programs that use such memory on that stream alone, or have
// synchronised themselves with all other uses by when they free it.

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "allocator/dropin/preload/host_cache.h"
#include "allocator/dropin/preload/next_runtime.h"
#include "allocator/dropin/preload/settings.h"
#include "streams/cuda/cuda_api.h"
#include "vdnn/stream_pool.h"

namespace vdnn::preload {

// The calls of the runtime that are counted.
enum class Call : std::uint8_t {
  kMalloc,
  kFree,
  kMallocAsync,
  kFreeAsync,
  kHostAlloc,  // cudaMallocHost, too
  kFreeHost,
};
inline constexpr std::size_t kCalls = 6;

// Thread-safe.
class Preload {
 public:
  // The process's, made at the first call, which never dies: static objects may free memory at the very end.
  // Null where there is no runtime behind us.
  static Preload* instance();
  // Null where no call has been made.
  static Preload* existing();

  Preload(NextRuntime next, const Settings& settings);

  cudaError_t allocate(void** address, std::size_t bytes);
  cudaError_t allocate(void** address, std::size_t bytes, cudaStream_t stream);
  cudaError_t free(void* address);
  cudaError_t free(void* address, cudaStream_t stream);
  cudaError_t allocate_host(void** address, std::size_t bytes, unsigned flags);
  cudaError_t free_host(void* address);
  cudaError_t memory_info(std::size_t* free, std::size_t* total);
  cudaError_t destroy_stream(cudaStream_t stream);
  cudaError_t reset_device();
  cudaError_t ipc_handle(cudaIpcMemHandle_t* handle, void* address);

  // At the end of the process: the summary where one is asked for, and all memory back. What is called later
  // goes to the runtime.
  void finish() noexcept;

 private:
  struct Gpu {
    Gpu(int ordinal_, std::unique_ptr<PoolBackend> backend_, const StreamPoolOptions& options);

    const int ordinal;
    const std::unique_ptr<PoolBackend> backend;
    StreamPool pool;
  };
  struct Count {
    std::atomic<std::uint64_t> made{0};
    std::atomic<std::uint64_t> passed{0};  // to the runtime
  };

  // Of the calling thread's GPU; null where there is none, nor can be.
  std::shared_ptr<Gpu> gpu();
  // Likewise, where the program has allocated there.
  std::shared_ptr<Gpu> existing_gpu();
  std::shared_ptr<Gpu> make_gpu(int ordinal);
  std::vector<std::shared_ptr<Gpu>> pooled_gpus();
  // Whose pool `address` lies in, or null.
  std::shared_ptr<Gpu> owner(const void* address);
  int ordinal() const;
  // `work` on that GPU: the thread's is put back.
  template <class Work>
  cudaError_t on(int ordinal, const Work& work) const;
  // Throws DeviceError where the driver cannot be asked.
  CudaApi& cuda();
  // Whether all work is done of the GPUs that the program uses, any of which may read what is page-locked. On
  // others no context is made.
  bool synchronize_used();

  // pool.allocate...() by `take`, or `pass` where there is no pool, or it fails for another reason than want
  // of memory.
  template <class Take, class Pass>
  cudaError_t allocate_from_pool(Call call, void** address, const Take& take, const Pass& pass);
  // `give` gives it back to the pool that it lies in; else `pass`.
  template <class Give, class Pass>
  cudaError_t free_to_pool(Call call, void* address, const Give& give, const Pass& pass);
  // Want of memory, as the runtime tells it: its last error says so, too.
  cudaError_t refuse() const;
  cudaError_t pass(Call call, cudaError_t result);
  void release_host_memory();
  std::string summary();
  void write_summary();

  const NextRuntime next_;
  const Settings settings_;
  std::array<Count, kCalls> counts_;
  HostCache host_;
  std::atomic<bool> ipc_refused_{false};
  std::mutex cuda_mutex_;  // of the making of what follows
  std::unique_ptr<CudaApi> cuda_;
  std::shared_mutex mutex_;  // guards what follows
  bool finished_ = false;
  std::map<int, std::shared_ptr<Gpu>> gpus_;  // by ordinal; null: no pool can be made
};

}  // namespace vdnn::preload
