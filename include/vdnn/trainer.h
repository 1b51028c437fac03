#pragma once
// The training loop over a data set: steps a Session (session.h) with batches that a thread of its own has
// loaded ahead, reads each loss one step late, evaluates after every epoch in the memory that training has
// left. A step is an update: of as many batches as all ranks together have micro-steps.
//
// A step whose loss, or whose gradients' norm where they are clipped, is not finite ends training: Diverged
// names it. Nothing is saved after such a step, on any rank. nonfinite.h finds the value that was the first.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vdnn/dataset.h"
#include "vdnn/executor.h"
#include "vdnn/planned_run.h"
#include "vdnn/process_group.h"
#include "vdnn/session.h"

namespace vdnn {

// When a training plans its steps anew, with what it has seen of those behind it (Session::replan()).
struct ReplanRule {
  // Of the first plan: the last of them, at most twenty and never the first, are measured. At least
  // kFewestReplanSteps.
  std::uint64_t after_steps = 0;
  bool repeatedly = false;  // and again after each so many more
  ReplanOptions options = {};
};
// The first step is not measured, and of the others a median is to say something.
inline constexpr std::uint64_t kFewestReplanSteps = 1 + kFewestMeasuredSteps;

// What came of it. Times are those that passed from step to step, medians.
struct Replanning {
  std::uint64_t step = 0;            // after which, counted as StepReport::step
  std::uint64_t measured_steps = 0;  // that were learned from
  ReplanReport report;
  std::optional<double> step_seconds_before;  // of the steps measured; none where none was timed
  // Of as many steps after it, or of those that there were; none where that was not even two.
  std::optional<double> step_seconds_after;
  std::uint64_t committed_bytes_before = 0;
  std::uint64_t committed_bytes_after = 0;
};

// A request from outside, for example by a signal. The trainer obeys it at the end of the current step.
// kSave: save and go on. kStop: save and end, as if the training had been asked for this many steps.
enum class TrainingRequest : std::uint8_t { kNothing, kSave, kStop };

struct TrainOptions {
  double learning_rate = 0.01;
  std::string learning_rate_schedule = "constant";  // learning_rate.h
  // Exactly one of the two is > 0. Epochs are followed by an evaluation where there is a test split.
  std::uint64_t epochs = 0;
  std::uint64_t steps = 0;
  SessionOptions session = {};  // its seed is that of shuffling, too; `connect` comes from `processes`
  // Of the ranks that train together, each with a trainer and options alike; wanted where
  // TrainingOptions::ranks is above 1. Must outlive the trainer.
  ProcessGroup* processes = nullptr;
  bool trace = false;  // record the last few steps
  std::optional<ReplanRule> replan = {};
  // Called when the steps after it have been timed, or have ended. May be empty.
  std::function<void(const Replanning&)> replanned = {};
  // Learn from the last steps, too: TrainingResult::learned. Wants kFewestReplanSteps to be run.
  bool learn = false;
  // Training goes on from here; its seed counts, not that of `session`, and `epochs` and `steps` are those of
  // the whole training. Data in the order, and the learning rate, of the steps that follow.
  std::optional<TrainingState> start;
  // Called after every `save_every` steps (0: never in between) and after the last one, with nothing in
  // flight and, unless allow_nonfinite, after steps with finite losses alone. On every rank. If one of them
  // throws Diverged, as save_checkpoint() does for a state that is not finite, train() does on all of them.
  std::function<void(Session&)> save;
  std::uint64_t save_every = 0;
  // Asked once a step, on every rank: what one of them is asked for all do. With `trace` a stop comes one
  // step later, which is recorded. May be empty.
  std::function<TrainingRequest()> request = {};
  // Go on where a loss or the norm of the gradients is not finite.
  bool allow_nonfinite = false;
  // After each so many steps ranks compare their parameters and optimizer states, bit for bit: DeviceError,
  // which names the ranks, where they differ. 0: never.
  std::uint64_t compare_ranks_every = 0;
};

// After each step, when its loss has been read.
struct StepReport {
  std::uint64_t step = 0;   // since the start, from 1
  std::uint64_t steps = 0;  // in all
  std::uint64_t steps_per_epoch = 0;
  double loss = 0;
  double images_per_second = 0;                      // of all ranks
  std::optional<double> stall_fraction;              // none where the device has not timed the step
  std::uint64_t memory_bytes = 0;                    // committed
  std::optional<StepMetrics::Scaling> loss_scaling;  // where losses are scaled
};

struct TrainingResult {
  std::uint64_t steps = 0;                           // of this training
  std::uint64_t last_step = 0;                       // since the start, from 1
  double loss = 0;                                   // of the last step
  std::optional<double> test_accuracy;               // after the last epoch
  std::optional<StepMetrics::Scaling> loss_scaling;  // of the last step, where losses are scaled
  std::uint64_t peak_bytes = 0;                      // counted by the driver
  std::vector<std::uint64_t>
      rank_peak_bytes;                     // of every rank, in their order; of this one, where it is alone
  std::uint64_t predicted_peak_bytes = 0;  // of the plans that were in force, the most
  std::optional<MeasuredCosts> learned;    // all that was seen, where anything was to be learned
  double average_bytes = 0;
  std::uint64_t host_bytes = 0;
  // Medians over the steps but the first; of those that followed the last new plan where there are any, as
  // average_bytes is of the last plan.
  double step_seconds = 0;
  std::optional<double> stall_seconds;  // of the steps that the device has timed, if it has any
  double images_per_second = 0;
  // Device commits and page-locks, but for what planning anew takes until the first step of the new plan.
  std::uint64_t system_allocations_after_first_step = 0;
  bool stopped = false;  // on request, before the end; test_accuracy is of the last whole epoch
  std::string weights_sha256;
  std::vector<TraceEvent> trace;
  std::vector<std::string> stream_names;
};

// What joining the ranks takes of the memory of a GPU, in bytes: the most that it has taken on any rank, by
// joining them for a moment. `gpu` is the ordinal of `device`, as in RunTarget; none: a cpu device. All ranks
// call it together, each with its device; of `training` it wants the size of buckets and the type that they
// are reduced in. Throws as a session would: DeviceError where ranks do not come, InvalidArgument for another
// GPU's ordinal.
std::uint64_t measure_communicator(Device& device, std::optional<int> gpu, ProcessGroup& processes,
                                   const TrainingOptions& training = {});

class Trainer {
 public:
  // `data` must outlive the trainer. Throws OutOfMemory where the run does not fit, InvalidArgument
  // for a simulated device.
  Trainer(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // As it is in force.
  const PlannedRun& run() const;

  // Of the whole training, as asked for, and of an epoch.
  std::uint64_t steps() const;
  std::uint64_t steps_per_epoch() const;

  // Trains as the options say, once. `report` may be empty. Throws Diverged, in the same step on all ranks;
  // what Session, the data set, `report` and the options' functions throw.
  TrainingResult train(const std::function<void(const StepReport&)>& report);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
