#include "allocator/stream_numbers.h"

#include <limits>
#include <mutex>

#include "allocator/vector_room.h"

namespace vdnn {

void StreamNumbers::give(PoolStream& stream) {
  if (free_numbers_.empty()) {
    make_room(free_numbers_, numbers_.size() + 1);
    done_.widen(numbers_.size() + 1);
    reached_.widen(numbers_.size() + 1);
    numbers_.emplace_back();
    free_numbers_.push_back(static_cast<StreamId>(numbers_.size() - 1));
  }
  const StreamId number = free_numbers_.back();
  stream.known.widen(std::size_t{number} + 1);
  free_numbers_.pop_back();
  numbers_[number].stream = &stream;
  stream.known.set(number, std::numeric_limits<std::uint64_t>::max());
  const std::lock_guard lock(stream.mutex);
  stream.number = number;
  stream.epoch = numbers_[number].count;
  stream.keeps_cache = true;
}

void StreamNumbers::take_back(PoolStream& stream) {
  if (stream.number == 0) {
    return;
  }
  const std::lock_guard lock(stream.mutex);
  numbers_[stream.number] = {.stream = nullptr, .count = stream.epoch};
  stream.known.set(stream.number, stream.epoch);
  free_numbers_.push_back(stream.number);  // give() reserved space
  stream.number = 0;
  stream.keeps_cache = false;
  stream.freed_in_epoch = false;
}

PoolStream* StreamNumbers::next_in_turn() {
  hand_ = hand_ + 1 < numbers_.size() ? hand_ + 1 : 1;
  return numbers_[hand_].stream;
}

}  // namespace vdnn
