#pragma once
// How many bytes of the caller's tensors are on the device, and how many are not although they are alive.

#include <algorithm>
#include <cstdint>

#include "src/stash/stashed_tensor.h"

namespace vdnn::stash {

// Not synchronised.
class BytesOnDevice {
 public:
  // A tensor that is alive from now on, or not any more.
  void add(const StashedTensor& tensor) { live_ += tensor.bytes(); }
  void remove(StashedTensor& tensor) {
    set_away(tensor, false);
    set_ahead(tensor, false);
    live_ -= tensor.bytes();
  }
  // It takes nothing on the device.
  void set_away(StashedTensor& tensor, bool away) { count(tensor, tensor.is_counted_away, away, away_); }
  // It was fetched ahead and has not been read.
  void set_ahead(StashedTensor& tensor, bool ahead) { count(tensor, tensor.is_counted_ahead, ahead, ahead_); }

  // `told`: in use now, as the caller says; 0: it does not, and the tensors that are here count, with
  // `unseen_bytes` of one that has not been added.
  void note_in_use(std::uint64_t told, std::uint64_t unseen_bytes = 0) {
    in_use_ = told == 0 ? live_ - away_ + unseen_bytes : told;
    peak_ = std::max(peak_, in_use_);
  }

  std::uint64_t ahead() const { return ahead_; }
  // As noted last.
  std::uint64_t in_use() const { return in_use_; }
  std::uint64_t peak() const { return peak_; }
  // What would be in use if nothing were away.
  std::uint64_t with_all() const { return in_use_ + away_; }

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
  std::uint64_t in_use_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace vdnn::stash
