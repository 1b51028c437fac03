#include "src/stash/fork_guard.h"

#include <sys/mman.h>

#include "streams/mapping.h"
#include "vdnn/error.h"

namespace vdnn::stash {

ForkGuard::ForkGuard() {
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, kPageBytes, MADV_WIPEONFORK) != 0) {
    throw OutOfMemory("stash: a page that fork() clears", {.asked = kPageBytes});
  }
  parent_ = static_cast<volatile std::uint64_t*>(page);
  *parent_ = 1;
}

ForkGuard::~ForkGuard() {
  munmap(const_cast<std::uint64_t*>(parent_), kPageBytes);
}

}  // namespace vdnn::stash
