#pragma once
// Checks before hours of training, not after, whether an output can be written.

#include <filesystem>

namespace vdnn {

// Throws InvalidArgument, which names the path and the reason, if a file cannot be written there: the path is
// a directory, its directory is missing or is a file, or permission is denied. Changes no existing file and
// leaves no new one. Devices, for example /dev/stdout, are allowed.
void check_output_path(const std::filesystem::path& path);

}  // namespace vdnn
