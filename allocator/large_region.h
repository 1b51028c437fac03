#pragma once
// All memory of a stream pool, and the large blocks in it.
//
// Granules are mapped one behind the other into a *home* range of addresses, where blocks are placed by TLSF.
// When no free block there is large enough, but enough granules are wholly free, wherever they lie, these are
// mapped once more, one behind the other, and make the block: a *view*. The home addresses of its granules
// are in use as long as the view is, but for what the block leaves of the last one. So no request fails or
// grows for fragmentation, as long as there are wholly free granules, and nothing is unmapped, or waited for
// on the host, to serve it.
//
// A view stays mapped when its block is freed: a later request for as many granules takes it again, when all
// of them are free. Of several the one that was made first is taken, and a new one has the first granules
// that are free. So a program that repeats a step makes no more views once a step has begun and gone on as
// the one before: what it finds at each request is what it found there the last time.
//
// Memory grows by as little as makes the request fit: behind what is free at home, or by the granules that a
// view lacks.
//
// Cost: a block at home is O(1) and linear in its granules (a count each); a view is linear in its granules,
// in the views of as many granules that are not free, and in the free blocks at home; to make one is linear
// in these, too. To give granules back is linear in all views.
//
// Source of the method: Guo et al., "GMLake: efficient and transparent GPU memory defragmentation for
// large-scale DNN training with virtual memory stitching" (ASPLOS 2024), which stitches whole blocks.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/granule_stock.h"
#include "allocator/stream_order.h"
#include "allocator/tlsf.h"
#include "allocator/zeroed.h"
#include "vdnn/frontier.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

// Guarded by the pool's lock, but for at() and the like, which are constant. Offsets are of addresses: home's
// come first, those of views behind.
class LargeRegion {
 public:
  // `unit`: of the sizes of blocks. `order` waits for the work on views that have to be unmapped.
  LargeRegion(PoolBackend& backend, GranuleStock& stock, StreamOrder& order, std::uint64_t unit);
  // Gives everything back; no work may be in flight, unless leave_to_backend() was called.
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
  // Of `bytes` (units), from what there is, for a requester that is ordered after `known`; empty where it
  // does not suffice. Throws what the backend throws, and then nothing changes.
  std::optional<Tlsf::Block> allocate(std::uint64_t bytes, const StreamKnowledge& known);
  // What its user was told to be ordered after.
  Frontier handed_out_behind(std::uint64_t offset, std::uint64_t bytes) const;
  // `last_use` must dominate every use; empty where the block was not used. Whether whole granules may have
  // become free.
  bool free(std::uint64_t offset, std::uint64_t bytes, const Frontier& last_use);

  // --- memory ----------------------------------------------------------------------------------------------
  // What allocate() lacks.
  struct Growth {
    std::uint64_t bytes = 0;  // whole granules
    Tlsf::Room room;          // where; empty: wherever there are addresses
  };
  Growth growth_for(std::uint64_t bytes) const;
  // Memory that nobody has used, which costs as many granules as the block has. Empty where stock or
  // addresses do not suffice. Throws as grow() does.
  std::optional<Tlsf::Block> allocate_fresh(std::uint64_t bytes);
  // Takes it from the stock, which must have it. False where there are no addresses left. Throws what the
  // backend throws.
  bool grow(const Growth& growth);

  // Free in whole granules: to be given back to the stock once the frontier has been reached. None where
  // memory cannot be given back.
  struct FreeGranules {
    Tlsf::Index block = 0;
    Tlsf::Extent extent;
    Frontier frontier;
  };
  std::vector<FreeGranules> free_granules();
  std::uint64_t free_granule_bytes() const { return whole_free_ * granule(); }
  bool can_give_back() const { return maps_; }
  // At most `bytes` of them, as long as nothing but other calls of this function has changed anything since.
  // Returns how much. What the backend throws in the middle leaves the rest.
  std::uint64_t give_back(const FreeGranules& granules, std::uint64_t bytes);

  // At the end all addresses stay mapped, and with them the memory: see PoolBackend::leave().
  void leave_to_backend() noexcept;

  std::uint64_t largest_free_block_bytes() const;
  // Calls visit(extent, state) in order of offset; what is in use is a block, a slab, or granules that a view
  // has. Then for each view that is in use; the rest of the addresses of views is vacant.
  template <class Visit>
  void for_each_piece(const Visit& visit) const;

 private:
  using View = std::uint32_t;
  struct ViewState {
    bool exists = false;
    bool in_use = false;
    bool unused = false;       // while it is freed: its user has not used it
    std::size_t freed = 0;     // runs, while in use: of a free() that was interrupted
    std::size_t busy = 0;      // the run that was in use when the view was asked for last
    std::uint64_t offset = 0;  // of its addresses
    std::uint64_t granules = 0;
    std::uint64_t unused_bytes = 0;  // of the last one, while in use: they are free at home
    std::uint64_t taken = 0;         // when, by clock_
    std::vector<Tlsf::Extent> runs;  // at home, in ascending order
    Frontier last_use;
    Frontier handed_out_behind;

    // What is in use of a run.
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
    bool in_use = false;  // the backend keeps it: what could not be unmapped, or must not be
  };

  std::uint64_t granule() const { return stock_.granule_bytes(); }
  std::uint64_t& handle_at(std::uint64_t offset) { return handles_[offset / granule()]; }
  // How many blocks touch a granule at home, plus one where it has memory.
  bool is_wholly_free(std::uint64_t index) const { return users_[index] == 1; }
  void count_users(Tlsf::Extent extent, bool come);

  // --- views
  View view_at(std::uint64_t offset) const { return view_at_[(offset - home_bytes_) / granule()] - 1; }
  std::optional<Tlsf::Block> allocate_view(std::uint64_t bytes);
  std::optional<View> find_view(std::uint64_t granules);
  bool is_available(ViewState& view) const;
  // Empty where there are no addresses for it.
  std::optional<View> make_view(std::uint64_t granules);
  std::vector<Tlsf::Extent> free_runs_of(std::uint64_t granules) const;
  std::optional<std::uint64_t> take_view_addresses(std::uint64_t bytes);
  Tlsf::Block hand_out(ViewState& view, std::uint64_t bytes);
  Frontier find_runs(const std::vector<Tlsf::Extent>& runs);
  void take_found();
  void free_runs(ViewState& view);
  void finish_frees();
  std::optional<View> coldest() const;
  void drop(View view);
  void unmap_dropped();

  void fill(Tlsf::Extent hole);

  GranuleStock& stock_;
  StreamOrder& order_;
  const bool maps_;  // else all memory is at home from the beginning, in one piece, and there are no views
  const std::uint64_t home_bytes_;
  Reservation reservation_;
  const AddressRange range_;  // copied: every free reads it

  Tlsf blocks_;                    // at home
  Zeroed<GranuleHandle> handles_;  // by granule at home
  Zeroed<std::uint32_t> users_;    // likewise
  std::uint64_t whole_free_ = 0;   // granules
  std::uint64_t home_used_ = 0;    // granules from the first to the last that ever had memory

  std::vector<ViewState> views_;
  std::vector<View> gone_views_;                            // numbers to be given again; has room for all
  std::map<std::uint64_t, std::vector<View>> by_granules_;  // in the order in which they were made
  Zeroed<View> view_at_;                // by granule of their addresses: the view that begins there, plus 1
  Tlsf view_addresses_;                 // offsets from home_bytes_
  std::vector<Tlsf::Extent> to_unmap_;  // of views that were dropped
  std::uint64_t clock_ = 0;
  std::size_t half_freed_ = 0;                               // views of which free_runs() was interrupted
  std::vector<std::pair<Tlsf::Index, Tlsf::Extent>> found_;  // by find_runs(): kept for its memory
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

// The whole granules in `extent`.
Tlsf::Extent whole_granules(Tlsf::Extent extent, std::uint64_t granule);

}  // namespace vdnn
