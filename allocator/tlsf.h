#pragma once
// Offset bookkeeping: which parts of [0, end) are in use. It never accesses the memory; the range grows at
// its end.
//
// The algorithm is TLSF (Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems",
// 2004). Free blocks are listed by size. The first level of size classes is the power of two; the second
// divides each power into 32 equal steps. One bitmap per level shows which lists are not empty, so finding
// the smallest list above a size takes two bit scans. Free neighbours are merged immediately, so no two free
// blocks ever touch.
//
// Two things differ from the paper.
//
// * The free block at the end (the *tail*) is in no list. It is used last, after every hole in front of it
//   that fits. Whether its bytes exist already or must be added first then changes no choice: an address is a
//   function of the requests and their frontiers, not of how far the range has grown. So the peak does not
//   depend on the budget. Once all blocks of a sequence of requests are freed there are no holes, only the
//   tail, and the same sequence gets the same addresses again. (Frontiers choose among several holes, so "the
//   same" includes which requesters are ordered after which frees.)
// * The paper searches only classes whose blocks all fit, and so overlooks a fitting block in the request's
//   own class. Here the first few blocks of that class are tried first, which also finds the exact fit that
//   repetitive requests leave. The whole class is searched before the tail is used.
//
// A free block carries the frontier of its last users. Merging blocks joins their frontiers; splitting a
// block copies its frontier to the rest. Among the first kCandidates of a list, a block whose frontier the
// requester dominates is preferred.
//
// Invariants: blocks tile [0, end); offsets and sizes are multiples of the unit; no two neighbours are free;
// a free block is in the list of its class unless it is the tail.
//
// A call that throws std::bad_alloc has changed nothing.
//
// Cost: allocate and free are O(1), except that allocate scans its own size class before it uses the tail.
// The heap is used only when more blocks exist together than ever before.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/covered_points.h"
#include "allocator/offset_table.h"
#include "vdnn/frontier.h"

namespace vdnn {

// Not synchronised.
class Tlsf {
 public:
  static constexpr int kCandidates = 4;

  struct Block {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;  // a multiple of the unit
    // Must have been reached before these bytes may be written.
    Frontier frontier;
  };
  struct Extent {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;

    std::uint64_t end() const { return offset + bytes; }
    friend bool operator==(const Extent&, const Extent&) = default;
  };
  enum class State : std::uint8_t {
    kInUse,
    kFree,
    kVacant  // address space without memory: see SparseTlsf
  };
  // Names a free block until that block changes.
  using Index = std::uint32_t;

  // All offsets and sizes are multiples of `unit` (not 0). The range is empty at first.
  explicit Tlsf(std::uint64_t unit) : unit_(unit) { heads_.fill(kNone); }

  // Allocates `asked` bytes, rounded up to units (0 is treated as 1), for a requester that is ordered after
  // `requester`. Empty exactly if no free block is large enough. Throws InvalidArgument when rounding
  // overflows.
  std::optional<Block> allocate(std::uint64_t asked, const Frontier& requester);
  // The same for other types with dominates(), for example StreamKnowledge.
  template <class Requester>
  std::optional<Block> allocate(std::uint64_t asked, const Requester& requester);

  // The bytes by which the range must grow so that the tail has `asked` bytes; 0 if it has them already.
  std::uint64_t missing(std::uint64_t asked) const;
  // Appends `bytes` (a multiple of the unit) of fresh memory, which nothing has used. prepare_to_grow() does
  // all that may fail: callers obtain the memory between the two calls.
  void prepare_to_grow() { prepare_nodes(1); }
  void grow(std::uint64_t bytes);
  // Removes `bytes` (a multiple of the unit) from the tail. Throws InvalidArgument if the tail is smaller or
  // a vacancy follows it.
  void shrink(std::uint64_t bytes);

  // The block in use that allocate(asked) returned at `offset`. This and the next two functions throw
  // InvalidArgument when there is none, and then nothing changes.
  Block in_use(std::uint64_t offset, std::uint64_t asked) const;
  // Sets the frontier that a block in use carries if it is freed unused.
  void set_frontier(std::uint64_t offset, std::uint64_t asked, const Frontier& frontier);
  // Frees a block; `last_use` must dominate every use of it. If `last_use` is empty, the block was never
  // used and keeps the frontier that it was handed out with. Points of free neighbours that `covered`
  // contains are dropped. Returns the free block that now contains the freed one.
  Extent free(std::uint64_t offset, std::uint64_t asked, const Frontier& last_use,
              const CoveredPoints* covered = nullptr);

  // Calls visit(block, extent, frontier) for each free block, in no order; visit() must not change the
  // bookkeeping.
  template <class Visit>
  void for_each_free(const Visit& visit) const;
  // Calls visit(extent, state) for all blocks and vacancies, from the highest offset to the lowest.
  template <class Visit>
  void for_each_from_the_end(const Visit& visit) const;

  std::uint64_t end() const { return end_; }
  std::uint64_t in_use_bytes() const { return in_use_bytes_; }
  std::uint64_t asked_bytes() const { return asked_bytes_; }
  std::size_t blocks_in_use() const { return in_use_.size(); }
  std::uint64_t tail_bytes() const;
  // The points that the next user of the tail must be ordered after; empty without a tail.
  Frontier tail_frontier() const;
  std::uint64_t largest_free_block_bytes() const;
  // All free blocks in order of offset; linear in the number of blocks.
  std::vector<Block> free_blocks() const;

 protected:
  static constexpr Index kNone = ~Index{0};

  struct Node {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t asked = 0;  // while in use
    State state = State::kFree;
    bool listed = false;
    Index before = kNone;  // neighbours in address order
    Index after = kNone;
    Index previous = kNone;  // neighbours in the list of a size class, or of the vacancies
    Index next = kNone;      // likewise, and of the spare nodes
    Frontier frontier;
  };

  // Makes sure that the next `count` calls of append() need no memory.
  void prepare_nodes(std::size_t count);
  // Adds a free block after `before` in address order.
  Index append(Index before, std::uint64_t offset, std::uint64_t bytes);
  // `node` absorbs the neighbour after it, except for the frontier.
  void absorb_after(Index node);
  void extend_end(std::uint64_t bytes) { end_ += bytes; }

  std::uint64_t end_of(Index node) const { return nodes_[node].offset + nodes_[node].bytes; }
  Extent extent_of(Index node) const { return {.offset = nodes_[node].offset, .bytes = nodes_[node].bytes}; }
  // `node` if it is free; else kNone.
  Index free_neighbour(Index node) const;
  Index last() const { return last_; }
  std::uint64_t round_up_to_units(std::uint64_t asked) const;
  Node& at(Index node) { return nodes_[node]; }
  const Node& at(Index node) const { return nodes_[node]; }

  // enlist() inserts a free node into the list of its class, unless the node is the tail. unlist() removes
  // it.
  void enlist(Index node);
  void unlist(Index node);
  // link() and unlink() do the same for any list. unlink() returns whether the node was the first of its
  // list.
  void link(Index node, Index& head);
  bool unlink(Index node);

  void prepare_use() { in_use_.reserve(in_use_.size() + 1); }
  // Marks a node that is in no list as in use. It cannot fail after prepare_use().
  void use(Index node, std::uint64_t asked);

 private:
  static constexpr unsigned kSecondLevelBits = 5;
  static constexpr unsigned kSecondLevel = 1U << kSecondLevelBits;
  static constexpr unsigned kFirstLevel = 64 - kSecondLevelBits + 1;
  static constexpr unsigned kClasses = kFirstLevel * kSecondLevel;

  unsigned class_of(std::uint64_t bytes) const;
  // The first class from `from` on that is not empty; kClasses if all of them are empty.
  unsigned next_class(unsigned from) const;
  template <class Requester>
  Index choose_hole(std::uint64_t bytes, const Requester& requester) const;
  // Of at most `limit` blocks of a class, the first that fits and that the requester dominates, or else the
  // first that fits.
  template <class Requester>
  Index choose_in_class(unsigned size_class, std::uint64_t bytes, const Requester& requester,
                        std::size_t limit) const;
  // The block in use that allocate(asked) returned at `offset`; throws InvalidArgument if there is none.
  Index lookup(std::uint64_t offset, std::uint64_t asked) const;

  // The free block after which there is no memory, or kNone.
  Index tail() const;
  // Splits off the rest after `bytes`; the rest carries `frontier`.
  void split(Index node, std::uint64_t bytes, Frontier frontier);
  void make_spare(Index node);

  std::uint64_t unit_;
  std::uint64_t end_ = 0;
  std::uint64_t in_use_bytes_ = 0;
  std::uint64_t asked_bytes_ = 0;
  std::vector<Node> nodes_;
  Index spare_ = kNone;
  std::size_t spares_ = 0;
  Index last_ = kNone;  // in address order
  // The frontier that the next tail gets, while there is no tail. So the first step, in which the range
  // grows, gets the same addresses and waits as later steps, which find a tail.
  Frontier beyond_;

  std::uint64_t first_level_ = 0;
  std::array<std::uint32_t, kFirstLevel> second_level_{};
  std::array<Index, kClasses> heads_{};

  OffsetTable in_use_;
};

template <class Visit>
void Tlsf::for_each_free(const Visit& visit) const {
  const auto show = [&](Index node) { visit(node, extent_of(node), nodes_[node].frontier); };
  for (unsigned size_class = next_class(0); size_class < kClasses; size_class = next_class(size_class + 1)) {
    for (Index node = heads_[size_class]; node != kNone; node = nodes_[node].next) {
      show(node);
    }
  }
  if (const Index node = tail(); node != kNone) {
    show(node);
  }
}

template <class Visit>
void Tlsf::for_each_from_the_end(const Visit& visit) const {
  for (Index node = last_; node != kNone; node = nodes_[node].before) {
    visit(extent_of(node), nodes_[node].state);
  }
}

}  // namespace vdnn
