#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/streams/device_conformance.h"
#include "tests/streams/sim_fixture.h"
#include "vdnn/error.h"

namespace vdnn::sim_device_test {
namespace {

DeviceFactory factory(const std::string& name, const SimDeviceOptions& options) {
  return {.name = name, .make = [options](std::uint64_t budget_bytes, std::uint64_t host_budget_bytes) {
            SimDeviceOptions with_budgets = options;
            with_budgets.budget_bytes = budget_bytes;
            with_budgets.host_budget_bytes = host_budget_bytes;
            return make_sim_device(with_budgets);
          }};
}

// `sim` with the clock alone, with checks, and in several random orders; all with the profile of `cpu`.
std::vector<DeviceFactory> factories() {
  SimDeviceOptions options;
  options.profile = sim_profile("cpu");
  std::vector<DeviceFactory> all{factory("Clock", options)};
  options.check_races = true;
  options.check_versions = true;
  all.push_back(factory("ClockChecked", options));
  for (const std::uint64_t seed : {1, 2, 3}) {
    options.order_seed = seed;
    all.push_back(factory("Seed" + std::to_string(seed), options));
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sim, DeviceConformance, testing::ValuesIn(factories()), device_name);

TEST(SimProfiles, EachMakesADeviceThatSaysSo) {
  for (const std::string& name : sim_profile_names()) {
    SimDeviceOptions options;
    options.profile = sim_profile(name);
    const auto device = make_sim_device(options);
    EXPECT_EQ(device->properties().name, "sim:" + name);
    EXPECT_FALSE(device->properties().touches_memory);
    const std::uint64_t part = options.profile.memory_bytes % options.profile.granule_bytes;
    EXPECT_EQ(device->properties().budget_bytes, options.profile.memory_bytes - part);
    EXPECT_EQ(device->properties().host_budget_bytes, options.profile.host_memory_bytes / 2);
    EXPECT_FALSE(options.profile.source.empty());
  }
}

TEST(SimProfiles, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  try {
    sim_profile("titan-y");
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    for (const std::string& name : sim_profile_names()) {
      EXPECT_NE(text.find(name), std::string::npos) << text;
    }
  }
}

TEST(SimProfiles, OnesThatCannotBeAreRefused) {
  const std::vector<std::function<void(SimProfile&)>> mistakes{
      [](SimProfile& profile) { profile.granule_bytes = 3000; },
      [](SimProfile& profile) { profile.granule_bytes = 0; },
      [](SimProfile& profile) { profile.granule_bytes = 2 * profile.memory_bytes; },
      [](SimProfile& profile) { profile.alignment_bytes = 0; },
      [](SimProfile& profile) { profile.flops_per_second.convolution = 0; },
      [](SimProfile& profile) { profile.flops_per_second.matrix_product = -1; },
      [](SimProfile& profile) { profile.flops_per_second.other = 0; },
      [](SimProfile& profile) { profile.flops_per_second.tf32 = -1; },
      [](SimProfile& profile) { profile.bytes_per_second = -1; },
      [](SimProfile& profile) { profile.link_bytes_per_second.device_to_host = 0; },
      [](SimProfile& profile) { profile.link_bytes_per_second.host_to_device = 0; },
      [](SimProfile& profile) { profile.link_bytes_per_second_both_ways.device_to_host = 0; },
      [](SimProfile& profile) { profile.link_bytes_per_second_both_ways.host_to_device = 21; },
      [](SimProfile& profile) { profile.launch_seconds = -1; },
  };
  for (const auto& mistake : mistakes) {
    SimDeviceOptions options = round_options();
    mistake(options.profile);
    EXPECT_THROW(make_sim_device(options), InvalidArgument);
  }
}

TEST(SimDevice, BudgetsMayExceedTheMachineAndCountWholeGranules) {
  SimDeviceOptions options = round_options();
  options.budget_bytes = (std::uint64_t{1} << 40) + 100;
  options.host_budget_bytes = std::uint64_t{1} << 41;
  const auto device = make_sim_device(options);
  EXPECT_EQ(device->properties().memory_bytes, options.profile.memory_bytes);
  EXPECT_EQ(device->properties().budget_bytes, std::uint64_t{1} << 40);
  EXPECT_EQ(device->properties().host_budget_bytes, std::uint64_t{1} << 41);
}

TEST(SimDevice, PageAlignedBlocksRaiseTheAlignment) {
  SimDeviceOptions options = round_options();
  options.page_aligned_blocks = true;
  EXPECT_EQ(make_sim_device(options)->properties().alignment_bytes, 4096U);
}

TEST(SimMemory, AddressesAreDisjointAndAligned) {
  const auto device = make_sim_device(round_options());
  const std::vector<AddressRange> ranges{device->reserve(1), device->reserve(5000),
                                         device->allocate_pinned(1), device->allocate_pinned(5000),
                                         device->reserve(4096)};
  EXPECT_EQ(ranges[0].bytes, 4096U);
  EXPECT_EQ(ranges[1].bytes, 8192U);
  EXPECT_EQ(ranges[2].bytes, 1U);
  EXPECT_EQ(ranges[3].bytes, 5000U);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ(ranges[i].begin % 4096, 0U);
    EXPECT_GT(ranges[i].begin, 0U);
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(ranges[i].overlaps(ranges[j]));
    }
  }
}

TEST(SimMemory, TerabytesAreNoProblemButTheAddressSpaceEnds) {
  const auto device = make_sim_device(round_options());
  EXPECT_EQ(device->reserve(std::uint64_t{1} << 45).bytes, std::uint64_t{1} << 45);
  EXPECT_THROW(device->reserve(std::uint64_t{1} << 60), OutOfMemory);
  EXPECT_THROW(device->reserve(UINT64_MAX), OutOfMemory);
}

TEST(SimMemory, MisuseIsRefusedAndChangesNothing) {
  const auto device = make_sim_device(round_options());
  const AddressRange block = device->reserve(4 * std::uint64_t{4096});
  const AddressRange first{.begin = block.begin, .bytes = 4096};
  const AddressRange outside{.begin = block.end(), .bytes = 4096};
  const AddressRange over_the_end{.begin = block.end() - 4096, .bytes = 8192};
  const AddressRange half{.begin = block.begin, .bytes = 2048};
  EXPECT_THROW(device->commit(outside), InvalidArgument);
  EXPECT_THROW(device->commit(over_the_end), InvalidArgument);
  EXPECT_THROW(device->commit(half), InvalidArgument);
  device->commit(first);
  EXPECT_THROW(device->commit(block), InvalidArgument);
  EXPECT_THROW(device->decommit(block), InvalidArgument);
  EXPECT_THROW(device->unreserve(block), InvalidArgument);
  EXPECT_EQ(device->counters().committed_bytes, 4096U);
  device->decommit(first);
  EXPECT_THROW(device->decommit(first), InvalidArgument);
  EXPECT_THROW(device->unreserve(first), InvalidArgument);
  device->unreserve(block);
  EXPECT_THROW(device->commit(first), InvalidArgument);

  const AddressRange pinned = device->allocate_pinned(100);
  EXPECT_THROW(device->free_pinned({.begin = pinned.begin, .bytes = 99}), InvalidArgument);
  device->free_pinned(pinned);
  EXPECT_THROW(device->free_pinned(pinned), InvalidArgument);
  EXPECT_THROW(device->allocate_pinned(0), InvalidArgument);
  EXPECT_EQ(device->counters().pinned_bytes, 0U);
}

TEST(SimDevice, WhatHasNotBeenSubmittedIsNotReached) {
  for (const bool random : {false, true}) {
    SimDeviceOptions options = round_options();
    if (random) {
      options.order_seed = 1;
    }
    SimFixture sim(options);
    const Point point = sim.busy(sim.compute, 1);
    sim.device->synchronize_all();
    EXPECT_TRUE(sim.device->reached(Frontier(point)));
    EXPECT_FALSE(sim.device->reached(Frontier({.stream = sim.compute, .count = point.count + 1})));
  }
}

TEST(SimDevice, AStreamThatIsNotThereIsRefused) {
  SimFixture sim(round_options());
  sim.device->set_tracing(true);
  EXPECT_THROW(sim.device->times(2), InvalidArgument);
  EXPECT_THROW(sim.device->sample_counter(2, "counter", 1), InvalidArgument);
  EXPECT_THROW(sim.device->reached(Frontier({.stream = 2, .count = 1})), InvalidArgument);
  EXPECT_THROW(sim.busy(2, 1), InvalidArgument);
}

TEST(SimDevice, RunsNothing) {
  SimFixture sim(round_options());
  sim.device->submit(sim.compute, {.name = "never", .reads = {}, .writes = {}, .cost = {}, .run = [](void*) {
                                     throw DeviceError("run on sim");
                                   }});
  EXPECT_NO_THROW(sim.device->synchronize_all());
}

}  // namespace
}  // namespace vdnn::sim_device_test
