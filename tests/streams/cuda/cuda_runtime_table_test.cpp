// The table of CUDA's calls, on a runtime whose functions are found by name.

#include "streams/cuda/cuda_runtime_table.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

TEST(CudaRuntimeTable, WhatARuntimeLacksIsSaid) {
  const auto api = cuda::make_cuda_api([](const char*) -> void* { return nullptr; });
  EXPECT_THAT(api->why_missing(), AllOf(StartsWith("the CUDA runtime has no cuda"), HasSubstr("cudaMalloc"),
                                        HasSubstr("cudaGetDriverEntryPoint")));
}

// The real shared runtime must have every function under its name in the headers. Most test machines have no
// driver, so the calls themselves fail.
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

// CUDA 12.0 to 12.4 have no function that finds the driver's functions by version. Regression: these runtimes
// were refused.
TEST(CudaRuntimeTable, ARuntimeNeedsNotFindFunctionsOfTheDriverByVersion) {
  void* const library = dlopen(VDNN_STAND_IN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto api = cuda::make_cuda_api([library](const char* name) {
    return std::string_view(name) == "cudaGetDriverEntryPointByVersion" ? nullptr : dlsym(library, name);
  });
  ASSERT_EQ(api->why_missing(), "");
  CudaDeviceInfo info;
  EXPECT_EQ(api->device_info(info, 0), CudaStatus::kSuccess);
  EXPECT_TRUE(info.virtual_memory);
}

// NVML finds a MIG instance by its uuid. cuDeviceGetUuid() returns that uuid since CUDA 11.4, and that of the
// GPU in earlier versions.
TEST(CudaRuntimeTable, UuidsAreAskedForOfGpusAndOfTheirInstances) {
  static std::multimap<std::string, unsigned> versions;
  static cuda::FindInDriverByVersion next = nullptr;
  void* const library = dlopen(VDNN_STAND_IN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  next = reinterpret_cast<cuda::FindInDriverByVersion>(dlsym(library, "cudaGetDriverEntryPointByVersion"));
  const cuda::FindInDriverByVersion find = [](const char* name, void** function, unsigned version,
                                              unsigned long long flags,
                                              cudaDriverEntryPointQueryResult* answer) {
    versions.emplace(name, version);
    return next(name, function, version, flags, answer);
  };
  const auto api = cuda::make_cuda_api([&](const char* name) {
    return std::string_view(name) == "cudaGetDriverEntryPointByVersion" ? reinterpret_cast<void*>(find)
                                                                        : dlsym(library, name);
  });
  ASSERT_EQ(api->why_missing(), "");
  EXPECT_EQ(versions.count("cuDeviceGetUuid"), 2U);
  EXPECT_THAT(versions,
              AllOf(Contains(Pair("cuDeviceGetUuid", 10020U)), Contains(Pair("cuDeviceGetUuid", 11040U))));
}

TEST(CudaRuntimeTable, AskingWhatAGpuHasFreeLeavesTheThreadAsItIs) {
  void* const library = dlopen(VDNN_STAND_IN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto api = cuda::make_cuda_api([library](const char* name) { return dlsym(library, name); });
  ASSERT_EQ(api->why_missing(), "");
  ASSERT_EQ(api->set_device(0), CudaStatus::kSuccess);
  CudaContextHandle before = nullptr;
  CudaContextHandle after = nullptr;
  EXPECT_EQ(api->current_context(before), CudaStatus::kSuccess);
  std::uint64_t free = 0;
  std::uint64_t same = 0;
  std::uint64_t total = 0;
  EXPECT_EQ(api->gpu_free_bytes(free, 0), CudaStatus::kSuccess);
  EXPECT_EQ(api->memory_info(same, total), CudaStatus::kSuccess);
  EXPECT_EQ(free, same);
  EXPECT_EQ(api->current_context(after), CudaStatus::kSuccess);
  EXPECT_EQ(after, before);
  EXPECT_EQ(api->gpu_free_bytes(free, 7), CudaStatus::kInvalidDevice);
}

// The table on the stand-in, where calls have effects: the test fills memory of the driver and reads it back.
TEST(CudaRuntimeTable, CallsReachTheRuntimeThatWasFound) {
  void* const library = dlopen(VDNN_STAND_IN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto api = cuda::make_cuda_api([library](const char* name) { return dlsym(library, name); });
  ASSERT_EQ(api->why_missing(), "");
  const auto expect = [](CudaStatus status) { EXPECT_EQ(status, CudaStatus::kSuccess); };
  expect(api->set_device(0));
  CudaDeviceInfo info;
  expect(api->device_info(info, 0));
  EXPECT_EQ(info.name, "Fake GPU 0");
  EXPECT_EQ(info.uuid.front(), 0xfa);
  EXPECT_TRUE(info.virtual_memory);
  std::uint64_t granule = 0;
  expect(api->allocation_granularity(granule, {.ordinal = 0}));
  AddressRange range{.begin = 0, .bytes = granule};
  expect(api->address_reserve(range.begin, granule, granule));
  std::uint64_t handle = 0;
  expect(api->memory_create(handle, granule, {.ordinal = 0}));
  expect(api->memory_map(range, handle));
  expect(api->memory_release(handle));
  constexpr std::array kUsers{0};
  expect(api->memory_set_access(range, kUsers));
  CudaStream stream = nullptr;
  expect(api->stream_create(stream));
  std::array<int, 4> content{1, 2, 3, 4};
  std::array<int, 4> back{};
  const auto address = [](auto& of) { return reinterpret_cast<std::uintptr_t>(of.data()); };
  expect(
      api->memcpy_async(range.begin, address(content), sizeof content, CopyDirection::kHostToDevice, stream));
  expect(api->memcpy_async(address(back), range.begin, sizeof back, CopyDirection::kDeviceToHost, stream));
  expect(api->stream_synchronize(stream));
  EXPECT_EQ(back, content);
  expect(api->stream_destroy(stream));
  expect(api->memory_unmap(range));
  expect(api->address_free(range));
}

}  // namespace
}  // namespace vdnn
