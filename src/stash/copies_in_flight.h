#pragma once
// Copies to the host whose sources have not been released, and the bound on them. The oldest copy's source is
// released first, once more bytes than the bound are in flight or were saved since that copy began. Every
// tensor saved after it counts, whether it leaves or not, so that the end of a forward pass releases copies
// of its middle. The bound counts bytes saved, not copies done, so the same program releases at the same
// places.

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
  // Index 0 is the oldest.
  const Copy& at(std::size_t index) const { return copies_[index]; }
  // The tensor whose copy began last among the `count` (> 0) oldest. It need not be the last listed: a caller
  // may report late that it holds a source.
  const StashedTensor& latest_of(std::size_t count) const;
  // How many of the oldest have to be released under a bound of `limit` bytes, at most `capacity`.
  std::size_t count_due(std::uint64_t limit, std::size_t capacity) const;
  bool any_due(std::uint64_t limit) const {
    return !copies_.empty() && is_due(copies_.front(), bytes_, limit);
  }

 private:
  // Whether `oldest`, the first of copies of `bytes` in flight, has to be released.
  bool is_due(const Copy& oldest, std::uint64_t bytes, std::uint64_t limit) const {
    return bytes > limit || saved_bytes_ - oldest.tensor->sent_at > limit;
  }

  std::deque<Copy> copies_;
  std::uint64_t bytes_ = 0;
  std::uint64_t saved_bytes_ = 0;  // ever
};

}  // namespace vdnn::stash
