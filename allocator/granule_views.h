#pragma once
// Large blocks as *views*: address ranges onto whole granules of physical memory. This is the bookkeeping,
// which touches no memory.
//
// A block that is freed leaves its view behind, mapped as it was. A request of the same size takes the view
// again. One of another size, for which enough granules are free but no view is, gets a new view onto
// granules of others, which are then mapped more than once. So nothing is unmapped, no request fails or grows
// for fragmentation, and what is held is what is live, but for the last granule of each block.
//
// Views that share a granule are in each other's way: while one is in use the others are not handed out. Of
// the free views of a size the one that was made first is taken. That is why a program that repeats a step
// makes views in the first step alone: by induction each request of a later step finds what it found in the
// first, since what was made before it is in use or free as it was then, and its own view is the first that
// was not there before.
//
// A view remembers its last users. Who takes a view must be ordered after them and after those of every view
// that it shares a granule with.
//
// Whoever is told std::bad_alloc finds everything as it was.
//
// Cost: to take or return a view is linear in its granules (a byte each) and in the views that are in its
// way, and takes nothing from the heap; to make one is linear in all granules and in the views of its own.
//
// Source of the method: Guo et al., "GMLake: efficient and transparent GPU memory defragmentation for
// large-scale DNN training with virtual memory stitching" (ASPLOS 2024), whose stitched blocks these views
// are; the rule of the first is ours.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "vdnn/frontier.h"

namespace vdnn {

// Not synchronised.
class GranuleViews {
 public:
  using Granule = std::uint32_t;
  using View = std::uint32_t;

  struct Taken {
    View view = 0;
    bool made = false;  // just now: its granules are to be mapped
    // What must have been reached before it may be written.
    Frontier frontier;
  };

  // `granules` more, all free. Their numbers are returned, in ascending order.
  std::vector<Granule> add_granules(std::size_t granules);
  // How many granules are lacking to take so many (> 0).
  std::size_t missing(std::size_t granules) const;
  // A view of so many granules (> 0), which is then in use. Empty exactly where missing() says so.
  std::optional<Taken> take(std::size_t granules);
  // Of a view in use; InvalidArgument, and nothing changes, for any other. `last_use` must dominate every
  // use; where it is empty the view was not used, and what its next user must be ordered after is what its
  // last one was told.
  void give_back(View view, const Frontier& last_use);

  bool in_use(View view) const;
  // In the order in which they are mapped.
  std::span<const Granule> granules(View view) const;

  // Forgets a view that is free, as when it could not be mapped or its addresses are wanted back. Its
  // granules stay. The caller sees to it that its last_use() has been reached before it is unmapped.
  void drop(View view);
  const Frontier& last_use(View view) const;
  // The free view that was taken the longest ago; linear in the views.
  std::optional<View> coldest() const;
  // Free views that have this granule.
  std::vector<View> views_of(Granule granule) const;
  // Forgets a free granule of which there is no view.
  void remove_granule(Granule granule);

  std::size_t granule_count() const { return granule_count_; }
  std::size_t free_count() const { return free_count_; }
  // Of all views: what is mapped.
  std::size_t mapped_count() const { return mapped_count_; }
  // The first of them, in ascending order.
  std::vector<Granule> free_granules(std::size_t at_most) const;

 private:
  struct GranuleState {
    bool exists = false;
    bool free = false;
    std::vector<View> views;
  };
  struct ViewState {
    bool exists = false;
    bool in_use = false;
    std::size_t in_the_way = 0;  // views in use that share a granule with it
    std::uint64_t taken = 0;     // when, by clock_
    std::vector<Granule> granules;
    std::vector<View> neighbours;  // that share a granule with it
    Frontier last_use;
    Frontier handed_out_with;
  };

  const ViewState& existing(View view) const;
  std::optional<View> find(std::size_t granules) const;
  View make(std::size_t granules);
  std::vector<View> neighbours_of(std::span<const Granule> granules) const;
  Taken hand_out(View view, bool made);
  void set_free(const ViewState& view, bool free);

  std::vector<GranuleState> granules_;
  std::vector<Granule> gone_granules_;  // numbers to be given again
  std::vector<ViewState> views_;
  std::vector<View> gone_views_;
  std::map<std::size_t, std::vector<View>> by_size_;  // in the order in which they were made
  std::size_t granule_count_ = 0;
  std::size_t free_count_ = 0;
  std::size_t mapped_count_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace vdnn
