#pragma once
// `--resume`: a run that continues from a checkpoint uses the checkpoint's seed and algorithms.

#include <optional>
#include <string>
#include <vector>

#include "src/cli/options.h"
#include "vdnn/checkpoint.h"

namespace vdnn {

std::optional<Checkpoint> open_checkpoint(const RunArguments& arguments);

// The arguments with the checkpoint's seed. Throws InvalidArgument if the arguments have another one.
RunArguments resumed(const RunArguments& arguments, const std::optional<Checkpoint>& checkpoint);

// Differences between the planned run and the run that wrote the checkpoint, if they may change results: one
// sentence for each.
std::vector<std::string> differences(const CheckpointInfo& info, const PlannedRun& run);

// Plans the run. `speaks`: also log notes on the plan, and its differences() from the run that wrote the
// checkpoint; only one of several ranks should.
PlannedRun plan_from(const std::optional<Checkpoint>& checkpoint, const RunOptions& options,
                     bool speaks = true);

}  // namespace vdnn
