#pragma once
// Whether an output can be written is found out before hours of training, not after.

#include <filesystem>

namespace vdnn {

// Throws InvalidArgument, naming the path and the reason, when a file cannot be written there: a directory in
// the way, a directory that is missing, a file where a directory is needed, no permission. Leaves what is
// there as it is, and nothing where there was nothing. Devices such as /dev/stdout are fine.
void check_output_path(const std::filesystem::path& path);

}  // namespace vdnn
