#pragma once
// Stretches of a step in which tensors that leave the device are away.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/stash/learned_step.h"

namespace vdnn::stash {

// Events [begin, end).
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// A tensor that leaves takes no memory on the device in these stretches, unless it is fetched ahead.
struct Absence {
  std::uint32_t tensor = 0;
  std::uint64_t bytes = 0;
  std::vector<Stretch> stretches;  // in order, apart from each other; none is empty

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

// The absences of all tensors that would be away at some event, in the order of the saves. A tensor is
// released once more than `flight_bytes` have been saved, itself included. It is away from the next event on,
// or from where the program no longer holds it, until its first read or drop. If a program goes through a
// retained graph again, the tensor is away between two passes, too: from the second event after the last read
// of a pass, since the reader holds it until the next event. After the last pass it counts as present, since
// readers of several tensors hold them until they drop them.
std::vector<Absence> absences_of(const StepRecord& step, std::uint64_t flight_bytes);

}  // namespace vdnn::stash
