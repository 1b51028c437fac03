// The cost of the executor for the submitting thread, per instruction: whole training steps of five networks
// of the zoo under the static policies, on `sim`. The same steps also run on a device that does nothing,
// which shows the cost of the executor and the pools alone, and on `sim` with checks of races and versions.

#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/null_device.h"
#include "bench/side_by_side.h"
#include "vdnn/executor.h"
#include "vdnn/planned_run.h"
#include "vdnn/sim_device.h"

namespace vdnn::bench {
namespace {

constexpr std::array kPolicies{Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv,
                               Policy::kOffloadAll};
constexpr std::array kModels{"vgg16", "resnet50", "googlenet", "densenet121", "mobilenet"};
constexpr int kWarmUpSteps = 2;

// Runs the steps of one planned run on one device. Waits for a step's results once the next step has been
// submitted.
class Stepper {
 public:
  Stepper(const PlannedRun& run, std::unique_ptr<Device> on)
      : device_(std::move(on)),
        pool_(*device_, {}),
        pinned_(*device_),
        streams_(*device_, stream_roles(*run.tape)),
        parameters_(pool_, streams_[StreamRole::kCompute], *run.tape) {
    parameters_.upload(pinned_, streams_[StreamRole::kCompute], nullptr, {});
    for (const ValueId input : run.tape->inputs()) {
      inputs_.push_back(pinned_.allocate_for_host(run.tape->value(input).bytes).value());
    }
    executor_.emplace(ExecutorParts{.device = *device_,
                                    .pool = pool_,
                                    .pinned = pinned_,
                                    .streams = streams_,
                                    .parameters = parameters_,
                                    .tape = *run.tape,
                                    .schedule = run.schedule});
    last_ = executor_->submit(inputs_, {});
    for (int warm_up = 1; warm_up < kWarmUpSteps; ++warm_up) {
      step();
    }
  }
  ~Stepper() {
    executor_.reset();
    for (const AddressRange& input : inputs_) {
      pinned_.free(input, {});
    }
  }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  void step() {
    StepTicket next = executor_->submit(inputs_, {});
    executor_->wait(std::exchange(last_, std::move(next)));
  }

 private:
  std::unique_ptr<Device> device_;
  DevicePool pool_;
  PinnedPool pinned_;
  StreamSet streams_;
  ParameterStore parameters_;
  std::vector<AddressRange> inputs_;
  std::optional<Executor> executor_;
  StepTicket last_;
};

void executor_step(benchmark::State& state, const std::string& model, Policy policy) {
  const PlannedRun run =
      plan_run({.model = {.model = model, .batch = 32}, .device = "sim:h200", .policy = policy});
  const auto sim = [&](bool checks) {
    return make_sim_device({.profile = run.target.profile, .check_races = checks, .check_versions = checks});
  };
  auto device = sim(false);
  Stepper on_nothing(run, std::make_unique<NullDevice>(device->properties()));
  Stepper on_sim(run, std::move(device));
  Stepper on_checking_sim(run, sim(true));
  const auto instructions = static_cast<double>(run.schedule.instructions.size());
  side_by_side(state,
               {{"sim ns", [&] { on_sim.step(); }},
                {"no device ns", [&] { on_nothing.step(); }},
                {"checking sim ns", [&] { on_checking_sim.step(); }}},
               [&](double seconds) { return seconds * 1e9 / instructions; });
  state.counters["instructions"] = instructions;
}

const bool kRegistered = [] {
  for (const char* const model : kModels) {
    for (const Policy policy : kPolicies) {
      const std::string name = std::string("executor_step/") + model + "/" + to_string(policy);
      benchmark::RegisterBenchmark(name.c_str(), executor_step, model, policy)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace vdnn::bench
