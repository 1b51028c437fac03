#pragma once
// A file that is replaced as a whole or not at all. Bytes are written to a new file beside the target. The
// new file takes the target's name only once all bytes are on the disk. A crash, a full disk or an exception
// at any moment leaves the previous file as it was. Both the new file and, after the renaming, the directory
// are forced to the disk (fsync). Pillai et al., All File Systems Are Not Created Equal, OSDI 2014, explains
// why both are needed.
//
// A killed process leaves its new file, `TARGET.vdnn-tmpN`; the next process that writes to the same target
// removes it. A lock (flock) distinguishes abandoned files from those in use: a writer keeps its new file
// locked from before the first byte until the file has the target's name. The system releases the lock of a
// process that ends, however it ends, so a file without a lock is abandoned. On a file system without such
// locks nothing is removed. If locks hold on one machine only, several machines should not write to the same
// target.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "src/base/file_descriptor.h"

namespace vdnn {

// Belongs to one thread. All errors of the file system (no such directory, no space, quota, file size limit,
// a target that is a directory or a device) are DataErrors. They contain the path, the system's reason, the
// number of bytes written so far and, if there is no space, the free space. The new file has been removed by
// then.
class AtomicFile {
 public:
  // Removes abandoned files of the same target, as far as permissions allow. Creates `TARGET.vdnn-tmp0` (or
  // the next free number) with the permissions of the file that it will replace, or those of any new file if
  // there is none. A symbolic link is replaced, not followed. `bytes`: the total size, if known, for
  // messages.
  explicit AtomicFile(std::filesystem::path target, std::optional<std::uint64_t> bytes = {});
  // Removes the new file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends with at least one system call: there is no buffer. Throws InvalidArgument after an error or
  // commit().
  void write(std::span<const std::byte> bytes);
  // Forces the bytes to the disk, then replaces the target. Throws as write() does. If the last step fails
  // (forcing the directory to the disk), the new file is in place, and only a crash of the machine may lose
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
  // Names are looked up in this directory, so that a change of the working directory does not matter.
  FileDescriptor directory_;
  FileDescriptor file_;
  // A second descriptor of the same open file: closing file_ may report errors, and the lock must outlive
  // that.
  FileDescriptor lock_;
  std::optional<std::uint64_t> bytes_;
  std::uint64_t bytes_written_ = 0;
};

}  // namespace vdnn
