// A lower bound on the time of a step, whatever plan, however often values come and go in it.
//
// While an op computes, the parameters, its operands and its workspace are on the device, all within B bytes.
// That leaves some algorithms out; let the least time of an op be that of the fastest of the others.
//
// Let u be a slot whose op computes when a step is under way. Let F be the least time of all ops before it
// and G that of it and all after it, where u uses the algorithm a: one stream computes, so that from the
// start of a step's first op to the start of u no less than F passes, and from there to the start of the next
// step's first op no less than G.
//
// When u starts, every value that has been made and is still to be used, u's operands and results among them,
// is either on the device, or its copy on the host is complete and its memory released, or it will be made
// again. X is what is needed beyond B: the values alive at u, the parameters and the workspace of a, less B.
// It is made up of y bytes that were copied to the host before u started, after they had been made in this
// step, which takes y / D seconds of the link to the host (inputs apart, whose copy may be older: the bound
// counts them as gone for nothing), and come back before the step's last op has ended, which takes y / H; and
// of X - y bytes that are made again after u has started. To make a value again its producer must run once
// more, which only ops of the forward pass can. If no producer makes a byte for less than so many seconds,
// the cheapest producers first, X - y bytes take at least R(X - y) seconds of the compute stream: the
// fractional knapsack, which is convex. So with a the step takes at least
//
//   min over y of  max(F, y / D) + max(G + R(X - y), y / H),
//
// the sum of functions that are convex in y, whose least value is looked for by thirds; y is at least what no
// op can make again. Of the algorithms of u the one that leads to the least counts. The bound is the greatest
// over all u; for u whose X is not positive with the fastest algorithm it is F + G, the sum of all ops.

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "src/plan/lowering.h"
#include "src/plan/optimal/problem.h"
#include "vdnn/optimal_plan.h"

namespace vdnn {

namespace {

using optimal::Problem;

// Slots that are looked at.
constexpr std::size_t kSlots = 64;

constexpr double kRounding = 1e-12;  // of sums of some thousand ops, in another order than the predictor's

// What can be made again at a price.
struct Piece {
  double bytes = 0;
  double seconds_per_byte = 0;
};

constexpr double kNever = std::numeric_limits<double>::infinity();

// Of a tape in so much memory.
class Bound {
 public:
  Bound(const Problem& problem, double device_bytes)
      : problem_(problem), room_(device_bytes - static_cast<double>(problem.parameter_bytes())) {
    for (OpId op = 0; op < problem.slots(); ++op) {
      least_.push_back(least_seconds(op));
      total_ += least_.back();
    }
  }

  double seconds() const {
    double bound = total_;
    double before = 0;
    std::vector<double> start(problem_.slots());
    for (OpId op = 0; op < problem_.slots(); ++op) {
      start[op] = before;
      before += least_[op];
    }
    for (const OpId slot : fullest_slots()) {
      bound = std::max(bound, seconds_at(slot, start[slot]));
    }
    return bound;
  }

 private:
  // Values that are alive when an op starts, less what is there anyway; by producer.
  struct Crossing {
    double bytes = 0;
    double movable_only = 0;    // of those, what no op can make again
    std::vector<Piece> pieces;  // what ops can, cheapest first
  };

  // What the op's results take, but for those that may take the place of what it reads.
  double fresh_bytes(OpId id) const {
    const Op& op = problem_.tape().op(id);
    double fresh = 0;
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      const bool in_place = std::ranges::any_of(
          op.may_overwrite, [write](const Overwrite& permission) { return permission.write == write; });
      const Value& value = problem_.tape().value(op.writes[write]);
      fresh += in_place || value.persistent() ? 0 : static_cast<double>(value.bytes);
    }
    return fresh;
  }

  // Of the algorithms that fit beside the op's own operands.
  double least_seconds(OpId id) const {
    double operands = fresh_bytes(id);
    std::vector<ValueId> reads = problem_.tape().op(id).reads;
    std::ranges::sort(reads);
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    for (const ValueId read : reads) {
      const Value& value = problem_.tape().value(read);
      operands += value.persistent() ? 0 : static_cast<double>(value.bytes);
    }
    for (const optimal::Choice& choice : problem_.choices(id)) {
      if (operands + static_cast<double>(choice.workspace_bytes) <= room_) {
        return choice.seconds;
      }
    }
    return problem_.choices(id).back().seconds;  // nothing fits: whatever is said holds
  }

  // The bound holds for any choice of slots, and the fullest say most.
  std::vector<OpId> fullest_slots() const {
    std::vector<OpId> fullest(problem_.slots());
    std::iota(fullest.begin(), fullest.end(), OpId{0});
    const std::size_t looked_at = std::min(fullest.size(), kSlots);
    std::ranges::partial_sort(
        fullest, fullest.begin() + static_cast<std::ptrdiff_t>(looked_at), {},
        [&](OpId slot) { return -static_cast<double>(problem_.resident_bytes()[slot]); });
    fullest.resize(looked_at);
    return fullest;
  }

  Crossing crossing(OpId slot) const {
    const Tape& tape = problem_.tape();
    std::map<OpId, double> bytes;
    Crossing result;
    for (ValueId id = 0; id < tape.values().size(); ++id) {
      const OpId producer = tape.producer(id);
      const OpId last = tape.last_use(id);
      if (tape.value(id).persistent() || producer == kNone || last == kNone || producer >= slot ||
          last < slot) {
        continue;
      }
      result.bytes += static_cast<double>(tape.value(id).bytes);
      (may_run_again(tape, producer) ? bytes[producer] : result.movable_only) +=
          static_cast<double>(tape.value(id).bytes);
    }
    for (const auto& [producer, made] : bytes) {
      result.pieces.push_back({.bytes = made, .seconds_per_byte = least_[producer] / made});
    }
    std::ranges::sort(result.pieces, {}, &Piece::seconds_per_byte);
    return result;
  }

  // R.
  static double seconds_again(const Crossing& crossing, double bytes) {
    double seconds = 0;
    for (const Piece& piece : crossing.pieces) {
      const double part = std::min(bytes, piece.bytes);
      seconds += part * piece.seconds_per_byte;
      bytes -= part;
      if (bytes <= 0) {
        break;
      }
    }
    return seconds;
  }

  double seconds_at(OpId slot, double before) const {
    const Crossing alive = crossing(slot);
    const double needed = alive.bytes + fresh_bytes(slot) - room_;
    double least = kNever;
    for (const optimal::Choice& choice : problem_.choices(slot)) {
      if (choice.seconds < least_[slot]) {
        continue;  // does not fit
      }
      const double slower = choice.seconds - least_[slot];
      const double excess = needed + static_cast<double>(choice.workspace_bytes);
      least = std::min(
          least, excess <= 0 ? total_ + slower : split(alive, excess, before, total_ - before + slower));
    }
    return least;
  }

  // The cheapest way for `excess` bytes to be gone.
  double split(const Crossing& alive, double excess, double before, double after) const {
    const PlanCosts& costs = problem_.costs();
    const auto seconds = [&](double moved) {
      return std::max(before, moved / costs.device_to_host) +
             std::max(after + seconds_again(alive, excess - moved), moved / costs.host_to_device);
    };
    // Operands of `slot` itself are never gone, so that `excess` may be more than what can be: then nothing
    // fits, and whatever is said holds.
    double low = std::clamp(excess - (alive.bytes - alive.movable_only), 0.0, excess);
    double high = excess;
    for (int round = 0; round < 100; ++round) {  // kRounding is more than what they leave
      const double third = (high - low) / 3;
      if (seconds(low + third) <= seconds(high - third)) {
        high -= third;
      } else {
        low += third;
      }
    }
    return seconds((low + high) / 2);
  }

  const Problem& problem_;
  double room_;                // for all but parameters
  std::vector<double> least_;  // an op
  double total_ = 0;
};

}  // namespace

double lower_bound_seconds(const Tape& tape, const PlanCosts& costs, std::uint64_t device_bytes) {
  const Problem problem(tape, {}, costs);
  return Bound(problem, static_cast<double>(device_bytes)).seconds() * (1 - kRounding);
}

}  // namespace vdnn
