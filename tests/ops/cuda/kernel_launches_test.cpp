// Kernel launches on a stand-in for CUDA's runtime.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "src/ops/cuda/kernel_table.h"
#include "vdnn/error.h"

namespace vdnn::cuda {
namespace {

class KernelLaunches : public ::testing::Test {
 protected:
  KernelLaunches() {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    table_ = make_kernel_table();
  }

  // Returns the error of a launch; empty if the launch succeeds.
  std::string failure() const {
    try {
      table_->launch(ReluForward<Fp32>{.elements = 1}, stream_);
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  }

  cudaStream_t stream_ = nullptr;
  std::unique_ptr<const KernelTable> table_;
};

// Regression: a successful launch reported "cuda: kernel relu_forward over 1 blocks of 256 threads failed to
// launch", with the error of the program's earlier call.
TEST_F(KernelLaunches, DoNotFailForAnErrorThatTheProgramHasLeft) {
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice) << "the error stays for the program's own check";
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
}

TEST_F(KernelLaunches, ThatFailLeaveNoErrorBehind) {
  EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  EXPECT_NE(failure().find("relu_forward"), std::string::npos) << failure();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace vdnn::cuda
