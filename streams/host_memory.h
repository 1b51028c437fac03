#pragma once
// The host memory that a process may use: the machine's memory, or less if the process is in a control group
// (cgroups(7)) with a limit, as in a container. If a process page-locks memory beyond the limit, the system
// does not refuse the memory but ends the process.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace vdnn {

// The host memory that this process may use, in bytes.
std::uint64_t host_memory_bytes();

// The smallest limit of the calling process's group and its ancestors, of version 1 (memory.limit_in_bytes)
// or 2 (memory.max), in bytes; nothing if there is no readable limit. `root` is the directory of /proc and
// /sys. In a container, the root that is mounted may be the container's own group, while /proc shows the
// group's name outside the container. So groups that do not exist under their name are skipped.
std::optional<std::uint64_t> cgroup_memory_limit(const std::filesystem::path& root = "/");

}  // namespace vdnn
