#pragma once
// The blocks that a stream has freed and may reuse unchanged: one stack per size class. Reuse needs no
// event, since a stream's work runs in order, and no search, since a block belongs to one class.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/block_table.h"
#include "allocator/size_classes.h"

namespace vdnn {

// Not synchronised.
class StreamCache {
 public:
  std::uint64_t bytes() const { return bytes_; }

  void push(BlockRecord& record) {
    record.next = heads_[record.size_class];
    heads_[record.size_class] = &record;
    filled_[record.size_class / 64] |= bit(record.size_class);
    bytes_ += record.bytes;
  }
  // The block of the class that was freed last, or null.
  BlockRecord* pop(unsigned size_class) {
    BlockRecord* const record = heads_[size_class];
    if (record == nullptr) {
      return nullptr;
    }
    heads_[size_class] = record->next;
    if (record->next == nullptr) {
      filled_[size_class / 64] &= ~bit(size_class);
    }
    bytes_ -= record->bytes;
    return record;
  }
  // A block of any class except `but`, from the next class in turn; null if there is none.
  BlockRecord* pop_any(unsigned but = SizeClasses::kClasses) {
    for (std::size_t looked = 0; looked <= filled_.size(); ++looked) {
      std::uint64_t classes = filled_[turn_ / 64] & (~std::uint64_t{0} << (turn_ % 64));
      if (but / 64 == turn_ / 64) {
        classes &= ~bit(but);
      }
      if (classes != 0) {
        const auto found = turn_ / 64 * 64 + static_cast<unsigned>(std::countr_zero(classes));
        turn_ = (found + 1) % SizeClasses::kClasses;
        return pop(found);
      }
      turn_ = (turn_ / 64 + 1) * 64 % SizeClasses::kClasses;
    }
    return nullptr;
  }

 private:
  static std::uint64_t bit(unsigned size_class) { return std::uint64_t{1} << (size_class % 64); }

  static_assert(SizeClasses::kClasses % 64 == 0);
  std::array<BlockRecord*, SizeClasses::kClasses> heads_{};
  std::array<std::uint64_t, SizeClasses::kClasses / 64> filled_{};
  std::uint64_t bytes_ = 0;
  unsigned turn_ = 0;
};

}  // namespace vdnn
