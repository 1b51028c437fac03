#include "src/plan/checker/clocks.h"

#include <algorithm>

namespace vdnn::checking {

Clocks::Clocks(const Schedule& schedule, std::uint32_t steps)
    : count_(static_cast<Position>(schedule.instructions.size())),
      done_(static_cast<std::size_t>(steps * count_)) {
  for (Clock& clock : streams_) {
    clock.fill(kNever);
  }
}

Clock Clocks::before(const Visit& visit) const {
  const Instruction& me = visit.instruction;
  Clock clock;
  clock.fill(kNever);
  if (me.kind != InstructionKind::kRelease) {
    clock = streams_[static_cast<std::size_t>(me.stream)];
  }
  for (const Wait& wait : me.waits) {
    if (wait.steps_ago > visit.step) {
      continue;
    }
    const Position other = (visit.step - wait.steps_ago) * count_ + wait.instruction;
    std::ranges::transform(clock, done_[static_cast<std::size_t>(other)], clock.begin(),
                           [](Position a, Position b) { return std::max(a, b); });
  }
  return clock;
}

void Clocks::record(const Visit& visit, Clock clock) {
  const auto stream = static_cast<std::size_t>(visit.instruction.stream);
  clock[stream] = visit.position;
  done_[static_cast<std::size_t>(visit.position)] = clock;
  streams_[stream] = clock;
}

}  // namespace vdnn::checking
