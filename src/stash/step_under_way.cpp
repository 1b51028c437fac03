#include "src/stash/step_under_way.h"

#include <algorithm>
#include <utility>

namespace vdnn::stash {

namespace {

// After this call, push_back() allocates no memory until there are more than `size` elements.
template <class T>
void make_room_for(std::size_t size, std::vector<T>& vector) {
  constexpr std::size_t kFirst = 16;
  if (vector.capacity() < size) {
    vector.reserve(std::max(kFirst, 2 * size));
  }
}

template <class T>
void make_room(std::vector<T>& vector) {
  make_room_for(vector.size() + 1, vector);
}

}  // namespace

void StepUnderWay::make_room_for_save() {
  make_room(record_.tensors);
  make_room(record_.events);
  make_room(handles_);
}

void StepUnderWay::make_room_for_read() {
  make_room(record_.events);
  make_room_for(reads_ + 1, gaps_);
}

void StepUnderWay::count_gaps() {
  if (gaps_.empty()) {
    return;
  }
  // Changes may be negative; unsigned sums wrap around to the right result.
  std::vector<std::uint64_t> changes(record_.events.size() + 1, 0);
  for (const Gap& gap : std::exchange(gaps_, {})) {
    changes[gap.begin] += gap.bytes;
    changes[gap.end] -= gap.bytes;
  }
  std::uint64_t away = 0;
  for (std::size_t i = 0; i < record_.events.size(); ++i) {
    away += changes[i];
    record_.events[i].in_use_bytes += away;
    record_.events[i].at_event_bytes += away;
  }
}

void StepUnderWay::keep_from(std::size_t first_tensor, std::size_t first_event) {
  count_gaps();
  std::vector<StepEvent> events;
  std::vector<std::size_t> kept_before;  // by event: the number of earlier events that are kept
  const std::uint64_t begin = record_.events[first_event].nanoseconds;
  for (std::size_t i = 0; i < record_.events.size(); ++i) {
    kept_before.push_back(events.size());
    StepEvent event = record_.events[i];
    if (i >= first_event && event.tensor >= first_tensor) {
      event.tensor -= static_cast<std::uint32_t>(first_tensor);
      event.nanoseconds -= begin;
      events.push_back(event);
    }
  }
  kept_before.push_back(events.size());
  std::vector<StepTensor> tensors(record_.tensors.begin() + static_cast<std::ptrdiff_t>(first_tensor),
                                  record_.tensors.end());
  for (StepTensor& tensor : tensors) {
    tensor.held_until = kept_before[tensor.held_until];
    if (tensor.dropped_after < kept_before.size()) {
      tensor.dropped_after = kept_before[tensor.dropped_after];
    }
  }
  handles_.erase(handles_.begin(), handles_.begin() + static_cast<std::ptrdiff_t>(first_tensor));
  begin_ += std::chrono::nanoseconds(begin);
  alike_ = {};
  kind_ = nullptr;
  record_ = {.tensors = std::move(tensors), .events = std::move(events)};
}

}  // namespace vdnn::stash
