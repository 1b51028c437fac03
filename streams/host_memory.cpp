#include "streams/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace vdnn {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// "max" or a missing file means no limit. Version 1 has a number larger than any memory instead.
std::uint64_t limit_in(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  std::uint64_t bytes = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return parsed.ec == std::errc() ? bytes : kNoLimit;
}

// The least limit of `group` and its ancestors in the hierarchy that is mounted at `mount`.
std::uint64_t least_limit(const fs::path& mount, std::string_view group, const char* file) {
  std::uint64_t least = limit_in(mount / file);
  fs::path directory = mount;
  for (const fs::path& name : fs::path(group).relative_path()) {
    directory /= name;
    least = std::min(least, limit_in(directory / file));
  }
  return least;
}

bool names_memory(std::string_view controllers) {
  return ("," + std::string(controllers) + ",").find(",memory,") != std::string::npos;
}

// The limit of the group in `line` of /proc/self/cgroup: "ID:CONTROLLERS:GROUP"; version 2 names no
// controllers.
std::uint64_t limit_by(std::string_view line, const fs::path& mounts) {
  const std::size_t first = line.find(':');
  const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
  if (second == std::string_view::npos) {
    return kNoLimit;
  }
  const std::string_view controllers = line.substr(first + 1, second - first - 1);
  const std::string_view group = line.substr(second + 1);
  if (names_memory(controllers)) {
    return least_limit(mounts / "memory", group, "memory.limit_in_bytes");
  }
  if (controllers.empty()) {
    // If version 1 is mounted, too, version 2 has a directory of its own.
    return std::min(least_limit(mounts, group, "memory.max"),
                    least_limit(mounts / "unified", group, "memory.max"));
  }
  return kNoLimit;
}

}  // namespace

std::optional<std::uint64_t> cgroup_memory_limit(const fs::path& root) {
  std::uint64_t least = kNoLimit;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    least = std::min(least, limit_by(line, root / "sys/fs/cgroup"));
  }
  return least == kNoLimit ? std::nullopt : std::optional(least);
}

std::uint64_t host_memory_bytes() {
  const std::uint64_t physical =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(physical, cgroup_memory_limit().value_or(physical));
}

}  // namespace vdnn
