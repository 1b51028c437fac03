// What the fake holds captures and graphs to, as CUDA's documentation has it: CUDA Runtime API, "Stream
// Management", "Stream Ordered Memory Allocator" and "Graph Management"; CUDA Programming Guide, "Prohibited
// and Unhandled Operations".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "fakes/fake_cuda.h"

namespace vdnn {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kBytes = 1 << 20;

class CaptureTest : public ::testing::Test {
 protected:
  CaptureTest() {
    fake_.set_device(0);
    fake_.stream_create(captured_);
    fake_.stream_create(other_);
  }
  ~CaptureTest() override {
    fake_.stream_destroy(captured_);
    fake_.stream_destroy(other_);
  }
  CaptureTest(const CaptureTest&) = delete;
  CaptureTest& operator=(const CaptureTest&) = delete;

  void begin() { EXPECT_EQ(fake_.stream_begin_capture(captured_), CudaStatus::kSuccess); }
  CudaStatus end() { return fake_.stream_end_capture(graph_, captured_); }
  void instantiate() {
    EXPECT_EQ(end(), CudaStatus::kSuccess);
    EXPECT_EQ(fake_.graph_instantiate(exec_, graph_), CudaStatus::kSuccess);
  }
  void destroy() {
    fake_.graph_exec_destroy(exec_);
    fake_.graph_destroy(graph_);
  }
  std::uint64_t allocate(CudaStream stream) {
    std::uint64_t address = 0;
    EXPECT_EQ(fake_.malloc_async(address, kBytes, stream), CudaStatus::kSuccess);
    return address;
  }
  static void write(CudaStream stream, std::uint64_t address) {
    const Access access{.range = {.begin = address, .bytes = kBytes}};
    FakeCuda::launch(stream, [] {}, {.name = "writes", .reads = {}, .writes = {&access, 1}});
  }
  void expect_nothing_wrong() {
    EXPECT_THAT(fake_.misuses(), IsEmpty());
    EXPECT_THAT(fake_.findings(), IsEmpty());
    EXPECT_THAT(fake_.leaks(), SizeIs(2)) << "the streams";
  }

  FakeCuda fake_{{.memory_bytes = 16 * kBytes, .logical_memory = true}};
  CudaStream captured_ = nullptr;
  CudaStream other_ = nullptr;
  CudaGraph graph_ = nullptr;
  CudaExec exec_ = nullptr;
};

TEST_F(CaptureTest, MemoryOfAGraphHasItsAddressAtEachLaunchAndIsNoOthers) {
  begin();
  const std::uint64_t address = allocate(captured_);
  write(captured_, address);
  EXPECT_EQ(fake_.free_async(address, captured_), CudaStatus::kSuccess);
  instantiate();
  for (int launch = 0; launch < 3; ++launch) {
    const std::uint64_t beside = allocate(captured_);
    EXPECT_NE(beside, address);
    EXPECT_EQ(fake_.graph_launch(exec_, captured_), CudaStatus::kSuccess);
    EXPECT_EQ(fake_.free_async(beside, captured_), CudaStatus::kSuccess);
  }
  EXPECT_EQ(fake_.stream_synchronize(captured_), CudaStatus::kSuccess);
  EXPECT_EQ(fake_.mapped_bytes(), 0U);
  destroy();
  expect_nothing_wrong();
}

TEST_F(CaptureTest, MemoryThatAGraphLeavesIsFreedBeforeItIsLaunchedAgain) {
  begin();
  const std::uint64_t address = allocate(captured_);
  instantiate();
  EXPECT_EQ(fake_.graph_launch(exec_, captured_), CudaStatus::kSuccess);
  write(captured_, address);
  EXPECT_EQ(fake_.graph_launch(exec_, captured_), CudaStatus::kInvalidValue);
  EXPECT_EQ(fake_.free_async(address, captured_), CudaStatus::kSuccess);
  EXPECT_EQ(fake_.graph_launch(exec_, captured_), CudaStatus::kSuccess);
  EXPECT_EQ(fake_.stream_synchronize(captured_), CudaStatus::kSuccess);
  EXPECT_EQ(fake_.free(address), CudaStatus::kSuccess);
  destroy();
  expect_nothing_wrong();
}

TEST_F(CaptureTest, MemoryOfAGraphIsThereFromTheLaunchToTheFree) {
  begin();
  const std::uint64_t address = allocate(captured_);
  instantiate();
  write(captured_, address);
  EXPECT_THAT(fake_.findings(), SizeIs(1)) << "not yet";
  EXPECT_EQ(fake_.graph_launch(exec_, captured_), CudaStatus::kSuccess);
  write(captured_, address);
  EXPECT_THAT(fake_.findings(), SizeIs(1));
  EXPECT_EQ(fake_.free_async(address, captured_), CudaStatus::kSuccess);
  write(captured_, address);
  EXPECT_THAT(fake_.findings(), SizeIs(2)) << "no more";
  destroy();
}

TEST_F(CaptureTest, OnlyMemoryOfAGraphIsFreedInACapture) {
  const std::uint64_t eager = allocate(captured_);
  begin();
  EXPECT_EQ(fake_.free_async(eager, captured_), CudaStatus::kInvalidValue);
  EXPECT_THAT(fake_.misuses(), SizeIs(1));
  EXPECT_EQ(end(), CudaStatus::kSuccess);
  fake_.graph_destroy(graph_);
  EXPECT_EQ(fake_.free_async(eager, captured_), CudaStatus::kSuccess);
}

TEST_F(CaptureTest, AGraphThatAllocatesIsInstantiatedOnce) {
  begin();
  const std::uint64_t address = allocate(captured_);
  EXPECT_EQ(fake_.free_async(address, captured_), CudaStatus::kSuccess);
  instantiate();
  CudaExec second = nullptr;
  EXPECT_EQ(fake_.graph_instantiate(second, graph_), CudaStatus::kInvalidValue);
  EXPECT_EQ(fake_.graph_exec_destroy(exec_), CudaStatus::kSuccess);
  EXPECT_EQ(fake_.graph_instantiate(exec_, graph_), CudaStatus::kSuccess);
  destroy();
}

}  // namespace
}  // namespace vdnn
