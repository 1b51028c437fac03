#include "src/stash/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include "streams/mapping.h"

namespace vdnn::stash {

namespace {

int system_advise(void* address, std::size_t bytes, int advice) {
  return madvise(address, bytes, advice);
}

// Returns null if the system has no free page or cannot clear a page in children.
volatile std::uint64_t* make_page_that_fork_clears(ForkGuard::Advise advise) {
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return nullptr;
  }
  if (advise(page, kPageBytes, MADV_WIPEONFORK) != 0) {
    munmap(page, kPageBytes);
    return nullptr;
  }
  return static_cast<volatile std::uint64_t*>(page);
}

}  // namespace

ForkGuard::ForkGuard() : ForkGuard(&system_advise) {}

ForkGuard::ForkGuard(Advise advise) : parent_(getpid()), is_parent_(make_page_that_fork_clears(advise)) {
  if (is_parent_ != nullptr) {
    *is_parent_ = 1;
  }
}

ForkGuard::~ForkGuard() {
  if (is_parent_ != nullptr) {
    munmap(const_cast<std::uint64_t*>(is_parent_), kPageBytes);
  }
}

bool ForkGuard::is_another_process() const {
  return getpid() != parent_;
}

}  // namespace vdnn::stash
