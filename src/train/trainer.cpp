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

// Steps in a recorded trace: enough to see the steady state, few enough for a viewer.
constexpr std::uint64_t kTracedSteps = 4;
// Steps that costs are learned from, as many as measure_costs() times by default.
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

// The median of `all` from index `first` on. Returns nothing if `all` ends earlier.
std::optional<double> median_from(const std::vector<double>& all, std::size_t first) {
  return first < all.size()
             ? std::optional(median({all.begin() + static_cast<std::ptrdiff_t>(first), all.end()}))
             : std::nullopt;
}

}  // namespace

// Returns null if this process trains alone.
ProcessGroup* group_of(const PlannedRun& run, const TrainOptions& options) {
  const std::uint32_t ranks = run.options.training.ranks;
  if (ranks > 1 && (options.processes == nullptr || options.processes->size() != static_cast<int>(ranks))) {
    throw InvalidArgument("the run is planned for " + std::to_string(ranks) + " ranks, but there are " +
                          std::to_string(options.processes == nullptr ? 1 : options.processes->size()));
  }
  return ranks > 1 ? options.processes : nullptr;
}

// Connects GPUs through NCCL, and cpu through messages between the processes.
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
      options_.start.reset();  // frees it, since it is at least as large as the parameters
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
      session_.evaluation_batch();  // throws now, not after an epoch
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
      // No rank leaves until all ranks have finished the steps submitted after the diverged one.
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
    bool updates = true;  // the last micro-step
  };

  // Steps `first` to `first + count - 1`, all of one epoch.
  void train_phase(std::uint64_t first, std::uint64_t count,
                   const std::function<void(const StepReport&)>& report) {
    BatchLoader loader(device(), session_.pinned(), *data_.training, order_, first * micro_steps(),
                       count * micro_steps());
    std::optional<Pending> pending;  // submitted, its loss not read yet
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
    last_step_end_.reset();  // evaluation comes between this phase's last step and the next one
    do_what_is_due(end());
  }

  // The strongest request to any rank. It is sent as the length of a text: most steps have no request, and
  // empty texts need one message. The failure of the step in flight ends the wait.
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

  // Called when `steps` steps have been submitted. Ranks must end with the same step and save together.
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

  // Measured steps: `begin` to `end` - 1.
  struct Window {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::size_t first_time = 0;  // index of the first one in step_seconds_, set once that step is done
  };

  // Indices of the first step of the plan in force in step_seconds_ and stall_seconds_.
  struct FirstOfPlan {
    std::size_t time = 0;
    std::size_t stall = 0;
  };

  // The next window, if any, ends at the next replanning or at the end of training.
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
        window_.reset();  // after the last replanning: too few steps for a median
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

  // Learns from the trace of the window that ends here. Nothing is in flight.
  void learn() {
    session_.finish();
    device().set_tracing(false);
    std::vector<TraceEvent> trace = device().take_trace();
    result_.learned = session_.learn(trace);
    // Only the last steps are reported, whatever the length of the window.
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

  // Reports the last replanning, unless it has been reported.
  void report_replanning() {
    if (replanning_ && options_.replanned) {
      replanning_->step_seconds_after = median_of_times(first_time_after_);
      options_.replanned(*replanning_);
    }
    replanning_.reset();
  }

  // Called after a step has been submitted. Allocations of a replanning, up to the first step of the new
  // plan, do not belong to the steady state, like those of the very first step.
  void count_system_allocations() {
    const std::uint64_t now = system_allocations();
    if (!system_allocations_) {
      system_allocations_ = now;
    }
    if (const auto before = std::exchange(allocations_before_replanning_, std::nullopt)) {
      *system_allocations_ += now - *before;
    }
  }

  // Called when `steps` steps are done.
  bool save_is_due(std::uint64_t steps) const {
    return options_.save && (steps == total_steps_ || steps == saves_at_ ||
                             (options_.save_every > 0 && steps % options_.save_every == 0));
  }

  bool comparison_is_due(std::uint64_t steps) const {
    return processes_ != nullptr && options_.compare_ranks_every > 0 &&
           steps % options_.compare_ranks_every == 0;
  }

  // Between two steps, with nothing in flight.
  bool is_due(std::uint64_t steps) const { return comparison_is_due(steps) || save_is_due(steps); }
  void do_what_is_due(std::uint64_t steps) {
    if (comparison_is_due(steps)) {
      compare_ranks(steps);
    }
    if (save_is_due(steps)) {
      save();
    }
  }

  // Running statistics differ between ranks.
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
    last_step_end_.reset();  // no part of the next step
  }

  void save() {
    session_.share_statistics();
    std::string refused;
    try {
      options_.save(session_);
    } catch (const Diverged& error) {
      refused = error.what();
    }
    // One rank writes, and no step of the others waits for it; if it fails, training ends on all ranks.
    for (const std::string& reason : texts_of_all_ranks(refused)) {
      if (!reason.empty()) {
        throw Diverged(reason, session_.steps());
      }
    }
    last_step_end_.reset();  // no part of the next step
  }

  std::vector<std::string> texts_of_all_ranks(const std::string& mine) {
    return processes_ == nullptr ? std::vector{mine} : processes_->gather_to_all(mine, "checkpoint");
  }

  // All ranks decide alike, since losses and gradients are the same. A step whose gradients overflow is
  // skipped, and the next has a smaller loss scale. Training has diverged if that does not help.
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
    // Batches are staged like those of training, to use the same page-locked blocks, and evaluated in smaller
    // pieces if memory requires it.
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
    // Uses the plan in force, like the rest of the summary, unless none of its steps was timed.
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

  // A batch covers all ranks and micro-steps; each rank reads its own parts.
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
  std::uint64_t total_steps_;  // fewer if training is stopped
  LearningRateSchedule rate_;

  TrainingResult result_;
  double loss_ = 0;  // of the current step's micro-steps so far
  bool trained_ = false;
  std::uint64_t saves_at_ = 0;                       // an extra save on request; 0: none
  std::uint64_t first_step_ = 0;                     // the step from which this training continues
  std::optional<std::uint64_t> system_allocations_;  // when the first step had been submitted
  std::optional<std::uint64_t> allocations_before_replanning_;
  std::optional<Window> window_;
  std::optional<Replanning> replanning_;  // not reported yet
  std::size_t first_time_after_ = 0;      // in step_seconds_
  FirstOfPlan in_force_;
  std::optional<double> trace_begin_;  // start of the last few steps, which are reported
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
