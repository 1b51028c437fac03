#include "src/plan/optimal/operands.h"

#include <algorithm>

#include "src/plan/recomputation.h"

namespace vdnn::optimal {

namespace {

// Whether `producer` makes no persistent value, and only the op `reader` reads its results.
bool is_for_one(const Tape& tape, OpId producer, OpId reader) {
  return std::ranges::all_of(tape.op(producer).writes, [&](ValueId made) {
    return !tape.value(made).persistent() &&
           std::ranges::all_of(tape.readers(made), [reader](OpId each) { return each == reader; });
  });
}

void add_chain(const Tape& tape, OpId op, OpId slot, std::uint64_t bytes, std::vector<OpId>& chain) {
  chain.push_back(op);
  for (const ValueId read : tape.op(op).reads) {
    const Value& value = tape.value(read);
    const OpId producer = tape.producer(read);
    if (!value.persistent() && producer != kNone && value.bytes >= bytes && tape.last_use(read) < slot &&
        may_run_again(tape, producer) && is_for_one(tape, producer, op) &&
        std::ranges::find(chain, producer) == chain.end()) {
      add_chain(tape, producer, slot, bytes, chain);
    }
  }
}

}  // namespace

double fresh_bytes(const Tape& tape, OpId op) {
  const Op& maker = tape.op(op);
  double fresh = 0;
  for (std::uint32_t write = 0; write < maker.writes.size(); ++write) {
    const bool in_place = std::ranges::any_of(
        maker.may_overwrite, [write](const Overwrite& permission) { return permission.write == write; });
    const Value& value = tape.value(maker.writes[write]);
    fresh += in_place || value.persistent() ? 0 : static_cast<double>(value.bytes);
  }
  return fresh;
}

double read_bytes(const Tape& tape, OpId op) {
  std::vector<ValueId> reads = tape.op(op).reads;
  std::ranges::sort(reads);
  reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
  double bytes = 0;
  for (const ValueId read : reads) {
    bytes += tape.value(read).persistent() ? 0 : static_cast<double>(tape.value(read).bytes);
  }
  return bytes;
}

std::vector<OpId> run_again_for(const Tape& tape, OpId op, OpId slot, std::uint64_t bytes) {
  std::vector<OpId> chain;
  add_chain(tape, op, slot, bytes, chain);
  return chain;
}

}  // namespace vdnn::optimal
