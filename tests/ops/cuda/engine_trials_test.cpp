// Trials on fakes of CUDA and cuDNN. On request the fake engines compute wrong values.

#include "src/ops/cuda/engine_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "streams/cuda/cuda_device.h"
#include "tests/extent.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_vendor_library.h"
#include "vdnn/error.h"

namespace vdnn::cuda::engine_trials_test {
namespace {

using enum NumericalNote;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kGranule = 64 << 10;
constexpr std::array kDirections{Direction::kForward, Direction::kBackwardData, Direction::kBackwardFilter};

// With four channels, a pixel and a filter tap have 16 bytes each, so that an address off by one of them is
// still aligned.
EngineQuestion question(Direction direction, std::int64_t channels = 4) {
  return {.convolution = {.batch = 2,
                          .input_channels = channels,
                          .output_channels = 8,
                          .input = {9, 7},
                          .output = {9, 7},
                          .kernel = {3, 3},
                          .stride = {1, 1},
                          .padding = {1, 1},
                          .dilation = {}},
          .direction = direction};
}

using Change = std::function<void(std::span<float>)>;

// Runs another op, then changes its result.
class ChangedOp final : public VendorOp {
 public:
  ChangedOp(std::unique_ptr<VendorOp> op, Change change) : op_(std::move(op)), change_(std::move(change)) {}
  std::uint64_t workspace_bytes() const override { return op_->workspace_bytes(); }
  void run(const VendorOperands& operands, void* stream) const override {
    op_->run(operands, stream);
    const std::span<float> written(pointer_to<float>(operands.write.begin),
                                   operands.write.bytes / sizeof(float));
    FakeCuda::launch(stream, [change = change_, written] { change(written); });
  }

 private:
  std::unique_ptr<VendorOp> op_;
  Change change_;
};

// Reads the first operand from its second pixel on, so that the window of each output is off by one tap.
class ShiftedOp final : public VendorOp {
 public:
  ShiftedOp(std::unique_ptr<VendorOp> op, std::uint64_t bytes) : op_(std::move(op)), bytes_(bytes) {}
  std::uint64_t workspace_bytes() const override { return op_->workspace_bytes(); }
  void run(const VendorOperands& operands, void* stream) const override {
    std::vector<AddressRange> reads(operands.reads.begin(), operands.reads.end());
    reads[0].begin += bytes_;
    op_->run({.reads = reads, .write = operands.write, .workspace = operands.workspace}, stream);
  }

 private:
  std::unique_ptr<VendorOp> op_;
  std::uint64_t bytes_;
};

template <class Failure>
class FailingOp final : public VendorOp {
 public:
  explicit FailingOp(Failure failure) : failure_(std::move(failure)) {}
  std::uint64_t workspace_bytes() const override { return 0; }
  void run(const VendorOperands&, void*) const override { throw Failure(failure_); }

 private:
  Failure failure_;
};

void scale(std::span<float> values, float factor) {
  for (float& value : values) {
    value *= factor;
  }
}

// The engines' names describe their behaviour.
class FaultyLibrary final : public vdnn::testing::FakeVendorLibrary {
 public:
  std::unique_ptr<VendorOp> convolution(const EngineQuestion& asked, const std::string& engine) override {
    if (engine == "fails") {
      return std::make_unique<FailingOp<DeviceError>>(DeviceError("CUDNN_STATUS_EXECUTION_FAILED"));
    }
    if (engine == "finds no memory") {
      return std::make_unique<FailingOp<OutOfMemory>>(OutOfMemory("cuDNN", {}));
    }
    if (engine == "unknown") {
      throw NoEngine(asked, "there is no such engine");
    }
    const auto fake = [&](const char* name) {
      return FakeVendorLibrary::convolution(asked, vdnn::testing::fake_engine_name(name, asked.elements));
    };
    if (engine == "large" || engine == "small") {
      return fake(engine.c_str());
    }
    std::unique_ptr<VendorOp> op = fake(engine == "hungry" ? "large" : "small");
    if (engine == "off by one tap") {
      const ops::Convolution& c = asked.convolution;
      const std::int64_t channels =
          asked.direction == Direction::kBackwardData ? c.output_channels : c.input_channels;
      return std::make_unique<ShiftedOp>(std::move(op),
                                         static_cast<std::uint64_t>(channels) * size_of(asked.elements));
    }
    return std::make_unique<ChangedOp>(std::move(op), change_of(engine));
  }

 private:
  static Change change_of(const std::string& engine) {
    constexpr std::size_t kTile = 8;
    if (engine == "garbage in the last tile") {
      return [](std::span<float> values) { scale(values.last(kTile), -3.0F); };
    }
    if (engine == "leaves the last tile") {
      return
          [](std::span<float> values) { scale(values.last(kTile), std::numeric_limits<float>::quiet_NaN()); };
    }
    if (engine == "rounds to bf16") {
      return [](std::span<float> values) { scale(values, 1 + 0x1p-8F); };
    }
    return [](std::span<float>) {};
  }
};

std::vector<Engine> named(const std::vector<std::string>& names) {
  std::vector<Engine> engines;
  engines.reserve(names.size());
  for (const std::string& name : names) {
    engines.push_back({.name = name, .notes = {}});
  }
  return engines;
}

class EngineTrialsTest : public ::testing::TestWithParam<Direction> {
 protected:
  ~EngineTrialsTest() override {
    EXPECT_THAT(fake_->misuses(), IsEmpty());
    EXPECT_THAT(fake_->leaks(), IsEmpty());
    EXPECT_EQ(fake_->mapped_bytes(), 0U);
  }

  std::vector<EngineTrial> run(const std::vector<Engine>& engines, std::uint64_t budget = 64 * kGranule,
                               TrialKind kind = TrialKind::kTimed) {
    return make_device_trials([&] { return make_cuda_device({.budget_bytes = budget}, fake_); }, library_)
        ->run(question(GetParam()), engines, kind);
  }
  EngineTrial run(const std::string& engine) { return run(named({engine})).at(0); }

  const std::shared_ptr<FakeCuda> fake_ =
      std::make_shared<FakeCuda>(FakeCudaOptions{.seed = 3, .granule_bytes = kGranule});
  const std::shared_ptr<FaultyLibrary> library_ = std::make_shared<FaultyLibrary>();
};

TEST_P(EngineTrialsTest, WhatIsRightIsTimed) {
  const EngineTrial trial = run("small");
  EXPECT_EQ(trial.failure, "");
  EXPECT_TRUE(trial.right()) << trial.worst_error;
  EXPECT_GT(trial.tolerance, 0);
  EXPECT_LT(trial.tolerance, 1e-2);
  ASSERT_TRUE(trial.seconds);
  EXPECT_GE(*trial.seconds, 0);
  EXPECT_EQ(library_->calls().size(),
            8U);  // one checked, one tried, one warm-up run, five timed
}

TEST_P(EngineTrialsTest, WithoutTimesOneRunIsEnough) {
  const std::vector<EngineTrial> trials = run(named({"small"}), 64 * kGranule, TrialKind::kOfResults);
  EXPECT_TRUE(trials.at(0).right());
  EXPECT_FALSE(trials[0].seconds);
  EXPECT_EQ(library_->calls().size(), 1U);
}

TEST_P(EngineTrialsTest, WrongValuesAreFoundAndNotTimed) {
  for (const char* engine :
       {"off by one tap", "garbage in the last tile", "leaves the last tile", "rounds to bf16"}) {
    const EngineTrial trial = run(engine);
    EXPECT_EQ(trial.failure, "") << engine;
    EXPECT_FALSE(trial.right()) << engine << ": off by " << trial.worst_error << " of " << trial.tolerance;
    EXPECT_FALSE(trial.seconds) << engine;
  }
  EXPECT_TRUE(run("does nothing else").right());
}

// A failing engine does not disturb the trial of the next one.
TEST_P(EngineTrialsTest, WhatCannotBeRunIsAFailureOfThatEngine) {
  const std::vector<EngineTrial> trials = run(named({"fails", "unknown", "hungry", "small"}));
  ASSERT_EQ(trials.size(), 4U);
  EXPECT_THAT(trials[0].failure, HasSubstr("CUDNN_STATUS_EXECUTION_FAILED"));
  EXPECT_THAT(trials[1].failure, HasSubstr("no such engine"));
  EXPECT_THAT(trials[2].failure, HasSubstr("of workspace on this device"));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(trials[i].right());
    EXPECT_FALSE(trials[i].no_room);
  }
  EXPECT_TRUE(trials[3].right());
}

// Memory that cuDNN itself allocates may be free in a later run, so the engine is not refused for good. The
// trial of the other engines continues.
TEST_P(EngineTrialsTest, WhatFindsNoMemoryOnTheWayHasNoRoom) {
  const std::vector<EngineTrial> trials = run(named({"finds no memory", "small"}));
  EXPECT_TRUE(trials.at(0).no_room);
  EXPECT_FALSE(trials[0].right());
  EXPECT_TRUE(trials.at(1).right());
}

TEST_P(EngineTrialsTest, MemoryComesOutOfTheBudgetAndGoesBack) {
  // The operands need less than one granule, and the workspace alone needs both granules of the budget.
  const std::vector<Engine> engines{{.name = "large", .workspace_bytes = 2 * kGranule, .notes = {}},
                                    {.name = "small", .notes = {}}};
  const std::vector<EngineTrial> trials = run(engines, 2 * kGranule);
  EXPECT_TRUE(trials.at(0).no_room);
  EXPECT_THAT(trials[0].failure, HasSubstr("do not fit into 128 KiB"));
  EXPECT_TRUE(trials.at(1).right());
  EXPECT_TRUE(run(engines, 3 * kGranule).at(0).right());
}

std::string name_of(const ::testing::TestParamInfo<Direction>& pass) {
  return pass.param == Direction::kForward        ? "Forward"
         : pass.param == Direction::kBackwardData ? "Data"
                                                  : "Filter";
}

INSTANTIATE_TEST_SUITE_P(Passes, EngineTrialsTest, ::testing::ValuesIn(kDirections), name_of);

// --- times -------------------------------------------------------------------------------------------------

using Seconds = std::map<std::string, double>;  // of one run, for each engine

// Advances the GPU's clock by a given time for each run of an engine, and counts the runs.
class TimedLibrary final : public vdnn::testing::FakeVendorLibrary {
 public:
  TimedLibrary(Seconds seconds, std::shared_ptr<double> clock)
      : seconds_(std::move(seconds)), clock_(std::move(clock)) {}

  std::unique_ptr<VendorOp> convolution(const EngineQuestion& asked, const std::string& engine) override {
    return std::make_unique<TimedOp>(*this, FakeVendorLibrary::convolution(asked, "small"), engine);
  }

  std::map<std::string, int> runs;

 private:
  class TimedOp final : public VendorOp {
   public:
    TimedOp(TimedLibrary& library, std::unique_ptr<VendorOp> op, std::string engine)
        : library_(library), op_(std::move(op)), engine_(std::move(engine)) {}
    std::uint64_t workspace_bytes() const override { return op_->workspace_bytes(); }
    void run(const VendorOperands& operands, void* stream) const override {
      ++library_.runs[engine_];
      op_->run(operands, stream);
      FakeCuda::launch(
          stream, [clock = library_.clock_, seconds = library_.seconds_.at(engine_)] { *clock += seconds; });
      if (engine_ == "fails late" && library_.runs[engine_] == 2) {
        throw DeviceError("CUDNN_STATUS_EXECUTION_FAILED");
      }
    }

   private:
    TimedLibrary& library_;
    std::unique_ptr<VendorOp> op_;
    std::string engine_;
  };

  Seconds seconds_;
  std::shared_ptr<double> clock_;
};

// The host needs about as long for a launch as the GPU needs for a small convolution.
class TimesOfEngines : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr double kLaunchSeconds = 2e-5;

  std::map<std::string, double> times(
      const Seconds& seconds, const std::vector<std::string>& order,
      const std::function<bool()>& go_on = [] { return true; }) {
    const auto clock = std::make_shared<double>(0);
    const auto cuda = std::make_shared<FakeCuda>(FakeCudaOptions{
        .seed = GetParam(), .granule_bytes = kGranule, .clock = clock, .submission_seconds = kLaunchSeconds});
    library_ = std::make_shared<TimedLibrary>(seconds, clock);
    const std::vector<EngineTrial> trials =
        make_device_trials([=] { return make_cuda_device({.budget_bytes = 64 * kGranule}, cuda); }, library_)
            ->run(question(Direction::kForward), named(order), TrialKind::kTimed, go_on);
    std::map<std::string, double> times;
    for (std::size_t i = 0; i < trials.size(); ++i) {
      EXPECT_EQ(trials[i].right(), order[i] != "fails late") << order[i];
      times[order[i]] = trials[i].seconds.value_or(-1);
    }
    return times;
  }

  std::shared_ptr<TimedLibrary> library_;
};

// Regression: each run was timed alone, and the result included the host's time for a launch: 2.2e-4 s.
TEST_P(TimesOfEngines, AreTheGpusAndNotTheHosts) {
  const std::map<std::string, double> found = times({{"a", 2e-4}, {"b", 3e-4}}, {"a", "b"});
  EXPECT_NEAR(found.at("a"), 2e-4, 1e-9);
  EXPECT_NEAR(found.at("b"), 3e-4, 1e-9);
}

// Regression: every engine was run six times. The first run does not count, since CUDA loads kernels during
// it.
TEST_P(TimesOfEngines, WhatIsThreeTimesSlowerIsNotRunAgain) {
  const std::map<std::string, double> found =
      times({{"best", 1e-3}, {"slow", 3.1e-3}, {"near", 2.9e-3}}, {"best", "slow", "near"});
  EXPECT_NEAR(found.at("slow"), 3.1e-3, 1e-8);
  EXPECT_NEAR(found.at("near"), 2.9e-3, 1e-8);
  EXPECT_EQ(library_->runs.at("slow"), 2);
  EXPECT_EQ(library_->runs.at("best"), library_->runs.at("near"));
  EXPECT_GT(library_->runs.at("best"), 5);
}

// A slow engine that comes first is the best so far, since no other time is known yet.
TEST_P(TimesOfEngines, TheFirstEngineIsRunAsOftenAsAnyThatIsFaster) {
  times({{"slow", 4e-3}, {"best", 1e-3}}, {"slow", "best"});
  EXPECT_EQ(library_->runs.at("slow"), library_->runs.at("best"));
}

// Regression: an engine that had begun was run six times, however long its first run had taken.
TEST_P(TimesOfEngines, WhenTimeIsUpWhatHasBegunIsNotRunAgain) {
  const std::map<std::string, double> found = times({{"endless", 100}, {"other", 1}}, {"endless", "other"},
                                                    [this] { return library_->runs.empty(); });
  EXPECT_THAT(found, ::testing::ElementsAre(::testing::Pair("endless", ::testing::DoubleNear(100, 1e-4))));
  EXPECT_EQ(library_->runs.at("endless"), 2);
}

TEST_P(TimesOfEngines, AFailedRunIsNoPartOfTheNextEnginesTime) {
  const std::map<std::string, double> found =
      times({{"best", 1e-3}, {"fails late", 2.5e-3}, {"good", 1e-3}}, {"best", "fails late", "good"});
  EXPECT_NEAR(found.at("good"), 1e-3, 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TimesOfEngines, ::testing::Range<std::uint64_t>(0, 4));

std::unique_ptr<EngineTrials> trials_on(const std::shared_ptr<FakeCuda>& fake, std::uint64_t budget) {
  return make_device_trials([=] { return make_cuda_device({.budget_bytes = budget}, fake); },
                            std::make_shared<FaultyLibrary>());
}

TEST(EngineTrials, OperandsWithoutRoomAreOutOfMemory) {
  const auto fake = std::make_shared<FakeCuda>(FakeCudaOptions{.granule_bytes = kGranule});
  const EngineQuestion wide = question(Direction::kForward, 1024);
  EXPECT_THROW(trials_on(fake, kGranule)->run(wide, named({"small"}), TrialKind::kTimed), OutOfMemory);
  EXPECT_THAT(fake->leaks(), IsEmpty());
  EngineQuestion whole = question(Direction::kForward);
  whole.elements = DataType::kI32;
  EXPECT_THROW(trials_on(fake, kGranule)->run(whole, named({"small"}), TrialKind::kTimed), InvalidArgument);
}

// Operands have half the bytes. The tolerance allows for results with 8 (bf16) and 11 (fp16) bits of
// precision.
TEST(EngineTrials, NarrowTypesAreTriedInTheirType) {
  constexpr std::int64_t kChannels = 8;  // a pixel is 16 bytes
  const auto fake = std::make_shared<FakeCuda>(FakeCudaOptions{.granule_bytes = kGranule});
  for (const DataType type : {DataType::kBf16, DataType::kF16}) {
    for (const Direction direction : kDirections) {
      EngineQuestion narrow = question(direction, kChannels);
      narrow.elements = type;
      SCOPED_TRACE(to_string(narrow));
      const std::vector<EngineTrial> trials =
          trials_on(fake, 64 * kGranule)->run(narrow, named({"small", "off by one tap"}), TrialKind::kTimed);
      EXPECT_EQ(trials.at(0).failure, "");
      EXPECT_TRUE(trials[0].right()) << trials[0].worst_error << " of " << trials[0].tolerance;
      EXPECT_GT(trials[0].worst_error, 0) << "the engine rounds its results";
      EXPECT_TRUE(trials[0].seconds);
      EXPECT_EQ(trials.at(1).failure, "");
      EXPECT_FALSE(trials[1].right()) << trials[1].worst_error << " of " << trials[1].tolerance;
    }
  }
  EXPECT_THAT(fake->misuses(), IsEmpty());
  EXPECT_THAT(fake->leaks(), IsEmpty());
}

// Whichever call fails, nothing is leaked. Regression: when the wait for the first timestamp failed, the
// stream was destroyed before its event had been recorded.
TEST(EngineTrials, LeaveNothingBehindWhateverFails) {
  const std::uint64_t step = testing::extent({.usual = 7, .in_long_run = 1});
  std::uint64_t failed = 0;
  for (std::uint64_t nth = 1;; nth += step) {
    const auto fake = std::make_shared<FakeCuda>(FakeCudaOptions{.granule_bytes = kGranule});
    fake->fail_call(nth, CudaStatus::kUnknown);
    bool right = false;
    try {
      right = trials_on(fake, 4 * kGranule)
                  ->run(question(Direction::kForward), named({"small"}), TrialKind::kTimed)
                  .at(0)
                  .right();
    } catch (const Error&) {
    }
    EXPECT_THAT(fake->misuses(), IsEmpty()) << fake->failed_call();
    EXPECT_THAT(fake->leaks(), IsEmpty()) << "call " << nth << ", " << fake->failed_call();
    if (fake->failed_call().empty()) {
      EXPECT_TRUE(right);
      break;
    }
    ++failed;
  }
  EXPECT_GT(failed, 20U);
}

TEST(TrialTolerance, FollowsFromTheLengthOfTheSumsAndTheType) {
  const Engine plain{.name = "plain", .notes = {}};
  const Engine winograd{.name = "winograd", .notes = {kWinograd}};
  const Engine rounding{.name = "rounding", .notes = {kTensorCore}};
  using enum DataType;
  EXPECT_EQ(trial_tolerance(plain, kF32, 200, 1), 2 * trial_tolerance(plain, kF32, 100, 1));
  EXPECT_EQ(trial_tolerance(plain, kF32, 100, 3), 3 * trial_tolerance(plain, kF32, 100, 1));
  EXPECT_LT(trial_tolerance(plain, kF32, 100, 1), trial_tolerance(winograd, kF32, 100, 1));
  EXPECT_LT(trial_tolerance(winograd, kF32, 100, 1), trial_tolerance(rounding, kF32, 100, 1));
  EXPECT_LT(trial_tolerance(plain, kF32, 100, 1), trial_tolerance(plain, kF16, 100, 1));
  EXPECT_LT(trial_tolerance(plain, kF16, 100, 1), trial_tolerance(plain, kBf16, 100, 1));
  // A result that misses one tap is off by about the square root of the sum's length, also for the longest
  // sums of the zoo.
  constexpr std::uint64_t kLongest = std::uint64_t{64} * 224 * 224;
  for (const Engine& engine : {plain, winograd, rounding}) {
    for (std::uint64_t products = 9; products <= kLongest; products *= 2) {
      for (const DataType type : {kF32, kBf16, kF16}) {
        EXPECT_LT(trial_tolerance(engine, type, products, 1), std::sqrt(static_cast<double>(products)) / 5)
            << engine.name << " " << products;
      }
    }
  }
}

}  // namespace
}  // namespace vdnn::cuda::engine_trials_test
