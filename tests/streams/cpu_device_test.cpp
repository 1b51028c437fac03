#include "vdnn/cpu_device.h"

#include <gtest/gtest.h>

#include "streams/device_conformance.h"
namespace vdnn {
INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
                         testing::Values(DeviceFactory{"Plain",
                                                       [](std::uint64_t b, std::uint64_t h) {
                                                         return make_cpu_device(
                                                             {.budget_bytes = b, .host_budget_bytes = h});
                                                       }}),
                         device_name);
}
