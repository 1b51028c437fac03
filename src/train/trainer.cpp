#include "vdnn/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>

#include "src/base/median.h"
#include "src/ops/loss_scaling.h"
#include "src/train/nonfinite_floats.h"
#include "vdnn/error.h"
#include "vdnn/initialisation.h"
#include "vdnn/learning_rate.h"
#include "vdnn/nccl_communicator.h"
#include "vdnn/option_error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// The number of steps in a recorded trace: enough to show the steady state, and few enough for a viewer.
constexpr std::uint64_t kTracedSteps = 4;
// Costs are learned from at most this many steps. It equals the default of CostMeasurementOptions::steps.
constexpr std::uint64_t kMostMeasuredSteps = 20;

void require_one_duration(const TrainOptions& options) {
  if ((options.epochs > 0) == (options.steps > 0)) {
    throw InvalidOption({{.option = "epochs", .value = std::to_string(options.epochs)},
                         {.option = "steps", .value = std::to_string(options.steps)}},
                        "exactly one of the two must be at least 1");
  }
}

void require_enough(const char* what, std::uint64_t steps) {
  if (steps < kFewestReplanSteps) {
    throw InvalidArgument(std::string(what) + " " + std::to_string(steps) + " steps: at least " +
                          std::to_string(kFewestReplanSteps) +
                          ", since the first is not measured and a median needs several");
  }
}

// The median of the elements of `all` from index `first` on. Returns nothing if there are none.
std::optional<double> median_from(const std::vector<double>& all, std::size_t first) {
  return first < all.size()
             ? std::optional(median({all.begin() + static_cast<std::ptrdiff_t>(first), all.end()}))
             : std::nullopt;
}

}  // namespace

// The processes that train together; null if this process trains alone.
ProcessGroup* group_of(const PlannedRun& run, const TrainOptions& options) {
  const std::uint32_t ranks = run.options.training.ranks;
  if (ranks > 1 && (options.processes == nullptr || options.processes->size() != static_cast<int>(ranks))) {
    throw InvalidArgument("the run is planned for " + std::to_string(ranks) + " ranks, but there are " +
                          std::to_string(options.processes == nullptr ? 1 : options.processes->size()));
  }
  return ranks > 1 ? options.processes : nullptr;
}

// Makes the communicator of this rank: NCCL for a GPU, messages between the processes for `cpu`.
std::unique_ptr<Communicator> connect(std::optional<int> gpu, ProcessGroup& processes, Device& device,
                                      const TrainingOptions& training) {
  if (!gpu) {
    return processes.communicator(device);
  }
  return make_nccl_communicator(
      device, {.rank = processes.rank(),
               .size = processes.size(),
               .ordinal = *gpu,
               .exchange_id = [&](NcclId& id) { processes.broadcast(id, 0, "NCCL's id of this job"); },
               .bucket_bytes = training.bucket_bytes,
               .bucket_type = training.reduce_precision});
}

std::uint64_t measure_communicator(Device& device, std::optional<int> gpu, ProcessGroup& processes,
                                   const TrainingOptions& training) {
  std::uint64_t most = 0;
  const std::uint64_t taken = connect(gpu, processes, device, training)->library_bytes();
  for (const std::string& bytes :
       processes.gather_to_all(std::to_string(taken), "memory for joining the ranks")) {
    most = std::max<std::uint64_t>(most, std::stoull(bytes));
  }
  return most;
}

SessionOptions connected(const PlannedRun& run, SessionOptions options, ProcessGroup* processes) {
  if (processes != nullptr) {
    options.connect = [gpu = run.target.gpu, processes, training = run.options.training](Device& device) {
      return connect(gpu, *processes, device, training);
    };
  }
  return options;
}

class Trainer::Impl {
 public:
  Impl(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& options)
      : data_(data),
        options_((require_one_duration(options), options)),
        processes_(group_of(run, options)),
        session_(run, connected(run, options.session, processes_)),
        order_(order_of(*data.training, true, run.options.training.micro_steps)),
        asked_steps_(options.epochs > 0 ? checked_multiply(options.epochs, order_.batches_per_epoch())
                                        : options.steps),
        total_steps_(asked_steps_),
        rate_(options.learning_rate_schedule, {.base_rate = options.learning_rate,
                                               .total_steps = total_steps_,
                                               .steps_per_epoch = order_.batches_per_epoch()}) {
    if (options_.start) {
      session_.restore(*options_.start);
      if (session_.steps() >= total_steps_) {
        throw InvalidArgument("the state to resume from is at step " + std::to_string(session_.steps()) +
                              "; a run of " + std::to_string(total_steps_) + " steps has nothing left to do");
      }
      first_step_ = session_.steps();
      options_.start.reset();  // frees the state, which is at least as large as the parameters
    }
    if (options_.replan) {
      require_enough("planning anew after", options_.replan->after_steps);
      if (options_.replan->after_steps >= total_steps_ - first_step_) {
        throw InvalidArgument("planning anew after " + std::to_string(options_.replan->after_steps) +
                              " steps: none would follow, there are " +
                              std::to_string(total_steps_ - first_step_) + " to run");
      }
    }
    if (options_.learn) {
      require_enough("learning from a training of", total_steps_ - first_step_);
    }
    if (evaluates()) {
      session_.evaluation_batch();  // an error is thrown now, not after an epoch
    }
    result_.predicted_peak_bytes = session_.run().prediction.peak_bytes;
    begin_window();
  }

  const PlannedRun& run() const { return session_.run(); }
  std::uint64_t steps() const { return asked_steps_; }
  std::uint64_t steps_per_epoch() const { return order_.batches_per_epoch(); }

  TrainingResult train(const std::function<void(const StepReport&)>& report) {
    if (trained_) {
      throw InvalidArgument("a trainer trains once");
    }
    trained_ = true;
    try {
      return train_steps(report);
    } catch (const Diverged&) {
      // No rank leaves before all ranks have finished the steps that were submitted after the diverged step.
      session_.leave_ranks();
      throw;
    }
  }

 private:
  TrainingResult train_steps(const std::function<void(const StepReport&)>& report) {
    const std::uint64_t per_epoch = order_.batches_per_epoch();
    while (session_.steps() < total_steps_) {
      const std::uint64_t first = session_.steps();
      train_phase(first, std::min(per_epoch - first % per_epoch, total_steps_ - first), report);
      if (evaluates() && session_.steps() % per_epoch == 0) {
        result_.test_accuracy = evaluate();
      }
    }
    return finish();
  }

  bool evaluates() const { return options_.epochs > 0 && data_.test != nullptr; }
  Device& device() { return session_.device(); }

  // A step in flight.
  struct Pending {
    StepTicket ticket;
    bool timed = false;
    bool updates = true;  // whether it is the last micro-step of an update
  };

  // Trains from step `first` to step `first + count - 1`. All these steps must belong to one epoch.
  void train_phase(std::uint64_t first, std::uint64_t count,
                   const std::function<void(const StepReport&)>& report) {
    BatchLoader loader(device(), session_.pinned(), *data_.training, order_, first * micro_steps(),
                       count * micro_steps());
    std::optional<Pending> pending;  // the step that is submitted and whose loss is not read yet
    const auto end = [&] { return std::min(first + count, total_steps_); };
    for (std::uint64_t step = first; step < end(); ++step) {
      if (window_ && step == window_->end && step < total_steps_) {
        if (pending) {
          finish_step(*std::exchange(pending, std::nullopt), report);
        }
        replan(step);
      }
      trace(step);
      for (std::uint32_t micro_step = 0; micro_step < micro_steps(); ++micro_step) {
        const StagedBatch batch = loader.next();
        const std::array inputs{batch.images, batch.targets};
        Pending next{.ticket = session_.submit(inputs, rate_.rate(step)),
                     .timed = device().why_not_timed().empty(),
                     .updates = micro_step + 1 == micro_steps()};
        loader.recycle(batch, next.ticket.inputs_copied);
        count_system_allocations();
        if (pending) {
          finish_step(*pending, report);
        }
        pending = std::move(next);
      }
      take_request(step + 1);
      if (is_due(step + 1) && step + 1 < end()) {
        finish_step(*std::exchange(pending, std::nullopt), report);
        do_what_is_due(step + 1);
      }
    }
    finish_step(*pending, report);
    result_.average_bytes = session_.memory().average_bytes;
    session_.finish();
    device().set_tracing(false);
    last_step_end_.reset();  // evaluation may run between this phase's last step and the next phase
    do_what_is_due(end());
  }

  // The strongest of all ranks' requests: to stop is stronger than to save. Each rank sends its request as
  // the length of a text, since most steps have no request and empty texts need only one message. If the step
  // in flight fails, the wait for the texts ends.
  TrainingRequest request_of_all_ranks(std::uint64_t steps) {
    const TrainingRequest mine = options_.request();
    if (processes_ == nullptr) {
      return mine;
    }
    std::size_t most = 0;
    for (const std::string& text : processes_->gather_to_all(std::string(static_cast<std::size_t>(mine), '!'),
                                                             "requests after step " + std::to_string(steps),
                                                             [this] { session_.require_ranks(); })) {
      most = std::max(most, text.size());
    }
    return static_cast<TrainingRequest>(most);
  }

  // Call it when `steps` steps have been submitted. All ranks must call it, since they must end with the same
  // step and save together.
  void take_request(std::uint64_t steps) {
    if (!options_.request || result_.stopped) {
      return;
    }
    const TrainingRequest request = request_of_all_ranks(steps);
    const std::uint64_t last = steps + (options_.trace ? 1 : 0);
    if (request == TrainingRequest::kSave) {
      saves_at_ = steps;
    } else if (request == TrainingRequest::kStop && last < total_steps_) {
      result_.stopped = true;
      total_steps_ = last;
    }
  }

  // --- learning --------------------------------------------------------------------------------------------

  // The measured steps: `begin` to `end` - 1.
  struct Window {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::size_t first_time = 0;  // index of step `begin` in step_seconds_, set once that step is done
  };

  // Where the times of the plan in force begin: indices into step_seconds_ and stall_seconds_.
  struct FirstOfPlan {
    std::size_t time = 0;
    std::size_t stall = 0;
  };

  // Sets the next window, which ends at the next replanning or at the end of training. There may be none.
  void begin_window() {
    window_.reset();
    const std::uint64_t done = session_.steps();
    if (options_.replan && (done == first_step_ || options_.replan->repeatedly) &&
        options_.replan->after_steps < total_steps_ - done) {
      window_ = Window{.begin = 0, .end = done + options_.replan->after_steps};
    } else if (options_.learn) {
      window_ = Window{.begin = 0, .end = total_steps_};
    }
    if (window_) {
      const std::uint64_t most = std::min(kMostMeasuredSteps, window_->end - done);
      window_->begin = std::max(done + 1, window_->end - most);
      if (window_->begin + kFewestReplanSteps - 1 > window_->end) {
        window_.reset();  // too few steps for a median, which is possible after the last replanning
      }
    }
  }

  void trace(std::uint64_t step) {
    if (window_ && step == window_->begin) {
      device().take_trace();
    }
    if (options_.trace && step + kTracedSteps >= total_steps_ && !trace_begin_) {
      trace_begin_ = device().now_seconds();
    }
    device().set_tracing((options_.trace && step + kTracedSteps >= total_steps_) ||
                         (window_ && step >= window_->begin));
  }

  // Learns from the trace of the window that ends here, after the session's work has finished.
  void learn() {
    session_.finish();
    device().set_tracing(false);
    std::vector<TraceEvent> trace = device().take_trace();
    result_.learned = session_.learn(trace);
    // The result's trace has only the last steps, even if the window is longer.
    std::ranges::copy_if(trace, std::back_inserter(result_.trace), [&](const TraceEvent& event) {
      return trace_begin_ && event.begin_seconds >= *trace_begin_;
    });
  }

  void replan(std::uint64_t step) {
    report_replanning();
    const std::uint64_t allocations = system_allocations();
    learn();
    const std::uint64_t committed_before = device().counters().committed_bytes;
    ReplanReport report = session_.replan(*result_.learned, options_.replan->options);
    replanning_ = Replanning{.step = step,
                             .measured_steps = window_->end - window_->begin,
                             .report = std::move(report),
                             .step_seconds_before = median_of_times(window_->first_time),
                             .step_seconds_after = std::nullopt,
                             .committed_bytes_before = committed_before,
                             .committed_bytes_after = device().counters().committed_bytes};
    result_.predicted_peak_bytes =
        std::max(result_.predicted_peak_bytes, session_.run().prediction.peak_bytes);
    allocations_before_replanning_ = allocations;
    last_step_end_.reset();
    first_time_after_ = step_seconds_.size();
    if (replanning_->report.outcome == ReplanReport::Outcome::kReplanned) {
      in_force_ = {.time = step_seconds_.size(), .stall = stall_seconds_.size()};
    }
    begin_window();
  }

  std::optional<double> median_of_times(std::size_t first) const { return median_from(step_seconds_, first); }

  // Reports the last replanning, if it has not been reported yet.
  void report_replanning() {
    if (replanning_ && options_.replanned) {
      replanning_->step_seconds_after = median_of_times(first_time_after_);
      options_.replanned(*replanning_);
    }
    replanning_.reset();
  }

  // Call it after a step has been submitted. Allocations of the very first step do not belong to the steady
  // state. Neither do allocations of a replanning, up to the first step of the new plan.
  void count_system_allocations() {
    const std::uint64_t now = system_allocations();
    if (!system_allocations_) {
      system_allocations_ = now;
    }
    if (const auto before = std::exchange(allocations_before_replanning_, std::nullopt)) {
      *system_allocations_ += now - *before;
    }
  }

  // Whether to save when `steps` steps are done.
  bool save_is_due(std::uint64_t steps) const {
    return options_.save && (steps == total_steps_ || steps == saves_at_ ||
                             (options_.save_every > 0 && steps % options_.save_every == 0));
  }

  bool comparison_is_due(std::uint64_t steps) const {
    return processes_ != nullptr && options_.compare_ranks_every > 0 &&
           steps % options_.compare_ranks_every == 0;
  }

  // Whether do_what_is_due() has something to do. Call do_what_is_due() between two steps, with no step in
  // flight.
  bool is_due(std::uint64_t steps) const { return comparison_is_due(steps) || save_is_due(steps); }
  void do_what_is_due(std::uint64_t steps) {
    if (comparison_is_due(steps)) {
      compare_ranks(steps);
    }
    if (save_is_due(steps)) {
      save();
    }
  }

  // Throws if parameters or optimizer states differ between ranks. Running statistics may differ.
  void compare_ranks(std::uint64_t steps) {
    TrainingState state = session_.state();
    std::vector<std::vector<float>> values;
    for (std::vector<ParameterValues>* const all : {&state.parameters, &state.optimizer}) {
      for (ParameterValues& one : *all) {
        if (one.trainable) {
          values.push_back(std::move(one.values));
        }
      }
    }
    if (state.loss_scale) {
      values.push_back(
          {state.loss_scale->scale, state.loss_scale->good_steps, state.loss_scale->skipped_steps});
    }
    const std::vector<std::string> hashes =
        processes_->gather_to_all(parameters_sha256(values), "comparison of parameters");
    std::string others;
    for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
      if (hashes[rank] != hashes.front()) {
        others += (others.empty() ? "" : ", ") + std::to_string(rank);
      }
    }
    if (!others.empty()) {
      throw DeviceError("after step " + std::to_string(steps) + " parameters or optimizer states of rank " +
                        others + " are not those of rank 0");
    }
    last_step_end_.reset();  // the next step's time does not include this
  }

  void save() {
    session_.share_statistics();
    std::string refused;
    try {
      options_.save(session_);
    } catch (const Diverged& error) {
      refused = error.what();
    }
    // One rank writes the file. If that rank refuses the state, training ends on all ranks, although no step
    // of the other ranks depends on the file.
    for (const std::string& reason : texts_of_all_ranks(refused)) {
      if (!reason.empty()) {
        throw Diverged(reason, session_.steps());
      }
    }
    last_step_end_.reset();  // the next step's time does not include this
  }

  std::vector<std::string> texts_of_all_ranks(const std::string& mine) {
    return processes_ == nullptr ? std::vector{mine} : processes_->gather_to_all(mine, "checkpoint");
  }

  // Throws Diverged if training has diverged. All ranks decide alike, since they have the same losses and
  // gradients. With loss scaling, a step whose gradients overflow is skipped and the next step has a smaller
  // loss scale. Training has diverged if a smaller scale cannot help.
  void require_finite(const StepMetrics& metrics) const {
    const auto norm = static_cast<double>(metrics.gradient_norm.value_or(0));
    if (metrics.loss_scaling && metrics.loss_scaling->skipped &&
        ops::may_be_mended(metrics.loss_scaling->scale, std::isfinite(result_.loss))) {
      return;
    }
    if (options_.allow_nonfinite || (std::isfinite(result_.loss) && std::isfinite(norm))) {
      return;
    }
    const std::uint64_t step = first_step_ + result_.steps;
    std::ostringstream text;
    text << "step " << step << " has diverged: ";
    if (std::isfinite(result_.loss)) {
      text << "the norm of its gradients is " << nonfinite_text(norm) << ", its loss " << result_.loss;
    } else {
      text << "its loss is " << nonfinite_text(result_.loss);
    }
    text << ", at a learning rate of " << rate_.rate(step - 1);
    throw Diverged(text.str(), step);
  }

  void finish_step(const Pending& step, const std::function<void(const StepReport&)>& report) {
    const StepMetrics metrics = session_.wait(step.ticket);
    loss_ += metrics.loss;
    if (!step.updates) {
      return;
    }
    result_.loss = std::exchange(loss_, 0) / micro_steps();
    ++result_.steps;
    result_.loss_scaling = metrics.loss_scaling;
    require_finite(metrics);
    const double now = device().now_seconds();
    const double stalled = device().times(session_.streams()[StreamRole::kCompute]).waiting_seconds;
    std::optional<double> stall_seconds;
    if (step.timed) {
      stall_seconds = last_step_end_ ? stalled - last_stalled_ : 0;
    }
    if (window_ && first_step_ + result_.steps == window_->begin + 1) {
      window_->first_time = step_seconds_.size();
    }
    if (last_step_end_) {
      step_seconds_.push_back(now - *last_step_end_);
      if (stall_seconds) {
        stall_seconds_.push_back(*stall_seconds);
      }
    }
    last_step_end_ = now;
    last_stalled_ = stalled;
    if (replanning_ && step_seconds_.size() - first_time_after_ >= replanning_->measured_steps) {
      report_replanning();
    }
    if (report) {
      report(step_report(stall_seconds));
    }
  }

  std::uint64_t system_allocations() {
    const DeviceCounters counters = device().counters();
    return counters.commits + counters.pinned_allocations;
  }

  StepReport step_report(std::optional<double> stall_seconds) {
    StepReport report{.step = first_step_ + result_.steps,
                      .steps = asked_steps_,
                      .steps_per_epoch = order_.batches_per_epoch(),
                      .loss = result_.loss,
                      .images = static_cast<std::uint64_t>(order_.batch),
                      .stall_seconds = stall_seconds,
                      .memory_bytes = device().counters().committed_bytes,
                      .peak_bytes = device().counters().peak_committed_bytes,
                      .loss_scaling = result_.loss_scaling};
    if (!step_seconds_.empty()) {
      report.images_per_second = static_cast<double>(order_.batch) / step_seconds_.back();
    }
    if (stall_seconds) {
      report.stall_fraction = step_seconds_.empty() ? 0 : *stall_seconds / step_seconds_.back();
    }
    return report;
  }

  double evaluate() {
    session_.share_statistics();
    const std::int64_t batch_size = session_.run().batch();
    const BatchOrder order = order_of(*data_.test, false, 1);
    // Batches have the size of training's batches, so that they use the same page-locked blocks. If memory
    // requires it, each batch is evaluated in smaller pieces.
    BatchLoader loader(device(), session_.pinned(), *data_.test, order, 0, order.batches_per_epoch());
    const auto pieces = static_cast<std::uint64_t>(batch_size / session_.evaluation_batch());
    double correct = 0;
    double counted = 0;
    for (std::uint64_t number = 0; number < order.batches_per_epoch(); ++number) {
      const StagedBatch batch = loader.next();
      for (std::uint64_t piece = 0; piece < pieces; ++piece) {
        const std::array inputs{part_of(batch.images, piece, pieces), part_of(batch.targets, piece, pieces)};
        const LossMetrics metrics = session_.wait(session_.submit_evaluation(inputs)).losses.front();
        correct += static_cast<double>(metrics.correct);
        counted += static_cast<double>(metrics.counted);
      }
      loader.recycle(batch, session_.streams().everything(device()));
    }
    session_.finish();
    return over_all_ranks(correct) / over_all_ranks(counted);
  }

  std::vector<std::uint64_t> of_all_ranks(std::uint64_t mine) {
    if (processes_ == nullptr) {
      return {mine};
    }
    std::vector<std::uint64_t> all;
    for (const std::string& number : processes_->gather_to_all(std::to_string(mine), "counts of the ranks")) {
      all.push_back(std::stoull(number));
    }
    return all;
  }
  double over_all_ranks(double mine) {
    const std::vector<std::uint64_t> all = of_all_ranks(static_cast<std::uint64_t>(mine));  // whole numbers
    return static_cast<double>(std::accumulate(all.begin(), all.end(), std::uint64_t{0}));
  }

  static AddressRange part_of(AddressRange whole, std::uint64_t piece, std::uint64_t pieces) {
    const std::uint64_t bytes = whole.bytes / pieces;
    return {.begin = whole.begin + piece * bytes, .bytes = bytes};
  }

  TrainingResult finish() {
    report_replanning();
    result_.last_step = session_.steps();
    if (options_.learn && window_ && !result_.stopped) {
      learn();
    }
    session_.share_statistics();
    result_.weights_sha256 = session_.weights_sha256();
    const DeviceCounters counters = device().counters();
    result_.peak_bytes = counters.peak_committed_bytes;
    result_.rank_peak_bytes = of_all_ranks(result_.peak_bytes);
    result_.host_bytes = counters.peak_pinned_bytes;
    result_.system_allocations_after_first_step = system_allocations() - *system_allocations_;
    // Summarises the steps of the plan in force or, if none of these steps was timed, all steps.
    const FirstOfPlan first = in_force_.time < step_seconds_.size() ? in_force_ : FirstOfPlan{};
    result_.step_seconds = median_from(step_seconds_, first.time).value_or(0);
    result_.stall_seconds = median_from(stall_seconds_, first.stall);
    result_.images_per_second =
        result_.step_seconds > 0 ? static_cast<double>(order_.batch) / result_.step_seconds : 0;
    std::ranges::move(device().take_trace(), std::back_inserter(result_.trace));
    for (StreamId stream = 0; stream < device().stream_count(); ++stream) {
      result_.stream_names.push_back(device().stream_name(stream));
    }
    return std::exchange(result_, {});
  }

  std::uint32_t micro_steps() const { return session_.run().options.training.micro_steps; }

  // The order of batches. A batch has a part for each rank and micro-step; each rank reads its own parts.
  BatchOrder order_of(const Dataset& data, bool shuffle, std::uint32_t micro_steps) const {
    const TrainingOptions& training = session_.run().options.training;
    const std::uint32_t rank = processes_ == nullptr ? 0 : static_cast<std::uint32_t>(processes_->rank());
    const std::uint32_t parts = training.ranks * micro_steps;
    return {.samples = data.size(),
            .batch = session_.run().batch() * static_cast<std::int64_t>(parts),
            .shuffle = shuffle,
            .seed = options_.start ? options_.start->seed : options_.session.seed,
            .parts = parts,
            .first_part = rank * micro_steps,
            .own_parts = micro_steps};
  }

  const DatasetSplits& data_;
  TrainOptions options_;
  ProcessGroup* processes_;
  Session session_;
  BatchOrder order_;
  const std::uint64_t asked_steps_;
  std::uint64_t total_steps_;  // fewer than asked_steps_ if training is stopped
  LearningRateSchedule rate_;

  TrainingResult result_;
  double loss_ = 0;  // sum over the current step's micro-steps so far
  bool trained_ = false;
  std::uint64_t saves_at_ = 0;                       // the step of an additional save on request; 0: none
  std::uint64_t first_step_ = 0;                     // the step from which this training continues
  std::optional<std::uint64_t> system_allocations_;  // the number after the first step had been submitted
  std::optional<std::uint64_t> allocations_before_replanning_;
  std::optional<Window> window_;
  std::optional<Replanning> replanning_;  // the replanning that is not reported yet
  std::size_t first_time_after_ = 0;      // index in step_seconds_ of the first step of the new plan
  FirstOfPlan in_force_;
  std::optional<double> trace_begin_;  // when the last steps, whose trace is reported, begin
  std::vector<double> step_seconds_;
  std::vector<double> stall_seconds_;
  std::optional<double> last_step_end_;
  double last_stalled_ = 0;
};

Trainer::Trainer(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& options)
    : impl_(std::make_unique<Impl>(run, data, options)) {}

Trainer::~Trainer() = default;

const PlannedRun& Trainer::run() const {
  return impl_->run();
}

std::uint64_t Trainer::steps() const {
  return impl_->steps();
}

std::uint64_t Trainer::steps_per_epoch() const {
  return impl_->steps_per_epoch();
}

TrainingResult Trainer::train(const std::function<void(const StepReport&)>& report) {
  return impl_->train(report);
}

}  // namespace vdnn
