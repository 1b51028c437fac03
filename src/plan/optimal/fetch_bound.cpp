// A lower bound on the time of a step. It is derived from the values that cannot have been fetched early.
//
// Let a and b be slots of one step, a before b, neither a collective. Consider the ops after a, up to and
// including b. Let V be the values that they read, that were made or loaded before a, and that are not
// operands of a. While a computes, the device holds the parameters, the operands of a and its workspace. The
// rest of the budget is the room of a. So of the x bytes of V, at least x - room become resident between the
// end of a and the start of b.
//
// Some of these bytes are copied from the host, at most H bytes per second. The remaining bytes are made
// again: the compute stream runs their producers and the producers' chains (operands.h) once more. It also
// runs the ops between a and b, which take at least C seconds. Let R(z) be the least seconds in which the
// compute stream makes z bytes, the cheapest per byte first. Then between the end of a and the start of b at
// least
//
//   min over z of  max(C + R(z), (x - room - z) / H)
//
// seconds pass. At the minimum the two terms are equal, since the first grows with z and the second falls.
//
// These times add up over slots a < b < c ...: the copies and launches between a and b do not overlap the
// copies and launches between b and c. So for every a, the earliest start of b is at least the earliest start
// of a plus the time of a plus this minimum. Different algorithms of a leave different room; the bound uses
// the algorithm for which this sum is least. The start of the next step's first op follows the last op of
// this step.

#include "src/plan/optimal/fetch_bound.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "src/plan/optimal/operands.h"
#include "src/plan/recomputation.h"

namespace vdnn::optimal {

namespace {

// b is at most this many slots after a. A value that is needed later usually has enough time to
// come back.
constexpr std::size_t kWindow = 64;
constexpr double kSumsRounding = 1e-12;

// The values of one op that must be fetched or made again.
struct MadeAgain {
  double bytes = 0;
  double seconds = 0;

  double price() const { return seconds / bytes; }
};

class FetchBound {
 public:
  FetchBound(const Problem& problem, double room) : problem_(problem), tape_(problem.tape()), room_(room) {
    for (OpId op = 0; op < problem.slots(); ++op) {
      operands_.push_back(fresh_bytes(tape_, op) + read_bytes(tape_, op));
      first_choice_.push_back(first_that_fits(op));
      if (!tape_.op(op).collective()) {
        slots_.push_back(op);
      }
    }
    seen_value_.assign(tape_.values().size(), kNone);
    seen_op_.assign(problem.slots(), kNone);
    starts_.assign(slots_.size() + 1, 0);
  }

  // The earliest start of the next step's first op.
  double seconds() {
    for (std::size_t before = 0; before < slots_.size(); ++before) {
      look_behind(before);
    }
    return starts_.back() * (1 - kSumsRounding);
  }

 private:
  // The op's fastest choice that fits. If no choice fits, no plan fits, so any bound holds.
  std::uint32_t first_that_fits(OpId op) const {
    const std::vector<Choice>& choices = problem_.choices(op);
    const auto fits = std::find_if(choices.begin(), choices.end() - 1, [&](const Choice& choice) {
      return operands_[op] + static_cast<double>(choice.workspace_bytes) <= room_;
    });
    return static_cast<std::uint32_t>(fits - choices.begin());
  }
  double least_seconds(OpId op) const { return problem_.choices(op)[first_choice_[op]].seconds; }

  // Raises the starts of the slots in the window after `before`.
  void look_behind(std::size_t before) {
    const OpId slot = slots_[before];
    needed_ = 0;
    again_.clear();
    double between = 0;
    const std::size_t end = std::min(before + kWindow, slots_.size());
    for (std::size_t after = before + 1; after <= end; ++after) {
      if (after < slots_.size()) {
        need_reads(slots_[after], slot);
      }
      starts_[after] = std::max(starts_[after], starts_[before] + least_from(slot, between));
      if (after < slots_.size()) {
        between += least_seconds(slots_[after]);
      }
    }
  }

  // The least seconds from the start of the slot until the needed values are on the device and later ops have
  // computed for `between` seconds.
  double least_from(OpId slot, double between) const {
    const std::vector<Choice>& choices = problem_.choices(slot);
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t choice = first_choice_[slot]; choice < choices.size(); ++choice) {
      const double left =
          std::max(room_ - operands_[slot] - static_cast<double>(choices[choice].workspace_bytes), 0.0);
      least = std::min(least, choices[choice].seconds + seconds_until_there(needed_ - left, between));
    }
    return least;
  }

  double seconds_until_there(double bytes, double computing) const {
    const double rate = problem_.costs().host_to_device;
    for (const MadeAgain& made : again_) {
      if (bytes / rate <= computing) {
        return computing;
      }
      const double part = (bytes / rate - computing) / (made.seconds + made.bytes / rate);
      if (part <= 1) {
        return computing + part * made.seconds;
      }
      bytes -= made.bytes;
      computing += made.seconds;
    }
    return std::max(computing, bytes / rate);
  }

  // Adds the op's reads to the needed values, unless they are on the device as operands of `slot`.
  void need_reads(OpId op, OpId slot) {
    for (const ValueId read : tape_.op(op).reads) {
      const Value& value = tape_.value(read);
      const OpId producer = tape_.producer(read);
      const bool made_before = producer != kNone ? producer < slot : tape_.readers(read).front() <= slot;
      if (value.persistent() || seen_value_[read] == slot || !made_before || is_operand(read, slot)) {
        continue;
      }
      seen_value_[read] = slot;
      needed_ += static_cast<double>(value.bytes);
      if (producer != kNone && seen_op_[producer] != slot && may_run_again(tape_, producer)) {
        seen_op_[producer] = slot;
        add_again(producer, slot);
      }
    }
  }

  bool is_operand(ValueId value, OpId slot) const {
    const Op& op = tape_.op(slot);
    return std::ranges::find(op.reads, value) != op.reads.end() ||
           std::ranges::find(op.writes, value) != op.writes.end();
  }

  // Counts as needed all values that the producer makes, even if only some are. Then a byte is cheaper to
  // make than in truth, so the bound still holds.
  void add_again(OpId producer, OpId slot) {
    std::uint64_t bytes = 0;
    for (const ValueId write : tape_.op(producer).writes) {
      bytes += tape_.value(write).persistent() ? 0 : tape_.value(write).bytes;
    }
    MadeAgain made{.bytes = static_cast<double>(bytes), .seconds = 0};
    for (const OpId op : run_again_for(tape_, producer, slot, bytes)) {
      made.seconds += least_seconds(op);
    }
    again_.insert(std::ranges::upper_bound(again_, made.price(), {}, &MadeAgain::price), made);
  }

  const Problem& problem_;
  const Tape& tape_;
  double room_;
  std::vector<double> operands_;             // by op: the bytes that it needs in addition to its workspace
  std::vector<std::uint32_t> first_choice_;  // by op: its fastest choice that fits
  std::vector<OpId> slots_;                  // the slots whose ops are not collectives
  // The earliest start of each slot of slots_. The last element is the earliest start of the next step.
  std::vector<double> starts_;
  // Temporary data of look_behind().
  std::vector<OpId> seen_value_;
  std::vector<OpId> seen_op_;
  double needed_ = 0;             // bytes of the needed values
  std::vector<MadeAgain> again_;  // the cheapest per byte first
};

}  // namespace

double fetch_bound_seconds(const Problem& problem, std::uint64_t device_bytes) {
  return FetchBound(problem,
                    static_cast<double>(device_bytes) - static_cast<double>(problem.parameter_bytes()))
      .seconds();
}

}  // namespace vdnn::optimal
