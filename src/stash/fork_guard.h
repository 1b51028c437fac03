#pragma once
// Determines whether this process created the object or is a child of fork(). In a child, the threads, locks
// and streams of the parent do not exist.
//
// The kernel clears a page in the child (MADV_WIPEONFORK, Linux 4.14), so a check costs one load. Older
// kernels and some sandboxes refuse MADV_WIPEONFORK. There, the check compares process ids, which costs a
// system call.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace vdnn::stash {

class ForkGuard {
 public:
  using Advise = int (*)(void* address, std::size_t bytes, int advice);

  ForkGuard();
  // `advise` is called in place of madvise().
  explicit ForkGuard(Advise advise);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool is_in_child() const { return is_parent_ != nullptr ? *is_parent_ == 0 : is_another_process(); }

 private:
  bool is_another_process() const;

  const pid_t parent_;
  // A number other than 0 in a page that fork() clears in the child; null if there is no such page.
  volatile std::uint64_t* is_parent_;
};

}  // namespace vdnn::stash
