#include "src/plan/checker/order.h"

#include <utility>

namespace vdnn::checking {

void OrderCheck::allocate(const Visit& visit, const Clock& clock) {
  const BufferId id = visit.instruction.buffer;
  if (schedule_.buffers[id].offset) {
    enter_place(visit, clock);
  }
  note_write(visit, id);
}

void OrderCheck::release(const Visit& visit, const Clock& clock) {
  const BufferId id = visit.instruction.buffer;
  require_ordered(visit, id, clock, true);
  if (schedule_.buffers[id].offset) {
    leave_place(id);
  }
  accesses_[id] = {};
}

void OrderCheck::require_ordered(const Visit& visit, BufferId id, const Clock& clock, bool write) {
  const Accesses& earlier = accesses_[id];
  if (!is_after(clock, earlier.write)) {
    findings_.add(findings_.name(visit) + " uses " + findings_.buffer_name(id) +
                  " and is not ordered after " + findings_.name(earlier.write.position));
  }
  if (!write) {
    return;
  }
  for (const Access& read : earlier.reads) {
    if (!is_after(clock, read)) {
      findings_.add(findings_.name(visit) + " changes " + findings_.buffer_name(id) +
                    " and is not ordered after " + findings_.name(read.position));
    }
  }
}

void OrderCheck::note_read(const Visit& visit, BufferId id) {
  accesses_[id].reads.push_back(access_of(visit));
}

void OrderCheck::note_write(const Visit& visit, BufferId id) {
  accesses_[id] = {.write = access_of(visit), .reads = {}};
}

void OrderCheck::enter_place(const Visit& visit, const Clock& clock) {
  const BufferId id = visit.instruction.buffer;
  places_.visit(place(id), [&](AddressRange, const Place* other) {
    if (other == nullptr) {
      return;
    }
    if (other->tenant != kNone) {
      findings_.add(findings_.name(visit) + " allocates " + findings_.buffer_name(id) + " where " +
                    findings_.buffer_name(other->tenant) + " lies");
    }
    for (const Access& access : other->last_uses) {
      if (!is_after(clock, access)) {
        findings_.add(findings_.name(visit) + " takes the place of " +
                      findings_.buffer_name(other->previous) + " and is not ordered after " +
                      findings_.name(access.position));
      }
    }
  });
  places_.assign(place(id), {.tenant = id, .previous = kNone, .last_uses = {}});
}

void OrderCheck::leave_place(BufferId id) {
  Place left{.tenant = kNone, .previous = id, .last_uses = accesses_[id].reads};
  left.last_uses.push_back(accesses_[id].write);
  places_.assign(place(id), std::move(left));
}

}  // namespace vdnn::checking
