#pragma once
// Finds the largest batch that fits, by planning: a run fits if and only if plan_run() predicts so.
//
// Usually, but not always, more samples need more memory: algorithms and their workspaces change with the
// batch, and memory is committed in granules. The search finds an accepted batch such that the next larger
// batch that it tried is not accepted. A still larger batch might be accepted again.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "vdnn/planned_run.h"

namespace vdnn {

// The plan of one batch.
struct BatchTrial {
  PlannedRun run;
  double oracle_step_seconds = 0;  // with the fastest algorithms in unlimited memory
  bool accepted = false;           // whether the run fits and its overhead is permitted

  // How much longer a step is than the oracle's: 0.1 for 10 %.
  double overhead() const { return run.prediction.step_seconds / oracle_step_seconds - 1; }
};

inline constexpr double kDefaultOverhead = 0.1;

struct MaxBatchOptions {
  RunOptions run;  // `model.batch` is ignored; so is `training.micro_steps` for a global batch
  // How much longer a step may be than the oracle's with the same batch: 0.1 for 10 %; at least 0. If absent,
  // it is kDefaultOverhead, or unlimited for a global batch.
  std::optional<double> overhead;
  // Called after each plan in the budget, with the plan's batch. May be empty.
  std::function<void(const BatchTrial&)> tried;
  // Called before each plan, with the batch to be planned. May be empty.
  std::function<void(std::int64_t batch)> looking_at;
};

// The reason why the next larger batch is not accepted.
enum class BatchLimit : std::uint8_t {
  kDeviceMemory,
  kHostMemory,  // page-locked
  kOverhead,
  kRefused  // an op cannot compute the batch on this device; some libraries count elements in 32 bits
};

const char* to_string(BatchLimit limit);

struct LargestBatch {
  BatchTrial trial;       // the accepted batch; its figures equal those of plan_run(trial.run.options)
  std::int64_t next = 0;  // the next larger batch that was tried, which is not accepted
  BatchLimit limit = BatchLimit::kDeviceMemory;
  std::string refusal;  // the message if `limit` is kRefused
};

struct MaxBatch {
  std::optional<LargestBatch> without_offloading;  // under `none`; absent if not even one sample fits
  // The largest batch whose overhead is permitted; absent if no planned batch has such an overhead. Plans
  // take long, so the search may stop before the exact batch. It stops if the next larger batch that it tried
  // is at most 3 % larger, or if the step takes at least 99.25 % of the permitted time.
  std::optional<LargestBatch> within_overhead;
  LargestBatch most;          // the largest batch that fits, with any overhead
  double least_overhead = 0;  // of the planned batches that fit
};

// Searches under the run's policy. Without a policy, plans each batch under `none` if that fits, otherwise
// under `optimal`. Throws the exceptions of plan_run() for one sample, DoesNotFit if not even one sample
// fits, and InvalidOption for an overhead below 0.
MaxBatch find_max_batch(const MaxBatchOptions& options);

// The largest number of plans that find_smaller_batch() makes.
inline constexpr int kMostLooks = 6;
// The largest batch, to within 3 %, that fits into the budgets of `refused`, a run that does not fit.
// `options` are the options of that run and must have a policy. All plans are made in unlimited memory, so
// in rare cases the batch does not fit the budget. Returns nothing if not even one sample fits. Throws the
// exceptions of plan_run() for one sample.
std::optional<std::int64_t> find_smaller_batch(const PlannedRun& refused, const RunOptions& options);

// Finds the smallest device budget, to within 3 %, in which some batch reaches `images_per_second` (> 0) over
// all devices. The returned run fits and has this budget, which is at most the budget of `options`. Throws
// the exceptions of find_max_batch(), and InvalidOption if no batch is fast enough.
BatchTrial find_least_memory(const MaxBatchOptions& options, double images_per_second);

// Finds the largest accepted batch per device with which the devices of all machines compute the global batch
// in a whole number of micro-steps. The options of the returned run have that number. Tries the divisors of a
// device's share from the largest down, with one plan for each. Throws the exceptions of plan_run(), and
// DoesNotFit if not even one sample at a time fits. Throws InvalidOption if the devices cannot share the
// global batch evenly or every batch exceeds the permitted overhead.
BatchTrial find_micro_batch(const MaxBatchOptions& options, std::uint64_t global_batch);

}  // namespace vdnn
