#include "streams/mapping.h"

#include <sys/mman.h>

#include <utility>

#include "vdnn/size.h"

namespace vdnn {

std::optional<Mapping> Mapping::make(std::uint64_t bytes, std::uint64_t alignment, Kind kind) {
  // mmap aligns to pages; what a larger alignment needs besides is only address space.
  const std::uint64_t mapped_bytes = checked_add(round_up(bytes, kPageBytes), alignment - kPageBytes);
  const bool touched = kind == Kind::kTouched;
  const int access = touched ? PROT_READ | PROT_WRITE : PROT_NONE;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (touched ? MAP_POPULATE : MAP_NORESERVE);
  void* const address = mmap(nullptr, mapped_bytes, access, flags, -1, 0);
  if (address == MAP_FAILED) {
    return std::nullopt;
  }
  const auto begin = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
  return Mapping({.begin = begin, .bytes = mapped_bytes},
                 {.begin = round_up(begin, alignment), .bytes = bytes});
}

Mapping::Mapping(Mapping&& other) noexcept
    : mapped_(std::exchange(other.mapped_, {})), range_(std::exchange(other.range_, {})) {}

Mapping::~Mapping() {
  if (mapped_.bytes != 0) {
    munmap(pointer_to<void>(mapped_.begin), mapped_.bytes);
  }
}

}  // namespace vdnn
