// The planning time of policy `optimal`: plan_optimal() for a large network of the zoo, and for chains of
// 100, 1,000 and 10,000 convolutions, in turns. The times per layer are compared: if planning were linear in
// the length of a network, `1000/100` and `10000/100` would be 1. The device is the GPU of the vDNN paper.
// The budget is 30 % of the memory for keeping everything, so nearly every decision is open.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/side_by_side.h"
#include "vdnn/optimal_plan.h"
#include "vdnn/planned_run.h"
#include "vdnn/predictor.h"

namespace vdnn::bench {
namespace {

constexpr double kBudgetPart = 0.3;

// The arguments of plan_optimal().
class Question {
 public:
  explicit Question(PlannedRun keeping_everything)
      : run_(std::move(keeping_everything)),
        costs_(plan_costs(*run_.tape, {.profile = run_.target.profile})),
        forecaster_(make_forecaster({.profile = run_.target.profile})),
        budgets_{.device_bytes = static_cast<std::uint64_t>(kBudgetPart *
                                                            static_cast<double>(run_.prediction.peak_bytes)),
                 .host_bytes = run_.target.host_budget_bytes} {}

  PlannedSchedule answer() const {
    return plan_optimal(*run_.tape, {.policy = Policy::kOptimal}, budgets_, costs_, *forecaster_);
  }

 private:
  PlannedRun run_;
  PlanCosts costs_;
  std::unique_ptr<Forecaster> forecaster_;
  Budgets budgets_;
};

RunOptions on_titan_x() {
  return {.device = "sim:titan-x", .policy = Policy::kOffloadNone};
}

Question about_model(const std::string& model) {
  RunOptions options = on_titan_x();
  options.model = {.model = model, .batch = 128};
  return Question(plan_run(options));
}

// Each layer keeps its own output, 1 MiB, for the backward pass of the next. With smaller outputs, a short
// chain would have few distinct budgets, since memory is committed in granules of 2 MiB.
Question about_chain(int layers) {
  NetworkBuilder net("chain of " + std::to_string(layers), {256, 4, 16, 16});
  Tensor x = net.input();
  for (int layer = 0; layer < layers; ++layer) {
    x = net.convolution("conv" + std::to_string(layer), x,
                        {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  }
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 10}));
  return Question(plan_run(std::move(net).build(), on_titan_x()));
}

void planning(benchmark::State& state, const std::string& model) {
  const Question question = about_model(model);
  for (auto _ : state) {
    benchmark::DoNotOptimize(question.answer());
  }
}

void planning_chain(benchmark::State& state, const std::vector<int>& lengths) {
  std::vector<Question> questions;
  std::vector<Contender> contenders;
  for (const int layers : lengths) {
    questions.push_back(about_chain(layers));
  }
  for (std::size_t each = 0; each < lengths.size(); ++each) {
    contenders.push_back({std::to_string(lengths[each]) + " layers s",
                          [&question = questions[each]] { benchmark::DoNotOptimize(question.answer()); }});
  }
  std::vector<Figures> figures = side_by_side(state, contenders, [](double seconds) { return seconds; });
  for (std::size_t each = 0; each < lengths.size(); ++each) {
    for (double& figure : figures[each]) {
      figure /= lengths[each];
    }
  }
  for (std::size_t each = 1; each < lengths.size(); ++each) {
    report_ratio(state, std::to_string(lengths[each]) + "/" + std::to_string(lengths[0]), figures[each],
                 figures[0]);
  }
}

BENCHMARK_CAPTURE(planning, resnet50, "resnet50")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(planning, resnet152, "resnet152")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(planning_chain, 1000, {100, 1000})->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(planning_chain, 10000, {100, 1000, 10000})->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vdnn::bench
