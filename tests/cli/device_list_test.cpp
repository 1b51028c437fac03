#include "src/cli/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/report/json_schema.h"
#include "vdnn/error.h"
#include "vdnn/sim_device.h"

namespace vdnn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Line = nlohmann::ordered_json;

// Two GPUs, one of which has a profile. Neither computes.
class TwoGpus : public GpuSystem {
 public:
  int count() override { return 2; }
  std::uint64_t free_bytes(int ordinal) override { return std::uint64_t{1} << (30 + ordinal); }
  std::string gpu_name(int ordinal) override { return ordinal == 0 ? "NVIDIA H200" : "NVIDIA T4"; }
  int compute_capability(int ordinal) override { return ordinal == 0 ? 90 : 75; }
  std::string gpu_uuid(int ordinal) override { return "GPU-" + std::to_string(ordinal); }
  std::unique_ptr<Device> make_device(const CudaDeviceOptions&) override {
    throw std::logic_error("a list makes no device");
  }
  std::shared_ptr<OpLibrary> make_ops(int, const GpuOpsOptions&) override {
    throw std::logic_error("a list computes nothing");
  }
};

void none_is_refused(const std::string& text) {
  ADD_FAILURE() << text;
}

void expect_valid(const std::vector<Line>& devices) {
  const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/device.schema.json");
  for (Line device : devices) {
    device["schema"] = 1;
    EXPECT_THAT(testing::SchemaCheck::errors(schema, device), IsEmpty()) << device;
  }
}

TEST(DeviceList, HasGpusWithTheRatesThatTheyArePlannedWith) {
  TwoGpus gpus;
  const std::vector<Line> devices = present_devices(&gpus, none_is_refused);
  expect_valid(devices);
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[0]["device"], "cpu");
  EXPECT_GT(devices[0]["cores"], 0);
  EXPECT_EQ(devices[1]["device"], "cuda:0");
  EXPECT_EQ(devices[1]["what"], "NVIDIA H200");
  EXPECT_EQ(devices[1]["rates_of"], "h200");
  EXPECT_EQ(devices[1]["uuid"], "GPU-0");
  EXPECT_EQ(devices[1]["compute_capability"], 90);
  EXPECT_EQ(devices[1]["memory_bytes"]["value"], 1U << 30U);
  EXPECT_EQ(devices[2]["rates_of"], "a100") << "planned with the rates of an a100, since it has no profile";
  EXPECT_EQ(present_devices(nullptr, none_is_refused).size(), 1U);
}

// Regression: a GPU in exclusive use by another process ended the list.
TEST(DeviceList, HasTheOthersWhereAGpuCannotBeUsed) {
  class OneInUse : public TwoGpus {
   public:
    std::uint64_t free_bytes(int ordinal) override {
      if (ordinal == 0) {
        throw DeviceError("in use by another process");
      }
      return TwoGpus::free_bytes(ordinal);
    }
  };
  OneInUse gpus;
  std::vector<std::string> refused;
  const std::vector<Line> devices =
      present_devices(&gpus, [&](const std::string& text) { refused.push_back(text); });
  expect_valid(devices);
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[1]["device"], "cuda:1");
  EXPECT_THAT(refused, ElementsAre("cuda:0: in use by another process"));
}

TEST(DeviceList, HasEveryProfileWithItsRates) {
  const std::vector<Line> devices = simulated_devices();
  expect_valid(devices);
  ASSERT_EQ(devices.size(), sim_profile_names().size());
  for (std::size_t each = 0; each < devices.size(); ++each) {
    const SimProfile profile = sim_profile(sim_profile_names()[each]);
    EXPECT_EQ(devices[each]["device"], "sim:" + profile.name);
    EXPECT_EQ(devices[each]["simulated"], true);
    EXPECT_EQ(devices[each]["memory_bytes"]["value"], profile.memory_bytes);
    EXPECT_EQ(devices[each]["flops_per_second"]["convolution"]["value"],
              profile.flops_per_second.convolution);
    EXPECT_EQ(devices[each]["bytes_per_second"]["value"], profile.bytes_per_second);
  }
}

TEST(DeviceList, PrintsFiguresAndTheirSources) {
  std::ostringstream out;
  print_devices(out, simulated_devices());
  EXPECT_THAT(out.str(), HasSubstr("sim:titan-x"));
  EXPECT_THAT(out.str(), HasSubstr("memory bandwidth: 0.8 (assumed) of the 336 GB/s"));
}

}  // namespace
}  // namespace vdnn
