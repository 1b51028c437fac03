// Timelines of the `sim` driver, computed by hand.

#include <gtest/gtest.h>

#include "tests/streams/sim_fixture.h"
#include "vdnn/error.h"

namespace vdnn::sim_clock_test {
namespace {

TEST(SimClock, WorkTakesTheLongerOfComputeAndMemoryPlusItsLaunch) {
  SimDeviceOptions options = round_options();
  options.profile.flops_per_second = {.convolution = 1, .matrix_product = 2, .other = 4};
  options.profile.bytes_per_second = 2;
  options.profile.launch_seconds = 0.5;
  SimFixture sim(options);
  sim.device->submit(
      sim.compute,
      {.name = "compute bound", .reads = {}, .writes = {}, .cost = {.flops = 40, .bytes = 2}, .run = {}});
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 10.5);
  sim.device->submit(
      sim.compute,
      {.name = "memory bound", .reads = {}, .writes = {}, .cost = {.flops = 40, .bytes = 60}, .run = {}});
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 10.5 + 30.5);
}

TEST(SimClock, ArithmeticHasTheRateOfItsKind) {
  SimProfile profile = round_profile();
  profile.flops_per_second = {.convolution = 1, .matrix_product = 2, .other = 4};
  const auto seconds = [&](Arithmetic arithmetic) {
    return profile.seconds({.flops = 40, .bytes = 1, .arithmetic = arithmetic});
  };
  EXPECT_DOUBLE_EQ(seconds(Arithmetic::kConvolution), 40);
  EXPECT_DOUBLE_EQ(seconds(Arithmetic::kMatrixProduct), 20);
  EXPECT_DOUBLE_EQ(seconds(Arithmetic::kOther), 10);
}

// Products of a type without a rate have the rate of fp32. Work other than products has no type.
TEST(SimClock, ProductsHaveTheRateOfTheTypeThatTheyMultiplyIn) {
  SimProfile profile = round_profile();
  profile.flops_per_second = {
      .convolution = 1, .matrix_product = 2, .other = 4, .tf32 = 8, .fp16 = 16, .bf16 = 20};
  const auto seconds = [&](Arithmetic arithmetic, ProductPrecision precision) {
    return profile.seconds({.flops = 80, .bytes = 1, .arithmetic = arithmetic, .precision = precision});
  };
  for (const Arithmetic product : {Arithmetic::kConvolution, Arithmetic::kMatrixProduct}) {
    EXPECT_DOUBLE_EQ(seconds(product, ProductPrecision::kTf32), 10);
    EXPECT_DOUBLE_EQ(seconds(product, ProductPrecision::kFp16), 5);
    EXPECT_DOUBLE_EQ(seconds(product, ProductPrecision::kBf16), 4);
  }
  EXPECT_DOUBLE_EQ(seconds(Arithmetic::kMatrixProduct, ProductPrecision::kFp32), 40);
  EXPECT_DOUBLE_EQ(seconds(Arithmetic::kOther, ProductPrecision::kTf32), 20);
  profile.flops_per_second.tf32 = 0;
  EXPECT_DOUBLE_EQ(seconds(Arithmetic::kConvolution, ProductPrecision::kTf32), 80);
}

TEST(SimClock, CopiesTakeTheRateOfTheirDirection) {
  SimFixture sim(round_options());
  sim.offload(sim.memory, "offload", {sim.on_device(0, 100)}, {sim.on_host(0, 100)});
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 10);
  sim.prefetch(sim.memory, "prefetch", {sim.on_host(0, 100)}, {sim.on_device(0, 100)});
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 15);
}

TEST(SimClock, StreamsOverlapAndAWaitJoinsThem) {
  SimFixture sim(round_options());
  sim.busy(sim.compute, 6);
  sim.offload(sim.memory, "offload", {sim.on_device(0, 100)}, {sim.on_host(0, 100)});
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 10);
  sim.device->wait(sim.compute, sim.device->frontier(sim.memory));
  sim.busy(sim.compute, 1);
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 11);
  EXPECT_DOUBLE_EQ(sim.device->times(sim.compute).busy_seconds, 7);
  EXPECT_DOUBLE_EQ(sim.device->times(sim.compute).waiting_seconds, 4);
  EXPECT_DOUBLE_EQ(sim.device->times(sim.memory).busy_seconds, 10);
  EXPECT_DOUBLE_EQ(sim.device->times(sim.memory).waiting_seconds, 0);
}

TEST(SimClock, AWaitForWhatEndsEarlierCostsNothing) {
  SimFixture sim(round_options());
  sim.busy(sim.memory, 2);
  sim.busy(sim.compute, 5);
  sim.device->wait(sim.compute, sim.device->frontier(sim.memory));
  sim.busy(sim.compute, 1);
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 6);
  EXPECT_DOUBLE_EQ(sim.device->times(sim.compute).waiting_seconds, 0);
}

TEST(SimClock, AWaitIsForThePointNotForWhatFollowsIt) {
  SimFixture sim(round_options());
  const Point first = sim.busy(sim.memory, 3);
  sim.busy(sim.memory, 100);
  sim.device->wait(sim.compute, Frontier(first));
  sim.busy(sim.compute, 1);
  sim.device->synchronize(sim.device->frontier(sim.compute));
  EXPECT_DOUBLE_EQ(sim.device->now_seconds(), 4);
}

TEST(SimClock, OneDirectionHasOneEngine) {
  SimFixture sim(round_options());
  sim.offload(sim.compute, "a", {sim.on_device(0, 100)}, {sim.on_host(0, 100)});
  sim.offload(sim.memory, "b", {sim.on_device(100, 100)}, {sim.on_host(100, 100)});
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 20);
  // The busy engine blocks the copy, not another stream's work.
  EXPECT_DOUBLE_EQ(sim.device->times(sim.memory).waiting_seconds, 0);
  EXPECT_DOUBLE_EQ(sim.device->times(sim.memory).busy_seconds, 10);
}

TEST(SimClock, TwoDirectionsHaveTwoEngines) {
  SimFixture sim(round_options());
  sim.offload(sim.compute, "a", {sim.on_device(0, 100)}, {sim.on_host(0, 100)});
  sim.prefetch(sim.memory, "b", {sim.on_host(200, 100)}, {sim.on_device(200, 100)});
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 10);
}

TEST(SimClock, DirectionsThatAreBusyTogetherShareTheLink) {
  SimDeviceOptions options = round_options();
  options.profile.link_bytes_per_second_both_ways = {.device_to_host = 10, .host_to_device = 5};
  SimFixture sim(options);
  sim.offload(sim.compute, "a", {sim.on_device(0, 40)}, {sim.on_host(0, 40)});  // until 4 s
  sim.prefetch(sim.memory, "b", {sim.on_host(200, 100)}, {sim.on_device(200, 100)});
  // 20 bytes are copied during the offload, the other 80 alone.
  EXPECT_DOUBLE_EQ(sim.device->times(sim.memory).busy_seconds, 4 + 4);
  // d runs alone from 8 to 10 s (40 bytes) and beside the offload c from 10 to 12 s (10 bytes). The last 10
  // bytes run alone.
  sim.busy(sim.compute, 6);
  sim.offload(sim.compute, "c", {sim.on_device(0, 20)}, {sim.on_host(0, 20)});
  sim.prefetch(sim.memory, "d", {sim.on_host(200, 60)}, {sim.on_device(200, 60)});
  EXPECT_DOUBLE_EQ(sim.device->times(sim.memory).busy_seconds, 8 + 2 + 2 + 0.5);
  // A copy that ends before the other direction begins, or begins after it, does not share the link.
  sim.offload(sim.compute, "e", {sim.on_device(0, 100)}, {sim.on_host(0, 100)});  // from 12 to 22 s
  sim.device->synchronize_all();
  sim.prefetch(sim.memory, "f", {sim.on_host(200, 60)}, {sim.on_device(200, 60)});
  EXPECT_DOUBLE_EQ(sim.device->times(sim.memory).busy_seconds, 12.5 + 3);
}

TEST(SimClock, TheHostsTimeAdvancesInSynchronizeAndHoldsBackWhatIsSubmittedLater) {
  SimFixture sim(round_options());
  sim.busy(sim.compute, 8);
  EXPECT_DOUBLE_EQ(sim.device->now_seconds(), 0);
  EXPECT_FALSE(sim.device->reached(sim.device->frontier(sim.compute)));
  sim.device->synchronize_all();
  EXPECT_DOUBLE_EQ(sim.device->now_seconds(), 8);
  EXPECT_TRUE(sim.device->reached(sim.device->frontier(sim.compute)));
  sim.busy(sim.memory, 1);
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 9);
  // The stream had no work while the host was late, which does not count as waiting.
  EXPECT_DOUBLE_EQ(sim.device->times(sim.memory).waiting_seconds, 0);
}

TEST(SimClock, SynchronizeWaitsForItsFrontierOnly) {
  SimFixture sim(round_options());
  const Point point = sim.busy(sim.compute, 3);
  sim.busy(sim.compute, 5);
  sim.device->synchronize(Frontier(point));
  EXPECT_DOUBLE_EQ(sim.device->now_seconds(), 3);
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 8);
  // A point that the host has passed delays no work; a later point still does.
  sim.device->wait(sim.memory, Frontier(point));
  sim.busy(sim.memory, 1);
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 8);
  sim.device->wait(sim.memory, sim.device->frontier(sim.compute));
  sim.busy(sim.memory, 1);
  EXPECT_DOUBLE_EQ(sim.device->finish_seconds(), 9);
  EXPECT_DOUBLE_EQ(sim.device->times(sim.memory).waiting_seconds, 4);
}

TEST(SimClock, TraceHasABarForEachWorkAndEachWaitThatBlocks) {
  SimFixture sim(round_options());
  sim.busy(sim.compute, 1, "before tracing");
  sim.device->set_tracing(true);
  sim.busy(sim.memory, 4, "long");
  sim.device->wait(sim.compute, sim.device->frontier(sim.memory));
  sim.device->sample_counter(sim.compute, "bytes", 42);
  sim.busy(sim.compute, 2, "short");
  const std::vector<TraceEvent> trace = sim.device->take_trace();
  ASSERT_EQ(trace.size(), 4U);
  EXPECT_EQ(trace[0].name, "long");
  EXPECT_DOUBLE_EQ(trace[0].end_seconds, 4);
  EXPECT_EQ(trace[1].kind, TraceEvent::Kind::kWait);
  EXPECT_EQ(trace[1].stream, sim.compute);
  EXPECT_DOUBLE_EQ(trace[1].begin_seconds, 1);
  EXPECT_DOUBLE_EQ(trace[1].end_seconds, 4);
  EXPECT_EQ(trace[2].kind, TraceEvent::Kind::kCounter);
  EXPECT_EQ(trace[2].name, "bytes");
  EXPECT_EQ(trace[2].value, 42U);
  EXPECT_DOUBLE_EQ(trace[2].begin_seconds, 4);
  EXPECT_EQ(trace[3].kind, TraceEvent::Kind::kWork);
  EXPECT_EQ(trace[3].name, "short");
  EXPECT_DOUBLE_EQ(trace[3].begin_seconds, 4);
  EXPECT_DOUBLE_EQ(trace[3].end_seconds, 6);
  EXPECT_TRUE(sim.device->take_trace().empty());
}

TEST(SimClock, ARandomOrderHasNoFinishingTime) {
  SimDeviceOptions options = round_options();
  options.order_seed = 1;
  EXPECT_THROW(make_sim_device(options)->finish_seconds(), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::sim_clock_test
