#pragma once
// Which device is a rank's own among those of its machine.

#include <string>

#include "vdnn/gpu_system.h"
#include "vdnn/process_group.h"

namespace vdnn {

// Of what was asked for ("auto", "cuda" or one device's name) the name of this rank's device. A rank has the
// GPU of its number on its machine, or, where it sees one alone, that one: a launcher has shared them out
// (Slurm's --gpus-per-task, or CUDA_VISIBLE_DEVICES for each). "auto" is "cpu" where a rank sees no GPU.
// `gpus` null: none can be driven.
//
// On every rank, each machine having as many. Throws InvalidArgument where there are fewer GPUs than ranks,
// where one was asked for by number for several ranks, and where two ranks have the same, naming both and it.
std::string device_of_rank(const std::string& asked, ProcessGroup& processes, GpuSystem* gpus);

}  // namespace vdnn
