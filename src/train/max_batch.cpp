#include "src/train/max_batch.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

namespace {

std::string percent(double fraction) {
  std::ostringstream text;
  text << 100 * fraction << " %";
  return text.str();
}

// Plans batches, tells of them, and accepts them or not.
class Trials {
 public:
  explicit Trials(const MaxBatchOptions& options) : options_(options) {
    if (options.overhead && !(*options.overhead >= 0)) {
      throw InvalidArgument("--overhead " + percent(*options.overhead) + ": must be at least 0 %");
    }
  }

  BatchTrial attempt(const RunOptions& run) {
    BatchTrial trial{.run = plan_run(run)};
    trial.oracle_step_seconds = oracle_step_seconds(trial.run);
    trial.accepted = trial.run.fits() && (!options_.overhead || trial.overhead() <= *options_.overhead);
    if (trial.run.fits()) {
      least_overhead_ = std::min(least_overhead_.value_or(trial.overhead()), trial.overhead());
    }
    if (options_.tried) {
      options_.tried(trial);
    }
    return trial;
  }

  bool any_fitted() const { return least_overhead_.has_value(); }
  // Of those that fitted, none was accepted. `which` for people.
  [[noreturn]] void refuse_overhead(const std::string& which) const {
    throw InvalidArgument("--overhead " + percent(options_.overhead.value()) + ": no batch of " + which +
                          " that fits keeps to it; the least is " + percent(least_overhead_.value()));
  }

 private:
  const MaxBatchOptions& options_;
  std::optional<double> least_overhead_;
};

class Search {
 public:
  explicit Search(const MaxBatchOptions& options) : options_(options), trials_(options) {}

  MaxBatch find() {
    double_while_it_fits();
    while (next_->run.network.batch() - largest_->run.network.batch() > 1) {
      const std::int64_t largest = largest_->run.network.batch();
      BatchTrial trial = attempt(largest + (next_->run.network.batch() - largest) / 2);
      (trial.accepted ? largest_ : next_) = std::move(trial);
    }
    return {.largest = *std::move(largest_), .next = *std::move(next_)};
  }

 private:
  BatchTrial attempt(std::int64_t batch) {
    RunOptions run = options_.run;
    run.model.batch = batch;
    return trials_.attempt(run);
  }

  // A batch that fits and is too slow says nothing of twice as many samples: they may be faster, each. So
  // all that fit have their turn, and the one behind the last that was accepted bounds what follows.
  void double_while_it_fits() {
    bool fits = true;
    for (std::int64_t batch = 1; fits; batch *= 2) {
      BatchTrial trial = attempt(batch);
      fits = trial.run.fits();
      if (batch == 1) {
        require_fit(trial.run);
      }
      if (trial.accepted) {
        largest_ = std::move(trial);
        next_.reset();
      } else if (!next_) {
        next_ = std::move(trial);
      }
    }
    if (!largest_) {
      trials_.refuse_overhead("1, 2, 4...");
    }
  }

  const MaxBatchOptions& options_;
  Trials trials_;
  std::optional<BatchTrial> largest_;  // accepted
  std::optional<BatchTrial> next_;     // larger, not accepted
};

// What each device has of a global batch.
std::uint64_t share_of_device(const RunOptions& run, std::uint64_t global_batch) {
  const std::uint32_t ranks = run.training.ranks;
  if (global_batch == 0 || global_batch % ranks != 0) {
    throw InvalidArgument("--global-batch " + std::to_string(global_batch) + ": " + std::to_string(ranks) +
                          " devices cannot share it evenly");
  }
  const std::uint64_t share = global_batch / ranks;
  if (share > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidArgument("--global-batch " + std::to_string(global_batch) + ": " + std::to_string(share) +
                          " samples a device are more than an update can have");
  }
  return share;
}

}  // namespace

MaxBatch find_max_batch(const MaxBatchOptions& options) {
  return Search(options).find();
}

BatchTrial find_micro_batch(const MaxBatchOptions& options, std::uint64_t global_batch) {
  const std::uint64_t share = share_of_device(options.run, global_batch);
  Trials trials(options);
  for (std::uint64_t micro_steps = 1;; ++micro_steps) {
    if (share % micro_steps != 0) {
      continue;
    }
    RunOptions run = options.run;
    run.model.batch = static_cast<std::int64_t>(share / micro_steps);
    run.training.micro_steps = static_cast<std::uint32_t>(micro_steps);
    BatchTrial trial = trials.attempt(run);
    if (trial.accepted) {
      return trial;
    }
    if (micro_steps == share) {
      if (!trials.any_fitted()) {
        require_fit(trial.run);
      }
      trials.refuse_overhead("those that divide " + std::to_string(share));
    }
  }
}

}  // namespace vdnn
