#pragma once
// The order of accesses: two accesses to a buffer of which one is a write, an allocation or a release must be
// ordered, and so must the last uses of bytes of the arena and the allocation that gets them next. Then every
// permitted order of execution reads what the order of the list reads.

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

  // `clock`: what the instruction is ordered after.
  void allocate(const Visit& visit, const Clock& clock);
  void release(const Visit& visit, const Clock& clock);
  // Before the instruction accesses the buffer: after the last write, and a write also after the reads since.
  void require_ordered(const Visit& visit, BufferId id, const Clock& clock, bool write);
  void note_read(const Visit& visit, BufferId id);
  void note_write(const Visit& visit, BufferId id);

 private:
  struct Accesses {
    Access write;               // the allocation counts as one
    std::vector<Access> reads;  // since the write
  };

  // Bytes of the arena: the buffer that lies there, or the one that did and its last accesses.
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
