#pragma once
// A file that is replaced as a whole or not at all: what is written goes to a new file beside the target,
// which takes the target's name only once its bytes are on the disk. A crash, a full disk or an exception at
// any moment leaves the previous file as it was (Pillai et al., All File Systems Are Not Created Equal, OSDI
// 2014, on why it takes both calls of fsync).
//
// A process that is killed leaves the new file, `TARGET.vdnn-tmpN`, behind; the next one that writes to the
// same target removes it. Whose file is whose is told by a lock (flock) that a writer holds on its new file
// from before the first byte until it has the target's name, and that the system takes from a process that
// ends, however it ends: what is not locked belongs to nobody. Where a file system has no such locks nothing
// is removed, and where they hold for one machine only, several should not write to the same target.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "src/base/file_descriptor.h"

namespace vdnn {

// Belongs to one thread. All errors of the file system (no such directory, no space, quota, file size limit,
// a target that is a directory or a device) are DataErrors with the path, the system's reason, the number
// of bytes that were written before and, where there is no space, what is free; then the new file is already
// removed.
class AtomicFile {
 public:
  // Removes what dead writers left of the same target, as far as it may. Creates `TARGET.vdnn-tmp0` (or the
  // next number that is free) with the permissions of the file that it will replace, or of any new file where
  // there is none. A symbolic link is replaced, not followed. `bytes`: what will be written, where that is
  // known, for messages.
  explicit AtomicFile(std::filesystem::path target, std::optional<std::uint64_t> bytes = {});
  // Removes the new file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends, one system call at least: there is no buffer. Throws InvalidArgument after an error or commit().
  void write(std::span<const std::byte> bytes);
  // Forces the bytes to the disk, then replaces the target. Throws as `write` does. When the last step fails
  // (forcing the directory to the disk), the new file is in place and only a crash of the machine may lose
  // it.
  void commit();

 private:
  void create();
  bool claim();
  void require_open() const;
  void discard();
  std::string reason(int error) const;
  [[noreturn]] void fail(const std::string& action, int error);

  std::filesystem::path target_;
  std::string temporary_name_;
  // Names are looked up in it, so that a change of the working directory does not matter.
  FileDescriptor directory_;
  FileDescriptor file_;
  // The same open file once more: closing file_ shows what closing reports, and the lock has to outlive that.
  FileDescriptor lock_;
  std::optional<std::uint64_t> bytes_;
  std::uint64_t bytes_written_ = 0;
};

}  // namespace vdnn
