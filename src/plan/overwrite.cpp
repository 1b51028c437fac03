#include "src/plan/overwrite.h"

#include <algorithm>

namespace vdnn {

namespace {

bool may_take(const Tape& tape, OpId id, const Overwrite& permission) {
  const Op& op = tape.op(id);
  const ValueId read = op.reads[permission.read];
  const ValueId write = op.writes[permission.write];
  return !tape.value(read).persistent() && !tape.value(write).persistent() && tape.last_use(read) == id &&
         tape.value(write).bytes <= tape.value(read).bytes;
}

// Whether an earlier write of the op overwrites `read`.
bool is_taken_before(const Tape& tape, OpId id, std::uint32_t write, ValueId read) {
  const Op& op = tape.op(id);
  return std::ranges::any_of(op.may_overwrite, [&](const Overwrite& permission) {
    if (permission.write >= write || op.reads[permission.read] != read) {
      return false;
    }
    const auto other = overwritten_read(tape, id, permission.write);
    return other && op.reads[*other] == read;
  });
}

}  // namespace

std::optional<std::uint32_t> overwritten_read(const Tape& tape, OpId id, std::uint32_t write) {
  const Op& op = tape.op(id);
  for (const Overwrite& permission : op.may_overwrite) {
    if (permission.write == write && may_take(tape, id, permission) &&
        !is_taken_before(tape, id, write, op.reads[permission.read])) {
      return permission.read;
    }
  }
  return std::nullopt;
}

}  // namespace vdnn
