#include "tests/random/network_trial.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "src/base/random.h"
#include "src/plan/peers/peers.h"
#include "tests/exec/executor_rig.h"
#include "tests/plan/lives_plan.h"
#include "tests/plan/oracle.h"
#include "tests/train/lives_run.h"
#include "vdnn/checker.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"
#include "vdnn/schedule_file.h"
#include "vdnn/sha256.h"

namespace vdnn::testing {

namespace {

constexpr std::uint64_t kSteps = kStagedBatches;  // before an evaluation, which one more step follows
constexpr float kLearningRate = 1e-6F;            // nothing may diverge, see random_network.h
constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;
constexpr std::uint64_t kAlignment = 4096;  // of planned addresses
constexpr std::array kPreferences{AlgorithmPreference::kMemory, AlgorithmPreference::kPerformance};

void append(Findings& findings, const std::string& where, const Findings& more) {
  for (const std::string& finding : more) {
    findings.push_back(where);
    findings.back().append(": ").append(finding);
  }
}

void expect_equal(Findings& findings, const std::string& what, std::uint64_t got, std::uint64_t want) {
  if (got != want) {
    findings.push_back(what + ": " + std::to_string(got) + ", not " + std::to_string(want));
  }
}

// --- on paper ----------------------------------------------------------------------------------------------

// Runs a few simulated steps and releases everything. Returns false if the budget does not suffice.
bool fits_simulated(SimDevice& device, const Tape& tape, const Schedule& schedule) {
  try {
    ExecutorRig rig(device, tape);
    Executor executor(rig.parts(tape, schedule));
    StepLoop(rig, executor).run(kSteps);
    return true;
  } catch (const OutOfMemory&) {
    return false;
  }
}

Findings judge_simulated_run(const Tape& tape, const Schedule& schedule, const Prediction& predicted,
                             std::uint64_t seed) {
  Findings findings;
  const auto device = make_sim_device({.profile = finest_profile(),
                                       .budget_bytes = predicted.peak_bytes,
                                       .check_races = true,
                                       .check_versions = true,
                                       .order_seed = seed});
  if (!fits_simulated(*device, tape, schedule)) {
    findings.push_back("does not fit into its predicted peak of " + std::to_string(predicted.peak_bytes));
  }
  for (const SimFinding& finding : device->findings()) {
    findings.push_back("in order " + std::to_string(seed) + ": " + finding.text);
  }
  const DeviceCounters counters = device->counters();
  expect_equal(findings, "simulated peak", counters.peak_committed_bytes, predicted.peak_bytes);
  expect_equal(findings, "simulated host bytes", counters.peak_pinned_bytes, predicted.host_bytes);
  expect_equal(findings, "bytes held in the end", counters.committed_bytes + counters.pinned_bytes, 0);
  return findings;
}

Findings judge_refusal(const Tape& tape, const Schedule& schedule, const Prediction& predicted) {
  const SimProfile profile = finest_profile();
  if (predicted.peak_bytes <= profile.granule_bytes) {
    return {};  // no smaller budget exists
  }
  const auto device =
      make_sim_device({.profile = profile, .budget_bytes = predicted.peak_bytes - profile.granule_bytes});
  Findings findings;
  if (fits_simulated(*device, tape, schedule)) {
    findings.push_back("fits into a granule less than its predicted peak of " +
                       std::to_string(predicted.peak_bytes));
  }
  const DeviceCounters counters = device->counters();
  expect_equal(findings, "bytes held after a refusal", counters.committed_bytes + counters.pinned_bytes, 0);
  return findings;
}

std::string written(const Tape& tape, const Schedule& schedule) {
  std::ostringstream out;
  write_schedule(out, tape, schedule, "{}");
  return out.str();
}

Findings judge_file(const Tape& tape, const Schedule& schedule) {
  const std::string text = written(tape, schedule);
  std::istringstream in(text);
  if (written(tape, read_schedule(in, tape)) != text) {
    return {"the schedule read differs from the one written"};
  }
  return {};
}

// The largest, over all ops, of the least workspace of an op's algorithms.
std::uint64_t least_workspace_limit(const Tape& tape) {
  std::uint64_t limit = 0;
  for (const Op& op : tape.ops()) {
    limit = std::max(limit, std::ranges::min(op.algorithms, {}, &Algorithm::workspace_bytes).workspace_bytes);
  }
  return limit;
}

Findings judge_workspace_limit(const Tape& tape) {
  const std::uint64_t least = least_workspace_limit(tape);
  Findings findings;
  const Plan plan = make_plan(tape, {.workspace_limit = least});
  expect_equal(findings, "workspace", workspace_bytes(tape, plan), least);
  append(findings, "checker", check_schedule(tape, make_schedule(tape, plan)));
  try {
    if (least > 0) {
      make_plan(tape, {.workspace_limit = least - 1});
      findings.push_back("a limit below " + std::to_string(least) + " is accepted");
    }
  } catch (const InvalidArgument&) {  // the expected refusal
  }
  return findings;
}

Findings judge_tape(const Tape& tape, std::uint64_t seed) {
  Findings findings;
  append(findings, "least workspace limit", judge_workspace_limit(tape));
  for (const Policy policy : kPolicies) {
    for (const AlgorithmPreference preference : kPreferences) {
      const Schedule schedule =
          make_schedule(tape, make_plan(tape, {.policy = policy, .preference = preference}));
      append(findings, to_string(policy) + ", " + to_string(preference),
             judge_schedule(tape, schedule, predict(tape, schedule, {.profile = finest_profile()}), seed));
    }
  }
  const Schedule schedule = make_schedule(tape, lives_plan(tape, seed, seed % 2 == 0 ? 0 : kAlignment));
  append(findings, "several lives",
         judge_schedule(tape, schedule, predict(tape, schedule, {.profile = finest_profile()}), seed));
  return findings;
}

Findings judge_on_paper(const RandomNetwork& random) {
  Findings findings;
  const auto classic = make_classic_catalog();
  const auto cpu = make_cpu_ops({});
  for (const auto& [name, catalog] :
       std::map<std::string, const OpCatalog*>{{"cpu", &cpu->catalog()}, {"classic", classic.get()}}) {
    append(findings, name,
           judge_tape(*lower_to_tape(random.network, *catalog, random.training), random.seed));
    append(findings, name + ", evaluation",
           judge_tape(*lower_to_evaluation_tape(random.network, *catalog, random.training.precision),
                      random.seed));
  }
  return findings;
}

// --- for real ----------------------------------------------------------------------------------------------

std::uint64_t system_allocations(const Device& device) {
  const DeviceCounters counters = device.counters();
  return counters.commits + counters.pinned_allocations;
}

void stage(const StagedInputs& staged, const Network& network, std::uint64_t seed) {
  for (std::uint64_t step = 0; step < kStagedBatches; ++step) {
    const std::vector<std::vector<std::byte>> batch = random_batch(network, mix_seed(seed, step));
    const std::span<const AddressRange> inputs = staged.of_step(step);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      std::memcpy(pointer_to<void>(inputs[i].begin), batch[i].data(), batch[i].size());
    }
  }
}

class Digest {
 public:
  template <class Number>
  void take(std::span<const Number> numbers) {
    hash_.update(std::as_bytes(numbers));
  }
  void take(const std::vector<ParameterValues>& parameters) {
    for (const ParameterValues& parameter : parameters) {
      take(std::span<const float>(parameter.values));
    }
  }
  std::string text() { return hash_.hex_digest(); }

 private:
  Sha256 hash_;
};

std::vector<std::string> outputs_of(const Network& network) {
  std::vector<std::string> names;
  for (const std::uint32_t output : network.outputs()) {
    names.push_back(network.feature_map_name(output));
  }
  return names;
}

// Adds a step's results on the host to the digest.
void take_results(Digest& digest, const Session& session, const StepMetrics& metrics,
                  const std::vector<std::string>& results, Findings& findings) {
  for (const LossMetrics& loss : metrics.losses) {
    digest.take(std::span<const float>(std::array{loss.loss, loss.correct, loss.counted}));
  }
  if (!std::isfinite(metrics.loss)) {
    findings.push_back("the loss is " + std::to_string(metrics.loss));
  }
  for (const std::string& name : results) {
    digest.take(std::span<const float>(session.result(name)));
  }
}

// Like a training loop, submits each step before waiting for the previous one.
void take_steps(Session& session, const StagedInputs& staged, std::uint64_t count, Digest& digest,
                Findings& findings) {
  const PlannedRun& run = session.run();
  std::vector<std::string> results = outputs_of(run.own_network());
  std::ranges::copy(run.options.training.results, std::back_inserter(results));
  std::optional<StepTicket> last;
  for (std::uint64_t step = 0; step < count; ++step) {
    const StepTicket next = session.submit(staged.of_step(session.steps()), kLearningRate);
    if (last) {
      take_results(digest, session, session.wait(*last), results, findings);
    }
    last = next;
  }
  take_results(digest, session, session.wait(*last), results, findings);
}

// Evaluates as many samples of the first batch as fit in memory, if any. The trial counts comparisons, and
// the suite requires some.
void evaluate(Session& session, const StagedInputs& staged, Outcome& outcome) {
  std::int64_t samples = 0;
  try {
    samples = session.evaluation_batch();
  } catch (const OutOfMemory&) {  // an evaluation gets no more memory than training needs
    return;
  }
  const Network& network = session.run().own_network();
  std::vector<AddressRange> inputs;
  for (const AddressRange& input : staged.of_step(0)) {
    inputs.push_back({.begin = input.begin,
                      .bytes = input.bytes / static_cast<std::uint64_t>(network.batch()) *
                               static_cast<std::uint64_t>(samples)});
  }
  Digest digest;
  const StepMetrics metrics = session.wait(session.submit_evaluation(inputs));
  take_results(digest, session, metrics, outputs_of(network), outcome.findings);
  outcome.digests["evaluation of " + std::to_string(samples)] = digest.text();
}

void train(Session& session, const SessionOptions& options, Outcome& outcome) {
  const PlannedRun& run = session.run();
  const StagedInputs staged(session.pinned(), *run.tape);
  stage(staged, run.own_network(), options.seed);
  Digest digest;
  take_steps(session, staged, 1, digest, outcome.findings);
  const std::uint64_t allocations = system_allocations(session.device());
  take_steps(session, staged, kSteps - 1, digest, outcome.findings);
  evaluate(session, staged, outcome);
  take_steps(session, staged, 1, digest, outcome.findings);

  const DeviceCounters counters = session.device().counters();
  expect_equal(outcome.findings, "host bytes", counters.peak_pinned_bytes, run.prediction.host_bytes);
  // Protecting memory is extra work that must end before released memory is free, so the pool chooses other
  // blocks.
  if (!options.protect_released) {
    expect_equal(outcome.findings, "peak", counters.peak_committed_bytes, run.prediction.peak_bytes);
    expect_equal(outcome.findings, "system allocations after the first step",
                 system_allocations(session.device()) - allocations, 0);
  }
  const TrainingState state = session.state();
  digest.take(state.parameters);
  digest.take(state.optimizer);
  outcome.digests["training"] = digest.text();
}

bool is_refused(PlannedRun run, std::uint64_t budget) {
  run.target.budget_bytes = budget;
  try {
    const Session session(run);
    return false;
  } catch (const OutOfMemory&) {
    return !run.fits();
  }
}

// The runs of one network, which must all have the same results.
class Runs {
 public:
  Runs(const RandomNetwork& random, const TrialOptions& options)
      : random_(random),
        options_(options),
        training_(telling(random)),
        baseline_(plan({.policy = Policy::kBaseline})) {
    for (OpId id = 0; id < baseline_.tape->ops().size(); ++id) {
      const Op& op = baseline_.tape->op(id);
      recorded_[op.name] = op.algorithms[baseline_.plan.algorithms[id]].name;
    }
  }

  Trial judge() && {
    for (const Policy policy : kPolicies) {
      if (policy == options_.policy.value_or(policy)) {
        judge_policy(policy == Policy::kBaseline ? baseline_ : plan({.policy = policy}));
      }
    }
    if (!options_.policy && !options_.budget_bytes) {
      judge_several_lives();
      judge_peer();
    }
    judge_with_debugging_aids(options_.policy.value_or(kPolicies.at(random_.seed % kPolicies.size())));
    return std::move(trial_);
  }

 private:
  // Weights hide a gradient that is too small to change them. Momentum and Adam's moments show every
  // gradient. Plain SGD has no state, so the gradients themselves become results for the host.
  static TrainingOptions telling(const RandomNetwork& random) {
    TrainingOptions training = random.training;
    const auto* sgd = std::get_if<SgdSpec>(&training.optimizer);
    if (sgd == nullptr || sgd->momentum > 0) {
      return training;
    }
    training.results.clear();
    const auto ops = make_cpu_ops({});
    const auto tape = lower_to_tape(random.network, ops->catalog(), training);
    for (const Value& value : tape->values()) {
      if (value.kind == ValueKind::kParameterGradient) {
        training.results.push_back(value.name);
      }
    }
    return training;
  }

  struct Wanted {
    std::optional<Policy> policy;  // absent: plan_run() chooses
    std::uint64_t budget_bytes = kPlenty;
    bool page_aligned_blocks = false;
  };
  using Recorded = std::map<std::string, std::string>;

  // Auto may choose `optimal`, whose own algorithms would have other results; so the run gets the recorded
  // algorithms.
  PlannedRun plan(const Wanted& wanted) const {
    return plan_run(random_.network, {.device = "cpu",
                                      .memory_bytes = wanted.budget_bytes,
                                      .host_memory_bytes = kPlenty,
                                      .threads = threads(),
                                      .policy = wanted.policy,
                                      .algorithms = kPreferences.at(random_.seed / 2 % kPreferences.size()),
                                      .training = training_,
                                      .recorded_algorithms = wanted.policy ? Recorded{} : recorded_,
                                      .page_aligned_blocks = wanted.page_aligned_blocks});
  }

  int threads() const {
#ifdef __SANITIZE_THREAD__
    return 1;  // the sanitizer does not see how OpenMP's runtime orders threads
#else
    return random_.seed % 31 == 1 ? 2 : 1;  // two threads are slow on shared cores
#endif
  }

  std::vector<std::uint64_t> budgets(const PlannedRun& run) const {
    if (options_.budget_bytes) {
      return {*options_.budget_bytes};
    }
    const std::uint64_t least = run.smallest_budget_bytes();
    const std::uint64_t most = std::max(least, 2 * baseline_.smallest_budget_bytes());
    SplitMix64 random(mix_seed(random_.seed, static_cast<std::uint64_t>(run.plan.options.policy)));
    return {least, least + random.below(most - least + 1)};
  }

  void judge_policy(PlannedRun run) {
    for (const std::uint64_t budget : budgets(run)) {
      run.target.budget_bytes = budget;
      compare_once(run);
      judge_auto(budget);
    }
    const std::uint64_t less = run.smallest_budget_bytes() - run.target.profile.granule_bytes;
    if (!is_refused(run, less)) {
      trial_.findings.push_back(in_words(run) + ": runs in a granule less than the smallest budget");
    }
  }

  void judge_auto(std::uint64_t budget) {
    const PlannedRun settled = plan({.budget_bytes = budget});
    ++trial_.counts["auto settles on " + to_string(settled.plan.options.policy)];
    compare_once(settled);
  }

  // Skips a repeated trial, since auto often chooses a policy that was already tried.
  void compare_once(const PlannedRun& run) {
    if (tried_.insert(in_words(run)).second) {
      compare(run, {}, in_words(run));
    }
  }

  void judge_several_lives() {
    PlannedRun run = with_several_lives(plan({.policy = Policy::kOffloadNone}), random_.seed,
                                        random_.seed % 2 == 0 ? 0 : kAlignment);
    run.target.budget_bytes = run.target.library_bytes + run.prediction.peak_bytes;
    compare(run, {}, "several lives");
  }

  // The methods of other programs also only move bytes, so their results must be the same.
  void judge_peer() {
    const Peer peer = all_peers()[random_.seed % all_peers().size()];
    PlannedRun run = plan({.policy = Policy::kOffloadNone});
    std::optional<PlannedSchedule> planned = schedule_of(peer, run);
    if (!planned) {
      return;
    }
    run.plan = std::move(planned->plan);
    run.schedule = std::move(planned->schedule);
    run.prediction = predict(*run.tape, run.schedule, prediction_options(run));
    run.target.budget_bytes = run.target.library_bytes + run.prediction.peak_bytes;
    ++trial_.counts[to_string(peer)];
    compare(run, {}, to_string(peer));
  }

  std::optional<PlannedSchedule> schedule_of(Peer peer, const PlannedRun& run) const {
    if (peer != Peer::kRotor) {
      return make_peer_schedule(*run.tape, peer, run.plan.options);
    }
    const RotorSchedules rotor(*run.tape, run.plan.options, plan_costs(*run.tape, prediction_options(run)));
    return rotor.within(SplitMix64(mix_seed(random_.seed, 1)).below(RotorSchedules::kLimits + 1));
  }

  void judge_with_debugging_aids(Policy policy) {
    const bool delayed = random_.seed % 16 < kPolicies.size();
    PlannedRun run = plan({.policy = policy, .page_aligned_blocks = !delayed});
    if (delayed) {
      run.target.budget_bytes = run.smallest_budget_bytes();
      compare(run, {.delay_seed = random_.seed}, in_words(run));
    } else {
      compare(run, {.protect_released = true, .check_accesses = true}, in_words(run));
    }
  }

  void compare(const PlannedRun& run, SessionOptions options, const std::string& where) {
    options.seed = random_.seed;
    const Outcome outcome = judge_run(run, options);
    append(trial_.findings, where, outcome.findings);
    for (const auto& [what, digest] : outcome.digests) {
      const auto [first, is_first] = first_.try_emplace(what, Digested{.text = digest, .where = where});
      const std::string kind = what.substr(0, what.find(' '));  // without an evaluation's batch
      ++trial_.counts[kind];
      trial_.counts[kind + " compared"] += is_first ? 0 : 1;
      if (digest != first->second.text) {
        append(trial_.findings, where, {what + " has other results than with " + first->second.where});
      }
    }
  }

  static std::string in_words(const PlannedRun& run) {
    return "--policy=" + to_string(run.plan.options.policy) +
           " --budget=" + std::to_string(run.target.budget_bytes);
  }

  struct Digested {
    std::string text;
    std::string where;  // the run of this record
  };

  const RandomNetwork& random_;
  const TrialOptions& options_;
  TrainingOptions training_;
  Recorded recorded_;  // the algorithms of the static policies; empty until `baseline_` is made
  PlannedRun baseline_;
  std::map<std::string, Digested> first_;  // for each result, the run that had it first
  std::set<std::string> tried_;
  Trial trial_;
};

// --- what to try -------------------------------------------------------------------------------------------

std::uint64_t parse_number(std::string_view argument, std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InvalidArgument(std::string(argument) + ": not a number of 64 bits");
  }
  return number;
}

Policy parse_policy(std::string_view argument, std::string_view name) {
  const auto* const policy =
      std::ranges::find_if(kPolicies, [name](Policy each) { return to_string(each) == name; });
  if (policy == kPolicies.end()) {
    throw InvalidArgument(std::string(argument) + ": no such policy");
  }
  return *policy;
}

}  // namespace

SimProfile finest_profile() {
  SimProfile profile = sim_profile("cpu");
  profile.granule_bytes = 4096;
  return profile;
}

Findings judge_schedule(const Tape& tape, const Schedule& schedule, const Prediction& predicted,
                        std::uint64_t seed) {
  Findings findings;
  append(findings, "checker", check_schedule(tape, schedule));
  const std::string objection = Oracle(tape, schedule).objection(schedule, Exploration::kConflicts, seed);
  if (!objection.empty()) {
    findings.push_back("oracle: " + objection);
  }
  append(findings, "file", judge_file(tape, schedule));
  append(findings, "sim", judge_simulated_run(tape, schedule, predicted, seed));
  append(findings, "sim", judge_refusal(tape, schedule, predicted));
  return findings;
}

Outcome judge_run(const PlannedRun& run, const SessionOptions& options) {
  Outcome outcome;
  try {
    Session session(run, options);
    train(session, options, outcome);
  } catch (const Error& error) {
    outcome.findings.emplace_back(error.what());
  }
  return outcome;
}

Trial judge_network(const RandomNetwork& random, const TrialOptions& options) {
  try {
    Trial trial = Runs(random, options).judge();
    if (!options.policy && !options.budget_bytes) {
      append(trial.findings, "on paper", judge_on_paper(random));
    }
    return trial;
  } catch (const Error& error) {
    return {.findings = {error.what()}, .counts = {}};
  }
}

TrialCommand parse_trial(std::span<const std::string_view> arguments) {
  TrialCommand command;
  for (const std::string_view argument : arguments) {
    const std::size_t equals = std::min(argument.find('='), argument.size());
    const std::string_view flag = argument.substr(0, equals);
    const std::string_view value = argument.substr(std::min(equals + 1, argument.size()));
    if (flag == "--seed") {
      command.seed = parse_number(argument, value);
    } else if (flag == "--budget") {
      command.options.budget_bytes = parse_number(argument, value);
    } else if (flag == "--policy") {
      command.options.policy = parse_policy(argument, value);
    } else {
      throw InvalidArgument(std::string(argument) + ": neither --seed=, --policy= nor --budget=");
    }
  }
  if (!command.seed && !arguments.empty()) {
    throw InvalidArgument("--policy= and --budget= are for one network, which --seed= has to name");
  }
  return command;
}

}  // namespace vdnn::testing
