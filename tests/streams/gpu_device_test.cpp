// The driver on the first GPU of this machine: the suite of all drivers, and cases that a fake cannot show.
// Without a GPU, each case is skipped with the reason.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/streams/device_conformance.h"
#include "vdnn/cuda_device.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) {
    throw DeviceError(cudaGetErrorName(status));
  }
}

// The callback owns its body, so the body is destroyed after the call.
void CUDART_CB call(void* body) {
  const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(body));
  (*owned)();
}

void launch(void* native_stream, std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  check(cudaLaunchHostFunc(static_cast<cudaStream_t>(native_stream), call, owned.get()));
  static_cast<void>(owned.release());
}

void move(void* native_stream, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(native_stream)));
}

std::string why_no_gpu() {
  try {
    make_cuda_device({});
    return "";
  } catch (const DeviceError& error) {
    return error.what();
  }
}

DeviceFactory first_gpu() {
  return {
      .name = "First",
      .make =
          [](std::uint64_t budget_bytes, std::uint64_t host_budget_bytes) {
            // The suite's budgets are for committed memory only.
            return make_cuda_device(
                {.budget_bytes = budget_bytes, .library_bytes = 0, .host_budget_bytes = host_budget_bytes});
          },
      .launch = launch,
      .move = move};
}

// The suite makes its devices during set-up, where a case cannot skip itself. So without a GPU the suite has
// no instance, and one case gives the reason.
std::vector<DeviceFactory> gpus() {
  return why_no_gpu().empty() ? std::vector{first_gpu()} : std::vector<DeviceFactory>{};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceConformance);
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceConformance, testing::ValuesIn(gpus()), device_name);

class GpuDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_gpu(); !reason.empty()) {
      GTEST_SKIP() << "no GPU to run on: " << reason;
    }
  }
};

TEST_F(GpuDevice, CommitsWhatTheCardSees) {
  constexpr std::uint64_t kBytes = std::uint64_t{512} << 20;
  const auto device = make_cuda_device({.budget_bytes = kBytes, .library_bytes = 0});
  const AddressRange range = device->reserve(kBytes);
  std::size_t before = 0;
  std::size_t committed = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&before, &total));
  device->commit(range);
  check(cudaMemGetInfo(&committed, &total));
  device->decommit(range);
  check(cudaMemGetInfo(&after, &total));
  constexpr std::uint64_t kPageTables = std::uint64_t{32} << 20;  // upper bound for the mapping
  EXPECT_GE(before - committed, kBytes);
  EXPECT_LE(before - committed, kBytes + kPageTables);
  EXPECT_LE(after, before);
  EXPECT_GE(after + kPageTables, before);
}

TEST_F(GpuDevice, MoreThanTheBudgetIsRefusedWithTheCardUnharmed) {
  constexpr std::uint64_t kBudget = std::uint64_t{64} << 20;
  const auto device = make_cuda_device({.budget_bytes = kBudget, .library_bytes = 0});
  const AddressRange range = device->reserve(2 * kBudget);
  EXPECT_THROW(device->commit(range), OutOfMemory);
  device->commit({.begin = range.begin, .bytes = kBudget});
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// Returns the reason why the second GPU cannot access memory of the first; empty if it can.
std::string why_no_peer() {
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus));
  if (gpus < 2) {
    return "there is one GPU";
  }
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, 1, 0));
  return can != 0 ? "" : "the second cannot touch memory of the first";
}

TEST_F(GpuDevice, APeerReadsMemoryAlsoWhereItWasCommittedLater) {
  if (const std::string reason = why_no_peer(); !reason.empty()) {
    GTEST_SKIP() << "no two GPUs to run on: " << reason;
  }
  constexpr std::uint64_t kBytes = std::uint64_t{8} << 20;
  const auto owner = make_cuda_device({.budget_bytes = kBytes, .library_bytes = 0, .peers = {1}});
  const auto peer = make_cuda_device({.ordinal = 1, .budget_bytes = kBytes, .library_bytes = 0});
  const StreamId fills = owner->create_stream("fills");
  const StreamId reads = peer->create_stream("reads");
  const std::uint64_t bytes = owner->properties().granule_bytes;
  const AddressRange block = owner->reserve(2 * bytes);
  const AddressRange there = peer->reserve(bytes);
  const AddressRange seen = peer->allocate_pinned(bytes);
  peer->commit(there);
  for (const int value : {7, 8}) {
    const AddressRange granule{.begin = block.begin + (value == 7 ? 0 : bytes), .bytes = bytes};
    owner->commit(granule);
    const auto run = [](Device& device, StreamId stream, std::function<void(void*)> give) {
      device.submit(stream, {.name = "work", .reads = {}, .writes = {}, .cost = {}, .run = std::move(give)});
      device.synchronize_all();
    };
    run(*owner, fills, [&](void* native) {
      check(
          cudaMemsetAsync(pointer_to<void>(granule.begin), value, bytes, static_cast<cudaStream_t>(native)));
    });
    run(*peer, reads, [&](void* native) {
      move(native, pointer_to<void>(there.begin), pointer_to<void>(granule.begin), bytes);
      move(native, pointer_to<void>(seen.begin), pointer_to<void>(there.begin), bytes);
    });
    const std::span<const std::uint8_t> found(pointer_to<std::uint8_t>(seen.begin), bytes);
    EXPECT_TRUE(std::ranges::all_of(found, [value](std::uint8_t byte) { return byte == value; }));
  }
}

}  // namespace
}  // namespace vdnn
