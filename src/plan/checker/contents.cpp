#include "src/plan/checker/contents.h"

#include <algorithm>

namespace vdnn::checking {

ContentCheck::ContentCheck(const Tape& tape, const Schedule& schedule, Findings& findings)
    : tape_(tape),
      schedule_(schedule),
      findings_(findings),
      buffers_(schedule.buffers.size()),
      made_(tape.values().size(), 0),
      writers_(tape.values().size()) {
  for (OpId op = 0; op < tape.ops().size(); ++op) {
    for (const ValueId id : tape.op(op).writes) {
      writers_[id].push_back(op);
    }
  }
  for (BufferId id = 0; id < buffers_.size(); ++id) {
    buffers_[id].allocated = schedule.buffers[id].persistent;
  }
  for (const Instruction& instruction : schedule.instructions) {
    for (const BufferUse& use : uses(tape, instruction)) {
      if (use.value != kNone && tape.value(use.value).persistent() && made_[use.value] == 0) {
        made_[use.value] = 1;
        buffers_[use.buffer].content = {.value = use.value, .version = 1};
      }
    }
  }
}

void ContentCheck::allocate(const Visit& visit) {
  const BufferId id = visit.instruction.buffer;
  if (buffers_[id].allocated) {
    findings_.add(findings_.name(visit) + " allocates " + findings_.buffer_name(id) + ", which is allocated");
  }
  buffers_[id] = {.allocated = true, .content = {}};
}

void ContentCheck::require_releasable(const Visit& visit) {
  const BufferId id = visit.instruction.buffer;
  if (!buffers_[id].allocated || schedule_.buffers[id].persistent) {
    findings_.add(findings_.name(visit) + " releases " + findings_.buffer_name(id) +
                  ", which is not to be released");
  }
}

void ContentCheck::require_allocated(const Visit& visit, BufferId id) {
  if (!buffers_[id].allocated) {
    findings_.add(findings_.name(visit) + " uses " + findings_.buffer_name(id) + ", which is not allocated");
  }
}

// The version of the value that the instruction must use according to the tape. A value that is not
// persistent is made once per step. A persistent value exists before the first step, and each op of the tape
// that rewrites it makes a new version.
std::uint64_t ContentCheck::meant_version(const Visit& visit, ValueId id) const {
  if (!tape_.value(id).persistent()) {
    return visit.step + 1;
  }
  const std::vector<OpId>& writers = writers_[id];
  const auto rewrites_before =
      is_launch(visit.instruction.kind)
          ? std::ranges::count_if(writers, [&](OpId writer) { return writer < visit.instruction.op; })
          : 0;
  return 1 + visit.step * writers.size() + static_cast<std::uint64_t>(rewrites_before);
}

void ContentCheck::read(const Visit& visit, const BufferUse& use) {
  const Content& content = buffers_[use.buffer].content;
  const Content meant{.value = use.value, .version = meant_version(visit, use.value)};
  if (content.value != meant.value) {
    findings_.add(findings_.name(visit) + " reads " + tape_.value(use.value).name + " from " +
                  findings_.buffer_name(use.buffer) + ", which holds " +
                  (content.value == kNone ? "nothing" : tape_.value(content.value).name));
  } else if (content != meant) {
    findings_.add(findings_.name(visit) + " reads version " + std::to_string(content.version) + " of " +
                  tape_.value(use.value).name + " and means version " + std::to_string(meant.version));
  }
}

void ContentCheck::write(const Visit& visit, const BufferUse& use) {
  const InstructionKind kind = visit.instruction.kind;
  Content& content = buffers_[use.buffer].content;
  content = {};
  if (use.value == kNone) {
    return;
  }
  if (kind == InstructionKind::kRecompute) {
    recompute(visit, use);
    return;
  }
  const bool copy = kind == InstructionKind::kOffload || kind == InstructionKind::kPrefetch;
  const bool rewrite = kind == InstructionKind::kLaunch && tape_.value(use.value).persistent();
  content = {.value = use.value, .version = meant_version(visit, use.value) + (rewrite ? 1 : 0)};
  if (!copy && !rewrite && ++made_[use.value] != visit.step + 1) {
    findings_.add(findings_.name(visit) + " makes " + tape_.value(use.value).name +
                  ", which has been made already in this step, or was not made in the step before");
  }
}

// Records that a recomputation makes this step's version of the value again.
void ContentCheck::recompute(const Visit& visit, const BufferUse& use) {
  if (tape_.value(use.value).persistent()) {
    findings_.add(findings_.name(visit) + " makes " + tape_.value(use.value).name +
                  " again, which lives from step to step");
  } else if (made_[use.value] != visit.step + 1) {
    findings_.add(findings_.name(visit) + " makes " + tape_.value(use.value).name +
                  " again, which has not been made yet");
  }
  buffers_[use.buffer].content = {.value = use.value, .version = visit.step + 1};
}

void ContentCheck::check_end_of_step(std::uint32_t step) {
  for (BufferId id = 0; id < buffers_.size(); ++id) {
    if (buffers_[id].allocated && !schedule_.buffers[id].persistent) {
      findings_.add(findings_.buffer_name(id) + " is not released in step " + std::to_string(step));
    }
  }
}

}  // namespace vdnn::checking
