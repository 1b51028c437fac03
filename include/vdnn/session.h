#pragma once
// Training in the caller's own loop. A Session makes the device of a planned run with its budget, initialises
// the parameters and steps the schedule: the caller brings the data, the learning rate and the decision when
// to stop, and gets losses, outputs and gradients back by name. `Trainer` is such a loop.
//
//   Session session(plan_run(std::move(network), {.policy = Policy::kOffloadAll}), {.seed = 1});
//   while (session.step({images, targets}, 0.01F).loss > 0.1) { ... }
//
// What a step is given: the inputs of the network in the order of Tape::inputs() (images, then targets), as
// bytes: fp32 channels last (N x H x W x C), classes as i32. step() copies them and waits for the step. For a
// loop that overlaps loading with computing there are submit() and wait() over page-locked memory.
//
// Training and evaluation take turns in the same memory: the first call of the other kind closes what the
// last one used, once everything submitted has been waited for. A Session belongs to one thread.
//
// Between steps a session may learn from a trace of those behind it (learn()) and plan the following ones
// anew (replan()): bytes then move otherwise, and with the same algorithms results stay what they would have
// been.
//
// Where several ranks train together (TrainingOptions::ranks), each has a session, and all make the same
// calls in the same order. Parameters and optimizer states begin as those of rank 0, and so after restore().
// What a step says of its losses is then of all ranks: the mean loss, the sums of what was right and what
// counted. Where gradients are accumulated (TrainingOptions::micro_steps), a step() is a micro-step, and only
// the last of so many updates the parameters; steps() counts updates.
//
// Arguments that cannot be are refused before anything happens. A step that fails in the middle (memory, the
// device, a custom layer) may have updated parameters in part: from then on every call throws the first cause
// again, until restore() has put a whole state in place. (It is vdnn::Error or, where the host's heap is
// exhausted, std::bad_alloc.)

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
  // Slows the copies of cpu to this many 10^9 bytes a second each way; > 0.
  std::optional<double> link_gbytes_per_second;
  // Debugging aids of the cpu driver (cpu_device.h, device_pool.h); they want
  // RunOptions::page_aligned_blocks where the driver does.
  std::optional<std::uint64_t> delay_seed;
  bool protect_released = false;
  bool check_accesses = false;
  // Is handed the session's device and gives back what the session then uses: a wrapper around it, for
  // example one that counts, or fails on purpose, with the same properties.
  std::function<std::unique_ptr<Device>(std::unique_ptr<Device>)> wrap_device = {};
  // Is shown every value of training steps as it is made (executor.h). Not of a run whose steps are graphs.
  ValueInspector inspect = {};
  // Joins the session's device with those of the other ranks; wanted where TrainingOptions::ranks is above 1.
  std::function<std::unique_ptr<Communicator>(Device&)> connect = {};
};

// The numbers of one parameter, in logical form: dense, channels last (filters KRSC).
struct ParameterValues {
  std::string name;  // "conv1.filter"
  Dims dims;         // as they lie: K, R, S, C
  std::vector<float> values;
  bool trainable = true;
};
// The optimizer's state of a parameter lies like the parameter.
struct TrainingState {
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  std::vector<ParameterValues> parameters;  // in order of creation
  std::vector<ParameterValues> optimizer;   // "conv1.filter.momentum"; likewise
  // Where losses are scaled. Absent in a state that is restored: the scale begins anew.
  std::optional<LossScale> loss_scale;
};
// The state of training `tape` without its numbers: the names and dims, in the order, that a state must have.
TrainingState describe_state(const Tape& tape);

// What came of planning anew.
struct ReplanReport {
  enum class Outcome : std::uint8_t {
    kReplanned,  // the new plan is in force
    kKept,       // no new plan is expected to take less than 99 % of the time of the one in force
    kRefused     // there is no new plan, see `reason`; the one in force goes on
  };
  Outcome outcome = Outcome::kKept;
  std::string reason;  // empty but for kRefused
  // Of the plan before: what its costs said, and what the new costs say.
  double expected_step_seconds = 0;
  double corrected_step_seconds = 0;
  std::uint64_t predicted_peak_bytes_before = 0;
  // Of the plan in force from here on.
  double predicted_step_seconds = 0;
  std::uint64_t predicted_peak_bytes = 0;  // committed; evaluation, where that is planned, included
  bool algorithms_changed = false;         // results are those of other algorithms
};
std::string to_string(ReplanReport::Outcome outcome);

class Session {
 public:
  // Throws OutOfMemory where the run does not fit, InvalidArgument for a simulated device.
  explicit Session(PlannedRun run, const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // As it is in force.
  const PlannedRun& run() const { return run_; }
  // Training steps submitted since the start of training, those before a restored state included; of several
  // micro-steps the last one counts.
  std::uint64_t steps() const { return steps_; }

  // --- steps that wait -------------------------------------------------------------------------------------
  using Bytes = std::span<const std::byte>;
  // Throws InvalidArgument where the inputs do not have the sizes that the network wants, or a target is not
  // one of its classes: the text names sample, target and classes. Nothing has been submitted then, and the
  // session takes the next batch.
  StepMetrics step(std::span<const Bytes> inputs, float learning_rate);
  StepMetrics step(std::initializer_list<Bytes> inputs, float learning_rate) {
    return step(std::span(inputs.begin(), inputs.size()), learning_rate);
  }
  // Forward only, as inference computes it; nothing is learned. As many samples as evaluation_batch() says.
  StepMetrics evaluate(std::span<const Bytes> inputs);
  StepMetrics evaluate(std::initializer_list<Bytes> inputs) {
    return evaluate(std::span(inputs.begin(), inputs.size()));
  }
  // Samples of an evaluation step: the batch of training, or the largest half, quarter... that fits into the
  // memory that training takes. Throws OutOfMemory where none does.
  std::int64_t evaluation_batch();

  // --- steps in flight -------------------------------------------------------------------------------------
  // See Executor::submit and Executor::wait; inputs in page-locked memory. Targets that are no classes are
  // refused as step() refuses them.
  StepTicket submit(std::span<const AddressRange> inputs, float learning_rate);
  StepTicket submit_evaluation(std::span<const AddressRange> inputs);
  StepMetrics wait(const StepTicket& ticket);
  // Waits for everything submitted (results that nobody waited for are lost) and gives back what steps hold
  // between them.
  void finish();

  // --- learning from the run -------------------------------------------------------------------------------
  // Costs as the steps have shown them: those that the plan was made with when this is first called,
  // corrected by `trace` and the traces before. `trace` is what Device::take_trace() gave of steps of the
  // plan in force, all done; more than a few, since medians are taken. Throws InvalidArgument where no launch
  // of them is in it.
  MeasuredCosts learn(std::span<const TraceEvent> trace);
  // Plans the following steps anew, with these costs and within the same budgets, and puts the new plan in
  // the place of the one in force if it is expected to be faster by 1 % or more, or of a policy that was
  // asked for.
  // Parameters, optimizer, running statistics and the count of steps stay where they are. Never are both
  // plans' feature maps resident; what the new one takes is there when this returns, so that no step fails
  // for want of it and no later step allocates, and what it does not take has been given back. Finishes as
  // finish() does, and takes as long as planning. Throws InvalidArgument with steps in flight, for costs of
  // something else and for times that are not finite or not above 0; what finish() throws; and, where even
  // the plan before does not get its memory back, OutOfMemory, DeviceError or std::bad_alloc.
  ReplanReport replan(const MeasuredCosts& costs, const ReplanOptions& options = {});

  // --- values by name --------------------------------------------------------------------------------------
  // What the last step that was waited for gave back: outputs of the network and, of a training step, what
  // TrainingOptions::results names, a gradient for example; dense, channels last. There until the next step
  // but one is submitted, the next of the other kind, or finish(). Throws InvalidArgument where the host is
  // not given it.
  std::vector<float> result(std::string_view name) const;
  // A parameter or running statistic, after all steps submitted. Throws InvalidArgument for an unknown name,
  // and for another number of elements.
  ParameterValues parameter(std::string_view name);
  void set_parameter(std::string_view name, std::span<const float> values);
  std::vector<std::string> parameter_names() const;

  // Running statistics are each rank's own; afterwards those of rank 0 are everybody's. Nothing where a
  // device trains alone. Finishes as finish() does.
  void share_statistics();

  // Throws the cause where a collective of a step has failed, also before anyone waits for that step. Nothing
  // where a device trains alone.
  void require_ranks();

  // Parts from the other ranks, which do it, too, once everything submitted is done: every later call throws
  // DeviceError. A session that goes while an exception passes breaks off what the others do. Nothing where a
  // device trains alone. Throws as finish() does.
  void leave_ranks();

  // Everything that later steps depend on; not between the micro-steps of a step. restore() throws
  // InvalidArgument, and changes nothing, for a state of another network or optimizer; it also mends a
  // session whose step has failed.
  TrainingState state();
  void restore(const TrainingState& state);
  // SHA-256 over all parameters in order of creation, little-endian fp32 in logical order.
  std::string weights_sha256();

  // --- what it stands on, for loops that load ahead --------------------------------------------------------
  Device& device() { return *device_; }
  PinnedPool& pinned() { return pinned_; }
  const StreamSet& streams() const { return streams_; }
  // Of the last step submitted.
  StepMemory memory() const { return executor_ ? executor_->memory() : memory_; }

 private:
  // The input that a loss over classes reads as its targets.
  struct ClassTargets {
    std::size_t input = 0;  // of Tape::inputs()
    // Throws InvalidArgument for a target that is not one of its classes. Made once: steps do not allocate.
    std::function<void(std::span<const std::int32_t>)> require_classes;
  };

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
  std::uint64_t evaluation_peak_bytes_;  // that evaluation may take: the first plan's
  SessionOptions options_;
  std::unique_ptr<Device> device_;
  DevicePool pool_;
  PinnedPool pinned_;
  StreamSet streams_;
  std::unique_ptr<Communicator> communicator_;  // null: alone
  ParameterStore parameters_;
  std::shared_ptr<const Tape> compiled_tape_;  // what the program was compiled from
  std::unique_ptr<OpProgram> program_;
  std::optional<EvaluationPlan> evaluation_;
  std::unique_ptr<OpProgram> evaluation_program_;

  std::optional<Executor> executor_;
  Mode mode_ = Mode::kTraining;              // of the executor
  std::vector<ClassTargets> class_targets_;  // that its losses read
  StepMemory memory_;                        // of the executor before
  std::uint64_t steps_ = 0;
  std::uint32_t micro_step_ = 0;  // the next of its step
  std::uint64_t in_flight_ = 0;
  bool stages_inputs_ = false;           // for steps of its own, as opposed to a caller's loader
  std::optional<std::uint64_t> waited_;  // the executor's last step that was waited for
  std::exception_ptr failure_;           // what ended a step in the middle

  std::optional<MeasuredCosts> expected_;  // before anything was learned
  StepObservations seen_;
};

}  // namespace vdnn
