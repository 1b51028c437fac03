#pragma once
// Notices for the user of a stash. Each notice is reported once, for any number of tensors. Its text is
// composed when it is requested, so that the note functions allocate nothing.

#include <cstdint>
#include <string>

namespace vdnn::stash {

// Not synchronised.
class StashNotices {
 public:
  // Call it when no page-locked memory is left for a tensor of `tensor_bytes`, which therefore stays on the
  // device.
  void note_host_exhausted(std::uint64_t tensor_bytes) { host_exhausted_.note(tensor_bytes); }
  // Call it when a step exceeds the budget even with its plan, and needs a peak of `needed_bytes`.
  void note_budget_exceeded(std::uint64_t needed_bytes) { budget_exceeded_.note(needed_bytes); }

  bool is_pending() const { return host_exhausted_.is_pending() || budget_exceeded_.is_pending(); }
  // Returns the text of a pending notice, empty if there is none. The notice counts as reported if `capacity`
  // characters suffice for the text.
  std::string take(std::uint64_t host_bytes, std::uint64_t budget_bytes, std::size_t capacity);

 private:
  class Notice {
   public:
    void note(std::uint64_t bytes) {
      if (state_ == State::kNone) {
        state_ = State::kPending;
        bytes_ = bytes;
      }
    }
    void tell() { state_ = State::kTold; }
    bool is_pending() const { return state_ == State::kPending; }
    std::uint64_t bytes() const { return bytes_; }

   private:
    enum class State : std::uint8_t { kNone, kPending, kTold };

    State state_ = State::kNone;
    std::uint64_t bytes_ = 0;
  };

  Notice host_exhausted_;
  Notice budget_exceeded_;
};

}  // namespace vdnn::stash
