#pragma once
// Checks of arguments that all communicators share. `who` begins each message: "cuda:1: rank 0 of 2".

#include <span>
#include <string>

#include "vdnn/communicator.h"

namespace vdnn {

// "30 s", "0.5 s".
std::string format_seconds(double seconds);

// "cuda:1: rank 0 of 2".
std::string name_rank(const Device& device, int rank, int size);

// Throws InvalidArgument for no parts, and for types that Communicator::all_reduce() refuses.
void check_parts(const std::string& who, std::span<const Collective> parts);
// Throws InvalidArgument if there is no such rank.
void check_root(const std::string& who, const Collective& collective, int root, int size);
// Throws InvalidArgument if Device::synchronize() would not be allowed to wait.
void check_can_wait(const std::string& who, const Device& device, const Frontier& frontier);

}  // namespace vdnn
