// Times steps of one network on one device, for the table of scripts/gpu-check.
//
//   training_bench --model resnet50 --batch 64 --policy all --device cuda:0 [--memory BYTES] [--steps 20]
//                  [--precision bf16] [--threads 2]
//
// Prints one JSON object. The batch is random, the same at each step, and in page-locked memory from the
// start, so the time of reading a data set is not included. The loss is read one step late, as in the
// training loop. A step's seconds are the median time between the ends of two steps. A comparison of policies
// shows the cost of copies. `stall_seconds` also shows it: the compute stream's waits in traced steps after
// the timed ones. With graphs it is null, since graphs do not run while tracing. `--smallest` trains in the
// smallest budget in which the policy can run.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/random.h"
#include "vdnn/error.h"
#include "vdnn/session.h"

namespace vdnn {
namespace {

constexpr int kWarmUpSteps = 4;
constexpr int kTracedSteps = 3;
constexpr float kLearningRate = 1e-4F;

struct Arguments {
  std::string model;
  std::int64_t batch = 0;
  std::string device = "cuda:0";
  std::string policy = "none";
  std::string precision = "fp32";
  int threads = 0;
  std::uint64_t memory_bytes = 0;
  int steps = 20;
  bool graph = false;
  bool tf32 = false;
  bool smallest = false;
  std::string engine_timings;
};

Policy parse_policy(const std::string& text) {
  for (const Policy policy :
       {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
    if (to_string(policy) == text) {
      return policy;
    }
  }
  throw InvalidArgument("--policy " + text + ": use baseline, none, conv or all");
}

DataType parse_storage(const std::string& text) {
  for (const DataType type : {DataType::kF32, DataType::kBf16, DataType::kF16}) {
    if (to_string(type) == text) {
      return type;
    }
  }
  throw InvalidArgument("--precision " + text + ": use fp32, bf16 or fp16");
}

RunOptions to_run_options(const Arguments& arguments) {
  RunOptions options{
      .model = {.model = arguments.model, .batch = arguments.batch},
      .device = arguments.device,
      .threads = arguments.threads,
      .policy = parse_policy(arguments.policy),
      .tf32 = arguments.tf32,
      .training = {.optimizer = SgdSpec{.momentum = 0.9F},
                   .precision = {.storage = parse_storage(arguments.precision), .fp32_layers = {}}},
      .graph = arguments.graph};
  if (arguments.memory_bytes != 0) {
    options.memory_bytes = arguments.memory_bytes;
  }
  if (!arguments.engine_timings.empty()) {
    options.engine_timings = arguments.engine_timings;
  }
  return options;
}

// Random numbers and classes, since GPUs are faster on zeros.
class Batch {
 public:
  explicit Batch(Session& session) : pinned_(session.pinned()) {
    const Tape& tape = *session.run().tape;
    for (const ValueId input : tape.inputs()) {
      const std::optional<AddressRange> block = pinned_.allocate_for_host(tape.value(input).bytes);
      if (!block) {
        throw OutOfMemory("page-locked memory for the batch", pinned_.shortage(tape.value(input).bytes));
      }
      inputs_.push_back(*block);
      fill(tape.value(input).type, *block);
    }
  }
  ~Batch() {
    for (const AddressRange& input : inputs_) {
      pinned_.free(input, {});
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  std::span<const AddressRange> inputs() const { return inputs_; }

 private:
  void fill(const TensorType& type, AddressRange block) {
    for (std::uint64_t i = 0; i < type.elements(); ++i) {
      if (type.data_type == DataType::kI32) {
        pointer_to<std::int32_t>(block.begin)[i] = static_cast<std::int32_t>(random_.next() % 2);
      } else {
        pointer_to<float>(block.begin)[i] = random_.symmetric();
      }
    }
  }

  PinnedPool& pinned_;
  SplitMix64 random_{1};
  std::vector<AddressRange> inputs_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Seconds between the ends of `steps` steps, with one more step in flight.
std::vector<double> run_steps(Session& session, const Batch& batch, int steps) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  StepTicket last = session.submit(batch.inputs(), kLearningRate);
  Clock::time_point end = Clock::now();
  for (int step = 0; step < steps; ++step) {
    const StepTicket next = session.submit(batch.inputs(), kLearningRate);
    session.wait(std::exchange(last, next));
    const Clock::time_point now = Clock::now();
    seconds.push_back(std::chrono::duration<double>(now - end).count());
    end = now;
  }
  session.wait(last);
  session.finish();
  return seconds;
}

double median_step_seconds(Session& session, const Batch& batch, int steps) {
  std::vector<double> seconds = run_steps(session, batch, kWarmUpSteps + steps);
  seconds.erase(seconds.begin(), seconds.begin() + kWarmUpSteps);
  return median(std::move(seconds));
}

// The mean stall of a step, over traced steps, since some drivers measure stalls only while tracing.
double stall_seconds(Session& session, const Batch& batch) {
  Device& device = session.device();
  const StreamId compute = session.streams()[StreamRole::kCompute];
  device.set_tracing(true);
  const double before = device.times(compute).waiting_seconds;
  run_steps(session, batch, kTracedSteps);
  const double waited = device.times(compute).waiting_seconds - before;
  device.set_tracing(false);
  device.take_trace();
  return waited / (kTracedSteps + 1);
}

nlohmann::ordered_json measure(const Arguments& arguments) {
  PlannedRun planned = plan_run(to_run_options(arguments));
  if (arguments.smallest) {
    planned.target.budget_bytes = planned.smallest_budget_bytes();
  }
  Session session(std::move(planned));
  const PlannedRun& run = session.run();
  const Batch batch(session);
  const double seconds = median_step_seconds(session, batch, arguments.steps);
  const DeviceCounters counters = session.device().counters();
  const nlohmann::ordered_json stalled =
      arguments.graph ? nlohmann::ordered_json() : nlohmann::ordered_json(stall_seconds(session, batch));
  return {{"model", arguments.model},
          {"batch", arguments.batch},
          {"device", run.target.name},
          {"policy", arguments.policy},
          {"graph", arguments.graph},
          {"tf32", arguments.tf32},
          {"precision", arguments.precision},
          {"algorithms_source", run.catalog->algorithms_source()},
          {"budget_bytes", run.target.budget_bytes},
          {"library_bytes", run.target.library_bytes},
          {"peak_bytes", counters.peak_committed_bytes},
          {"predicted_peak_bytes", run.prediction.peak_bytes},
          {"host_bytes", counters.peak_pinned_bytes},
          {"offload_bytes_per_step", offload_bytes(*run.tape, run.schedule)},
          {"step_seconds", seconds},
          {"stall_seconds", stalled},
          {"images_per_second", static_cast<double>(arguments.batch) / seconds}};
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Times steps of a network");
  app.add_option("--model", arguments.model)->required();
  app.add_option("--batch", arguments.batch)->required()->check(CLI::PositiveNumber);
  app.add_option("--device", arguments.device);
  app.add_option("--policy", arguments.policy);
  app.add_option("--precision", arguments.precision, "fp32, bf16 or fp16");
  app.add_option("--threads", arguments.threads, "compute threads of cpu; default: all cores");
  app.add_option("--memory", arguments.memory_bytes, "bytes; default: the free memory");
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  app.add_flag("--graph", arguments.graph, "runs steps as CUDA graphs");
  app.add_flag("--tf32", arguments.tf32, "products may round their inputs to TF32");
  app.add_flag("--smallest", arguments.smallest, "trains in the smallest budget");
  app.add_option("--engine-timings", arguments.engine_timings, "the file, as in vdnn train --engine-timings");
  CLI11_PARSE(app, argc, argv);
  std::cout << measure(arguments) << "\n";
  return 0;
}

}  // namespace
}  // namespace vdnn

int main(int argc, char** argv) {
  try {
    return vdnn::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "training_bench: " << error.what() << "\n";
    return 1;
  }
}
