#include "vdnn/learned_costs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/run/launch_times.h"
#include "src/run/link_rates.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

// Copies of fewer bytes are too short to measure the link's rate.
constexpr std::uint64_t kLeastCopyBytes = 16 << 10;
// Copies that take less time than this multiple of a copy's fixed time are too short, too.
constexpr double kLeastCopySeconds = 2;
// Replaces shorter times, for example the 0 that a coarse clock measures.
constexpr double kLeastSeconds = 1e-9;
// If a copy overlaps copies of the other direction for at most this fraction of its time, it measures the
// rate one way.
constexpr double kAlone = 0.05;
// If a copy overlaps copies of the other direction for at least this fraction of its time, it measures the
// rate both ways.
constexpr double kAccompanied = 0.5;

constexpr std::size_t index_of(CopyDirection direction) {
  return static_cast<std::size_t>(direction);
}

// --- copies in a trace -------------------------------------------------------------------------------------

struct Span {
  double begin = 0;
  double end = 0;
  std::uint64_t bytes = 0;
};
using Spans = std::array<std::vector<Span>, kDirections.size()>;  // the copies of each direction

struct CopyKind {
  CopyDirection direction = CopyDirection::kDeviceToHost;
  std::uint64_t bytes = 0;
};

std::optional<CopyDirection> direction_of(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kOffload:
    case InstructionKind::kReadResult:
      return CopyDirection::kDeviceToHost;
    case InstructionKind::kPrefetch:
    case InstructionKind::kLoad:
      return CopyDirection::kHostToDevice;
    default:
      return std::nullopt;
  }
}

Spans copies_in(const Tape& tape, const Schedule& schedule, std::span<const TraceEvent> trace) {
  std::map<std::string, CopyKind, std::less<>> kinds;
  for (const Instruction& instruction : schedule.instructions) {
    if (const auto direction = direction_of(instruction.kind)) {
      kinds[trace_name(tape, instruction)] = {.direction = *direction,
                                              .bytes = tape.value(instruction.value).bytes};
    }
  }
  Spans spans;
  for (const TraceEvent& event : trace) {
    const auto kind = event.kind == TraceEvent::Kind::kWork ? kinds.find(event.name) : kinds.end();
    if (kind != kinds.end()) {
      spans[index_of(kind->second.direction)].push_back(
          {.begin = event.begin_seconds, .end = event.end_seconds, .bytes = kind->second.bytes});
    }
  }
  // Each direction has one copy engine. So if a copy begins in the trace while another copy of its direction
  // runs, it really begins when the other copy ends.
  for (std::vector<Span>& of_direction : spans) {
    std::ranges::sort(of_direction, {}, &Span::end);
    for (std::size_t i = 1; i < of_direction.size(); ++i) {
      of_direction[i].begin = std::max(of_direction[i].begin, of_direction[i - 1].end);
    }
  }
  return spans;
}

// For how many seconds `span` overlaps `others`, which are in order and do not overlap each other.
double shared_seconds(const Span& span, const std::vector<Span>& others) {
  double seconds = 0;
  for (auto other = std::ranges::upper_bound(others, span.begin, {}, &Span::end);
       other != others.end() && other->begin < span.end; ++other) {
    seconds += std::min(span.end, other->end) - std::max(span.begin, other->begin);
  }
  return seconds;
}

// --- rates -------------------------------------------------------------------------------------------------

struct Rate {
  double bytes_per_second = 0;
  std::uint64_t bytes = 0;  // the bytes that were copied at this rate
};

// The median of `rates`, weighted by bytes: half of the bytes were copied at this rate or a lower one.
// Returns nothing if `rates` is empty.
std::optional<double> median_rate(std::vector<Rate> rates) {
  std::ranges::sort(rates, {}, &Rate::bytes_per_second);
  std::uint64_t left = 0;
  for (const Rate& rate : rates) {
    left += rate.bytes;
  }
  left = (left + 1) / 2;
  for (const Rate& rate : rates) {
    if (rate.bytes >= left) {
      return rate.bytes_per_second;
    }
    left -= rate.bytes;
  }
  return std::nullopt;
}

using Copies = std::vector<StepObservations::SeenCopy>;

bool tells_a_rate(const StepObservations::SeenCopy& copy, double copy_seconds) {
  return copy.seconds > 0 && copy.seconds >= kLeastCopySeconds * copy_seconds;
}

std::optional<double> rate_alone(const Copies& copies, double copy_seconds) {
  std::vector<Rate> rates;
  for (const auto& copy : copies) {
    if (copy.shared_seconds <= kAlone * copy.seconds && tells_a_rate(copy, copy_seconds)) {
      rates.push_back({.bytes_per_second = static_cast<double>(copy.bytes) / (copy.seconds - copy_seconds),
                       .bytes = copy.bytes});
    }
  }
  return median_rate(std::move(rates));
}

double alone_seconds(const StepObservations::SeenCopy& copy, double copy_seconds) {
  return std::max(0.0, copy.seconds - copy.shared_seconds - copy_seconds);
}

// The rate of a direction while both directions copy. From each copy's bytes, subtracts those that it
// transferred alone, at the rate `alone`. The copy transferred the remaining bytes in its shared time.
std::optional<double> rate_both_ways(const Copies& copies, double copy_seconds, double alone) {
  std::vector<Rate> rates;
  for (const auto& copy : copies) {
    const double left = static_cast<double>(copy.bytes) - alone * alone_seconds(copy, copy_seconds);
    if (copy.shared_seconds >= kAccompanied * copy.seconds && left > 0 && tells_a_rate(copy, copy_seconds)) {
      rates.push_back({.bytes_per_second = std::min(alone, left / copy.shared_seconds), .bytes = copy.bytes});
    }
  }
  return median_rate(std::move(rates));
}

// The rate one way, computed from copies that were not alone. Assumes that the rate both ways is `relation`
// times the rate one way.
std::optional<double> rate_of_mixture(const Copies& copies, double copy_seconds, double relation) {
  std::vector<Rate> rates;
  for (const auto& copy : copies) {
    if (tells_a_rate(copy, copy_seconds)) {
      const double as_if_alone = alone_seconds(copy, copy_seconds) + relation * copy.shared_seconds;
      rates.push_back(
          {.bytes_per_second = static_cast<double>(copy.bytes) / as_if_alone, .bytes = copy.bytes});
    }
  }
  return median_rate(std::move(rates));
}

void learn_link(MeasuredCosts& costs, CopyDirection direction, const Copies& copies) {
  double& one_way = rate_of(costs.link_bytes_per_second, direction);
  double& both_ways = rate_of(costs.link_bytes_per_second_both_ways, direction);
  const double relation = std::min(1.0, both_ways / one_way);
  if (const auto alone = rate_alone(copies, costs.launch_seconds)) {
    one_way = *alone;
    both_ways = rate_both_ways(copies, costs.launch_seconds, one_way).value_or(relation * one_way);
  } else if (const auto mixed = rate_of_mixture(copies, costs.launch_seconds, relation)) {
    one_way = *mixed;
    both_ways = relation * *mixed;
  }
}

// --- ops ---------------------------------------------------------------------------------------------------

// A calculated time. It has 0 launches, which means that it was not observed.
MeasuredTime reckoned(double seconds) {
  return {.seconds = seconds, .spread_seconds = 0, .launches = 0};
}

// The times of each op's launches, recomputations included, by the op's name.
LaunchSeconds seconds_by_op(const Tape& tape, const Schedule& schedule, StreamId compute,
                            std::span<const TraceEvent> trace) {
  std::map<std::string, std::string> op_names;  // names of ops by names in the trace
  std::string first;
  for (const Instruction& instruction : schedule.instructions) {
    if (is_launch(instruction.kind)) {
      const std::string name = trace_name(tape, instruction);
      op_names.emplace(name, tape.op(instruction.launched_op()).name);
      first = first.empty() ? name : first;
    }
  }
  LaunchSeconds by_op;
  for (const auto& [name, seconds] : launch_seconds(trace, compute, first)) {
    if (const auto found = op_names.find(name); found != op_names.end()) {
      std::vector<double>& of_op = by_op[found->second];
      of_op.insert(of_op.end(), seconds.begin(), seconds.end());
    }
  }
  return by_op;
}

}  // namespace

MeasuredCosts expected_costs(const PlannedRun& run) {
  const SimProfile& profile = run.target.profile;
  MeasuredCosts costs = run.measured.value_or(MeasuredCosts{});
  // The profile has this device's share of the link's rates, even if the costs were measured.
  costs.link_bytes_per_second = profile.link_bytes_per_second;
  costs.link_bytes_per_second_both_ways = profile.link_bytes_per_second_both_ways;
  costs.launch_seconds = profile.launch_seconds;
  if (run.measured) {
    return costs;
  }
  costs.setting = run.measured_setting();
  costs.modelled = run.target.simulated;
  for (const Op& op : run.tape->ops()) {
    if (op.collective()) {
      continue;
    }
    for (std::uint32_t index = 0; index < op.algorithms.size(); ++index) {
      costs.ops[op.name][op.algorithms[index].name] = reckoned(profile.seconds(op.cost_with(index)));
    }
  }
  return costs;
}

void StepObservations::add(const Tape& tape, const Schedule& schedule, StreamId compute,
                           std::span<const TraceEvent> trace) {
  const LaunchSeconds launches = seconds_by_op(tape, schedule, compute, trace);
  if (launches.empty()) {
    throw InvalidArgument("there is nothing to learn from: the trace has no launch of a step of '" +
                          tape.model() + "'");
  }
  for (OpId id = 0; id < tape.ops().size(); ++id) {
    const Op& op = tape.op(id);
    if (const auto found = launches.find(op.name); found != launches.end()) {
      SeenOp& seen = ops_[op.name];
      seen.algorithm = op.algorithms[schedule.algorithms[id]].name;
      MeasuredTime time = time_of(found->second);
      time.seconds = std::max(time.seconds, kLeastSeconds);
      seen.times[seen.algorithm] = time;
    }
  }
  const Spans spans = copies_in(tape, schedule, trace);
  for (std::size_t direction = 0; direction < spans.size(); ++direction) {
    std::vector<SeenCopy> copies;
    for (const Span& span : spans[direction]) {
      if (span.bytes >= kLeastCopyBytes) {
        copies.push_back({.bytes = span.bytes,
                          .seconds = span.end - span.begin,
                          .shared_seconds = shared_seconds(span, spans[1 - direction])});
      }
    }
    if (!copies.empty()) {
      copies_[direction] = std::move(copies);
    }
  }
}

MeasuredCosts learned_costs(const MeasuredCosts& expected, const StepObservations& seen) {
  MeasuredCosts costs = expected;
  costs.modelled = false;
  for (const auto& [name, op] : seen.ops_) {
    const auto times = costs.ops.find(name);
    if (times == costs.ops.end()) {
      throw InvalidArgument("op '" + name + "' was observed, but has no expected time");
    }
    const MeasuredTime& ran = op.times.at(op.algorithm);
    const std::optional<MeasuredTime> before = times->second[op.algorithm];
    for (auto& [algorithm, time] : times->second) {
      if (const auto launched = op.times.find(algorithm); launched != op.times.end()) {
        time = launched->second;
      } else if (time && before && before->seconds > 0) {
        time = reckoned(time->seconds * (ran.seconds / before->seconds));
      }
    }
  }
  for (const CopyDirection direction : kDirections) {
    learn_link(costs, direction, seen.copies_[index_of(direction)]);
  }
  return costs;
}

}  // namespace vdnn
