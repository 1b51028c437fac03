#include "vdnn/trainer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/median.h"
#include "vdnn/error.h"
#include "vdnn/learning_rate.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Steps whose bars and counters `--trace` shows: enough to see the steady state, few enough to open.
constexpr std::uint64_t kTracedSteps = 4;

void require_one_duration(const TrainOptions& options) {
  if ((options.epochs > 0) == (options.steps > 0)) {
    throw InvalidArgument("give either --epochs or --steps, at least 1");
  }
}

}  // namespace

class Trainer::Impl {
 public:
  Impl(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& options)
      : data_(data),
        options_((require_one_duration(options), options)),
        session_(run, options.session),
        order_{.samples = data.training->size(),
               .batch = run.network.batch(),
               .shuffle = true,
               .seed = options.start ? options.start->seed : options.session.seed},
        total_steps_(options.epochs > 0 ? checked_multiply(options.epochs, order_.batches_per_epoch())
                                        : options.steps),
        rate_(options.learning_rate_schedule, {.base_rate = options.learning_rate,
                                               .total_steps = total_steps_,
                                               .steps_per_epoch = order_.batches_per_epoch()}) {
    if (options_.start) {
      session_.restore(*options_.start);
      if (session_.steps() >= total_steps_) {
        throw InvalidArgument("the state to go on from is at step " + std::to_string(session_.steps()) +
                              "; a run of " + std::to_string(total_steps_) + " steps has nothing left to do");
      }
      first_step_ = session_.steps();
      options_.start.reset();  // as large as the parameters
    }
    if (evaluates()) {
      session_.evaluation_batch();  // throws now, not after an epoch
    }
  }

  TrainingResult train(const std::function<void(const StepReport&)>& report) {
    if (trained_) {
      throw InvalidArgument("a trainer trains once");
    }
    trained_ = true;
    const std::uint64_t per_epoch = order_.batches_per_epoch();
    while (session_.steps() < total_steps_) {
      const std::uint64_t first = session_.steps();
      train_phase(first, std::min(per_epoch - first % per_epoch, total_steps_ - first), report);
      if (evaluates()) {
        result_.test_accuracy = evaluate();
      }
    }
    return finish();
  }

 private:
  bool evaluates() const { return options_.epochs > 0 && data_.test != nullptr; }
  Device& device() { return session_.device(); }

  // A step in flight.
  struct Pending {
    StepTicket ticket;
    bool timed = false;
  };

  // Steps `first` to `first + count - 1`, all of one epoch.
  void train_phase(std::uint64_t first, std::uint64_t count,
                   const std::function<void(const StepReport&)>& report) {
    BatchLoader loader(device(), session_.pinned(), *data_.training, order_, first, count);
    std::optional<Pending> pending;  // submitted, its loss not read yet
    for (std::uint64_t step = first; step < first + count; ++step) {
      device().set_tracing(options_.trace && step + kTracedSteps >= total_steps_);
      const StagedBatch batch = loader.next();
      const std::array inputs{batch.images, batch.targets};
      Pending next{.ticket = session_.submit(inputs, rate_.rate(step)),
                   .timed = device().why_not_timed().empty()};
      loader.recycle(batch, next.ticket.inputs_copied);
      if (!system_allocations_) {
        system_allocations_ = system_allocations();
      }
      if (pending) {
        finish_step(*pending, report);
      }
      pending = std::move(next);
      if (save_is_due(step + 1) && step + 1 < first + count) {
        finish_step(*std::exchange(pending, std::nullopt), report);
        save();
      }
    }
    finish_step(*pending, report);
    result_.average_bytes = session_.memory().average_bytes;
    session_.finish();
    device().set_tracing(false);
    last_step_end_.reset();  // evaluation comes between this phase's last step and the next one
    if (save_is_due(first + count)) {
      save();
    }
  }

  // When so many steps are done.
  bool save_is_due(std::uint64_t steps) const {
    return options_.save &&
           (steps == total_steps_ || (options_.save_every > 0 && steps % options_.save_every == 0));
  }

  void save() {
    options_.save(session_);
    last_step_end_.reset();  // no part of the next step
  }

  void finish_step(const Pending& step, const std::function<void(const StepReport&)>& report) {
    result_.loss = session_.wait(step.ticket).loss;
    ++result_.steps;
    const double now = device().now_seconds();
    const double stalled = device().times(session_.streams()[StreamRole::kCompute]).waiting_seconds;
    std::optional<double> stall_seconds;
    if (step.timed) {
      stall_seconds = last_step_end_ ? stalled - last_stalled_ : 0;
    }
    if (last_step_end_) {
      step_seconds_.push_back(now - *last_step_end_);
      if (stall_seconds) {
        stall_seconds_.push_back(*stall_seconds);
      }
    }
    last_step_end_ = now;
    last_stalled_ = stalled;
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
                      .steps = total_steps_,
                      .steps_per_epoch = order_.batches_per_epoch(),
                      .loss = result_.loss,
                      .memory_bytes = device().counters().committed_bytes};
    if (!step_seconds_.empty()) {
      report.images_per_second = static_cast<double>(order_.batch) / step_seconds_.back();
    }
    if (stall_seconds) {
      report.stall_fraction = step_seconds_.empty() ? 0 : *stall_seconds / step_seconds_.back();
    }
    return report;
  }

  double evaluate() {
    const std::int64_t batch_size = session_.run().network.batch();
    const BatchOrder order{.samples = data_.test->size(), .batch = batch_size};
    // Staged like batches of training, so that the same page-locked blocks serve; evaluated in smaller pieces
    // where that is what the memory allows.
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
    return correct / counted;
  }

  static AddressRange part_of(AddressRange whole, std::uint64_t piece, std::uint64_t pieces) {
    const std::uint64_t bytes = whole.bytes / pieces;
    return {.begin = whole.begin + piece * bytes, .bytes = bytes};
  }

  TrainingResult finish() {
    result_.weights_sha256 = session_.weights_sha256();
    const DeviceCounters counters = device().counters();
    result_.peak_bytes = counters.peak_committed_bytes;
    result_.host_bytes = counters.peak_pinned_bytes;
    result_.system_allocations_after_first_step = system_allocations() - *system_allocations_;
    result_.step_seconds = median(step_seconds_);
    if (!stall_seconds_.empty()) {
      result_.stall_seconds = median(stall_seconds_);
    }
    result_.images_per_second =
        result_.step_seconds > 0 ? static_cast<double>(order_.batch) / result_.step_seconds : 0;
    result_.trace = device().take_trace();
    for (StreamId stream = 0; stream < device().stream_count(); ++stream) {
      result_.stream_names.push_back(device().stream_name(stream));
    }
    return std::exchange(result_, {});
  }

  const DatasetSplits& data_;
  TrainOptions options_;
  Session session_;
  BatchOrder order_;
  std::uint64_t total_steps_;
  LearningRateSchedule rate_;

  TrainingResult result_;
  bool trained_ = false;
  std::uint64_t first_step_ = 0;                     // where this training goes on from
  std::optional<std::uint64_t> system_allocations_;  // when the first step had been submitted
  std::vector<double> step_seconds_;
  std::vector<double> stall_seconds_;
  std::optional<double> last_step_end_;
  double last_stalled_ = 0;
};

Trainer::Trainer(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& options)
    : impl_(std::make_unique<Impl>(run, data, options)) {}

Trainer::~Trainer() = default;

TrainingResult Trainer::train(const std::function<void(const StepReport&)>& report) {
  return impl_->train(report);
}

}  // namespace vdnn
