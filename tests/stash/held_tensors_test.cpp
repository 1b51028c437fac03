// Plans and the learned step use two facts that the program reports: how long it holds each tensor, and the
// bytes in use between two events.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/tensor_stash.h"

namespace vdnn::held_tensors_test {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kBytes = 1000;
constexpr std::uint64_t kPlenty = 100 * kBytes;

// A program that saves tensors of 1000 bytes, reads them in the opposite order and drops them.
class HeldTensors : public ::testing::Test {
 protected:
  void make(std::uint64_t budget_bytes) {
    StashOptions options{.budget_bytes = budget_bytes};
    options.flight_bytes = 0;  // the next put releases the source
    options.ahead_bytes = 0;
    stash_.emplace(make_host_stash_backend({}), options);
  }

  PutAnswer save(std::uint64_t in_use_bytes, std::uint64_t signature = 0) {
    tensors_.push_back(std::make_unique<std::vector<char>>(kBytes));
    const PutAnswer answer = stash_->put(
        {.source = {.begin = reinterpret_cast<std::uintptr_t>(tensors_.back()->data()), .bytes = kBytes},
         .contents = {.storage = ++storages_},
         .signature = signature},
        in_use_bytes);
    handles_.push_back(answer.handle);
    stash_->released(nullptr, kMost);
    return answer;
  }
  // Each save increases the bytes in use by one tensor.
  void save_all(std::size_t count) {
    for (std::size_t i = 1; i <= count; ++i) {
      save(i * kBytes);
    }
  }
  // With `tells`, each read reports the bytes in use as if no tensor were away.
  void read_all(bool tells = true) {
    for (std::size_t i = handles_.size(); i-- > 0;) {
      const ReadAnswer answer = stash_->read(handles_[i], nullptr, tells ? (i + 1) * kBytes : 0);
      if (answer.place == StashPlace::kMissing) {
        std::vector<char> target(kBytes);
        for (const DueFetch& due : stash_->fetches(handles_[i], 1)) {
          stash_->fetch(due.handle, reinterpret_cast<std::uintptr_t>(target.data()), nullptr);
        }
        stash_->ready(handles_[i], nullptr);
      }
      stash_->drop(handles_[i]);
    }
    handles_.clear();
    tensors_.clear();
  }
  Json events() const { return Json::parse(stash_->learned_step())["events"]; }

  static constexpr std::size_t kMost = 16;
  std::optional<TensorStash> stash_;
  std::vector<std::unique_ptr<std::vector<char>>> tensors_;
  std::vector<StashHandle> handles_;
  std::uint64_t storages_ = 0;
};

TEST_F(HeldTensors, AreHeldUntilTheEventAtWhichOthersLetGo) {
  make(kPlenty);
  for (int i = 0; i < 2; ++i) {
    save(kBytes);
    stash_->note_held(handles_[0], true);
    save(2 * kBytes);
    stash_->note_held(handles_[1], true);
    stash_->note_held(handles_[1], false);  // as the stash assumes without a note
    save(3 * kBytes);
    stash_->note_held(handles_[0], false);
    save(4 * kBytes);
    read_all();
  }
  const Json events = this->events();
  ASSERT_EQ(events.size(), 8U);
  EXPECT_EQ(events[0]["held_until"], 3);
  EXPECT_FALSE(events[1].contains("held_until"));
  EXPECT_FALSE(events[2].contains("held_until")) << "the program reported nothing about it";
}

TEST_F(HeldTensors, AreHeldToTheEndWhereNobodyLetsGo) {
  make(kPlenty);
  save_all(3);
  stash_->note_held(handles_[1], true);
  read_all();
  EXPECT_EQ(events()[1]["held_until"], 5) << "the drop follows its read, the last but one event";
}

TEST_F(HeldTensors, AreWatchedInTheFirstTwoStepsOfAKind) {
  make(kPlenty);
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(save(kBytes).is_watched, step < 2);
    EXPECT_EQ(save(2 * kBytes).is_watched, step < 2);
    read_all();
  }
  EXPECT_FALSE(save(kBytes).is_watched);
  EXPECT_TRUE(save(2 * kBytes, 7).is_watched) << "another kind";
  read_all();
}

TEST_F(HeldTensors, StepsThatBeginAlikeShareWhatIsKnown) {
  make(kPlenty);
  for (int step = 0; step < 3; ++step) {
    save(kBytes);
    if (step < 2) {
      stash_->note_held(handles_[0], true);
    }
    save(2 * kBytes);
    save(3 * kBytes);
    if (step < 2) {
      stash_->note_held(handles_[0], false);
    }
    read_all();
  }
  save_all(2);
  save(3 * kBytes, 7);
  read_all();
  const Json events = this->events();
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0]["held_until"], 3);
}

TEST_F(HeldTensors, TakeMemoryAfterTheyWereReleased) {
  make(0);
  save(kBytes);
  stash_->note_held(handles_[0], true);
  save(2 * kBytes);  // the first one has been released but is still held
  save(2 * kBytes);  // the second one is not held
  stash_->note_held(handles_[0], false);
  save(kBytes);
  for (const StashHandle handle : handles_) {
    stash_->drop(handle);
  }
  const Json events = this->events();
  ASSERT_EQ(events.size(), 4U);
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["in_use_bytes"], (i + 1) * kBytes) << "event " << i;
  }
}

TEST_F(HeldTensors, AreNotMovedWhereThatFreesNothing) {
  make(3 * kBytes);
  for (int step = 0; step < 3; ++step) {
    save(0);
    if (step < 2) {
      stash_->note_held(handles_[0], true);  // to the end
    }
    for (int tensor = 1; tensor < 4; ++tensor) {
      save(0);
    }
    read_all(false);
  }
  // By size and length of absence, the plan would choose the first tensor.
  EXPECT_EQ(stash_->statistics().planned_out_bytes, kBytes);
  save_all(4);
  EXPECT_EQ(stash_->read(handles_[0], nullptr, kBytes).place, StashPlace::kInPlace);
  EXPECT_EQ(stash_->read(handles_[1], nullptr, kBytes).place, StashPlace::kMissing);
  for (const StashHandle handle : handles_) {
    stash_->drop(handle);
  }
}

TEST_F(HeldTensors, PeaksBetweenEventsAreTold) {
  make(kPlenty);
  stash_->note_peak(50 * kBytes);  // a peak before the first step
  save(kBytes);
  stash_->note_peak(7 * kBytes);
  stash_->note_peak(6 * kBytes);
  save(2 * kBytes);
  save(3 * kBytes);
  read_all();
  const Json step = Json::parse(stash_->learned_step());
  EXPECT_FALSE(step["events"][0].contains("peak_bytes"));
  EXPECT_EQ(step["events"][1]["peak_bytes"], 7 * kBytes);
  EXPECT_EQ(step["events"][1]["in_use_bytes"], 2 * kBytes);
  EXPECT_FALSE(step["events"][2].contains("peak_bytes"));
  EXPECT_EQ(step["peak_bytes"], 7 * kBytes);
  EXPECT_EQ(stash_->statistics().device_peak_bytes, 7 * kBytes);
}

TEST_F(HeldTensors, StepsBeginWhereTheOneBeforeEnded) {
  make(kPlenty);
  save_all(2);
  read_all();
  const auto after_first = std::chrono::steady_clock::now();
  EXPECT_EQ(events().size(), 4U);
  const std::chrono::duration<double> between = std::chrono::steady_clock::now() - after_first;
  save_all(2);
  read_all();
  const Json second = Json::parse(stash_->learned_step());
  EXPECT_GE(second["events"][0]["seconds"].get<double>(), between.count());
  EXPECT_GE(second["seconds"], second["events"].back()["seconds"]);
}

TEST_F(HeldTensors, HandlesThatAreNotAliveAreRefused) {
  make(kPlenty);
  EXPECT_THROW(stash_->note_held(1, true), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::held_tensors_test
