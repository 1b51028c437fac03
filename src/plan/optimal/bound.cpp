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
// When u starts, every value that has been made and is still to be used is either on the device, as all that
// u reads is, or its copy on the host is complete and its memory released, or it will be made again. X is
// what is needed beyond B: the values alive at u, the parameters and the workspace of a, less B. It is made
// up of y bytes that were copied to the host before u started, after they had been made in this step, which
// takes y / D seconds of the link to the host (inputs apart, whose copy may be older: the bound counts them
// as gone for nothing), and come back before the step's last op has ended, which takes y / H; and of X - y
// bytes that are made again after u has started. To make a value again its producer must run once more,
// which only ops of the forward pass can, and with it its chain (operands.h). If no producer makes a byte for
// less than so many seconds, the cheapest producers first, X - y bytes take at least R(X - y) seconds of the
// compute stream: the fractional knapsack, which is convex. So with a the step takes at least
//
//   min over y of  max(F, y / D) + max(G + R(X - y), y / H),
//
// the sum of functions that are convex in y, whose least value is looked for by thirds; y is at least what is
// left where all is made again that can be. Of the algorithms of u the one that leads to the least counts.
// The bound is the greatest over all u; for u whose X is not positive with the fastest algorithm it is F + G,
// the sum of all ops.

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

// The number of slots that are evaluated.
constexpr std::size_t kSlots = 64;
// Each takes a third off the stretch that the least value lies in: together more than a double tells apart.
constexpr int kThirds = 90;
constexpr double kRounding = 1e-12;  // of sums of some thousand ops, in another order than the predictor's

bool reads(const Op& op, ValueId value) {
  return std::ranges::find(op.reads, value) != op.reads.end();
}

// The bound holds for any choice of slots. The fullest give the greatest.
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

// Of the algorithms that fit beside the op's own operands.
void Bound::find_least(double room) {
  std::vector<double> least;
  for (OpId op = 0; op < problem_.slots(); ++op) {
    const std::vector<Choice>& choices = problem_.choices(op);
    // If nothing fits, no plan does, and any bound holds.
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
      continue;  // does not fit
    }
    const double slower = choice.seconds - fastest;
    const double excess = needed + static_cast<double>(choice.workspace_bytes);
    const double before = before_[alive.slot];
    least = std::min(least,
                     excess <= 0 ? total_ + slower : split(alive, excess, before, total_ - before + slower));
  }
  return least;
}

// The cheapest way for `excess` bytes to be gone.
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
  // Operands of the slot itself are never gone, so `excess` may exceed the bytes that can be gone. Then no
  // plan fits, and any bound holds.
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
