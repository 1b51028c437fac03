#include "vdnn/pinned_pool.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "allocator/last_use.h"

namespace vdnn {

namespace {

struct Block {
  AddressRange range;
  // `frontier` must have been reached before the block may be written.
  Frontier frontier;
  std::uint64_t age = 0;     // the number of the free that freed the block last; frees are counted from 1
  std::uint64_t serial = 0;  // the number of the page-lock that made the block, counted from 1
};

// Waits for the block's last users, then gives it back to the system. Failed work no longer uses the block.
void give_back(Device& device, const Block& block) {
  try {
    device.synchronize(block.frontier);
  } catch (...) {
    device.free_pinned(block.range);
    throw;
  }
  device.free_pinned(block.range);
}

}  // namespace

class PinnedPool::Impl {
 public:
  Impl(Device& device, std::uint64_t budget_bytes)
      : device_(device), budget_(budget_bytes == 0 ? device.properties().host_budget_bytes : budget_bytes) {}

  ~Impl() {
    try {
      device_.synchronize_all();
    } catch (...) {
      // Failed work no longer uses the memory. The program's own wait for the work reports the error.
    }
    try {
      for (const Blocks* blocks : {&cache_, &in_use_}) {
        for (const auto& [key, block] : *blocks) {
          device_.free_pinned(block.range);
        }
      }
    } catch (...) {
      // A lost device cannot take memory back.
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // `order(frontier)` makes the user of the block wait for `frontier`.
  template <class Order>
  std::optional<AddressRange> allocate(std::uint64_t bytes, const Order& order) {
    if (bytes == 0) {
      throw InvalidArgument("a page-locked block of 0 bytes was requested");
    }
    const std::optional<Block> block = take(bytes);
    if (!block) {
      return std::nullopt;
    }
    try {
      order(block->frontier);
    } catch (...) {
      free(block->range, Frontier());
      throw;
    }
    return block->range;
  }

  void free(AddressRange range, const Frontier& last_use) {
    check_last_use(device_, last_use);
    const std::lock_guard lock(mutex_);
    const auto found = in_use_.find(Key{range.begin, 0});
    if (found == in_use_.end() || found->second.range != range) {
      throw InvalidArgument("no page-locked block of " + std::to_string(range.bytes) +
                            " bytes is in use at address " + std::to_string(range.begin));
    }
    // A block that is freed unused keeps the frontier of its earlier users.
    if (!last_use.empty()) {
      found->second.frontier = last_use;
    }
    found->second.age = ++frees_;
    Blocks::node_type node = in_use_.extract(found);
    node.key() = Key{range.bytes, node.mapped().serial};
    cache_.insert(std::move(node));
    in_use_bytes_ -= range.bytes;
  }

  void trim() {
    std::unique_lock lock(mutex_);
    while (evict_oldest(lock)) {
    }
  }

  MemoryShortage shortage(std::uint64_t asked) const {
    const std::lock_guard lock(mutex_);
    const std::uint64_t largest = cache_.empty() ? 0 : cache_.rbegin()->second.range.bytes;
    return {.asked = asked,
            .in_use = in_use_bytes_,
            .cached = locked_bytes_ - in_use_bytes_,
            .largest_free_block = largest,
            .budget = budget_,
            .would_have_fitted = budget_ - in_use_bytes_};
  }

  PinnedPoolStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return {.in_use_bytes = in_use_bytes_,
            .cached_bytes = locked_bytes_ - in_use_bytes_,
            .peak_bytes = peak_bytes_,
            .allocations = allocations_,
            .page_locks = page_locks_,
            .failures = failures_};
  }

  Device& device() { return device_; }

 private:
  // Blocks in use are found by address, free ones by size and, within a size, in the order of page-locking.
  // Both maps have one type, so that a block moves between them with its node. The move needs no memory, so
  // it cannot fail and lose the block.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  using Blocks = std::map<Key, Block>;

  // Returns a block of `bytes`, from the cache or new, which counts as in use from now on.
  std::optional<Block> take(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    for (;;) {
      // Uses the block of this size that was page-locked first. So every step uses the blocks of the first
      // step, in whatever order they are freed.
      if (const auto found = cache_.lower_bound(Key{bytes, 0});
          found != cache_.end() && found->second.range.bytes == bytes) {
        Block block = found->second;
        hand_out(cache_.extract(found));
        return block;
      }
      if (bytes > budget_ || in_use_bytes_ > budget_ - bytes) {
        ++failures_;
        return std::nullopt;
      }
      if (locked_bytes_ <= budget_ - bytes) {
        Blocks::node_type node = page_lock(bytes);
        Block block = node.mapped();
        hand_out(std::move(node));
        return block;
      }
      // If there is nothing to evict, other threads are giving the missing bytes back.
      if (!evict_oldest(lock)) {
        given_back_.wait(lock);
      }
    }
  }

  Blocks::node_type page_lock(std::uint64_t bytes) {
    // The node is allocated first: if its allocation failed later, the new memory would have to be unlocked.
    Blocks fresh;
    Block& block = fresh[Key{}];
    block.range = device_.allocate_pinned(bytes);
    block.serial = ++page_locks_;
    locked_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, locked_bytes_);
    return fresh.extract(fresh.begin());
  }

  void hand_out(Blocks::node_type node) {
    in_use_bytes_ += node.mapped().range.bytes;
    ++allocations_;
    node.key() = Key{node.mapped().range.begin, 0};
    in_use_.insert(std::move(node));
  }

  // Gives the block that was freed first back to the system. The lock is released while the host waits, so
  // that the work it waits for can use the pool. False if nothing is cached.
  bool evict_oldest(std::unique_lock<std::mutex>& lock) {
    const auto oldest =
        std::ranges::min_element(cache_, {}, [](const auto& entry) { return entry.second.age; });
    if (oldest == cache_.end()) {
      return false;
    }
    const Blocks::node_type node = cache_.extract(oldest);
    const Block& block = node.mapped();
    lock.unlock();
    try {
      give_back(device_, block);
    } catch (...) {
      lock.lock();
      count_as_given_back(block);
      throw;
    }
    lock.lock();
    count_as_given_back(block);
    return true;
  }

  void count_as_given_back(const Block& block) {
    locked_bytes_ -= block.range.bytes;
    given_back_.notify_all();
  }

  Device& device_;
  const std::uint64_t budget_;

  mutable std::mutex mutex_;            // guards the members below
  std::condition_variable given_back_;  // an eviction has ended
  Blocks cache_;
  Blocks in_use_;
  std::uint64_t in_use_bytes_ = 0;
  std::uint64_t locked_bytes_ = 0;  // in use, cached, or being given back
  std::uint64_t peak_bytes_ = 0;
  std::uint64_t frees_ = 0;
  std::uint64_t allocations_ = 0;
  std::uint64_t page_locks_ = 0;
  std::uint64_t failures_ = 0;
};

PinnedPool::PinnedPool(Device& device, std::uint64_t budget_bytes)
    : impl_(std::make_unique<Impl>(device, budget_bytes)) {}

PinnedPool::~PinnedPool() = default;

std::optional<AddressRange> PinnedPool::allocate(std::uint64_t bytes, StreamId stream) {
  return impl_->allocate(bytes, [&](const Frontier& frontier) { impl_->device().wait(stream, frontier); });
}

std::optional<AddressRange> PinnedPool::allocate_for_host(std::uint64_t bytes) {
  return impl_->allocate(bytes, [&](const Frontier& frontier) {
    if (!frontier.empty()) {
      impl_->device().synchronize(frontier);
    }
  });
}

void PinnedPool::free(AddressRange block, const Frontier& last_use) {
  impl_->free(block, last_use);
}

void PinnedPool::trim() {
  impl_->trim();
}

MemoryShortage PinnedPool::shortage(std::uint64_t asked) const {
  return impl_->shortage(asked);
}

PinnedPoolStatistics PinnedPool::statistics() const {
  return impl_->statistics();
}

}  // namespace vdnn
