#pragma once
// When tensors that leave the device are away.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/stash/learned_step.h"

namespace vdnn::stash {

// At events [begin, end) a tensor that leaves takes no memory on the device, unless it is fetched ahead.
struct Absence {
  std::uint32_t tensor = 0;
  std::uint64_t bytes = 0;
  std::size_t begin = 0;
  std::size_t end = 0;

  bool is_away_at(std::size_t event) const { return begin <= event && event < end; }
};

// Of each tensor that would be away at some event, in the order of the saves. A tensor is released once more
// than `flight_bytes` have been saved, itself included. It is away from the next event on, or from where the
// program holds it no longer, until it is read first or dropped.
std::vector<Absence> absences_of(const StepRecord& step, std::uint64_t flight_bytes);

}  // namespace vdnn::stash
