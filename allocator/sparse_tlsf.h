#pragma once
// Offset bookkeeping for memory that is committed and decommitted: TLSF over address space of which only
// parts have memory.
//
// A *vacancy* is address space without memory. It is never handed out; choose_placement() reports which
// vacancies would have to be committed for a request. Committing a part of a vacancy makes it a free block,
// and decommitting a part of a free block makes it a vacancy. If a vacancy lies at the end, the tail is the
// free block in front of it.
//
// Invariants beside those of Tlsf: no two neighbours are vacant; each vacancy is in the list of vacancies.
//
// Cost: choose_placement(), lowest_vacancy() and commit() are linear in the number of vacancies.

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/tlsf.h"
#include "vdnn/frontier.h"

namespace vdnn {

// Not synchronised.
class SparseTlsf : private Tlsf {
 public:
  using Tlsf::allocate, Tlsf::free, Tlsf::in_use, Tlsf::set_frontier;
  using Tlsf::Block, Tlsf::Extent, Tlsf::State, Tlsf::Index;
  using Tlsf::for_each_free, Tlsf::for_each_from_the_end, Tlsf::largest_free_block_bytes;
  using Tlsf::Tlsf;

  // Appends a vacancy of `bytes` (a multiple of the unit).
  void append_vacancy(std::uint64_t bytes);
  std::uint64_t vacant_bytes() const { return vacant_bytes_; }
  // The vacancy with the lowest offset of those with at least `bytes`; 0 bytes if there is none.
  Extent lowest_vacancy(std::uint64_t bytes = 1) const;

  // A place for a block, part of which may be vacant.
  struct Placement {
    Extent extent;                  // of the block
    std::vector<Extent> to_commit;  // within vacancies
    std::uint64_t bytes_to_commit = 0;
  };
  // The placement for allocate(asked) that commits the fewest bytes, in whole granules. All vacancies must
  // consist of whole granules (a multiple of the unit). Empty if no place is large enough.
  std::optional<Placement> choose_placement(std::uint64_t asked, std::uint64_t granule) const;

  // commit() declares that `extent`, part of a vacancy, has memory from now on and is free; the memory's
  // next user must be ordered after `frontier`. Throws InvalidArgument if there is no such vacancy.
  // prepare_to_commit() does all that may fail: callers obtain the memory between the two calls.
  void prepare_to_commit(Extent extent, const Frontier& frontier = {});
  void commit(Extent extent, const Frontier& frontier = {});
  // decommit() declares that `extent`, part of the free block `block`, no longer has memory. It cannot fail
  // after prepare_to_decommit().
  void prepare_to_decommit(Index block);
  void decommit(Index block, Extent extent);

  // Allocates `extent`, part of the free block `block`, as if allocate(extent.bytes) had returned it. If one
  // block contains several extents, allocate the last one first. Returns the points that the user must be
  // ordered after.
  Frontier allocate_at(Index block, Extent extent);

 private:
  Index vacancy_around(Extent extent) const;
  // A placement that begins where `from` does, or ends there if `backwards`.
  std::optional<Placement> placement_at(Index from, std::uint64_t bytes, std::uint64_t granule,
                                        bool backwards) const;
  // Cuts `extent` out of `node`. The remaining parts keep the node's state; the part after `extent` has the
  // frontier `rest_frontier`. The caller must have prepared two nodes. Afterwards, none of the three nodes
  // is in a list.
  Index cut_out(Index node, Extent extent, Frontier rest_frontier);
  // Sets the state of a node that was cut out and merges it, except for frontiers, with neighbours in that
  // state.
  Index become(Index node, State state);
  void remove_from_list(Index node);
  void relist(Index node);

  Index vacancies_ = kNone;
  std::uint64_t vacant_bytes_ = 0;
  Frontier prepared_;  // by prepare_to_commit() or prepare_to_decommit()
};

}  // namespace vdnn
