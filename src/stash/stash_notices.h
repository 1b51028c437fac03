#pragma once
// Notices for the user of a stash. Each notice is reported once, for any number of tensors. Its text is
// composed when it is requested, so that the note functions allocate nothing.

#include <cstdint>
#include <string>

namespace vdnn::stash {

// Not synchronised.
class StashNotices {
 public:
  // Call it when the host budget has no memory left for a tensor of `tensor_bytes`, which therefore stays on
  // the device.
  void note_host_exhausted(std::uint64_t tensor_bytes) { host_exhausted_.note(tensor_bytes); }
  // Call it when the tensor stays because the system refused to page-lock memory within the budget.
  // `locked_bytes`: the stash's page-locked memory.
  void note_host_refused(std::uint64_t tensor_bytes, std::uint64_t locked_bytes) {
    host_refused_.note(tensor_bytes, locked_bytes);
  }
  // Call it when a step exceeds the budget even with its plan, and needs a peak of `needed_bytes`.
  void note_budget_exceeded(std::uint64_t needed_bytes) { budget_exceeded_.note(needed_bytes); }

  bool is_pending() const {
    return host_exhausted_.is_pending() || host_refused_.is_pending() || budget_exceeded_.is_pending();
  }
  // Returns the text of a pending notice, empty if there is none. The notice counts as reported if `capacity`
  // characters suffice for the text.
  std::string take(std::uint64_t host_bytes, std::uint64_t budget_bytes, std::size_t capacity);

 private:
  class Notice {
   public:
    void note(std::uint64_t bytes, std::uint64_t locked_bytes = 0) {
      if (state_ == State::kNone) {
        state_ = State::kPending;
        bytes_ = bytes;
        locked_bytes_ = locked_bytes;
      }
    }
    void tell() { state_ = State::kTold; }
    bool is_pending() const { return state_ == State::kPending; }
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t locked_bytes() const { return locked_bytes_; }

   private:
    enum class State : std::uint8_t { kNone, kPending, kTold };

    State state_ = State::kNone;
    std::uint64_t bytes_ = 0;
    std::uint64_t locked_bytes_ = 0;
  };

  Notice& first_pending();

  Notice host_exhausted_;
  Notice host_refused_;
  Notice budget_exceeded_;
};

}  // namespace vdnn::stash
