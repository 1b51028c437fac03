// The fake's judgement of order, each rule with what it would say without: whoever is found clean elsewhere
// is so by these rules. And its logical memory.

#include "fakes/fake_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "streams/cuda/cuda_device.h"
#include "vdnn/size.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kGranule = 4 << 10;
constexpr std::array kFirst = {0};
constexpr std::array kSecond = {1};

// What was found, as "earlier, later".
std::vector<std::string> pairs(const FakeCuda& fake) {
  std::vector<std::string> result;
  for (const SimFinding& finding : fake.findings()) {
    result.push_back(finding.first + ", " + finding.second);
  }
  return result;
}

// Two granules that are mapped, a page that is locked, and three streams, in CUDA's own calls.
class CudaOrderTest : public ::testing::Test {
 protected:
  CudaOrderTest() {
    expect(fake_.set_device(0));
    for (CudaStream* const stream : {&a_, &b_, &c_}) {
      expect(fake_.stream_create(*stream));
    }
    for (CudaEvent* const event : {&event_, &other_event_}) {
      expect(fake_.event_create(*event, false));
    }
    expect(fake_.address_reserve(x_.begin, 2 * kGranule, kGranule));
    y_.begin = x_.begin + kGranule;
    for (const AddressRange granule : {x_, y_}) {
      std::uint64_t handle = 0;
      expect(fake_.memory_create(handle, kGranule, 0));
      expect(fake_.memory_map(granule, handle));
      expect(fake_.memory_release(handle));
    }
    expect(fake_.memory_set_access({.begin = x_.begin, .bytes = 2 * kGranule}, kFirst));
    expect(fake_.host_register(host_.range()));
  }
  ~CudaOrderTest() override { EXPECT_THAT(fake_.misuses(), IsEmpty()); }

  static void expect(CudaStatus status) { EXPECT_EQ(status, CudaStatus::kSuccess); }

  using Ranges = std::vector<AddressRange>;
  static void kernel(CudaStream stream, const char* name, const Ranges& reads, const Ranges& writes) {
    const auto accesses = [](const Ranges& ranges) {
      std::vector<Access> result(ranges.size());
      std::ranges::transform(ranges, result.begin(),
                             [](AddressRange range) { return Access{.range = range}; });
      return result;
    };
    expect(FakeCuda::launch(stream, [] {},
                            {.name = name, .reads = accesses(reads), .writes = accesses(writes)}));
  }
  void copy(CudaStream stream, const char* name, CopyDirection direction) {
    const bool to_host = direction == CopyDirection::kDeviceToHost;
    fake_.name_copies(name);
    expect(fake_.memcpy_async(to_host ? host_.range().begin : x_.begin,
                              to_host ? x_.begin : host_.range().begin, kGranule, direction, stream));
  }
  void record(CudaStream stream) { expect(fake_.event_record(event_, stream)); }
  void wait(CudaStream stream) { expect(fake_.stream_wait_event(stream, event_)); }

  // With this seed nothing runs before the host waits.
  FakeCuda fake_{{.seed = 0, .gpus = 2, .granule_bytes = kGranule}};
  CudaStream a_ = nullptr;
  CudaStream b_ = nullptr;
  CudaStream c_ = nullptr;
  CudaEvent event_ = nullptr;
  CudaEvent other_event_ = nullptr;
  AddressRange x_{.bytes = kGranule};
  AddressRange y_{.bytes = kGranule};
  const Mapping host_ = Mapping::make(kGranule, kPageBytes, Mapping::Kind::kUntouched).value();
};

TEST_F(CudaOrderTest, AStreamIsInOrder) {
  kernel(a_, "makes x", {}, {x_});
  kernel(a_, "reads x", {x_}, {});
  kernel(a_, "makes x anew", {}, {x_});
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_F(CudaOrderTest, StreamsAreNotOrderedAmongEachOther) {
  kernel(a_, "makes x", {}, {x_});
  kernel(b_, "reads x", {x_}, {});
  kernel(b_, "makes y", {}, {y_});
  kernel(c_, "makes x anew", {}, {x_});
  EXPECT_THAT(pairs(fake_),
              ElementsAre("makes x, reads x", "makes x, makes x anew", "reads x, makes x anew"));
  EXPECT_THAT(fake_.findings()[0].text,
              AllOf(HasSubstr("'reads x' reads what 'makes x' writes"), HasSubstr("nothing orders")));
}

TEST_F(CudaOrderTest, ReadersNeedNoOrder) {
  kernel(a_, "reads x", {x_}, {});
  kernel(b_, "reads x too", {x_}, {});
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_F(CudaOrderTest, WorkspaceOfTwoKernelsThatOverlapsByAByteIsFound) {
  kernel(a_, "left", {}, {x_});
  kernel(b_, "right", {}, {{.begin = x_.end() - 1, .bytes = 2}});
  EXPECT_THAT(pairs(fake_), ElementsAre("left, right"));
  EXPECT_EQ(fake_.findings()[0].range, (AddressRange{.begin = x_.end() - 1, .bytes = 1}));
}

TEST_F(CudaOrderTest, AnEventThatIsWaitedForOrders) {
  kernel(a_, "makes x", {}, {x_});
  record(a_);
  wait(b_);
  kernel(b_, "reads x", {x_}, {});
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_F(CudaOrderTest, AnEventThatNobodyWaitsForDoesNot) {
  kernel(a_, "makes x", {}, {x_});
  record(a_);
  wait(c_);  // another stream than the one that needs it
  kernel(b_, "reads x", {x_}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, reads x"));
}

TEST_F(CudaOrderTest, AnEventThatWasNeverRecordedDoesNot) {
  kernel(a_, "makes x", {}, {x_});
  wait(b_);
  kernel(b_, "reads x", {x_}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, reads x"));
}

TEST_F(CudaOrderTest, AnEventStandsForWhatWasSubmittedBeforeIt) {
  record(a_);
  kernel(a_, "makes x", {}, {x_});
  wait(b_);
  kernel(b_, "reads x", {x_}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, reads x"));
}

TEST_F(CudaOrderTest, AWaitIsForTheEventAsItWasRecordedThen) {
  record(a_);
  wait(b_);
  kernel(a_, "makes x", {}, {x_});
  record(a_);
  kernel(b_, "reads x", {x_}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, reads x"));
}

TEST_F(CudaOrderTest, OrderGoesOnFromStreamToStream) {
  kernel(a_, "makes x", {}, {x_});
  record(a_);
  wait(b_);
  expect(fake_.event_record(other_event_, b_));
  expect(fake_.stream_wait_event(c_, other_event_));
  kernel(c_, "reads x", {x_}, {});
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_F(CudaOrderTest, WhatTheHostHasWaitedForComesBeforeAllThatItSubmitsThen) {
  kernel(a_, "makes x", {}, {x_});
  record(a_);
  expect(fake_.event_synchronize(event_));
  kernel(b_, "reads x", {x_}, {});
  expect(fake_.stream_synchronize(b_));
  kernel(c_, "makes x anew", {}, {x_});
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_F(CudaOrderTest, WhatTheHostHasWaitedForIsWhatWasRecorded) {
  kernel(a_, "makes y", {}, {y_});
  record(a_);
  kernel(a_, "makes x", {}, {x_});
  expect(fake_.event_synchronize(event_));
  kernel(b_, "reads y", {y_}, {});
  kernel(b_, "reads x", {x_}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, reads x"));
}

TEST_F(CudaOrderTest, AQueryThatSaysNotYetOrdersNothing) {
  kernel(a_, "makes x", {}, {x_});
  record(a_);
  EXPECT_EQ(fake_.event_query(event_), CudaStatus::kNotReady);
  EXPECT_EQ(fake_.get_last_error(), CudaStatus::kNotReady);
  kernel(b_, "reads x", {x_}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, reads x"));
}

TEST_F(CudaOrderTest, AQueryThatSaysDoneIsAWait) {
  kernel(a_, "makes x", {}, {x_});
  record(a_);
  expect(fake_.event_record(other_event_, a_));
  expect(fake_.event_synchronize(other_event_));
  expect(fake_.event_query(event_));
  kernel(b_, "reads x", {x_}, {});
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_F(CudaOrderTest, BothSidesOfACopyAreAccesses) {
  copy(a_, "offload", CopyDirection::kDeviceToHost);
  kernel(b_, "makes x anew", {}, {x_});
  copy(b_, "prefetch", CopyDirection::kHostToDevice);
  EXPECT_THAT(pairs(fake_), ElementsAre("offload, makes x anew", "offload, prefetch"));
  EXPECT_EQ(fake_.findings()[1].range, host_.range());
}

TEST_F(CudaOrderTest, TheHostReadsAResultAfterItHasWaitedForIt) {
  for (const bool waits : {true, false}) {
    copy(a_, "read loss", CopyDirection::kDeviceToHost);
    if (waits) {
      expect(fake_.stream_synchronize(a_));
    }
    fake_.touch_on_host(host_.range(), "loss");
    EXPECT_EQ(fake_.findings().empty(), waits);
  }
  EXPECT_THAT(pairs(fake_), ElementsAre("read loss, loss"));
}

TEST_F(CudaOrderTest, WhatIsInUseMayNotBeUnmapped) {
  for (const AddressRange granule : {x_, y_}) {
    kernel(a_, "reads", {granule}, {});
    if (granule == x_) {
      expect(fake_.stream_synchronize(a_));
    }
    expect(fake_.memory_unmap(granule));
  }
  EXPECT_THAT(pairs(fake_), ElementsAre("reads, cuMemUnmap"));
  EXPECT_EQ(fake_.findings()[0].range, y_);
}

TEST_F(CudaOrderTest, WhatIsInUseMayNotBeUnlocked) {
  copy(a_, "offload", CopyDirection::kDeviceToHost);
  expect(fake_.host_unregister(host_.range().begin));
  expect(fake_.stream_synchronize(b_));
  EXPECT_THAT(pairs(fake_), ElementsAre("offload, cudaHostUnregister"));
  expect(fake_.host_register(host_.range()));  // the copy is still to come
}

TEST_F(CudaOrderTest, KernelsAreGivenMemoryThatIsThere) {
  const AddressRange nowhere{.begin = kPageBytes, .bytes = 1};
  kernel(a_, "nowhere", {nowhere}, {});
  kernel(a_, "across", {}, {{.begin = y_.begin, .bytes = kGranule + 1}});
  kernel(a_, "within", {host_.range()}, {y_});
  EXPECT_THAT(pairs(fake_), ElementsAre(", nowhere", ", across"));
}

// Virtual memory is accessible to the GPUs that it was granted to, wherever it lies.
TEST_F(CudaOrderTest, AnotherGpuNeedsAccessGranted) {
  CudaStream other = nullptr;
  expect(fake_.set_device(1));
  expect(fake_.stream_create(other));
  kernel(other, "without access", {x_}, {});
  expect(fake_.enable_peer_access(0));
  kernel(other, "with access to other memory", {x_}, {});
  expect(fake_.memory_set_access(x_, kSecond));
  kernel(other, "with access", {x_}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre(", without access", ", with access to other memory"));
}

// --- logical memory ----------------------------------------------------------------------------------------

// Whether any page of `range` is there.
bool touched(AddressRange range) {
  std::vector<unsigned char> pages(range.bytes / kPageBytes);
  EXPECT_EQ(mincore(pointer_to<void>(range.begin), range.bytes, pages.data()), 0);
  return std::ranges::any_of(pages, [](unsigned char page) { return (page & 1U) != 0; });
}

TEST(LogicalMemory, IsAddressesAlone) {
  constexpr std::uint64_t kTebibyte = std::uint64_t{1} << 40U;
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 30U;
  const auto fake = std::make_shared<FakeCuda>(FakeCudaOptions{
      .seed = 1, .memory_bytes = 4 * kTebibyte, .granule_bytes = kBlock, .logical_memory = true});
  {
    const auto device = make_cuda_device({.host_budget_bytes = kTebibyte, .reserve_bytes = 0}, fake);
    const AddressRange memory = device->reserve(4 * kTebibyte);
    device->commit(memory);
    EXPECT_EQ(fake->mapped_bytes(), 4 * kTebibyte);
    const AddressRange host = device->allocate_pinned(kBlock);
    const StreamId stream = device->create_stream("memory");
    const AddressRange last{.begin = memory.end() - kBlock, .bytes = kBlock};
    for (const CopyDirection direction : {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice}) {
      const bool to_host = direction == CopyDirection::kDeviceToHost;
      device->copy(stream, {.name = "x",
                            .direction = direction,
                            .destination = {.range = to_host ? host : last},
                            .source = {.range = to_host ? last : host}});
    }
    device->synchronize_all();
    EXPECT_FALSE(touched(host));
    EXPECT_FALSE(touched(last));
    device->decommit(memory);
  }
  EXPECT_THAT(fake->misuses(), IsEmpty());
  EXPECT_THAT(fake->leaks(), IsEmpty());
  EXPECT_THAT(pairs(*fake), IsEmpty());
}

}  // namespace
}  // namespace vdnn
