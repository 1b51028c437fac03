#pragma once
// Maps an offset to the record of the block that begins there. Every free begins with this look-up, so it
// needs neither a lock nor a search. The table has two levels: leaves, and within a leaf one slot per unit. A
// leaf is made with its first block. Entries are read at any time and written under the pool's lock.

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "allocator/zeroed.h"
#include "vdnn/frontier.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

struct PoolStream;

// The record of a block that is not free in the bookkeeping of offsets. Members other than the state may be
// changed only by the thread that has made the block busy, or under the lock that guards the block.
struct alignas(64) BlockRecord {
  enum State : std::uint64_t {
    kFree,    // the record represents no block
    kInUse,   // handed out
    kShared,  // handed out, and used by further streams
    kBusy,    // claimed by one thread
    kCached,  // in the cache of its owner, whose lock guards it
  };
  // The state together with the offset, so that an address that was freed long ago is never mistaken for the
  // record's present block.
  static constexpr std::uint64_t tag(std::uint64_t offset, State state) { return (offset << 3) | state; }
  State state() const { return static_cast<State>(tagged.load(std::memory_order_relaxed) & 7); }
  std::uint64_t offset() const { return tagged.load(std::memory_order_relaxed) >> 3; }
  bool change(std::uint64_t at, State from, State to) {
    std::uint64_t expected = tag(at, from);
    return tagged.compare_exchange_strong(expected, tag(at, to), std::memory_order_acq_rel,
                                          std::memory_order_relaxed);
  }
  // Call it only from the thread that has made the block busy, or under the lock that guards the block.
  void become(State state) { tagged.store(tag(offset(), state), std::memory_order_release); }

  std::atomic<std::uint64_t> tagged{0};
  PoolStream* owner = nullptr;  // the stream that it was allocated for
  BlockRecord* next = nullptr;  // in a cache, or in the list of spare records
  std::uint64_t bytes = 0;
  std::uint64_t requested = 0;
  // The owner's point after the last use, set when the block enters the cache; its count is 0 if the block
  // has never been in a cache.
  Point freed_at() const { return {.stream = freed_number, .count = freed_count}; }
  std::uint64_t freed_count = 0;
  std::uint32_t freed_number = 0;
  std::uint32_t size_class = 0;
  BlockKind kind = BlockKind::kSmall;
  bool has_readers = false;  // while busy: whether used_on() has named further streams
};

class BlockTable {
 public:
  // A table for offsets below `bytes` that are multiples of `unit`. A leaf covers `leaf` bytes of offsets
  // and is allocated as a whole. `leaf` and `unit` are powers of two.
  BlockTable(std::uint64_t bytes, std::uint64_t leaf, std::uint64_t unit)
      : unit_bits_(static_cast<unsigned>(std::countr_zero(unit))),
        leaf_bits_(static_cast<unsigned>(std::countr_zero(leaf))),
        leaves_(zeroed<Leaf>((bytes + leaf - 1) >> leaf_bits_)),
        count_((bytes + leaf - 1) >> leaf_bits_) {}
  ~BlockTable() {
    for (std::uint64_t i = 0; i < count_; ++i) {
      std::free(leaves_[i].slots);
    }
  }
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // The record of the block that begins at `offset` (less than `bytes`), or null. Any thread may call it.
  BlockRecord* find(std::uint64_t offset) const {
    if ((offset & ((std::uint64_t{1} << unit_bits_) - 1)) != 0) {
      return nullptr;
    }
    Slot* const slots = std::atomic_ref(leaves_[offset >> leaf_bits_].slots).load(std::memory_order_acquire);
    return slots == nullptr ? nullptr
                            : std::atomic_ref(slots[index_of(offset)].record).load(std::memory_order_acquire);
  }
  // Makes sure that set() at this offset needs no memory.
  void prepare(std::uint64_t offset) {
    const std::atomic_ref slots(leaves_[offset >> leaf_bits_].slots);
    if (slots.load(std::memory_order_relaxed) == nullptr) {
      slots.store(zeroed<Slot>(std::uint64_t{1} << (leaf_bits_ - unit_bits_)).release(),
                  std::memory_order_release);
    }
  }
  void set(std::uint64_t offset, BlockRecord* record) {
    std::atomic_ref(leaves_[offset >> leaf_bits_].slots[index_of(offset)].record)
        .store(record, std::memory_order_release);
  }

 private:
  struct Slot {
    BlockRecord* record;
  };
  struct Leaf {
    Slot* slots;
  };
  std::uint64_t index_of(std::uint64_t offset) const {
    return (offset & ((std::uint64_t{1} << leaf_bits_) - 1)) >> unit_bits_;
  }

  unsigned unit_bits_;
  unsigned leaf_bits_;
  Zeroed<Leaf> leaves_;
  std::uint64_t count_;
};

}  // namespace vdnn
