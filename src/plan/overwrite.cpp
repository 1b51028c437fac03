#include "src/plan/overwrite.h"

namespace vdnn {

namespace {

bool may_take(const Tape& tape, OpId id, const Overwrite& permission) {
  const Op& op = tape.op(id);
  const ValueId read = op.reads[permission.read];
  const ValueId write = op.writes[permission.write];
  return !tape.value(read).persistent() && !tape.value(write).persistent() && tape.last_use(read) == id &&
         tape.value(write).bytes <= tape.value(read).bytes;
}

}  // namespace

std::optional<std::uint32_t> overwritten_read(const Tape& tape, OpId id, std::uint32_t write) {
  const Op& op = tape.op(id);
  for (const Overwrite& permission : op.may_overwrite) {
    if (permission.write != write || !may_take(tape, id, permission)) {
      continue;
    }
    bool taken = false;
    for (std::uint32_t earlier = 0; earlier < write; ++earlier) {
      const auto other = overwritten_read(tape, id, earlier);
      taken = taken || (other && op.reads[*other] == op.reads[permission.read]);
    }
    if (!taken) {
      return permission.read;
    }
  }
  return std::nullopt;
}

}  // namespace vdnn
