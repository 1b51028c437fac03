#pragma once
// Copies to the host whose sources have not been released, and the bound on them. The oldest copy's source is
// released first, once more bytes than the bound are in flight or have been saved since that copy began.
// Saved bytes count even if their tensor stays, so that sources are also released if no later tensor leaves.
// The bound does not depend on when copies finish, so a program releases sources at the same places in each
// run.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "src/stash/stashed_tensor.h"

namespace vdnn::stash {

// Not synchronised. A tensor must keep its address while its copy is listed here.
class CopiesInFlight {
 public:
  struct Copy {
    StashHandle handle = 0;
    StashedTensor* tensor = nullptr;
  };

  // Call when a tensor of `bytes` is saved.
  void note_saved(std::uint64_t bytes) { saved_bytes_ += bytes; }

  void add(StashHandle handle, StashedTensor& tensor) {
    copies_.push_back({.handle = handle, .tensor = &tensor});
    tensor.sent_at = saved_bytes_ - tensor.bytes();
    bytes_ += tensor.bytes();
  }
  void remove_latest() noexcept {
    bytes_ -= copies_.back().tensor->bytes();
    copies_.pop_back();
  }
  void remove_oldest() noexcept {
    bytes_ -= copies_.front().tensor->bytes();
    copies_.pop_front();
  }
  void remove(StashHandle handle) noexcept;

  std::uint64_t bytes() const { return bytes_; }
  // Index 0 is the oldest.
  const Copy& at(std::size_t index) const { return copies_[index]; }
  // Among the `count` (> 0) oldest copies, the tensor whose copy began last. That copy need not be the last
  // of them in the list: a copy whose source was released at the put is listed only if the caller reports
  // later that it still holds the source.
  const StashedTensor& latest_of(std::size_t count) const;
  // The number of oldest copies whose sources must be released under a bound of `limit` bytes; at most
  // `capacity`.
  std::size_t count_due(std::uint64_t limit, std::size_t capacity) const;
  bool any_due(std::uint64_t limit) const {
    return !copies_.empty() && is_due(copies_.front(), bytes_, limit);
  }

 private:
  // Whether the source of `oldest` must be released. `bytes`: the bytes of this copy and all later ones.
  bool is_due(const Copy& oldest, std::uint64_t bytes, std::uint64_t limit) const {
    return bytes > limit || saved_bytes_ - oldest.tensor->sent_at > limit;
  }

  std::deque<Copy> copies_;
  std::uint64_t bytes_ = 0;
  std::uint64_t saved_bytes_ = 0;  // since the stash was created
};

}  // namespace vdnn::stash
