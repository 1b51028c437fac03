#include "streams/mapping.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "vdnn/size.h"

namespace vdnn {

std::optional<Mapping> Mapping::make(std::uint64_t bytes, std::uint64_t alignment, Kind kind) {
  // mmap aligns to pages; what a larger alignment needs besides is only address space.
  const std::uint64_t mapped_bytes = checked_add(round_up(bytes, kPageBytes), alignment - kPageBytes);
  const bool reserved = kind == Kind::kReserved;
  const int access = reserved ? PROT_NONE : PROT_READ | PROT_WRITE;
  const int behind = reserved ? MAP_NORESERVE : kind == Kind::kTouched ? MAP_POPULATE : 0;
  void* const address = mmap(nullptr, mapped_bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | behind, -1, 0);
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

void prefer_node(AddressRange range, int node) noexcept {
  constexpr unsigned kBits = std::numeric_limits<unsigned long>::digits;
  std::array<unsigned long, 16> nodes{};
  if (node < 0 || static_cast<unsigned>(node) >= kBits * nodes.size()) {
    return;
  }
  nodes[static_cast<unsigned>(node) / kBits] = 1UL << (static_cast<unsigned>(node) % kBits);
  // By number: the C library has no function for it. The kernel reads one bit less than it is told.
  syscall(SYS_mbind, range.begin, range.bytes, MPOL_PREFERRED, nodes.data(), kBits * nodes.size() + 1, 0);
}

void touch_pages(AddressRange range) {
  for (std::uint64_t at = range.begin; at < range.end(); at += kPageBytes) {
    volatile std::byte& byte = *pointer_to<std::byte>(at);
    byte = byte;  // not madvise(MADV_POPULATE_WRITE), which older kernels do not know
  }
}

}  // namespace vdnn
