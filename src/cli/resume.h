#pragma once
// `--resume`: a run that goes on from a checkpoint takes its seed and its algorithms.

#include <optional>
#include <string>
#include <vector>

#include "src/cli/options.h"
#include "vdnn/checkpoint.h"

namespace vdnn {

std::optional<Checkpoint> open_checkpoint(const RunArguments& arguments);

// The arguments with the checkpoint's seed. Throws InvalidArgument where another one was asked for.
RunArguments resumed(const RunArguments& arguments, const std::optional<Checkpoint>& checkpoint);

// Differences between the planned run and the one that wrote the checkpoint which may change results: one
// sentence for each.
std::vector<std::string> differences(const CheckpointInfo& info, const PlannedRun& run);

// Plans, and, where this rank speaks for all, logs what people should know of that, and what differs from the
// run that wrote the checkpoint and may change results.
PlannedRun plan_from(const std::optional<Checkpoint>& checkpoint, const RunOptions& options,
                     bool speaks = true);

}  // namespace vdnn
