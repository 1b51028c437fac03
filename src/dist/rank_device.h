#pragma once
// Assigns each rank its device.

#include <string>

#include "vdnn/gpu_system.h"
#include "vdnn/process_group.h"

namespace vdnn {

// Returns the name of this rank's device. `asked` is "auto", "cuda" or the name of a device. For "auto" and
// "cuda", a rank uses the GPU whose ordinal is the rank's local number. A rank that sees only one GPU uses
// that GPU: the launcher has assigned it, with Slurm's --gpus-per-task or with CUDA_VISIBLE_DEVICES. "auto"
// is "cpu" if a rank sees no GPU. `gpus` is null if this build cannot drive GPUs.
//
// All ranks must call it, and all machines must have the same number of ranks. Throws InvalidArgument if
// there are fewer GPUs than ranks, if a machine's ranks request one GPU by number, or if two ranks would
// share a GPU. In the last case the message has the name of the GPU and the two ranks.
std::string device_of_rank(const std::string& asked, ProcessGroup& processes, GpuSystem* gpus);

}  // namespace vdnn
