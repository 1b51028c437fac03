#include "src/plan/checker/operands.h"

#include <algorithm>
#include <cstdint>

namespace vdnn::checking {

void check_size(const Tape& tape, const Schedule& schedule, const Visit& visit, const BufferUse& use,
                Findings& findings) {
  const OpId op = visit.instruction.op;
  const std::uint64_t needed = use.value == kNone
                                   ? tape.op(op).algorithms[schedule.algorithms[op]].workspace_bytes
                                   : tape.value(use.value).bytes;
  if (schedule.buffers[use.buffer].bytes < needed) {
    findings.add(findings.name(visit) + " needs " + std::to_string(needed) + " bytes, " +
                 findings.buffer_name(use.buffer) + " has " +
                 std::to_string(schedule.buffers[use.buffer].bytes));
  }
}

void check_shared_buffers(const Tape& tape, const Visit& visit, const std::vector<BufferUse>& all,
                          Findings& findings) {
  if (!is_launch(visit.instruction.kind)) {
    return;
  }
  const Op& op = tape.op(visit.instruction.op);
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      if (all[a].buffer != all[b].buffer || all[a].value == all[b].value || !all[b].write) {
        continue;
      }
      const bool permitted = std::ranges::any_of(op.may_overwrite, [&](const Overwrite& overwrite) {
        return overwrite.read == a && overwrite.write + op.reads.size() == b;
      });
      if (!permitted) {
        findings.add(findings.name(visit) + " has two operands in " + findings.buffer_name(all[a].buffer));
      }
    }
  }
}

}  // namespace vdnn::checking
