#pragma once
// Tensors that a program keeps unread from one step into the next, for example the output of a metric, which
// is bound again only after the next forward pass. If a step waited for their ends, no step of such a program
// would end, and nothing would be learned.
//
// One is noticed when it is dropped: nobody has read it, others were read since it was saved, and tensors
// were saved since then. Later ones are known by their place: their signature and those of the two saves
// before. A place in the step would say nothing, since steps have no end so far. A tensor that is read after
// all was none, and its place is forgotten.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "src/stash/stashed_tensor.h"

namespace vdnn::stash {

// Not synchronised. No call takes memory.
class LingeringTensors {
 public:
  // Sets what the tensor knows of it.
  void note_saved(StashedTensor& tensor) {
    if (has_read_) {
      ++pass_;
      has_read_ = false;
    }
    tensor.pass = pass_;
    tensor.save_place = place_of(tensor);
    tensor.lingers = std::ranges::find(places_, tensor.save_place) != places_.end();
    before_ = {tensor.saved.signature, before_.front()};
  }
  // Whether it had been taken for one that lingers.
  bool note_read(StashedTensor& tensor) {
    has_read_ = true;
    if (!tensor.lingers) {
      return false;
    }
    std::ranges::replace(places_, tensor.save_place, kNone);
    tensor.lingers = false;
    return true;
  }
  void note_dropped(const StashedTensor& tensor) {
    if (tensor.reads == 0 && tensor.pass < pass_ && !has_read_ && !tensor.lingers) {
      places_[next_] = tensor.save_place;
      next_ = (next_ + 1) % places_.size();
    }
  }

 private:
  static constexpr std::size_t kMostPlaces = 16;  // the oldest is forgotten
  static constexpr std::uint64_t kNone = 0;

  std::uint64_t place_of(const StashedTensor& tensor) const {
    std::uint64_t hash = tensor.bytes();
    for (const std::uint64_t signature : {tensor.saved.signature, before_.front(), before_.back()}) {
      constexpr std::uint64_t kPrime = 1099511628211;  // FNV-1a
      hash = (hash ^ signature) * kPrime;
    }
    return hash == kNone ? 1 : hash;
  }

  std::array<std::uint64_t, kMostPlaces> places_{};
  std::size_t next_ = 0;
  std::array<std::uint64_t, 2> before_{};  // signatures of the latest saves, the last first
  std::uint64_t pass_ = 0;                 // begins with a save that follows a read
  bool has_read_ = false;                  // since the last save
};

}  // namespace vdnn::stash
