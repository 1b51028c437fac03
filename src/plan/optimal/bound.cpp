// A lower bound on the time of a step. It holds for every plan, however often values leave and come back in a
// step.
//
// While an op computes, the parameters, its operands and its workspace are on the device, together in at most
// B bytes. This excludes algorithms with large workspaces. The least time of an op is the time of its fastest
// remaining algorithm.
//
// Let u be a slot of the step whose op uses algorithm a. Let F be the sum of the least times of all ops
// before u. Let G be the time of u with a, plus the least times of all ops after u. Only one stream computes.
// So from the start of the step's first op to the start of u, at least F passes. From the start of u to the
// start of the next step's first op, at least G passes.
//
// When u starts, each value that has been made and will still be used is in one of three states. It is on the
// device, like all that the op of u reads. Or its copy on the host is complete and its device memory is
// released. Or it will be made again. Let X be the bytes that do not fit: the values alive at u, the
// parameters and the workspace of a, less B. So X bytes are not on the device:
//
//   * y bytes are on the host. They were made in this step and then copied before u started, which takes
//     y / D seconds of the link to the host. They come back before the step's last op ends, which takes y / H
//     seconds. (The copy of an input may be older, so the bound counts inputs as gone at no cost.)
//   * X - y bytes are made again after u has started. The producer of each value, which must be an op of the
//     forward pass, runs once more, and its chain (operands.h) with it. With the cheapest producers per byte
//     first, this takes at least R(X - y) seconds of the compute stream: a fractional knapsack, which is
//     convex.
//
// So with algorithm a the step takes at least
//
//   min over y of  max(F, y / D) + max(G + R(X - y), y / H).
//
// Both terms are convex in y, so a ternary search finds the minimum. y is at least the bytes that remain if
// all that can be made again is made again. The bound of u is the least over its algorithms, and the bound of
// the step is the greatest over all u. If X is not positive with the fastest algorithm of u, the bound of u
// is F + G, the sum of the least times of all ops.

#include "src/plan/optimal/bound.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "src/plan/optimal/fetch_bound.h"
#include "src/plan/optimal/operands.h"
#include "src/plan/recomputation.h"
#include "vdnn/optimal_plan.h"

namespace vdnn {

namespace optimal {

namespace {

// The number of slots that the bound evaluates.
constexpr std::size_t kSlots = 64;
// Rounds of the ternary search. Each round removes a third of the range; after all rounds the range is below
// a double's precision.
constexpr int kThirds = 90;
// The rounding error of sums over some thousand ops. The predictor adds them in another order.
constexpr double kRounding = 1e-12;

bool reads(const Op& op, ValueId value) {
  return std::ranges::find(op.reads, value) != op.reads.end();
}

// The slots to evaluate. The bound holds for any choice of slots; the slots with the most memory in use lead
// to the greatest bound.
std::vector<OpId> fullest_slots(const Problem& problem) {
  std::vector<OpId> fullest(problem.slots());
  std::iota(fullest.begin(), fullest.end(), OpId{0});
  const std::size_t looked_at = std::min(fullest.size(), kSlots);
  std::ranges::partial_sort(fullest, fullest.begin() + static_cast<std::ptrdiff_t>(looked_at), {},
                            [&](OpId slot) { return -static_cast<double>(problem.resident_bytes()[slot]); });
  fullest.resize(looked_at);
  return fullest;
}

}  // namespace

Bound::Bound(const Problem& problem) : problem_(problem) {
  for (OpId op = 0; op < problem.slots(); ++op) {
    fresh_.push_back(fresh_bytes(problem.tape(), op));
    operands_.push_back(fresh_.back() + read_bytes(problem.tape(), op));
  }
  for (const OpId slot : fullest_slots(problem)) {
    crossings_.push_back(crossing(slot));
  }
}

// The copied members do not depend on algorithms, except for the prices in crossings_. find_least() computes
// these prices anew, since least_ is empty at first.
Bound::Bound(const Problem& problem, const Bound& other)
    : problem_(problem), operands_(other.operands_), fresh_(other.fresh_), crossings_(other.crossings_) {}

double Bound::seconds(std::uint64_t device_bytes, double enough) {
  const double room = static_cast<double>(device_bytes) - static_cast<double>(problem_.parameter_bytes());
  find_least(room);
  double bound = total_;
  for (auto alive = crossings_.begin(); alive != crossings_.end() && bound * (1 - kRounding) < enough;
       ++alive) {
    bound = std::max(bound, seconds_at(*alive, room));
  }
  return bound * (1 - kRounding);
}

Bound::Crossing Bound::crossing(OpId slot) const {
  const Tape& tape = problem_.tape();
  std::map<OpId, std::uint64_t> made;
  Crossing result{.slot = slot};
  for (ValueId id = 0; id < tape.values().size(); ++id) {
    const OpId producer = tape.producer(id);
    const OpId last = tape.last_use(id);
    if (tape.value(id).persistent() || producer == kNone || last == kNone || producer >= slot ||
        last < slot) {
      continue;
    }
    result.bytes += static_cast<double>(tape.value(id).bytes);
    if (may_run_again(tape, producer) && !reads(tape.op(slot), id)) {
      made[producer] += tape.value(id).bytes;
    }
  }
  for (const auto& [producer, bytes] : made) {
    result.made.push_back({.bytes = static_cast<double>(bytes),
                           .ops = run_again_for(tape, producer, slot, bytes),
                           .seconds = 0});
  }
  return result;
}

// Finds each op's least time among the algorithms that fit in addition to its operands.
void Bound::find_least(double room) {
  std::vector<double> least;
  for (OpId op = 0; op < problem_.slots(); ++op) {
    const std::vector<Choice>& choices = problem_.choices(op);
    // If no algorithm fits, no plan fits, so any bound holds.
    const auto fits = std::find_if(choices.begin(), choices.end() - 1, [&](const Choice& choice) {
      return operands_[op] + static_cast<double>(choice.workspace_bytes) <= room;
    });
    least.push_back(fits->seconds);
  }
  if (least != least_) {
    least_ = std::move(least);
    find_prices();
  }
}

void Bound::find_prices() {
  before_.clear();
  total_ = 0;
  for (const double seconds : least_) {
    before_.push_back(total_);
    total_ += seconds;
  }
  for (Crossing& alive : crossings_) {
    for (Made& made : alive.made) {
      made.seconds = std::accumulate(made.ops.begin(), made.ops.end(), 0.0,
                                     [this](double sum, OpId op) { return sum + least_[op]; });
    }
    std::ranges::sort(alive.made, {}, [](const Made& made) {
      return std::pair(made.seconds / made.bytes, made.ops.front());
    });
    alive.again.clear();
    Sums sums;
    for (const Made& made : alive.made) {
      sums = {.bytes = sums.bytes + made.bytes, .seconds = sums.seconds + made.seconds};
      alive.again.push_back(sums);
    }
  }
}

double Bound::seconds_at(const Crossing& alive, double room) const {
  const double needed = alive.bytes + fresh_[alive.slot] - room;
  const double fastest = least_[alive.slot];
  double least = std::numeric_limits<double>::infinity();
  for (const Choice& choice : problem_.choices(alive.slot)) {
    if (choice.seconds < fastest) {
      continue;  // this choice does not fit
    }
    const double slower = choice.seconds - fastest;
    const double excess = needed + static_cast<double>(choice.workspace_bytes);
    const double before = before_[alive.slot];
    least = std::min(least,
                     excess <= 0 ? total_ + slower : split(alive, excess, before, total_ - before + slower));
  }
  return least;
}

// The least seconds of a step in which `excess` bytes are not on the device when the slot's op starts.
double Bound::split(const Crossing& alive, double excess, double before, double after) const {
  const PlanCosts& costs = problem_.costs();
  const auto seconds_again = [&alive](double bytes) {
    const auto last = std::ranges::lower_bound(alive.again, bytes, {}, &Sums::bytes);
    if (last == alive.again.end()) {
      return alive.again.empty() ? 0 : alive.again.back().seconds;
    }
    const Sums none;
    const Sums& until = last == alive.again.begin() ? none : *std::prev(last);
    const double part = (bytes - until.bytes) / (last->bytes - until.bytes);
    return until.seconds + part * (last->seconds - until.seconds);
  };
  const auto seconds = [&](double moved) {
    return std::max(before, moved / costs.device_to_host) +
           std::max(after + seconds_again(excess - moved), moved / costs.host_to_device);
  };
  // Operands of the slot's op must be on the device, so `excess` may exceed the bytes that can be elsewhere.
  // Then no plan fits, so any bound holds.
  const double again = alive.again.empty() ? 0 : alive.again.back().bytes;
  double low = std::max(excess - again, 0.0);
  double high = excess;
  for (int round = 0; round < kThirds; ++round) {
    const double third = (high - low) / 3;
    if (seconds(low + third) <= seconds(high - third)) {
      high -= third;
    } else {
      low += third;
    }
  }
  return seconds((low + high) / 2);
}

}  // namespace optimal

double lower_bound_seconds(const Tape& tape, const PlanCosts& costs, std::uint64_t device_bytes) {
  const optimal::Problem problem(tape, {}, costs);
  return std::max(optimal::Bound(problem).seconds(device_bytes, std::numeric_limits<double>::infinity()),
                  optimal::fetch_bound_seconds(problem, device_bytes));
}

}  // namespace vdnn
