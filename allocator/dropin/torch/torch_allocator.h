#pragma once
// The functions that PyTorch's pluggable allocator needs, over one pool per GPU (torch_hooks.h exports them
// to PyTorch). Pools are made at the first request. Blocks of a graph capture are allocated from a separate
// pool, since each replay uses them again, even after they were freed. The separate pool exists until it is
// released and its last block is freed. When a pool has no memory left, the other pools of its GPU give back
// their free memory.
//
// Thread-safe. Nothing is thrown: a refused request returns null, and vdnn_last_error() gives the reason
// (torch_error.h throws PyTorch's exception).

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "vdnn/allocator.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

// PyTorch's MempoolId_t.
using TorchPoolId = std::pair<unsigned long long, unsigned long long>;
using TorchStreamFilter = std::function<bool(void* stream)>;

class TorchAllocator {
 public:
  using MakeBackend = std::function<std::unique_ptr<PoolBackend>(int device)>;
  explicit TorchAllocator(MakeBackend make_backend) : make_backend_(std::move(make_backend)) {}

  // Restricts GPUs to the numbers 0 to `devices` - 1; until this call, all numbers from 0 on are accepted.
  void init(int devices) noexcept;
  // Returns null if it cannot allocate; then it sets `*status` to the reason, unless `status` is null.
  void* allocate(std::int64_t bytes, int device, void* stream, vdnn_status* status = nullptr) noexcept;
  // If the block cannot be freed, it stays in use.
  void give_back(void* block) noexcept;
  // If this call fails, PyTorch does not learn of it; give_back() then makes the call again. If the stream no
  // longer exists by then, the next user of the block waits for the device.
  void used_on(void* block, void* stream) noexcept;
  // Returns the block in use that begins at `block`, and its size in `bytes`; null if there is none.
  void* base_of(void* block, std::size_t* bytes) noexcept;
  void empty_caches() noexcept;
  // Sets the budget as a fraction of the backend's memory. Call it before the first allocation on the GPU.
  void set_memory_fraction(double fraction, int device) noexcept;
  // Sets the budget of the default pool in bytes, in place of a fraction. Call it before the first
  // allocation on the GPU.
  vdnn_status set_budget(std::uint64_t bytes, int device) noexcept;

  // Until end(), requests for streams that `filter` accepts are served by the pool `id`. If the pool cannot
  // be made, each request tries again to make it. No other pool serves the request: that would give the
  // graph's memory to other tensors.
  void begin(int device, TorchPoolId id, TorchStreamFilter filter) noexcept;
  void end(int device, TorchPoolId id) noexcept;
  // Call it as often as begin(). After the last call, the pool is destroyed once its last block is freed.
  void release(int device, TorchPoolId id) noexcept;

  // The bytes of blocks in all pools of the GPU; zeros if there is no such GPU. The peak is the sum of the
  // pools' peaks.
  vdnn_allocator_figure allocated(int device) noexcept;
  // Restarts the peaks of all pools of the GPU.
  void reset_peaks(int device) noexcept;
  // Statistics of the GPU's default pool.
  vdnn_status statistics(int device, vdnn_allocator_statistics* statistics) noexcept;

 private:
  struct Destroy {
    void operator()(vdnn_allocator* allocator) const { vdnn_allocator_destroy(allocator); }
  };
  struct Pool {
    TorchPoolId id;
    std::unique_ptr<vdnn_allocator, Destroy> allocator;  // null until an attempt to make it succeeds
    unsigned uses = 0;                                   // calls of begin() without their release()
    TorchStreamFilter filter;                            // empty: the pool serves no requests
  };
  struct Gpu {
    std::mutex mutex;  // guards the members below
    double fraction = 1;
    std::optional<std::uint64_t> budget_bytes;
    std::vector<std::shared_ptr<Pool>> pools;
  };

  // Throws InvalidArgument if there is no such GPU.
  Gpu& gpu(int device);
  std::vector<Gpu*> gpus();
  // The caller holds gpu.mutex.
  void make_allocator(Gpu& gpu, int device, Pool& pool);
  std::shared_ptr<Pool> shared_pool(Gpu& gpu, int device);
  std::shared_ptr<Pool> pool_for(int device, void* stream);
  // Null if no pool has the block.
  std::shared_ptr<Pool> owner_of(const void* block);
  vdnn_status record_missed_readers(Pool& pool, void* block);
  // Call it after the block has been freed.
  void forget_missed_readers(void* block);
  static std::shared_ptr<Pool> find(Gpu& gpu, TorchPoolId id);
  static std::shared_ptr<Pool> find_or_add(Gpu& gpu, TorchPoolId id);
  static bool trim(Gpu& gpu);
  // Calls change(gpu); an error if the GPU has a pool already.
  template <class Change>
  vdnn_status change_budget(int device, const Change& change) noexcept;
  // Whether no thread uses the pool or is about to use it. The caller holds gpu.mutex.
  static bool is_unused(const std::shared_ptr<Pool>& pool);
  static std::vector<std::shared_ptr<Pool>> cached_unused(Gpu& gpu);
  static void drop_unused(Gpu& gpu);

  MakeBackend make_backend_;
  std::mutex mutex_;  // guards devices_ and gpus_
  int devices_ = -1;  // unknown
  std::map<int, std::unique_ptr<Gpu>> gpus_;
  std::mutex readers_mutex_;  // guards missed_readers_
  std::map<void*, std::vector<void*>> missed_readers_;
};

}  // namespace vdnn
