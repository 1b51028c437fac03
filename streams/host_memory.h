#pragma once
// The host memory that a process may use: the machine's memory, or less if the process is in a control group
// (cgroups(7)) with a limit, as in a container. The system does not refuse page-locked memory beyond the
// limit but ends the process.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace vdnn {

// In bytes.
std::uint64_t host_memory_bytes();

// The smallest limit of the calling process's group and its ancestors, of version 1 (memory.limit_in_bytes)
// or 2 (memory.max), in bytes; nothing if there is no readable limit. `root` is the directory of /proc and
// /sys. A container may see its own group as the root, but under the name that it has outside. So groups that
// do not exist under their name are skipped.
std::optional<std::uint64_t> cgroup_memory_limit(const std::filesystem::path& root = "/");

}  // namespace vdnn
