// CUDA's rules for captures and graphs, as the fake enforces them: CUDA Runtime API, "Stream
// Management", "Stream Ordered Memory Allocator" and "Graph Management"; CUDA Programming Guide, "Prohibited
// and Unhandled Operations".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tests/fakes/fake_cuda.h"

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

// --- waiting while a stream is captured --------------------------------------------------------------------

CudaStatus on_another_thread(const std::function<CudaStatus()>& call) {
  CudaStatus status = CudaStatus::kSuccess;
  std::thread([&] { status = call(); }).join();
  return status;
}

TEST_F(CaptureTest, NoThreadWaitsForAGpuWithACapturedStream) {
  for (const CaptureMode mode : {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    EXPECT_EQ(fake_.stream_begin_capture(captured_, mode), CudaStatus::kSuccess);
    const auto wait = [&] {
      fake_.set_device(0);
      auto relaxed = CaptureMode::kRelaxed;
      fake_.thread_exchange_capture_mode(relaxed);
      return fake_.device_synchronize();
    };
    EXPECT_EQ(on_another_thread(wait), CudaStatus::kStreamCaptureUnsupported);
    EXPECT_EQ(end(), CudaStatus::kStreamCaptureInvalidated);
    EXPECT_EQ(fake_.device_synchronize(), CudaStatus::kSuccess);
  }
}

TEST_F(CaptureTest, NoThreadQueriesACapturedStream) {
  using Ask = CudaStatus (FakeCuda::*)(CudaStream);
  for (const Ask ask : {&FakeCuda::stream_synchronize, &FakeCuda::stream_query}) {
    EXPECT_EQ(fake_.stream_begin_capture(captured_, CaptureMode::kRelaxed), CudaStatus::kSuccess);
    EXPECT_EQ(on_another_thread([&] { return (fake_.*ask)(captured_); }),
              CudaStatus::kStreamCaptureUnsupported);
    EXPECT_EQ(end(), CudaStatus::kStreamCaptureInvalidated);
    begin();
    EXPECT_EQ(on_another_thread([&] { return (fake_.*ask)(other_); }), CudaStatus::kSuccess);
    EXPECT_EQ(end(), CudaStatus::kSuccess);
    fake_.graph_destroy(graph_);
  }
}

TEST_F(CaptureTest, TheLegacyStreamStandsForBlockingStreamsThatAreCaptured) {
  CudaStream blocking = nullptr;
  fake_.stream_create_blocking(blocking);
  const CudaStream legacy = fake_.stream_of(nullptr);
  bool capturing = false;
  begin();
  EXPECT_EQ(fake_.stream_is_capturing(capturing, legacy), CudaStatus::kSuccess) << "the other does not block";
  EXPECT_EQ(end(), CudaStatus::kSuccess);
  fake_.graph_destroy(graph_);
  EXPECT_EQ(fake_.stream_begin_capture(blocking), CudaStatus::kSuccess);
  EXPECT_EQ(fake_.stream_is_capturing(capturing, legacy), CudaStatus::kStreamCaptureImplicit);
  EXPECT_EQ(fake_.stream_end_capture(graph_, blocking), CudaStatus::kSuccess) << "the capture stays valid";
  fake_.graph_destroy(graph_);
  EXPECT_EQ(fake_.stream_begin_capture(blocking), CudaStatus::kSuccess);
  EXPECT_EQ(on_another_thread([&] { return fake_.stream_query(legacy); }),
            CudaStatus::kStreamCaptureImplicit);
  EXPECT_EQ(fake_.stream_end_capture(graph_, blocking), CudaStatus::kStreamCaptureInvalidated);
  fake_.stream_destroy(blocking);
}

// --- modes -------------------------------------------------------------------------------------------------

struct Modes {
  CaptureMode of_capture;
  CaptureMode of_thread;
  bool allowed;            // for the thread that captures
  bool allowed_elsewhere;  // for other threads with the same mode
};

class CaptureModesTest : public CaptureTest, public ::testing::WithParamInterface<Modes> {
 protected:
  // Calls cudaMalloc, the documentation's own example.
  bool may_allocate() {
    auto mode = GetParam().of_thread;
    fake_.set_device(0);
    fake_.thread_exchange_capture_mode(mode);
    std::uint64_t address = 0;
    const CudaStatus status = fake_.malloc(address, kBytes);
    fake_.thread_exchange_capture_mode(mode);
    EXPECT_EQ(mode, GetParam().of_thread) << "the exchange returns the earlier mode";
    if (status == CudaStatus::kSuccess) {
      allocated_.push_back(address);
    }
    return status == CudaStatus::kSuccess;
  }
  void capture(const std::function<bool()>& call, bool allowed) {
    EXPECT_EQ(fake_.stream_begin_capture(captured_, GetParam().of_capture), CudaStatus::kSuccess);
    EXPECT_EQ(call(), allowed);
    EXPECT_EQ(end(), allowed ? CudaStatus::kSuccess : CudaStatus::kStreamCaptureInvalidated);
    if (allowed) {
      fake_.graph_destroy(graph_);
    }
  }

  std::vector<std::uint64_t> allocated_;
};

TEST_P(CaptureModesTest, SayWhatAThreadMayDoMeanwhile) {
  capture([this] { return may_allocate(); }, GetParam().allowed);
  capture(
      [this] {
        bool allowed = false;
        std::thread([&] { allowed = may_allocate(); }).join();
        return allowed;
      },
      GetParam().allowed_elsewhere);
  for (const std::uint64_t address : allocated_) {
    fake_.free(address);
  }
  expect_nothing_wrong();
}

constexpr CaptureMode kGlobal = CaptureMode::kGlobal;
constexpr CaptureMode kLocal = CaptureMode::kThreadLocal;
constexpr CaptureMode kRelaxed = CaptureMode::kRelaxed;
INSTANTIATE_TEST_SUITE_P(
    Modes, CaptureModesTest,
    ::testing::Values(Modes{kGlobal, kGlobal, false, false}, Modes{kGlobal, kLocal, false, true},
                      Modes{kGlobal, kRelaxed, true, true}, Modes{kLocal, kGlobal, false, true},
                      Modes{kLocal, kLocal, false, true}, Modes{kLocal, kRelaxed, true, true},
                      Modes{kRelaxed, kGlobal, true, true}, Modes{kRelaxed, kLocal, true, true},
                      Modes{kRelaxed, kRelaxed, true, true}));

}  // namespace
}  // namespace vdnn
