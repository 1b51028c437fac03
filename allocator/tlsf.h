#pragma once
// Offset bookkeeping: which parts of [0, end) are in use. It touches no memory; the range grows at its end.
//
// The algorithm is TLSF (Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", 2004).
// Free blocks lie in lists by size. The first level of classes is the power of two, the second cuts each
// power into 32 equal steps; a bitmap a level says which lists are not empty, so that "the smallest list
// above this size" is two bit scans. Free neighbours are merged at once, so no two free blocks ever touch.
//
// Two things differ from the paper.
//
// * The free block at the end (the *tail*) is in no list and is taken last, after every hole in front of it
//   that fits. Whether its bytes are there already or must be grown first then changes no choice: an address
//   is a function of the requests and their frontiers, not of how far the range has grown before. So the peak
//   does not depend on the budget, and once everything that a sequence of requests took has been freed there
//   are no holes, only the tail: the same sequence gets the same addresses again. (Among several holes the
//   frontiers choose, so "the same" includes which requesters know of which frees.)
// * A good fit alone may overlook a fitting block that lies in the request's own class. The first few blocks
//   of that class are tried first, which also finds the exact fit that repetitive requests leave behind, and
//   all of it is searched before the tail is taken.
//
// A free block carries the frontier of its last users; merging joins frontiers, splitting leaves the rest the
// whole one. Among the first kCandidates of a list a block whose frontier the requester dominates is
// preferred.
//
// Where memory comes and goes, parts of the range may be *vacant*: address space that has no memory. A
// vacancy is never handed out; room() says which of them would have to get memory for a request. In front of
// a vacancy at the end lies the tail.
//
// Invariants: blocks tile [0, end); offsets and sizes are multiples of the unit; no two neighbours are free,
// nor are two vacant; a free block is in the list of its class unless it is the tail.
//
// Whoever is told std::bad_alloc finds everything as it was.
//
// Cost: allocate and free are O(1), except that allocate scans its own size class before it takes the tail.
// Nothing is allocated from the heap once as many blocks have existed as ever exist together.

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
    // What must have been reached before these bytes may be written.
    Frontier frontier;
  };

  // All offsets and sizes are multiples of `unit` (not 0). The range is empty at first.
  explicit Tlsf(std::uint64_t unit) : unit_(unit) { heads_.fill(kNone); }

  // `asked` bytes, rounded up to units (0 is treated as 1), for a requester that is ordered after
  // `requester`. Empty exactly when no free block is large enough. Throws InvalidArgument when rounding
  // overflows.
  std::optional<Block> allocate(std::uint64_t asked, const Frontier& requester);
  // Likewise, for a StreamKnowledge.
  template <class Requester>
  std::optional<Block> allocate(std::uint64_t asked, const Requester& requester);

  // By how much the range must grow so that the tail holds `asked` bytes; 0 when it does already.
  std::uint64_t missing(std::uint64_t asked) const;
  // Appends `bytes` (a multiple of the unit) of fresh memory, which nothing has used. It cannot fail behind
  // prepare_to_grow(), which is for whoever has to get the memory in between.
  void prepare_to_grow() { prepare_nodes(1); }
  void grow(std::uint64_t bytes);
  // Takes `bytes` (a multiple of the unit) off the tail. Throws InvalidArgument where it has fewer, or where
  // a vacancy lies behind it.
  void shrink(std::uint64_t bytes);

  // The block in use that allocate(asked) gave at `offset`. Throws InvalidArgument when there is none; so do
  // the next two, and then nothing changes.
  Block in_use(std::uint64_t offset, std::uint64_t asked) const;
  // Says what the next user of a block in use must be ordered after, should it be freed unused.
  void set_frontier(std::uint64_t offset, std::uint64_t asked, const Frontier& frontier);
  // `last_use` must dominate every use. Where it is empty the block was never used, and keeps the frontier
  // that it was handed out with. Returns the free block that it is part of now.
  struct Extent {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;

    std::uint64_t end() const { return offset + bytes; }
    friend bool operator==(const Extent&, const Extent&) = default;
  };
  // Of what free neighbours carry, `covered` is dropped.
  Extent free(std::uint64_t offset, std::uint64_t asked, const Frontier& last_use,
              const CoveredPoints* covered = nullptr);

  // --- memory that comes and goes --------------------------------------------------------------------------
  // Appends a vacancy of `bytes` (a multiple of the unit).
  void append_vacancy(std::uint64_t bytes);
  // What would have to be filled so that allocate(asked) finds a block: of all places the one with the least
  // bytes, in pieces of whole granules (a multiple of the unit), given that all vacancies are such. Empty
  // where no place is large enough. Linear in the number of vacancies.
  struct Room {
    Extent place;                 // where the block would lie, of what there is
    std::vector<Extent> to_fill;  // within vacancies
    std::uint64_t bytes_to_fill = 0;
  };
  std::optional<Room> room(std::uint64_t asked, std::uint64_t granule) const;
  // The vacancy with the lowest offset of those with so many bytes, or nothing; linear like room().
  Extent lowest_vacancy(std::uint64_t at_least = 1) const;
  // `extent`, part of a vacancy, has got memory, whose next user must be ordered after `frontier`: it is
  // free. Linear like room(). It cannot fail behind prepare_to_fill(), which is for whoever has to get the
  // memory in between.
  void prepare_to_fill(Extent extent, const Frontier& frontier = {});
  void fill(Extent extent, const Frontier& frontier = {});
  // Names a free block until anything changes there.
  using Index = std::uint32_t;
  // `extent`, part of the free block `block`, is in use from now on as if allocate(extent.bytes) had given
  // it. Where several are taken of one block, the last comes first. Returns what its user must be ordered
  // after.
  Frontier take(Index block, Extent extent);
  // `extent`, part of the free block `block`, loses its memory. It cannot fail behind prepare_to_vacate().
  void prepare_to_vacate(Index block);
  void vacate(Index block, Extent extent);
  // Calls visit(block, extent, frontier) for each free block, in no order; it must not change anything.
  template <class Visit>
  void for_each_free(const Visit& visit) const;
  // Calls visit(extent, state) for everything in order of offset, from the end.
  enum class State : std::uint8_t { kInUse, kFree, kVacant };
  template <class Visit>
  void for_each_from_the_end(const Visit& visit) const;
  std::uint64_t vacant_bytes() const { return vacant_bytes_; }

  std::uint64_t end() const { return end_; }
  std::uint64_t in_use_bytes() const { return in_use_bytes_; }
  std::uint64_t asked_bytes() const { return asked_bytes_; }
  std::size_t blocks_in_use() const { return in_use_.size(); }
  std::uint64_t tail_bytes() const;
  // What the next user of the tail must be ordered after; empty without one.
  Frontier tail_frontier() const;
  std::uint64_t largest_free_block_bytes() const;
  // In order of offset; linear in the number of blocks.
  std::vector<Block> free_blocks() const;

 private:
  static constexpr Index kNone = ~Index{0};
  static constexpr unsigned kSecondLevelBits = 5;
  static constexpr unsigned kSecondLevel = 1U << kSecondLevelBits;
  static constexpr unsigned kFirstLevel = 64 - kSecondLevelBits + 1;
  static constexpr unsigned kClasses = kFirstLevel * kSecondLevel;

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

  unsigned class_of(std::uint64_t bytes) const;
  // The first class from `from` on that is not empty; kClasses if all are.
  unsigned next_class(unsigned from) const;
  template <class Requester>
  Index find_hole(std::uint64_t bytes, const Requester& requester) const;
  // The first of at most `limit` blocks of a class that fits and that the requester dominates, or else the
  // first that fits.
  template <class Requester>
  Index pick(unsigned size_class, std::uint64_t bytes, const Requester& requester, std::size_t limit) const;
  Index lookup(std::uint64_t offset, std::uint64_t asked) const;

  // The free block behind which there is no memory, or kNone.
  Index tail() const;
  // Into the list where `node` belongs, if any, and out of it.
  void enlist(Index node);
  void unlist(Index node);
  Index& head_of(Index node);
  // Makes sure that append needs no memory, `count` times.
  void prepare_nodes(std::size_t count);
  Index vacancy_around(Extent extent) const;
  std::uint64_t end_of(Index node) const { return nodes_[node].offset + nodes_[node].bytes; }
  // Cuts `extent` out of `node`; what is left of it keeps its state, and behind `extent` has the frontier
  // `behind`. Two nodes have been prepared; nothing is in a list afterwards.
  Index cut_out(Index node, Extent extent, Frontier behind);
  // Gives what was cut out its state; merges it with what is beside it in the same state, but for frontiers.
  Index become(Index node, State state);
  void relist(Index node);
  // A place that begins (or, where `backwards`, ends) where `from` does.
  std::optional<Room> room_at(Index from, std::uint64_t bytes, std::uint64_t granule, bool backwards) const;
  // A new free block behind `before` in address order.
  Index append(Index before, std::uint64_t offset, std::uint64_t bytes);
  // The rest carries `frontier`.
  void split(Index node, std::uint64_t bytes, Frontier frontier);
  // The node itself where it is a free one; else kNone.
  Index free_neighbour(Index node) const;
  // `node` takes over its neighbour behind it, but for the frontier.
  void absorb_after(Index node);
  void make_spare(Index node);

  std::uint64_t unit_;
  std::uint64_t end_ = 0;
  std::uint64_t in_use_bytes_ = 0;
  std::uint64_t asked_bytes_ = 0;
  std::vector<Node> nodes_;
  Index spare_ = kNone;
  std::size_t spares_ = 0;
  Index vacancies_ = kNone;
  std::uint64_t vacant_bytes_ = 0;
  Index last_ = kNone;  // in address order
  // What a free node at the end would carry, while there is none: so that the first step, which grows, waits
  // for the same and is placed as the later ones, which find a rest there.
  Frontier beyond_;

  std::uint64_t first_level_ = 0;
  std::array<std::uint32_t, kFirstLevel> second_level_{};
  std::array<Index, kClasses> heads_{};

  OffsetTable in_use_;
  Frontier prepared_;  // see prepare_to_vacate() and prepare_to_fill()
};

template <class Visit>
void Tlsf::for_each_free(const Visit& visit) const {
  const auto show = [&](Index node) {
    visit(node, Extent{.offset = nodes_[node].offset, .bytes = nodes_[node].bytes}, nodes_[node].frontier);
  };
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
    visit(Extent{.offset = nodes_[node].offset, .bytes = nodes_[node].bytes}, nodes_[node].state);
  }
}

}  // namespace vdnn
