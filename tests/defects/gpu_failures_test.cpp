// Defects of memory and of failures (docs/known_defects.md) in the `cuda` driver. The fake runtime counts the
// calls that reach CUDA and the leaks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "streams/cuda/cuda_device.h"
#include "tests/exec/executor_rig.h"
#include "tests/exec/networks.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/launching_device.h"
#include "vdnn/error.h"

namespace vdnn::testing::gpu_failures_test {
namespace {

using ::testing::AnyOf;
using ::testing::IsEmpty;

constexpr std::uint64_t kGranule = 64 << 10;
constexpr std::uint64_t kBlocks = 3;
constexpr StreamId kCompute = 0;
constexpr StreamId kOffload = 1;
constexpr StreamId kPrefetch = 2;

class KnownDefectsOnCuda : public ::testing::Test {
 protected:
  void TearDown() override { give_back(); }

  // Destroys the device, and fails the test if the fake has seen misuse or a leak.
  void give_back() {
    device_.reset();
    cuda_.reset();
    if (fake_) {
      EXPECT_THAT(fake_->misuses(), IsEmpty());
      EXPECT_THAT(fake_->leaks(), IsEmpty());
      for (const SimFinding& finding : fake_->findings()) {
        ADD_FAILURE() << finding.text;
      }
    }
  }
  // Makes a GPU with `bytes` each of device memory and of page-locked memory; 0: more than any test needs.
  void have(std::uint64_t bytes, std::uint64_t seed = 0) {
    give_back();
    fake_ = std::make_shared<FakeCuda>(
        FakeCudaOptions{.seed = seed, .granule_bytes = kGranule, .logical_memory = true});
    cuda_ = make_cuda_device({.budget_bytes = bytes, .host_budget_bytes = bytes}, fake_);
    device_ = std::make_unique<LaunchingDevice>(*cuda_, fake_);
  }
  std::uint64_t host_waits() const {
    return fake_->calls("cudaEventSynchronize") + fake_->calls("cudaStreamSynchronize") +
           fake_->calls("cudaEventQuery");
  }
  std::uint64_t memory_calls() const {
    return fake_->calls("cuMemCreate") + fake_->calls("cuMemUnmap") + fake_->calls("cudaHostRegister") +
           fake_->calls("cudaHostUnregister");
  }

  std::shared_ptr<FakeCuda> fake_;
  std::unique_ptr<Device> cuda_;
  std::unique_ptr<LaunchingDevice> device_;
};

// --- 4 -----------------------------------------------------------------------------------------------------

// After the first step, no call page-locks memory or reaches CUDA's allocator. The test would notice a pool
// that gives blocks back between steps.
TEST_F(KnownDefectsOnCuda, PageLockingInsideTheLoop) {
  have(0);
  const TapePtr tape = training_tape(random_network(1));
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadAll);
  ExecutorRig rig(*device_, *tape);
  Executor executor(rig.parts(*tape, schedule));
  StepLoop loop(rig, executor);
  loop.step();
  const std::uint64_t first = memory_calls();
  loop.run(10);
  EXPECT_EQ(memory_calls(), first);
  rig.pinned.trim();
  loop.step();
  EXPECT_GT(memory_calls(), first);
}

// --- 6, 7 --------------------------------------------------------------------------------------------------

class KnownDefectsOnAFullGpu : public KnownDefectsOnCuda {
 protected:
  KnownDefectsOnAFullGpu() {
    have(kBlocks * kGranule);
    for (const char* const name : {"compute", "offload", "prefetch"}) {
      device_->create_stream(name);
    }
  }

  Frontier use(StreamId stream, const char* name, AddressRange block) {
    const Access write{.range = block};
    return Frontier(
        device_->submit(stream, {.name = name, .reads = {}, .writes = {&write, 1}, .cost = {}, .run = {}}));
  }
};

// All memory is in use, and one block is freed with work in flight on it. The next request gets this block.
// CUDA sees one wait of a stream for an event; the host does not wait, nothing is allocated, and order is
// kept.
TEST_F(KnownDefectsOnAFullGpu, OutOfMemoryThoughAFittingBlockCameBack) {
  DevicePool pool(*device_, {});
  PinnedPool pinned(*device_);
  std::array<AddressRange, kBlocks> blocks;
  std::array<AddressRange, kBlocks> host_blocks;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    blocks[i] = pool.allocate(kGranule, kCompute).value();
    host_blocks[i] = pinned.allocate(kGranule, kCompute).value();
  }
  use(kCompute, "compute", blocks[0]);
  pool.free(blocks[1], use(kOffload, "offload", blocks[1]));
  pinned.free(host_blocks[1], use(kOffload, "offload to host", host_blocks[1]));
  const std::uint64_t waits = host_waits();
  const std::uint64_t taken = memory_calls();
  const std::uint64_t ordered = fake_->calls("cudaStreamWaitEvent");

  EXPECT_EQ(pool.allocate(kGranule, kPrefetch), blocks[1]);
  use(kPrefetch, "prefetch", blocks[1]);
  EXPECT_EQ(fake_->calls("cudaStreamWaitEvent"), ordered + 1);
  EXPECT_EQ(pinned.allocate(kGranule, kPrefetch), host_blocks[1]);
  use(kPrefetch, "prefetch from host", host_blocks[1]);
  EXPECT_EQ(fake_->calls("cudaStreamWaitEvent"), ordered + 2);
  EXPECT_EQ(memory_calls(), taken);
  EXPECT_EQ(host_waits(), waits);
  for (std::size_t i = 0; i < kBlocks; ++i) {
    pool.free(blocks[i], device_->frontier(kPrefetch));
    pinned.free(host_blocks[i], device_->frontier(kPrefetch));
  }
}

// No memory will be freed, so both pools report the shortage at once, without a call of CUDA.
TEST_F(KnownDefectsOnAFullGpu, WaitingForMemoryWithNothingInFlight) {
  DevicePool pool(*device_, {});
  PinnedPool pinned(*device_);
  const AddressRange block = pool.allocate(kBlocks * kGranule, kCompute).value();
  const AddressRange host_block = pinned.allocate(kBlocks * kGranule, kCompute).value();
  const std::uint64_t calls = fake_->calls();
  EXPECT_FALSE(pool.allocate(1, kOffload).has_value());
  EXPECT_FALSE(pinned.allocate(1, kOffload).has_value());
  EXPECT_FALSE(pinned.allocate_for_host(1).has_value());
  EXPECT_EQ(fake_->calls(), calls);
  pool.free(block, {});
  pinned.free(host_block, {});
}

// --- 5, 9 --------------------------------------------------------------------------------------------------

// Each call that two steps make fails once, while an earlier step is in flight. The caller that steps or
// waits gets the error, and CUDA does not report the error again at the thread's next launch. Once the
// executor is destroyed, all of its memory is free again, and another executor runs steps in the same memory.
TEST_F(KnownDefectsOnCuda, StashedMapsKeptAfterACallOfAStepFailed) {
  const TapePtr tape = training_tape(zoo_network("lenet", 1));
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadAll);
  for (const CudaStatus status : {CudaStatus::kInvalidValue, CudaStatus::kMemoryAllocation}) {
    std::uint64_t nth = 1;
    for (bool told = true; told && !HasFailure(); ++nth) {
      SCOPED_TRACE("call " + std::to_string(nth) + " fails with " + std::to_string(static_cast<int>(status)));
      have(0, nth);
      ExecutorRig rig(*device_, *tape);
      const auto in_use = [&] {
        return rig.pool.statistics().in_use_bytes + rig.pinned.statistics().in_use_bytes;
      };
      const std::uint64_t before = in_use();
      try {
        Executor executor(rig.parts(*tape, schedule));
        StepLoop loop(rig, executor);
        loop.step();
        fake_->fail_call(nth, status);
        loop.run(2);
        device_->synchronize_all();
        // No caller learns of a failure to restore the thread's capture mode.
        told = !fake_->failed_call().empty();
        EXPECT_THAT(fake_->failed_call(), AnyOf("", "cudaThreadExchangeStreamCaptureMode"));
        fake_->fail_call(0, status);
      } catch (const Error&) {
      }
      EXPECT_EQ(fake_->get_last_error(), CudaStatus::kSuccess) << "after " << fake_->failed_call();
      EXPECT_EQ(in_use(), before);
      device_->recover();
      Executor executor(rig.parts(*tape, schedule));
      StepLoop(rig, executor).run(3);
    }
    std::cout << "  " << nth - 2 << " calls of steps failed\n";
    EXPECT_GT(nth, 100U);
  }
}

}  // namespace
}  // namespace vdnn::testing::gpu_failures_test
