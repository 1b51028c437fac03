#pragma once
// The largest batch that fits, found by planning: a run fits exactly if plan_run() predicts so.
//
// Usually, but not always, more samples need more memory: algorithms and their workspaces change with the
// batch, and memory is committed in granules. The search finds a batch that is accepted while the next larger
// one that it tried is not. A still larger batch may be accepted again.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "vdnn/planned_run.h"

namespace vdnn {

// The plan of one batch.
struct BatchTrial {
  PlannedRun run;
  double oracle_step_seconds = 0;  // fastest algorithms, unlimited memory
  bool accepted = false;           // fits and keeps to the permitted overhead

  // How much longer a step is than the oracle's: 0.1 for 10 %.
  double overhead() const { return run.prediction.step_seconds / oracle_step_seconds - 1; }
};

inline constexpr double kDefaultOverhead = 0.1;

struct MaxBatchOptions {
  RunOptions run;  // its batch is ignored; if a global batch is given, so are its micro-steps
  // The permitted overhead of a step over the oracle's with the same batch, 0.1 for 10 %; >= 0. Absent:
  // kDefaultOverhead, or unlimited for a global batch.
  std::optional<double> overhead;
  // Called with each batch that was planned in the budget. May be empty.
  std::function<void(const BatchTrial&)> tried;
  // Called with each batch before it is planned. May be empty.
  std::function<void(std::int64_t batch)> looking_at;
};

// The reason why the next larger batch is not accepted.
enum class BatchLimit : std::uint8_t {
  kDeviceMemory,
  kHostMemory,  // page-locked
  kOverhead,
  kRefused  // an op cannot compute it on this device; some libraries count elements in 32 bits
};

const char* to_string(BatchLimit limit);

struct LargestBatch {
  BatchTrial trial;       // accepted; all figures are those of plan_run() with trial.run.options
  std::int64_t next = 0;  // not accepted
  BatchLimit limit = BatchLimit::kDeviceMemory;
  std::string refusal;  // the reason of kRefused
};

struct MaxBatch {
  std::optional<LargestBatch> without_offloading;  // under `none`; absent if not even one sample fits
  // Absent if no planned batch keeps to the overhead. Trials are expensive, so the batch is not exact. A
  // batch up to 3 % larger, or one that needs the last 130th of the permitted overhead, may keep to it, too.
  std::optional<LargestBatch> within_overhead;
  LargestBatch most;          // the largest that fits, however slow
  double least_overhead = 0;  // among the planned batches that fit
};

// Searches under the run's policy; without one, under `none` if that fits, otherwise `optimal`. Throws the
// exceptions of plan_run() for one sample, DoesNotFit if not even that fits, and InvalidOption for an
// overhead below 0.
MaxBatch find_max_batch(const MaxBatchOptions& options);

// The largest batch, to within 3 %, that fits into the budgets of `refused`, which does not fit. `options`
// are those of the same run and name a policy. Makes at most kMostLooks plans, all in unlimited memory, so
// the batch may, very rarely, not fit the budget. Returns nothing if not even one sample fits. Throws the
// exceptions of plan_run() for one sample.
inline constexpr int kMostLooks = 6;
std::optional<std::int64_t> find_smaller_batch(const PlannedRun& refused, const RunOptions& options);

// The smallest device budget, to within 3 %, in which some batch reaches `images_per_second` (> 0) over all
// devices. It is the budget of the returned run, which fits, and at most the budget of `options`. Throws as
// find_max_batch() does, and InvalidOption if no batch is fast enough.
BatchTrial find_least_memory(const MaxBatchOptions& options, double images_per_second);

// The largest accepted batch per device with which the devices of all machines compute the global batch in a
// whole number of micro-steps. RunOptions::training of the returned run has that number. Tries the divisors
// from the largest down, one plan each. Throws the exceptions of plan_run(), InvalidOption for a global batch
// that the devices cannot share evenly or an overhead that no batch keeps to, and DoesNotFit if not even one
// sample at a time fits.
BatchTrial find_micro_batch(const MaxBatchOptions& options, std::uint64_t global_batch);

}  // namespace vdnn
