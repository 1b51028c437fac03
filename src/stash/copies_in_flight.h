#pragma once
// Copies to the host whose sources have not been released, and the bound on them. The oldest is released
// first, once more than the bound is in flight or was saved since it began. A tensor that is saved after it
// counts whether it leaves or not, so that the end of a forward pass releases copies of its middle. The bound
// is in bytes that were saved and not in copies that are done: the same program releases at the same places.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "src/stash/stashed_tensor.h"

namespace vdnn::stash {

// Not synchronised. A tensor must stay where it is while its copy is here.
class CopiesInFlight {
 public:
  struct Copy {
    StashHandle handle = 0;
    StashedTensor* tensor = nullptr;
  };

  // A tensor of `bytes` was saved.
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
  // From the oldest on, 0 first.
  const Copy& at(std::size_t index) const { return copies_[index]; }
  // Whose copy began last, of the `count` (> 0) oldest: a caller may have told later than another one that it
  // holds a source.
  const StashedTensor& latest_of(std::size_t count) const;
  // How many of the oldest are to be released by a bound of `limit` bytes, at most `capacity`.
  std::size_t count_due(std::uint64_t limit, std::size_t capacity) const;
  bool any_due(std::uint64_t limit) const {
    return !copies_.empty() && is_due(copies_.front(), bytes_, limit);
  }

 private:
  // Where it is the oldest of `bytes` in flight.
  bool is_due(const Copy& oldest, std::uint64_t bytes, std::uint64_t limit) const {
    return bytes > limit || saved_bytes_ - oldest.tensor->sent_at > limit;
  }

  std::deque<Copy> copies_;
  std::uint64_t bytes_ = 0;
  std::uint64_t saved_bytes_ = 0;  // ever
};

}  // namespace vdnn::stash
