#pragma once
// What libvdnn_preload.so does in place of CUDA: a stream pool (vdnn/stream_pool.h) for each GPU that the
// program allocates on, made at its first allocation. What the pool has not given is CUDA's, and goes there;
// so does everything where no pool can be made, and what a pool cannot serve for another reason than want of
// memory. No exception leaves.
//
// cudaFree synchronises the GPU, as CUDA's does, so that the block is idle and may go to anybody. Asked to
// (Settings::ordered_free) it does not: then what cudaMalloc gives belongs to the legacy default stream and
// is free in its order, which is right for programs that use such memory on that stream alone, or have
// synchronised themselves with all other uses by when they free it.
//
// While any stream is captured, no GPU may be waited for. Blocks that are given to cudaFree then are put off:
// they go back once their GPU can be waited for again: with the next cudaFree or when memory
// runs short.
//
// cudaMallocAsync and cudaFreeAsync go to CUDA while their stream is captured: there they are nodes of the
// graph, and the graph owns the memory, whose address is valid at each launch.

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

  // A block in use that is to be freed once all of the GPU has been waited for. Throws InvalidArgument where
  // there is none.
  void put_off(std::uint64_t address);
  bool is_put_off(std::uint64_t address) const;
  bool has_put_off() const { return has_put_off_; }
  // Waits for the GPU, on a thread that is there; what was put off is free then.
  cudaError_t synchronize();

  const NextRuntime& next;  // that made it
  const int ordinal;
  const std::unique_ptr<PoolBackend> backend;
  StreamPool pool;

 private:
  // False: there is no memory to do it now.
  bool free_idle(std::uint64_t address);

  mutable std::mutex mutex_;  // guards what follows
  // Addresses, and when each was put off, as a number of all.
  std::unordered_map<std::uint64_t, std::uint64_t> put_off_;
  std::uint64_t last_put_off_ = 0;
  std::atomic<bool> has_put_off_{false};
};

struct Count {
  std::atomic<std::uint64_t> made{0};
  std::atomic<std::uint64_t> passed{0};  // to CUDA
};

// Of the process, whichever way its parts come to CUDA: what one of them allocates another may free. Never
// dies: static objects may free memory at the very end.
struct Pools {
  explicit Pools(const Settings& settings_);

  static Pools& instance();
  // Null where nothing has asked for it.
  static Pools* existing();

  // In whose pool `address` lies, or null.
  std::shared_ptr<Gpu> owner(std::uint64_t address);

  const Settings settings;
  std::array<Count, kCalls> counts;
  HostCache host;
  Captures captures;
  std::atomic<std::uint64_t> looked_up{0};  // functions of the driver that programs were given ours for
  std::atomic<bool> ipc_refused{false};
  std::shared_mutex mutex;  // guards what follows
  bool finished = false;
  std::map<int, std::shared_ptr<Gpu>> gpus;  // by ordinal; null: no pool can be made
};

// Thread-safe.
class Preload {
 public:
  // In front of the shared runtime. Made at the first call; null where there is none.
  static Preload* of_runtime();
  // In front of the driver; there is one (driver_runtime.h).
  static Preload* of_driver();

  Preload(NextRuntime next, Pools& pools) : next_(next), pools_(pools) {}

  cudaError_t allocate(void** address, std::size_t bytes);
  cudaError_t allocate(void** address, std::size_t bytes, cudaStream_t stream);
  cudaError_t free(void* address);
  cudaError_t free(void* address, cudaStream_t stream);
  cudaError_t allocate_host(void** address, std::size_t bytes, unsigned flags);
  cudaError_t free_host(void* address);
  // `take()` asks CUDA for memory. Where there is none, it is asked once more after pools have given back
  // what they keep.
  template <class Take>
  cudaError_t with_memory(const Take& take) {
    cudaError_t error = take();
    if (error == cudaErrorMemoryAllocation && give_back_kept()) {
      next_.cudaGetLastError();
      error = take();
    }
    return error;
  }
  // Of the calling thread's GPU, or of all where it has none. Whether that was anything.
  bool give_back_kept() noexcept;
  cudaError_t memory_info(std::size_t* free, std::size_t* total);
  cudaError_t destroy_stream(cudaStream_t stream);
  cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
  // `begin` begins one in another way.
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
  // Before the GPU is reset.
  void forget_device(int ordinal);
  cudaError_t ipc_handle(cudaIpcMemHandle_t* handle, void* address);

  // At the end of the process: the summary where one is asked for, and all memory back, where CUDA still
  // takes any. What is called later goes to CUDA.
  static void finish() noexcept;

 private:
  // Of that GPU; null where there is none, nor can be.
  std::shared_ptr<Gpu> gpu(int ordinal);
  // Likewise, where the program has allocated there.
  std::shared_ptr<Gpu> existing_gpu();
  std::shared_ptr<Gpu> make_gpu(int ordinal);
  std::vector<std::shared_ptr<Gpu>> pooled_gpus();
  // What is behind us as pools call it. Throws DeviceError where it lacks something.
  std::shared_ptr<CudaApi> cuda();
  // Whether all work is done of the GPUs that the program uses, any of which may read what is page-locked. On
  // others no context is made. False where one of them may not be waited for.
  bool synchronize_used();

  // Whether work given to the stream becomes part of a graph, or is refused for the sake of one; empty where
  // the runtime does not answer.
  std::optional<bool> is_captured(cudaStream_t stream) const;
  NamedStream named(cudaStream_t stream) { return {.handle = stream, .ordinal = gpu_of_stream(stream)}; }
  // Whether a capture goes on that was begun there. Of what cannot be asked, it does.
  bool goes_on(const NamedStream& stream);
  bool any_capture();
  // Whether all of the calling thread's GPU may be waited for: no stream is captured, as far as is known.
  bool may_synchronize();

  // pool.allocate...() of that GPU by `take`, or `pass` where there is no pool, or it fails for another
  // reason than want of memory.
  template <class Take, class Pass>
  cudaError_t allocate_from_pool(Call call, int ordinal, void** address, const Take& take, const Pass& pass);
  // `give` gives it back to the pool that it lies in; else `pass`.
  template <class Give, class Pass>
  cudaError_t free_to_pool(Call call, void* address, const Give& give, const Pass& pass);
  // As gpu_of_thread() has them.
  int gpu_of_stream(cudaStream_t stream);
  // Whether what was put off there is free now.
  bool synchronize(Gpu& gpu);
  // A stream of that GPU is waited for, which is not captured, and then the block is free.
  cudaError_t free_after(Gpu& gpu, std::uint64_t address, int ordinal, cudaStream_t stream);
  // Whatever the calling thread captures meanwhile.
  template <class Work>
  cudaError_t beside_captures(const Work& work) const;
  static cudaError_t free_unordered(StreamPool& pool, std::uint64_t address) noexcept;
  // Want of memory, as the runtime tells it: its last error says so, too.
  cudaError_t refuse() const;
  cudaError_t pass(Call call, cudaError_t result);
  // All that were begun there, as its reset does.
  void end_captures(int ordinal);
  // What is kept of that GPU, or of all.
  void release_host_memory(std::optional<int> ordinal = std::nullopt);
  // Its pool, on that GPU.
  static void end(std::shared_ptr<Gpu> gpu);

  const NextRuntime next_;
  Pools& pools_;
  std::atomic<int> gpus_{0};  // that the process sees; 0: not asked
  std::mutex cuda_mutex_;     // guards what follows
  std::shared_ptr<CudaApi> cuda_;
};

}  // namespace vdnn::preload
