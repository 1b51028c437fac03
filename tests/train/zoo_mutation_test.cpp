// The checker over the whole zoo, on both catalogs, under every policy and preference of algorithms. The test
// breaks schedules in every way of mutation.h. The checker must find each break that, according to the
// oracle, changes the meaning. The test counts how many of these breaks the checks of `sim` find, too. Breaks
// that the oracle calls harmless run on `sim` in several random orders, where the checks find nothing. For
// small networks they also run on `cpu`, with the losses and final weights of the unbroken schedule. Each
// network is broken in each way under at least one policy.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/exec/permitted_orders.h"
#include "tests/extent.h"
#include "tests/plan/mutation_campaign.h"
#include "tests/train/random_inputs.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"
#include "vdnn/planned_run.h"
#include "vdnn/session.h"
#include "vdnn/zoo.h"

namespace vdnn::testing {
namespace {

// CampaignOptions::work. The number of breaks of each kind is this divided by the number of instructions.
const std::uint64_t kWork = extent({.usual = 120, .in_long_run = 8000});

std::string simulate(const Tape& tape, const Schedule& schedule, std::uint64_t seed, int orders) {
  for (int order = 0; order < orders; ++order) {
    const auto device = make_random_order_device(seed + static_cast<std::uint64_t>(order), Check::kBoth);
    try {
      if (const std::uint64_t bytes = run_steps(*device, tape, schedule); bytes != 0) {
        return std::to_string(bytes) + " bytes are left behind";
      }
    } catch (const Error& error) {
      return error.what();
    }
    if (!device->findings().empty()) {
      return device->findings().front().text;
    }
  }
  return {};
}

// Small enough to train hundreds of times.
const std::vector<std::string> kTrained{"lenet", "fashion-vgg", "resnet20"};

// A few steps on `cpu`, each with different samples.
class CpuTraining {
 public:
  explicit CpuTraining(PlannedRun run) : run_(std::move(run)) {}

  // Returns an error unless `schedule` has the losses and final weights of the unbroken schedule with the
  // same algorithms.
  std::string objection(const Schedule& schedule) {
    std::string& expected = expected_[schedule.algorithms];
    if (expected.empty()) {
      Schedule unbroken = run_.schedule;
      unbroken.algorithms = schedule.algorithms;
      expected = results_of(unbroken);
    }
    const std::string results = results_of(schedule);
    return results == expected ? "" : "other results: " + results + " instead of " + expected;
  }

 private:
  // The results as text, exact to the bit.
  std::string results_of(const Schedule& schedule) const {
    std::ostringstream results;
    results << std::hexfloat;
    PlannedRun run = run_;
    run.schedule = schedule;
    Session session(std::move(run), {.seed = 1});
    for (std::uint64_t step = 0; step < 3; ++step) {
      const std::vector<std::vector<std::byte>> batch = random_inputs(*run_.tape, step);
      const StepMetrics metrics = session.step({batch[0], batch[1]}, 0.01F);
      results << "loss " << metrics.loss;
      for (const LossMetrics& loss : metrics.losses) {
        results << " (" << loss.loss << ", " << loss.correct << " of " << loss.counted << ")";
      }
      results << ", ";
    }
    results << "weights " << session.weights_sha256();
    return results.str();
  }

  const PlannedRun run_;
  std::map<std::vector<std::uint32_t>, std::string> expected_;  // results for each choice of algorithms
};

// A schedule to break, and its real training, if any.
struct Candidate {
  Subject subject;
  std::shared_ptr<CpuTraining> training;
};

bool is_same(const Schedule& a, const Schedule& b) {
  return a.algorithms == b.algorithms && a.instructions == b.instructions;
}

enum class Decisions : std::uint8_t { kOfThePolicy, kOfThePolicyPlaced, kSeveralLives };

Schedule decided(const Tape& tape, Plan plan, Decisions decisions) {
  if (decisions == Decisions::kSeveralLives) {
    plan = lives_plan(tape, 0);
  }
  // This alignment also suits the debugging aids.
  plan.placement_alignment = decisions == Decisions::kOfThePolicyPlaced ? 4096 : 0;
  return make_schedule(tape, plan);
}

// Plans and lowers like `vdnn train`.
Candidate trained_candidate(const std::string& model, Policy policy, AlgorithmPreference preference,
                            Decisions decisions) {
  PlannedRun run = plan_run({.model = {.model = model, .batch = 2},
                             .device = "cpu",
                             .memory_bytes = std::uint64_t{1} << 30U,
                             .host_memory_bytes = std::uint64_t{1} << 30U,
                             .threads = 1,
                             .policy = policy,
                             .algorithms = preference,
                             .training = kMomentum});
  run.schedule = decided(*run.tape, run.plan, decisions);
  Subject subject{.name = {}, .tape = run.tape, .schedule = run.schedule};
  return {.subject = std::move(subject), .training = std::make_shared<CpuTraining>(std::move(run))};
}

// In the arena, every buffer shares bytes with most other buffers, and the oracle examines all of these. So
// longer networks take too long.
constexpr std::size_t kMostPlacedOps = 500;

// Every policy, with both preferences if their schedules differ, one schedule with several lives, and one
// with addresses.
std::vector<Candidate> candidates_of(const std::string& model, const OpCatalog& catalog, bool train) {
  const TapePtr tape = lower_to_tape(make_model({.model = model, .batch = 2}), catalog, kMomentum);
  std::vector<Candidate> result;
  for (const Policy policy : all_policies()) {
    for (const AlgorithmPreference preference : all_preferences()) {
      Candidate candidate =
          train
              ? trained_candidate(model, policy, preference, Decisions::kOfThePolicy)
              : Candidate{
                    .subject = {.name = {}, .tape = tape, .schedule = schedule_of(*tape, policy, preference)},
                    .training = nullptr};
      candidate.subject.name = model + ", " + to_string(policy) + ", " + to_string(preference);
      if (result.empty() || !is_same(result.back().subject.schedule, candidate.subject.schedule)) {
        result.push_back(std::move(candidate));
      }
    }
  }
  if (tape->ops().size() > kMostPlacedOps) {
    return result;
  }
  for (const auto& [decisions, name] : {std::pair(Decisions::kSeveralLives, "several lives"),
                                        {Decisions::kOfThePolicyPlaced, "all, placed"}}) {
    Candidate candidate =
        train ? trained_candidate(model, Policy::kOffloadAll, AlgorithmPreference::kPerformance, decisions)
              : Candidate{
                    .subject = {.name = {},
                                .tape = tape,
                                .schedule = decided(*tape, plan_of(*tape, Policy::kOffloadAll), decisions)},
                    .training = nullptr};
    candidate.subject.name = model + ", " + name;
    result.push_back(std::move(candidate));
  }
  return result;
}

class ZooMutation : public ::testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() { print(std::cout, "all models", total()); }

  static void run(const std::string& title, const std::vector<Candidate>& candidates) {
    Tallies tallies{};
    for (const Candidate& candidate : candidates) {
      add(tallies, campaign(candidate, {.work = kWork}));
    }
    break_in_the_missing_ways(candidates, tallies);
    print(std::cout, title, tallies);
    add(total(), tallies);
    // Without breaks, this test would pass without testing anything.
    const Tally counts = sum(tallies);
    EXPECT_GT(counts.found_running, 0);
    EXPECT_GT(counts.harmless_run, 0);
    EXPECT_EQ(counts.computed > 0, candidates.front().training != nullptr);
    for (std::size_t kind = 0; kind < kMutationKinds; ++kind) {
      // Regression: the longest networks had breaks of only a third of the kinds.
      const bool wanted = static_cast<MutationKind>(kind) != MutationKind::kMovePlace ||
                          candidates.back().subject.schedule.arena_bytes > 0;
      EXPECT_TRUE(!wanted || tallies.at(kind).breaks() > 0)
          << title << ": " << to_string(static_cast<MutationKind>(kind));
    }
  }

 private:
  static Tallies& total() {
    static Tallies all{};
    return all;
  }

  // Makes one break of each kind that has none yet. Kinds begin with different candidates, so that a
  // network's breaks are spread over policies.
  static void break_in_the_missing_ways(const std::vector<Candidate>& candidates, Tallies& tallies) {
    for (std::size_t kind = 0; kind < kMutationKinds; ++kind) {
      for (std::size_t i = 0; i < candidates.size() && tallies.at(kind).breaks() == 0; ++i) {
        add(tallies, campaign(candidates[(kind + i) % candidates.size()],
                              {.work = 0, .least = 1, .only_kind = static_cast<MutationKind>(kind)}));
      }
    }
  }

  static Tallies campaign(const Candidate& candidate, const CampaignOptions& options) {
    const Subject& subject = candidate.subject;
    Trials trials{.simulate = [&](const Schedule& schedule, std::uint64_t seed, int orders) {
      return simulate(*subject.tape, schedule, seed, orders);
    }};
    if (candidate.training) {
      trials.compute = [&](const Schedule& schedule) { return candidate.training->objection(schedule); };
    }
    return run_campaign(subject, options, trials);
  }
};

TEST_P(ZooMutation, ClassicCatalog) {
  run(GetParam() + ", classic", candidates_of(GetParam(), *make_classic_catalog(), false));
}

TEST_P(ZooMutation, CpuCatalog) {
  const bool train = std::ranges::find(kTrained, GetParam()) != kTrained.end();
  run(GetParam() + ", cpu", candidates_of(GetParam(), make_cpu_ops({})->catalog(), train));
}

INSTANTIATE_TEST_SUITE_P(Models, ZooMutation, ::testing::ValuesIn(model_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace vdnn::testing
