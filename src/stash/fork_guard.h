#pragma once
// Tells whether this process made the object or is a child of fork(), in which threads, locks and streams of
// the parent do not exist.
//
// The system clears a page in the child (MADV_WIPEONFORK, Linux 4.14), so that asking costs one load. Older
// kernels and some sandboxes refuse that; there, process ids are compared, which costs a system call.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace vdnn::stash {

class ForkGuard {
 public:
  using Advise = int (*)(void* address, std::size_t bytes, int advice);

  ForkGuard();
  // `advise` stands for madvise().
  explicit ForkGuard(Advise advise);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool is_in_child() const { return is_parent_ != nullptr ? *is_parent_ == 0 : is_another_process(); }

 private:
  bool is_another_process() const;

  const pid_t parent_;
  // Lies in a page that a child finds cleared; null: there is no such page.
  volatile std::uint64_t* is_parent_;
};

}  // namespace vdnn::stash
