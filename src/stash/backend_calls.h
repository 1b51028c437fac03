#pragma once
// A scope for consecutive calls of the stash's backend by one thread that has locked the stash.

#include "vdnn/stash_backend.h"

namespace vdnn::stash {

class BackendCalls {
 public:
  // Throws if the backend cannot enter its device, before anything is submitted.
  explicit BackendCalls(StashBackend& backend) : backend_(backend) { backend_.begin_calls(); }
  ~BackendCalls() { backend_.end_calls(); }
  BackendCalls(const BackendCalls&) = delete;
  BackendCalls& operator=(const BackendCalls&) = delete;

 private:
  StashBackend& backend_;
};

}  // namespace vdnn::stash
