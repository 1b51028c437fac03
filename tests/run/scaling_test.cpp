// Predictions for simulated devices in data-parallel training.

#include "src/run/scaling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "vdnn/error.h"

namespace vdnn::scaling_test {
namespace {

RunOptions devices(const std::string& model, std::uint32_t count, Policy policy = Policy::kOffloadNone) {
  RunOptions run{.model = {.model = model, .batch = 64}, .device = "sim:v100-16", .policy = policy};
  run.training.ranks = count;
  return run;
}

// The required efficiencies; docs/data_parallel.md has the table.
TEST(Scaling, FourDevicesThatOverlapAndDoNotOffloadKeepNineTenthsOfTheirSpeed) {
  for (const std::string model : {"resnet50", "vgg16"}) {
    const Scaling scaling = predict_scaling(plan_run(devices(model, 4)));
    EXPECT_GE(scaling.efficiency, 0.90) << model;
    EXPECT_LE(scaling.efficiency, 1) << model;
    EXPECT_GT(scaling.reduce_seconds, 0) << model;
  }
}

TEST(Scaling, OneBucketHidesNothing) {
  RunOptions run = devices("vgg16", 4);
  const Scaling overlapping = predict_scaling(plan_run(run));
  run.training.bucket_bytes = std::uint64_t{1} << 40U;
  const Scaling after = predict_scaling(plan_run(run));
  EXPECT_GT(after.exposed_reduce_seconds, 0.95 * after.reduce_seconds);
  EXPECT_LT(overlapping.exposed_reduce_seconds, 0.5 * after.exposed_reduce_seconds);
  EXPECT_GT(overlapping.efficiency, after.efficiency);
}

TEST(Scaling, OfOneDeviceIsItsStep) {
  const PlannedRun run = plan_run(devices("resnet50", 1));
  const Scaling scaling = predict_scaling(run);
  EXPECT_EQ(scaling.update_seconds, run.prediction.step_seconds);
  EXPECT_DOUBLE_EQ(scaling.images_per_second, 64 / run.prediction.step_seconds);
  EXPECT_EQ(scaling.efficiency, 1);
  EXPECT_EQ(scaling.reduce_seconds, 0);
  EXPECT_EQ(scaling.exposed_reduce_seconds, 0);
}

TEST(Scaling, AFasterNetworkHelpsMachinesAndNoSingleOne) {
  RunOptions run = devices("vgg16", 8);
  const double one = predict_scaling(plan_run(run)).update_seconds;
  run.network_bytes_per_second *= 4;
  EXPECT_EQ(predict_scaling(plan_run(run)).update_seconds, one);
  run.machines = 2;
  const double fast = predict_scaling(plan_run(run)).update_seconds;
  run.network_bytes_per_second = kNetworkBytesPerSecond;
  const Scaling slow = predict_scaling(plan_run(run));
  EXPECT_GT(slow.update_seconds, fast);
  EXPECT_GE(fast, one);
}

// Two V100s on one root copy at half the rate. An explicit setting has precedence.
TEST(Scaling, DevicesThatTrainTogetherShareTheLinkToTheHost) {
  const auto rate = [](const RunOptions& run) {
    return plan_run(run).target.profile.link_bytes_per_second.device_to_host;
  };
  RunOptions run = devices("resnet50", 4);
  EXPECT_EQ(rate(run), 6.4e9);
  run.machines = 4;
  EXPECT_EQ(rate(run), 12.8e9) << "one device per machine";
  run.machines = 1;
  run.link_shared_by = 1;
  EXPECT_EQ(rate(run), 12.8e9);
  RunOptions unknown = devices("resnet50", 4);
  unknown.device = "sim:titan-x";
  EXPECT_NO_THROW(plan_run(unknown)) << "without a root in the profile, none is assumed";
}

// Devices without a peer link reach each other over the host's link.
TEST(Scaling, ReductionsGoByThePeersOfTheProfile) {
  RunOptions run = devices("resnet50", 4);
  const CollectiveCosts nvlink = prediction_options(plan_run(run)).collectives;
  EXPECT_EQ(nvlink.peers.bytes_per_second, sim_profile("v100-16").peer_bytes_per_second);
  EXPECT_EQ(nvlink.peers.seconds, sim_profile("v100-16").peer_seconds);
  EXPECT_EQ(nvlink.network.bytes_per_second, kNetworkBytesPerSecond);
  run.device = "sim:rtx4090";
  const CollectiveCosts host = prediction_options(plan_run(run)).collectives;
  EXPECT_EQ(host.peers.bytes_per_second,
            sim_profile("rtx4090").link_bytes_per_second_both_ways.host_to_device);
}

// With four batches per update, the first three neither update nor reduce gradients.
TEST(Scaling, BatchesBeforeTheUpdateAreShorter) {
  RunOptions run = devices("vgg16", 4);
  run.training.bucket_bytes = std::uint64_t{1} << 40U;  // one bucket, so that its reduction is exposed
  run.training.micro_steps = 4;
  const PlannedRun planned = plan_run(run);
  EXPECT_EQ(planned.global_batch(), 64U * 4 * 4);
  const Prediction& prediction = planned.prediction;
  const Scaling scaling = predict_scaling(planned);
  EXPECT_GT(prediction.micro_step_seconds, 0);
  EXPECT_LT(prediction.micro_step_seconds, prediction.step_seconds - 0.9 * scaling.exposed_reduce_seconds);
  EXPECT_DOUBLE_EQ(scaling.update_seconds, prediction.step_seconds + 3 * prediction.micro_step_seconds);
  EXPECT_DOUBLE_EQ(scaling.images_per_second, 64 * 4 * 4 / scaling.update_seconds);
  run.training.micro_steps = 1;
  EXPECT_GT(scaling.efficiency, predict_scaling(plan_run(run)).efficiency);
}

// All batches between the first and the last take the same time, so three batches determine any number.
TEST(Scaling, TheMeanOfManyBatchesIsThatOfFew) {
  RunOptions run = devices("resnet50", 2);
  const auto update_seconds = [&](std::uint32_t micro_steps) {
    run.training.micro_steps = micro_steps;
    return predict_scaling(plan_run(run)).update_seconds;
  };
  const double another = update_seconds(4) - update_seconds(3);
  EXPECT_GT(another, 0);
  EXPECT_NEAR(update_seconds(10) - update_seconds(4), 6 * another, 1e-9);
}

TEST(Scaling, RanksAreSpreadEvenlyAndNetworksHaveARate) {
  RunOptions run = devices("resnet50", 6);
  run.machines = 4;
  EXPECT_THROW(plan_run(run), InvalidArgument);
  run.machines = 0;
  EXPECT_THROW(plan_run(run), InvalidArgument);
  run.machines = 2;
  run.network_bytes_per_second = 0;
  EXPECT_THROW(plan_run(run), InvalidArgument);
}

// --- the timeline ------------------------------------------------------------------------------------------

class ScalingTimeline : public ::testing::Test {
 protected:
  static PlannedRun traced() {
    RunOptions run = devices("resnet50", 4);
    run.trace_prediction = true;
    return plan_run(run);
  }
  // Instructions that launch the ops for which `wanted` returns true.
  std::vector<std::uint32_t> launches(const std::function<bool(const Op&)>& wanted) const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t index = 0; index < run_.schedule.instructions.size(); ++index) {
      const Instruction& instruction = run_.schedule.instructions[index];
      if (instruction.kind == InstructionKind::kLaunch && wanted(run_.tape->op(instruction.op))) {
        found.push_back(index);
      }
    }
    return found;
  }
  const InstructionTime& time(std::uint32_t index) const { return run_.prediction.step->times[index]; }

  const PlannedRun run_ = traced();
  const std::vector<std::uint32_t> reductions_ =
      launches([](const Op& op) { return op.collective() && op.phase == Phase::kUpdate; });
  const std::vector<std::uint32_t> backward_ =
      launches([](const Op& op) { return !op.collective() && op.phase == Phase::kBackward; });
  const std::vector<std::uint32_t> updates_ =
      launches([](const Op& op) { return !op.collective() && op.phase == Phase::kUpdate; });
};

TEST_F(ScalingTimeline, ReductionsLieUnderTheBackwardPass) {
  ASSERT_GT(reductions_.size(), 3U);
  const auto under_backward = [&](std::uint32_t reduction) {
    return std::ranges::any_of(backward_, [&](std::uint32_t op) {
      return time(op).begin_seconds < time(reduction).end_seconds &&
             time(reduction).begin_seconds < time(op).end_seconds;
    });
  };
  // All reductions except the last overlap; the last waits for the first layer's gradient.
  EXPECT_EQ(std::ranges::count_if(reductions_, under_backward),
            static_cast<std::ptrdiff_t>(reductions_.size()) - 1);
}

TEST_F(ScalingTimeline, AnUpdateWaitsForItsOwnBucketAlone) {
  ASSERT_FALSE(updates_.empty());
  EXPECT_LT(time(updates_.front()).begin_seconds, time(reductions_.back()).end_seconds);
  for (const std::uint32_t update : updates_) {
    const Op& op = run_.tape->op(run_.schedule.instructions[update].op);
    const auto own = std::ranges::find_if(reductions_, [&](std::uint32_t reduction) {
      const std::vector<ValueId>& made = run_.tape->op(run_.schedule.instructions[reduction].op).writes;
      return std::ranges::any_of(op.reads,
                                 [&](ValueId read) { return std::ranges::find(made, read) != made.end(); });
    });
    ASSERT_NE(own, reductions_.end()) << op.name;
    EXPECT_GE(time(update).begin_seconds, time(*own).end_seconds) << op.name;
    for (const Wait& wait : run_.schedule.instructions[update].waits) {
      EXPECT_TRUE(wait.steps_ago > 0 || std::ranges::count(reductions_, wait.instruction) == 0 ||
                  wait.instruction <= *own)
          << op.name << " waits for a later bucket";
    }
  }
}

TEST_F(ScalingTimeline, IsInTheTrace) {
  const auto stream = std::ranges::find(run_.prediction.stream_names, "reduce");
  ASSERT_NE(stream, run_.prediction.stream_names.end());
  const auto number = static_cast<StreamId>(stream - run_.prediction.stream_names.begin());
  const auto reduces = [&](const TraceEvent& event) {
    return event.stream == number && event.kind == TraceEvent::Kind::kWork &&
           event.name.starts_with("gradients.reduce");
  };
  EXPECT_EQ(std::ranges::count_if(run_.prediction.trace, reduces),
            static_cast<std::ptrdiff_t>(reductions_.size()));
}

}  // namespace
}  // namespace vdnn::scaling_test
