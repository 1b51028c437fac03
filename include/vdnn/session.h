#pragma once
// Training in the caller's own loop. A Session creates the device of a planned run with its budget,
// initialises the parameters and runs the schedule step by step. The caller provides data and learning rate
// and decides when to stop. The session returns losses, outputs and gradients by name. `Trainer` is such a
// loop.
//
//   Session session(plan_run(std::move(network), {.policy = Policy::kOffloadAll}), {.seed = 1});
//   while (session.step({images, targets}, 0.01F).loss > 0.1) { ... }
//
// A step reads the inputs of the network as bytes, in the order of Tape::inputs(): images, then targets.
// Images are fp32, channels last (N x H x W x C); classes are i32. step() copies them and waits for the step.
// A loop that overlaps loading with computing calls submit() and wait() with page-locked memory.
//
// Training and evaluation take turns in the same memory. The first call of one kind after calls of the other
// releases the memory of the other kind. It throws InvalidArgument unless all submitted steps have been
// waited for. A Session belongs to one thread.
//
// Between steps a session may learn from a trace of past steps (learn()) and plan the following steps anew
// (replan()). Only the movement of bytes then changes; with the same algorithms results keep their bits.
//
// If several ranks train together (TrainingOptions::ranks), each has a session, and all make the same calls
// in the same order. Parameters and optimizer states begin as those of rank 0, also after restore(). The
// metrics of a step then cover all ranks: the mean loss, and the sums of the correct and the counted places.
// If gradients are accumulated (TrainingOptions::micro_steps), a step() is a micro-step, and the last one of
// an update changes the parameters; steps() counts updates.
//
// Impossible arguments are refused without any effect. A step that fails halfway (memory, the device, a
// custom layer) may have updated some parameters. Every later call then throws the first cause again, until
// restore() has replaced the whole state. The cause is a vdnn::Error or, if the host's heap is exhausted,
// std::bad_alloc.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/communicator.h"
#include "vdnn/device.h"
#include "vdnn/device_pool.h"
#include "vdnn/executor.h"
#include "vdnn/learned_costs.h"
#include "vdnn/parameter_store.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/planned_run.h"

namespace vdnn {

struct SessionOptions {
  std::uint64_t seed = 1;  // of initialisation and dropout
  // Slows the copies of cpu down to this rate each way, in 10^9 bytes per second; > 0.
  std::optional<double> link_gbytes_per_second;
  // Debugging aids of the cpu driver. cpu_device.h and device_pool.h describe them and state which need
  // RunOptions::page_aligned_blocks.
  std::optional<std::uint64_t> delay_seed;
  bool protect_released = false;
  bool check_accesses = false;
  // Overrides RunOptions::graph: steps are not graphs, so that values can be inspected and ops timed.
  bool steps_one_by_one = false;
  // Maps the session's device to the device that the session uses: a wrapper with the same properties, for
  // example one that counts calls or fails on purpose. May be empty.
  std::function<std::unique_ptr<Device>(std::unique_ptr<Device>)> wrap_device = {};
  // Called with every value of training steps (executor.h). Not for steps that are graphs.
  ValueInspector inspect = {};
  // Joins the session's device with those of the other ranks. Required if TrainingOptions::ranks is above 1.
  std::function<std::unique_ptr<Communicator>(Device&)> connect = {};
};

// The values of one parameter in logical form: dense, channels last (filters KRSC).
struct ParameterValues {
  std::string name;  // "conv1.filter"
  Dims dims;         // in the order of storage: K, R, S, C
  std::vector<float> values;
  bool trainable = true;
};
// The state of a training run. The optimizer's state of a parameter has the parameter's form.
struct TrainingState {
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  std::vector<ParameterValues> parameters;  // in order of creation
  std::vector<ParameterValues> optimizer;   // "conv1.filter.momentum"; in the same order
  // Present if losses are scaled. If it is absent in a restored state, the scale starts anew.
  std::optional<LossScale> loss_scale;
};
// The names and dims, in order, that a state of training `tape` must have; without values.
TrainingState describe_state(const Tape& tape);

// The outcome of planning anew.
struct ReplanReport {
  enum class Outcome : std::uint8_t {
    kReplanned,  // the new plan is in force
    kKept,       // the new plan would not shorten the step by 1 % or more; the old one stays in force
    kRefused     // there is no new plan, see `reason`; the old one stays in force
  };
  Outcome outcome = Outcome::kKept;
  std::string reason;  // of kRefused, otherwise empty
  // Predictions for the old plan: with its own costs, and with the new costs.
  double expected_step_seconds = 0;
  double corrected_step_seconds = 0;
  std::uint64_t predicted_peak_bytes_before = 0;
  // Predictions for the plan in force from now on.
  double predicted_step_seconds = 0;
  std::uint64_t predicted_peak_bytes = 0;  // committed; includes evaluation if it is planned
  bool algorithms_changed = false;         // results then have other bits
};
std::string to_string(ReplanReport::Outcome outcome);

class Session {
 public:
  // Throws DoesNotFit with ways out if the run does not fit, InvalidArgument for a simulated device or a
  // learned step.
  explicit Session(PlannedRun run, const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The run with the plan in force.
  const PlannedRun& run() const { return run_; }
  // Updates submitted since the start of training, including those in a restored state.
  std::uint64_t steps() const { return steps_; }

  // --- steps that wait -------------------------------------------------------------------------------------
  using Bytes = std::span<const std::byte>;
  // Throws InvalidArgument if the inputs do not have the network's sizes, or a target is not one of its
  // classes; the text then names sample, target and classes. Nothing has been submitted in that case, and the
  // session accepts the next batch.
  StepMetrics step(std::span<const Bytes> inputs, float learning_rate);
  StepMetrics step(std::initializer_list<Bytes> inputs, float learning_rate) {
    return step(std::span(inputs.begin(), inputs.size()), learning_rate);
  }
  // Runs the forward pass alone, in inference mode, on evaluation_batch() samples.
  StepMetrics evaluate(std::span<const Bytes> inputs);
  StepMetrics evaluate(std::initializer_list<Bytes> inputs) {
    return evaluate(std::span(inputs.begin(), inputs.size()));
  }
  // Samples of an evaluation step: the batch of training, or the largest half, quarter and so on of it that
  // fits into the memory of training. Throws OutOfMemory if none fits.
  std::int64_t evaluation_batch();

  // --- steps in flight -------------------------------------------------------------------------------------
  // See Executor::submit and Executor::wait; inputs in page-locked memory. Targets that are not classes are
  // refused as step() refuses them.
  StepTicket submit(std::span<const AddressRange> inputs, float learning_rate);
  StepTicket submit_evaluation(std::span<const AddressRange> inputs);
  StepMetrics wait(const StepTicket& ticket);
  // Waits for all submitted steps and releases the memory that steps hold between them. Results that have not
  // been waited for are lost.
  void finish();

  // --- learning from the run -------------------------------------------------------------------------------
  // Corrects the costs of the first plan with `trace` and all earlier traces. `trace` comes from
  // Device::take_trace() and covers several finished steps of the plan in force, since costs are medians.
  // Throws InvalidArgument if the trace has no launch of these steps.
  MeasuredCosts learn(std::span<const TraceEvent> trace);
  // Plans the following steps anew with these costs and within the same budgets. The new plan replaces the
  // one in force if its predicted step is shorter by 1 % or more, or if the options ask for a policy.
  //
  // Parameters, optimizer, running statistics and the count of steps stay in place. The feature maps of both
  // plans are never resident together. When this returns, the session holds exactly the memory of the new
  // plan, so no later step allocates or runs out of memory. Finishes as finish() does, and takes as long as
  // planning. Throws InvalidArgument with steps in flight, for costs of another run, and for times that are
  // not finite or not above 0. Also throws the exceptions of finish(), and OutOfMemory, DeviceError or
  // std::bad_alloc if not even the memory of the old plan can be allocated again.
  ReplanReport replan(const MeasuredCosts& costs, const ReplanOptions& options = {});

  // --- values by name --------------------------------------------------------------------------------------
  // A result of the last step that was waited for, dense and channels last: an output of the network or, of a
  // training step, a value in TrainingOptions::results, for example a gradient. Available until the second
  // step after it or a step of the other kind is submitted, or finish() is called. Throws InvalidArgument for
  // other values.
  std::vector<float> result(std::string_view name) const;
  // A parameter or running statistic after all submitted steps. Throws InvalidArgument for an unknown name or
  // a wrong number of elements.
  ParameterValues parameter(std::string_view name);
  void set_parameter(std::string_view name, std::span<const float> values);
  std::vector<std::string> parameter_names() const;

  // Copies the running statistics of rank 0, which otherwise differ between ranks, to all ranks. Does nothing
  // if a device trains alone. Finishes as finish() does.
  void share_statistics();

  // Throws the cause if a collective of a step has failed, even if nobody has waited for that step yet. Does
  // nothing if a device trains alone.
  void require_ranks();

  // Leaves the other ranks once all submitted steps are done; all ranks call it, and every later call throws
  // DeviceError. Without it, a session that is destroyed by an exception aborts the work of the other ranks.
  // Does nothing if a device trains alone. Throws as finish() does.
  void leave_ranks();

  // Everything that later steps depend on. Not available between the micro-steps of an update. restore()
  // throws InvalidArgument without any effect for a state of another network or optimizer. It also makes a
  // session usable again after a failed step.
  TrainingState state();
  void restore(const TrainingState& state);
  // SHA-256 over all parameters in order of creation, little-endian fp32 in logical order.
  std::string weights_sha256();

  // --- its parts, for loops that load ahead ---------------------------------------------------------------
  Device& device() { return *device_; }
  PinnedPool& pinned() { return pinned_; }
  const StreamSet& streams() const { return streams_; }
  // Memory of the last step submitted.
  StepMemory memory() const { return executor_ ? executor_->memory() : memory_; }

 private:
  // An input whose values a loss reads as classes.
  struct ClassTargets {
    std::size_t input = 0;  // index into Tape::inputs()
    // Throws InvalidArgument for a target that is not one of its classes. Created once, so that steps do not
    // allocate.
    std::function<void(std::span<const std::int32_t>)> require_classes;
  };

  bool uses_graphs() const { return run_.options.graph && !options_.steps_one_by_one; }
  StreamId compute() const { return streams_[StreamRole::kCompute]; }
  const EvaluationPlan& evaluation();
  std::uint64_t committed_bytes_wanted() const;
  void take_memory();
  void take_host_buffers();
  std::uint64_t input_bytes() const;
  void adopt(PlannedRun next);
  void open(Mode mode);
  void close();
  void mend();
  void connect();
  void take_from_first_rank(bool statistics_alone);
  void set_loss_scale(const std::optional<LossScale>& scale);
  void synchronize(const Frontier& frontier);
  void require_whole_step() const;
  template <class Action>
  auto guarded(const Action& action);
  void require_sound() const;
  void require_idle() const;
  const Tape& current_tape() const;
  static std::vector<ClassTargets> find_class_targets(const Tape& tape);
  void require_classes(std::span<const AddressRange> inputs) const;
  template <class Submit>
  StepMetrics staged(const Tape& tape, std::span<const Bytes> inputs, const Submit& submit_step);
  std::vector<float> numbers_of(const Tape& tape, ValueId id, const AddressRange& range) const;
  std::uint32_t parameter_index(std::string_view name) const;

  PlannedRun run_;
  std::uint64_t evaluation_peak_bytes_;  // limit of evaluation's committed bytes: the first plan's peak
  SessionOptions options_;
  std::unique_ptr<Device> device_;
  DevicePool pool_;
  PinnedPool pinned_;
  StreamSet streams_;
  std::unique_ptr<Communicator> communicator_;  // null: the device trains alone
  ParameterStore parameters_;
  std::shared_ptr<const Tape> compiled_tape_;  // source of the program
  std::unique_ptr<OpProgram> program_;
  std::optional<EvaluationPlan> evaluation_;
  std::unique_ptr<OpProgram> evaluation_program_;

  std::optional<Executor> executor_;
  Mode mode_ = Mode::kTraining;              // of the executor
  std::vector<ClassTargets> class_targets_;  // of its losses
  StepMemory memory_;                        // of the previous executor
  std::uint64_t steps_ = 0;
  std::uint32_t micro_step_ = 0;  // the next micro-step of its step
  std::uint64_t in_flight_ = 0;
  bool stages_inputs_ = false;           // step() or evaluate() was called, not only submit()
  std::optional<std::uint64_t> waited_;  // the executor's last step that was waited for
  std::exception_ptr failure_;           // the exception that ended a step halfway

  std::optional<MeasuredCosts> expected_;  // before anything was learned
  StepObservations seen_;
};

}  // namespace vdnn
