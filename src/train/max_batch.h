#pragma once
// How large a batch fits? Found by planning: what plan_run() says to fit runs, and what it does not is
// refused.
//
// More samples take more memory as a rule, not as a law: algorithms and their workspaces change with the
// batch, and memory is committed in granules. A batch is found that is accepted while a larger one, next to
// it, is not; beyond that, another one may be accepted again.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "vdnn/planned_run.h"

namespace vdnn {

// What one batch would take.
struct BatchTrial {
  PlannedRun run;
  double oracle_step_seconds = 0;  // fastest algorithms, memory without end
  bool accepted = false;           // fits, and is as fast as was asked for

  // How much longer a step is than the oracle's: 0.1 for 10 %.
  double overhead() const { return run.prediction.step_seconds / oracle_step_seconds - 1; }
};

inline constexpr double kDefaultOverhead = 0.1;

struct MaxBatchOptions {
  RunOptions run;  // its batch is not looked at, nor its micro-steps where a global batch is given
  // A step may take so much longer than the oracle's with the same batch, 0.1 for 10 %; >= 0. Absent:
  // kDefaultOverhead, and for a global batch as long as it takes.
  std::optional<double> overhead;
  // Told of each batch that was planned in the budget. May be empty.
  std::function<void(const BatchTrial&)> tried;
  // Told of each batch before it is looked at. May be empty.
  std::function<void(std::int64_t batch)> looking_at;
};

// What keeps the next larger batch from being accepted.
enum class BatchLimit : std::uint8_t {
  kDeviceMemory,
  kHostMemory,  // page-locked
  kOverhead,
  kRefused  // an op cannot have it on this device, as where its library counts elements in 32 bits
};

const char* to_string(BatchLimit limit);

struct LargestBatch {
  BatchTrial trial;  // accepted; all its figures are of one plan, that plan_run() makes of trial.run.options
  std::int64_t next = 0;  // not accepted
  BatchLimit limit = BatchLimit::kDeviceMemory;
  std::string refusal;  // the reason of kRefused
};

struct MaxBatch {
  std::optional<LargestBatch> without_offloading;  // `none`; absent: not even one sample fits so
  // Absent: none of the batches that were planned keeps to the overhead. Trials are dear: one up to 3 %
  // larger may keep to it, too, or one that would use up the last part in 130 of what is allowed.
  std::optional<LargestBatch> within_overhead;
  LargestBatch most;  // that fits, however slow
  // Of the batches that were planned and fit.
  double least_overhead = 0;
};

// Of the run's policy; `auto` is `none` where that fits, and `optimal`. Throws what plan_run() throws for one
// sample, OutOfMemory where not even that fits, and InvalidArgument for an overhead below 0.
MaxBatch find_max_batch(const MaxBatchOptions& options);

// A batch that fits where `refused` does not, to within 3 % the largest, of the same run with `options`,
// which name a policy. Takes at most kMostLooks plans, none of them in the budget: the batch is planned as if
// memory had no end, and hardly ever misses it. Nothing: not even one sample fits. Throws what plan_run()
// throws for one sample.
inline constexpr int kMostLooks = 6;
std::optional<std::int64_t> find_smaller_batch(const PlannedRun& refused, const RunOptions& options);

// The least device memory in which some batch computes at least so many samples a second (> 0), all devices
// together, to within 3 %: the budget of the run that is returned, which fits. The run's own budget is the
// most that it may be. Throws as find_max_batch() does, and InvalidArgument where no batch is so fast.
BatchTrial find_least_memory(const MaxBatchOptions& options, double images_per_second);

// The largest batch of a device that is accepted and of which a whole number, one after the other on each
// device of all machines, makes up that global batch: RunOptions::training has that number as its
// micro-steps then. From the largest down, so that there are as many plans as larger divisors. Throws what
// plan_run() throws, InvalidArgument for a global batch that the devices cannot share evenly, OutOfMemory
// where not even one sample at a time fits, and InvalidArgument for an overhead that no batch keeps to.
BatchTrial find_micro_batch(const MaxBatchOptions& options, std::uint64_t global_batch);

}  // namespace vdnn
