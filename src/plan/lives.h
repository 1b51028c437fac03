#pragma once
// Computes when the lives of values end (vdnn/plan.h), on the device and on the host.

#include <span>
#include <utility>
#include <vector>

#include "vdnn/plan.h"
#include "vdnn/tape.h"

namespace vdnn {

// Lives on the device. The tape must outlive this object.
class Lives {
 public:
  Lives(const Tape& tape, const Plan& plan);

  // The last op that uses the value in the life that begins with op `start`; a transfer may end the life
  // earlier. The result is before `start` if the life has no use, and kNone if the value has none.
  OpId end(ValueId value, OpId start) const;

 private:
  using Event = std::pair<ValueId, OpId>;

  static OpId first(const std::vector<Event>& events, ValueId value, OpId from);
  OpId last_use_before(ValueId value, OpId op) const;

  const Tape& tape_;
  std::vector<Event> recomputed_;
  std::vector<Event> released_;
};

// For each transfer that copies to the host: the op of the last fetch from its copy. kNone for transfers
// without a copy.
std::vector<OpId> last_fetches(std::span<const Transfer> transfers);

}  // namespace vdnn
