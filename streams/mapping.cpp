#include "streams/mapping.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "vdnn/size.h"

namespace vdnn {

namespace {

void unmap(AddressRange pages) noexcept {
  if (pages.bytes != 0) {
    munmap(pointer_to<void>(pages.begin), pages.bytes);
  }
}

void touch_part(AddressRange range) noexcept {
  for (std::uint64_t at = range.begin; at < range.end(); at += kPageBytes) {
    // Older kernels do not know madvise(MADV_POPULATE_WRITE). A load before the write would cost a second
    // fault. Compilers may turn an atomic addition of 0 into a load, but they do not change this
    // compare-exchange.
    std::uint8_t none = 0;
    std::atomic_ref(*pointer_to<std::uint8_t>(at)).compare_exchange_strong(none, 0);
  }
}

}  // namespace

std::optional<Mapping> Mapping::make(std::uint64_t bytes, std::uint64_t alignment, Kind kind) {
  // mmap aligns to pages; the excess that a larger alignment needs is unmapped immediately.
  const std::uint64_t mapped_bytes = checked_add(round_up(bytes, kPageBytes), alignment - kPageBytes);
  const bool reserved = kind == Kind::kReserved;
  const int access = reserved ? PROT_NONE : PROT_READ | PROT_WRITE;
  const int behind = reserved ? MAP_NORESERVE : kind == Kind::kTouched ? MAP_POPULATE : 0;
  void* const address = mmap(nullptr, mapped_bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | behind, -1, 0);
  if (address == MAP_FAILED) {
    return std::nullopt;
  }
  const auto begin = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
  const AddressRange range{.begin = round_up(begin, alignment), .bytes = bytes};
  const std::uint64_t end = round_up(range.end(), kPageBytes);
  unmap({.begin = begin, .bytes = range.begin - begin});
  unmap({.begin = end, .bytes = begin + mapped_bytes - end});
  return Mapping({.begin = range.begin, .bytes = end - range.begin}, range);
}

Mapping::Mapping(Mapping&& other) noexcept
    : mapped_(std::exchange(other.mapped_, {})), range_(std::exchange(other.range_, {})) {}

AddressRange Mapping::release() {
  mapped_ = {};
  return std::exchange(range_, {});
}

Mapping::~Mapping() {
  unmap(mapped_);
}

void prefer_node(AddressRange range, int node) noexcept {
  constexpr unsigned kBits = std::numeric_limits<unsigned long>::digits;
  std::array<unsigned long, 16> nodes{};
  if (node < 0 || static_cast<unsigned>(node) >= kBits * nodes.size()) {
    return;
  }
  nodes[static_cast<unsigned>(node) / kBits] = 1UL << (static_cast<unsigned>(node) % kBits);
  // Called by number, since the C library has no mbind(). The kernel reads one bit less than the
  // last-but-one argument specifies.
  syscall(SYS_mbind, range.begin, range.bytes, MPOL_PREFERRED, nodes.data(), kBits * nodes.size() + 1, 0);
}

void prefer_huge_pages(AddressRange range) noexcept {
  const std::uint64_t begin = round_up(range.begin, kHugePageBytes);
  const std::uint64_t end = range.end() / kHugePageBytes * kHugePageBytes;
  if (begin < end) {
    madvise(pointer_to<void>(begin), end - begin, MADV_HUGEPAGE);
  }
}

void touch_pages(AddressRange range, unsigned threads) {
  const std::uint64_t part_bytes = round_up(range.bytes / std::max(threads, 1U) + 1, kHugePageBytes);
  std::vector<std::thread> others;
  std::uint64_t at = range.begin;
  try {
    while (range.end() - at > part_bytes) {
      others.emplace_back(touch_part, AddressRange{.begin = at, .bytes = part_bytes});
      at += part_bytes;
    }
  } catch (const std::exception&) {
    // The system has no more threads, or no memory for a thread: this thread touches the rest.
  }
  touch_part({.begin = at, .bytes = range.end() - at});
  std::ranges::for_each(others, [](std::thread& each) { each.join(); });
}

void touch_pages(AddressRange range) {
  touch_pages(range, touching_threads(range.bytes, std::thread::hardware_concurrency()));
}

unsigned touching_threads(std::uint64_t bytes, unsigned processors) {
  constexpr std::uint64_t kWorthAThread = std::uint64_t{64} << 20;
  return static_cast<unsigned>(std::clamp<std::uint64_t>(bytes / kWorthAThread, 1, std::max(processors, 1U)));
}

}  // namespace vdnn
