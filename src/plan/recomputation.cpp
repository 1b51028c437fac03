#include "src/plan/recomputation.h"

#include <optional>
#include <variant>

#include "src/plan/overwrite.h"

namespace vdnn {

namespace {

// Whether the op is a stretch of a foreign program's step (learned_step.h).
bool is_foreign(const OpSpec& spec) {
  const auto* const custom = std::get_if<CustomSpec>(&spec);
  return custom != nullptr && !custom->layer;
}

}  // namespace

bool may_run_again(const Tape& tape, OpId id) {
  const Op& op = tape.op(id);
  return op.phase == Phase::kForward && !op.collective() && !is_foreign(op.spec) &&
         std::ranges::none_of(op.writes, [&](ValueId value) { return tape.value(value).persistent(); });
}

std::vector<Relaunch> relaunches_of(const Tape& tape) {
  std::vector<Relaunch> relaunches;
  for (OpId id = 0; id < tape.ops().size(); ++id) {
    const Op& op = tape.op(id);
    Relaunch& relaunch = relaunches.emplace_back();
    relaunch.possible = may_run_again(tape, id);
    std::ranges::copy_if(op.reads, std::back_inserter(relaunch.reads),
                         [&](ValueId read) { return !tape.value(read).persistent(); });
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      const std::optional<std::uint32_t> read = overwritten_read(tape, id, write);
      relaunch.makes.push_back({.value = op.writes[write], .overwrites = read ? op.reads[*read] : kNone});
    }
  }
  return relaunches;
}

void RelaunchSearch::clear() {
  for (const OpId op : ops_) {
    for (const ValueId read : relaunches_[op].reads) {
      last_readers_[read] = kNone;
    }
  }
  ops_.clear();
  ++run_;
}

void RelaunchSearch::find_last_readers() {
  std::ranges::sort(ops_);
  for (const OpId op : ops_) {
    for (const ValueId read : relaunches_[op].reads) {
      last_readers_[read] = op;
    }
  }
}

}  // namespace vdnn
