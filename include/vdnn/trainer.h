#pragma once
// The training loop over a data set. It runs the steps of a Session (session.h) with batches that a separate
// thread loads ahead, and reads each loss one step late. After every epoch it evaluates in the memory of
// training. A step here is an update, with one batch for each micro-step of each rank.
//
// If the loss of a step or the norm of its clipped gradients is not finite, training ends with Diverged,
// which names the step. No rank saves after such a step. nonfinite.h finds the first value that was not
// finite.

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

// When the trainer plans its steps anew with costs measured in past steps (Session::replan()).
struct ReplanRule {
  // Steps under one plan until the next plan is made, at least kFewestReplanSteps. The last of them, at most
  // twenty and never the first, are measured.
  std::uint64_t after_steps = 0;
  bool repeatedly = false;  // also under later plans
  ReplanOptions options = {};
};
// One step that is not measured, and enough others for a median.
inline constexpr std::uint64_t kFewestReplanSteps = 1 + kFewestMeasuredSteps;

// The outcome of one replanning. Times are medians of the time from step to step.
struct Replanning {
  std::uint64_t step = 0;            // the last step of the old plan, counted as StepReport::step
  std::uint64_t measured_steps = 0;  // steps that costs were learned from
  ReplanReport report;
  std::optional<double> step_seconds_before;  // of the measured steps; absent if none was timed
  // The time of the steps until the next replanning or the end; absent if there were fewer than two steps.
  std::optional<double> step_seconds_after;
  std::uint64_t committed_bytes_before = 0;
  std::uint64_t committed_bytes_after = 0;
};

// A request from outside, for example by a signal. The trainer obeys it at the end of the current step.
// kSave: save and continue. kStop: save and end, as if the training had been asked for this many steps.
enum class TrainingRequest : std::uint8_t { kNothing, kSave, kStop };

struct TrainOptions {
  double learning_rate = 0.01;
  std::string learning_rate_schedule = "constant";  // learning_rate.h
  // Exactly one of the two is > 0. If there is a test split, an evaluation follows each epoch.
  std::uint64_t epochs = 0;
  std::uint64_t steps = 0;
  SessionOptions session = {};  // its seed also determines shuffling; `connect` comes from `processes`
  // The ranks that train together, each with a trainer and the same options. Required if
  // TrainingOptions::ranks is above 1. Must outlive the trainer.
  ProcessGroup* processes = nullptr;
  bool trace = false;  // record the last few steps
  std::optional<ReplanRule> replan = {};
  // Called when the steps after a replanning have been timed, or training has ended. May be empty.
  std::function<void(const Replanning&)> replanned = {};
  // Also learn costs from the last steps: TrainingResult::learned. Needs at least kFewestReplanSteps steps.
  bool learn = false;
  // The state to resume from. Its seed replaces that of `session`. `epochs` and `steps` are those of the
  // whole training; data and learning rates continue with the next step.
  std::optional<TrainingState> start;
  // Called on every rank after every `save_every` steps (0: never in between) and after the last step, with
  // nothing in flight. Unless allow_nonfinite is set, all losses up to then were finite. If it throws
  // Diverged on one rank, as save_checkpoint() does for a state that is not finite, train() throws it on all
  // ranks.
  std::function<void(Session&)> save;
  std::uint64_t save_every = 0;
  // Called once per step on every rank; a request to one rank is obeyed by all. With `trace`, training stops
  // one step later, and that step is recorded. May be empty.
  std::function<TrainingRequest()> request = {};
  // Continue after losses or norms of gradients that are not finite.
  bool allow_nonfinite = false;
  // The number of steps after which ranks compare their parameters and optimizer states bit for bit; 0:
  // never. A difference ends training with a DeviceError that names the ranks.
  std::uint64_t compare_ranks_every = 0;
};

// The report of one step, made once its loss has been read.
struct StepReport {
  std::uint64_t step = 0;   // since the start, from 1
  std::uint64_t steps = 0;  // in all
  std::uint64_t steps_per_epoch = 0;
  double loss = 0;
  std::uint64_t images = 0;                          // of this step, of all ranks
  double images_per_second = 0;                      // of all ranks
  std::optional<double> stall_seconds;               // absent if the device has not timed the step
  std::optional<double> stall_fraction;              // stall_seconds as a part of the step's time
  std::uint64_t memory_bytes = 0;                    // committed
  std::uint64_t peak_bytes = 0;                      // the most committed so far
  std::optional<StepMetrics::Scaling> loss_scaling;  // where losses are scaled
};

struct TrainingResult {
  std::uint64_t steps = 0;                           // of this training
  std::uint64_t last_step = 0;                       // since the start, from 1
  double loss = 0;                                   // of the last step
  std::optional<double> test_accuracy;               // after the last epoch
  std::optional<StepMetrics::Scaling> loss_scaling;  // of the last step, where losses are scaled
  std::uint64_t peak_bytes = 0;                      // counted by the driver
  std::vector<std::uint64_t> rank_peak_bytes;        // by rank; one element if a device trains alone
  std::uint64_t predicted_peak_bytes = 0;            // maximum over the plans that were in force
  std::optional<MeasuredCosts> learned;  // costs from all measured steps, if any were to be learned
  double average_bytes = 0;
  std::uint64_t host_bytes = 0;
  // Medians over all steps but the first or, after a replanning, over the steps of the last plan.
  // average_bytes, too, is of the last plan.
  double step_seconds = 0;
  std::optional<double> stall_seconds;  // of the steps that the device has timed, if there are any
  double images_per_second = 0;
  // How often the device has committed or page-locked memory, except from the beginning of a replanning to
  // the first step of its plan.
  std::uint64_t system_allocations_after_first_step = 0;
  bool stopped = false;  // on request, before the end; test_accuracy is of the last whole epoch
  std::string weights_sha256;
  std::vector<TraceEvent> trace;
  std::vector<std::string> stream_names;
};

// Measures the device memory that joining the ranks needs, in bytes: joins them for a moment and returns the
// maximum over the ranks. `gpu` is the ordinal of `device`, as in RunTarget; absent for a cpu device. Uses
// the size of buckets and the type of reductions in `training`. All ranks must call it together, each with
// its device. Throws as a session does: DeviceError if ranks do not arrive, InvalidArgument for another GPU's
// ordinal.
std::uint64_t measure_communicator(Device& device, std::optional<int> gpu, ProcessGroup& processes,
                                   const TrainingOptions& training = {});

class Trainer {
 public:
  // `data` must outlive the trainer. Throws DoesNotFit if the run does not fit, OutOfMemory if evaluation
  // does not, InvalidArgument for a simulated device or impossible options.
  Trainer(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // The run with the plan in force.
  const PlannedRun& run() const;

  // Steps of the whole training, as the options specify it, and of one epoch.
  std::uint64_t steps() const;
  std::uint64_t steps_per_epoch() const;

  // Trains as the options specify; call it once. `report` may be empty. Throws Diverged, in the same step on
  // all ranks, and the exceptions of Session, the data set, `report` and the options' functions.
  TrainingResult train(const std::function<void(const StepReport&)>& report);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
