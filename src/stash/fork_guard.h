#pragma once
// Whether the process is the one that made the object, or a child of fork(), in which threads, locks and
// streams of the parent are not there. The system clears a page in the child (MADV_WIPEONFORK, Linux 4.14),
// so that asking costs a load.

#include <cstdint>

namespace vdnn::stash {

class ForkGuard {
 public:
  // Throws OutOfMemory where the system has no page.
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool is_in_child() const { return *parent_ == 0; }

 private:
  volatile std::uint64_t* parent_;  // 1 in the parent
};

}  // namespace vdnn::stash
