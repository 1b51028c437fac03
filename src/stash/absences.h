#pragma once
// Stretches of a step in which tensors that leave the device are away.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/stash/learned_step.h"

namespace vdnn::stash {

// The events [begin, end) of a step.
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// The stretches in which a leaving tensor uses no memory on the device, unless it is fetched ahead.
struct Absence {
  std::uint32_t tensor = 0;
  std::uint64_t bytes = 0;
  std::vector<Stretch> stretches;  // sorted, disjoint, none empty

  bool is_away_at(std::size_t event) const {
    const auto after = std::ranges::upper_bound(stretches, event, {}, &Stretch::begin);
    return after != stretches.begin() && event < (after - 1)->end;
  }
  std::size_t events() const {
    std::size_t events = 0;
    for (const Stretch& stretch : stretches) {
      events += stretch.end - stretch.begin;
    }
    return events;
  }
};

// The absences of the tensors that are away at some event if they leave, in the order of the saves. A source
// is released once more than `flight_bytes` have been saved, counted from the tensor's own save on. The
// tensor is away from the next event on or, if the program still holds it then, from the event at which the
// program no longer holds it. The absence ends at the tensor's first read or drop. If the program retains the
// graph for another pass, the tensor is also away between two passes. That absence begins at the second event
// after the last read of a pass, since the reader holds the tensor until the next event. After the last pass
// the tensor counts as present, since an op that reads several tensors holds them all until it drops them.
std::vector<Absence> absences_of(const StepRecord& step, std::uint64_t flight_bytes);

}  // namespace vdnn::stash
