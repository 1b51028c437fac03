// The table of CUDA's calls, compiled with a header of CUDA 12.0 to 12.4 and linked with a runtime of these
// versions. Neither the header nor the runtime has cudaGetDriverEntryPointByVersion.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "streams/cuda/cuda_api.h"

namespace vdnn {
namespace {

TEST(OldToolkit, FindsTheDriverAsItsRuntimeDoes) {
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "cudaGetDriverEntryPointByVersion"), nullptr);
  const std::unique_ptr<CudaApi> api = make_cuda_api();
  ASSERT_EQ(api->why_missing(), "");
  EXPECT_EQ(api->set_device(0), CudaStatus::kSuccess);
  std::uint64_t granule = 0;
  EXPECT_EQ(api->allocation_granularity(granule, {.ordinal = 0}), CudaStatus::kSuccess);
  std::uint64_t handle = 0;
  EXPECT_EQ(api->memory_create(handle, granule, {.ordinal = 0}), CudaStatus::kSuccess);
  EXPECT_EQ(api->memory_release(handle), CudaStatus::kSuccess);
}

}  // namespace
}  // namespace vdnn
