#pragma once
// The step under way: its tensors and events so far, as they will be recorded, and the known kinds that it
// matches.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/stash/known_steps.h"
#include "src/stash/learned_step.h"
#include "src/stash/stashed_tensor.h"

namespace vdnn::stash {

// Not synchronised. Ignores tensors of other steps.
class StepUnderWay {
 public:
  using Clock = std::chrono::steady_clock;

  // Begins a step without tensors. `page_locks`: the number of page-locks so far.
  StepUnderWay(std::uint64_t serial, std::uint64_t page_locks, Clock::time_point begin)
      : serial_(serial), page_locks_before_(page_locks), begin_(begin) {}

  // After these calls, one add() or one add_read() allocates nothing.
  void make_room_for_save();
  void make_room_for_read();

  // The properties by which later steps recognise a tensor.
  static StepTensor describe(const StashedTensor& tensor) {
    return {.bytes = tensor.bytes(), .signature = tensor.saved.signature};
  }
  void add(StashHandle handle, const StashedTensor& tensor, const BytesInUse& with_all) {
    record_.tensors.push_back(describe(tensor));
    handles_.push_back(handle);
    add_event(StepEvent::Kind::kSave, tensor.index, with_all);
    ++live_;
    second_largest_ = std::max(second_largest_, std::min(largest_, tensor.bytes()));
    largest_ = std::max(largest_, tensor.bytes());
  }
  void add_read(const StashedTensor& tensor, const BytesInUse& with_all, bool ends_pass) {
    if (has(tensor)) {
      add_event(StepEvent::Kind::kRead, tensor.index, with_all);
      record_.events.back().ends_pass = ends_pass;
      ++reads_;
    }
  }
  // Call note_let_go() when the caller releases a target after the last read of a pass, and note_back() if
  // the tensor comes back for another pass. The bytes in use that were reported in between did not include
  // the tensor, except perhaps those of the first event.
  void note_let_go(StashedTensor& tensor) { tensor.let_go_after = has(tensor) ? record_.events.size() : 0; }
  void note_back(StashedTensor& tensor) {
    const std::size_t after = std::exchange(tensor.let_go_after, 0);
    if (has(tensor) && after > 0 && after + 1 < record_.events.size()) {
      gaps_.push_back({.begin = after + 1, .end = record_.events.size(), .bytes = tensor.bytes()});
    }
  }
  void mark_staying(const StashedTensor& tensor) {
    if (has(tensor)) {
      record_.tensors[tensor.index].stays = true;
    }
  }
  // Records that something other than the graph holds the tensor.
  void mark_held(const StashedTensor& tensor) {
    if (has(tensor)) {
      record_.tensors[tensor.index].held_until = record_.events.size();
    }
  }
  // Records that the tensor's last handle is dropped. Returns whether this ends the step.
  bool drop(const StashedTensor& tensor) {
    if (!has(tensor)) {
      return false;
    }
    record_.tensors[tensor.index].dropped_after = record_.events.size();
    if (tensor.is_held) {
      mark_held(tensor);
    }
    return --live_ == 0;
  }
  // Reduces the step to the tensors from `first_tensor` on, and to their events from `first_event` on.
  void keep_from(std::size_t first_tensor, std::size_t first_event);
  void end(Clock::time_point now) {
    record_.nanoseconds = nanoseconds_until(now);
    count_gaps();
  }
  void note_in_use(std::uint64_t bytes) { peak_bytes_ = std::max(peak_bytes_, bytes); }
  void note_late() { ++late_; }
  // Counts a tensor that stays on the device because there is no host memory for it.
  void note_refused() { ++refused_; }
  // Call it when the step matches these kinds. The step then follows the plan of one of them or, if the list
  // is empty, has diverged.
  void follow(const AlikeKinds& alike) {
    alike_ = alike;
    follow(alike.best(kind_));
  }

  std::uint64_t serial() const { return serial_; }
  const StepRecord& record() const { return record_; }
  const std::vector<StashHandle>& handles() const { return handles_; }  // by tensor
  std::uint64_t live() const { return live_; }                          // number of tensors with handles
  bool is_at_turn() const {  // whether a save, if it comes next, turns from reading to saving
    return !record_.events.empty() && record_.events.back().kind == StepEvent::Kind::kRead;
  }
  std::size_t reads() const { return reads_; }  // number of reads so far
  // The kind that the step matches and whose plan it follows; null: none.
  const KnownStep* kind() const { return kind_; }
  const AlikeKinds& alike() const { return alike_; }
  // Whether the holders of tensors are watched. They are in the first two steps of a kind, since the kind
  // keeps the figures of its first repetition.
  bool is_watched() const { return kind_ == nullptr || kind_->repeats == 0; }
  bool has(const StashedTensor& tensor) const { return tensor.step == serial_; }
  std::uint64_t late() const { return late_; }
  std::uint64_t refused() const { return refused_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }  // peak of the bytes in use
  std::uint64_t page_locks_before() const { return page_locks_before_; }
  // The bytes of the step's largest tensor.
  std::uint64_t largest() const { return largest_; }
  std::uint64_t two_largest() const { return largest_ + second_largest_; }

 private:
  // Events [begin, end) between two passes, in which a tensor was not on the device.
  struct Gap {
    std::size_t begin;
    std::size_t end;
    std::uint64_t bytes;
  };

  // Adds the bytes of gaps to the bytes in use of their events.
  void count_gaps();
  void follow(const KnownStep* kind) {
    if (kind == nullptr && kind_ != nullptr) {
      inherit_holders(kind_->record.tensors, record_.tensors);
    }
    kind_ = kind;
  }
  std::uint64_t nanoseconds_until(Clock::time_point now) const {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - begin_).count());
  }
  void add_event(StepEvent::Kind kind, std::uint32_t tensor, const BytesInUse& with_all) {
    record_.events.push_back({.kind = kind,
                              .tensor = tensor,
                              .in_use_bytes = with_all.most,
                              .at_event_bytes = with_all.at_event,
                              .nanoseconds = nanoseconds_until(Clock::now())});
  }

  std::uint64_t serial_;
  std::uint64_t page_locks_before_;
  Clock::time_point begin_;
  StepRecord record_;
  std::vector<StashHandle> handles_;
  std::vector<Gap> gaps_;  // at most one for each read
  AlikeKinds alike_;
  const KnownStep* kind_ = nullptr;
  std::uint64_t live_ = 0;  // number of tensors with handles
  std::size_t reads_ = 0;
  std::uint64_t late_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::uint64_t largest_ = 0;
  std::uint64_t second_largest_ = 0;
};

}  // namespace vdnn::stash
