// Trains ten thousand steps in four hundred sessions, each planned anew with another policy and budget and
// followed by an evaluation. A checkpoint or the program carries the state to the next session. No resource
// grows, and the weights are those of ten thousand steps in one session. Nothing grows within that session,
// either.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/data/samples.h"
#include "tests/temporary_directory.h"
#include "tests/train/training_runs.h"
#include "vdnn/checkpoint.h"
#include "vdnn/trainer.h"

namespace vdnn {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBatch = 8;
constexpr std::uint64_t kStepsASession = 25;  // one epoch
constexpr std::uint64_t kSessions = 400;
// The length of the warm-up, in sessions or epochs. Meanwhile caches of the libraries fill: oneDNN's
// primitives, the allocator's free lists.
constexpr std::uint64_t kWarmUp = 100;
constexpr std::uint64_t kLargestBudget = 64 << 20;

// Resources of this process, measured between sessions or epochs.
struct Footprint {
  std::uint64_t heap_bytes = 0;      // blocks in use
  std::uint64_t resident_bytes = 0;  // after the allocator's free memory was returned
  std::uint64_t mapped_bytes = 0;    // address space that devices reserve, commit and page-lock
  std::uint64_t threads = 0;
  std::uint64_t descriptors = 0;
};

std::map<std::string, std::uint64_t> process_status() {
  std::map<std::string, std::uint64_t> result;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    result[line.substr(0, colon)] = std::strtoull(line.c_str() + colon + 1, nullptr, 10);
  }
  return result;
}

Footprint footprint() {
  ::malloc_trim(0);
  const struct mallinfo2 heap = ::mallinfo2();
  const std::map<std::string, std::uint64_t> status = process_status();
  constexpr std::uint64_t kKib = 1024;
  return {.heap_bytes = heap.uordblks + heap.hblkhd,
          .resident_bytes = status.at("VmRSS") * kKib,
          .mapped_bytes = status.at("VmSize") * kKib,
          .threads = status.at("Threads"),
          .descriptors = static_cast<std::uint64_t>(
              std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()))};
}

class Soak : public testing::TemporaryDirectory {
 protected:
  static Network network() { return make_model({.model = "lenet", .batch = kBatch}); }
  static RunOptions options(Policy policy, std::uint64_t budget) {
    return {.device = "cpu",
            .memory_bytes = budget,
            .host_memory_bytes = kLargestBudget,
            .threads = 1,
            .policy = policy};
  }
  static DatasetSplits short_epochs() {
    const auto samples = [](std::uint64_t seed, std::uint64_t count) {
      return std::make_unique<testing::FirstSamples>(
          open_dataset(dataset_options(network(), "synthetic", seed)).training, count);
    };
    return {.training = samples(1, kStepsASession * kBatch), .test = samples(2, 2 * kBatch + 1)};
  }

  TrainingResult train(const PlannedRun& run, const TrainOptions& train_options,
                       const std::function<void(const StepReport&)>& report = {}) const {
    Trainer trainer(run, data_, train_options);
    return trainer.train(report);
  }

  // Draws a policy, and a budget from the policy's smallest one upwards.
  RunOptions draw() {
    constexpr std::size_t kLast = std::size(testing::kPolicies) - 1;
    const Policy policy = testing::kPolicies[std::uniform_int_distribution<std::size_t>(0, kLast)(random_)];
    if (!smallest_.contains(policy)) {
      smallest_[policy] = plan_run(network(), options(policy, kLargestBudget)).smallest_budget_bytes();
    }
    return options(policy, std::uniform_int_distribution(smallest_[policy], kLargestBudget)(random_));
  }

  // Trains one more epoch from the state that the previous session saved.
  TrainingResult train_session(std::uint64_t session) {
    const RunOptions run_options = draw();
    const std::optional<Checkpoint> checkpoint =
        fs::exists(path_) ? std::optional<Checkpoint>(path_) : std::nullopt;
    const PlannedRun run =
        checkpoint ? plan_resumed_run(*checkpoint, network(), run_options) : plan_run(network(), run_options);
    TrainOptions train_options{.epochs = session + 1};
    if (checkpoint) {
      train_options.start = checkpoint->state(run);
      fs::remove(path_);
    } else {
      train_options.start = std::exchange(state_, std::nullopt);
    }
    train_options.save = [&](Session& trained) {
      if (session % 2 == 0) {
        save_checkpoint(path_, trained);
      } else {
        state_ = trained.state();
      }
    };
    return train(run, train_options);
  }

  const DatasetSplits data_ = short_epochs();
  fs::path path_;
  std::optional<TrainingState> state_;
  std::map<Policy, std::uint64_t> smallest_;
  std::mt19937_64 random_{1};
};

// The largest figure since the warm-up, less the largest during the warm-up.
std::int64_t growth(const std::vector<Footprint>& footprints, std::uint64_t Footprint::*figure,
                    const char* name) {
  const auto after = footprints.begin() + kWarmUp;
  const auto before = std::max_element(footprints.begin(), after,
                                       [&](const auto& a, const auto& b) { return a.*figure < b.*figure; });
  const auto largest = std::max_element(after, footprints.end(),
                                        [&](const auto& a, const auto& b) { return a.*figure < b.*figure; });
  const auto grown = static_cast<std::int64_t>(*largest.*figure) - static_cast<std::int64_t>(*before.*figure);
  std::printf("%-14s first %llu, at most %llu in the warm-up, then %llu; last %llu\n", name,
              static_cast<unsigned long long>(footprints.front().*figure),
              static_cast<unsigned long long>(*before.*figure),
              static_cast<unsigned long long>(*largest.*figure),
              static_cast<unsigned long long>(footprints.back().*figure));
  return grown;
}

// The minimum over kWarmUp footprints from number `from` on, which excludes temporary memory.
std::uint64_t least(const std::vector<Footprint>& footprints, std::uint64_t from,
                    std::uint64_t Footprint::*figure) {
  const auto begin = footprints.begin() + static_cast<std::ptrdiff_t>(from);
  return *std::min_element(begin, begin + kWarmUp, [&](const auto& a, const auto& b) {
    return a.*figure < b.*figure;
  }).*figure;
}

TEST_F(Soak, TenThousandStepsOfLenetGrowNothing) {
  path_ = directory_ / "checkpoint";
  std::vector<Footprint> footprints;
  footprints.reserve(kSessions);  // so that the vector itself does not grow
  TrainingResult last;
  for (std::uint64_t session = 0; session < kSessions; ++session) {
    last = train_session(session);
    footprints.push_back(footprint());
  }
  constexpr std::int64_t kKib = 1024;
  constexpr std::int64_t kMib = 1024 * kKib;
  // About a hundred bytes per session: freed blocks in threads' caches count as in use, and their number
  // varies.
  EXPECT_LE(growth(footprints, &Footprint::heap_bytes, "heap bytes"), 32 * kKib);
  // Less than one page per session.
  EXPECT_LE(growth(footprints, &Footprint::resident_bytes, "resident bytes"), kMib);
  // Half a megabyte per session, whereas a leaked device would be several megabytes. For a thread that finds
  // all heaps busy, malloc() maps another heap of 64 MiB at once.
  EXPECT_LE(growth(footprints, &Footprint::mapped_bytes, "mapped bytes"), 128 * kMib);
  growth(footprints, &Footprint::threads, "threads");
  // The kernel may report a joined thread a moment longer, so the minimum over many sessions counts.
  EXPECT_EQ(least(footprints, kSessions - kWarmUp, &Footprint::threads), 1U);
  EXPECT_EQ(growth(footprints, &Footprint::descriptors, "descriptors"), 0);

  // A leak in a step shows only within a session, since each session releases its memory at the end.
  std::printf("within one session\n");
  footprints.clear();
  const TrainingResult at_once = train(plan_run(network(), options(Policy::kOffloadNone, kLargestBudget)),
                                       {.epochs = kSessions}, [&](const StepReport& report) {
                                         if (report.step % kStepsASession == 0) {
                                           footprints.push_back(footprint());
                                         }
                                       });
  ASSERT_EQ(footprints.size(), kSessions);
  growth(footprints, &Footprint::heap_bytes, "heap bytes");
  // The trainer keeps two times of each step for their medians, in vectors that double as they grow. Losing
  // malloc's smallest block in each step would add as much again.
  constexpr std::uint64_t kStepsBetween = (kSessions - 2 * kWarmUp) * kStepsASession;
  EXPECT_LE(least(footprints, kSessions - kWarmUp, &Footprint::heap_bytes),
            least(footprints, kWarmUp, &Footprint::heap_bytes) + 2 * (2 * sizeof(double)) * kStepsBetween);
  EXPECT_LE(growth(footprints, &Footprint::resident_bytes, "resident bytes"), kMib);
  EXPECT_LE(growth(footprints, &Footprint::mapped_bytes, "mapped bytes"), kMib);
  EXPECT_EQ(growth(footprints, &Footprint::threads, "threads"), 0);
  EXPECT_EQ(growth(footprints, &Footprint::descriptors, "descriptors"), 0);
  EXPECT_EQ(at_once.steps, kSessions * kStepsASession);
  EXPECT_EQ(last.weights_sha256, at_once.weights_sha256);
  EXPECT_EQ(last.test_accuracy, at_once.test_accuracy);
}

}  // namespace
}  // namespace vdnn
