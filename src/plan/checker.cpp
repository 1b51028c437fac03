#include "vdnn/checker.h"

#include <string>

#include "src/plan/checker/clocks.h"
#include "src/plan/checker/contents.h"
#include "src/plan/checker/findings.h"
#include "src/plan/checker/form.h"
#include "src/plan/checker/operands.h"
#include "src/plan/checker/order.h"
#include "src/plan/checker/step_tally.h"
#include "vdnn/error.h"

namespace vdnn {

namespace checking {

namespace {

// The number of checked steps: the first step, and one that follows another step.
constexpr std::uint32_t kSteps = 2;

// Passes every instruction of the steps to the checks, in the order of the schedule.
class Walk {
 public:
  Walk(const Tape& tape, const Schedule& schedule, Findings& findings)
      : tape_(tape),
        schedule_(schedule),
        findings_(findings),
        clocks_(schedule, kSteps),
        order_(schedule, findings),
        contents_(tape, schedule, findings) {}

  void run() {
    Position position = 0;
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      StepTally tally(tape_);
      for (const Instruction& instruction : schedule_.instructions) {
        visit({.instruction = instruction, .step = step, .position = position++});
        tally.count(instruction);
      }
      tally.check(step, findings_);
      contents_.check_end_of_step(step);
    }
  }

 private:
  void visit(const Visit& me) {
    const Clock clock = clocks_.before(me);
    switch (me.instruction.kind) {
      case InstructionKind::kRelease:
        contents_.require_releasable(me);
        order_.release(me, clock);
        contents_.release(me.instruction.buffer);
        return;  // a release is not work of a stream
      case InstructionKind::kAllocate:
        contents_.allocate(me);
        order_.allocate(me, clock);
        break;
      default:
        access(me, clock);
    }
    clocks_.record(me, clock);
  }

  void access(const Visit& me, const Clock& clock) {
    const std::vector<BufferUse> all = uses(tape_, me.instruction);
    for (const BufferUse& use : all) {
      contents_.require_allocated(me, use.buffer);
      order_.require_ordered(me, use.buffer, clock, use.write);
      check_size(tape_, schedule_, me, use, findings_);
    }
    for (const BufferUse& use : all) {
      if (!use.write) {
        contents_.read(me, use);
        order_.note_read(me, use.buffer);
      }
    }
    for (const BufferUse& use : all) {
      if (use.write) {
        contents_.write(me, use);
        order_.note_write(me, use.buffer);
      }
    }
    check_shared_buffers(tape_, me, all, findings_);
  }

  const Tape& tape_;
  const Schedule& schedule_;
  Findings& findings_;
  Clocks clocks_;
  OrderCheck order_;
  ContentCheck contents_;
};

}  // namespace

}  // namespace checking

std::vector<std::string> check_schedule(const Tape& tape, const Schedule& schedule) {
  checking::Findings findings(tape, schedule);
  if (checking::check_form(tape, schedule, findings)) {
    checking::Walk(tape, schedule, findings).run();
  }
  return findings.take();
}

void require_valid(const Tape& tape, const Schedule& schedule) {
  const std::vector<std::string> findings = check_schedule(tape, schedule);
  if (!findings.empty()) {
    throw ScheduleError(
        "the schedule of '" + tape.model() + "' is not right: " + findings.front() +
        (findings.size() > 1 ? " (and " + std::to_string(findings.size() - 1) + " more)" : ""));
  }
}

}  // namespace vdnn
