#pragma once
// A hash table from offsets to indices: open addressing with linear probing, at most half full. Deletion
// shifts later entries back (Knuth, "The Art of Computer Programming", volume 3, 6.4, algorithm R), so it
// leaves no tombstones. Once the table has had its largest size, it needs no more memory.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace vdnn {

// Not synchronised.
class OffsetTable {
 public:
  using Index = std::uint32_t;

  std::size_t size() const { return size_; }

  // Afterwards, insert() needs no memory as long as there are no more than `count` entries.
  void reserve(std::size_t count) {
    if (2 * count > slots_.size()) {
      std::vector<Slot> before(std::bit_ceil(std::max<std::size_t>(4 * count, 16)));
      std::swap(slots_, before);
      for (const Slot& slot : before) {
        if (slot.index != kEmpty) {
          slots_[place_for(slot.offset)] = slot;
        }
      }
    }
  }
  // `offset` must not be in the table. Call reserve() first.
  void insert(std::uint64_t offset, Index index) {
    slots_[place_for(offset)] = {.offset = offset, .index = index};
    ++size_;
  }
  std::optional<Index> find(std::uint64_t offset) const {
    if (size_ == 0) {
      return std::nullopt;
    }
    const Slot& slot = slots_[place_for(offset)];
    return slot.index == kEmpty ? std::nullopt : std::optional(slot.index);
  }
  // `offset` must be in the table.
  void erase(std::uint64_t offset) {
    std::size_t hole = place_for(offset);
    for (std::size_t at = next(hole); slots_[at].index != kEmpty; at = next(at)) {
      // An entry may move into a hole that lies between its home and itself.
      if (distance(home_of(slots_[at].offset), at) >= distance(hole, at)) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = {};
    --size_;
  }

 private:
  static constexpr Index kEmpty = ~Index{0};
  struct Slot {
    std::uint64_t offset = 0;
    Index index = kEmpty;
  };

  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  std::size_t distance(std::size_t from, std::size_t to) const { return (to - from) & (slots_.size() - 1); }
  std::size_t home_of(std::uint64_t offset) const {
    return static_cast<std::size_t>((offset * 0x9e3779b97f4a7c15ULL) >> (65 - std::bit_width(slots_.size())));
  }
  // The slot where `offset` is, or where it would be inserted.
  std::size_t place_for(std::uint64_t offset) const {
    std::size_t at = home_of(offset);
    while (slots_[at].index != kEmpty && slots_[at].offset != offset) {
      at = next(at);
    }
    return at;
  }

  std::vector<Slot> slots_;  // their number is a power of two
  std::size_t size_ = 0;
};

}  // namespace vdnn
