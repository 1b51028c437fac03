#pragma once
// Checks of arguments, shared by all communicators. Each message begins with `who`, for example "cuda:1: rank
// 0 of 2".

#include <span>
#include <string>

#include "vdnn/communicator.h"

namespace vdnn {

// Returns for example "30 s" or "0.5 s".
std::string format_seconds(double seconds);

// Returns for example "cuda:1: rank 0 of 2".
std::string name_rank(const Device& device, int rank, int size);

// Throws InvalidArgument if `parts` is empty or Communicator::all_reduce() refuses their types.
void check_parts(const std::string& who, std::span<const Collective> parts);
// Throws InvalidArgument if a group of `size` ranks has no rank `root`.
void check_root(const std::string& who, const Collective& collective, int root, int size);
// Throws InvalidArgument if Device::synchronize(frontier) is not allowed at this point.
void check_can_wait(const std::string& who, const Device& device, const Frontier& frontier);

}  // namespace vdnn
