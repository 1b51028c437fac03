#pragma once
// Owns an event of a stash's backend. The destructor releases the event.

#include <utility>

#include "vdnn/stash_backend.h"

namespace vdnn::stash {

class StashEvent {
 public:
  StashEvent() = default;
  // The backend must outlive the event.
  StashEvent(StashBackend& backend, EventHandle event) : backend_(&backend), event_(event) {}
  StashEvent(StashEvent&& other) noexcept
      : backend_(std::exchange(other.backend_, nullptr)), event_(other.event_) {}
  StashEvent& operator=(StashEvent&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~StashEvent() {
    if (backend_ != nullptr) {
      backend_->release(event_);
    }
  }

  explicit operator bool() const { return backend_ != nullptr; }
  EventHandle get() const { return event_; }

 private:
  StashBackend* backend_ = nullptr;
  EventHandle event_ = nullptr;
};

inline StashEvent record(StashBackend& backend, StreamHandle stream) {
  return {backend, backend.record(stream)};
}

}  // namespace vdnn::stash
