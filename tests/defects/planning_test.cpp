// Defects of planners (docs/known_defects.md). If a test plants a defect, the figures show it. Our plans do
// not have these defects.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/exec/executor_rig.h"
#include "tests/exec/networks.h"
#include "tests/train/every_layer.h"
#include "vdnn/checker.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/error.h"
#include "vdnn/planned_run.h"
#include "vdnn/predictor.h"
#include "vdnn/size.h"

namespace vdnn::testing::planning_test {
namespace {

constexpr std::uint64_t kSteps = 3;
constexpr std::uint64_t kBoundless = std::uint64_t{1} << 50;

// The memory of a schedule: the bytes that the pool commits, and the most bytes handed out at once.
struct Peak {
  std::uint64_t committed = 0;
  std::uint64_t live = 0;
};

Peak peak_of(Device& device, const Tape& tape, const Schedule& schedule) {
  ExecutorRig rig(device, tape);
  Executor executor(rig.parts(tape, schedule));
  StepLoop(rig, executor).run(kSteps);
  return {.committed = device.counters().peak_committed_bytes, .live = executor.memory().peak_bytes};
}

std::unique_ptr<SimDevice> make_sim(const SimProfile& profile) {
  return make_sim_device({.profile = profile, .budget_bytes = kBoundless, .host_budget_bytes = kBoundless});
}

// --- 8 -----------------------------------------------------------------------------------------------------

// A plan that keeps some of the feature maps which `all` offloads, drawn by `seed`.
Plan mixed_plan(const Plan& all, std::uint64_t seed) {
  SplitMix64 random(seed);
  Plan mixed = all;
  std::erase_if(mixed.transfers, [&](const Transfer&) { return random.below(2) == 0; });
  return mixed;
}

// Prefetches as if the device were empty: everything at the beginning of the backward pass.
Plan forgetting_residents(const Tape& tape, Plan plan) {
  for (Transfer& transfer : plan.transfers) {
    transfer.prefetch_with = std::max(transfer.prefetch_with > tape.forward_ops() ? tape.forward_ops() : 0,
                                      transfer.offload_with + 1);
  }
  return plan;
}

// Megatron-LM#7575: if only some feature maps were offloaded, the order of prefetches ignored the maps still
// on the device, and the peak rose. Our mixed plans need no more memory than a plan that keeps everything,
// and use exactly the predicted memory on `cpu`. The prediction exposes a plan whose order ignores the
// resident maps.
TEST(KnownDefects, PrefetchOrderThatForgetsTheResidentLayers) {
  constexpr std::uint64_t kNetworks = 20;
  constexpr std::uint64_t kPlans = 5;
  std::size_t rises = 0;
  for (std::uint64_t seed = 0; seed < kNetworks; ++seed) {
    const TapePtr tape = training_tape(random_network(seed), {.pooling_reads_x_and_y = seed % 2 == 1});
    const auto simulated = [&](const Plan& plan) {
      const Schedule schedule = make_schedule(*tape, plan);
      require_valid(*tape, schedule);
      return peak_of(*make_sim(sim_profile("cpu")), *tape, schedule);
    };
    const Peak keeping = simulated(make_plan(*tape, {.policy = Policy::kOffloadNone}));
    const Plan all = make_plan(*tape, {.policy = Policy::kOffloadAll});
    for (std::uint64_t choice = 0; choice < kPlans; ++choice) {
      SCOPED_TRACE("network seed " + std::to_string(seed) + ", mixed plan " + std::to_string(choice));
      const Plan mixed = mixed_plan(all, choice);
      const Peak right = simulated(mixed);
      EXPECT_LE(right.live, keeping.live);

      const Plan planted = forgetting_residents(*tape, mixed);
      for (const Plan& plan : {mixed, planted}) {
        const Schedule schedule = make_schedule(*tape, plan);
        const std::uint64_t predicted = predict(*tape, schedule, {.profile = sim_profile("cpu")}).peak_bytes;
        EXPECT_EQ(peak_of(*make_cpu_device({.budget_bytes = predicted}), *tape, schedule).committed,
                  predicted);
      }
      const Peak wrong = simulated(planted);
      EXPECT_GE(wrong.live, right.live);
      rises += wrong.live > right.live ? 1 : 0;
    }
  }
  std::cout << rises << " of " << kNetworks * kPlans << " mixed plans need more memory in the wrong order\n";
  EXPECT_GT(rises, kNetworks);
}

// --- 11 ----------------------------------------------------------------------------------------------------

// One convolution of 8 x 64 x `extent` x `extent` elements.
Network large_network(std::int64_t extent) {
  NetworkBuilder net("large", {8, 3, extent, extent});
  const Tensor x = net.relu(
      "relu", net.convolution("conv", net.input(),
                              {.filters = 64, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}));
  net.softmax_cross_entropy(
      "loss",
      net.fully_connected("fc", net.global_pooling("pool", x, PoolingMode::kAverage), {.outputs = 10}));
  return std::move(net).build();
}

// A feature map of 2^33 elements: the product of its dimensions in 32 bits is 0. Every policy can plan it,
// with the figures of the whole map.
TEST(KnownDefects, ProductsOfDimensionsIn32BitIntegers) {
  const Network network = large_network(4096);
  const std::uint64_t map_bytes = std::uint64_t{8} * 64 * 4096 * 4096 * 4;
  ASSERT_GT(map_bytes / 4, std::uint64_t{1} << 32);
  const TapePtr tape = lower_to_tape(network, *make_classic_catalog(), kMomentum);
  EXPECT_EQ(tape->value(tape->find_value("conv.y")).bytes, map_bytes);
  for (const Policy policy : kPolicies) {
    const Schedule schedule = schedule_of(*tape, policy);
    EXPECT_TRUE(check_schedule(*tape, schedule).empty());
    const Prediction prediction = predict(*tape, schedule, {.profile = sim_profile("h200")});
    // The gradient map of the convolution's output, and the feature map that the rectifier's backward pass
    // reads.
    EXPECT_GE(prediction.peak_bytes, 2 * map_bytes) << to_string(policy);
    EXPECT_LT(prediction.peak_bytes, 8 * map_bytes) << to_string(policy);
    const bool transfers = policy == Policy::kOffloadAll;
    EXPECT_EQ(prediction.host_bytes >= map_bytes, transfers) << to_string(policy);
  }
}

// A product that exceeds 64 bits is an error that reports the overflow, wherever the product is made.
TEST(KnownDefects, ProductsOfDimensionsBeyond64Bits) {
  // 2^65 elements, and 2^63 elements of 4 bytes each.
  for (const std::int64_t extent : {std::int64_t{1} << 28, std::int64_t{1} << 27}) {
    EXPECT_THROW(lower_to_tape(large_network(extent), *make_classic_catalog(), kMomentum), InvalidArgument);
  }
}

// Computes the bytes of every value again in 128 bits.
void expect_right_sizes(const Tape& tape) {
  using Wide = unsigned __int128;
  for (const Value& value : tape.values()) {
    Wide bytes = size_of(value.type.data_type);
    for (const std::int64_t dim : value.type.dims) {
      bytes *= static_cast<Wide>(dim);
    }
    EXPECT_GE(Wide{value.bytes}, bytes) << value.name << " " << to_string(value.type.dims);
    EXPECT_LT(Wide{value.bytes}, 2 * bytes + 4096) << value.name << " " << to_string(value.type.dims);
  }
}

// Every kind of layer, with extents from a few elements to more than 64 bits can represent. Either the plan
// has the right sizes, or planning fails with an error of ours.
TEST(KnownDefects, ProductsOfDimensionsInEveryLayer) {
  std::size_t planned = 0;
  std::size_t refused = 0;
  for (std::int64_t log_extent = 3; log_extent < 62; ++log_extent) {
    for (const std::size_t rank : {2U, 3U}) {
      Dims input{2, 3};
      input.resize(2 + rank, std::int64_t{1} << log_extent);
      SCOPED_TRACE("input " + to_string(input));
      try {
        const TapePtr tape = lower_to_tape(every_layer_network(input), *make_classic_catalog(), kMomentum);
        expect_right_sizes(*tape);
        const Schedule schedule = schedule_of(*tape, Policy::kOffloadAll);
        std::uint64_t largest = 0;
        for (const Value& value : tape->values()) {
          largest = std::max(largest, value.bytes);
        }
        EXPECT_GE(predict(*tape, schedule, {.profile = sim_profile("h200")}).peak_bytes, largest);
        ++planned;
      } catch (const InvalidArgument&) {
        ++refused;
      }
    }
  }
  std::cout << planned << " planned, " << refused << " refused\n";
  EXPECT_GT(planned, 20U);
  EXPECT_GT(refused, 50U);
}

// --- 13 ----------------------------------------------------------------------------------------------------

// Checks that all persistent blocks end below the first transient one.
void expect_persistent_below_transient(ExecutorRig& rig, const Executor& executor, const Schedule& schedule) {
  std::uint64_t persistent_end = 0;
  std::uint64_t transient_begin = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t i = 0; i < rig.parameters.parameters(); ++i) {
    persistent_end = std::max(persistent_end, rig.parameters.parameter(i).range.end());
  }
  for (std::size_t id = 0; id < schedule.buffers.size(); ++id) {
    const Buffer& buffer = schedule.buffers[id];
    const AddressRange range = executor.placements()[id];
    if (buffer.space == Space::kDevice && range.bytes > 0) {
      if (buffer.persistent) {
        persistent_end = std::max(persistent_end, range.end());
      } else {
        transient_begin = std::min(transient_begin, range.begin);
      }
    }
  }
  EXPECT_LE(persistent_end, transient_begin);
}

// The bytes of a plan may fit in the budget although the pool, which fragments, needs more. Our plans model
// memory with the pool itself, so the predicted peak includes fragmentation. Persistent and transient blocks
// need not be allocated from opposite ends of memory. Persistent blocks are allocated before the first step,
// so they lie below all transient ones, without a hole in between. For each network, the test prints the
// ratio of committed bytes to the bytes handed out at once. If all blocks remain allocated for the whole step
// (policy `baseline`), less than a granule is lost.
TEST(KnownDefects, PlanThatFitsOnPaperAndFragmentsInThePool) {
  const auto catalog = make_classic_catalog();
  const SimProfile profile = sim_profile("titan-x");
  std::cout << std::fixed << std::setprecision(3) << "committed / handed out:";
  for (const Policy policy : kPolicies) {
    std::cout << ' ' << to_string(policy);
  }
  std::cout << '\n';
  for (const std::string& model : model_names()) {
    SCOPED_TRACE(model);
    const TapePtr tape = lower_to_tape(zoo_network(model, 16), *catalog, kMomentum);
    std::cout << "  " << model << ':';
    for (const Policy policy : kPolicies) {
      const Schedule schedule = schedule_of(*tape, policy);
      const auto device = make_sim(profile);
      ExecutorRig rig(*device, *tape);
      Executor executor(rig.parts(*tape, schedule));
      StepLoop(rig, executor).run(1);
      const Peak peak{.committed = device->counters().committed_bytes, .live = executor.memory().peak_bytes};
      std::cout << ' ' << static_cast<double>(peak.committed) / static_cast<double>(peak.live);
      EXPECT_GE(peak.committed, peak.live);
      if (policy == Policy::kBaseline) {
        EXPECT_LT(peak.committed - peak.live, profile.granule_bytes);
      }
      expect_persistent_below_transient(rig, executor, schedule);
      EXPECT_EQ(predict(*tape, schedule, {.profile = profile}).peak_bytes, peak.committed);
    }
    std::cout << std::endl;
  }
}

// Plants a budget that suffices only on paper. It covers the bytes handed out at once, in whole granules, but
// the pool commits more. A run in this budget is refused before it starts, with a message that names the
// sufficient budget.
TEST(KnownDefects, BudgetThatFitsOnPaperAloneIsRefusedBeforeARun) {
  const SimProfile profile = sim_profile("titan-x");
  std::size_t planted = 0;
  for (const std::string& model : model_names()) {
    for (const Policy policy : kPolicies) {
      SCOPED_TRACE(model + ", " + to_string(policy));
      RunOptions options{.device = "sim:titan-x",
                         .memory_bytes = kBoundless,
                         .host_memory_bytes = kBoundless,
                         .policy = policy,
                         .training = kMomentum};
      const PlannedRun run = plan_run(zoo_network(model, 16), options);
      const auto device = make_sim(profile);
      const Peak peak = peak_of(*device, *run.tape, run.schedule);
      const std::uint64_t paper = round_up(peak.live, profile.granule_bytes);
      if (paper < peak.committed) {
        ++planted;
        options.memory_bytes = paper + run.target.library_bytes;
        const PlannedRun on_paper = plan_run(zoo_network(model, 16), options);
        EXPECT_THROW(require_fit(on_paper), OutOfMemory);
        options.memory_bytes = on_paper.smallest_budget_bytes();
        EXPECT_NO_THROW(require_fit(plan_run(zoo_network(model, 16), options)));
      }
    }
  }
  std::cout << planted << " budgets that fit on paper alone\n";
  EXPECT_GT(planted, 0U);
}

}  // namespace
}  // namespace vdnn::testing::planning_test
