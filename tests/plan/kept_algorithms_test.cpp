// With PlanOptions::keep_algorithms, every policy under any budget uses the algorithms of `none`.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/plan/residency.h"
#include "tests/plan/tapes.h"
#include "vdnn/optimal_plan.h"
#include "vdnn/plan_search.h"

namespace vdnn::testing {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;

// An op's algorithms take one second, two, three, and so on.
PlanCosts costs_of(const Tape& tape) {
  PlanCosts costs{.op_seconds = {},
                  .device_to_host = 1e6,
                  .host_to_device = 1e6,
                  .device_to_host_both_ways = 1e6,
                  .host_to_device_both_ways = 1e6,
                  .copy_seconds = 0,
                  .alignment_bytes = 64,
                  .granule_bytes = 64};
  for (const Op& op : tape.ops()) {
    std::vector<double>& seconds = costs.op_seconds.emplace_back(op.algorithms.size());
    std::iota(seconds.begin(), seconds.end(), 1.0);
  }
  return costs;
}

// The largest number of bytes on the device, and the time of the ops one after the other.
class SimpleForecaster final : public Forecaster {
 public:
  explicit SimpleForecaster(const PlanCosts& costs) : costs_(costs) {}

  Forecast forecast(const Tape& tape, const Schedule& schedule) const override {
    double seconds = 0;
    for (const Instruction& instruction : schedule.instructions) {
      if (is_launch(instruction.kind)) {
        seconds += costs_.op_seconds[instruction.op][schedule.algorithms[instruction.op]];
      }
    }
    return {.peak_bytes = most_bytes_in_use(schedule),
            .host_bytes = offload_bytes(tape, schedule),
            .step_seconds = seconds};
  }

 private:
  const PlanCosts& costs_;
};

class KeptAlgorithms : public ::testing::TestWithParam<AlgorithmPreference> {
 protected:
  PlanOptions options(bool keep) const { return {.preference = GetParam(), .keep_algorithms = keep}; }
  PlannedSchedule optimal(std::uint64_t device_bytes, bool keep) const {
    return plan_optimal(*tape_, options(keep), {.device_bytes = device_bytes, .host_bytes = kPlenty}, costs_,
                        forecaster_);
  }
  Plan dynamic(std::uint64_t device_bytes, bool keep) const {
    return plan_dynamic(*tape_, options(keep), {.device_bytes = device_bytes, .host_bytes = kPlenty},
                        forecaster_);
  }
  std::vector<std::uint32_t> of_none() const { return make_plan(*tape_, options(false)).algorithms; }
  std::uint64_t peak_of(const Plan& plan) const {
    return forecaster_.forecast(*tape_, make_schedule(*tape_, plan)).peak_bytes;
  }

  const TapePtr tape_ = model_tape("fashion-vgg");
  const PlanCosts costs_ = costs_of(*tape_);
  const SimpleForecaster forecaster_{costs_};
};

INSTANTIATE_TEST_SUITE_P(Preferences, KeptAlgorithms,
                         ::testing::Values(AlgorithmPreference::kMemory, AlgorithmPreference::kPerformance),
                         [](const auto& test) { return to_string(test.param); });

TEST_P(KeptAlgorithms, AreThoseOfNoneUnderOptimalInEveryBudget) {
  const std::uint64_t smallest = optimal(kPlenty, true).smallest_peak_bytes;
  EXPECT_GE(smallest, optimal(kPlenty, false).smallest_peak_bytes);
  std::size_t others = 0;
  for (const std::uint64_t bytes : {std::uint64_t{0}, smallest, smallest + smallest / 4, kPlenty}) {
    const PlannedSchedule kept = optimal(bytes, true);
    EXPECT_EQ(kept.plan.algorithms, of_none()) << bytes;
    EXPECT_EQ(kept.schedule.algorithms, of_none()) << bytes;
    EXPECT_EQ(kept.smallest_peak_bytes, smallest) << bytes;
    EXPECT_EQ(forecaster_.forecast(*tape_, kept.schedule).peak_bytes <= bytes, bytes >= smallest) << bytes;
    others += optimal(bytes, false).plan.algorithms != of_none() ? 1 : 0;
  }
  EXPECT_GT(others, 0U) << "without the option, algorithms differ";
}

TEST_P(KeptAlgorithms, AreThoseOfNoneUnderDynInEveryBudget) {
  Plan all = make_plan(*tape_, {.policy = Policy::kOffloadAll, .preference = GetParam()});
  const std::uint64_t smallest = peak_of(all);
  std::size_t others = 0;
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, smallest - 1, smallest, smallest + smallest / 4, kPlenty}) {
    const Plan kept = dynamic(bytes, true);
    EXPECT_EQ(kept.algorithms, of_none()) << bytes;
    EXPECT_EQ(peak_of(kept) <= bytes, bytes >= smallest) << bytes;
    others += dynamic(bytes, false).algorithms != of_none() ? 1 : 0;
  }
  EXPECT_GT(others, 0U) << "without the option, algorithms differ";
}

TEST_P(KeptAlgorithms, AreRecordedWithThePlan) {
  const PlanOptions kept = with_kept_algorithms(*tape_, options(true));
  EXPECT_EQ(kept.recorded, algorithm_names(*tape_, of_none()));
  EXPECT_TRUE(with_kept_algorithms(*tape_, options(false)).recorded.empty());
  EXPECT_EQ(dynamic(kPlenty, true).options.recorded, kept.recorded);
  EXPECT_EQ(optimal(kPlenty, true).plan.options.recorded, kept.recorded);
}

// A checkpoint, for example, records algorithms.
TEST_P(KeptAlgorithms, GiveWayToWhatIsRecordedAlready) {
  const AlgorithmPreference other = GetParam() == AlgorithmPreference::kMemory
                                        ? AlgorithmPreference::kPerformance
                                        : AlgorithmPreference::kMemory;
  PlanOptions both = options(true);
  both.recorded = algorithm_names(*tape_, make_plan(*tape_, {.preference = other}).algorithms);
  ASSERT_NE(both.recorded, with_kept_algorithms(*tape_, options(true)).recorded);
  EXPECT_EQ(with_kept_algorithms(*tape_, both).recorded, both.recorded);
}

}  // namespace
}  // namespace vdnn::testing
