#pragma once
// Where a training that diverged has left the finite numbers: a Diverged error names the step whose loss, or
// whose gradients' norm, is not finite, and the cause may lie in any op of it or of the steps before. So the
// steps are trained once more, and every value is looked at as it is made: the first on the tape that is not
// finite is the answer.
//
// Each value comes to the host, which waits for it, so a step takes many times its usual time; the device
// takes the memory that it takes while training, page-locked memory 64 KiB more. The same steps give the same
// numbers: start where the training started, or from a checkpoint that it has written, with the same run and
// options. (They do not where the training was replanned with other algorithms.)

#include <cstdint>
#include <optional>
#include <string>

#include "vdnn/dataset.h"
#include "vdnn/planned_run.h"
#include "vdnn/tensor.h"
#include "vdnn/trainer.h"

namespace vdnn {

struct NonfiniteValue {
  // Updates since the start of training, the one at fault included, from 1; of a state to go on from, those
  // that it has behind it.
  std::uint64_t step = 0;
  std::uint32_t micro_step = 0;  // of the step, from 0
  std::optional<int> rank = {};  // none: it trains alone
  std::string op =
      {};  // "conv1.forward"; empty: none has made it, it is an input or of the state to go on from
  std::string value;  // "conv1.y"
  Dims dims;          // logical: N, C, then space
  // Of the elements as the device holds them (feature maps channels last), which may be more than the dims
  // say: so many are not finite, and the first of these, counted from 0, is `first`.
  std::uint64_t elements = 0;
  std::uint64_t nonfinite = 0;
  std::uint64_t first = 0;
  float first_value = 0;  // NaN or an infinity
};

// One line: op, value, step, how many elements, the first.
std::string describe(const NonfiniteValue& value);

// Trains from options.start, or from the beginning, up to and with `last_step` (Diverged::step()), as a
// Trainer with these options does, but that it saves, evaluates, replans and traces nothing. Empty: all
// values were finite. The trainer that diverged is to be gone, unless the device has room for both. Ranks
// call it together; on all of them it is the first that any of them has made, in the order of steps and ops.
// Throws as Trainer does, and InvalidArgument where no step is to be trained.
std::optional<NonfiniteValue> find_nonfinite(const PlannedRun& run, const DatasetSplits& data,
                                             const TrainOptions& options, std::uint64_t last_step);

}  // namespace vdnn
