// The table of CUDA's calls on a runtime that is found by name.

#include "streams/cuda/cuda_runtime_table.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CudaRuntimeTable, WhatARuntimeLacksIsSaid) {
  const auto api = cuda::make_cuda_api([](const char*) -> void* { return nullptr; });
  EXPECT_THAT(api->why_missing(), AllOf(StartsWith("the CUDA runtime has no cuda"), HasSubstr("cudaMalloc"),
                                        HasSubstr("cudaGetDriverEntryPointByVersion")));
}

// The shared runtime itself, which has every function under the name that the headers give it, and no driver
// on most machines that test.
TEST(CudaRuntimeTable, CudasOwnRuntimeHasEveryName) {
  void* const library = dlopen(VDNN_CUDART, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto api = cuda::make_cuda_api([library](const char* name) { return dlsym(library, name); });
  EXPECT_THAT(api->why_missing(), Not(HasSubstr("runtime")));
  EXPECT_EQ(api->runtime_version(), CUDART_VERSION);
  EXPECT_EQ(api->error_name(CudaStatus::kMemoryAllocation), "cudaErrorMemoryAllocation");
}

TEST(CudaRuntimeTable, OneNameThatIsMissingIsNamedAlone) {
  void* const library = dlopen(VDNN_CUDART, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto api = cuda::make_cuda_api([library](const char* name) {
    return std::string_view(name) == "cudaStreamGetId" ? nullptr : dlsym(library, name);
  });
  EXPECT_EQ(api->why_missing(), "the CUDA runtime has no cudaStreamGetId");
}

}  // namespace
}  // namespace vdnn
