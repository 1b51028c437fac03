#include "src/report/vdnn2016.h"

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "vdnn/planned_run.h"

namespace vdnn {

namespace {

// --- the paper's figures -----------------------------------------------------------------------------------

struct PaperPolicy {
  const char* name;
  Policy policy;
  AlgorithmPreference preference;
  PaperFigures figures;
};

struct PaperTraffic {
  Policy policy;
  std::optional<double> mib;
};

struct PaperNetwork {
  const char* model;
  std::int64_t batch;
  std::vector<PaperTraffic> traffic;
  std::vector<PaperPolicy> policies;
};

constexpr auto kMemory = AlgorithmPreference::kMemory;
constexpr auto kPerformance = AlgorithmPreference::kPerformance;
const PaperFigures kUnknown;

// Figures 11, 12 and 14 of the paper, read off. `none(p)` shows the savings of layer-wise allocation alone;
// the paper has no such bar. The paper's VGG-16 is VGG-19 here.
std::vector<PaperNetwork> paper_networks() {
  using enum Policy;
  return {
      {"alexnet",
       128,
       {{kOffloadAll, 350}, {kOffloadConv, 155}},
       {{"baseline(m)", kBaseline, kMemory, {.peak_mib = 780}},
        {"baseline(p)", kBaseline, kPerformance, {.peak_mib = 1131, .relative_speed = 1}},
        {"none(p)", kOffloadNone, kPerformance, kUnknown},
        {"all(m)", kOffloadAll, kMemory, {.peak_mib = 275, .average_mib = 120, .relative_speed = 0.363}},
        {"all(p)", kOffloadAll, kPerformance, {.peak_mib = 548, .average_mib = 197, .relative_speed = 0.776}},
        {"conv(p)",
         kOffloadConv,
         kPerformance,
         {.peak_mib = 586, .average_mib = 313, .relative_speed = 0.956}},
        {"dyn", kDynamic, kPerformance, {.peak_mib = 664, .average_mib = 391, .relative_speed = 1}}}},
      {"vgg19",
       64,
       {{kOffloadAll, 4018}, {kOffloadConv, 2535}},
       {{"baseline(m)", kBaseline, kMemory, {.peak_mib = 6149}},
        {"baseline(p)", kBaseline, kPerformance, {.peak_mib = 8601, .relative_speed = 1}},
        {"none(p)", kOffloadNone, kPerformance, kUnknown},
        {"all(m)", kOffloadAll, kMemory, {.peak_mib = 2454, .average_mib = 586, .relative_speed = 0.440}},
        {"all(p)",
         kOffloadAll,
         kPerformance,
         {.peak_mib = 2920, .average_mib = 976, .relative_speed = 0.843}},
        {"conv(p)", kOffloadConv, kPerformance, {.peak_mib = 4282, .average_mib = 2064, .relative_speed = 1}},
        {"dyn", kDynamic, kPerformance, {.peak_mib = 6345, .average_mib = 3699, .relative_speed = 1}}}}};
}

struct PaperLimit {
  const char* model;
  std::int64_t batch;
  std::optional<double> relative_speed;
};

// The worst case of the paper's text, and the deep networks, for which it gives no comparable speeds.
std::vector<PaperLimit> paper_limits() {
  return {{"vgg19", 128, std::nullopt}, {"vgg19", 256, 0.82},         {"vgg116", 32, std::nullopt},
          {"vgg216", 32, std::nullopt}, {"vgg316", 32, std::nullopt}, {"vgg416", 32, std::nullopt}};
}

// --- our figures -------------------------------------------------------------------------------------------

RunOptions options_of(const char* model, std::int64_t batch, Policy policy, AlgorithmPreference preference) {
  RunOptions options{.model = {.model = model, .batch = batch}, .device = "sim:titan-x"};
  // All of the machine's memory: the paper page-locks as much of the 64 GB as it needs.
  options.host_memory_bytes = sim_profile("titan-x").host_memory_bytes;
  options.policy = policy;
  options.algorithms = preference;
  options.training.optimizer = SgdSpec{.momentum = 0.9F};  // the command's default
  return options;
}

PlannedRun planned(const char* model, std::int64_t batch, Policy policy, AlgorithmPreference preference) {
  return plan_run(options_of(model, batch, policy, preference));
}

bool is_classifier_weight(const Tape& tape, ValueId id) {
  if (tape.value(id).kind != ValueKind::kParameter || tape.readers(id).empty()) {
    return false;
  }
  const TapeLayer* const layer = tape.layer_of(tape.op(tape.readers(id)[0]));
  return layer != nullptr && layer->classifier;
}

bool paper_counts(const Tape& tape, ValueId id, ClassifierWeights classifier) {
  const ValueKind kind = tape.value(id).kind;
  return kind != ValueKind::kOptimizerState && kind != ValueKind::kParameterGradient &&
         kind != ValueKind::kGradientSum &&
         (classifier == ClassifierWeights::kCounted || !is_classifier_weight(tape, id));
}

std::uint64_t classifier_bytes(const Tape& tape) {
  std::uint64_t bytes = 0;
  for (ValueId id = 0; id < tape.values().size(); ++id) {
    bytes += is_classifier_weight(tape, id) ? tape.value(id).bytes : 0;
  }
  return bytes;
}

// The counted bytes of each buffer; 0 for buffers on the host.
std::vector<std::uint64_t> counted_bytes(const Tape& tape, const Schedule& schedule,
                                         ClassifierWeights classifier) {
  std::vector<std::uint64_t> bytes;
  for (const Buffer& buffer : schedule.buffers) {
    bytes.push_back(buffer.space == Space::kDevice ? buffer.bytes : 0);
  }
  for (const Instruction& instruction : schedule.instructions) {
    for (const BufferUse& use : uses(tape, instruction)) {
      if (use.value != kNone && !paper_counts(tape, use.value, classifier)) {
        bytes[use.buffer] = 0;
      }
    }
  }
  return bytes;
}

}  // namespace

PaperMemoryUse paper_memory(const Tape& tape, const Schedule& schedule, const SimProfile& profile,
                            ClassifierWeights classifier) {
  const std::vector<std::uint64_t> bytes = counted_bytes(tape, schedule, classifier);
  std::uint64_t live = 0;
  for (BufferId id = 0; id < schedule.buffers.size(); ++id) {
    live += schedule.buffers[id].persistent ? bytes[id] : 0;
  }
  std::uint64_t peak = live;
  double seconds = 0;
  double byte_seconds = 0;
  double ops = 0;
  double byte_ops = 0;
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.kind == InstructionKind::kAllocate) {
      live += bytes[instruction.buffer];
      peak = std::max(peak, live);
    } else if (instruction.kind == InstructionKind::kRelease) {
      live -= bytes[instruction.buffer];
    } else if (instruction.kind == InstructionKind::kLaunch) {
      const double taken = profile.seconds(
          tape.op(instruction.launched_op()).cost_with(schedule.algorithms[instruction.launched_op()]));
      seconds += taken;
      byte_seconds += taken * static_cast<double>(live);
      ops += 1;
      byte_ops += static_cast<double>(live);
    }
  }
  return {.peak_bytes = peak,
          .average_over_time_bytes = byte_seconds / seconds,
          .average_over_ops_bytes = byte_ops / ops};
}

namespace {

// A network-wide allocation exists throughout the step.
PaperMemoryUse paper_memory(const PlannedRun& run, ClassifierWeights classifier) {
  if (!run.plan.network_wide) {
    return paper_memory(*run.tape, run.schedule, run.target.profile, classifier);
  }
  const std::uint64_t left_out = classifier == ClassifierWeights::kLeftOut ? classifier_bytes(*run.tape) : 0;
  const std::uint64_t bytes = paper_baseline_bytes(*run.tape, run.plan) - left_out;
  const auto average = static_cast<double>(bytes);
  return {.peak_bytes = bytes, .average_over_time_bytes = average, .average_over_ops_bytes = average};
}

ReproducedNetwork reproduce(const PaperNetwork& paper) {
  ReproducedNetwork network{.model = paper.model, .batch = paper.batch, .traffic = {}, .policies = {}};
  for (const PaperTraffic& traffic : paper.traffic) {
    const PlannedRun run = planned(paper.model, paper.batch, traffic.policy, kMemory);
    network.traffic.push_back({.policy = to_string(traffic.policy),
                               .bytes = offload_bytes(*run.tape, run.schedule),
                               .paper_mib = traffic.mib});
  }
  const double baseline_seconds =
      planned(paper.model, paper.batch, Policy::kBaseline, kPerformance).prediction.step_seconds;
  for (const PaperPolicy& policy : paper.policies) {
    const PlannedRun run = planned(paper.model, paper.batch, policy.policy, policy.preference);
    network.policies.push_back(
        {.name = policy.name,
         .ours = {.peak_bytes = run.prediction.peak_bytes, .average_bytes = run.prediction.average_bytes},
         .with_classifier = paper_memory(run, ClassifierWeights::kCounted),
         .without_classifier = paper_memory(run, ClassifierWeights::kLeftOut),
         .offload_bytes = offload_bytes(*run.tape, run.schedule),
         .relative_speed = baseline_seconds / run.prediction.step_seconds,
         .paper = policy.figures});
  }
  return network;
}

ReproducedLimit reproduce(const PaperLimit& paper) {
  const PlannedRun baseline = planned(paper.model, paper.batch, Policy::kBaseline, kPerformance);
  RunOptions options = options_of(paper.model, paper.batch, Policy::kDynamic, kPerformance);
  PlannedRun dynamic = plan_run(options);
  const bool fits = dynamic.fits();
  if (!fits) {
    options.memory_bytes = dynamic.smallest_budget_bytes();
    dynamic = plan_run(options);
  }
  const Prediction oracle =
      predict_policy(dynamic, {.policy = Policy::kOffloadNone, .preference = kPerformance});
  return {.model = paper.model,
          .batch = paper.batch,
          .paper_baseline_bytes = paper_baseline_bytes(*baseline.tape, baseline.plan),
          .fits = fits,
          .budget_bytes = dynamic.target.budget_bytes,
          .peak_bytes = dynamic.prediction.peak_bytes,
          .host_bytes = dynamic.prediction.host_bytes,
          .offload_bytes = offload_bytes(*dynamic.tape, dynamic.schedule),
          .relative_speed = oracle.step_seconds / dynamic.prediction.step_seconds,
          .paper_relative_speed = paper.relative_speed};
}

}  // namespace

Vdnn2016 reproduce_vdnn2016() {
  Vdnn2016 result;
  for (const PaperNetwork& network : paper_networks()) {
    result.networks.push_back(reproduce(network));
  }
  for (const PaperLimit& limit : paper_limits()) {
    result.limits.push_back(reproduce(limit));
  }
  return result;
}

namespace {

// --- tables ------------------------------------------------------------------------------------------------

double mib(double bytes) {
  return bytes / (1 << 20);
}
double mib(std::uint64_t bytes) {
  return mib(static_cast<double>(bytes));
}

std::string optional_number(const std::optional<double>& value, int digits) {
  std::ostringstream text;
  if (value) {
    text << std::fixed << std::setprecision(digits) << *value;
  } else {
    text << "-";
  }
  return text.str();
}

// "peak/average", in MiB.
std::string pair(const std::optional<double>& peak, const std::optional<double>& average) {
  return optional_number(peak, 0) + "/" + optional_number(average, 0);
}

void print_row(std::ostream& out, const std::vector<std::string>& cells) {
  constexpr int kFirst = 12;
  constexpr int kOthers = 12;
  out << std::left << std::setw(kFirst) << cells.front() << std::right;
  for (std::size_t i = 1; i < cells.size(); ++i) {
    out << std::setw(kOthers) << cells[i];
  }
  out << "\n";
}

void print(std::ostream& out, const ReproducedPolicy& policy) {
  const PaperMemoryUse& with = policy.with_classifier;
  const PaperMemoryUse& without = policy.without_classifier;
  print_row(out,
            {policy.name, pair(mib(policy.ours.peak_bytes), mib(policy.ours.average_bytes)),
             pair(mib(with.peak_bytes), mib(with.average_over_time_bytes)),
             pair(mib(without.peak_bytes), mib(without.average_over_time_bytes)),
             optional_number(mib(without.average_over_ops_bytes), 0),
             pair(policy.paper.peak_mib, policy.paper.average_mib), optional_number(policy.relative_speed, 3),
             optional_number(policy.paper.relative_speed, 3)});
}

void print(std::ostream& out, const ReproducedNetwork& network) {
  out << network.model << "(" << network.batch << ")\n";
  print_row(out, {"offloaded", "MiB", "paper"});
  for (const ReproducedTraffic& traffic : network.traffic) {
    print_row(
        out, {traffic.policy, optional_number(mib(traffic.bytes), 1), optional_number(traffic.paper_mib, 0)});
  }
  print_row(out, {"peak/average", "ours", "as paper", "no classif.", "over ops", "paper", "speed", "paper"});
  for (const ReproducedPolicy& policy : network.policies) {
    print(out, policy);
  }
  out << "\n";
}

void print(std::ostream& out, const ReproducedLimit& limit) {
  print_row(out, {limit.model + "(" + std::to_string(limit.batch) + ")",
                  optional_number(mib(limit.paper_baseline_bytes), 0), limit.fits ? "yes" : "no",
                  optional_number(mib(limit.budget_bytes), 0), optional_number(mib(limit.peak_bytes), 0),
                  optional_number(mib(limit.host_bytes), 0), optional_number(mib(limit.offload_bytes), 0),
                  optional_number(limit.relative_speed, 3), optional_number(limit.paper_relative_speed, 2)});
}

}  // namespace

void print(std::ostream& out, const Vdnn2016& reproduction) {
  out << "The vDNN paper's tables (Rhu et al. 2016), on sim:titan-x with the classic catalog: simulated. "
         "MiB.\n"
         "  ours         committed, everything counted; average of allocated bytes over instructions\n"
         "  as paper     without gradients of weights, optimizer state and gaps; average over time\n"
         "  no classif.  also without weights of the classifier; average over time\n"
         "  over ops     as no classif., but each op counts once in the average\n"
         "  speed        1 is baseline(p)\n\n";
  for (const ReproducedNetwork& network : reproduction.networks) {
    print(out, network);
  }
  out << "dyn in 12 GiB or, if it does not fit, in its smallest budget; speed: 1 is the oracle\n";
  print_row(out, {"", "baseline(p)", "fits", "budget", "peak", "page-locked", "offloaded", "speed", "paper"});
  for (const ReproducedLimit& limit : reproduction.limits) {
    print(out, limit);
  }
}

namespace {

// --- JSON --------------------------------------------------------------------------------------------------

using Json = nlohmann::ordered_json;

Json value_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const MemoryUse& use) {
  return {{"peak_bytes", use.peak_bytes}, {"average_bytes", use.average_bytes}};
}

Json json_of(const PaperMemoryUse& use) {
  return {{"peak_bytes", use.peak_bytes},
          {"average_over_time_bytes", use.average_over_time_bytes},
          {"average_over_ops_bytes", use.average_over_ops_bytes}};
}

Json json_of(const ReproducedPolicy& policy) {
  return {{"name", policy.name},
          {"ours", json_of(policy.ours)},
          {"as_paper_with_classifier", json_of(policy.with_classifier)},
          {"as_paper_without_classifier", json_of(policy.without_classifier)},
          {"offload_bytes_per_step", policy.offload_bytes},
          {"relative_speed", policy.relative_speed},
          {"paper",
           {{"peak_mib", value_or_null(policy.paper.peak_mib)},
            {"average_mib", value_or_null(policy.paper.average_mib)},
            {"relative_speed", value_or_null(policy.paper.relative_speed)}}}};
}

Json json_of(const ReproducedNetwork& network) {
  Json traffic = Json::array();
  for (const ReproducedTraffic& one : network.traffic) {
    traffic.push_back({{"policy", one.policy},
                       {"offload_bytes_per_step", one.bytes},
                       {"paper_mib", value_or_null(one.paper_mib)}});
  }
  Json policies = Json::array();
  for (const ReproducedPolicy& policy : network.policies) {
    policies.push_back(json_of(policy));
  }
  return {{"type", "network"},
          {"model", network.model},
          {"batch", network.batch},
          {"traffic", std::move(traffic)},
          {"policies", std::move(policies)}};
}

Json json_of(const ReproducedLimit& limit) {
  return {{"type", "limit"},
          {"model", limit.model},
          {"batch", limit.batch},
          {"paper_baseline_bytes", limit.paper_baseline_bytes},
          {"fits", limit.fits},
          {"budget_bytes", limit.budget_bytes},
          {"peak_bytes", limit.peak_bytes},
          {"host_bytes", limit.host_bytes},
          {"offload_bytes_per_step", limit.offload_bytes},
          {"relative_speed", limit.relative_speed},
          {"paper_relative_speed", value_or_null(limit.paper_relative_speed)}};
}

}  // namespace

std::vector<Json> to_json(const Vdnn2016& reproduction) {
  std::vector<Json> lines;
  for (const ReproducedNetwork& network : reproduction.networks) {
    lines.push_back(json_of(network));
  }
  for (const ReproducedLimit& limit : reproduction.limits) {
    lines.push_back(json_of(limit));
  }
  return lines;
}

}  // namespace vdnn
