// A defect of programs on several GPUs (docs/known_defects.md), tested in the `cuda` driver over the fake
// runtime. The fake knows which memory each GPU may access.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "streams/cuda/cuda_device.h"
#include "tests/fakes/fake_cuda.h"

namespace vdnn::testing::peers_test {
namespace {

using ::testing::IsEmpty;

// The size of a granule on GPUs without virtual memory.
constexpr std::uint64_t kGranule = 2 << 20;
constexpr int kReaders = 2;

// Memory of one GPU that two other GPUs read. The parameter is whether the GPUs have virtual memory.
class KnownDefectsOfPeers : public ::testing::TestWithParam<bool> {
 protected:
  void have(std::vector<int> peers) {
    for (int ordinal = 1; ordinal <= kReaders; ++ordinal) {
      readers_.push_back(make_cuda_device({.ordinal = ordinal, .reserve_bytes = 0}, fake_));
      readers_.back()->create_stream("reads");
    }
    owner_ = make_cuda_device({.peers = std::move(peers), .reserve_bytes = 0}, fake_);
    owner_->create_stream("fills");
    block_ = owner_->reserve(3 * kGranule);
  }
  AddressRange granule(std::uint64_t nth) const {
    return {.begin = block_.begin + nth * kGranule, .bytes = kGranule};
  }
  void fill(AddressRange range, int value) const {
    run(*owner_, [&](void* native) {
      const Access filled{.range = range};
      const CudaStatus launched =
          FakeCuda::launch(native, [=] { std::memset(pointer_to<void>(range.begin), value, range.bytes); },
                           {.name = "fill", .reads = {}, .writes = {&filled, 1}});
      EXPECT_EQ(launched, CudaStatus::kSuccess);
    });
  }
  // Reads `range` by a kernel and by a copy of GPU `ordinal`; returns the copied bytes.
  std::vector<std::uint8_t> read(int ordinal, AddressRange range) const {
    Device& reader = *readers_.at(static_cast<std::size_t>(ordinal - 1));
    const AddressRange seen = reader.allocate_pinned(range.bytes);
    run(reader, [&](void* native) {
      const Access read{.range = range};
      FakeCuda::launch(native, [] {}, {.name = "read", .reads = {&read, 1}, .writes = {}});
      fake_->memcpy_async(seen.begin, range.begin, range.bytes, CopyDirection::kDeviceToHost, native);
    });
    std::vector<std::uint8_t> bytes(range.bytes);
    std::memcpy(bytes.data(), pointer_to<void>(seen.begin), bytes.size());
    reader.free_pinned(seen);
    return bytes;
  }
  // Returns whether the fake has reported an access without permission. It must report either both the kernel
  // and the copy, or neither.
  bool found() const {
    const std::vector<SimFinding> findings = fake_->findings();
    const bool by_kernel =
        std::ranges::any_of(findings, [](const SimFinding& finding) { return finding.second == "read"; });
    EXPECT_EQ(by_kernel, !fake_->misuses().empty()) << "kernel and copy are judged alike";
    return by_kernel;
  }
  void expect_spotless() {
    owner_.reset();
    readers_.clear();
    EXPECT_THAT(fake_->misuses(), IsEmpty());
    EXPECT_THAT(fake_->leaks(), IsEmpty());
    EXPECT_THAT(fake_->findings(), IsEmpty());
  }

  const std::shared_ptr<FakeCuda> fake_ = std::make_shared<FakeCuda>(
      FakeCudaOptions{.gpus = 1 + kReaders, .memory_bytes = 16 * kGranule, .virtual_memory = GetParam()});
  std::vector<std::unique_ptr<Device>> readers_;
  std::unique_ptr<Device> owner_;
  AddressRange block_;

 private:
  // Runs `give` on the device's first stream and waits for it.
  static void run(Device& device, std::function<void(void*)> give) {
    device.submit(0, {.name = "work", .reads = {}, .writes = {}, .cost = {}, .run = std::move(give)});
    device.synchronize_all();
  }
};

// The driver grants each peer access to each mapping, including mappings made while others are in use.
TEST_P(KnownDefectsOfPeers, BlocksNeedAccessGrantedForEachPeer) {
  have({2, 1});
  const auto expect_read = [this](AddressRange range, std::uint8_t value) {
    fill(range, value);
    for (const int ordinal : {1, 2}) {
      const std::vector<std::uint8_t> seen = read(ordinal, range);
      EXPECT_TRUE(std::ranges::all_of(seen, [value](std::uint8_t byte) { return byte == value; }))
          << "on cuda:" << ordinal;
    }
  };
  owner_->commit(granule(0));
  expect_read(granule(0), 7);
  owner_->commit({.begin = granule(1).begin, .bytes = 2 * kGranule});
  expect_read({.begin = granule(1).begin, .bytes = 2 * kGranule}, 8);
  owner_->decommit(granule(1));
  owner_->commit(granule(1));
  expect_read(granule(1), 9);
  expect_spotless();
}

TEST_P(KnownDefectsOfPeers, AGpuThatIsNoPeerIsFound) {
  have({2});
  owner_->commit(granule(0));
  fill(granule(0), 7);
  read(2, granule(0));
  EXPECT_FALSE(found());
  read(1, granule(0));
  EXPECT_TRUE(found());
}

// Without virtual memory, peers get access once for the whole process; a second device must accept that it is
// already granted.
TEST_P(KnownDefectsOfPeers, ASecondDeviceOfAGpuHasTheSamePeers) {
  have({1});
  const auto second = make_cuda_device({.budget_bytes = kGranule, .library_bytes = 0, .peers = {1}}, fake_);
  const AddressRange block = second->reserve(kGranule);
  second->commit(block);
  read(1, block);
  EXPECT_FALSE(found());
}

INSTANTIATE_TEST_SUITE_P(Cuda, KnownDefectsOfPeers, ::testing::Bool(), [](const auto& instance) {
  return instance.param ? "VirtualMemory" : "PlainMemory";
});

}  // namespace
}  // namespace vdnn::testing::peers_test
