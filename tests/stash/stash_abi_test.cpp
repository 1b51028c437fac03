// The stash's interface in C: refusals, answers, behaviour after fork() and with an exhausted heap.

#include "src/stash/stash_abi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/stash/cuda_stash_backend.h"
#include "streams/host_memory.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/heap.h"
#include "tests/report/json_schema.h"
#include "tests/stash/stash_program_c.h"

namespace vdnn::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct DestroyStash {
  void operator()(vdnn_stash* stash) const { EXPECT_EQ(vdnn_stash_destroy(stash), VDNN_OK); }
};
using OwnedStash = std::unique_ptr<vdnn_stash, DestroyStash>;

vdnn_stash_options options(std::uint64_t budget_bytes = 0) {
  vdnn_stash_options result;
  EXPECT_EQ(vdnn_stash_options_init(&result, VDNN_STASH_VERSION), VDNN_OK);
  result.budget_bytes = budget_bytes;
  return result;
}

OwnedStash make_stash(const vdnn_stash_options& with = options()) {
  vdnn_stash* stash = nullptr;
  EXPECT_EQ(vdnn_stash_create(&with, &stash), VDNN_OK) << vdnn_last_error();
  return OwnedStash(stash);
}

vdnn_stash_statistics statistics_of(vdnn_stash* stash) {
  vdnn_stash_statistics result;
  EXPECT_EQ(vdnn_stash_statistics_init(&result, VDNN_STASH_VERSION), VDNN_OK);
  EXPECT_EQ(vdnn_stash_get_statistics(stash, &result), VDNN_OK);
  return result;
}

struct Put {
  vdnn_status status = VDNN_OK;
  vdnn_stash_handle handle = 0;
  std::uint32_t answer = 0;
};
Put put(vdnn_stash* stash, const std::vector<char>& bytes, std::uint64_t storage = 1) {
  Put result;
  result.status = vdnn_stash_put(stash, bytes.data(), bytes.size(), nullptr, storage, 0, 0, 0, &result.handle,
                                 &result.answer);
  return result;
}

// --- programs in C -----------------------------------------------------------------------------------------

TEST(StashAbi, ServesAProgramInC) {
  for (const std::uint64_t budget : {0, 1, 2500, 100000}) {
    const OwnedStash stash = make_stash(options(budget));
    EXPECT_STREQ(run_stash_program(stash.get()), nullptr) << budget;
    const vdnn_stash_statistics statistics = statistics_of(stash.get());
    EXPECT_EQ(statistics.puts, 12U);
    EXPECT_EQ(statistics.live_handles, 0U);
    EXPECT_EQ(statistics.steps, 3U);
    EXPECT_EQ(statistics.left == 0, budget == 100000);
  }
}

TEST(StashAbi, TheDefaultHostBudgetIsHalfOfWhatTheProcessMayTake) {
  std::uint64_t bytes = 0;
  ASSERT_EQ(vdnn_stash_default_host_bytes(&bytes), VDNN_OK);
  const std::uint64_t all = host_memory_bytes();
  EXPECT_EQ(bytes, std::min(all, cgroup_memory_limit().value_or(all)) / 2);
}

TEST(StashAbi, AStashOnTheHostHasNoStreams) {
  const OwnedStash stash = make_stash();
  int any = 0;
  void* offload = &any;
  void* prefetch = &any;
  EXPECT_EQ(vdnn_stash_streams(stash.get(), &offload, &prefetch), VDNN_OK);
  EXPECT_EQ(offload, nullptr);
  EXPECT_EQ(prefetch, nullptr);
}

TEST(StashAbi, AStashOfAGpuHasTwo) {
  const auto cuda = std::make_shared<FakeCuda>();
  vdnn_stash* stash = nullptr;
  ASSERT_EQ(create_stash(make_cuda_stash_backend(0, false, cuda), nullptr, &stash), VDNN_OK);
  void* offload = nullptr;
  void* prefetch = nullptr;
  EXPECT_EQ(vdnn_stash_streams(stash, &offload, &prefetch), VDNN_OK);
  EXPECT_TRUE(offload != nullptr && prefetch != nullptr && offload != prefetch);
  EXPECT_EQ(vdnn_stash_destroy(stash), VDNN_OK);
  EXPECT_THAT(cuda->leaks(), IsEmpty());
}

// --- refusals ----------------------------------------------------------------------------------------------

void expect_refused(const vdnn_stash_options& wrong, const std::string& why) {
  vdnn_stash* stash = nullptr;
  EXPECT_EQ(vdnn_stash_create(&wrong, &stash), VDNN_INVALID_ARGUMENT);
  EXPECT_EQ(stash, nullptr);
  EXPECT_THAT(vdnn_last_error(), HasSubstr(why));
}

TEST(StashAbi, RefusesOptionsThatCannotBe) {
  vdnn_stash_options wrong = options();
  wrong.version = VDNN_STASH_VERSION + 1;
  expect_refused(wrong, "version 2 is not known");
  wrong = options();
  wrong.device = -2;
  expect_refused(wrong, "there is no device -2");
  wrong = options();
  wrong.release_at_put = 2;
  expect_refused(wrong, "release_at_put is 2");
  wrong = options();
  wrong.timed = 2;
  expect_refused(wrong, "timed is 2");
  wrong = options();
  wrong.device = 0;
  wrong.delay_seed = 1;
  expect_refused(wrong, "delay_seed is for a stash on the host");
}

// The call was refused because of the null pointer `name`, and for no other reason.
void expect_null(const char* name, vdnn_status status) {
  EXPECT_EQ(status, VDNN_INVALID_ARGUMENT) << name;
  EXPECT_EQ(vdnn_last_error(), std::string(name) + " is null");
}

TEST(StashAbi, RefusesNullStashes) {
  const std::vector<char> bytes(10);
  vdnn_stash_handle handle = 0;
  std::uint32_t number = 0;
  std::uint64_t size = 0;
  void* stream = nullptr;
  char text = 0;
  vdnn_stash_statistics statistics{.version = VDNN_STASH_VERSION};
  expect_null("stash", vdnn_stash_create(nullptr, nullptr));
  expect_null("stash", vdnn_stash_streams(nullptr, &stream, &stream));
  expect_null("stash", vdnn_stash_put(nullptr, bytes.data(), 10, nullptr, 1, 0, 0, 0, &handle, &number));
  expect_null("stash", vdnn_stash_leaving(nullptr, &handle, 1, &number));
  expect_null("stash", vdnn_stash_leave(nullptr, 1, nullptr, &number));
  expect_null("stash", vdnn_stash_stay(nullptr, 1));
  expect_null("stash", vdnn_stash_hold(nullptr, 1));
  expect_null("stash", vdnn_stash_note_held(nullptr, 1, 1));
  expect_null("stash", vdnn_stash_note_peak(nullptr, 1));
  expect_null("stash", vdnn_stash_released(nullptr, nullptr, &handle, 1, &number));
  expect_null("stash", vdnn_stash_read(nullptr, 1, nullptr, 0, 0, &number));
  expect_null("stash", vdnn_stash_fetches(nullptr, 1, &handle, &size, 1, &number));
  expect_null("stash", vdnn_stash_fetch(nullptr, 1, &text, nullptr));
  expect_null("stash", vdnn_stash_ready(nullptr, 1, nullptr));
  expect_null("stash", vdnn_stash_drop(nullptr, 1));
  expect_null("stash", vdnn_stash_end_step(nullptr));
  expect_null("stash", vdnn_stash_forget(nullptr));
  expect_null("stash", vdnn_stash_get_statistics(nullptr, &statistics));
  expect_null("stash", vdnn_stash_learned_step(nullptr, &text, 1, &size));
  expect_null("stash", vdnn_stash_take_notice(nullptr, &text, 1, &size));
  EXPECT_EQ(vdnn_stash_destroy(nullptr), VDNN_OK);
}

// The handle is alive, so that nothing else is wrong with these calls.
TEST(StashAbi, RefusesNullPointers) {
  vdnn_stash_options at_once = options();
  at_once.flight_bytes = 1;  // so that vdnn_stash_released() returns the tensor
  const OwnedStash owned = make_stash(at_once);
  vdnn_stash* const stash = owned.get();
  const std::vector<char> bytes(10);
  const vdnn_stash_handle alive = put(stash, bytes).handle;
  vdnn_stash_handle handle = 0;
  std::uint32_t number = 0;
  std::uint64_t size = 0;
  void* stream = nullptr;
  expect_null("options", vdnn_stash_options_init(nullptr, VDNN_STASH_VERSION));
  expect_null("bytes", vdnn_stash_default_host_bytes(nullptr));
  expect_null("offload", vdnn_stash_streams(stash, nullptr, &stream));
  expect_null("prefetch", vdnn_stash_streams(stash, &stream, nullptr));
  expect_null("source", vdnn_stash_put(stash, nullptr, 10, nullptr, 2, 0, 0, 0, &handle, &number));
  expect_null("handle", vdnn_stash_put(stash, bytes.data(), 10, nullptr, 2, 0, 0, 0, nullptr, &number));
  expect_null("answer", vdnn_stash_put(stash, bytes.data(), 10, nullptr, 2, 0, 0, 0, &handle, nullptr));
  expect_null("handles", vdnn_stash_leaving(stash, nullptr, 1, &number));
  expect_null("count", vdnn_stash_leaving(stash, &handle, 1, nullptr));
  expect_null("answer", vdnn_stash_leave(stash, alive, nullptr, nullptr));
  expect_null("handles", vdnn_stash_released(stash, nullptr, nullptr, 1, &number));
  expect_null("count", vdnn_stash_released(stash, nullptr, &handle, 1, nullptr));
  expect_null("answer", vdnn_stash_read(stash, alive, nullptr, 0, 0, nullptr));
  expect_null("handles", vdnn_stash_fetches(stash, alive, nullptr, &size, 1, &number));
  expect_null("bytes", vdnn_stash_fetches(stash, alive, &handle, nullptr, 1, &number));
  expect_null("count", vdnn_stash_fetches(stash, alive, &handle, &size, 1, nullptr));
  expect_null("target", vdnn_stash_fetch(stash, alive, nullptr, nullptr));
  expect_null("statistics", vdnn_stash_statistics_init(nullptr, VDNN_STASH_VERSION));
  expect_null("statistics", vdnn_stash_get_statistics(stash, nullptr));
  expect_null("needed", vdnn_stash_learned_step(stash, nullptr, 0, nullptr));
  expect_null("text", vdnn_stash_learned_step(stash, nullptr, 1, &size));
  expect_null("needed", vdnn_stash_take_notice(stash, nullptr, 0, nullptr));
  expect_null("text", vdnn_stash_take_notice(stash, nullptr, 1, &size));
  // None of the calls saved, read or released anything.
  const vdnn_stash_statistics statistics = statistics_of(stash);
  EXPECT_EQ(statistics.puts, 1U);
  EXPECT_EQ(statistics.live_handles, 1U);
  EXPECT_EQ(vdnn_stash_released(stash, nullptr, &handle, 1, &number), VDNN_OK);
  EXPECT_EQ(number, 1U);
  EXPECT_EQ(handle, alive);
}

TEST(StashAbi, RefusesUnknownVersions) {
  vdnn_stash_options any_options;
  vdnn_stash_statistics any_statistics;
  const OwnedStash stash = make_stash();
  for (const std::uint32_t version : {0U, VDNN_STASH_VERSION + 1U, ~0U}) {
    EXPECT_EQ(vdnn_stash_options_init(&any_options, version), VDNN_INVALID_ARGUMENT);
    EXPECT_EQ(vdnn_stash_statistics_init(&any_statistics, version), VDNN_INVALID_ARGUMENT);
    any_statistics.version = version;
    EXPECT_EQ(vdnn_stash_get_statistics(stash.get(), &any_statistics), VDNN_INVALID_ARGUMENT);
    EXPECT_THAT(vdnn_last_error(), HasSubstr("version " + std::to_string(version) + " is not known"));
  }
}

TEST(StashAbi, RefusesHandlesThatAreNotAlive) {
  const OwnedStash stash = make_stash();
  std::uint32_t answer = 0;
  EXPECT_EQ(vdnn_stash_read(stash.get(), 7, nullptr, 0, 0, &answer), VDNN_INVALID_ARGUMENT);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("the stash has no handle 7"));
  const std::vector<char> bytes(10);
  const Put saved = put(stash.get(), bytes);
  EXPECT_EQ(vdnn_stash_read(stash.get(), saved.handle, nullptr, 0, 2, &answer), VDNN_INVALID_ARGUMENT);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("held is 2"));
  EXPECT_EQ(vdnn_stash_note_held(stash.get(), saved.handle, 2), VDNN_INVALID_ARGUMENT);
  EXPECT_EQ(vdnn_stash_note_held(stash.get(), saved.handle, 1), VDNN_OK);
  EXPECT_EQ(vdnn_stash_note_held(stash.get(), saved.handle, 0), VDNN_OK);
  EXPECT_EQ(vdnn_stash_note_peak(stash.get(), 1000), VDNN_OK);
  EXPECT_EQ(vdnn_stash_drop(stash.get(), saved.handle), VDNN_OK);
  EXPECT_EQ(vdnn_stash_drop(stash.get(), saved.handle), VDNN_INVALID_ARGUMENT);
}

// --- the learned step --------------------------------------------------------------------------------------

std::string learned_step(vdnn_stash* stash) {
  std::uint64_t needed = 0;
  EXPECT_EQ(vdnn_stash_learned_step(stash, nullptr, 0, &needed), VDNN_OK) << vdnn_last_error();
  std::string text(needed, ' ');
  EXPECT_EQ(vdnn_stash_learned_step(stash, text.data(), text.size(), &needed), VDNN_OK);
  EXPECT_EQ(text.back(), '\0');
  text.pop_back();
  return text;
}

TEST(StashAbi, TheLearnedStepIsJsonOfItsSchema) {
  const OwnedStash stash = make_stash(options(2500));
  std::uint64_t needed = 0;
  EXPECT_EQ(vdnn_stash_learned_step(stash.get(), nullptr, 0, &needed), VDNN_INVALID_ARGUMENT);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("has learned no step yet"));
  ASSERT_STREQ(run_stash_program(stash.get()), nullptr);
  const Json step = Json::parse(learned_step(stash.get()));
  EXPECT_THAT(
      SchemaCheck::errors(read_json(std::string(VDNN_DOCS_DIRECTORY) + "/learned_step.schema.json"), step),
      IsEmpty());
  ASSERT_EQ(step["events"].size(), 8U);
  EXPECT_EQ(step["events"][0]["save"], 1000);
  EXPECT_EQ(step["events"][4]["read"], 3);
  // The learned step counts bytes as if no tensor had left.
  EXPECT_EQ(step["events"][3]["in_use_bytes"], 4000);
  EXPECT_EQ(step["events"][7]["in_use_bytes"], 1000);
  EXPECT_EQ(step["peak_bytes"], 4000);
}

// --- fork() ------------------------------------------------------------------------------------------------

// The child continues with its parent's stash, like a data loader's worker. Returns the number, from 1, of
// the first call that does not behave as the header specifies, or 0.
int in_child(vdnn_stash* stash, vdnn_stash_handle handle) {
  std::uint32_t number = 0;
  std::uint64_t size = 0;
  vdnn_stash_handle other = 0;
  char byte = 0;
  void* stream = nullptr;
  vdnn_stash_statistics statistics{.version = VDNN_STASH_VERSION};
  const vdnn_status refused[] = {vdnn_stash_streams(stash, &stream, &stream),
                                 vdnn_stash_put(stash, &byte, 1, nullptr, 2, 0, 0, 0, &other, &number),
                                 vdnn_stash_leaving(stash, &other, 1, &number),
                                 vdnn_stash_leave(stash, handle, nullptr, &number),
                                 vdnn_stash_stay(stash, handle),
                                 vdnn_stash_note_held(stash, handle, 1),
                                 vdnn_stash_note_peak(stash, 1),
                                 vdnn_stash_released(stash, nullptr, &other, 1, &number),
                                 vdnn_stash_read(stash, handle, nullptr, 0, 0, &number),
                                 vdnn_stash_fetches(stash, handle, &other, &size, 1, &number),
                                 vdnn_stash_fetch(stash, handle, &byte, nullptr),
                                 vdnn_stash_ready(stash, handle, nullptr),
                                 vdnn_stash_end_step(stash),
                                 vdnn_stash_forget(stash),
                                 vdnn_stash_get_statistics(stash, &statistics),
                                 vdnn_stash_learned_step(stash, &byte, 1, &size),
                                 vdnn_stash_take_notice(stash, &byte, 1, &size)};
  int call = 0;
  for (const vdnn_status status : refused) {
    ++call;
    if (status != VDNN_INVALID_ARGUMENT) {
      return call;
    }
  }
  if (std::string(vdnn_last_error()).find("before fork()") == std::string::npos) {
    return call;
  }
  return vdnn_stash_drop(stash, handle) != VDNN_OK ? call + 1
         : vdnn_stash_destroy(stash) != VDNN_OK    ? call + 2
                                                   : 0;
}

TEST(StashAbi, AfterForkTheStashIsTheParents) {
  vdnn_stash_options slow = options();
  slow.delay_seed = 1;
  const OwnedStash stash = make_stash(slow);
  const std::vector<char> bytes(1000, 'x');
  const Put saved = put(stash.get(), bytes);
  ASSERT_EQ(saved.answer & VDNN_STASH_VERDICT, VDNN_STASH_LEAVES);
  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    _exit(in_child(stash.get(), saved.handle));
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(statistics_of(stash.get()).live_handles, 1U);
  EXPECT_EQ(vdnn_stash_drop(stash.get(), saved.handle), VDNN_OK);
}

// --- the heap ----------------------------------------------------------------------------------------------

// Three steps in which one heap allocation fails. A failed call has changed nothing, so the program repeats
// it.
class StarvedProgram {
 public:
  StarvedProgram(std::uint64_t budget_bytes, std::uint64_t fail_at)
      : budget_bytes_(budget_bytes), fail_at_(fail_at) {}

  void run() {
    vdnn_stash_options with = options(budget_bytes_);
    with.flight_bytes = 1;
    const OwnedStash stash = make_stash(with);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < sources_.size(); ++i) {
        save(stash.get(), i);
      }
      for (std::size_t i = sources_.size(); i-- > 0;) {
        read(stash.get(), i);
      }
    }
    const vdnn_stash_statistics statistics = statistics_of(stash.get());
    EXPECT_EQ(statistics.live_handles, 0U);
    EXPECT_GT(statistics.left, 0U);
    fetched_ahead_ = statistics.fetched_ahead;
  }
  std::uint64_t allocations() const { return allocations_; }
  int failures() const { return failures_; }
  std::uint64_t fetched_ahead() const { return fetched_ahead_; }

 private:
  static constexpr std::size_t kTensors = 4;
  using Handles = std::array<vdnn_stash_handle, kTensors>;

  template <class Call>
  vdnn_status counted(const Call& call) {
    const HeapFailure failure(allocations_ >= fail_at_ ? 0 : fail_at_ - allocations_);
    const vdnn_status status = call();
    allocations_ += failure.allocations();
    return status;
  }
  template <class Call>
  void insist(const Call& call) {
    vdnn_status status = counted(call);
    if (status != VDNN_OK) {
      EXPECT_EQ(status, VDNN_NO_HOST_MEMORY) << vdnn_last_error();
      ++failures_;
      status = counted(call);
    }
    EXPECT_EQ(status, VDNN_OK) << vdnn_last_error();
  }

  void save(vdnn_stash* stash, std::size_t index) {
    std::uint32_t answer = 0;
    const std::vector<char>& source = sources_[index];
    insist([&] {
      return vdnn_stash_put(stash, source.data(), source.size(), nullptr, index, 0, 0, 0, &handles_[index],
                            &answer);
    });
    Handles named{};
    std::uint32_t count = 0;
    if ((answer & VDNN_STASH_LEAVING) != 0) {
      insist([&] { return vdnn_stash_leaving(stash, named.data(), kTensors, &count); });
      for (std::uint32_t i = 0; i < count; ++i) {
        insist([&] { return vdnn_stash_leave(stash, named[i], nullptr, &answer); });
      }
    }
    insist([&] { return vdnn_stash_released(stash, nullptr, named.data(), kTensors, &count); });
  }

  void read(vdnn_stash* stash, std::size_t index) {
    const vdnn_stash_handle handle = handles_[index];
    std::uint32_t answer = 0;
    insist([&] { return vdnn_stash_read(stash, handle, nullptr, 0, 0, &answer); });
    if ((answer & VDNN_STASH_FETCHES) != 0) {
      fetch(stash, handle);
    }
    if ((answer & VDNN_STASH_MISSING) != 0) {
      insist([&] { return vdnn_stash_ready(stash, handle, nullptr); });
    }
    if ((answer & VDNN_STASH_IN_PLACE) == 0) {
      EXPECT_EQ(targets_[index], sources_[index]);
    }
    // Drop must succeed even if learning the step lacked memory.
    const vdnn_status dropped = counted([&] { return vdnn_stash_drop(stash, handle); });
    EXPECT_TRUE(dropped == VDNN_OK || dropped == VDNN_NO_HOST_MEMORY);
    failures_ += dropped == VDNN_OK ? 0 : 1;
  }

  void fetch(vdnn_stash* stash, vdnn_stash_handle reading) {
    Handles due{};
    std::array<std::uint64_t, kTensors> bytes{};
    std::uint32_t count = 0;
    insist([&] { return vdnn_stash_fetches(stash, reading, due.data(), bytes.data(), kTensors, &count); });
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto index = static_cast<std::size_t>(std::ranges::find(handles_, due[i]) - handles_.begin());
      ASSERT_LT(index, kTensors);
      targets_[index].assign(bytes[i], '\0');
      insist([&] { return vdnn_stash_fetch(stash, due[i], targets_[index].data(), nullptr); });
    }
  }

  const std::uint64_t budget_bytes_;
  const std::uint64_t fail_at_;
  std::uint64_t allocations_ = 0;
  int failures_ = 0;
  std::uint64_t fetched_ahead_ = 0;
  const std::array<std::vector<char>, kTensors> sources_{
      std::vector<char>(1000, 'a'), std::vector<char>(1000, 'b'), std::vector<char>(2000, 'c'),
      std::vector<char>(500, 'd')};
  std::array<std::vector<char>, kTensors> targets_;
  Handles handles_{};
};

// Without a budget all tensors leave with their saves. With a budget, kept tensors leave when the bytes in
// use approach it, and in later steps a plan decides.
class StarvedStash : public ::testing::TestWithParam<std::uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Budgets, StarvedStash, ::testing::Values(0, 3000));

TEST_P(StarvedStash, EveryAllocationOfTheHeapIsRefusedInTurn) {
  StarvedProgram fed(GetParam(), 0);
  fed.run();
  EXPECT_EQ(fed.failures(), 0);
  EXPECT_GT(fed.fetched_ahead(), 0U);
  int failures = 0;
  for (std::uint64_t fail_at = 1; fail_at <= fed.allocations() && !HasFailure(); ++fail_at) {
    SCOPED_TRACE(fail_at);
    StarvedProgram program(GetParam(), fail_at);
    program.run();
    failures += program.failures();
  }
  EXPECT_GT(failures, 50);
}

}  // namespace
}  // namespace vdnn::testing
