// A lower bound on the time of a step, whatever plan.
//
// Let u be a slot whose op computes when a step is under way, and let F be the least time of all ops before
// it and G that of it and all behind it, each with its fastest algorithm: one stream computes, so that from
// the start of a step's first op to the start of u no less than F passes, and from there to the start of the
// next step's first op no less than G.
//
// When u starts, every value that has been made and is still to be used, u's operands and results among them,
// is either on the device, or its copy on the host is complete and its memory given back, or it will be made
// again. The device has room for B bytes. What is needed beyond that, X = (values alive at u and parameters)
// - B, is thus made up of y bytes that were copied to the host before u started, after they had been made in
// this step, which takes y / D seconds of the link to the host (inputs apart, whose copy may be older: they
// are counted as gone for nothing), and come back before the step's last op has ended, which takes y / H; and
// of X - y bytes that are made again after u has started. To make a value again its producer must be run; if
// no producer makes a byte for less than so many seconds, the cheapest producers first, X - y bytes take at
// least R(X - y) seconds of the compute stream: the fractional knapsack, which is convex. So the step takes
// at least
//
//   min over y of  max(F, y / D) + max(G + R(X - y), y / H),
//
// the sum of functions that are convex in y, whose least value is looked for by thirds. The bound is the
// greatest over all u; for u whose X is not positive it is F + G, the sum of all ops.

#include <algorithm>
#include <map>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "vdnn/optimal_plan.h"

namespace vdnn {

namespace {

using optimal::Problem;

// Slots that are looked at: the bound holds for any choice of them, and the fullest say most.
constexpr std::size_t kSlots = 64;

constexpr double kRounding = 1e-12;  // of sums of some thousand ops, in another order than the predictor's

// What can be made again at a price.
struct Piece {
  double bytes = 0;
  double seconds_per_byte = 0;
};

// Values that are alive when op `slot` starts, by producer; inputs are not among them.
class Crossing {
 public:
  Crossing(const Problem& problem, OpId slot) {
    const Tape& tape = problem.tape();
    std::map<OpId, double> bytes;
    for (ValueId id = 0; id < tape.values().size(); ++id) {
      const OpId producer = tape.producer(id);
      const OpId last = tape.last_use(id);
      if (tape.value(id).persistent() || producer == kNone || last == kNone || producer >= slot ||
          last < slot) {
        continue;
      }
      bytes[producer] += static_cast<double>(tape.value(id).bytes);
    }
    for (const auto& [producer, made] : bytes) {
      total_ += made;
      pieces_.push_back({.bytes = made, .seconds_per_byte = problem.fastest(producer) / made});
    }
    std::ranges::sort(pieces_, {}, &Piece::seconds_per_byte);
  }

  double bytes() const { return total_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

  // R.
  double seconds(double bytes) const {
    double seconds = 0;
    for (const Piece& piece : pieces_) {
      const double part = std::min(bytes, piece.bytes);
      seconds += part * piece.seconds_per_byte;
      bytes -= part;
      if (bytes <= 0) {
        break;
      }
    }
    return seconds;
  }

 private:
  double total_ = 0;
  std::vector<Piece> pieces_;  // cheapest first
};

double bound_at(const Problem& problem, OpId slot, double before, double after, double device_bytes) {
  const Crossing crossing(problem, slot);
  double fresh = 0;  // that the op makes, and its workspace; what may overwrite a read may take its place
  const Op& op = problem.tape().op(slot);
  for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
    const bool in_place = std::ranges::any_of(
        op.may_overwrite, [write](const Overwrite& permission) { return permission.write == write; });
    const Value& value = problem.tape().value(op.writes[write]);
    fresh += in_place || value.persistent() ? 0 : static_cast<double>(value.bytes);
  }
  const double excess = crossing.bytes() + fresh + static_cast<double>(problem.least_workspace(slot)) +
                        static_cast<double>(problem.parameter_bytes()) - device_bytes;
  if (excess <= 0) {
    return before + after;
  }
  const PlanCosts& costs = problem.costs();
  const auto seconds = [&](double moved) {
    return std::max(before, moved / costs.device_to_host) +
           std::max(after + crossing.seconds(excess - moved), moved / costs.host_to_device);
  };
  // The least of a convex function, between nothing and everything moved, by thirds; kRounding is more than
  // what a hundred of them leave.
  double low = 0;
  double high = excess;
  for (int round = 0; round < 100; ++round) {
    const double third = (high - low) / 3;
    if (seconds(low + third) <= seconds(high - third)) {
      high -= third;
    } else {
      low += third;
    }
  }
  return seconds((low + high) / 2);
}

}  // namespace

double lower_bound_seconds(const Tape& tape, const PlanCosts& costs, std::uint64_t device_bytes) {
  const Problem problem(tape, {}, costs);
  const std::size_t slots = problem.slots();
  std::vector<double> before(slots + 1, 0);
  for (OpId slot = 0; slot < slots; ++slot) {
    before[slot + 1] = before[slot] + problem.fastest(slot);
  }
  std::vector<OpId> fullest(slots);
  for (OpId slot = 0; slot < slots; ++slot) {
    fullest[slot] = slot;
  }
  const std::size_t looked_at = std::min(slots, kSlots);
  std::ranges::partial_sort(fullest, fullest.begin() + static_cast<std::ptrdiff_t>(looked_at), {},
                            [&](OpId slot) { return -static_cast<double>(problem.resident_bytes()[slot]); });
  fullest.resize(looked_at);
  double bound = before[slots];
  for (const OpId slot : fullest) {
    bound = std::max(bound, bound_at(problem, slot, before[slot], before[slots] - before[slot],
                                     static_cast<double>(device_bytes)));
  }
  return bound * (1 - kRounding);
}

}  // namespace vdnn
