#include "tests/fakes/fake_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "streams/mapping.h"

namespace vdnn {

namespace {

constexpr unsigned char kUndefinedContent = 0xa5;

bool map_fixed(AddressRange range, int kind, int file, std::uint64_t offset) {
  return mmap(pointer_to<void>(range.begin), range.bytes, PROT_NONE, MAP_FIXED | kind, file,
              static_cast<off_t>(offset)) != MAP_FAILED;
}

}  // namespace

FakeMemory::~FakeMemory() {
  if (file_ >= 0) {
    close(file_);
  }
}

std::optional<std::uint64_t> FakeMemory::take(std::uint64_t bytes) {
  const std::uint64_t offset = taken_;
  if (!logical_ && !fill(offset, bytes)) {
    give_back(offset, bytes);
    return std::nullopt;
  }
  taken_ += bytes;
  return offset;
}

bool FakeMemory::fill(std::uint64_t offset, std::uint64_t bytes) {
  static const auto content = [] {
    std::array<unsigned char, 64 * kPageBytes> filled{};
    filled.fill(kUndefinedContent);
    return filled;
  }();
  if (file_ < 0) {
    file_ = memfd_create("fake memory", MFD_CLOEXEC);
  }
  for (const std::uint64_t end = offset + bytes; offset < end;) {
    const ssize_t written =
        pwrite(file_, content.data(), std::min<std::uint64_t>(content.size(), end - offset),
               static_cast<off_t>(offset));
    if (written <= 0) {
      return false;
    }
    offset += static_cast<std::uint64_t>(written);
  }
  return true;
}

void FakeMemory::give_back(std::uint64_t offset, std::uint64_t bytes) {
  if (!logical_) {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  }
}

bool FakeMemory::map(AddressRange range, std::uint64_t offset) const {
  return logical_ || map_fixed(range, MAP_SHARED, file_, offset);
}

void FakeMemory::open(AddressRange range) const {
  if (!logical_) {
    mprotect(pointer_to<void>(range.begin), range.bytes, PROT_READ | PROT_WRITE);
  }
}

void FakeMemory::unmap(AddressRange range) const {
  if (!logical_) {
    map_fixed(range, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
}

}  // namespace vdnn
