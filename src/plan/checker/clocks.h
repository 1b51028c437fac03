#pragma once
// Vector clocks over the streams of a schedule: the instructions that precede each instruction.

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

  // The instruction is ordered after the earlier work of its stream, after its waits, and after everything
  // that precedes these. A release belongs to no stream, so only its waits count.
  Clock before(const Visit& visit) const;
  // Records an instruction; `clock` is what before() returned for it. Call it in the order of the list.
  void record(const Visit& visit, Clock clock);

 private:
  Position count_;
  std::array<Clock, kStreamRoles> streams_{};
  std::vector<Clock> done_;  // by position: the work that is done when this instruction is
};

}  // namespace vdnn::checking
