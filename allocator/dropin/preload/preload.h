#pragma once
// The core of libvdnn_preload.so: each GPU that the program allocates on is served by a stream pool of its
// own (vdnn/stream_pool.h), which is made at the GPU's first allocation. Calls that concern memory of no pool
// are passed on to CUDA. A request, too, is passed on if its GPU's pool cannot be made, or fails for a reason
// other than lack of memory. No exception leaves this library.
//
// cudaFree synchronises the GPU, as CUDA's cudaFree does, so that the block is idle and any stream may get
// it. With Settings::ordered_free, cudaFree does not synchronise: blocks of cudaMalloc belong to the legacy
// default stream and are freed in its order. That is right for programs that use such memory on that stream
// only, or that have synchronised with all other uses before they free the memory.
//
// While any stream is captured, nothing may wait for a GPU. Then cudaFree postpones freeing its block until
// the host may wait for the GPU. After the capture, the next cudaFree or a shortage of memory causes that
// wait.
//
// cudaMallocAsync and cudaFreeAsync are passed on to CUDA while their stream is captured. There they become
// nodes of the graph, and the graph owns the memory, whose address is valid at each launch.

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/dropin/preload/captures.h"
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
class Gpu {
 public:
  Gpu(const NextRuntime& next_, int ordinal_, std::unique_ptr<PoolBackend> backend_,
      const StreamPoolOptions& options);

  // Puts off the free of a block in use until the whole GPU has been waited for. Throws InvalidArgument if no
  // block in use begins there.
  void put_off(std::uint64_t address);
  bool is_put_off(std::uint64_t address) const;
  bool has_put_off() const { return has_put_off_; }
  // Waits for the GPU, which must be the calling thread's, and frees the blocks that were put off.
  cudaError_t synchronize();

  const NextRuntime& next;  // CUDA's functions
  const int ordinal;
  const std::unique_ptr<PoolBackend> backend;
  StreamPool pool;

 private:
  // False if the heap has no memory for the free now.
  bool free_idle(std::uint64_t address);

  mutable std::mutex mutex_;  // guards the members below
  // From the address of a block to the number of the put_off() call that postponed its free.
  std::unordered_map<std::uint64_t, std::uint64_t> put_off_;
  std::uint64_t last_put_off_ = 0;
  std::atomic<bool> has_put_off_{false};
};

struct Count {
  std::atomic<std::uint64_t> made{0};
  std::atomic<std::uint64_t> passed{0};  // passed on to CUDA
};

// The pools of the process. Callers of the shared runtime, of runtimes linked in and of the driver share
// them, since one may free memory that another has allocated. Never destroyed: static objects may free
// memory at the very end.
struct Pools {
  explicit Pools(const Settings& settings_);

  static Pools& instance();
  // Null if instance() was never called.
  static Pools* existing();

  // The GPU whose pool contains `address`, or null.
  std::shared_ptr<Gpu> owner(std::uint64_t address);

  const Settings settings;
  std::array<Count, kCalls> counts;
  HostCache host;
  Captures captures;
  std::atomic<std::uint64_t> looked_up{0};  // look-ups answered with our function, not the driver's
  std::atomic<bool> ipc_refused{false};
  std::shared_mutex mutex;  // guards the members below
  bool finished = false;
  std::map<int, std::shared_ptr<Gpu>> gpus;  // by ordinal; null if no pool can be made
};

// Thread-safe.
class Preload {
 public:
  // For the hooks in front of the shared runtime. Made at the first call; null if there is no such runtime.
  static Preload* of_runtime();
  // For the hooks in front of the driver, which must have been set (driver_runtime.h).
  static Preload* of_driver();

  Preload(NextRuntime next, Pools& pools) : next_(next), pools_(pools) {}

  cudaError_t allocate(void** address, std::size_t bytes);
  cudaError_t allocate(void** address, std::size_t bytes, cudaStream_t stream);
  cudaError_t free(void* address);
  cudaError_t free(void* address, cudaStream_t stream);
  cudaError_t allocate_host(void** address, std::size_t bytes, unsigned flags);
  cudaError_t free_host(void* address);
  // `take()` requests memory from CUDA. If there is none, the pools give back their free memory, and take()
  // is called once more.
  template <class Take>
  cudaError_t with_memory(const Take& take) {
    cudaError_t error = take();
    if (error == cudaErrorMemoryAllocation && give_back_kept()) {
      next_.cudaGetLastError();
      error = take();
    }
    return error;
  }
  // Gives back the free memory of the pool of the calling thread's GPU, or of all pools if the thread has no
  // GPU. Returns whether there was any.
  bool give_back_kept() noexcept;
  cudaError_t memory_info(std::size_t* free, std::size_t* total);
  cudaError_t destroy_stream(cudaStream_t stream);
  cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
  // Like begin_capture() above, but begins the capture with `begin()`.
  template <class Begin>
  cudaError_t begin_capture(cudaStream_t stream, const Begin& begin) {
    std::uint64_t capture = 0;
    try {
      capture = pools_.captures.begin(named(stream));
    } catch (const std::bad_alloc&) {
      return cudaErrorMemoryAllocation;
    }
    const cudaError_t error = begin();
    pools_.captures.has_begun(capture, error == cudaSuccess);
    return error;
  }
  cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph);
  const NextRuntime& next() const { return next_; }
  cudaError_t reset_device();
  // Call it before the GPU is reset.
  void forget_device(int ordinal);
  cudaError_t ipc_handle(cudaIpcMemHandle_t* handle, void* address);

  // At the end of the process: writes the summary if one is requested, and gives all memory back if CUDA
  // still accepts it. Later calls are passed on to CUDA.
  static void finish() noexcept;

 private:
  // The pool of the GPU `ordinal`; makes it if necessary. Null if no pool can be made.
  std::shared_ptr<Gpu> gpu(int ordinal);
  // The pool of the calling thread's GPU; null if the program has not allocated there.
  std::shared_ptr<Gpu> existing_gpu();
  std::shared_ptr<Gpu> make_gpu(int ordinal);
  std::vector<std::shared_ptr<Gpu>> pooled_gpus();
  // CUDA's functions for the pools. Throws DeviceError if one is missing.
  std::shared_ptr<CudaApi> cuda();
  // Waits for all GPUs that the program uses, since any of them may read page-locked memory; creates no
  // context on other GPUs. False if a capture forbids waiting for one of them.
  bool synchronize_used();

  // Whether work submitted to the stream becomes part of a graph, or is refused because of a capture; empty
  // if the runtime does not answer.
  std::optional<bool> is_captured(cudaStream_t stream) const;
  NamedStream named(cudaStream_t stream) { return {.handle = stream, .ordinal = gpu_of_stream(stream)}; }
  // Whether a capture that was begun on the stream is still in progress. True if CUDA cannot be asked.
  bool goes_on(const NamedStream& stream);
  bool any_capture();
  // Whether the calling thread's whole GPU may be waited for: no stream is captured, as far as is known.
  bool may_synchronize();

  // Allocates with `take(pool)` from the pool of the GPU `ordinal`. Calls `pass()` if there is no pool, or
  // if the pool fails for a reason other than lack of memory.
  template <class Take, class Pass>
  cudaError_t allocate_from_pool(Call call, int ordinal, void** address, const Take& take, const Pass& pass);
  // Calls `give(gpu)`, which frees the address in the GPU's pool, or `pass()` if it lies in no pool.
  template <class Give, class Pass>
  cudaError_t free_to_pool(Call call, void* address, const Give& give, const Pass& pass);
  // The ordinal of the stream's GPU; -1 as for gpu_of_thread().
  int gpu_of_stream(cudaStream_t stream);
  // Waits for the GPU if no capture forbids it. Returns whether the blocks that were put off are free now.
  bool synchronize(Gpu& gpu);
  // Waits for a stream of the GPU `ordinal` that is not captured, and then frees the block of `gpu`.
  cudaError_t free_after(Gpu& gpu, std::uint64_t address, int ordinal, cudaStream_t stream);
  // Calls `work()` so that captures of the calling thread do not forbid it.
  template <class Work>
  cudaError_t beside_captures(const Work& work) const;
  static cudaError_t free_unordered(StreamPool& pool, std::uint64_t address) noexcept;
  // Reports lack of memory as the runtime does, and sets the runtime's last error.
  cudaError_t refuse() const;
  cudaError_t pass(Call call, cudaError_t result);
  // Ends all captures that were begun on the GPU `ordinal`, as its reset does.
  void end_captures(int ordinal);
  // Frees the page-locked memory that is kept for the GPU `ordinal`, or for all GPUs.
  void release_host_memory(std::optional<int> ordinal = std::nullopt);
  // Destroys the pool, with its GPU as the calling thread's.
  static void end(std::shared_ptr<Gpu> gpu);

  const NextRuntime next_;
  Pools& pools_;
  std::atomic<int> gpus_{0};  // number of GPUs that the process sees; 0: not known yet
  std::mutex cuda_mutex_;     // guards cuda_
  std::shared_ptr<CudaApi> cuda_;
};

}  // namespace vdnn::preload
