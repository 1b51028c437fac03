#include "vdnn/predictor.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "src/exec/sim_communicator.h"
#include "vdnn/device_pool.h"
#include "vdnn/error.h"
#include "vdnn/executor.h"
#include "vdnn/parameter_store.h"
#include "vdnn/pinned_pool.h"

namespace vdnn {

namespace {

// A budget that is larger than any schedule needs. Granules can be added to it without overflow.
constexpr std::uint64_t kBoundless = std::uint64_t{1} << 50;
// Steps that are not measured. The first step fills the pools; the second step is the first that overlaps
// another step.
constexpr std::uint32_t kWarmUpSteps = 2;
// An update's first micro-step follows a step that updates, and its last micro-step updates. All micro-steps
// between them are alike, so only one of these is simulated.
constexpr std::uint32_t kDifferentMicroSteps = 3;

// Calls `simulation`, which uses a budget of kBoundless. A network that exceeds this budget cannot run on any
// device.
template <class Simulation>
auto without_budget(const Simulation& simulation) {
  try {
    return simulation();
  } catch (const OutOfMemory& error) {
    throw InvalidArgument(std::string("the network with its batch is larger than the simulator can place: ") +
                          error.what());
  }
}

// Page-locked memory for the inputs of steps: one block per batch, as BatchLoader allocates.
class Staging {
 public:
  Staging(PinnedPool& pinned, const Tape& tape) : pinned_(pinned) {
    std::uint64_t bytes = 0;
    for (const ValueId input : tape.inputs()) {
      inputs_.push_back({.begin = bytes, .bytes = tape.value(input).bytes});
      bytes += tape.value(input).bytes;
    }
    // A learned step has no inputs, so it needs no blocks.
    for (std::uint32_t batch = 0; bytes > 0 && batch < kStagedBatches; ++batch) {
      const std::optional<AddressRange> block = pinned.allocate_for_host(bytes);
      if (!block) {
        throw OutOfMemory("page-locked memory for inputs", pinned.shortage(bytes));
      }
      blocks_.push_back(*block);
    }
    for (AddressRange& input : inputs_) {  // there are no inputs if there is no block
      input.begin += blocks_.front().begin;
    }
  }
  ~Staging() {
    for (const AddressRange& block : blocks_) {
      pinned_.free(block, {});
    }
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::span<const AddressRange> inputs() const { return inputs_; }

 private:
  PinnedPool& pinned_;
  std::vector<AddressRange> inputs_;
  std::vector<AddressRange> blocks_;
};

// A simulated device, and all parts that an executor on it needs except tape and schedule.
class SimulatedRun {
 public:
  SimulatedRun(const Tape& training, const PredictionOptions& options)
      : device(make_sim_device({.profile = options.profile,
                                .budget_bytes = kBoundless,
                                .host_budget_bytes = kBoundless,
                                .page_aligned_blocks = options.page_aligned_blocks})),
        pool(*device, {}),
        pinned(*device),
        communicator(make_sim_communicator(*device, options.collectives)),
        streams(*device, stream_roles(training)),
        parameters(pool, streams[StreamRole::kCompute], training) {
    parameters.upload(pinned, streams[StreamRole::kCompute], nullptr, {});
  }

  ExecutorParts parts(const Tape& tape, const Schedule& schedule) {
    return {.device = *device,
            .pool = pool,
            .pinned = pinned,
            .streams = streams,
            .parameters = parameters,
            .tape = tape,
            .schedule = schedule,
            .communicator = communicator.get()};
  }
  double compute_waited_seconds() const {
    return device->times(streams[StreamRole::kCompute]).waiting_seconds;
  }

  std::unique_ptr<SimDevice> device;
  DevicePool pool;
  PinnedPool pinned;
  std::unique_ptr<Communicator> communicator;
  StreamSet streams;
  ParameterStore parameters;
};

// Returns a trace's events of one kind, one after another.
class EventsOfKind {
 public:
  EventsOfKind(std::span<const TraceEvent> trace, TraceEvent::Kind kind) : trace_(trace), kind_(kind) {}

  const TraceEvent& next() {
    while (next_ < trace_.size() && trace_[next_].kind != kind_) {
      ++next_;
    }
    if (next_ == trace_.size()) {
      throw DeviceError("the trace of a simulated step ends before the step does");
    }
    return trace_[next_++];
  }

 private:
  std::span<const TraceEvent> trace_;
  TraceEvent::Kind kind_;
  std::size_t next_ = 0;
};

// The simulated device runs work when it is submitted, so a step's trace has the order of the instructions.
// Each allocation or release has one sample of each counter in the trace; any other instruction has one event
// of work.
std::vector<InstructionTime> instruction_times(const Schedule& schedule, std::span<const TraceEvent> trace,
                                               bool graph) {
  EventsOfKind works(trace, TraceEvent::Kind::kWork);
  EventsOfKind samples(trace, TraceEvent::Kind::kCounter);
  if (graph) {
    works.next();  // the copy of the step's scalars (learning rate, step, seed), not an instruction
  }
  std::vector<InstructionTime> times;
  times.reserve(schedule.instructions.size());
  for (const Instruction& instruction : schedule.instructions) {
    const bool moves_memory =
        instruction.kind == InstructionKind::kAllocate || instruction.kind == InstructionKind::kRelease;
    const TraceEvent& event = moves_memory ? samples.next() : works.next();
    if (moves_memory) {
      samples.next();  // the sample of page-locked memory, which has the same time
    }
    times.push_back({.begin_seconds = event.begin_seconds, .end_seconds = event.end_seconds});
  }
  return times;
}

// Runs the micro-steps of successive updates. As in training, the host reads a micro-step's loss after it has
// submitted the next micro-step.
class Steps {
 public:
  Steps(Executor& executor, std::span<const AddressRange> inputs, std::uint32_t micro_steps)
      : executor_(executor), inputs_(inputs), micro_steps_(micro_steps) {}

  void step() {
    const StepTicket next =
        executor_.submit(inputs_, {.micro_step = steps_++ % micro_steps_, .micro_steps = micro_steps_});
    if (const std::optional<StepTicket> last = std::exchange(last_, next)) {
      executor_.wait(*last);
    }
  }
  std::uint32_t taken() const { return steps_; }

 private:
  Executor& executor_;
  std::span<const AddressRange> inputs_;
  std::uint32_t micro_steps_;
  std::uint32_t steps_ = 0;
  std::optional<StepTicket> last_;
};

// The mean time of an update's micro-steps except the last. A micro-step's time counts from the end of the
// previous micro-step to its own end.
double mean_micro_step_seconds(SimDevice& device, Steps& steps, std::uint32_t micro_steps) {
  const std::uint32_t others = micro_steps - 1;
  double seconds = 0;
  for (std::uint32_t micro_step = 0; micro_step < std::min(others, kDifferentMicroSteps - 1); ++micro_step) {
    const double begin = device.finish_seconds();
    steps.step();
    // The second micro-step represents all later ones but the last.
    seconds += (micro_step == 0 ? 1 : others - 1) * (device.finish_seconds() - begin);
  }
  return others == 0 ? 0 : seconds / others;
}

Prediction simulate(const Tape& tape, const Schedule& schedule, const PredictionOptions& options) {
  SimulatedRun run(tape, options);
  const Staging staging(run.pinned, tape);
  ExecutorParts parts = run.parts(tape, schedule);
  parts.graph = options.graph;
  Executor executor(parts);
  const std::uint32_t cycle = std::min(options.micro_steps, kDifferentMicroSteps);
  Steps steps(executor, staging.inputs(), cycle);
  while (steps.taken() < kWarmUpSteps || steps.taken() % cycle != 0) {
    steps.step();
  }
  Prediction result;
  result.micro_step_seconds = mean_micro_step_seconds(*run.device, steps, options.micro_steps);
  const double begin = run.device->finish_seconds();
  const double waited = run.compute_waited_seconds();
  run.device->set_tracing(options.trace);
  steps.step();

  result.step_seconds = run.device->finish_seconds() - begin;
  result.stall_seconds = run.compute_waited_seconds() - waited;
  result.average_bytes = executor.memory().average_bytes;
  result.peak_bytes = run.device->counters().peak_committed_bytes;
  result.host_bytes = run.device->counters().peak_pinned_bytes;
  result.trace = run.device->take_trace();
  if (options.trace) {
    result.step = TracedStep{.begin_seconds = begin,
                             .times = instruction_times(schedule, result.trace, options.graph),
                             .placements = executor.placements()};
  }
  for (StreamId stream = 0; stream < run.device->stream_count(); ++stream) {
    result.stream_names.push_back(run.device->stream_name(stream));
  }
  return result;
}

std::uint64_t simulate_evaluation_peak(const Tape& training, const Tape& evaluation,
                                       const Schedule& evaluation_schedule,
                                       const PredictionOptions& options) {
  SimulatedRun run(training, options);
  const Staging staging(run.pinned, evaluation);
  Executor executor(run.parts(evaluation, evaluation_schedule));
  executor.submit(staging.inputs(), {});
  return run.device->counters().peak_committed_bytes;
}

}  // namespace

Prediction predict(const Tape& tape, const Schedule& schedule, const PredictionOptions& options) {
  return without_budget([&] { return simulate(tape, schedule, options); });
}

namespace {

class SimForecaster final : public Forecaster {
 public:
  explicit SimForecaster(PredictionOptions options) : options_(std::move(options)) {}

  Forecast forecast(const Tape& tape, const Schedule& schedule) const override {
    const Prediction prediction = predict(tape, schedule, options_);
    return {.peak_bytes = prediction.peak_bytes,
            .host_bytes = prediction.host_bytes,
            .step_seconds = prediction.step_seconds};
  }

 private:
  PredictionOptions options_;
};

}  // namespace

std::unique_ptr<Forecaster> make_forecaster(PredictionOptions options) {
  options.trace = false;
  return std::make_unique<SimForecaster>(std::move(options));
}

PlanCosts plan_costs(const Tape& tape, const PredictionOptions& options) {
  const SimProfile& profile = options.profile;
  PlanCosts costs{
      .op_seconds = {},
      .device_to_host = profile.link_bytes_per_second.device_to_host,
      .host_to_device = profile.link_bytes_per_second.host_to_device,
      .device_to_host_both_ways = profile.link_bytes_per_second_both_ways.device_to_host,
      .host_to_device_both_ways = profile.link_bytes_per_second_both_ways.host_to_device,
      .copy_seconds = profile.launch_seconds,
      .alignment_bytes =
          make_sim_device({.profile = profile, .page_aligned_blocks = options.page_aligned_blocks})
              ->properties()
              .alignment_bytes,
      .granule_bytes = profile.granule_bytes,
  };
  for (const Op& op : tape.ops()) {
    std::vector<double>& seconds = costs.op_seconds.emplace_back();
    for (std::uint32_t algorithm = 0; algorithm < op.algorithms.size(); ++algorithm) {
      // Collectives run on another stream, and take no time on the compute stream.
      seconds.push_back(op.collective() ? 0 : profile.seconds(op.cost_with(algorithm)));
    }
  }
  return costs;
}

std::uint64_t predict_evaluation_peak(const Tape& training, const Tape& evaluation,
                                      const Schedule& evaluation_schedule, const PredictionOptions& options) {
  return without_budget(
      [&] { return simulate_evaluation_peak(training, evaluation, evaluation_schedule, options); });
}

}  // namespace vdnn
