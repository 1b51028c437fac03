#pragma once
// Checks the order of accesses. Two accesses to a buffer must be ordered if one of them is a write, an
// allocation or a release. An allocation in the arena must also be ordered after the last uses of the
// buffers that had its bytes before. If all this holds, every order of execution that the waits permit reads
// the same contents as the order of the schedule.

#include <vector>

#include "src/base/interval_map.h"
#include "src/plan/checker/clocks.h"
#include "src/plan/checker/findings.h"
#include "vdnn/address_range.h"
#include "vdnn/schedule.h"

namespace vdnn::checking {

// The schedule and the findings must outlive this object.
class OrderCheck {
 public:
  OrderCheck(const Schedule& schedule, Findings& findings)
      : schedule_(schedule), findings_(findings), accesses_(schedule.buffers.size()) {}

  // `clock`: the work that precedes the instruction.
  void allocate(const Visit& visit, const Clock& clock);
  void release(const Visit& visit, const Clock& clock);
  // Call it before note_read() or note_write() for the access. An access must be ordered after the last
  // write. A write must also be ordered after all reads since the last write.
  void require_ordered(const Visit& visit, BufferId id, const Clock& clock, bool write);
  void note_read(const Visit& visit, BufferId id);
  void note_write(const Visit& visit, BufferId id);

 private:
  struct Accesses {
    Access write;               // the last write; the allocation counts as a write
    std::vector<Access> reads;  // the reads since `write`
  };

  // A range of the arena, with the buffer that occupies it, or with the last buffer that has occupied it.
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
