#pragma once
// The memory accesses of a collective, in the form in which Device::submit() receives them.

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
// `root`: whether this rank sends its values to the other ranks.
CollectiveAccesses accesses_of_broadcast(const Collective& collective, bool root);

std::uint64_t total_bytes(std::span<const Collective> parts);

}  // namespace vdnn
