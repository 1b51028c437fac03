#pragma once
// The lives of values that a plan asks for (vdnn/plan.h): when each ends, on the device and on the host.

#include <span>
#include <utility>
#include <vector>

#include "vdnn/plan.h"
#include "vdnn/tape.h"

namespace vdnn {

// Lives on the device. The tape outlives it.
class Lives {
 public:
  Lives(const Tape& tape, const Plan& plan);

  // The op that uses the value last in the life that begins with op `start`, unless a transfer ends the life
  // earlier. An op before `start` means that the life has no use, kNone that the value has none.
  OpId end(ValueId value, OpId start) const;

 private:
  using Event = std::pair<ValueId, OpId>;

  static OpId first(const std::vector<Event>& events, ValueId value, OpId from);
  OpId last_use_before(ValueId value, OpId op) const;

  const Tape& tape_;
  std::vector<Event> recomputed_;
  std::vector<Event> released_;
};

// For each transfer that copies to the host: the op of the last fetch from its copy. kNone for the others.
std::vector<OpId> last_fetches(std::span<const Transfer> transfers);

}  // namespace vdnn
