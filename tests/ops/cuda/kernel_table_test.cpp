// Kernel launches, as far as they can be tested without a GPU.

#include "src/ops/cuda/kernel_table.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>

#include "vdnn/error.h"

namespace vdnn::cuda {
namespace {

std::string failure_of(const Kernel& kernel) {
  try {
    make_kernel_table()->launch(kernel, nullptr);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "none";
}

TEST(KernelTable, AGridThatNoGpuHasIsRefusedWithItsNumbers) {
  const RowSums<SquaredDifference> kernel{.rows = std::uint64_t{1} << 32, .length = 1, .piece_length = 1};
  EXPECT_EQ(failure_of(kernel).find("cuda: kernel squared_difference over 4294967296 blocks of 256 threads"),
            0U)
      << failure_of(kernel);
}

TEST(KernelTable, WithoutAGpuALaunchFailsByName) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) {
    GTEST_SKIP() << "there is a GPU";
  }
  const std::string text = failure_of(ReluForward<Fp32>{.elements = 1});
  EXPECT_NE(text.find("relu_forward"), std::string::npos) << text;
  EXPECT_NE(text.find("cudaError"), std::string::npos) << text;
}

}  // namespace
}  // namespace vdnn::cuda
