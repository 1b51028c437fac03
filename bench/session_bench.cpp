// The cost of a policy for a training step on `cpu`: sessions of the same network, one per policy, step in
// turns in one process, with one and with two compute threads. `all/none` is the time of a step that offloads
// every feature map over the time of one that offloads none.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/side_by_side.h"
#include "src/base/random.h"
#include "vdnn/session.h"

namespace vdnn::bench {
namespace {

// `none` is first, since the other policies are compared with it.
constexpr std::array kPolicies{Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll,
                               Policy::kBaseline};
// A turn is long enough that the OpenMP threads of the previous session stop spinning.
constexpr int kStepsOfTurn = 3;
constexpr float kLearningRate = 0.001F;

// Random images, uniform in [-1, 1), and classes.
class Batch {
 public:
  explicit Batch(Session& session) : session_(session) {
    const Tape& tape = *session.run().tape;
    SplitMix64 random(1);
    for (const ValueId input : tape.inputs()) {
      const Value& value = tape.value(input);
      const AddressRange range = session.pinned().allocate_for_host(value.bytes).value();
      if (value.type.data_type == DataType::kI32) {
        fill<std::int32_t>(range, [&] { return static_cast<std::int32_t>(random.below(10)); });
      } else {
        fill<float>(range, [&] { return random.symmetric(); });
      }
      inputs_.push_back(range);
    }
  }
  ~Batch() {
    for (const AddressRange& input : inputs_) {
      session_.pinned().free(input, {});
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  const std::vector<AddressRange>& inputs() const { return inputs_; }

 private:
  template <class Number, class Next>
  static void fill(AddressRange range, const Next& next) {
    Number* const first = pointer_to<Number>(range.begin);
    std::generate(first, first + range.bytes / sizeof(Number), next);
  }

  Session& session_;
  std::vector<AddressRange> inputs_;
};

class Run {
 public:
  Run(const ModelOptions& model, Policy policy, int threads)
      : session_(plan_run({.model = model,
                           .device = "cpu",
                           .threads = threads,
                           .policy = policy,
                           .training = {.optimizer = SgdSpec{.momentum = 0.9F}}})),
        batch_(session_) {
    turn();
  }
  ~Run() { session_.finish(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Waits for the results of each step once the next one has been submitted, as in training.
  void turn() {
    StepTicket last = session_.submit(batch_.inputs(), kLearningRate);
    for (int step = 1; step < kStepsOfTurn; ++step) {
      StepTicket next = session_.submit(batch_.inputs(), kLearningRate);
      session_.wait(std::exchange(last, std::move(next)));
    }
    session_.wait(last);
  }

 private:
  Session session_;
  Batch batch_;
};

void training_step(benchmark::State& state, const ModelOptions& model) {
  std::vector<Contender> contenders;
  for (const Policy policy : kPolicies) {
    auto run = std::make_shared<Run>(model, policy, static_cast<int>(state.range(0)));
    contenders.push_back({to_string(policy) + " ms", [run] { run->turn(); }});
  }
  const std::vector<Figures> figures =
      side_by_side(state, contenders, [](double seconds) { return seconds * 1e3 / kStepsOfTurn; });
  for (std::size_t index = 1; index < kPolicies.size(); ++index) {
    report_ratio(state, to_string(kPolicies[index]) + "/none", figures[index], figures[0]);
  }
}

const bool kRegistered = [] {
  for (const ModelOptions& model :
       {ModelOptions{.model = "fashion-vgg"}, ModelOptions{.model = "resnet20"}}) {
    benchmark::RegisterBenchmark(("training_step/" + model.model).c_str(), training_step, model)
        ->ArgName("threads")
        ->Arg(1)
        ->Arg(2)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace vdnn::bench
