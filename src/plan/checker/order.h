#pragma once
// The order of accesses. Two accesses to a buffer must be ordered if one is a write, an allocation or a
// release. An allocation must be ordered after the last earlier uses of its bytes of the arena. Then every
// permitted order of execution reads the same contents as the order of the list.

#include <vector>

#include "src/base/interval_map.h"
#include "src/plan/checker/clocks.h"
#include "src/plan/checker/findings.h"
#include "vdnn/address_range.h"
#include "vdnn/schedule.h"

namespace vdnn::checking {

// The schedule and the findings outlive it.
class OrderCheck {
 public:
  OrderCheck(const Schedule& schedule, Findings& findings)
      : schedule_(schedule), findings_(findings), accesses_(schedule.buffers.size()) {}

  // `clock`: the work that precedes the instruction.
  void allocate(const Visit& visit, const Clock& clock);
  void release(const Visit& visit, const Clock& clock);
  // Call it before the instruction accesses the buffer. An access must come after the last write, and a write
  // also after the reads since that.
  void require_ordered(const Visit& visit, BufferId id, const Clock& clock, bool write);
  void note_read(const Visit& visit, BufferId id);
  void note_write(const Visit& visit, BufferId id);

 private:
  struct Accesses {
    Access write;               // the allocation counts as one
    std::vector<Access> reads;  // since the write
  };

  // A range of the arena: the buffer there, or the previous buffer and its last accesses.
  struct Place {
    BufferId tenant = kNone;
    BufferId previous = kNone;
    std::vector<Access> last_uses;  // of `previous`
  };

  static Access access_of(const Visit& visit) {
    return {.position = visit.position, .stream = static_cast<std::size_t>(visit.instruction.stream)};
  }
  AddressRange place(BufferId id) const {
    return {.begin = *schedule_.buffers[id].offset, .bytes = schedule_.buffers[id].bytes};
  }
  void enter_place(const Visit& visit, const Clock& clock);
  void leave_place(BufferId id);

  const Schedule& schedule_;
  Findings& findings_;
  std::vector<Accesses> accesses_;  // by buffer
  IntervalMap<Place> places_;
};

}  // namespace vdnn::checking
