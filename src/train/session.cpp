#include "vdnn/session.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <utility>

#include "allocator/pinned_block.h"
#include "src/ops/loss_scaling.h"
#include "src/ops/standard_losses.h"
#include "src/tape/narrow_values.h"
#include "vdnn/cpu_device.h"
#include "vdnn/error.h"
#include "vdnn/initialisation.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Makes the GPU's device. Other processes and libraries may have allocated memory that was free when the run
// was planned. So the budget may be smaller than planned, down to the bytes that the plan needs.
std::unique_ptr<Device> make_gpu(const PlannedRun& run, const SessionOptions& options) {
  const RunTarget& target = run.target;
  if (options.link_gbytes_per_second || options.delay_seed || options.check_accesses ||
      options.protect_released) {
    throw InvalidArgument("slower links and debugging aids are only for cpu, not for " + target.name);
  }
  return target.gpus->make_device({.ordinal = *target.gpu,
                                   .budget_bytes = target.budget_bytes,
                                   .host_budget_bytes = target.host_budget_bytes,
                                   .least_budget_bytes = run.smallest_budget_bytes()});
}

std::unique_ptr<Device> make_device(const PlannedRun& run, const SessionOptions& options) {
  const RunTarget& target = run.target;
  run.own_network();  // throws for a learned step
  if (target.simulated) {
    throw InvalidArgument("train runs on real devices; for " + target.name + " use plan or replay");
  }
  require_fit(run, WaysOut::kTold);
  std::unique_ptr<Device> device =
      target.gpu ? make_gpu(run, options)
                 : make_cpu_device({.budget_bytes = target.budget_bytes - target.library_bytes,
                                    .host_budget_bytes = target.host_budget_bytes,
                                    .link_gbytes_per_second = options.link_gbytes_per_second,
                                    .delay_seed = options.delay_seed,
                                    .page_aligned_blocks = run.options.page_aligned_blocks,
                                    .check_accesses = options.check_accesses});
  return options.wrap_device ? options.wrap_device(std::move(device)) : std::move(device);
}

// The dimensions in the order of memory: channels last.
Dims dims_as_they_lie(const Dims& logical) {
  Dims dims = logical;
  if (dims.size() > 2) {
    std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
  }
  return dims;
}

void require_sizes(const Tape& tape, std::span<const Session::Bytes> inputs) {
  bool right = inputs.size() == tape.inputs().size();
  for (std::size_t i = 0; right && i < inputs.size(); ++i) {
    right = inputs[i].size() == tape.value(tape.inputs()[i]).bytes;
  }
  if (right) {
    return;
  }
  std::string text = "a step of '" + tape.model() + "' needs";
  for (const ValueId input : tape.inputs()) {
    text += " " + tape.value(input).name + " of " + std::to_string(tape.value(input).bytes) + " bytes,";
  }
  text += " but was given";
  for (const Session::Bytes& input : inputs) {
    text += " " + std::to_string(input.size());
  }
  throw InvalidArgument(text + " bytes");
}

ParameterValues describe(const Tape& tape, const TapeParameter& parameter) {
  return {.name = tape.value(parameter.value).name,
          .dims = dims_as_they_lie(parameter.recipe.type.dims),
          .values = {},
          .trainable = parameter.recipe.trainable};
}

std::string in_words(const ParameterValues& values) {
  return "'" + values.name + "' (" + to_string(values.dims) + ")";
}

// Whether the targets of the loss, its input 1, are classes.
bool is_class_loss(const OpSpec& spec) {
  return std::holds_alternative<SoftmaxCrossEntropySpec>(spec) ||
         std::holds_alternative<DiceCrossEntropySpec>(spec);
}

constexpr const char* kInputs = "for the inputs of a step";

// Throws InvalidArgument if the names or dimensions of `given` differ from those of `expected`. The message
// ends with `hint`.
void require_alike(const std::vector<ParameterValues>& expected, const std::vector<ParameterValues>& given,
                   const std::string& hint) {
  for (std::size_t i = 0; i < std::max(expected.size(), given.size()); ++i) {
    if (i >= given.size()) {
      throw InvalidArgument("the state has no " + in_words(expected[i]) + hint);
    }
    if (i >= expected.size()) {
      throw InvalidArgument("the state also has " + in_words(given[i]) + hint);
    }
    if (given[i].name != expected[i].name || given[i].dims != expected[i].dims ||
        given[i].values.size() != element_count(expected[i].dims)) {
      throw InvalidArgument("the state has " + in_words(given[i]) + " where " + in_words(expected[i]) +
                            " is expected" + hint);
    }
  }
}

}  // namespace

TrainingState describe_state(const Tape& tape) {
  TrainingState state;
  for (const TapeParameter& parameter : tape.parameters()) {
    state.parameters.push_back(describe(tape, parameter));
    for (const ValueId id : parameter.state) {
      state.optimizer.push_back(describe(tape, parameter));
      state.optimizer.back().name = tape.value(id).name;
    }
  }
  return state;
}

Session::Session(PlannedRun run, const SessionOptions& options)
    : run_(std::move(run)),
      evaluation_peak_bytes_(run_.prediction.peak_bytes),
      options_(options),
      device_(make_device(run_, options)),
      pool_(*device_, {.protect_released = options.protect_released}),
      pinned_(*device_),
      streams_(*device_, stream_roles(*run_.tape)),
      parameters_(pool_, compute(), *run_.tape),
      compiled_tape_(run_.tape),
      program_(run_.library->compile(*run_.tape, run_.schedule.algorithms)) {
  if (const std::string reason = uses_graphs() ? why_not_graph(*device_, *run_.tape, program_.get()) : "";
      !reason.empty()) {
    throw InvalidArgument("steps cannot be graphs on " + run_.target.name + ": " + reason);
  }
  if (options.inspect && uses_graphs()) {
    throw InvalidArgument("values cannot be inspected if steps are graphs");
  }
  connect();
  parameters_.upload(pinned_, compute(), program_.get(), initial_parameters(*run_.tape, options.seed));
  set_loss_scale(std::nullopt);
  take_from_first_rank(false);
}

void Session::connect() {
  const auto ranks = static_cast<int>(run_.options.training.ranks);
  if (ranks == 1) {
    return;
  }
  if (!options_.connect) {
    throw InvalidArgument("'" + run_.tape->model() + "' is planned for " + std::to_string(ranks) +
                          " ranks: its session needs a communicator");
  }
  communicator_ = options_.connect(*device_);
  if (communicator_->size() != ranks) {
    throw InvalidArgument("'" + run_.tape->model() + "' is planned for " + std::to_string(ranks) +
                          " ranks, but its communicator joins " + std::to_string(communicator_->size()));
  }
  // The communicator may need more memory than the plan assumed.
  const std::uint64_t taken = communicator_->library_bytes();
  const std::uint64_t others = run_.target.library_bytes - run_.target.communicator_bytes;
  if (run_.prediction.peak_bytes + others + taken > run_.target.budget_bytes) {
    throw OutOfMemory(
        "memory for '" + run_.tape->model() + "' beside " + format_size(taken) +
            " of the library that joins the ranks",
        {.asked = run_.prediction.peak_bytes,
         .in_use = others + taken,
         .budget = run_.target.budget_bytes,
         .would_have_fitted = run_.target.budget_bytes - std::min(run_.target.budget_bytes, others + taken)});
  }
}

// Copies parameters and the optimizer's state, or only running statistics, from the first rank to all ranks.
// No work may be in flight.
void Session::take_from_first_rank(bool statistics_alone) {
  if (!communicator_) {
    return;
  }
  const StreamId stream = streams_[StreamRole::kReduce];
  const std::vector<ParameterStore::Slot*> slots = parameters_.slots(*run_.tape);
  const auto take = [&](ValueId value) {
    ParameterStore::Slot& slot = *slots[value];
    const std::uint64_t before = slot.version;
    slot.version = parameters_.next_version();
    communicator_->broadcast(stream,
                             {.name = run_.tape->value(value).name,
                              .range = slot.range,
                              .version_before = before,
                              .version_after = slot.version,
                              .cost = {}},
                             0);
  };
  for (const TapeParameter& parameter : run_.tape->parameters()) {
    if (!statistics_alone || !parameter.recipe.trainable) {
      take(parameter.value);
    }
    if (!statistics_alone) {
      std::ranges::for_each(parameter.state, take);
    }
  }
  if (!statistics_alone && run_.tape->loss_scale() != kNone) {
    take(run_.tape->loss_scale());
  }
  synchronize(device_->frontier(stream));
  if (!statistics_alone) {
    parameters_.renew_copies(pinned_, compute());
  }
}

// Sets the loss scale, to its initial value if `scale` is empty. Does nothing if losses are not scaled.
void Session::set_loss_scale(const std::optional<LossScale>& scale) {
  if (run_.tape->loss_scale() != kNone) {
    parameters_.set_loss_scale(
        pinned_, compute(), scale.value_or(LossScale{.scale = run_.options.training.loss_scaling.initial}));
  }
}

void Session::share_statistics() {
  if (!communicator_) {
    return;
  }
  require_idle();
  finish();
  take_from_first_rank(true);
}

void Session::require_ranks() {
  require_sound();
  if (communicator_) {
    synchronize({});
  }
}

void Session::leave_ranks() {
  if (!communicator_) {
    return;
  }
  finish();
  communicator_.reset();
  failure_ = std::make_exception_ptr(DeviceError("this session has left the other ranks"));
}

// Blocks. Waits through the communicator if there is one: that wait has a deadline, so it ends even if
// another rank never arrives.
void Session::synchronize(const Frontier& frontier) {
  try {
    communicator_ ? communicator_->wait(frontier) : device_->synchronize(frontier);
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

// Runs an action that may fail in the middle of a step, after some parameters have been updated.
template <class Action>
auto Session::guarded(const Action& action) {
  try {
    return action();
  } catch (...) {
    if (executor_->failed()) {
      failure_ = std::current_exception();
    }
    throw;
  }
}

StepTicket Session::submit(std::span<const AddressRange> inputs, float learning_rate) {
  open(Mode::kTraining);
  require_classes(inputs);
  const TrainingOptions& training = run_.options.training;
  const std::uint64_t rank = communicator_ ? static_cast<std::uint64_t>(communicator_->rank()) : 0;
  const StepScalars scalars{
      .learning_rate = learning_rate,
      .step = steps_,
      .seed = options_.seed,
      .first_sample = (rank * training.micro_steps + micro_step_) * static_cast<std::uint64_t>(run_.batch()),
      .micro_step = micro_step_,
      .micro_steps = training.micro_steps};
  StepTicket ticket = guarded([&] { return executor_->submit(inputs, scalars); });
  steps_ += scalars.updates() ? 1 : 0;
  micro_step_ = (micro_step_ + 1) % training.micro_steps;
  ++in_flight_;
  return ticket;
}

StepTicket Session::submit_evaluation(std::span<const AddressRange> inputs) {
  open(Mode::kInference);
  require_classes(inputs);
  StepTicket ticket =
      guarded([&] { return executor_->submit(inputs, {.step = steps_, .seed = options_.seed}); });
  ++in_flight_;
  return ticket;
}

StepMetrics Session::wait(const StepTicket& ticket) {
  require_sound();
  if (!executor_) {
    throw InvalidArgument("a wait for step " + std::to_string(ticket.step) + ", and none is in flight");
  }
  StepMetrics metrics = guarded([&] { return executor_->wait(ticket); });
  --in_flight_;
  waited_ = ticket.step;
  return metrics;
}

StepMetrics Session::step(std::span<const Bytes> inputs, float learning_rate) {
  return staged(*run_.tape, inputs,
                [&](std::span<const AddressRange> staged) { return submit(staged, learning_rate); });
}

StepMetrics Session::evaluate(std::span<const Bytes> inputs) {
  return staged(*evaluation().tape, inputs,
                [&](std::span<const AddressRange> staged) { return submit_evaluation(staged); });
}

std::int64_t Session::evaluation_batch() {
  return evaluation().batch;
}

void Session::finish() {
  require_sound();
  if (!executor_) {
    return;
  }
  memory_ = executor_->memory();
  synchronize(streams_.everything(*device_));
  close();
}

// --- learning from the run ---------------------------------------------------------------------------------

std::string to_string(ReplanReport::Outcome outcome) {
  switch (outcome) {
    case ReplanReport::Outcome::kReplanned:
      return "replanned";
    case ReplanReport::Outcome::kKept:
      return "kept";
    case ReplanReport::Outcome::kRefused:
      return "refused";
  }
  return "";
}

MeasuredCosts Session::learn(std::span<const TraceEvent> trace) {
  if (!expected_) {
    expected_ = expected_costs(run_);
    expected_->link_gbytes_per_second = options_.link_gbytes_per_second;
  }
  seen_.add(*run_.tape, run_.schedule, compute(), trace);
  return learned_costs(*expected_, seen_);
}

namespace {

struct Replanned {
  std::optional<PlannedRun> run;
  std::string reason;  // why there is no run
};

// A new plan must have a step shorter than this fraction of the old plan's. The gain must exceed the error of
// predictions.
constexpr double kWorthASwap = 0.99;

// Returns an error as a reason instead of throwing it, since the old plan still works.
Replanned try_replan(const PlannedRun& run, const ReplanOptions& options) {
  try {
    PlannedRun next = replan_run(run, options);
    require_fit(next);
    return {.run = std::move(next), .reason = {}};
  } catch (const std::exception& error) {
    return {.run = {}, .reason = error.what()};
  }
}

}  // namespace

ReplanReport Session::replan(const MeasuredCosts& costs, const ReplanOptions& options) {
  require_idle();
  PlannedRun corrected = with_costs(run_, costs);
  finish();
  ReplanReport report{.outcome = ReplanReport::Outcome::kKept,
                      .reason = {},
                      .expected_step_seconds = run_.prediction.step_seconds,
                      .corrected_step_seconds = corrected.prediction.step_seconds,
                      .predicted_peak_bytes_before = committed_bytes_wanted()};
  Replanned next = try_replan(corrected, options);
  run_ = std::move(corrected);
  if (!next.run) {
    report.outcome = ReplanReport::Outcome::kRefused;
    report.reason = std::move(next.reason);
  } else if (options.policy ||
             next.run->prediction.step_seconds <= kWorthASwap * run_.prediction.step_seconds) {
    report.algorithms_changed = next.run->schedule.algorithms != run_.schedule.algorithms;
    try {
      adopt(*std::move(next.run));
      report.outcome = ReplanReport::Outcome::kReplanned;
    } catch (const std::exception& error) {
      take_memory();
      report.outcome = ReplanReport::Outcome::kRefused;
      report.reason = error.what();
      report.algorithms_changed = false;
    }
  }
  report.predicted_step_seconds = run_.prediction.step_seconds;
  report.predicted_peak_bytes = committed_bytes_wanted();
  return report;
}

// The bytes to keep committed: enough for steps of training and for evaluation between them.
std::uint64_t Session::committed_bytes_wanted() const {
  return std::max(run_.prediction.peak_bytes, evaluation_ ? evaluation_->peak_bytes : 0);
}

// Replaces the plan in force by `next`. After an exception, everything but the allocated memory is as before
// the call. No work may be in flight.
void Session::adopt(PlannedRun next) {
  // A program is compiled for certain algorithms, and evaluation uses training's algorithms. So both need new
  // programs only if algorithms change.
  const bool compiles = next.schedule.algorithms != run_.schedule.algorithms;
  std::shared_ptr<const Tape> tape = next.tape;
  std::unique_ptr<OpProgram> program =
      compiles ? next.library->compile(*tape, next.schedule.algorithms) : nullptr;
  std::optional<EvaluationPlan> evaluation_plan;
  std::unique_ptr<OpProgram> evaluation_program;
  const auto exchange = [&] {
    std::swap(run_, next);
    if (compiles) {
      std::swap(compiled_tape_, tape);
      std::swap(program_, program);
      std::swap(evaluation_, evaluation_plan);
      std::swap(evaluation_program_, evaluation_program);
    }
  };
  exchange();
  try {
    if (evaluation_plan) {
      evaluation();
    }
    take_memory();
  } catch (...) {
    close();
    exchange();
    throw;
  }
}

// Allocates all memory that a step of the plan in force needs, so that no step allocates from the system.
// Gives other free memory back to the system. Addresses of device blocks do not depend on how much
// memory is committed (DevicePool::resize()).
void Session::take_memory() {
  pinned_.trim();
  open(Mode::kTraining);
  if (!pool_.resize(std::max(committed_bytes_wanted(), pool_.statistics().committed_bytes))) {
    throw OutOfMemory("memory for a step of '" + run_.tape->model() + "'",
                      pool_.shortage(committed_bytes_wanted()));
  }
  { const PinnedBlock parameter(pinned_, parameters_.transfer_bytes(), "to move a parameter"); }
  // This block stages inputs that callers pass as host memory. A BatchLoader has blocks of its own.
  std::optional<PinnedBlock> inputs;
  if (stages_inputs_) {
    inputs.emplace(pinned_, input_bytes(), kInputs);
  }
  take_host_buffers();
  pool_.resize(committed_bytes_wanted());
}

// Allocates and frees host blocks in the order of the step. Afterwards the pool has as many free blocks as a
// step uses at once.
void Session::take_host_buffers() {
  std::map<BufferId, PinnedBlock> blocks;
  for (const Instruction& instruction : run_.schedule.instructions) {
    const Buffer* const buffer =
        instruction.buffer == kNone ? nullptr : &run_.schedule.buffers[instruction.buffer];
    if (buffer == nullptr || buffer->space != Space::kHost) {
      continue;
    }
    if (instruction.kind == InstructionKind::kAllocate) {
      blocks.try_emplace(instruction.buffer, pinned_, buffer->bytes, "for " + buffer->name);
    } else if (instruction.kind == InstructionKind::kRelease) {
      blocks.erase(instruction.buffer);
    }
  }
}

std::vector<float> Session::result(std::string_view name) const {
  require_sound();
  if (!executor_ || !waited_) {
    throw InvalidArgument("no step has been waited for: there is no result '" + std::string(name) + "'");
  }
  const Tape& tape = current_tape();
  const ValueId value = tape.find_value(name);
  const auto results = tape.results();
  const auto found = std::ranges::find(results, value);
  if (value == kNone || found == results.end()) {
    throw InvalidArgument("'" + std::string(name) + "' is not among the results of " +
                          (mode_ == Mode::kTraining ? "training" : "evaluation") + " steps of '" +
                          tape.model() +
                          "': mark it as an output of the network, or name it in TrainingOptions::results");
  }
  const AddressRange range = executor_->result(*waited_, static_cast<std::size_t>(found - results.begin()));
  return numbers_of(tape, value, range);
}

ParameterValues Session::parameter(std::string_view name) {
  const std::uint32_t index = parameter_index(name);
  require_idle();
  ParameterValues values = describe(*run_.tape, run_.tape->parameters()[index]);
  values.values = parameters_.download_one(pinned_, compute(), *program_, index);
  return values;
}

void Session::set_parameter(std::string_view name, std::span<const float> values) {
  const std::uint32_t index = parameter_index(name);
  const std::uint64_t elements = run_.tape->parameters()[index].recipe.type.elements();
  if (values.size() != elements) {
    throw InvalidArgument("parameter '" + std::string(name) + "' has " + std::to_string(elements) +
                          " elements, not " + std::to_string(values.size()));
  }
  require_idle();
  parameters_.upload_one(pinned_, compute(), *program_, index, values);
}

std::vector<std::string> Session::parameter_names() const {
  std::vector<std::string> names;
  for (const TapeParameter& parameter : run_.tape->parameters()) {
    names.push_back(run_.tape->value(parameter.value).name);
  }
  return names;
}

TrainingState Session::state() {
  require_idle();
  require_whole_step();
  TrainingState state = describe_state(*run_.tape);
  state.step = steps_;
  state.seed = options_.seed;
  if (run_.tape->loss_scale() != kNone) {
    state.loss_scale = parameters_.loss_scale(pinned_, compute());
  }
  std::vector<std::vector<float>> values = parameters_.download(pinned_, compute(), *program_);
  auto states = parameters_.download_states(pinned_, compute(), *program_);
  auto next_state = state.optimizer.begin();
  for (std::uint32_t index = 0; index < values.size(); ++index) {
    state.parameters[index].values = std::move(values[index]);
    for (std::vector<float>& one : states[index]) {
      (next_state++)->values = std::move(one);
    }
  }
  return state;
}

void Session::restore(const TrainingState& state) {
  if (!failure_) {
    require_idle();
  }
  const TrainingState expected = describe_state(*run_.tape);
  require_alike(expected.parameters, state.parameters,
                ": it is of another network than " + run_.tape->model());
  require_alike(expected.optimizer, state.optimizer, ": it is of another optimizer");
  if (state.loss_scale && !ops::is_possible(*state.loss_scale, state.step)) {
    throw InvalidArgument("the state has a loss scale of " + std::to_string(state.loss_scale->scale) +
                          " and " + std::to_string(state.loss_scale->skipped_steps) + " skipped of " +
                          std::to_string(state.step) + " steps, which is impossible");
  }
  std::vector<std::vector<float>> values;
  std::vector<std::vector<std::vector<float>>> states;
  auto next_state = state.optimizer.begin();
  for (const TapeParameter& parameter : run_.tape->parameters()) {
    values.push_back(state.parameters[values.size()].values);
    auto& of_parameter = states.emplace_back();
    for (std::size_t i = 0; i < parameter.state.size(); ++i) {
      of_parameter.push_back((next_state++)->values);
    }
  }
  mend();
  // If the upload fails, the session must not be used: its state is restored only in part.
  failure_ = std::make_exception_ptr(DeviceError("a state was restored in part"));
  parameters_.upload(pinned_, compute(), program_.get(), values, states);
  set_loss_scale(state.loss_scale);
  failure_ = nullptr;
  take_from_first_rank(false);
  micro_step_ = 0;
  steps_ = state.step;
  options_.seed = state.seed;
}

// Makes the session usable again after a failure, even after one that no wait has reported yet.
void Session::mend() {
  if (!failure_) {
    try {
      device_->synchronize_all();
      return;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  close();
  device_->recover();
}

std::string Session::weights_sha256() {
  require_idle();
  return parameters_sha256(parameters_.download(pinned_, compute(), *program_));
}

void Session::close() {
  executor_.reset();
  waited_.reset();
  in_flight_ = 0;
}

void Session::require_sound() const {
  if (failure_) {
    std::rethrow_exception(failure_);
  }
}

// Throws if a step is in flight, since it may still read or write the values that the caller wants to access.
void Session::require_idle() const {
  require_sound();
  if (in_flight_ > 0) {
    throw InvalidArgument(std::to_string(in_flight_) + " steps are in flight: wait for them first");
  }
}

void Session::require_whole_step() const {
  if (micro_step_ != 0) {
    throw InvalidArgument(std::to_string(micro_step_) + " of the " +
                          std::to_string(run_.options.training.micro_steps) +
                          " micro-steps of a step are done: a state does not include its gradients");
  }
}

const EvaluationPlan& Session::evaluation() {
  if (!evaluation_) {
    // Plans evaluation in the memory of the run's first plan, also after a replanning. So the batch of
    // evaluation stays the same; with another batch, results might have other bits.
    EvaluationPlan plan = plan_evaluation(run_, evaluation_peak_bytes_);
    evaluation_program_ = run_.library->compile(*plan.tape, plan.schedule.algorithms);
    evaluation_ = std::move(plan);
  }
  return *evaluation_;
}

std::vector<Session::ClassTargets> Session::find_class_targets(const Tape& tape) {
  std::vector<ClassTargets> found;
  for (OpId id = 0; id < tape.forward_ops(); ++id) {
    if (const Op& op = tape.op(id); is_class_loss(op.spec)) {
      const auto input = std::ranges::find(tape.inputs(), op.reads[1]);
      found.push_back({.input = static_cast<std::size_t>(input - tape.inputs().begin()),
                       .require_classes = [places = ops::ClassPlaces(op.layer_inputs, op.name)](
                                              std::span<const std::int32_t> targets) {
                         ops::require_classes(places, targets);
                       }});
    }
  }
  return found;
}

void Session::open(Mode mode) {
  require_sound();
  if (executor_ && mode_ == mode) {
    return;
  }
  require_idle();
  finish();
  const bool training = mode == Mode::kTraining;
  if (!training) {
    evaluation();
  }
  std::vector<ClassTargets> class_targets = find_class_targets(training ? *run_.tape : *evaluation_->tape);
  executor_.emplace(ExecutorParts{.device = *device_,
                                  .pool = pool_,
                                  .pinned = pinned_,
                                  .streams = streams_,
                                  .parameters = parameters_,
                                  .tape = training ? *run_.tape : *evaluation_->tape,
                                  .schedule = training ? run_.schedule : evaluation_->schedule,
                                  .program = training ? program_.get() : evaluation_program_.get(),
                                  .communicator = communicator_.get(),
                                  .graph = training && uses_graphs(),
                                  .inspect = training ? options_.inspect : ValueInspector(),
                                  .least_result_bytes = result_bytes(*run_.tape)});
  mode_ = mode;
  class_targets_ = std::move(class_targets);
}

// Checks labels on the host, before the step is submitted. With a wrong label, the step would fail or, on a
// GPU, have a loss of NaN.
void Session::require_classes(std::span<const AddressRange> inputs) const {
  if (!device_->properties().touches_memory) {
    return;
  }
  for (const ClassTargets& each : class_targets_) {
    if (each.input < inputs.size()) {
      each.require_classes({pointer_to<const std::int32_t>(inputs[each.input].begin),
                            inputs[each.input].bytes / sizeof(std::int32_t)});
    }
  }
}

const Tape& Session::current_tape() const {
  return mode_ == Mode::kTraining ? *run_.tape : *evaluation_->tape;
}

std::uint64_t Session::input_bytes() const {
  std::uint64_t bytes = 0;
  for (const ValueId input : run_.tape->inputs()) {
    bytes += run_.tape->value(input).bytes;
  }
  return bytes;
}

// Runs one step with `inputs`, which are first copied into a page-locked block. The block has the size of a
// BatchLoader's blocks.
template <class Submit>
StepMetrics Session::staged(const Tape& tape, std::span<const Bytes> inputs, const Submit& submit_step) {
  require_idle();
  require_sizes(tape, inputs);
  std::vector<AddressRange> ranges;
  PinnedBlock block(pinned_, input_bytes(), kInputs);
  stages_inputs_ = true;
  std::uint64_t at = block.range().begin;
  for (const Bytes& input : inputs) {
    std::memcpy(pointer_to<std::byte>(at), input.data(), input.size());
    ranges.push_back({.begin = at, .bytes = input.size()});
    at += input.size();
  }
  try {
    const StepTicket ticket = submit_step(ranges);
    block.used_until(ticket.inputs_copied);
    return wait(ticket);
  } catch (...) {
    // The step's ticket is lost, so its progress is unknown.
    if (in_flight_ > 0) {
      failure_ = std::current_exception();
    }
    block.used_until(streams_.everything(*device_));
    throw;
  }
}

std::vector<float> Session::numbers_of(const Tape& tape, ValueId id, const AddressRange& range) const {
  const Value& value = tape.value(id);
  if (value.kind == ValueKind::kParameterGradient) {
    const std::string parameter = value.name.substr(0, value.name.rfind(".gradient"));
    const std::uint32_t index = parameter_index(parameter);
    std::vector<float> numbers(tape.parameters()[index].recipe.type.elements());
    program_->unpack_parameter(index, pointer_to<std::byte>(range.begin), numbers);
    return numbers;
  }
  if (!is_floating(value.type.data_type)) {
    throw InvalidArgument("'" + value.name + "' is not made of floating-point numbers");
  }
  return widened(value.type.data_type, {pointer_to<const std::byte>(range.begin), range.bytes});
}

std::uint32_t Session::parameter_index(std::string_view name) const {
  const auto parameters = run_.tape->parameters();
  const auto found = std::ranges::find_if(parameters, [&](const TapeParameter& parameter) {
    return run_.tape->value(parameter.value).name == name;
  });
  if (found == parameters.end()) {
    throw InvalidArgument("'" + run_.tape->model() + "' has no parameter '" + std::string(name) + "'");
  }
  return static_cast<std::uint32_t>(found - parameters.begin());
}

}  // namespace vdnn
