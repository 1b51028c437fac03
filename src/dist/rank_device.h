#pragma once
// The assignment of a machine's devices to its ranks.

#include <string>

#include "vdnn/gpu_system.h"
#include "vdnn/process_group.h"

namespace vdnn {

// Returns the name of this rank's device for the requested "auto", "cuda" or device name. A rank gets the GPU
// with its local number. A rank that sees only one GPU gets that one: the launcher has assigned it, with
// Slurm's --gpus-per-task or with CUDA_VISIBLE_DEVICES. "auto" is "cpu" if a rank sees no GPU. `gpus` is null
// if this build cannot drive GPUs.
//
// All ranks must call it, and all machines must have the same number of ranks. Throws InvalidArgument if
// there are fewer GPUs than ranks, if several ranks request one GPU by number, and if two ranks would share a
// GPU, whose name and ranks it states.
std::string device_of_rank(const std::string& asked, ProcessGroup& processes, GpuSystem* gpus);

}  // namespace vdnn
