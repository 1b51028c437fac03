#pragma once
// For a program that holds none of its saved tensors: after a put, it releases every tensor that the stash
// asks it to release.

#include <cstddef>
#include <vector>

#include "vdnn/tensor_stash.h"

namespace vdnn::testing {

// Returns the tensors whose memory the program must release now. Uses the host's default stream.
inline std::vector<StashHandle> released_tensors(TensorStash& stash, const PutAnswer& answer) {
  constexpr std::size_t kMost = 64;  // handles per call
  bool has_released = answer.has_released;
  for (bool has_leaving = answer.has_leaving; has_leaving;) {
    const std::vector<StashHandle> leaving = stash.leaving(kMost);
    for (const StashHandle each : leaving) {
      has_released = stash.leave(each, nullptr).has_released || has_released;
    }
    has_leaving = !leaving.empty();
  }
  return has_released ? stash.released(nullptr, kMost) : std::vector<StashHandle>();
}

}  // namespace vdnn::testing
