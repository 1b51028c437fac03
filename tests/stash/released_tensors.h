#pragma once
// After a put, a program that holds none of its saved tensors lets those leave that the stash asks for.

#include <cstddef>
#include <vector>

#include "vdnn/tensor_stash.h"

namespace vdnn::testing {

// The tensors whose memory the program has to let go of then. On the host's default stream.
inline std::vector<StashHandle> released_tensors(TensorStash& stash, const PutAnswer& answer) {
  constexpr std::size_t kMost = 64;  // handles that one call names
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
