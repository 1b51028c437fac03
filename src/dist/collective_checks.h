#pragma once
// What all communicators refuse, in one voice. `who` begins each message: "cuda:1: rank 0 of 2".

#include <span>
#include <string>

#include "vdnn/communicator.h"

namespace vdnn {

// "30 s", "0.5 s".
std::string format_seconds(double seconds);

// "cuda:1: rank 0 of 2".
std::string name_rank(const Device& device, int rank, int size);

// InvalidArgument for nothing at all, and for what Communicator::all_reduce() refuses of types.
void check_parts(const std::string& who, std::span<const Collective> parts);
// InvalidArgument where there is no such rank.
void check_root(const std::string& who, const Collective& collective, int root, int size);
// InvalidArgument where Device::synchronize() would not be allowed to wait.
void check_can_wait(const std::string& who, const Device& device, const Frontier& frontier);

}  // namespace vdnn
