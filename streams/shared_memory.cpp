#include "streams/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

bool map_fixed(AddressRange range, int access, int flags, int file, std::uint64_t offset) {
  return mmap(pointer_to<void>(range.begin), range.bytes, access, flags | MAP_FIXED, file,
              static_cast<off_t>(offset)) != MAP_FAILED;
}

}  // namespace

SharedMemory::SharedMemory(const char* name, std::uint64_t bytes) : file_(memfd_create(name, MFD_CLOEXEC)) {
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
    if (file_ >= 0) {
      close(file_);
    }
    throw DeviceError("the system has no shared memory of " + format_size(bytes));
  }
}

SharedMemory::~SharedMemory() {
  close(file_);
}

void SharedMemory::map(AddressRange range, std::uint64_t offset) const {
  if (!map_fixed(range, PROT_READ | PROT_WRITE, MAP_SHARED, file_, offset)) {
    throw OutOfMemory("mapping of shared memory", {.asked = range.bytes});
  }
}

void SharedMemory::unmap(AddressRange range) {
  if (!map_fixed(range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    throw DeviceError("the system refused to unmap " + format_size(range.bytes));
  }
}

void SharedMemory::discard(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  // If the system refuses, the pages stay until the memory is released.
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

}  // namespace vdnn
