#pragma once
// Vector clocks over the streams of a schedule. The clock of an instruction tells which instructions precede
// it.

#include <array>
#include <cstddef>
#include <vector>

#include "src/plan/checker/findings.h"
#include "vdnn/schedule.h"

namespace vdnn::checking {

// For each stream, the last instruction that is known to be done.
using Clock = std::array<Position, kStreamRoles>;

// An instruction that accesses a buffer, and its stream.
struct Access {
  Position position = kNever;
  std::size_t stream = 0;
};

// Whether work with the clock `clock` is ordered after `access`.
inline bool is_after(const Clock& clock, const Access& access) {
  return access.position == kNever || clock[access.stream] >= access.position;
}

// The schedule must outlive this object.
class Clocks {
 public:
  Clocks(const Schedule& schedule, std::uint32_t steps);

  // Returns the clock of the work that precedes the instruction: the earlier work of its stream, the
  // instructions for which it waits, and everything that precedes either. A release belongs to no stream, so
  // only its waits count.
  Clock before(const Visit& visit) const;
  // Records an instruction; `clock` is the result of before(visit). Call it in the order of the schedule.
  void record(const Visit& visit, Clock clock);

 private:
  Position count_;
  std::array<Clock, kStreamRoles> streams_{};
  std::vector<Clock> done_;  // by position: the clock once that instruction is done
};

}  // namespace vdnn::checking
