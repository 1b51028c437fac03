#pragma once
// All memory of a stream pool, and the large blocks in it.
//
// Granules are mapped side by side into a *home* range of addresses, where blocks are placed by TLSF. If no
// free block at home is large enough, but enough granules are wholly free, such granules are mapped once
// more, side by side, and form the block: a *view*. While a view is in use, so are the home addresses of its
// granules, except for the part of the last granule that the block does not need. So as long as enough
// granules are wholly free, no request fails or commits memory because of fragmentation. Serving a request
// needs no unmapping and no wait on the host, unless all addresses for views are used up.
//
// A view stays mapped when its block is freed. A later request for the same number of granules uses the view
// again if all its granules are free. Of several such views, the one made first is used; a new view is made
// of the smallest free blocks. So if a program repeats a step and the same granules are free at the
// beginning of each repetition, no more views are made: each request finds the view that it found in the
// previous step.
//
// Memory grows by the granules that a view lacks. If little more memory makes the request fit in one piece at
// home (kPartForOnePiece), memory grows there instead.
//
// Cost: a block at home is O(1), plus a counter for each of its granules. Handing out or making a view is
// linear in its granules, in the views of the same size that are not free, and in the free blocks at home.
// Giving granules back is linear in all views.
//
// Source of the method: Guo et al., "GMLake: efficient and transparent GPU memory defragmentation for
// large-scale DNN training with virtual memory stitching" (ASPLOS 2024), which stitches whole blocks.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/granule_stock.h"
#include "allocator/sparse_tlsf.h"
#include "allocator/stream_order.h"
#include "allocator/tlsf.h"
#include "allocator/zeroed.h"
#include "vdnn/frontier.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

// Guarded by the pool's lock, except for the functions from address_bytes() to at(), which read constants.
// Offsets count addresses: home comes first, then the addresses of views.
class LargeRegion {
 public:
  // Sizes of blocks are multiples of `unit`. `order` waits for the work on views that have to be unmapped.
  // All arguments must outlive the region.
  LargeRegion(PoolBackend& backend, GranuleStock& stock, StreamOrder& order, std::uint64_t unit);
  // Gives all memory back; no work may be in flight, unless leave_to_backend() was called.
  ~LargeRegion();
  LargeRegion(const LargeRegion&) = delete;
  LargeRegion& operator=(const LargeRegion&) = delete;

  std::uint64_t address_bytes() const { return range_.bytes; }
  bool contains(std::uint64_t address) const { return address - range_.begin < range_.bytes; }
  std::uint64_t offset_of(std::uint64_t address) const { return address - range_.begin; }
  AddressRange at(std::uint64_t offset, std::uint64_t bytes) const {
    return {.begin = range_.begin + offset, .bytes = bytes};
  }

  // --- blocks ----------------------------------------------------------------------------------------------
  // A block of `bytes` (a multiple of the unit) from committed memory, for a requester that is ordered after
  // `known`; empty if the committed memory does not suffice. Throws what the backend throws; then nothing has
  // changed.
  std::optional<Tlsf::Block> allocate(std::uint64_t bytes, const StreamKnowledge& known);
  // The frontier that the user of the block was told to be ordered after.
  Frontier handed_out_after(std::uint64_t offset, std::uint64_t bytes) const;
  // Frees a block. `last_use` must dominate every use of the block; leave it empty if the block was not
  // used. Returns whether whole granules may have become free.
  bool free(std::uint64_t offset, std::uint64_t bytes, const Frontier& last_use);

  // --- memory ----------------------------------------------------------------------------------------------
  // The memory that has to be committed before allocate() succeeds.
  struct Growth {
    std::uint64_t bytes = 0;              // whole granules
    std::vector<Tlsf::Extent> to_commit;  // where; empty: wherever there are addresses
  };
  Growth growth_for(std::uint64_t bytes) const;
  // Allocates a block of new memory, which nothing has used: commits all granules of the block. Empty if the
  // stock or the addresses do not suffice. Throws what the backend throws.
  std::optional<Tlsf::Block> allocate_unused(std::uint64_t bytes);
  // Commits memory of the stock, which must have enough. False if there are no addresses left. Throws what
  // the backend throws.
  bool grow(const Growth& growth);

  // A free block's whole granules, which may be given back to the stock once the frontier has been reached.
  struct FreeGranules {
    Tlsf::Index block = 0;
    Tlsf::Extent extent;
    Frontier frontier;
  };
  // The whole granules of all free blocks; empty if memory cannot be given back.
  std::vector<FreeGranules> free_granules();
  std::uint64_t free_granule_bytes() const { return whole_free_ * granule(); }
  bool can_give_back() const { return maps_; }
  // Gives back `bytes`, rounded up to granules, or all of `granules` if they have less; returns the bytes
  // given back. Between free_granules() and this call, do not change the region except by this function.
  // Throws what the backend throws; then the remaining granules stay committed.
  std::uint64_t give_back(const FreeGranules& granules, std::uint64_t bytes);

  // After this call, the destructor leaves all addresses mapped and their memory allocated: see
  // PoolBackend::leave().
  void leave_to_backend() noexcept;

  std::uint64_t largest_free_block_bytes() const;
  // Calls visit(extent, state) in order of offset. Home comes first; an extent in use at home is a block, a
  // slab, or granules of a view. Then come the addresses of views, which are vacant except for views in use.
  template <class Visit>
  void for_each_piece(const Visit& visit) const;

 private:
  using View = std::uint32_t;
  struct ViewState {
    bool exists = false;
    bool in_use = false;
    bool unused = false;       // while the view is being freed: its block was not used
    std::size_t freed = 0;     // while in use: runs that an interrupted free() has freed
    std::size_t busy = 0;      // the run that the last is_available() found in use
    std::uint64_t offset = 0;  // of its addresses
    std::uint64_t granules = 0;
    std::uint64_t unused_bytes = 0;  // while in use: bytes of the last granule that are free at home
    std::uint64_t taken = 0;         // clock_ when the view was handed out last
    std::vector<Tlsf::Extent> runs;  // at home, in ascending order
    Frontier last_use;
    Frontier handed_out_after;

    // The part of a run that is in use.
    Tlsf::Extent used(std::size_t run) const {
      const std::uint64_t rest = run + 1 == runs.size() ? unused_bytes : 0;
      return {.offset = runs[run].offset, .bytes = runs[run].bytes - rest};
    }
  };
  struct Reservation {
    Reservation(PoolBackend& backend_, std::uint64_t bytes)
        : backend(backend_), range(backend_.reserve(bytes)) {}
    ~Reservation();
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;

    PoolBackend& backend;
    const AddressRange range;
    bool in_use = false;  // the backend keeps the range: a part could not be unmapped, or must not be
  };

  std::uint64_t granule() const { return stock_.granule_bytes(); }
  std::uint64_t& handle_at(std::uint64_t offset) { return handles_[offset / granule()]; }
  bool is_wholly_free(std::uint64_t index) const { return users_[index] == 1; }
  void count_users(Tlsf::Extent extent, bool come);

  // --- views
  View view_at(std::uint64_t offset) const { return view_at_[(offset - home_bytes_) / granule()] - 1; }
  std::optional<Tlsf::Block> allocate_view(std::uint64_t bytes);
  std::optional<View> choose_view(std::uint64_t granules);
  bool is_available(ViewState& view) const;
  // Empty if there are no addresses for the view.
  std::optional<View> make_view(std::uint64_t granules);
  std::vector<Tlsf::Extent> free_runs_of(std::uint64_t granules) const;
  std::optional<std::uint64_t> take_view_addresses(std::uint64_t bytes);
  Tlsf::Block hand_out(ViewState& view, std::uint64_t bytes);
  Frontier locate_runs(const std::vector<Tlsf::Extent>& runs);
  void allocate_located();
  void free_runs(ViewState& view);
  void finish_frees();
  std::optional<View> coldest() const;
  void drop(View view);
  void unmap_dropped();

  void commit(Tlsf::Extent hole);

  GranuleStock& stock_;
  StreamOrder& order_;
  const bool maps_;  // if not, all memory is at home from the beginning, in one piece, and there are no views
  const std::uint64_t home_bytes_;
  Reservation reservation_;
  const AddressRange range_;  // a copy, since every free reads it

  SparseTlsf blocks_;              // at home
  Zeroed<GranuleHandle> handles_;  // by granule at home
  Zeroed<std::uint32_t> users_;    // by granule: 1 if it has memory, plus the number of blocks that touch it
  std::uint64_t whole_free_ = 0;   // granules
  std::uint64_t home_used_ = 0;    // granules from the first to the last that ever had memory

  std::vector<ViewState> views_;
  std::vector<View> gone_views_;                            // numbers to be used again; has capacity for all
  std::map<std::uint64_t, std::vector<View>> by_granules_;  // in the order in which they were made
  Zeroed<View> view_at_;                // by granule of view addresses: the view that begins there, plus 1
  Tlsf view_addresses_;                 // offsets from home_bytes_
  std::vector<Tlsf::Extent> to_unmap_;  // of views that were dropped
  std::uint64_t clock_ = 0;
  std::size_t half_freed_ = 0;                                 // views whose free_runs() was interrupted
  std::vector<std::pair<Tlsf::Index, Tlsf::Extent>> located_;  // by locate_runs(); reuses its memory
};

template <class Visit>
void LargeRegion::for_each_piece(const Visit& visit) const {
  std::vector<std::pair<Tlsf::Extent, Tlsf::State>> pieces;
  blocks_.for_each_from_the_end(
      [&](Tlsf::Extent extent, Tlsf::State state) { pieces.emplace_back(extent, state); });
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    visit(piece->first, piece->second);
  }
  std::uint64_t end = home_bytes_;
  for (std::uint64_t offset = home_bytes_; offset < range_.bytes; offset += granule()) {
    const View number = view_at_[(offset - home_bytes_) / granule()];
    if (number != 0 && views_[number - 1].in_use) {
      visit(Tlsf::Extent{.offset = end, .bytes = offset - end}, Tlsf::State::kVacant);
      const ViewState& view = views_[number - 1];
      const Tlsf::Extent extent{.offset = offset, .bytes = view.granules * granule() - view.unused_bytes};
      visit(extent, Tlsf::State::kInUse);
      end = extent.end();
    }
  }
  visit(Tlsf::Extent{.offset = end, .bytes = range_.bytes - end}, Tlsf::State::kVacant);
}

// The whole granules within `extent`.
Tlsf::Extent whole_granules(Tlsf::Extent extent, std::uint64_t granule);

}  // namespace vdnn
