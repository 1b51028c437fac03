#include "src/base/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <system_error>

#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".vdnn-tmp";
// If more writers than this write one file at the same time, the caller has made a mistake.
constexpr int kMostAttempts = 1'000;

std::string in_words(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void reject(const fs::path& target, const std::string& problem) {
  throw DataError("cannot write '" + target.string() + "': " + problem);
}

// Renaming over a directory would fail only after everything was written; renaming over a device, for example
// /dev/null, would replace it for the whole machine.
void check_target(const fs::path& target) {
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (!target.has_filename()) {
    reject(target, "the path names no file");
  }
  if (fs::is_directory(status)) {
    reject(target, in_words(EISDIR));
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    reject(target, "it is not a regular file");
  }
}

fs::path directory_of(const fs::path& target) {
  return target.has_parent_path() ? target.parent_path() : fs::path(".");
}

FileDescriptor open_directory(const fs::path& target) {
  const fs::path directory = directory_of(target);
  FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) {
    reject(target, "directory '" + directory.string() + "': " + in_words(errno));
  }
  return opened;
}

// Repeats `call` until no signal interrupts it.
template <class Call>
int uninterrupted(const Call& call) {
  int status = 0;
  do {
    status = call();
  } while (status != 0 && errno == EINTR);
  return status;
}

int fsync_file(int descriptor) {
  return uninterrupted([=] { return ::fsync(descriptor); });
}

// Tries to lock without waiting.
int lock_file(int descriptor) {
  return uninterrupted([=] { return ::flock(descriptor, LOCK_EX | LOCK_NB); });
}

bool is_temporary_of(const fs::path& target, const std::string& name) {
  const std::string stem = target.filename().string() + std::string(kTemporary);
  return name.size() > stem.size() && name.starts_with(stem) &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(stem.size()), name.end(),
                     [](char digit) { return digit >= '0' && digit <= '9'; });
}

// The status of the entry itself, even if it is a symbolic link. Empty if there is no such entry; `error` is
// the file system's error, or 0.
std::optional<struct stat> status_of(const FileDescriptor& directory, const std::string& name, int& error) {
  struct stat status {};
  error = ::fstatat(directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  if (error == 0) {
    return status;
  }
  error = error == ENOENT ? 0 : error;
  return {};
}

// Whether `name` still names the open file. Before the caller has acquired the lock, another writer may have
// removed or renamed the file, and the name may have been reused. `error` is the file system's error, or 0.
bool still_named(const FileDescriptor& directory, const std::string& name, const FileDescriptor& file,
                 int& error) {
  struct stat opened {};
  if (::fstat(file.get(), &opened) != 0) {
    error = errno;
    return false;
  }
  const std::optional<struct stat> named = status_of(directory, name, error);
  return named && S_ISREG(opened.st_mode) && opened.st_dev == named->st_dev && opened.st_ino == named->st_ino;
}

// Removes an abandoned file. Only the holder of its lock may change what the name refers to.
void remove_unless_locked(const FileDescriptor& directory, const std::string& name) {
  // Network file systems lock only files that are open for writing. Without O_NONBLOCK, opening a pipe would
  // wait for a reader.
  const FileDescriptor file(
      ::openat(directory.get(), name.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  int error = 0;
  if (file.is_open() && lock_file(file.get()) == 0 && still_named(directory, name, file, error)) {
    ::unlinkat(directory.get(), name.c_str(), 0);
  }
}

void remove_abandoned(const FileDescriptor& directory, const fs::path& target) {
  // Not <filesystem>, whose iterator ends the process if it finds no memory (libstdc++ 12).
  const auto close = [](DIR* opened) { ::closedir(opened); };
  const std::unique_ptr<DIR, decltype(close)> entries(::opendir(directory_of(target).c_str()), close);
  while (const dirent* const entry = entries ? ::readdir(entries.get()) : nullptr) {
    if (const std::string name = entry->d_name; is_temporary_of(target, name)) {
      remove_unless_locked(directory, name);
    }
  }
}

std::string space_left(const FileDescriptor& directory) {
  struct statvfs status {};
  if (::fstatvfs(directory.get(), &status) != 0) {
    return {};
  }
  std::string text = "; its file system has " + std::to_string(status.f_bavail * status.f_frsize) + " bytes";
  // File systems that create inodes on demand report none.
  if (status.f_files > 0) {
    text += " and " + std::to_string(status.f_favail) + " files";
  }
  return text + " left";
}

}  // namespace

AtomicFile::AtomicFile(fs::path target, std::optional<std::uint64_t> bytes)
    : target_(std::move(target)), bytes_(bytes) {
  check_target(target_);
  directory_ = open_directory(target_);
  remove_abandoned(directory_, target_);
  create();
}

AtomicFile::~AtomicFile() {
  discard();
}

// A file that replaces another has that file's permissions, so that its contents do not become readable to
// more users.
void AtomicFile::create() {
  int error = 0;
  const std::optional<struct stat> replaced = status_of(directory_, target_.filename().string(), error);
  if (error != 0) {
    reject(target_, "looking for the file to replace: " + reason(error));
  }
  const bool replaces = replaced && S_ISREG(replaced->st_mode);
  const mode_t mode = replaces ? replaced->st_mode & 0777 : 0666;
  for (int attempt = 0; !claim(); ++attempt) {
    if (attempt == kMostAttempts) {
      reject(target_, "tried " + std::to_string(kMostAttempts) + " names for a new file beside it, '" +
                          temporary_name_ + "' the last: all are taken or refer to other files");
    }
    temporary_name_ = target_.filename().string() + std::string(kTemporary) + std::to_string(attempt);
    file_ = FileDescriptor(
        ::openat(directory_.get(), temporary_name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (!file_.is_open() && errno != EEXIST) {
      reject(target_, "creating '" + temporary_name_ + "' beside it: " + reason(errno));
    }
  }
  lock_ = FileDescriptor(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (!lock_.is_open()) {
    fail("duplicating a descriptor", errno);
  }
  if (replaces && ::fchmod(file_.get(), mode) != 0) {
    fail("fchmod", errno);
  }
}

// Between its creation and its lock a file looks abandoned, so another writer may remove it first. A file
// that another writer has locked, or whose name no longer refers to ours, must not be removed here.
bool AtomicFile::claim() {
  if (!file_.is_open()) {
    return false;
  }
  if (lock_file(file_.get()) != 0 && errno == EWOULDBLOCK) {
    return false;
  }
  int error = 0;
  const bool claimed = still_named(directory_, temporary_name_, file_, error);
  if (error != 0) {
    fail("fstat", error);
  }
  return claimed;
}

void AtomicFile::require_open() const {
  if (!file_.is_open()) {
    throw InvalidArgument("'" + target_.string() + "' cannot be written after it was committed or discarded");
  }
}

void AtomicFile::discard() {
  if (!temporary_name_.empty()) {
    ::unlinkat(directory_.get(), temporary_name_.c_str(), 0);
    temporary_name_.clear();
  }
  file_ = FileDescriptor();
  lock_ = FileDescriptor();
}

std::string AtomicFile::reason(int error) const {
  return in_words(error) + (error == ENOSPC ? space_left(directory_) : "");
}

// Removes the new file first, so that the message reports the space that the next attempt will find.
void AtomicFile::fail(const std::string& action, int error) {
  discard();
  const std::string asked = bytes_ ? " of " + std::to_string(*bytes_) : "";
  reject(target_, action + " failed after " + std::to_string(bytes_written_) + asked +
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
  // Network file systems report an exceeded quota here at the latest. EINTR leaves the file closed.
  if (::close(file_.release()) != 0 && errno != EINTR) {
    fail("closing", errno);
  }
  if (::renameat(directory_.get(), temporary_name_.c_str(), directory_.get(), target_.filename().c_str()) !=
      0) {
    fail("renaming '" + temporary_name_ + "'", errno);
  }
  temporary_name_.clear();
  lock_ = FileDescriptor();
  // Some file systems do not support this (EINVAL); they leave nothing to wait for.
  if (fsync_file(directory_.get()) != 0 && errno != EINVAL) {
    fail("the file is in place, but fsync of its directory", errno);
  }
}

}  // namespace vdnn
