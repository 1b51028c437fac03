#pragma once
// Counts the bytes of the caller's live tensors, both on the device and away from it.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/stash/learned_step.h"
#include "src/stash/stashed_tensor.h"

namespace vdnn::stash {

// Not synchronised.
class BytesOnDevice {
 public:
  // add() counts a tensor as alive until remove().
  void add(const StashedTensor& tensor) { live_ += tensor.bytes(); }
  void remove(StashedTensor& tensor) {
    set_away(tensor, false);
    set_ahead(tensor, false);
    live_ -= tensor.bytes();
  }
  // `away`: the tensor uses no memory on the device.
  void set_away(StashedTensor& tensor, bool away) { count(tensor, tensor.is_counted_away, away, away_); }
  // `ahead`: the tensor was fetched ahead and has not been read.
  void set_ahead(StashedTensor& tensor, bool ahead) { count(tensor, tensor.is_counted_ahead, ahead, ahead_); }

  // `told`: the bytes in use now, as the caller reports them. If it is 0, the bytes of the tensors counted
  // here are used instead, plus `unseen_bytes` for a tensor that has not been added yet.
  void note_in_use(std::uint64_t told, std::uint64_t unseen_bytes = 0) {
    is_told_ = told != 0;
    at_event_ = is_told_ ? told : live_ - away_ + unseen_bytes;
    in_use_ = std::max(at_event_, std::exchange(told_peak_, 0));
    peak_ = std::max(peak_, in_use_);
  }
  // `bytes`: the most bytes in use since the last note_in_use().
  void note_peak(std::uint64_t bytes) { told_peak_ = std::max(told_peak_, bytes); }

  std::uint64_t ahead() const { return ahead_; }
  // Whether the caller reported the bytes in use at the event noted last.
  bool is_told() const { return is_told_; }
  // The bytes in use at the event noted last or, if larger, the peak that the caller reported before that
  // event.
  std::uint64_t in_use() const { return in_use_; }
  std::uint64_t peak() const { return peak_; }
  BytesInUse with_all() const { return {.most = in_use_ + away_, .at_event = at_event_ + away_}; }

 private:
  static void count(const StashedTensor& tensor, bool& is_counted, bool counts, std::uint64_t& sum) {
    if (is_counted != counts) {
      is_counted = counts;
      sum = counts ? sum + tensor.bytes() : sum - tensor.bytes();
    }
  }

  std::uint64_t live_ = 0;
  std::uint64_t away_ = 0;
  std::uint64_t ahead_ = 0;
  bool is_told_ = false;
  std::uint64_t at_event_ = 0;
  std::uint64_t in_use_ = 0;
  std::uint64_t told_peak_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace vdnn::stash
