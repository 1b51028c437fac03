#pragma once
// Finds the first value that is not finite in training that has diverged. A Diverged error names the step
// whose loss or gradient norm is not finite, but the cause may lie in any op of that step or of earlier ones.
// So the steps are trained once more, and every value is inspected as soon as it is computed.
//
// Each value is copied to the host, which waits for it, so a step needs many times its usual time. Device
// memory is that of training; page-locked memory grows by 64 KiB. The same steps compute the same numbers if
// they start where the training started, or from one of its checkpoints, with the same run and options. They
// do not if the training was replanned with other algorithms.

#include <cstdint>
#include <optional>
#include <string>

#include "vdnn/dataset.h"
#include "vdnn/planned_run.h"
#include "vdnn/tensor.h"
#include "vdnn/trainer.h"

namespace vdnn {

struct NonfiniteValue {
  // The number of the update that made the value, counted from 1 since the start of training. For a value of
  // the initial state: the number of updates before that state.
  std::uint64_t step = 0;
  std::uint32_t micro_step = 0;  // of the step, from 0
  std::optional<int> rank = {};  // absent if a device trains alone
  std::string op = {};           // "conv1.forward"; empty for an input and for a value of the initial state
  std::string value;             // "conv1.y"
  Dims dims;                     // logical: N, C, then space
  // Elements are counted in the device's layout (feature maps channels last), which may have more elements
  // than the dims. `nonfinite` of them are not finite; `first` is the index, from 0, of the first of these.
  std::uint64_t elements = 0;
  std::uint64_t nonfinite = 0;
  std::uint64_t first = 0;
  float first_value = 0;  // NaN or an infinity
};

// One line with op, value, step, the number of elements and the first of them.
std::string describe(const NonfiniteValue& value);

// Trains from options.start, or from the beginning, up to and including `last_step` (Diverged::step()), as a
// Trainer with these options does, but without saving, evaluating, replanning and tracing. Returns nothing if
// all values were finite. Destroy the diverged trainer first, unless the device has memory for both. Ranks
// call it together and get the same value: the first on any rank in the order of steps and ops. Throws as
// Trainer does, and InvalidArgument if there is no step to train.
std::optional<NonfiniteValue> find_nonfinite(const PlannedRun& run, const DatasetSplits& data,
                                             const TrainOptions& options, std::uint64_t last_step);

}  // namespace vdnn
