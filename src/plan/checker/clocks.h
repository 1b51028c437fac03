#pragma once
// Vector clocks over the streams of a schedule: what each instruction is ordered after.

#include <array>
#include <cstddef>
#include <vector>

#include "src/plan/checker/findings.h"
#include "vdnn/schedule.h"

namespace vdnn::checking {

// For each stream the last instruction that is known to be done.
using Clock = std::array<Position, kStreamRoles>;

// An instruction that accesses a buffer, and its stream.
struct Access {
  Position position = kNever;
  std::size_t stream = 0;
};

inline bool is_after(const Clock& clock, const Access& access) {
  return access.position == kNever || clock[access.stream] >= access.position;
}

// The schedule outlives it.
class Clocks {
 public:
  Clocks(const Schedule& schedule, std::uint32_t steps);

  // The instruction is ordered after the earlier work of its stream, its waits, and all that those were
  // ordered after. A release belongs to no stream, so only its waits count.
  Clock before(const Visit& visit) const;
  // The instruction, visited in the order of the list, is done with `clock` before it.
  void record(const Visit& visit, Clock clock);

 private:
  Position count_;
  std::array<Clock, kStreamRoles> streams_{};
  std::vector<Clock> done_;  // by position: what is done once its instruction is
};

}  // namespace vdnn::checking
