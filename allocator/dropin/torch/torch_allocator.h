#pragma once
// What PyTorch's pluggable allocator asks for, over one pool a GPU (torch_hooks.h is what PyTorch sees).
// Pools are made when the first block is asked for. What a graph is captured into gets a pool of its own,
// since its blocks are used again by every replay, whenever they were freed; it lives until it was released
// and its last block was freed. When a pool has no memory left, the others of its GPU give back what they
// cache.
//
// Nothing is thrown; what cannot be had is null, and vdnn_last_error() says why (torch_error.h is what
// throws). Thread-safe.

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

  // There are GPUs 0 to `devices` - 1; before that is known, all from 0 on.
  void init(int devices) noexcept;
  // `status`, if not null: whether there is a block, or why not.
  void* allocate(std::int64_t bytes, int device, void* stream, vdnn_status* status = nullptr) noexcept;
  // A block that the device refuses to take back stays in use.
  void give_back(void* block) noexcept;
  // PyTorch is not told where it is refused; it is tried again before the block goes back. Of a stream that
  // does not exist then, whoever is given the block next waits for the device.
  void used_on(void* block, void* stream) noexcept;
  // The block that begins at `block`, and its size; null where there is none.
  void* base_of(void* block, std::size_t* bytes) noexcept;
  void empty_caches() noexcept;
  // Of what its backend offers a pool. Before the first block of the GPU only.
  void set_memory_fraction(double fraction, int device) noexcept;
  // Sets the budget of the default pool in bytes. It replaces a fraction that was set.
  vdnn_status set_budget(std::uint64_t bytes, int device) noexcept;

  // From now on what is allocated for streams that `filter` names comes from the pool `id`; until end().
  // Where the pool cannot be made, each block tries again, and none is another pool's: that would give the
  // graph's memory to others.
  void begin(int device, TorchPoolId id, TorchStreamFilter filter) noexcept;
  void end(int device, TorchPoolId id) noexcept;
  // As often as begin(): then the pool goes with its last block.
  void release(int device, TorchPoolId id) noexcept;

  // Of blocks, in all pools of the GPU; zeroes where there is no such GPU. The peak is the sum of the pools'
  // peaks.
  vdnn_allocator_figure allocated(int device) noexcept;
  // Of the pool that is nobody's own.
  vdnn_status statistics(int device, vdnn_allocator_statistics* statistics) noexcept;

 private:
  struct Destroy {
    void operator()(vdnn_allocator* allocator) const { vdnn_allocator_destroy(allocator); }
  };
  struct Pool {
    TorchPoolId id;
    std::unique_ptr<vdnn_allocator, Destroy> allocator;  // null until the device permits it
    unsigned uses = 0;                                   // begun and not released
    TorchStreamFilter filter;                            // empty: no allocation goes here
  };
  struct Gpu {
    std::mutex mutex;  // guards what follows
    double fraction = 1;
    std::optional<std::uint64_t> budget_bytes;
    std::vector<std::shared_ptr<Pool>> pools;
  };

  // Throws InvalidArgument where there is no such GPU.
  Gpu& gpu(int device);
  std::vector<Gpu*> gpus();
  // With gpu.mutex.
  void make_allocator(Gpu& gpu, int device, Pool& pool);
  std::shared_ptr<Pool> shared_pool(Gpu& gpu, int device);
  std::shared_ptr<Pool> pool_for(int device, void* stream);
  // Null where the block is nobody's.
  std::shared_ptr<Pool> owner_of(const void* block);
  vdnn_status record_missed_readers(Pool& pool, void* block);
  // Once the block has gone back.
  void forget_missed_readers(void* block);
  static std::shared_ptr<Pool> find(Gpu& gpu, TorchPoolId id);
  static std::shared_ptr<Pool> find_or_add(Gpu& gpu, TorchPoolId id);
  static bool trim(Gpu& gpu);
  // change(gpu), unless a pool of the GPU is there already.
  template <class Change>
  vdnn_status change_budget(int device, const Change& change) noexcept;
  // With gpu.mutex: nobody has it, or is going to.
  static bool is_unused(const std::shared_ptr<Pool>& pool);
  static std::vector<std::shared_ptr<Pool>> cached_unused(Gpu& gpu);
  static void drop_unused(Gpu& gpu);

  MakeBackend make_backend_;
  std::mutex mutex_;  // guards what follows
  int devices_ = -1;  // unknown
  std::map<int, std::unique_ptr<Gpu>> gpus_;
  std::mutex readers_mutex_;  // guards what follows
  std::map<void*, std::vector<void*>> missed_readers_;
};

}  // namespace vdnn
