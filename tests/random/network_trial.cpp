#include "tests/random/network_trial.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <span>

#include "src/base/random.h"
#include "tests/exec/executor_rig.h"
#include "tests/plan/oracle.h"
#include "vdnn/checker.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"
#include "vdnn/session.h"
#include "vdnn/sha256.h"

namespace vdnn::testing {

namespace {

constexpr std::uint64_t kSteps = 3;
static_assert(kSteps <= kStagedBatches, "each step has a batch of its own, filled before the first");
constexpr float kLearningRate = 1e-6F;  // nothing may diverge, see random_network.h
constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;
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

// False where the budget does not suffice. A few steps, and everything given back.
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
    return {};  // there is no less
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

Findings judge_tape(const Tape& tape, std::uint64_t seed) {
  Findings findings;
  for (const Policy policy : kPolicies) {
    for (const AlgorithmPreference preference : kPreferences) {
      const Schedule schedule =
          make_schedule(tape, make_plan(tape, {.policy = policy, .preference = preference}));
      append(findings, to_string(policy) + ", " + to_string(preference),
             judge_schedule(tape, schedule, predict(tape, schedule, {.profile = finest_profile()}), seed));
    }
  }
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
           judge_tape(*lower_to_evaluation_tape(random.network, *catalog), random.seed));
  }
  return findings;
}

// --- for real ----------------------------------------------------------------------------------------------

std::uint64_t system_allocations(const Device& device) {
  const DeviceCounters counters = device.counters();
  return counters.commits + counters.pinned_allocations;
}

void stage(const StagedInputs& staged, const Network& network, std::uint64_t seed) {
  for (std::uint64_t step = 0; step < kSteps; ++step) {
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

// What the host learns of a step.
void take_results(Digest& digest, const Session& session, const StepMetrics& metrics, Findings& findings) {
  for (const LossMetrics& loss : metrics.losses) {
    digest.take(std::span<const float>(std::array{loss.loss, loss.correct, loss.counted}));
  }
  if (!std::isfinite(metrics.loss)) {
    findings.push_back("the loss is " + std::to_string(metrics.loss));
  }
  const Tape& tape = *session.run().tape;
  for (const ValueId id : tape.results().subspan(tape.losses())) {
    digest.take(std::span<const float>(session.result(tape.value(id).name)));
  }
}

// Each step is submitted before the one before it is waited for, as a training loop does.
Outcome train(Session& session, std::uint64_t seed) {
  const PlannedRun& run = session.run();
  const StagedInputs staged(session.pinned(), *run.tape);
  stage(staged, run.network, seed);
  Outcome outcome;
  Digest digest;
  StepTicket last = session.submit(staged.of_step(0), kLearningRate);
  const std::uint64_t allocations = system_allocations(session.device());
  for (std::uint64_t step = 1; step < kSteps; ++step) {
    const StepTicket next = session.submit(staged.of_step(step), kLearningRate);
    take_results(digest, session, session.wait(last), outcome.findings);
    last = next;
  }
  take_results(digest, session, session.wait(last), outcome.findings);

  const DeviceCounters counters = session.device().counters();
  expect_equal(outcome.findings, "peak", counters.peak_committed_bytes, run.prediction.peak_bytes);
  expect_equal(outcome.findings, "host bytes", counters.peak_pinned_bytes, run.prediction.host_bytes);
  expect_equal(outcome.findings, "system allocations after the first step",
               system_allocations(session.device()) - allocations, 0);
  const TrainingState state = session.state();
  digest.take(state.parameters);
  digest.take(state.optimizer);
  outcome.digest = digest.text();
  return outcome;
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

// The runs of one network, which all have to come to the same.
class Runs {
 public:
  Runs(const RandomNetwork& random, const TrialOptions& options)
      : random_(random), options_(options), baseline_(plan(Policy::kBaseline)) {}

  Findings judge() && {
    for (const Policy policy : kPolicies) {
      if (policy == options_.policy.value_or(policy)) {
        judge_policy(policy == Policy::kBaseline ? baseline_ : plan(policy));
      }
    }
    return std::move(findings_);
  }

 private:
  PlannedRun plan(Policy policy) const {
    return plan_run(random_.network, {.device = "cpu",
                                      .memory_bytes = kPlenty,
                                      .host_memory_bytes = kPlenty,
                                      .threads = 1,
                                      .policy = policy,
                                      .algorithms = kPreferences.at(random_.seed % kPreferences.size()),
                                      .training = random_.training});
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
    const std::string policy = to_string(run.plan.options.policy);
    for (const std::uint64_t budget : budgets(run)) {
      run.target.budget_bytes = budget;
      const std::string where = "--policy=" + policy + " --budget=" + std::to_string(budget);
      const Outcome outcome = judge_run(run, random_.seed);
      append(findings_, where, outcome.findings);
      if (first_.empty()) {
        first_ = where;
        digest_ = outcome.digest;
      } else if (outcome.digest != digest_) {
        findings_.push_back(where + ": other results than with " + first_);
      }
    }
    const std::uint64_t less = run.smallest_budget_bytes() - run.target.profile.granule_bytes;
    if (!is_refused(std::move(run), less)) {
      findings_.push_back(policy + " runs in a granule less than its smallest budget");
    }
  }

  const RandomNetwork& random_;
  const TrialOptions& options_;
  PlannedRun baseline_;
  std::string first_;   // run of this network
  std::string digest_;  // of that
  Findings findings_;
};

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
  append(findings, "sim", judge_simulated_run(tape, schedule, predicted, seed));
  append(findings, "sim", judge_refusal(tape, schedule, predicted));
  return findings;
}

Outcome judge_run(const PlannedRun& run, std::uint64_t seed) {
  try {
    Session session(run, {.seed = seed});
    return train(session, seed);
  } catch (const Error& error) {
    return {.digest = {}, .findings = {error.what()}};
  }
}

Findings judge_network(const RandomNetwork& random, const TrialOptions& options) {
  try {
    Findings findings = options.policy || options.budget_bytes ? Findings{} : judge_on_paper(random);
    append(findings, "cpu", Runs(random, options).judge());
    return findings;
  } catch (const Error& error) {
    return {error.what()};
  }
}

}  // namespace vdnn::testing
