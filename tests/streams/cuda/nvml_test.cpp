// Queries of the management library NVML, on a stand-in.

#include "streams/cuda/nvml.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "streams/cuda/uuid_text.h"

namespace vdnn {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
constexpr std::array<unsigned char, 16> kInstance{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

class Nvml : public ::testing::Test {
 protected:
  ~Nvml() override { unsetenv("VDNN_STAND_IN_MIG"); }

  const std::string instance_ = "MIG-" + uuid_text(kInstance);
};

TEST_F(Nvml, SaysWhatAGpuHasFree) {
  EXPECT_EQ(nvml_free_bytes("0000:3b:00.0", instance_), 70 * kGiB);
  setenv("VDNN_STAND_IN_MIG", "0", 1);
  EXPECT_EQ(nvml_free_bytes("0000:3b:00.0", instance_), 70 * kGiB);
}

TEST_F(Nvml, AGpuThatItDoesNotKnowIsNoAnswer) {
  EXPECT_EQ(nvml_free_bytes("0000:5e:00.0", instance_), std::nullopt);
}

// Regression: the query returned 70 GiB, the free memory of all instances of the GPU together (NVML API
// Reference, nvmlDeviceGetMemoryInfo: "In MIG mode, if device handle is provided, the API returns aggregate
// information").
TEST_F(Nvml, OfADividedGpuItSaysWhatTheProcesssInstanceHasFree) {
  setenv("VDNN_STAND_IN_MIG", "1", 1);
  EXPECT_EQ(nvml_free_bytes("0000:3b:00.0", instance_), 9 * kGiB);
  EXPECT_EQ(nvml_free_bytes("0000:3b:00.0", "MIG-of-another-GPU"), std::nullopt);
}

}  // namespace
}  // namespace vdnn
