#pragma once
// From an address to what is known of the block that begins there: without a lock and without a search, since
// every free begins with it. A table of two levels, by leaf and by unit within it, made as blocks turn up;
// its entries are read at any time and written under the pool's lock.

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "allocator/zeroed.h"
#include "vdnn/frontier.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

struct PoolStream;

// A block that is not free in the bookkeeping of offsets. Whoever makes it busy, one thread at most, may
// change the rest.
struct alignas(64) BlockRecord {
  enum State : std::uint64_t {
    kFree,    // not in use; nobody has it
    kInUse,   // handed out
    kShared,  // handed out, and used by further streams
    kBusy,
    kCached,  // in the cache of its owner, whose lock guards it
  };
  // So that an address that was freed long ago is never taken for the block that the record stands for now.
  static constexpr std::uint64_t tag(std::uint64_t offset, State state) { return (offset << 3) | state; }
  State state() const { return static_cast<State>(tagged.load(std::memory_order_relaxed) & 7); }
  std::uint64_t offset() const { return tagged.load(std::memory_order_relaxed) >> 3; }
  bool change(std::uint64_t at, State from, State to) {
    std::uint64_t expected = tag(at, from);
    return tagged.compare_exchange_strong(expected, tag(at, to), std::memory_order_acq_rel,
                                          std::memory_order_relaxed);
  }
  // By whoever may.
  void become(State state) { tagged.store(tag(offset(), state), std::memory_order_release); }

  std::atomic<std::uint64_t> tagged{0};
  PoolStream* owner = nullptr;  // that it was allocated for
  BlockRecord* next = nullptr;  // in a cache, or among the spare ones
  std::uint64_t bytes = 0;
  std::uint64_t requested = 0;
  // The owner's point after the last uses that put it into the cache; its count is 0 where it never was
  // there.
  Point freed_at() const { return {.stream = freed_number, .count = freed_count}; }
  std::uint64_t freed_count = 0;
  std::uint32_t freed_number = 0;
  std::uint32_t size_class = 0;
  BlockKind kind = BlockKind::kSmall;
  bool has_readers = false;  // other streams than the owner, known to the pool; while busy
};

class BlockTable {
 public:
  // Of offsets below `bytes`; leaf, what is entered as a whole, and unit are powers of two.
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

  // Of the block that begins at `offset` (less than `bytes`), or null.
  BlockRecord* find(std::uint64_t offset) const {
    if ((offset & ((std::uint64_t{1} << unit_bits_) - 1)) != 0) {
      return nullptr;
    }
    Slot* const slots = std::atomic_ref(leaves_[offset >> leaf_bits_].slots).load(std::memory_order_acquire);
    return slots == nullptr ? nullptr
                            : std::atomic_ref(slots[index_of(offset)].record).load(std::memory_order_acquire);
  }
  // Makes sure that set() needs no memory.
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
