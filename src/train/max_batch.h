#pragma once
// How large a batch fits? Found by planning: what plan_run() says to fit runs, and what it does not is
// refused.
//
// More samples take more memory as a rule, not as a law: algorithms and their workspaces change with the
// batch, and memory is committed in granules. What is found is a batch that is accepted while the next one is
// not; beyond that, another one may be accepted again.

#include <cstdint>
#include <functional>
#include <optional>

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

struct MaxBatchOptions {
  RunOptions run;  // its batch is not looked at, nor its micro-steps where a global batch is given
  // A step may take so much longer than the oracle's with the same batch, 0.1 for 10 %; >= 0. Absent: as long
  // as it takes.
  std::optional<double> overhead;
  // Told of each batch that is tried. May be empty.
  std::function<void(const BatchTrial&)> tried;
};

struct MaxBatch {
  BatchTrial largest;  // accepted
  BatchTrial next;     // one sample more; not accepted
};

// By doubling and bisection: as many plans as twice the digits of the batch in binary. Throws what plan_run()
// throws, OutOfMemory where not even one sample fits, and InvalidArgument for an overhead that none of the
// batches 1, 2, 4... that fit keeps to, with the least of them.
MaxBatch find_max_batch(const MaxBatchOptions& options);

// The largest batch of a device that is accepted and of which a whole number, one after the other on each
// device of all machines, makes up that global batch: RunOptions::training has that number as its
// micro-steps then. From the largest down, so that there are as many plans as larger divisors. Throws what
// plan_run() throws, InvalidArgument for a global batch that the devices cannot share evenly, OutOfMemory
// where not even one sample at a time fits, and InvalidArgument for an overhead that no batch keeps to.
BatchTrial find_micro_batch(const MaxBatchOptions& options, std::uint64_t global_batch);

}  // namespace vdnn
