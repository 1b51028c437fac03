#include "vdnn/trainer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

namespace {

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Steps whose bars and counters `--trace` shows: enough to see the steady state, few enough to open.
constexpr std::uint64_t kTracedSteps = 4;

std::unique_ptr<Device> make_device(const PlannedRun& run, const TrainOptions& options) {
  if (run.target.simulated) {
    throw InvalidArgument("train runs on real devices; for " + run.target.name + " use plan or replay");
  }
  require_fit(run);
  return make_cpu_device({.budget_bytes = run.target.budget_bytes,
                          .host_budget_bytes = run.target.host_budget_bytes,
                          .link_gbytes_per_second = options.link_gbytes_per_second,
                          .delay_seed = options.delay_seed,
                          .page_aligned_blocks = run.options.page_aligned_blocks,
                          .check_accesses = options.check_accesses});
}

void require_one_duration(const TrainOptions& options) {
  if ((options.epochs > 0) == (options.steps > 0)) {
    throw InvalidArgument("give either --epochs or --steps, at least 1");
  }
}

}  // namespace

class Trainer::Impl {
 public:
  Impl(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& options)
      : run_(run),
        data_(data),
        options_((require_one_duration(options), options)),
        device_(make_device(run, options)),
        pool_(*device_, {.protect_released = options.protect_released}),
        pinned_(*device_),
        streams_(*device_),
        parameters_(pool_, streams_[StreamRole::kCompute], *run.tape),
        program_(run.library->compile(*run.tape, run.schedule.algorithms)),
        order_{.samples = data.training->size(),
               .batch = run.network.batch(),
               .shuffle = true,
               .seed = options.seed} {
    if (options_.epochs > 0 && data_.test != nullptr) {
      evaluation_ = plan_evaluation(run);
      evaluation_program_ = run.library->compile(*evaluation_->tape, evaluation_->schedule.algorithms);
    }
    parameters_.upload(pinned_, streams_[StreamRole::kCompute], program_.get(),
                       initial_parameters(*run.tape, options.seed));
  }

  TrainingResult train(const std::function<void(const StepReport&)>& report) {
    if (total_steps_ > 0) {
      throw InvalidArgument("a trainer trains once");
    }
    const std::uint64_t per_epoch = order_.batches_per_epoch();
    total_steps_ = options_.epochs > 0 ? options_.epochs * per_epoch : options_.steps;
    std::uint64_t done = 0;
    while (done < total_steps_) {
      const std::uint64_t count = std::min(per_epoch - done % per_epoch, total_steps_ - done);
      train_phase(done, count, report);
      done += count;
      if (evaluation_) {
        result_.test_accuracy = evaluate();
      }
    }
    return finish();
  }

 private:
  ExecutorParts parts(const Tape& tape, const Schedule& schedule, OpProgram& program) {
    return {.device = device_.get(),
            .pool = &pool_,
            .pinned = &pinned_,
            .streams = &streams_,
            .parameters = &parameters_,
            .tape = &tape,
            .schedule = &schedule,
            .program = &program};
  }

  // What is known of a step before its loss has been read.
  struct Pending {
    StepTicket ticket;
    std::uint32_t samples = 0;
  };

  // Steps `first` to `first + count - 1`, all of one epoch.
  void train_phase(std::uint64_t first, std::uint64_t count,
                   const std::function<void(const StepReport&)>& report) {
    Executor executor(parts(*run_.tape, run_.schedule, *program_));
    BatchLoader loader(*device_, pinned_, *data_.training, order_, first, count);
    std::optional<Pending> pending;
    for (std::uint64_t step = first; step < first + count; ++step) {
      device_->set_tracing(options_.trace && step + kTracedSteps >= total_steps_);
      const StagedBatch batch = loader.next();
      const std::array inputs{batch.images, batch.targets};
      Pending next{.ticket = executor.submit(inputs, {.learning_rate = options_.learning_rate}),
                   .samples = batch.samples};
      loader.recycle(batch, next.ticket.inputs_copied);
      if (!system_allocations_) {
        system_allocations_ = system_allocations();
      }
      if (pending) {
        finish_step(executor, *pending, report);
      }
      pending = std::move(next);
    }
    finish_step(executor, *pending, report);
    device_->synchronize(pending->ticket.done);
    device_->set_tracing(false);
    result_.average_bytes = executor.memory().average_bytes;
    last_step_end_.reset();  // evaluation comes between this phase's last step and the next one
  }

  void finish_step(Executor& executor, const Pending& pending,
                   const std::function<void(const StepReport&)>& report) {
    result_.loss = executor.wait(pending.ticket).loss;
    ++result_.steps;
    const double now = device_->now_seconds();
    const double stalled = device_->times(streams_[StreamRole::kCompute]).waiting_seconds;
    if (last_step_end_) {
      step_seconds_.push_back(now - *last_step_end_);
      stall_seconds_.push_back(stalled - last_stalled_);
    }
    last_step_end_ = now;
    last_stalled_ = stalled;
    if (report) {
      report(step_report(pending));
    }
  }

  std::uint64_t system_allocations() const {
    const DeviceCounters counters = device_->counters();
    return counters.commits + counters.pinned_allocations;
  }

  StepReport step_report(const Pending& pending) const {
    StepReport report{.step = result_.steps,
                      .steps = total_steps_,
                      .steps_per_epoch = order_.batches_per_epoch(),
                      .loss = result_.loss,
                      .memory_bytes = device_->counters().committed_bytes};
    if (!step_seconds_.empty()) {
      report.images_per_second = pending.samples / step_seconds_.back();
      report.stall_fraction = stall_seconds_.back() / step_seconds_.back();
    }
    return report;
  }

  double evaluate() {
    Executor executor(parts(*evaluation_->tape, evaluation_->schedule, *evaluation_program_));
    const BatchOrder order{.samples = data_.test->size(), .batch = run_.network.batch()};
    // Staged like batches of training, so that the same page-locked blocks serve; evaluated in smaller pieces
    // where that is what the memory allows.
    BatchLoader loader(*device_, pinned_, *data_.test, order, 0, order.batches_per_epoch());
    const auto pieces = static_cast<std::uint64_t>(run_.network.batch() / evaluation_->batch);
    double correct = 0;
    double counted = 0;
    for (std::uint64_t number = 0; number < order.batches_per_epoch(); ++number) {
      const StagedBatch batch = loader.next();
      for (std::uint64_t piece = 0; piece < pieces; ++piece) {
        const std::array inputs{part_of(batch.images, piece, pieces), part_of(batch.targets, piece, pieces)};
        const LossMetrics metrics = executor.wait(executor.submit(inputs, {})).losses.front();
        correct += static_cast<double>(metrics.correct);
        counted += static_cast<double>(metrics.counted);
      }
      loader.recycle(batch, streams_.everything(*device_));
    }
    return correct / counted;
  }

  static AddressRange part_of(AddressRange whole, std::uint64_t piece, std::uint64_t pieces) {
    const std::uint64_t bytes = whole.bytes / pieces;
    return {.begin = whole.begin + piece * bytes, .bytes = bytes};
  }

  TrainingResult finish() {
    result_.weights_sha256 =
        parameters_sha256(parameters_.download(pinned_, streams_[StreamRole::kCompute], *program_));
    const DeviceCounters counters = device_->counters();
    result_.peak_bytes = counters.peak_committed_bytes;
    result_.host_bytes = counters.peak_pinned_bytes;
    result_.system_allocations_after_first_step = system_allocations() - *system_allocations_;
    result_.step_seconds = median(step_seconds_);
    result_.stall_seconds = median(stall_seconds_);
    result_.images_per_second =
        result_.step_seconds > 0 ? static_cast<double>(run_.network.batch()) / result_.step_seconds : 0;
    result_.trace = device_->take_trace();
    for (StreamId stream = 0; stream < device_->stream_count(); ++stream) {
      result_.stream_names.push_back(device_->stream_name(stream));
    }
    return std::exchange(result_, {});
  }

  const PlannedRun& run_;
  const DatasetSplits& data_;
  TrainOptions options_;
  std::unique_ptr<Device> device_;
  DevicePool pool_;
  PinnedPool pinned_;
  StreamSet streams_;
  ParameterStore parameters_;
  std::unique_ptr<OpProgram> program_;
  BatchOrder order_;
  std::optional<EvaluationPlan> evaluation_;
  std::unique_ptr<OpProgram> evaluation_program_;

  TrainingResult result_;
  std::uint64_t total_steps_ = 0;
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
