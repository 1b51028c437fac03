#include "vdnn/device_pool.h"

#include <algorithm>
#include <mutex>

#include "allocator/last_use.h"
#include "allocator/tlsf.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

std::uint64_t whole_granules(const DeviceProperties& device, std::uint64_t asked) {
  const std::uint64_t budget = asked == 0 ? device.budget_bytes : asked;
  return budget - budget % device.granule_bytes;
}

void check_properties(const DeviceProperties& device) {
  if (device.alignment_bytes == 0 || device.granule_bytes % device.alignment_bytes != 0) {
    throw InvalidArgument(device.name + ": granules of " + format_size(device.granule_bytes) +
                          " are not a multiple of the alignment, " + format_size(device.alignment_bytes));
  }
}

}  // namespace

class DevicePool::Impl {
 public:
  Impl(Device& device, const DevicePoolOptions& options)
      : device_(device),
        granule_(device.properties().granule_bytes),
        budget_(whole_granules(device.properties(), options.budget_bytes)),
        blocks_(device.properties().alignment_bytes) {
    if (options.protect_released) {
      if (const std::string reason = device.why_not_protect(); !reason.empty()) {
        throw InvalidArgument("released blocks cannot be protected: " + reason);
      }
      guard_ = device.create_stream("guard");
    }
    if (budget_ > 0) {
      reservation_ = device.reserve(budget_);
    }
  }

  ~Impl() {
    if (budget_ == 0) {
      return;
    }
    try {
      device_.synchronize_all();
    } catch (...) {
      // Failed work no longer uses the memory. The program's own wait for the work reports the error.
    }
    try {
      if (blocks_.end() > 0) {
        device_.decommit(at(0, blocks_.end()));
      }
      device_.unreserve(reservation_);
    } catch (...) {
      // A lost device cannot take memory back.
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamId stream) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t asked = std::max<std::uint64_t>(bytes, 1);
    const Frontier requester = device_.frontier(stream);
    const std::uint64_t growths_before = growths_;
    const std::optional<Tlsf::Block> block = take(asked, requester);
    if (!block) {
      ++failures_;
      return std::nullopt;
    }
    try {
      make_ready(*block, asked, stream);
    } catch (...) {
      blocks_.free(block->offset, asked, Frontier());
      throw;
    }
    ++allocations_;
    if (growths_ == growths_before) {
      ++(requester.dominates(block->frontier) ? reused_at_once_ : reused_after_wait_);
    }
    peak_in_use_ = std::max(peak_in_use_, blocks_.in_use_bytes());
    return at(block->offset, asked);
  }

  void free(AddressRange block, const Frontier& last_use) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t offset = block.begin - reservation_.begin;
    check_last_use(device_, last_use);
    blocks_.free(offset, block.bytes, guard_ ? protect_after(offset, block.bytes, last_use) : last_use);
  }

  bool resize(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > budget_) {
      return false;
    }
    const std::uint64_t wanted = round_up(bytes, granule_);
    if (wanted > blocks_.end()) {
      return commit(wanted - blocks_.end());
    }
    const std::uint64_t free_granules = blocks_.tail_bytes() - blocks_.tail_bytes() % granule_;
    const std::uint64_t surplus = std::min(blocks_.end() - wanted, free_granules);
    if (surplus > 0) {
      device_.synchronize(blocks_.tail_frontier());
      device_.decommit(at(blocks_.end() - surplus, surplus));
      blocks_.shrink(surplus);
    }
    return true;
  }

  MemoryShortage shortage(std::uint64_t asked) const {
    const std::lock_guard lock(mutex_);
    const std::uint64_t largest = blocks_.largest_free_block_bytes();
    return {.asked = asked,
            .in_use = blocks_.in_use_bytes(),
            .cached = blocks_.end() - blocks_.in_use_bytes(),
            .largest_free_block = largest,
            .budget = budget_,
            .would_have_fitted = std::max(largest, blocks_.tail_bytes() + budget_ - blocks_.end())};
  }

  DevicePoolStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return {.in_use_bytes = blocks_.in_use_bytes(),
            .peak_in_use_bytes = peak_in_use_,
            .requested_bytes = blocks_.asked_bytes(),
            .committed_bytes = blocks_.end(),
            .peak_committed_bytes = peak_committed_,
            .largest_free_block_bytes = blocks_.largest_free_block_bytes(),
            .blocks_in_use = blocks_.blocks_in_use(),
            .allocations = allocations_,
            .reused_at_once = reused_at_once_,
            .reused_after_wait = reused_after_wait_,
            .growths = growths_,
            .failures = failures_};
  }

  Device& device() { return device_; }

 private:
  AddressRange at(std::uint64_t offset, std::uint64_t bytes) const {
    return {.begin = reservation_.begin + offset, .bytes = bytes};
  }

  std::optional<Tlsf::Block> take(std::uint64_t asked, const Frontier& requester) {
    if (asked > budget_) {
      return std::nullopt;
    }
    std::optional<Tlsf::Block> block = blocks_.allocate(asked, requester);
    if (!block && grow(asked)) {
      block = blocks_.allocate(asked, requester);
    }
    return block;
  }

  // Commits the bytes that the tail lacks. False when the budget does not allow it.
  bool grow(std::uint64_t asked) { return commit(round_up(blocks_.missing(asked), granule_)); }

  // Commits whole granules at the end. False when the budget does not allow it.
  bool commit(std::uint64_t bytes) {
    if (bytes > budget_ - blocks_.end()) {
      return false;
    }
    // This may fail, so it comes first: if it failed after commit(), the new memory would be committed
    // without being part of the pool.
    blocks_.prepare_to_grow();
    device_.commit(at(blocks_.end(), bytes));
    blocks_.grow(bytes);
    peak_committed_ = std::max(peak_committed_, blocks_.end());
    ++growths_;
    return true;
  }

  void make_ready(const Tlsf::Block& block, std::uint64_t asked, StreamId stream) {
    device_.wait(stream, block.frontier);
    // Memory with an empty frontier is new and was never protected.
    if (guard_ && !block.frontier.empty()) {
      const Point accessible =
          device_.protect(stream, at(block.offset, block.bytes), Protection::kAccessible);
      blocks_.set_frontier(block.offset, asked, Frontier(accessible));
    }
  }

  Frontier protect_after(std::uint64_t offset, std::uint64_t asked, const Frontier& last_use) {
    const Tlsf::Block block = blocks_.in_use(offset, asked);
    const Frontier& used_until = last_use.empty() ? block.frontier : last_use;
    try {
      device_.wait(*guard_, used_until);
      return Frontier(device_.protect(*guard_, at(offset, block.bytes), Protection::kInaccessible));
    } catch (...) {
      // The block is freed all the same, but unprotected. A device that has failed reports its failure at the
      // next wait.
      return used_until;
    }
  }

  Device& device_;
  const std::uint64_t granule_;
  const std::uint64_t budget_;
  std::optional<StreamId> guard_;
  AddressRange reservation_;

  mutable std::mutex mutex_;  // guards the members below, and submissions to guard_
  Tlsf blocks_;
  std::uint64_t peak_in_use_ = 0;
  std::uint64_t peak_committed_ = 0;
  std::uint64_t allocations_ = 0;
  std::uint64_t reused_at_once_ = 0;
  std::uint64_t reused_after_wait_ = 0;
  std::uint64_t growths_ = 0;
  std::uint64_t failures_ = 0;
};

DevicePool::DevicePool(Device& device, const DevicePoolOptions& options) {
  check_properties(device.properties());
  impl_ = std::make_unique<Impl>(device, options);
}

DevicePool::~DevicePool() = default;

std::optional<AddressRange> DevicePool::allocate(std::uint64_t bytes, StreamId stream) {
  return impl_->allocate(bytes, stream);
}

void DevicePool::free(AddressRange block, const Frontier& last_use) {
  impl_->free(block, last_use);
}

bool DevicePool::resize(std::uint64_t bytes) {
  return impl_->resize(bytes);
}

MemoryShortage DevicePool::shortage(std::uint64_t asked) const {
  return impl_->shortage(asked);
}

DevicePoolStatistics DevicePool::statistics() const {
  return impl_->statistics();
}

Device& DevicePool::device() {
  return impl_->device();
}

}  // namespace vdnn
