#pragma once
// How much of the host's memory a process may take: what the machine has, or less where it is in a control
// group (cgroups(7)) with a limit, as processes in containers are. Page-locked memory beyond the limit is not
// refused: the system ends the process.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace vdnn {

// In bytes.
std::uint64_t host_memory_bytes();

// The least limit of the calling process's group and those around it, of version 1 (memory.limit_in_bytes) or
// 2 (memory.max), in bytes; none where there is none, or none that can be read. `root` is where /proc and
// /sys lie. A container may see its own group as the outermost, under a name that it has outside: what is not
// there by its name is passed over.
std::optional<std::uint64_t> cgroup_memory_limit(const std::filesystem::path& root = "/");

}  // namespace vdnn
