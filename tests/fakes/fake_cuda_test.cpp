// Tests the fake's rules of order. For each rule there is a case in which only this rule leads to a finding.
// Other tests take the absence of findings as proof of order, so no rule may be missing. Also tests the
// fake's logical memory.

#include "tests/fakes/fake_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "streams/cuda/cuda_device.h"
#include "vdnn/size.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint64_t kGranule = 4 << 10;
constexpr std::array kFirst = {0};
constexpr std::array kSecond = {1};

// Findings, as "earlier, later".
std::vector<std::string> pairs(const FakeCuda& fake) {
  std::vector<std::string> result;
  for (const SimFinding& finding : fake.findings()) {
    result.push_back(finding.first + ", " + finding.second);
  }
  return result;
}

void expect(CudaStatus status) {
  EXPECT_EQ(status, CudaStatus::kSuccess);
}

void kernel(CudaStream stream, const char* name, const std::vector<AddressRange>& reads,
            const std::vector<AddressRange>& writes) {
  const auto accesses = [](const std::vector<AddressRange>& ranges) {
    std::vector<Access> result(ranges.size());
    std::ranges::transform(ranges, result.begin(), [](AddressRange range) { return Access{.range = range}; });
    return result;
  };
  expect(
      FakeCuda::launch(stream, [] {}, {.name = name, .reads = accesses(reads), .writes = accesses(writes)}));
}

// Two mapped granules, a page-locked page and three streams, made by CUDA's own calls.
class CudaOrderTest : public ::testing::Test {
 protected:
  CudaOrderTest() {
    expect(fake_.set_device(0));
    for (CudaStream* const stream : {&a_, &b_, &c_}) {
      expect(fake_.stream_create(*stream));
    }
    for (CudaEvent* const event : {&event_, &other_event_}) {
      expect(fake_.event_create(*event, {}));
    }
    expect(fake_.address_reserve(x_.begin, 2 * kGranule, kGranule));
    y_.begin = x_.begin + kGranule;
    for (const AddressRange granule : {x_, y_}) {
      std::uint64_t handle = 0;
      expect(fake_.memory_create(handle, kGranule, {.ordinal = 0}));
      expect(fake_.memory_map(granule, handle));
      expect(fake_.memory_release(handle));
    }
    expect(fake_.memory_set_access({.begin = x_.begin, .bytes = 2 * kGranule}, kFirst));
    expect(fake_.host_register(host_.range()));
  }
  ~CudaOrderTest() override { EXPECT_THAT(fake_.misuses(), IsEmpty()); }

  void copy(CudaStream stream, const char* name, CopyDirection direction) {
    const bool to_host = direction == CopyDirection::kDeviceToHost;
    fake_.name_copies(name);
    expect(fake_.memcpy_async(to_host ? host_.range().begin : x_.begin,
                              to_host ? x_.begin : host_.range().begin, kGranule, direction, stream));
  }
  void record(CudaStream stream) { expect(fake_.event_record(event_, stream)); }
  void wait(CudaStream stream) { expect(fake_.stream_wait_event(stream, event_)); }

  // With this seed, nothing runs before the host waits.
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
  wait(c_);  // not the stream that needs the wait
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
  expect(fake_.host_register(host_.range()));  // before the copy
}

TEST_F(CudaOrderTest, KernelsAreGivenMemoryThatIsThere) {
  const AddressRange nowhere{.begin = kPageBytes, .bytes = 1};
  kernel(a_, "nowhere", {nowhere}, {});
  kernel(a_, "across", {}, {{.begin = y_.begin, .bytes = kGranule + 1}});
  kernel(a_, "within", {host_.range()}, {y_});
  EXPECT_THAT(pairs(fake_), ElementsAre(", nowhere", ", across"));
}

// A GPU may use virtual memory of another GPU only after cuMemSetAccess; cudaDeviceEnablePeerAccess does not
// suffice.
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

// --- default streams ---------------------------------------------------------------------------------------

// CUDA's handle of this value.
CudaStream handle(std::uintptr_t value) {
  return reinterpret_cast<CudaStream>(value);  // NOLINT(performance-no-int-to-ptr)
}

// Adds two blocking streams to a_, b_ and c_, which do not block.
class DefaultStreamsTest : public CudaOrderTest {
 protected:
  DefaultStreamsTest() {
    for (CudaStream* const stream : {&blocking_, &other_blocking_}) {
      expect(fake_.stream_create_blocking(*stream));
    }
  }

  CudaStream legacy() { return fake_.stream_of(nullptr); }
  CudaStream of_thread() { return fake_.stream_of(handle(2)); }
  // Launches a kernel that appends `number` to `ran_`, which thus shows the order in which kernels run.
  void run_as(CudaStream stream, int number) {
    expect(FakeCuda::launch(stream, [this, number] { ran_.push_back(number); }));
  }

  CudaStream blocking_ = nullptr;
  CudaStream other_blocking_ = nullptr;
  std::vector<int> ran_;
};

TEST_F(DefaultStreamsTest, HaveHandles) {
  EXPECT_EQ(legacy(), fake_.stream_of(handle(1)));
  EXPECT_NE(legacy(), of_thread());
  EXPECT_EQ(of_thread(), fake_.stream_of(handle(2)));
  EXPECT_EQ(fake_.stream_of(a_), a_);
  CudaStream of_other_thread = nullptr;
  std::thread([&] { of_other_thread = of_thread(); }).join();
  EXPECT_NE(of_other_thread, of_thread());
  const CudaStream here = legacy();
  expect(fake_.set_device(1));
  EXPECT_NE(legacy(), here);
  std::uint64_t id = 0;
  std::uint64_t other = 0;
  expect(fake_.stream_id(id, handle(0)));
  expect(fake_.stream_id(other, handle(1)));
  EXPECT_EQ(id, other);
  expect(fake_.stream_id(other, handle(2)));
  EXPECT_NE(id, other);
}

TEST_F(DefaultStreamsTest, TheLegacyOneComesAfterWhatBlockingStreamsWereGiven) {
  kernel(blocking_, "makes x", {}, {x_});
  kernel(of_thread(), "makes y", {}, {y_});
  kernel(legacy(), "makes both", {}, {x_, y_});
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_F(DefaultStreamsTest, WhatBlockingStreamsAreGivenThenComesAfterIt) {
  kernel(legacy(), "makes both", {}, {x_, y_});
  kernel(blocking_, "reads x", {x_}, {});
  kernel(of_thread(), "makes y", {}, {y_});
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_F(DefaultStreamsTest, BlockingStreamsAreNotOrderedAmongEachOther) {
  kernel(legacy(), "earlier", {}, {x_});
  kernel(blocking_, "makes x", {}, {x_});
  kernel(other_blocking_, "reads x", {x_}, {});
  kernel(of_thread(), "reads x, too", {x_}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, reads x", "makes x, reads x, too"));
}

TEST_F(DefaultStreamsTest, OrderGoesOnThroughTheLegacyOne) {
  kernel(blocking_, "makes x", {}, {x_});
  expect(fake_.event_record(event_, handle(0)));
  kernel(other_blocking_, "reads x", {x_}, {});
  expect(fake_.stream_wait_event(a_, event_));
  kernel(a_, "makes x anew", {}, {x_});
  EXPECT_THAT(pairs(fake_), ElementsAre("reads x, makes x anew"));
}

TEST_F(DefaultStreamsTest, OtherStreamsDoNotTakeTurnsWithIt) {
  kernel(a_, "makes x", {}, {x_});
  kernel(legacy(), "makes both", {}, {x_, y_});
  kernel(a_, "reads y", {y_}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, makes both", "makes both, reads y"));
}

TEST_F(DefaultStreamsTest, NorDoThoseOfAnotherGpu) {
  kernel(blocking_, "makes page-locked x", {}, {host_.range()});
  expect(fake_.set_device(1));
  kernel(legacy(), "makes it anew", {}, {host_.range()});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes page-locked x, makes it anew"));
}

TEST_F(DefaultStreamsTest, CopiesOnThemAreInOrderToo) {
  kernel(blocking_, "makes x", {}, {x_});
  expect(
      fake_.memcpy_async(host_.range().begin, x_.begin, kGranule, CopyDirection::kDeviceToHost, handle(0)));
  kernel(blocking_, "makes x anew", {}, {x_});
  expect(fake_.stream_synchronize(handle(0)));
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

// The work also runs in the order of the turns, whatever order the seed draws.
TEST_F(DefaultStreamsTest, WorkWaitsForItsTurn) {
  bool opened = false;
  expect(FakeCuda::hold(blocking_, [&opened] { return opened; }));
  run_as(blocking_, 1);
  run_as(legacy(), 2);
  run_as(of_thread(), 3);
  run_as(a_, 0);
  fake_.rest();
  EXPECT_THAT(ran_, ElementsAre(0));
  opened = true;
  expect(fake_.device_synchronize());
  EXPECT_THAT(ran_, ElementsAre(0, 1, 2, 3));
}

TEST_F(DefaultStreamsTest, TheLegacyOneIsNotTouchedWhileABlockingStreamIsCaptured) {
  CudaGraph graph = nullptr;
  expect(fake_.stream_begin_capture(a_));
  kernel(legacy(), "beside", {}, {x_});
  expect(fake_.stream_end_capture(graph, a_));
  expect(fake_.stream_begin_capture(blocking_));
  EXPECT_EQ(fake_.event_record(event_, handle(0)), CudaStatus::kStreamCaptureImplicit);
  EXPECT_EQ(fake_.stream_end_capture(graph, blocking_), CudaStatus::kStreamCaptureInvalidated);
  EXPECT_EQ(fake_.stream_begin_capture(handle(0)), CudaStatus::kStreamCaptureUnsupported);
  expect(fake_.stream_begin_capture(handle(2)));
  expect(fake_.stream_end_capture(graph, handle(2)));
}

TEST(DefaultStreams, NeedNotBeDestroyedAndCannotBe) {
  FakeCuda fake;
  expect(fake.set_device(0));
  kernel(fake.stream_of(nullptr), "nothing", {}, {});
  kernel(fake.stream_of(handle(2)), "nothing", {}, {});
  expect(fake.device_synchronize());
  EXPECT_THAT(fake.leaks(), IsEmpty());
  EXPECT_THAT(fake.misuses(), IsEmpty());
  for (const std::uintptr_t each : {0, 1, 2}) {
    EXPECT_EQ(fake.stream_destroy(handle(each)), CudaStatus::kInvalidValue);
  }
  const CudaStream before = fake.stream_of(nullptr);
  expect(fake.device_reset());
  EXPECT_NE(fake.stream_of(nullptr), before);
  EXPECT_EQ(fake.stream_query(before), CudaStatus::kInvalidValue) << "the reset has ended the stream";
}

// Regression: the fake refused alignment 0, which PyTorch's expandable segments use, and an alignment below a
// page overflowed.
TEST(FakeCudaTest, AReservationOfAnyAlignmentCanBeMapped) {
  FakeCuda fake;
  expect(fake.set_device(0));
  constexpr std::uint64_t kBytes = std::uint64_t{2} << 20;
  for (const std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{512}, 8 * kBytes}) {
    AddressRange space{.bytes = kBytes};
    expect(fake.address_reserve(space.begin, space.bytes, alignment));
    EXPECT_EQ(space.begin % std::max(alignment, kBytes), 0U) << alignment;
    std::uint64_t handle = 0;
    expect(fake.memory_create(handle, kBytes, {.ordinal = 0}));
    expect(fake.memory_map(space, handle));
    expect(fake.memory_unmap(space));
    expect(fake.memory_release(handle));
    expect(fake.address_free(space));
  }
  EXPECT_THAT(fake.misuses(), IsEmpty());
  std::uint64_t address = 0;
  EXPECT_EQ(fake.address_reserve(address, kBytes, 3), CudaStatus::kInvalidValue);
  EXPECT_THAT(fake.misuses(), ElementsAre(HasSubstr("alignment")));
}

// --- memory at several places ------------------------------------------------------------------------------

// An allocation mapped both at x and at y.
class SharedMemoryTest : public ::testing::TestWithParam<bool> {
 protected:
  SharedMemoryTest() {
    expect(fake_.set_device(0));
    for (CudaStream* const stream : {&a_, &b_, &c_}) {
      expect(fake_.stream_create(*stream));
    }
    expect(fake_.event_create(event_, {}));
    expect(fake_.address_reserve(space_.begin, space_.bytes, kGranule));
    expect(fake_.memory_create(handle_, kGranule, {.ordinal = 0}));
    map(x());
    map(y());
  }
  ~SharedMemoryTest() override {
    EXPECT_THAT(fake_.misuses(), IsEmpty());
    expect(fake_.device_synchronize());
    if (is_owned_) {
      expect(fake_.memory_release(handle_));
    }
    for (const AddressRange range : mapped_) {
      expect(fake_.memory_unmap(range));
    }
    EXPECT_EQ(fake_.mapped_bytes(), 0U);
    EXPECT_EQ(free_bytes(), 2 * kGranule);
    expect(fake_.address_free(space_));
    for (const CudaStream stream : {a_, b_, c_}) {
      expect(fake_.stream_destroy(stream));
    }
    expect(fake_.event_destroy(event_));
    EXPECT_THAT(fake_.leaks(), IsEmpty());
  }

  AddressRange granule(std::uint64_t index) const {
    return {.begin = space_.begin + index * kGranule, .bytes = kGranule};
  }
  AddressRange x() const { return granule(0); }
  AddressRange y() const { return granule(2); }
  void map(AddressRange range) {
    expect(fake_.memory_map(range, handle_));
    expect(fake_.memory_set_access(range, kFirst));
    mapped_.push_back(range);
  }
  void unmap(AddressRange range) {
    expect(fake_.memory_unmap(range));
    std::erase(mapped_, range);
  }
  void release() {
    expect(fake_.memory_release(handle_));
    is_owned_ = false;
  }
  void order(CudaStream earlier, CudaStream later) {
    expect(fake_.event_record(event_, earlier));
    expect(fake_.stream_wait_event(later, event_));
  }
  std::uint64_t free_bytes() {
    std::uint64_t free = 0;
    std::uint64_t total = 0;
    expect(fake_.memory_info(free, total));
    return free;
  }

  FakeCuda fake_{{.seed = 0,
                  .gpus = 2,
                  .memory_bytes = 2 * kGranule,
                  .granule_bytes = kGranule,
                  .logical_memory = GetParam()}};
  CudaStream a_ = nullptr;
  CudaStream b_ = nullptr;
  CudaStream c_ = nullptr;
  CudaEvent event_ = nullptr;
  AddressRange space_{.bytes = 4 * kGranule};
  std::uint64_t handle_ = 0;
  bool is_owned_ = true;
  std::vector<AddressRange> mapped_;
};

TEST_P(SharedMemoryTest, IsTakenOnce) {
  EXPECT_EQ(fake_.mapped_bytes(), kGranule);
  EXPECT_EQ(free_bytes(), kGranule);
  map(granule(1));
  EXPECT_EQ(fake_.peak_mapped_bytes(), kGranule);
  EXPECT_EQ(fake_.peak_bytes(0), kGranule);
}

TEST_P(SharedMemoryTest, LastsUntilItIsNeitherOwnedNorMapped) {
  unmap(x());
  release();
  EXPECT_EQ(free_bytes(), kGranule);
  unmap(y());
  EXPECT_EQ(free_bytes(), 2 * kGranule);
}

TEST_P(SharedMemoryTest, LastsWhileItIsOwned) {
  unmap(x());
  unmap(y());
  EXPECT_EQ(free_bytes(), kGranule);
  EXPECT_EQ(fake_.mapped_bytes(), 0U);
  map(granule(1));
  kernel(a_, "makes it", {}, {granule(1)});
  expect(fake_.stream_synchronize(a_));
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_P(SharedMemoryTest, WhatTouchesOnePlaceTouchesAll) {
  kernel(a_, "makes x", {}, {x()});
  kernel(b_, "reads y", {y()}, {});
  map(granule(1));
  kernel(c_, "makes the third", {}, {granule(1)});
  EXPECT_THAT(pairs(fake_),
              ElementsAre("makes x, reads y", "makes x, makes the third", "reads y, makes the third"));
  EXPECT_EQ(fake_.findings()[0].range, y());
  EXPECT_EQ(fake_.findings()[2].range, granule(1));
}

// Accesses at two places conflict if and only if they have bytes of the allocation in common.
TEST_P(SharedMemoryTest, PlacesConflictByBytes) {
  const auto part = [](AddressRange range, std::uint64_t at) {
    return AddressRange{.begin = range.begin + at, .bytes = kGranule / 4};
  };
  kernel(a_, "first quarter", {}, {part(x(), 0)});
  kernel(b_, "second quarter", {}, {part(y(), kGranule / 4)});
  EXPECT_THAT(pairs(fake_), IsEmpty());
  kernel(c_, "both", {{.begin = x().begin, .bytes = kGranule / 2}}, {});
  EXPECT_THAT(pairs(fake_), ElementsAre("first quarter, both", "second quarter, both"));
  EXPECT_EQ(fake_.findings()[0].range, part(x(), 0));
  EXPECT_EQ(fake_.findings()[1].range, part(x(), kGranule / 4));
}

TEST_P(SharedMemoryTest, OrderIsOrderWhateverThePlace) {
  kernel(a_, "makes x", {}, {x()});
  kernel(a_, "makes y", {}, {y()});
  order(a_, b_);
  kernel(b_, "reads x", {x()}, {});
  kernel(b_, "makes both", {}, {x(), y()});
  EXPECT_THAT(pairs(fake_), IsEmpty());
}

TEST_P(SharedMemoryTest, WhatHadOnePlaceIsKnownAtTheNext) {
  unmap(y());
  kernel(a_, "makes x", {}, {x()});
  map(y());
  kernel(b_, "makes y", {}, {y()});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, makes y"));
}

TEST_P(SharedMemoryTest, WorkAtOtherPlacesDoesNotKeepOneFromBeingUnmapped) {
  kernel(a_, "makes y", {}, {y()});
  unmap(x());
  kernel(a_, "reads y", {y()}, {});
  EXPECT_THAT(pairs(fake_), IsEmpty());
  kernel(b_, "makes y anew", {}, {y()});
  EXPECT_THAT(pairs(fake_), ElementsAre("makes y, makes y anew", "reads y, makes y anew"));
}

// Later work at another place is ordered after the earlier work, but that does not mean that the host has
// waited for the earlier work.
TEST_P(SharedMemoryTest, WorkThatWasGivenAPlaceKeepsIt) {
  kernel(a_, "makes x", {}, {x()});
  order(a_, b_);
  kernel(b_, "makes y", {}, {y()});
  unmap(x());
  EXPECT_THAT(pairs(fake_), ElementsAre("makes x, cuMemUnmap"));
}

TEST_P(SharedMemoryTest, AccessIsOfEachPlace) {
  expect(fake_.memory_map(granule(1), handle_));
  mapped_.push_back(granule(1));
  kernel(a_, "before", {granule(1)}, {});
  expect(fake_.memory_set_access(granule(1), kFirst));
  kernel(a_, "after", {granule(1)}, {});
  CudaStream other = nullptr;
  expect(fake_.set_device(1));
  expect(fake_.stream_create(other));
  expect(fake_.memory_set_access(y(), kSecond));
  kernel(other, "at x", {x()}, {});
  kernel(other, "at y", {y()}, {});
  expect(fake_.device_synchronize());
  expect(fake_.stream_destroy(other));
  expect(fake_.set_device(0));
  EXPECT_THAT(pairs(fake_), ElementsAre(", before", ", at x"));
}

TEST_P(SharedMemoryTest, APlaceThatStaysIsALeak) {
  unmap(x());
  release();
  EXPECT_THAT(fake_.leaks(), Contains(HasSubstr("a mapping of 4 KiB")));
  EXPECT_THAT(fake_.leaks(), Not(Contains(HasSubstr("memory of"))));
}

INSTANTIATE_TEST_SUITE_P(Memory, SharedMemoryTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Logical" : "Real"; });

class SharedContent : public SharedMemoryTest {
 protected:
  static std::span<unsigned char> bytes(AddressRange range) {
    return {pointer_to<unsigned char>(range.begin), range.bytes};
  }
};

TEST_P(SharedContent, IsTheSameAtAllPlaces) {
  std::ranges::fill(bytes(x()), 1);
  bytes(y())[1] = 2;
  map(granule(1));
  EXPECT_EQ(bytes(granule(1))[0], 1);
  EXPECT_EQ(bytes(granule(1))[1], 2);
  unmap(x());
  unmap(granule(1));
  EXPECT_EQ(bytes(y())[0], 1);
  unmap(y());
  map(x());
  EXPECT_EQ(bytes(x())[1], 2);
}

TEST_P(SharedContent, OfNewMemoryIsNotZeros) {
  for (const AddressRange range : {x(), y()}) {
    EXPECT_EQ(std::ranges::count(bytes(range), 0), 0);
  }
  std::ranges::fill(bytes(x()), 0);
  unmap(x());
  unmap(y());
  release();
  expect(fake_.memory_create(handle_, kGranule, {.ordinal = 0}));
  is_owned_ = true;
  map(x());
  EXPECT_EQ(std::ranges::count(bytes(x()), 0), 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, SharedContent, ::testing::Values(false), [](const auto&) { return "Real"; });

TEST(SharedMemory, IsMisusedLikeAnyOther) {
  FakeCuda fake({.granule_bytes = kGranule});
  expect(fake.set_device(0));
  AddressRange space{.bytes = 2 * kGranule};
  std::uint64_t handle = 0;
  expect(fake.address_reserve(space.begin, space.bytes, kGranule));
  expect(fake.memory_create(handle, kGranule, {.ordinal = 0}));
  const AddressRange first{.begin = space.begin, .bytes = kGranule};
  const AddressRange second{.begin = first.end(), .bytes = kGranule};
  expect(fake.memory_map(first, handle));
  EXPECT_EQ(fake.memory_map(first, handle), CudaStatus::kInvalidValue);
  EXPECT_EQ(fake.memory_map(space, handle), CudaStatus::kInvalidValue);
  expect(fake.memory_release(handle));
  EXPECT_EQ(fake.memory_map(second, handle), CudaStatus::kInvalidValue);
  EXPECT_EQ(fake.memory_unmap(second), CudaStatus::kInvalidValue);
  EXPECT_THAT(fake.misuses(),
              ElementsAre("cuMemMap: mapped already", "cuMemMap: no such memory, or not its size",
                          "cuMemMap: no such memory, or not its size", "cuMemUnmap: not a whole mapping"));
}

// --- logical memory ----------------------------------------------------------------------------------------

// Whether any page of `range` is resident.
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

// Regression: after a thread ended, the next thread got its std::thread::id, and so its GPU, capture mode,
// last error and default stream.
TEST(FakeCuda, AThreadBeginsAnewWhereAnotherHasEnded) {
  FakeCuda fake({.gpus = 2});
  std::uint64_t first_stream = 0;
  std::thread([&] {
    expect(fake.set_device(1));
    CaptureMode mode = CaptureMode::kRelaxed;
    expect(fake.thread_exchange_capture_mode(mode));
    EXPECT_EQ(fake.set_device(7), CudaStatus::kInvalidDevice);
    expect(fake.stream_id(first_stream, fake.stream_of(handle(2))));
  }).join();
  std::thread([&] {
    int ordinal = -1;
    expect(fake.get_device(ordinal));
    EXPECT_EQ(ordinal, 0);
    CaptureMode mode = CaptureMode::kThreadLocal;
    expect(fake.thread_exchange_capture_mode(mode));
    EXPECT_EQ(mode, CaptureMode::kGlobal);
    expect(fake.get_last_error());
    expect(fake.set_device(1));
    std::uint64_t stream = 0;
    expect(fake.stream_id(stream, fake.stream_of(handle(2))));
    EXPECT_NE(stream, first_stream);
  }).join();
}

// A new thread may get the std::thread::id of a thread that ended during its capture. The new thread must not
// be able to end that capture.
TEST(FakeCuda, ACaptureOfAThreadThatHasEndedIsNobodyElses) {
  FakeCuda fake;
  CudaStream stream = nullptr;
  expect(fake.set_device(0));
  expect(fake.stream_create(stream));
  std::thread([&] { expect(fake.stream_begin_capture(stream)); }).join();
  CudaGraph graph = nullptr;
  std::thread([&] {
    expect(fake.set_device(0));
    EXPECT_EQ(fake.stream_end_capture(graph, stream), CudaStatus::kStreamCaptureWrongThread);
  }).join();
}

// CUDA Programming Guide, "Error Checking": cudaErrorNotReady is no error. Runtime API, cudaGetLastError():
// only calls of the runtime set the last error.
TEST(FakeCuda, LastErrorsAreOfTheRuntimesCallsAlone) {
  FakeCuda fake;
  CudaStream stream = nullptr;
  CudaEvent event = nullptr;
  expect(fake.set_device(0));
  expect(fake.stream_create(stream));
  expect(fake.event_create(event, {}));
  EXPECT_EQ(FakeCuda::launch(stream, [] {}), CudaStatus::kSuccess);
  expect(fake.event_record(event, stream));
  EXPECT_EQ(fake.event_query(event), CudaStatus::kNotReady);
  EXPECT_EQ(fake.stream_query(stream), CudaStatus::kNotReady);
  std::uint64_t handle = 0;
  EXPECT_EQ(fake.memory_create(handle, std::uint64_t{1} << 40U, {}), CudaStatus::kMemoryAllocation);
  expect(fake.peek_at_last_error());
  EXPECT_EQ(fake.set_device(7), CudaStatus::kInvalidDevice);
  EXPECT_EQ(fake.event_query(event), CudaStatus::kNotReady);
  EXPECT_EQ(fake.peek_at_last_error(), CudaStatus::kInvalidDevice);
  EXPECT_EQ(fake.get_last_error(), CudaStatus::kInvalidDevice);
  expect(fake.get_last_error());
}

}  // namespace
}  // namespace vdnn
