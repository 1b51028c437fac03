#pragma once
// What a collective touches, as a device is told of its work.

#include <cstdint>
#include <span>
#include <vector>

#include "vdnn/communicator.h"

namespace vdnn {

struct CollectiveAccesses {
  std::vector<Access> reads;
  std::vector<Access> writes;
};

CollectiveAccesses accesses_of_all_reduce(std::span<const Collective> parts);
// `root`: whether this rank is the one whose values the others get.
CollectiveAccesses accesses_of_broadcast(const Collective& collective, bool root);

std::uint64_t total_bytes(std::span<const Collective> parts);

}  // namespace vdnn
