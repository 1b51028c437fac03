#pragma once
// A small file system in memory that is full after some bytes or files. Only this process and its children
// see the mount. So it needs no privileges where user namespaces are allowed, and disappears with the
// process, however that ends.

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace vdnn::testing {

namespace detail {

inline void write_text(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text;
}

inline bool become_root_of_own_namespace() {
  const std::string user = std::to_string(::geteuid());
  const std::string group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return false;
  }
  write_text("/proc/self/setgroups", "deny");
  write_text("/proc/self/uid_map", "0 " + user + " 1");
  write_text("/proc/self/gid_map", "0 " + group + " 1");
  return true;
}

inline std::optional<std::string> enter_own_mounts() {
  if (::unshare(CLONE_NEWNS) != 0 && !become_root_of_own_namespace()) {
    return std::string("no mounts of our own: ") + std::strerror(errno);
  }
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return std::string("mounts cannot be made private: ") + std::strerror(errno);
  }
  return std::nullopt;
}

}  // namespace detail

// Returns the reason why SmallDisk is impossible here; nullopt if it is possible. Call this function while
// the process has one thread.
inline std::optional<std::string> no_small_disk() {
  static const std::optional<std::string> reason = detail::enter_own_mounts();
  return reason;
}

class SmallDisk {
 public:
  // `options` are those of tmpfs, for example "size=4m" or "nr_inodes=3" (the directory itself uses one
  // inode). Throws std::runtime_error.
  SmallDisk(std::filesystem::path place, const std::string& options) : place_(std::move(place)) {
    std::filesystem::create_directory(place_);
    if (::mount("vdnn", place_.c_str(), "tmpfs", 0, options.c_str()) != 0) {
      throw std::filesystem::filesystem_error("mount", place_,
                                              std::error_code(errno, std::generic_category()));
    }
  }
  ~SmallDisk() { ::umount2(place_.c_str(), MNT_DETACH); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return place_ / name; }
  // Returns false while a file is open for writing.
  bool make_read_only() { return ::mount("vdnn", place_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0; }

 private:
  std::filesystem::path place_;
};

}  // namespace vdnn::testing
