#pragma once
// Notices for the user of a stash. Each is given once, however many tensors it concerns. The text is made
// when it is requested, so that noting takes no memory.

#include <cstdint>
#include <string>

namespace vdnn::stash {

// Not synchronised.
class StashNotices {
 public:
  // No page-locked memory was left for a tensor of `tensor_bytes`, which stays.
  void note_host_exhausted(std::uint64_t tensor_bytes) { host_exhausted_.note(tensor_bytes); }
  // A step needs `needed_bytes` at its peak even with its plan, more than the budget.
  void note_budget_exceeded(std::uint64_t needed_bytes) { budget_exceeded_.note(needed_bytes); }

  bool is_pending() const { return host_exhausted_.is_pending() || budget_exceeded_.is_pending(); }
  // The text of a pending notice, empty if there is none. The notice counts as given if the text fits into
  // `capacity` characters.
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
