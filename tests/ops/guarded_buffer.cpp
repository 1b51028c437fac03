#include "tests/ops/guarded_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "vdnn/size.h"

namespace vdnn::testing {

namespace {

constexpr std::byte kSlack{0xA5};
constexpr std::byte kPoison{0xFF};  // four of these bytes are a NaN

void check(bool success, const char* what) {
  if (!success) {
    throw std::system_error(errno, std::generic_category(), what);
  }
}

}  // namespace

GuardedBuffer::GuardedBuffer(std::size_t bytes, std::size_t shift) : bytes_(bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t used = round_up(bytes, kAlignment) + shift * kAlignment;
  page_bytes_ = round_up(std::max<std::size_t>(used, 1), page);
  mapped_bytes_ = page_bytes_ + 2 * page;
  void* const mapping = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(mapping != MAP_FAILED, "mmap");
  mapping_ = static_cast<std::byte*>(mapping);
  pages_ = mapping_ + page;
  check(mprotect(pages_, page_bytes_, PROT_READ | PROT_WRITE) == 0, "mprotect");
  begin_ = pages_ + page_bytes_ - used;
  std::memset(pages_, static_cast<int>(kSlack), page_bytes_);
  poison();
}

GuardedBuffer::~GuardedBuffer() {
  munmap(mapping_, mapped_bytes_);
}

AddressRange GuardedBuffer::range() const {
  return {.begin = reinterpret_cast<std::uintptr_t>(begin_), .bytes = bytes_};
}

void GuardedBuffer::poison() {
  std::memset(begin_, static_cast<int>(kPoison), bytes_);
}

void GuardedBuffer::set_read_only(bool read_only) {
  check(mprotect(pages_, page_bytes_, read_only ? PROT_READ : PROT_READ | PROT_WRITE) == 0, "mprotect");
}

bool GuardedBuffer::slack_is_intact() const {
  const auto intact = [](const std::byte* begin, const std::byte* end) {
    return std::all_of(begin, end, [](std::byte byte) { return byte == kSlack; });
  };
  return intact(pages_, begin_) && intact(begin_ + bytes_, pages_ + page_bytes_);
}

}  // namespace vdnn::testing
