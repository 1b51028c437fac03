#pragma once
// A scope for consecutive calls of a stash's backend on one thread, while the stash is locked.

#include "vdnn/stash_backend.h"

namespace vdnn::stash {

class BackendCalls {
 public:
  // Throws if the backend cannot enter its device; nothing has been submitted then.
  explicit BackendCalls(StashBackend& backend) : backend_(backend) { backend_.begin_calls(); }
  ~BackendCalls() { backend_.end_calls(); }
  BackendCalls(const BackendCalls&) = delete;
  BackendCalls& operator=(const BackendCalls&) = delete;

 private:
  StashBackend& backend_;
};

}  // namespace vdnn::stash
