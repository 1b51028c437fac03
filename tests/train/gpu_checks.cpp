#include "tests/train/gpu_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/train/random_inputs.h"
#include "tests/train/training_runs.h"
#include "vdnn/error.h"
#include "vdnn/session.h"
#include "vdnn/size.h"

namespace vdnn::testing {

namespace {

constexpr std::uint64_t kGranule = std::uint64_t{2} << 20;
constexpr float kLearningRate = 0.01F;

RunOptions on_cpu(const GpuCase& test) {
  return {.model = test.model,
          .device = "cpu",
          .policy = Policy::kOffloadNone,
          .training = {.optimizer = SgdSpec{.momentum = 0.9F},
                       .precision = {.storage = test.storage, .fp32_layers = {}}}};
}

RunOptions on_gpu(const GpuCase& test, Policy policy) {
  RunOptions options = on_cpu(test);
  options.device = "cuda:0";
  options.gpus = test.gpus;
  options.policy = policy;
  options.tf32 = test.tf32;
  return options;
}

double step(Session& session) {
  const auto inputs = random_inputs(*session.run().tape, 11);
  const std::vector<Session::Bytes> bytes(inputs.begin(), inputs.end());
  return session.step(bytes, kLearningRate).loss;
}

struct OneStep {
  double loss = 0;
  TrainingState before;
  TrainingState after;
};

OneStep one_step(const RunOptions& options) {
  Session session(plan_run(options), {.seed = 5});
  OneStep result;
  result.before = session.state();
  result.loss = step(session);
  result.after = session.state();
  return result;
}

double length(const std::vector<float>& from, const std::vector<float>& to) {
  double sum = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double difference = static_cast<double>(to[i]) - static_cast<double>(from[i]);
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

// The losses of the steps and the hash of the weights.
using Trained = std::pair<std::vector<double>, std::string>;

Trained train(const GpuCase& test, const PlannedRun& run) {
  const auto free_before = static_cast<std::int64_t>(test.gpus->free_bytes(0));
  Session session(run, {.seed = 5});
  Trained trained;
  std::optional<DeviceCounters> first;
  for (int i = 0; i < 4; ++i) {
    trained.first.push_back(step(session));
    EXPECT_TRUE(std::isfinite(trained.first.back()));
    const DeviceCounters now = session.device().counters();
    first = first.value_or(now);
    EXPECT_EQ(now.commits, first->commits);
    EXPECT_EQ(now.pinned_allocations, first->pinned_allocations);
  }
  const DeviceCounters counters = session.device().counters();
  EXPECT_EQ(counters.peak_committed_bytes, run.prediction.peak_bytes);
  EXPECT_LE(counters.peak_pinned_bytes, run.prediction.host_bytes)
      << "the prediction includes batches staged ahead";
  EXPECT_LE(free_before - static_cast<std::int64_t>(test.gpus->free_bytes(0)),
            static_cast<std::int64_t>(run.target.budget_bytes));
  trained.second = session.weights_sha256();
  return trained;
}

}  // namespace

void expect_the_step_of_cpu(const GpuCase& test, double tolerance) {
  const OneStep cpu = one_step(on_cpu(test));
  const OneStep gpu = one_step(on_gpu(test, Policy::kOffloadAll));
  EXPECT_NEAR(gpu.loss, cpu.loss, tolerance / 100 * std::abs(cpu.loss));
  ASSERT_EQ(gpu.after.parameters.size(), cpu.after.parameters.size());
  for (std::size_t i = 0; i < cpu.after.parameters.size(); ++i) {
    const ParameterValues& before = cpu.before.parameters[i];
    EXPECT_EQ(gpu.before.parameters[i].values, before.values) << before.name << " starts differently";
    EXPECT_LE(length(cpu.after.parameters[i].values, gpu.after.parameters[i].values),
              tolerance * length(before.values, cpu.after.parameters[i].values) + 1e-7)
        << before.name;
  }
}

void expect_one_result_and_the_predicted_memory(const GpuCase& test) {
  std::set<Trained> results;
  const auto train_in_every_budget = [&](Policy policy, bool graph) {
    RunOptions options = on_gpu(test, policy);
    options.graph = graph;
    // The query for engines takes long and does not depend on the budget, so all budgets share one plan.
    PlannedRun run = plan_run(options);
    const std::uint64_t smallest = run.smallest_budget_bytes();
    for (const std::uint64_t budget : {smallest, 10 * smallest}) {
      SCOPED_TRACE(to_string(policy) + " in " + format_size(budget) + (graph ? ", as graphs" : ""));
      run.target.budget_bytes = budget;
      results.insert(train(test, run));
    }
  };
  for (const Policy policy : kPolicies) {
    train_in_every_budget(policy, false);
  }
  train_in_every_budget(Policy::kOffloadAll, true);
  EXPECT_EQ(results.size(), 1U);
}

void expect_out_of_memory_to_be_told(const GpuCase& test) {
  RunOptions options = on_gpu(test, Policy::kOffloadAll);
  const std::uint64_t smallest = plan_run(options).smallest_budget_bytes();
  options.memory_bytes = smallest - kGranule;
  EXPECT_THAT([&] { Session(plan_run(options)); },
              ::testing::ThrowsMessage<OutOfMemory>(::testing::HasSubstr(std::to_string(smallest))));

  // The plan is made while memory is free; then another program uses that memory.
  options.memory_bytes = smallest;
  const PlannedRun run = plan_run(options);
  {
    const std::unique_ptr<Device> other = test.gpus->make_device({.reserve_bytes = 0});
    // The other program leaves some bytes of the card free, but too few for the run.
    const std::uint64_t most = (other->properties().budget_bytes - smallest / 2) / kGranule * kGranule;
    const AddressRange taken = other->reserve(most);
    other->commit(taken);
    EXPECT_THROW(Session{run}, OutOfMemory);
    other->decommit(taken);
    other->unreserve(taken);
  }
  Session session(run);
  EXPECT_TRUE(std::isfinite(step(session)));
}

}  // namespace vdnn::testing
