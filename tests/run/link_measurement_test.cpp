#include "src/run/link_measurement.h"

#include <gtest/gtest.h>

#include "vdnn/cpu_device.h"
#include "vdnn/error.h"

namespace vdnn::link_measurement_test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

MeasuredLink measure(const CpuDeviceOptions& options, std::uint64_t copy_bytes) {
  const auto device = make_cpu_device(options);
  PinnedPool pinned(*device);
  const MeasuredLink link = measure_link(*device, pinned, copy_bytes);
  EXPECT_EQ(device->counters().committed_bytes, 0U);
  EXPECT_EQ(device->counters().pinned_bytes, 0U);
  return link;
}

// `cpu` slows copies to a given link rate, so a copy never takes less time than at that rate.
TEST(LinkMeasurement, FindsNoMoreThanTheLinkCarries) {
  const MeasuredLink link = measure(
      {.budget_bytes = 64 * kMiB, .host_budget_bytes = 64 * kMiB, .link_gbytes_per_second = 0.5}, kMiB);
  for (const CopyDirection direction : {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice}) {
    const auto seconds = [&](const LinkRates& rates) {
      return link.copy_seconds + static_cast<double>(kMiB) / rates[direction];
    };
    EXPECT_GE(seconds(link.one_way), 0.999999 * static_cast<double>(kMiB) / 0.5e9);
    EXPECT_GE(seconds(link.both_ways), 0.999999 * seconds(link.one_way));
    EXPECT_GT(link.both_ways[direction], 0);
  }
}

TEST(LinkMeasurement, TakesSmallerCopiesWhereThereIsLittleRoom) {
  EXPECT_GT(measure({.budget_bytes = kMiB, .host_budget_bytes = kMiB}, 64 * kMiB).both_ways.device_to_host,
            0);
  EXPECT_GT(measure({.budget_bytes = 64 * kMiB, .host_budget_bytes = 3}, 64 * kMiB).both_ways.device_to_host,
            0);
}

TEST(LinkMeasurement, SaysWhereThereIsNoRoom) {
  const auto device = make_cpu_device({.budget_bytes = kMiB, .host_budget_bytes = 1});
  PinnedPool pinned(*device);
  EXPECT_THROW(measure_link(*device, pinned, kMiB), OutOfMemory);
  EXPECT_THROW(measure_link(*device, pinned, 0), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::link_measurement_test
