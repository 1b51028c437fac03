// The C interface: arguments are checked, every failure is a status, and no exception leaves the library.

#include "allocator/dropin/c_abi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/allocator/dropin/c_program.h"
#include "tests/fakes/heap.h"
#include "tests/report/json_schema.h"
#include "vdnn/cpu_device.h"
#include "vdnn/error.h"
#include "vdnn/failing_backend.h"

namespace vdnn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Json;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBudget = 8 * kMiB;

vdnn_allocator_options default_options() {
  vdnn_allocator_options options;
  EXPECT_EQ(vdnn_allocator_options_init(&options, VDNN_ALLOCATOR_VERSION), VDNN_OK);
  return options;
}

vdnn_allocator_statistics statistics_of(vdnn_allocator* allocator) {
  vdnn_allocator_statistics statistics{.version = VDNN_ALLOCATOR_VERSION};
  EXPECT_EQ(vdnn_allocator_get_statistics(allocator, &statistics), VDNN_OK);
  return statistics;
}

class CAbi : public ::testing::Test {
 protected:
  void SetUp() override {
    device_->create_stream("one");
    device_->create_stream("other");
    vdnn_allocator_options options = default_options();
    options.on_exhausted = [](void* self, std::uint64_t bytes) {
      return static_cast<CAbi*>(self)->on_exhausted(bytes) ? 1 : 0;
    };
    options.user_data = this;
    ASSERT_EQ(create_allocator(make_pool_backend(*device_), &options, &allocator_), VDNN_OK);
  }

  void TearDown() override {
    EXPECT_EQ(vdnn_allocator_destroy(allocator_), VDNN_OK);
    EXPECT_EQ(device_->counters().committed_bytes, 0U);
  }

  void* allocate(std::uint64_t bytes) {
    void* address = nullptr;
    EXPECT_EQ(vdnn_allocator_allocate(allocator_, bytes, one_, VDNN_TRANSIENT, &address), VDNN_OK);
    return address;
  }

  std::unique_ptr<Device> device_ = make_cpu_device({.budget_bytes = kBudget});
  StreamHandle one_ = stream_handle(0);
  StreamHandle other_ = stream_handle(1);
  vdnn_allocator* allocator_ = nullptr;
  std::function<bool(std::uint64_t)> on_exhausted = [](std::uint64_t) { return false; };
};

TEST_F(CAbi, ServesAProgramInC) {
  EXPECT_EQ(run_c_program(allocator_, one_, other_), nullptr)
      << run_c_program(allocator_, one_, other_) << "; " << vdnn_last_error();
}

TEST_F(CAbi, BlocksThatLiveDoNotHinderDestruction) {
  void* const block = allocate(kMiB);
  std::memset(block, 1, kMiB);
}

TEST_F(CAbi, ExhaustionSaysTheNumbersAndChangesNothing) {
  void* address = &address;
  for (const std::uint64_t bytes : {kBudget + 1, std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_EQ(vdnn_allocator_allocate(allocator_, bytes, one_, VDNN_TRANSIENT, &address), VDNN_OUT_OF_MEMORY);
    EXPECT_THAT(vdnn_last_error(), HasSubstr(std::to_string(bytes)));
    EXPECT_EQ(vdnn_allocator_allocate_ready(allocator_, bytes, VDNN_PERSISTENT, &address),
              VDNN_OUT_OF_MEMORY);
  }
  EXPECT_EQ(address, &address) << "not written";
  EXPECT_EQ(statistics_of(allocator_).failures, 4U);
  EXPECT_EQ(statistics_of(allocator_).all.blocks.added, 0U);
}

TEST_F(CAbi, CallbackMayFreeAndHaveItTriedAgain) {
  void* const first = allocate(6 * kMiB);
  std::uint64_t asked = 0;
  on_exhausted = [&](std::uint64_t bytes) {
    asked = bytes;
    return vdnn_allocator_free(allocator_, first) == VDNN_OK;
  };
  allocate(5 * kMiB);
  EXPECT_EQ(asked, 5 * kMiB);
}

// The header forbids a callback to throw, but a callback written in C++ can.
TEST_F(CAbi, WhatACallbackThrowsStaysInside) {
  allocate(6 * kMiB);
  void* address = nullptr;
  on_exhausted = [](std::uint64_t) -> bool { throw std::runtime_error("thrown by the callback"); };
  EXPECT_EQ(vdnn_allocator_allocate(allocator_, 5 * kMiB, one_, VDNN_TRANSIENT, &address),
            VDNN_INTERNAL_ERROR);
  EXPECT_STREQ(vdnn_last_error(), "thrown by the callback");
  on_exhausted = [](std::uint64_t) -> bool { throw 1; };
  EXPECT_EQ(vdnn_allocator_allocate(allocator_, 5 * kMiB, one_, VDNN_TRANSIENT, &address),
            VDNN_INTERNAL_ERROR);
  allocate(1);
}

TEST_F(CAbi, SaysItsUnitAndItsBudget) {
  std::uint64_t granule = 0;
  std::uint64_t budget = 0;
  EXPECT_EQ(vdnn_allocator_granule_bytes(allocator_, &granule), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_budget_bytes(allocator_, &budget), VDNN_OK);
  EXPECT_EQ(granule, device_->properties().granule_bytes);
  EXPECT_EQ(budget, kBudget);
}

TEST_F(CAbi, SaysWhichStreamABlockIsOf) {
  void* const block = allocate(1000);
  void* ready = nullptr;
  ASSERT_EQ(vdnn_allocator_allocate_ready(allocator_, 1000, VDNN_TRANSIENT, &ready), VDNN_OK);
  void* stream = nullptr;
  int has_stream = -1;
  EXPECT_EQ(vdnn_allocator_block_stream(allocator_, block, &stream, &has_stream), VDNN_OK);
  EXPECT_EQ(stream, one_);
  EXPECT_EQ(has_stream, 1);
  EXPECT_EQ(vdnn_allocator_block_stream(allocator_, ready, &stream, &has_stream), VDNN_OK);
  EXPECT_EQ(stream, nullptr);
  EXPECT_EQ(has_stream, 0);
  EXPECT_EQ(vdnn_allocator_free(allocator_, block), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_block_stream(allocator_, block, &stream, &has_stream), VDNN_INVALID_ARGUMENT);
}

TEST_F(CAbi, AReservedPoolGrowsNoMore) {
  EXPECT_EQ(vdnn_allocator_reserve(allocator_, 3 * kMiB), VDNN_OK);
  EXPECT_EQ(device_->counters().committed_bytes, 3 * kMiB);
  EXPECT_EQ(vdnn_allocator_reserve(allocator_, 2 * kMiB), VDNN_OK) << "more is committed already";
  allocate(2 * kMiB);
  allocate(kMiB);
  EXPECT_EQ(statistics_of(allocator_).growths, 1U);
  EXPECT_EQ(vdnn_allocator_reserve(allocator_, kBudget + 1), VDNN_OUT_OF_MEMORY);
  EXPECT_THAT(vdnn_last_error(), HasSubstr(std::to_string(kBudget + 1)));
  EXPECT_EQ(device_->counters().committed_bytes, 3 * kMiB);
  EXPECT_EQ(vdnn_allocator_reserve(allocator_, kBudget), VDNN_OK);
  EXPECT_EQ(device_->counters().committed_bytes, kBudget);
}

TEST_F(CAbi, BlocksOfUnknownUsersAreWaitedForByWhoeverTakesThem) {
  void* const block = allocate(6 * kMiB);
  EXPECT_EQ(vdnn_allocator_free_unordered(allocator_, block), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_free_unordered(allocator_, block), VDNN_INVALID_ARGUMENT);
  EXPECT_EQ(statistics_of(allocator_).device_waits, 0U);
  allocate(6 * kMiB);
  EXPECT_EQ(statistics_of(allocator_).device_waits, 1U);
}

TEST_F(CAbi, StatisticsAreInitialised) {
  vdnn_allocator_statistics statistics;
  std::memset(&statistics, 0xff, sizeof statistics);
  EXPECT_EQ(vdnn_allocator_statistics_init(&statistics, VDNN_ALLOCATOR_VERSION + 1), VDNN_INVALID_ARGUMENT);
  EXPECT_EQ(vdnn_allocator_statistics_init(nullptr, VDNN_ALLOCATOR_VERSION), VDNN_INVALID_ARGUMENT);
  ASSERT_EQ(vdnn_allocator_statistics_init(&statistics, VDNN_ALLOCATOR_VERSION), VDNN_OK);
  EXPECT_EQ(statistics.failures, 0U);
  EXPECT_EQ(vdnn_allocator_get_statistics(allocator_, &statistics), VDNN_OK);
}

TEST_F(CAbi, StatisticsTellOfStreamsAndTheirEvents) {
  void* const block = allocate(6 * kMiB);
  EXPECT_EQ(statistics_of(allocator_).streams_tracked, 1U);
  EXPECT_EQ(vdnn_allocator_free(allocator_, block), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_forget_stream(allocator_, one_), VDNN_OK);
  EXPECT_EQ(statistics_of(allocator_).events_held, statistics_of(allocator_).events_recorded);
  void* other = nullptr;
  ASSERT_EQ(vdnn_allocator_allocate(allocator_, 1, other_, VDNN_TRANSIENT, &other), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_free_unordered(allocator_, other), VDNN_OK);
  EXPECT_EQ(statistics_of(allocator_).freed_unordered, 1U);
}

// Statistics as the first version of the header declared them, followed by other memory of the program.
struct StatisticsOfVersion1 {
  std::uint32_t version;
  std::uint32_t reserved;
  vdnn_allocator_figures figures[4];
  std::uint64_t numbers[10];
};
struct CallerOfVersion1 {
  StatisticsOfVersion1 statistics;
  std::uint64_t behind[4];
};

TEST_F(CAbi, ProgramsOfVersion1GetItsStatisticsAndNoMore) {
  vdnn_allocator_options options;
  ASSERT_EQ(vdnn_allocator_options_init(&options, 1), VDNN_OK);
  EXPECT_EQ(options.version, 1U);
  vdnn_allocator* of_version_1 = nullptr;
  ASSERT_EQ(create_allocator(make_pool_backend(*device_), &options, &of_version_1), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_destroy(of_version_1), VDNN_OK);

  allocate(3 * kMiB);
  EXPECT_EQ(vdnn_allocator_reserve(allocator_, kBudget + 1), VDNN_OUT_OF_MEMORY);
  CallerOfVersion1 caller;
  std::memset(&caller, 0xff, sizeof caller);
  auto* const given = reinterpret_cast<vdnn_allocator_statistics*>(&caller.statistics);
  const auto expect_untouched_behind = [&] {
    for (const std::uint64_t each : caller.behind) {
      EXPECT_EQ(each, ~std::uint64_t{0});
    }
  };
  ASSERT_EQ(vdnn_allocator_statistics_init(given, 1), VDNN_OK);
  EXPECT_EQ(caller.statistics.version, 1U);
  EXPECT_EQ(caller.statistics.numbers[9], 0U);
  expect_untouched_behind();
  for (const bool of_stream : {false, true}) {
    ASSERT_EQ(of_stream ? vdnn_allocator_get_stream_statistics(allocator_, one_, given)
                        : vdnn_allocator_get_statistics(allocator_, given),
              VDNN_OK);
    EXPECT_EQ(caller.statistics.version, 1U);
    EXPECT_EQ(caller.statistics.figures[0].requested.current, 3 * kMiB);
    EXPECT_EQ(caller.statistics.numbers[3], of_stream ? 0U : 1U) << "growths";
    expect_untouched_behind();
  }
}

TEST_F(CAbi, LastErrorIsTheThreadsOwn) {
  EXPECT_EQ(vdnn_allocator_free(allocator_, &allocator_), VDNN_INVALID_ARGUMENT);
  const std::string mine = vdnn_last_error();
  EXPECT_THAT(mine, HasSubstr("not the pool's"));
  std::thread([&] {
    EXPECT_STREQ(vdnn_last_error(), "");
    EXPECT_EQ(vdnn_allocator_reset_peaks(nullptr), VDNN_INVALID_ARGUMENT);
    EXPECT_STREQ(vdnn_last_error(), "allocator is null");
  }).join();
  EXPECT_EQ(vdnn_last_error(), mine);
  allocate(1);
  EXPECT_EQ(vdnn_last_error(), mine) << "a call that succeeds keeps the last error";
}

TEST_F(CAbi, NullPointersAreRefused) {
  void* const block = allocate(1);
  void* address = nullptr;
  int owns = 0;
  std::uint64_t number = 0;
  std::array<char, 8> text{};
  vdnn_allocator_statistics statistics{.version = VDNN_ALLOCATOR_VERSION};
  for (vdnn_allocator* const allocator : {static_cast<vdnn_allocator*>(nullptr), allocator_}) {
    const auto unless_given = [&](auto* pointer) { return allocator == nullptr ? pointer : nullptr; };
    const std::vector<vdnn_status> statuses{
        vdnn_allocator_allocate(allocator, 1, one_, VDNN_TRANSIENT, unless_given(&address)),
        vdnn_allocator_allocate_ready(allocator, 1, VDNN_TRANSIENT, unless_given(&address)),
        vdnn_allocator_used_on(allocator, unless_given(static_cast<char*>(block)), one_),
        vdnn_allocator_owns(allocator, block, unless_given(&owns)),
        vdnn_allocator_block_bytes(allocator, block, unless_given(&number)),
        vdnn_allocator_get_statistics(allocator, unless_given(&statistics)),
        vdnn_allocator_get_stream_statistics(allocator, one_, unless_given(&statistics)),
        vdnn_allocator_picture(allocator, text.data(), text.size(), unless_given(&number)),
        vdnn_allocator_snapshot(allocator, unless_given(text.data()), text.size(), &number)};
    for (std::size_t i = 0; i < statuses.size(); ++i) {
      EXPECT_EQ(statuses[i], VDNN_INVALID_ARGUMENT) << i;
    }
  }
  for (const vdnn_status status :
       {vdnn_allocator_free(nullptr, block), vdnn_allocator_free_on(nullptr, block, one_),
        vdnn_allocator_free_idle(nullptr, block), vdnn_allocator_forget_stream(nullptr, one_),
        vdnn_allocator_trim(nullptr, 0, nullptr), vdnn_allocator_reset_peaks(nullptr),
        vdnn_allocator_options_init(nullptr, VDNN_ALLOCATOR_VERSION), vdnn_allocator_create(nullptr, nullptr),
        create_allocator(nullptr, nullptr, &allocator_),
        create_allocator(make_pool_backend(*device_), nullptr, nullptr)}) {
    EXPECT_EQ(status, VDNN_INVALID_ARGUMENT);
  }
  EXPECT_EQ(statistics_of(allocator_).all.blocks.added, 1U) << "nothing else was allocated";
  EXPECT_EQ(statistics_of(allocator_).all.blocks.removed, 0U);
}

TEST_F(CAbi, NullIsNothingWhereItMayBe) {
  EXPECT_EQ(vdnn_allocator_free(allocator_, nullptr), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_free_on(allocator_, nullptr, one_), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_free_idle(allocator_, nullptr), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_trim(allocator_, 0, nullptr), VDNN_OK);
  EXPECT_EQ(vdnn_allocator_destroy(nullptr), VDNN_OK);
  int owns = 1;
  EXPECT_EQ(vdnn_allocator_owns(allocator_, nullptr, &owns), VDNN_OK);
  EXPECT_EQ(owns, 0);
}

TEST_F(CAbi, OptionsThatCannotBeAreRefused) {
  const auto refused = [&](const std::function<void(vdnn_allocator_options&)>& change) {
    vdnn_allocator_options options = default_options();
    change(options);
    vdnn_allocator* made = nullptr;
    EXPECT_EQ(create_allocator(make_pool_backend(*device_), &options, &made), VDNN_INVALID_ARGUMENT);
    EXPECT_EQ(made, nullptr);
    EXPECT_EQ(vdnn_allocator_create(&options, &made), VDNN_INVALID_ARGUMENT) << "before any call of a device";
    return std::string(vdnn_last_error());
  };
  EXPECT_THAT(refused([](auto& options) { options.version = VDNN_ALLOCATOR_VERSION + 1; }),
              HasSubstr("version " + std::to_string(VDNN_ALLOCATOR_VERSION + 1)));
  EXPECT_THAT(refused([](auto& options) { options.version = 0; }), HasSubstr("version 0"));
  EXPECT_THAT(refused([](auto& options) { options.device = -1; }), HasSubstr("device -1"));
  EXPECT_THAT(refused([](auto& options) { options.ends_are_told = 2; }), HasSubstr("ends_are_told"));
  EXPECT_THAT(refused([](auto& options) { options.stack_traces = 2; }), HasSubstr("stack_traces"));
  vdnn_allocator_options options;
  EXPECT_EQ(vdnn_allocator_options_init(&options, VDNN_ALLOCATOR_VERSION + 1), VDNN_INVALID_ARGUMENT);
  vdnn_allocator_statistics statistics{.version = VDNN_ALLOCATOR_VERSION + 1};
  EXPECT_EQ(vdnn_allocator_get_statistics(allocator_, &statistics), VDNN_INVALID_ARGUMENT);
  EXPECT_EQ(vdnn_allocator_get_stream_statistics(allocator_, one_, &statistics), VDNN_INVALID_ARGUMENT);
  void* address = nullptr;
  EXPECT_EQ(vdnn_allocator_allocate(allocator_, 1, one_, 2, &address), VDNN_INVALID_ARGUMENT);
}

TEST_F(CAbi, MisuseIsRefused) {
  char* const block = static_cast<char*>(allocate(4096));
  void* const freed = allocate(4096);
  EXPECT_EQ(vdnn_allocator_free(allocator_, freed), VDNN_OK);
  const StreamHandle nobody = stream_handle(7);
  void* address = nullptr;
  std::uint64_t bytes = 0;
  for (const vdnn_status status :
       {vdnn_allocator_free(allocator_, freed), vdnn_allocator_free(allocator_, block + 1),
        vdnn_allocator_free(allocator_, &address), vdnn_allocator_free_idle(allocator_, freed),
        vdnn_allocator_free_on(allocator_, block, nobody), vdnn_allocator_used_on(allocator_, freed, one_),
        vdnn_allocator_used_on(allocator_, block, nobody),
        vdnn_allocator_block_bytes(allocator_, freed, &bytes),
        vdnn_allocator_allocate(allocator_, 1, nobody, VDNN_TRANSIENT, &address)}) {
    EXPECT_EQ(status, VDNN_INVALID_ARGUMENT);
  }
  EXPECT_EQ(vdnn_allocator_free(allocator_, block), VDNN_OK) << "still there";
}

std::string text_of(vdnn_allocator* allocator,
                    vdnn_status (*give)(vdnn_allocator*, char*, std::uint64_t, std::uint64_t*)) {
  std::uint64_t needed = 0;
  EXPECT_EQ(give(allocator, nullptr, 0, &needed), VDNN_OK);
  std::string text(needed, '?');
  EXPECT_EQ(give(allocator, text.data(), text.size(), &needed), VDNN_OK);
  EXPECT_EQ(needed, text.size());
  EXPECT_EQ(text.back(), '\0');
  text.pop_back();
  EXPECT_EQ(text.find('\0'), std::string::npos);
  return text;
}

TEST_F(CAbi, TextIsCutToTheBuffer) {
  const std::string whole = text_of(allocator_, vdnn_allocator_picture);
  std::string buffer(10, '?');
  std::uint64_t needed = 0;
  EXPECT_EQ(vdnn_allocator_picture(allocator_, buffer.data(), 8, &needed), VDNN_OK);
  EXPECT_EQ(needed, whole.size() + 1);
  EXPECT_EQ(buffer, whole.substr(0, 7) + std::string(1, '\0') + "??");
}

TEST_F(CAbi, SnapshotKeepsToItsSchema) {
  allocate(1000);
  EXPECT_EQ(vdnn_allocator_free(allocator_, allocate(5000)), VDNN_OK);
  const Json snapshot = Json::parse(text_of(allocator_, vdnn_allocator_snapshot));
  EXPECT_THAT(testing::SchemaCheck::errors(
                  testing::read_json(VDNN_DOCS_DIRECTORY "/pool_snapshot.schema.json"), snapshot),
              IsEmpty());
}

TEST(CAbiNames, EveryStatusHasOneOfItsOwn) {
  std::set<std::string> names;
  for (int status = VDNN_OK; status <= VDNN_INTERNAL_ERROR; ++status) {
    names.insert(vdnn_status_name(status));
  }
  EXPECT_EQ(names.size(), VDNN_INTERNAL_ERROR + 1U);
  EXPECT_FALSE(names.contains(vdnn_status_name(VDNN_INTERNAL_ERROR + 1)));
  EXPECT_STREQ(vdnn_status_name(-1), "unknown status");
}

// --- each failure of backend and heap in turn --------------------------------------------------------------

// Calls that reach every part of the pool, one after the other. A failed call is repeated and then works,
// since a failed call changes nothing.
class FailedInTurn {
 public:
  using Strikes = std::function<void(const char*)>;

  // The `heap_fail_at`-th allocation inside the calls fails (from 1; 0: none).
  explicit FailedInTurn(Strikes strikes, std::uint64_t heap_fail_at = 0)
      : strikes_(std::move(strikes)), heap_fail_at_(heap_fail_at) {
    device_->create_stream("one");
    device_->create_stream("other");
  }

  std::uint64_t heap_allocations() const { return heap_allocations_; }

  // Returns how many calls failed. Expects each status to be among `allowed`.
  int run(const std::set<vdnn_status>& allowed) {
    allowed_ = allowed;
    vdnn_allocator_options options = default_options();
    options.cache_bytes = 64 << 10;
    options.high_water_bytes = 4 * kMiB;
    options.name = "failed in turn";
    options.history_events = 8;
    // Two backends, because a failed `create` destroys its backend.
    std::vector<std::unique_ptr<PoolBackend>> backends(2);
    for (std::unique_ptr<PoolBackend>& backend : backends) {
      backend = std::make_unique<FailingBackend>(make_pool_backend(*device_), strikes_);
    }
    step("create", [&] {
      std::unique_ptr<PoolBackend> backend = std::move(backends.back());
      backends.pop_back();
      return create_allocator(std::move(backend), &options, &allocator_);
    });
    work();
    report();
    step("trim", [&] { return vdnn_allocator_trim(allocator_, 0, nullptr); });
    const vdnn_allocator_statistics statistics = statistics_of(allocator_);
    EXPECT_EQ(statistics.all.blocks.current, 0U);
    EXPECT_EQ(statistics.all.reserved.current, 0U);
    EXPECT_GT(statistics.events_recorded, 0U);
    EXPECT_GT(statistics.retries, 0U);
    step("destroy", [&] { return vdnn_allocator_destroy(allocator_); });
    EXPECT_EQ(device_->counters().committed_bytes, 0U);
    return failures_;
  }

 private:
  void step(const std::string& name, const std::function<vdnn_status()>& call) {
    vdnn_status status = call_counted(call);
    if (status != VDNN_OK) {
      ++failures_;
      EXPECT_TRUE(allowed_.contains(status)) << name << ": " << vdnn_status_name(status);
      EXPECT_STRNE(vdnn_last_error(), "");
      status = call_counted(call);
    }
    ASSERT_EQ(status, VDNN_OK) << name << ", the second time: " << vdnn_last_error();
  }

  vdnn_status call_counted(const std::function<vdnn_status()>& call) {
    const bool passed = heap_allocations_ >= heap_fail_at_;
    const HeapFailure failure(passed ? 0 : heap_fail_at_ - heap_allocations_);
    const vdnn_status status = call();
    heap_allocations_ += failure.allocations();
    return status;
  }

  void* allocate(std::uint64_t bytes, StreamHandle stream, std::uint32_t life) {
    void* address = nullptr;
    step("allocate", [&] { return vdnn_allocator_allocate(allocator_, bytes, stream, life, &address); });
    return address;
  }
  void free(void* address) {
    step("free", [&] { return vdnn_allocator_free(allocator_, address); });
  }

  void work() {
    const StreamHandle one = stream_handle(0);
    const StreamHandle other = stream_handle(1);
    std::vector<void*> small(20);
    for (void*& block : small) {
      block = allocate(9000, one, VDNN_TRANSIENT);
    }
    void* const lasting = allocate(kMiB, one, VDNN_PERSISTENT);
    void* const large = allocate(4 * kMiB, one, VDNN_TRANSIENT);
    step("used_on", [&] { return vdnn_allocator_used_on(allocator_, large, other); });
    void* ready = nullptr;
    step("ready", [&] { return vdnn_allocator_allocate_ready(allocator_, 100, VDNN_TRANSIENT, &ready); });
    for (void* const block : small) {
      free(block);
    }
    free(large);
    free(allocate(3 * kMiB, other, VDNN_TRANSIENT));
    step("free_on", [&] { return vdnn_allocator_free_on(allocator_, lasting, other); });
    // Needs all memory but the slab of `ready`, so the pool empties its caches and merges fragments.
    free(allocate(kBudget - (64 << 10), one, VDNN_TRANSIENT));
    step("free_idle", [&] { return vdnn_allocator_free_idle(allocator_, ready); });
    step("forget", [&] { return vdnn_allocator_forget_stream(allocator_, other); });
  }

  void report() {
    std::array<char, 100> text{};
    std::uint64_t needed = 0;
    vdnn_allocator_statistics statistics{.version = VDNN_ALLOCATOR_VERSION};
    step("statistics",
         [&] { return vdnn_allocator_get_stream_statistics(allocator_, stream_handle(0), &statistics); });
    step("picture", [&] { return vdnn_allocator_picture(allocator_, text.data(), text.size(), &needed); });
    step("snapshot", [&] { return vdnn_allocator_snapshot(allocator_, text.data(), text.size(), &needed); });
    step("torch_snapshot",
         [&] { return vdnn_allocator_torch_snapshot(allocator_, 1, text.data(), text.size(), &needed); });
  }

  Strikes strikes_;
  std::uint64_t heap_fail_at_;
  std::uint64_t heap_allocations_ = 0;
  std::unique_ptr<Device> device_ = make_cpu_device({.budget_bytes = kBudget});
  vdnn_allocator* allocator_ = nullptr;
  std::set<vdnn_status> allowed_;
  int failures_ = 0;
};

// A backend fails for lack of memory or with an error of the device. Each call is tried with both failures.
TEST(CAbiFailures, OfEveryCallOfTheBackendAreStatuses) {
  const std::vector<std::pair<vdnn_status, std::function<void()>>> kinds{
      {VDNN_OUT_OF_MEMORY, [] { throw OutOfMemory("made to fail", {}); }},
      {VDNN_DEVICE_ERROR, [] { throw DeviceError("made to fail"); }},
      {VDNN_DEVICE_LOST, [] { throw DeviceError("made to fail", true); }},
      {VDNN_NO_HOST_MEMORY, [] { throw std::bad_alloc(); }}};
  for (const auto& [status, fail] : kinds) {
    int failures = 0;
    std::uint64_t calls = 0;
    std::uint64_t fail_at = 0;
    do {
      calls = 0;
      std::string failed;
      ++fail_at;
      FailedInTurn in_turn([&, fail = fail](const char* call) {
        if (++calls == fail_at) {
          failed = call;
          fail();
        }
      });
      SCOPED_TRACE(std::string(vdnn_status_name(status)) + " at call " + std::to_string(fail_at));
      failures += in_turn.run({status});
      if (::testing::Test::HasFailure()) {
        FAIL() << "of the backend's " << failed;
      }
    } while (fail_at <= calls);
    EXPECT_GT(failures, 5) << vdnn_status_name(status);
  }
}

// Regression: snapshots used nlohmann's values, whose destructors allocate memory; if that failed, the
// process ended.
TEST(CAbiFailures, OfEveryAllocationOfTheHeapAreStatuses) {
  int failures = 0;
  std::uint64_t fail_at = 0;
  std::uint64_t allocations = 0;
  do {
    FailedInTurn calls([](const char*) {}, ++fail_at);
    failures += calls.run({VDNN_NO_HOST_MEMORY, VDNN_OUT_OF_MEMORY});
    allocations = calls.heap_allocations();
    if (::testing::Test::HasFailure()) {
      FAIL() << "at allocation " << fail_at;
    }
  } while (fail_at <= allocations);
  EXPECT_GT(failures, 50);
}

}  // namespace
}  // namespace vdnn
