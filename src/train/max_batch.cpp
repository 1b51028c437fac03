#include "src/train/max_batch.h"

#include <algorithm>
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

class Search {
 public:
  explicit Search(const MaxBatchOptions& options) : options_(options) {
    if (options.overhead && !(*options.overhead >= 0)) {
      throw InvalidArgument("--overhead " + percent(*options.overhead) + ": must be at least 0 %");
    }
  }

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
  BatchTrial attempt(std::int64_t batch) const {
    RunOptions run = options_.run;
    run.model.batch = batch;
    BatchTrial trial{.run = plan_run(run)};
    trial.oracle_step_seconds = oracle_step_seconds(trial.run);
    trial.accepted = trial.run.fits() && (!options_.overhead || trial.overhead() <= *options_.overhead);
    if (options_.tried) {
      options_.tried(trial);
    }
    return trial;
  }

  // A batch that fits and is too slow says nothing of twice as many samples: they may be faster, each. So
  // all that fit have their turn, and the one behind the last that was accepted bounds what follows.
  void double_while_it_fits() {
    std::optional<double> least_overhead;
    bool fits = true;
    for (std::int64_t batch = 1; fits; batch *= 2) {
      BatchTrial trial = attempt(batch);
      fits = trial.run.fits();
      if (batch == 1) {
        require_fit(trial.run);
      }
      if (fits) {
        least_overhead = std::min(least_overhead.value_or(trial.overhead()), trial.overhead());
      }
      if (trial.accepted) {
        largest_ = std::move(trial);
        next_.reset();
      } else if (!next_) {
        next_ = std::move(trial);
      }
    }
    if (!largest_) {
      throw InvalidArgument("--overhead " + percent(*options_.overhead) +
                            ": no batch of 1, 2, 4... that fits keeps to it; the least is " +
                            percent(*least_overhead));
    }
  }

  const MaxBatchOptions& options_;
  std::optional<BatchTrial> largest_;  // accepted
  std::optional<BatchTrial> next_;     // larger, not accepted
};

}  // namespace

MaxBatch find_max_batch(const MaxBatchOptions& options) {
  return Search(options).find();
}

}  // namespace vdnn
