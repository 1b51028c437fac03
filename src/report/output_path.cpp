#include "src/report/output_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void reject(const fs::path& path, const std::string& reason) {
  throw InvalidArgument("cannot write '" + path.string() + "': " + reason);
}

void check_directory(const fs::path& path, const fs::path& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error)) {
    return;
  }
  if (fs::exists(directory, error)) {
    reject(path, "'" + directory.string() + "' is not a directory");
  }
  reject(path, "there is no directory '" + directory.string() + "'");
}

// Checking permissions would not find every reason (read-only file systems, quotas); trying does.
void try_to_create(const fs::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0 && errno == EEXIST && !fs::is_symlink(path)) {
    return;  // another process is trying the same path
  }
  if (file < 0) {
    reject(path, std::strerror(errno));
  }
  ::close(file);
  ::unlink(path.c_str());
}

}  // namespace

void check_output_path(const fs::path& path) {
  if (path.empty()) {
    reject(path, "the path is empty");
  }
  std::error_code error;
  if (fs::is_directory(path, error) || !path.has_filename()) {
    reject(path, "it is a directory");
  }
  if (path.has_parent_path()) {
    check_directory(path, path.parent_path());
  }
  if (::access(path.c_str(), W_OK) == 0) {
    return;
  }
  if (errno != ENOENT) {
    reject(path, std::strerror(errno));
  }
  try_to_create(path);
}

}  // namespace vdnn
