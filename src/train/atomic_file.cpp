#include "src/train/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

// So many files left behind by killed processes are another problem than ours.
constexpr int kMostAttempts = 10'000;

std::string reason(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void reject(const fs::path& target, const std::string& problem) {
  throw DataError("cannot write '" + target.string() + "': " + problem);
}

// Renaming over a directory would fail only after everything was written; renaming over a device such as
// /dev/null would replace it for the whole machine.
void check_target(const fs::path& target) {
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (!target.has_filename()) {
    reject(target, "the path names no file");
  }
  if (fs::is_directory(status)) {
    reject(target, reason(EISDIR));
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    reject(target, "it is not a regular file");
  }
}

FileDescriptor open_directory(const fs::path& target) {
  const fs::path directory = target.has_parent_path() ? target.parent_path() : fs::path(".");
  FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) {
    reject(target, "directory '" + directory.string() + "': " + reason(errno));
  }
  return opened;
}

int fsync_file(int descriptor) {
  int status = 0;
  do {
    status = ::fsync(descriptor);
  } while (status != 0 && errno == EINTR);
  return status;
}

}  // namespace

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  check_target(target_);
  directory_ = open_directory(target_);
  create();
}

AtomicFile::~AtomicFile() {
  discard();
}

// A first save has the permissions of any new file; a later one must not show to others what its owner hid.
void AtomicFile::create() {
  struct stat replaced {};
  const bool replaces =
      ::fstatat(directory_.get(), target_.filename().c_str(), &replaced, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(replaced.st_mode);
  const mode_t mode = replaces ? replaced.st_mode & 0777 : 0666;
  for (int attempt = 0; !file_.is_open(); ++attempt) {
    temporary_name_ = target_.filename().string() + ".tmp" + std::to_string(attempt);
    file_ = FileDescriptor(
        ::openat(directory_.get(), temporary_name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (!file_.is_open() && (errno != EEXIST || attempt == kMostAttempts)) {
      reject(target_, "creating '" + temporary_name_ + "' beside it: " + reason(errno));
    }
  }
  if (replaces && ::fchmod(file_.get(), mode) != 0) {
    fail("fchmod", errno);
  }
}

void AtomicFile::require_open() const {
  if (!file_.is_open()) {
    throw InvalidArgument("'" + target_.string() + "' is written to after it was committed or given up");
  }
}

void AtomicFile::discard() {
  if (!temporary_name_.empty()) {
    ::unlinkat(directory_.get(), temporary_name_.c_str(), 0);
    temporary_name_.clear();
  }
  file_ = FileDescriptor();
}

void AtomicFile::fail(const std::string& action, int error) {
  discard();
  reject(target_, action + " failed after " + std::to_string(bytes_written_) +
                      " bytes were written: " + reason(error));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require_open();
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      fail("writing", count < 0 ? errno : ENOSPC);
    }
    bytes_written_ += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::commit() {
  require_open();
  if (fsync_file(file_.get()) != 0) {
    fail("fsync", errno);
  }
  // Network file systems report a quota that is exceeded here at the latest. EINTR leaves the file closed.
  if (::close(file_.release()) != 0 && errno != EINTR) {
    fail("closing", errno);
  }
  if (::renameat(directory_.get(), temporary_name_.c_str(), directory_.get(), target_.filename().c_str()) !=
      0) {
    fail("renaming '" + temporary_name_ + "'", errno);
  }
  temporary_name_.clear();
  // Some file systems cannot (EINVAL): then there is nothing to wait for.
  if (fsync_file(directory_.get()) != 0 && errno != EINVAL) {
    fail("the file is in place, but fsync of its directory", errno);
  }
}

}  // namespace vdnn
