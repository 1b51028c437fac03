// PyTorch's hooks, called over streams of the `cpu` device, and looked up in the library as PyTorch does.

#include "allocator/dropin/torch/torch_allocator.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "vdnn/cpu_device.h"
#include "vdnn/error.h"
#include "vdnn/failing_backend.h"

namespace vdnn {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBudget = 8 * kMiB;
constexpr TorchPoolId kGraph{0, 7};

class TorchAllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& device : devices_) {
      device->create_stream("one");
      device->create_stream("other");
    }
  }

  std::unique_ptr<PoolBackend> make_backend(int device) {
    if (static_cast<std::size_t>(device) >= devices_.size()) {
      throw DeviceError("there is no such GPU");
    }
    return std::make_unique<FailingBackend>(make_pool_backend(*devices_.at(device)),
                                            [this](const char* call) { strikes_(call); });
  }

  vdnn_allocator_statistics statistics(int device = 0) {
    vdnn_allocator_statistics found{.version = VDNN_ALLOCATOR_VERSION};
    EXPECT_EQ(torch_.statistics(device, &found), VDNN_OK);
    return found;
  }
  std::uint64_t committed(int device = 0) { return devices_.at(device)->counters().committed_bytes; }

  std::vector<std::unique_ptr<Device>> two_devices() {
    std::vector<std::unique_ptr<Device>> devices(2);
    for (std::unique_ptr<Device>& device : devices) {
      device = make_cpu_device({.budget_bytes = kBudget});
    }
    return devices;
  }

  std::vector<std::unique_ptr<Device>> devices_ = two_devices();
  std::function<void(const char*)> strikes_ = [](const char*) {};
  StreamHandle one_ = stream_handle(0);
  StreamHandle other_ = stream_handle(1);
  TorchAllocator torch_{[this](int device) { return make_backend(device); }};
};

TEST_F(TorchAllocatorTest, EachGpuHasAPoolOfItsOwn) {
  void* const first = torch_.allocate(1000, 0, one_);
  void* const second = torch_.allocate(kMiB, 1, one_);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  std::memset(second, 1, kMiB);
  EXPECT_EQ(statistics(0).all.requested.current, 1000U);
  EXPECT_EQ(statistics(1).all.requested.current, kMiB);
  torch_.give_back(second);
  EXPECT_EQ(statistics(0).all.blocks.current, 1U);
  EXPECT_EQ(statistics(1).all.blocks.current, 0U);
  torch_.give_back(first);
}

TEST_F(TorchAllocatorTest, EmptyingCachesGivesMemoryBack) {
  torch_.give_back(torch_.allocate(3 * kMiB, 0, one_));
  torch_.give_back(torch_.allocate(100, 1, one_));
  EXPECT_GT(committed(0), 0U);
  EXPECT_GT(committed(1), 0U);
  torch_.empty_caches();
  EXPECT_EQ(committed(0), 0U);
  EXPECT_EQ(committed(1), 0U);
}

TEST_F(TorchAllocatorTest, RecordedStreamsAreWaitedFor) {
  void* const block = torch_.allocate(2 * kMiB, 0, one_);
  torch_.used_on(block, other_);
  torch_.give_back(block);
  torch_.give_back(torch_.allocate(2 * kMiB, 0, one_));
  EXPECT_EQ(statistics().stream_waits + statistics().host_waits, 1U);
}

// Regression: if the pool could not record a reader, the hook had no means to report this, and the reader was
// forgotten. The next stream got the block while the reader ran.
TEST_F(TorchAllocatorTest, ReaderThatWasRefusedIsRecordedBeforeTheBlockGoes) {
  void* const block = torch_.allocate(2 * kMiB, 0, one_);
  strikes_ = [](const char* call) {
    if (std::string_view(call) == "stream_id") {
      throw DeviceError("refused");
    }
  };
  torch_.used_on(block, other_);
  torch_.give_back(block);
  EXPECT_EQ(statistics().all.blocks.current, 1U);
  strikes_ = [](const char*) {};
  torch_.give_back(block);
  EXPECT_EQ(statistics().all.blocks.current, 0U);
  torch_.give_back(torch_.allocate(2 * kMiB, 0, one_));
  EXPECT_EQ(statistics().stream_waits + statistics().host_waits, 1U);
}

// Regression: a call that a capture forbids was treated as misuse, and the reader was forgotten.
TEST_F(TorchAllocatorTest, ReaderThatACaptureForbidsIsRecordedBeforeTheBlockGoes) {
  void* const block = torch_.allocate(2 * kMiB, 0, one_);
  strikes_ = [](const char* call) {
    if (std::string_view(call) == "stream_id") {
      throw CaptureConflict("too many streams have gone without notice");
    }
  };
  torch_.used_on(block, other_);
  strikes_ = [](const char*) {};
  torch_.give_back(block);
  EXPECT_EQ(statistics().all.blocks.current, 0U);
  torch_.give_back(torch_.allocate(2 * kMiB, 0, one_));
  EXPECT_EQ(statistics().stream_waits + statistics().host_waits, 1U);
  EXPECT_EQ(statistics().freed_unordered, 0U);
}

// If the reader's stream has ended when the block is freed, no event can tell when the reader is done.
TEST_F(TorchAllocatorTest, BlockOfAReaderThatIsGoneGoesBackInNoOrder) {
  void* const block = torch_.allocate(2 * kMiB, 0, one_);
  torch_.used_on(block, stream_handle(7));
  torch_.give_back(block);
  EXPECT_EQ(statistics().all.blocks.current, 0U);
  EXPECT_EQ(statistics().freed_unordered, 1U);
  torch_.give_back(torch_.allocate(2 * kMiB, 0, one_));
  EXPECT_EQ(statistics().freed_unordered, 1U);
}

TEST_F(TorchAllocatorTest, BaseAllocationIsTheBlock) {
  char* const block = static_cast<char*>(torch_.allocate(1000, 0, one_));
  std::size_t bytes = 0;
  EXPECT_EQ(torch_.base_of(block, &bytes), block);
  EXPECT_EQ(bytes, 1000U);
  EXPECT_EQ(torch_.base_of(block, nullptr), block);
  EXPECT_EQ(torch_.base_of(block + 1, &bytes), nullptr);
  EXPECT_EQ(bytes, 0U);
  EXPECT_EQ(torch_.base_of(&bytes, &bytes), nullptr);
  torch_.give_back(block);
}

TEST_F(TorchAllocatorTest, AllocatedMemoryIsThatOfAllPoolsOfTheGpu) {
  EXPECT_EQ(torch_.allocated(0).current, 0U);
  void* const block = torch_.allocate(kMiB, 0, one_);
  torch_.begin(0, kGraph, [this](void* stream) { return stream == other_; });
  void* const of_graph = torch_.allocate(2 * kMiB, 0, other_);
  EXPECT_EQ(torch_.allocated(0).current, 3 * kMiB);
  EXPECT_EQ(torch_.allocated(1).current, 0U);
  EXPECT_EQ(torch_.allocated(7).current, 0U);
  torch_.give_back(block);
  const vdnn_allocator_figure now = torch_.allocated(0);
  EXPECT_EQ(now.current, 2 * kMiB);
  EXPECT_EQ(now.peak, 3 * kMiB);
  EXPECT_EQ(now.added, 3 * kMiB);
  torch_.end(0, kGraph);
  torch_.give_back(of_graph);
  torch_.release(0, kGraph);
}

TEST_F(TorchAllocatorTest, ABudgetInBytesGoesBeforeTheFraction) {
  EXPECT_EQ(torch_.set_budget(kBudget / 4, 0), VDNN_OK);
  torch_.set_memory_fraction(0.5, 0);
  vdnn_status status = VDNN_OK;
  EXPECT_EQ(torch_.allocate(kBudget / 4 + 1, 0, one_, &status), nullptr);
  EXPECT_EQ(status, VDNN_OUT_OF_MEMORY);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("budget 2 MiB"));
  EXPECT_NE(torch_.allocate(kBudget / 4, 0, one_, &status), nullptr);
  EXPECT_EQ(status, VDNN_OK);
  EXPECT_EQ(torch_.set_budget(kBudget, 0), VDNN_INVALID_ARGUMENT) << "after the GPU's first block";
  EXPECT_EQ(torch_.set_budget(0, 1), VDNN_INVALID_ARGUMENT);
}

TEST_F(TorchAllocatorTest, MemoryFractionIsTheBudget) {
  torch_.set_memory_fraction(0.5, 0);
  EXPECT_EQ(torch_.allocate(kBudget / 2 + 1, 0, one_), nullptr);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("budget 4 MiB"));
  void* const block = torch_.allocate(kBudget / 2, 0, one_);
  EXPECT_NE(block, nullptr);
  torch_.give_back(block);
  torch_.set_memory_fraction(1, 0);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("first block"));
  for (const double fraction : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    torch_.set_memory_fraction(fraction, 1);
    EXPECT_THAT(vdnn_last_error(), HasSubstr("a fraction of"));
  }
  EXPECT_NE(torch_.allocate(kBudget, 1, one_), nullptr) << "nothing was changed";
}

TEST_F(TorchAllocatorTest, MisuseIsRefusedWithAMessage) {
  torch_.give_back(nullptr);
  torch_.used_on(nullptr, one_);
  EXPECT_EQ(torch_.base_of(nullptr, nullptr), nullptr);
  EXPECT_EQ(torch_.allocate(1, -1, one_), nullptr);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("no GPU -1"));
  EXPECT_EQ(torch_.allocate(1, 2, one_), nullptr);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("no such GPU"));
  torch_.init(2);
  EXPECT_EQ(torch_.allocate(1, 2, one_), nullptr);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("no GPU 2"));
  EXPECT_EQ(torch_.allocate(-1, 0, one_), nullptr);
  EXPECT_EQ(torch_.allocate(std::numeric_limits<std::int64_t>::max(), 0, one_), nullptr);
  void* const block = torch_.allocate(0, 0, one_);
  EXPECT_NE(block, nullptr) << "of size 1";
  torch_.give_back(block);
  torch_.give_back(block);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("no block in use"));
  torch_.give_back(&torch_);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("belongs to no pool"));
  EXPECT_EQ(statistics().all.blocks.removed, 1U);
}

// A replay of a graph must not write to memory that was handed out since the capture.
TEST_F(TorchAllocatorTest, GraphsHaveAPoolOfTheirOwn) {
  torch_.begin(0, kGraph, [this](void* stream) { return stream == one_; });
  void* const captured = torch_.allocate(kMiB, 0, one_);
  void* const beside = torch_.allocate(kMiB, 0, other_);
  EXPECT_EQ(statistics().all.blocks.current, 1U) << "only the other stream's block counts";
  torch_.give_back(captured);
  EXPECT_EQ(torch_.allocate(kMiB, 0, one_), captured) << "reused within the graph";
  torch_.give_back(captured);
  torch_.end(0, kGraph);
  std::set<void*> others;
  for (int i = 0; i < 4; ++i) {
    void* const block = torch_.allocate(kMiB, 0, one_);
    ASSERT_NE(block, nullptr);
    EXPECT_NE(block, captured);
    others.insert(block);
  }
  EXPECT_EQ(statistics().all.blocks.current, 5U);
  torch_.give_back(beside);
  for (void* const block : others) {
    torch_.give_back(block);
  }
}

// Regression: the shared pool supplied the graph's memory, and handed it to other streams between replays.
TEST_F(TorchAllocatorTest, GraphWithoutAPoolGetsNoMemoryOfOthers) {
  strikes_ = [](const char* call) {
    if (std::string_view(call) == "reserve") {
      throw DeviceError("refused");
    }
  };
  torch_.begin(0, kGraph, [this](void* stream) { return stream == one_; });
  EXPECT_EQ(torch_.allocate(1000, 0, one_), nullptr);
  strikes_ = [](const char*) {};
  void* const block = torch_.allocate(1000, 0, one_);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(statistics().all.blocks.added, 0U);
  torch_.give_back(block);
  torch_.end(0, kGraph);
  torch_.release(0, kGraph);
  EXPECT_EQ(committed(), 0U);
}

// Regression: other threads waited for the GPU's lock, in this test forever.
TEST_F(TorchAllocatorTest, OthersAllocateAndFreeWhileThePoolOfAGraphEnds) {
  torch_.begin(0, kGraph, [this](void* stream) { return stream == one_; });
  void* const block = torch_.allocate(2 * kMiB, 0, one_);
  torch_.end(0, kGraph);
  torch_.release(0, kGraph);
  std::set<std::string> meanwhile;
  strikes_ = [&](const char* call) {
    const std::string name = call;
    if (name == "destroy_granule" || name == "unreserve") {
      meanwhile.insert(name);
      std::thread([this] { torch_.give_back(torch_.allocate(1000, 0, other_)); }).join();
    }
  };
  torch_.give_back(block);
  strikes_ = [](const char*) {};
  EXPECT_EQ(meanwhile, (std::set<std::string>{"destroy_granule", "unreserve"}));
  EXPECT_EQ(statistics().all.blocks.added, statistics().all.blocks.removed);
  EXPECT_GE(statistics().all.blocks.removed, 2U);
}

TEST_F(TorchAllocatorTest, PoolOfAGraphGoesWithItsLastBlock) {
  const auto all = [](void*) { return true; };
  torch_.begin(0, kGraph, all);
  void* const block = torch_.allocate(kMiB, 0, one_);
  torch_.end(0, kGraph);
  torch_.begin(0, kGraph, all);
  torch_.end(0, kGraph);
  torch_.release(0, kGraph);
  torch_.give_back(torch_.allocate(kMiB, 0, one_));
  torch_.empty_caches();
  EXPECT_EQ(committed(), kMiB);
  torch_.release(0, kGraph);
  EXPECT_EQ(committed(), kMiB) << "a block lives";
  torch_.give_back(block);
  EXPECT_EQ(committed(), 0U);
  torch_.release(0, kGraph);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("no such pool"));
  torch_.end(0, kGraph);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("no such pool"));
  torch_.begin(0, {0, 0}, all);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("other than the default one"));
  torch_.begin(0, kGraph, nullptr);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("other than the default one"));
}

// Regression: on a GPU of 8 MiB, the device refused the request because another pool cached 6 MiB.
TEST_F(TorchAllocatorTest, PoolsGiveToEachOtherWhatTheyCache) {
  torch_.give_back(torch_.allocate(6 * kMiB, 0, one_));
  torch_.begin(0, kGraph, [](void*) { return true; });
  void* const block = torch_.allocate(5 * kMiB, 0, one_);
  EXPECT_NE(block, nullptr) << vdnn_last_error();
  torch_.give_back(block);
}

TEST_F(TorchAllocatorTest, FilterThatThrowsIsAFailure) {
  torch_.begin(0, kGraph, [](void*) -> bool { throw std::runtime_error("thrown by the filter"); });
  EXPECT_EQ(torch_.allocate(1, 0, one_), nullptr);
  EXPECT_STREQ(vdnn_last_error(), "thrown by the filter");
  torch_.end(0, kGraph);
  void* const block = torch_.allocate(1, 0, one_);
  EXPECT_NE(block, nullptr);
  torch_.give_back(block);
}

// Each call of the backend fails in turn. Nothing is thrown, a block whose free was refused can be freed
// again, and all memory is free in the end.
class TorchFailures : public TorchAllocatorTest {
 protected:
  // Returns the allocated blocks; null for each that failed.
  std::vector<void*> use() {
    torch_.begin(0, kGraph, [this](void* stream) { return stream == one_; });
    std::vector<void*> blocks(4);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i] = torch_.allocate(static_cast<std::int64_t>(i * kMiB / 2), 0, i % 2 == 0 ? one_ : other_);
    }
    torch_.used_on(blocks[1], one_);
    torch_.end(0, kGraph);
    give_back(blocks);
    torch_.release(0, kGraph);
    torch_.empty_caches();
    return blocks;
  }
  void give_back(const std::vector<void*>& blocks) {
    for (void* const block : blocks) {
      torch_.give_back(block);
    }
  }
};

TEST_F(TorchFailures, OfEveryCallOfTheBackendStayInside) {
  std::uint64_t fail_at = 0;
  std::uint64_t calls = 0;
  do {
    calls = 0;
    ++fail_at;
    strikes_ = [&](const char*) {
      if (++calls == fail_at) {
        throw DeviceError("made to fail");
      }
    };
    const std::vector<void*> blocks = use();
    strikes_ = [](const char*) {};
    give_back(blocks);
    torch_.empty_caches();
    ASSERT_EQ(committed(), 0U) << "after a failure of call " << fail_at;
  } while (fail_at <= calls);
  EXPECT_GT(fail_at, 20U);
  EXPECT_EQ(statistics().all.blocks.current, 0U);
}

// --- the library -------------------------------------------------------------------------------------------

TEST(TorchLibrary, ExportsTheHooksAndNothingElseOfOurs) {
  void* const library = dlopen(VDNN_TORCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* hook :
       {"vdnn_torch_malloc", "vdnn_torch_free", "vdnn_torch_init", "vdnn_torch_reset",
        "vdnn_torch_set_memory_fraction", "vdnn_torch_get_base_allocation", "vdnn_torch_record_stream",
        "vdnn_torch_begin_allocate_to_pool", "vdnn_torch_end_allocate_to_pool", "vdnn_torch_release_pool",
        "vdnn_torch_statistics", "vdnn_torch_last_error"}) {
    EXPECT_NE(dlsym(library, hook), nullptr) << hook;
  }
  EXPECT_EQ(dlsym(library, "vdnn_allocator_create"), nullptr);
  EXPECT_EQ(dlsym(library, "cudaMalloc"), nullptr) << "its own runtime is not exported";
}

// GPU 4096 does not exist even on a machine with GPUs.
TEST(TorchLibrary, SaysWhyThereIsNoMemory) {
  void* const library = dlopen(VDNN_TORCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto allocate = reinterpret_cast<void* (*)(ssize_t, int, void*)>(dlsym(library, "vdnn_torch_malloc"));
  const auto free = reinterpret_cast<void (*)(void*, ssize_t, int, void*)>(dlsym(library, "vdnn_torch_free"));
  const auto error = reinterpret_cast<const char* (*)()>(dlsym(library, "vdnn_torch_last_error"));
  EXPECT_EQ(allocate(1000, 4096, nullptr), nullptr);
  EXPECT_STRNE(error(), "");
  free(nullptr, 0, 0, nullptr);
}

}  // namespace
}  // namespace vdnn
