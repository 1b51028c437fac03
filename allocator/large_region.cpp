#include "allocator/large_region.h"

#include <algorithm>

#include "vdnn/size.h"

namespace vdnn {

namespace {

// Address space at home, per byte of the budget. Long-lived blocks split up the free addresses, until a
// large block no longer fits in one piece. More addresses delay this.
constexpr std::uint64_t kHomePerBudget = 4;
// Address space of views, per byte of the budget. If a program's sizes always change, each granule is in
// about this many views before any view is unmapped.
constexpr std::uint64_t kViewsPerBudget = 8;
// A block in one piece at home may commit more memory than a view would, by at most this part of its size
// (an eighth). A view breaks up free blocks, while a block in one piece, once freed, leaves a hole that fits
// the next block of its size. (With a twelfth to a sixth, no large log in tests/data/traces has a higher
// peak in this pool than in the models of PyTorch's rules, bench/torch_rules.h. With a sixteenth or a
// quarter, one log has. See traces_test.cpp.)
constexpr std::uint64_t kPartForOnePiece = 8;

// Returns false if the call throws, so that the caller can still give back the rest. A lost device refuses
// all calls.
template <class Call>
bool attempt(const Call& call) noexcept {
  try {
    call();
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

Tlsf::Extent whole_granules(Tlsf::Extent extent, std::uint64_t granule) {
  const std::uint64_t begin = round_up(extent.offset, granule);
  const std::uint64_t end = extent.end() / granule * granule;
  return {.offset = begin, .bytes = end > begin ? end - begin : 0};
}

LargeRegion::Reservation::~Reservation() {
  if (!in_use) {
    attempt([&] { backend.unreserve(range); });
  }
}

LargeRegion::LargeRegion(PoolBackend& backend, GranuleStock& stock, StreamOrder& order, std::uint64_t unit)
    : stock_(stock),
      order_(order),
      maps_(backend.properties().maps),
      home_bytes_(checked_multiply(stock.budget_bytes(), maps_ ? kHomePerBudget : 1)),
      reservation_(backend,
                   checked_multiply(stock.budget_bytes(), maps_ ? kHomePerBudget + kViewsPerBudget : 1)),
      range_(reservation_.range),
      blocks_(unit),
      handles_(zeroed<GranuleHandle>(home_bytes_ / granule())),
      users_(zeroed<std::uint32_t>(home_bytes_ / granule())),
      view_at_(zeroed<View>((range_.bytes - home_bytes_) / granule())),
      view_addresses_(granule()) {
  blocks_.append_vacancy(home_bytes_);
  view_addresses_.grow(range_.bytes - home_bytes_);
  if (!maps_) {
    commit({.offset = 0, .bytes = home_bytes_});  // the reservation has its memory from the beginning
  }
}

void LargeRegion::leave_to_backend() noexcept {
  reservation_.in_use = true;
  reservation_.backend.leave(range_);
}

LargeRegion::~LargeRegion() {
  const bool stays = reservation_.in_use;
  const auto unmap = [&](Tlsf::Extent extent) {
    if (stays) {
      return;
    }
    const bool unmapped = attempt([&] { reservation_.backend.unmap(at(extent.offset, extent.bytes)); });
    reservation_.in_use = reservation_.in_use || !unmapped;
  };
  for (const ViewState& view : views_) {
    if (view.exists) {
      unmap({.offset = view.offset, .bytes = view.granules * granule()});
    }
  }
  std::ranges::for_each(to_unmap_, unmap);
  for (std::uint64_t index = 0; index < home_used_; ++index) {
    if (users_[index] != 0) {
      unmap({.offset = index * granule(), .bytes = granule()});
      attempt([&] { stock_.give_back(handles_[index]); });
    }
  }
}

// --- blocks ------------------------------------------------------------------------------------------------

std::optional<Tlsf::Block> LargeRegion::allocate(std::uint64_t bytes, const StreamKnowledge& known) {
  finish_frees();
  if (std::optional<Tlsf::Block> block = blocks_.allocate(bytes, known)) {
    count_users({.offset = block->offset, .bytes = bytes}, true);
    return block;
  }
  return allocate_view(bytes);
}

Frontier LargeRegion::handed_out_after(std::uint64_t offset, std::uint64_t bytes) const {
  return offset < home_bytes_ ? blocks_.in_use(offset, bytes).frontier
                              : views_[view_at(offset)].handed_out_after;
}

bool LargeRegion::free(std::uint64_t offset, std::uint64_t bytes, const Frontier& last_use) {
  if (offset < home_bytes_) {
    const StreamOrder::Covered covered(order_, last_use);
    const Tlsf::Extent merged = blocks_.free(offset, bytes, last_use, &covered);
    count_users({.offset = offset, .bytes = bytes}, false);
    return whole_granules(merged, granule()).bytes > 0;
  }
  ViewState& view = views_[view_at(offset)];
  view.unused = last_use.empty();
  if (!view.unused) {
    view.last_use = last_use;
  }
  free_runs(view);
  return true;
}

void LargeRegion::count_users(Tlsf::Extent extent, bool come) {
  const std::uint64_t end = (extent.end() - 1) / granule();
  for (std::uint64_t index = extent.offset / granule(); index <= end; ++index) {
    whole_free_ -= is_wholly_free(index) ? 1U : 0U;
    users_[index] = static_cast<std::uint32_t>(come ? users_[index] + 1 : users_[index] - 1);
    whole_free_ += is_wholly_free(index) ? 1U : 0U;
  }
}

// --- views -------------------------------------------------------------------------------------------------

std::optional<Tlsf::Block> LargeRegion::allocate_view(std::uint64_t bytes) {
  const std::uint64_t granules = (bytes + granule() - 1) / granule();
  if (!maps_ || granules > whole_free_) {
    return std::nullopt;
  }
  std::optional<View> view = choose_view(granules);
  if (!view) {
    view = make_view(granules);
  }
  if (!view) {
    return std::nullopt;
  }
  return hand_out(views_[*view], bytes);
}

std::optional<LargeRegion::View> LargeRegion::choose_view(std::uint64_t granules) {
  const auto same_size = by_granules_.find(granules);
  if (same_size == by_granules_.end()) {
    return std::nullopt;
  }
  const auto found =
      std::ranges::find_if(same_size->second, [&](View view) { return is_available(views_[view]); });
  return found == same_size->second.end() ? std::nullopt : std::optional(*found);
}

bool LargeRegion::is_available(ViewState& view) const {
  const auto is_free = [&](const Tlsf::Extent& run) {
    for (std::uint64_t at = run.offset; at < run.end(); at += granule()) {
      if (!is_wholly_free(at / granule())) {
        return false;
      }
    }
    return true;
  };
  if (view.in_use || !is_free(view.runs[view.busy])) {
    return false;
  }
  for (std::size_t i = 0; i < view.runs.size(); ++i) {
    if (!is_free(view.runs[i])) {
      view.busy = i;
      return false;
    }
  }
  return true;
}

std::optional<LargeRegion::View> LargeRegion::make_view(std::uint64_t granules) {
  const std::uint64_t bytes = granules * granule();
  ViewState state{.exists = true, .granules = granules, .runs = free_runs_of(granules)};
  std::vector<GranuleHandle> handles;
  handles.reserve(granules);
  for (const Tlsf::Extent& run : state.runs) {
    for (std::uint64_t at = run.offset; at < run.end(); at += granule()) {
      handles.push_back(handle_at(at));
    }
  }
  if (gone_views_.empty()) {
    gone_views_.reserve(views_.size() + 1);
    views_.emplace_back();
    gone_views_.push_back(static_cast<View>(views_.size() - 1));
  }
  to_unmap_.reserve(views_.size());
  std::vector<View>& same_size = by_granules_[granules];
  same_size.reserve(same_size.size() + 1);

  unmap_dropped();
  const std::optional<std::uint64_t> offset = take_view_addresses(bytes);
  if (!offset) {
    return std::nullopt;
  }
  state.offset = *offset;
  try {
    reservation_.backend.map(at(state.offset, bytes), handles);
  } catch (const OutOfMemory&) {
    view_addresses_.free(*offset - home_bytes_, bytes, {});
    return std::nullopt;
  } catch (...) {
    view_addresses_.free(*offset - home_bytes_, bytes, {});
    throw;
  }
  // Nothing fails from here on.
  const View view = gone_views_.back();
  gone_views_.pop_back();
  views_[view] = std::move(state);
  view_at_[(*offset - home_bytes_) / granule()] = view + 1;
  same_size.push_back(view);
  return view;
}

// Uses the smallest free blocks first, so that large ones stay whole.
std::vector<Tlsf::Extent> LargeRegion::free_runs_of(std::uint64_t granules) const {
  std::vector<Tlsf::Extent> runs;
  blocks_.for_each_free([&](Tlsf::Index, Tlsf::Extent extent, const Frontier&) {
    if (const Tlsf::Extent whole = whole_granules(extent, granule()); whole.bytes > 0) {
      runs.push_back(whole);
    }
  });
  std::ranges::sort(runs, {}, [](const Tlsf::Extent& run) { return std::pair(run.bytes, run.offset); });
  std::uint64_t left = granules * granule();
  std::size_t used = 0;
  for (; left > 0; ++used) {
    runs[used].bytes = std::min(runs[used].bytes, left);
    left -= runs[used].bytes;
  }
  runs.resize(used);
  std::ranges::sort(runs, {}, &Tlsf::Extent::offset);
  return runs;
}

// If there are no free addresses, drops the least recently used views and takes their addresses.
std::optional<std::uint64_t> LargeRegion::take_view_addresses(std::uint64_t bytes) {
  for (;;) {
    if (const std::optional<Tlsf::Block> found = view_addresses_.allocate(bytes, Frontier())) {
      return home_bytes_ + found->offset;
    }
    const std::optional<View> view = coldest();
    if (!view) {
      return std::nullopt;
    }
    try {
      order_.wait_until_done(views_[*view].last_use);
    } catch (const CaptureConflict&) {
      // A capture forbids the wait. The requester's stream need not be in it, so this is no error.
      return std::nullopt;
    }
    drop(*view);
  }
}

Tlsf::Block LargeRegion::hand_out(ViewState& view, std::uint64_t bytes) {
  Frontier frontier = locate_runs(view.runs);
  Tlsf::Block block{.offset = view.offset, .bytes = bytes, .frontier = frontier};
  view.unused_bytes = view.granules * granule() - bytes;
  located_.front().second = view.used(view.runs.size() - 1);
  allocate_located();
  for (std::size_t i = 0; i < view.runs.size(); ++i) {
    count_users(view.used(i), true);
  }
  view.handed_out_after = std::move(frontier);
  view.in_use = true;
  view.freed = 0;
  view.taken = ++clock_;
  return block;
}

// Stores in `located_` the free block around each run, the last run first, and returns the frontiers of
// these blocks joined. Since free blocks are merged, a run lies within one block.
Frontier LargeRegion::locate_runs(const std::vector<Tlsf::Extent>& runs) {
  Frontier joined;
  located_.clear();
  located_.reserve(runs.size());
  blocks_.for_each_free([&](Tlsf::Index block, Tlsf::Extent extent, const Frontier& frontier) {
    auto run = std::ranges::lower_bound(runs, extent.offset, {}, &Tlsf::Extent::offset);
    if (run != runs.end() && run->offset < extent.end()) {
      joined.join(frontier);
    }
    for (; run != runs.end() && run->offset < extent.end(); ++run) {
      located_.emplace_back(block, *run);
    }
  });
  std::ranges::sort(located_, std::greater<>(), [](const auto& located) { return located.second.offset; });
  return joined;
}

void LargeRegion::allocate_located() {
  std::size_t allocated = 0;
  try {
    for (; allocated < located_.size(); ++allocated) {
      blocks_.allocate_at(located_[allocated].first, located_[allocated].second);
    }
  } catch (...) {
    for (std::size_t i = 0; i < allocated; ++i) {
      blocks_.free(located_[i].second.offset, located_[i].second.bytes, {});
    }
    throw;
  }
}

// Frees all runs of the view. If the heap lacks the memory for a frontier after the first run is free, the
// next request frees the remaining runs.
void LargeRegion::free_runs(ViewState& view) {
  const bool again = view.freed > 0;
  const Frontier last_use = view.unused ? Frontier() : view.last_use;
  const StreamOrder::Covered covered(order_, last_use);
  try {
    for (; view.freed < view.runs.size(); ++view.freed) {
      const Tlsf::Extent run = view.used(view.freed);
      blocks_.free(run.offset, run.bytes, last_use, &covered);
      count_users(run, false);
    }
  } catch (...) {
    if (view.freed == 0 || again) {
      throw;
    }
    ++half_freed_;
    return;
  }
  view.in_use = false;
  half_freed_ -= again ? 1U : 0U;
}

void LargeRegion::finish_frees() {
  for (View view = 0; half_freed_ > 0 && view < views_.size(); ++view) {
    if (views_[view].in_use && views_[view].freed > 0) {
      free_runs(views_[view]);
    }
  }
}

std::optional<LargeRegion::View> LargeRegion::coldest() const {
  std::optional<View> coldest;
  for (View view = 0; view < views_.size(); ++view) {
    if (views_[view].exists && !views_[view].in_use &&
        (!coldest || views_[view].taken < views_[*coldest].taken)) {
      coldest = view;
    }
  }
  return coldest;
}

// Removes a view on which all work is done. If the backend refuses to unmap it, a later call tries again.
void LargeRegion::drop(View view) {
  const ViewState gone = std::exchange(views_[view], {});
  std::erase(by_granules_.at(gone.granules), view);
  view_at_[(gone.offset - home_bytes_) / granule()] = 0;
  gone_views_.push_back(view);
  // make_view() has reserved the capacity.
  to_unmap_.push_back({.offset = gone.offset, .bytes = gone.granules * granule()});
  unmap_dropped();
}

void LargeRegion::unmap_dropped() {
  while (!to_unmap_.empty()) {
    const Tlsf::Extent extent = to_unmap_.back();
    reservation_.backend.unmap(at(extent.offset, extent.bytes));
    to_unmap_.pop_back();
    view_addresses_.free(extent.offset - home_bytes_, extent.bytes, {});
  }
}

// --- memory ------------------------------------------------------------------------------------------------

LargeRegion::Growth LargeRegion::growth_for(std::uint64_t bytes) const {
  const std::uint64_t granules = (bytes + granule() - 1) / granule();
  Growth growth{.bytes = (granules - std::min(granules, whole_free_)) * granule(), .to_commit = {}};
  const std::uint64_t most = std::min(stock_.left(), growth.bytes + bytes / kPartForOnePiece);
  if (auto placement = blocks_.choose_placement(bytes, granule());
      placement && placement->bytes_to_commit <= most) {
    growth = {.bytes = placement->bytes_to_commit, .to_commit = std::move(placement->to_commit)};
  }
  return growth;
}

std::optional<Tlsf::Block> LargeRegion::allocate_unused(std::uint64_t bytes) {
  const std::uint64_t needed = round_up(bytes, granule());
  Tlsf::Extent hole = blocks_.lowest_vacancy(needed);
  if (needed > stock_.left() || hole.bytes == 0) {
    return std::nullopt;
  }
  hole.bytes = needed;
  commit(hole);
  Tlsf::Index around = 0;
  blocks_.for_each_free([&](Tlsf::Index block, Tlsf::Extent extent, const Frontier&) {
    around = extent.offset <= hole.offset && hole.end() <= extent.end() ? block : around;
  });
  const Tlsf::Extent taken{.offset = hole.offset, .bytes = bytes};
  blocks_.allocate_at(around, taken);
  blocks_.set_frontier(taken.offset, taken.bytes, {});
  count_users(taken, true);
  return Tlsf::Block{.offset = taken.offset, .bytes = bytes, .frontier = {}};
}

bool LargeRegion::grow(const Growth& growth) {
  for (const Tlsf::Extent& hole : growth.to_commit) {
    commit(hole);
  }
  std::uint64_t left = growth.to_commit.empty() ? growth.bytes : 0;
  while (left > 0) {
    Tlsf::Extent hole = blocks_.lowest_vacancy();
    hole.bytes = std::min(hole.bytes, left);
    if (hole.bytes == 0) {
      return false;
    }
    commit(hole);
    left -= hole.bytes;
  }
  return true;
}

void LargeRegion::commit(Tlsf::Extent hole) {
  const std::vector<GranuleHandle> taken = stock_.take(hole.bytes / granule());
  try {
    blocks_.prepare_to_commit(hole);
    reservation_.backend.map(at(hole.offset, hole.bytes), taken);
  } catch (...) {
    stock_.give_back_anyway(taken);
    throw;
  }
  blocks_.commit(hole);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const std::uint64_t index = hole.offset / granule() + i;
    handles_[index] = taken[i];
    users_[index] = 1;
  }
  whole_free_ += taken.size();
  home_used_ = std::max(home_used_, hole.end() / granule());
}

std::vector<LargeRegion::FreeGranules> LargeRegion::free_granules() {
  finish_frees();
  std::vector<FreeGranules> all;
  if (!maps_) {
    return all;
  }
  blocks_.for_each_free([&](Tlsf::Index block, Tlsf::Extent extent, const Frontier& frontier) {
    if (const Tlsf::Extent whole = whole_granules(extent, granule()); whole.bytes > 0) {
      all.push_back({.block = block, .extent = whole, .frontier = frontier});
    }
  });
  return all;
}

// Gives granules back one by one from the end, since the backend may refuse one of them. Views of these
// granules have no work in flight: the frontiers of the granules, which have been reached, include all uses
// of their views.
std::uint64_t LargeRegion::give_back(const FreeGranules& granules, std::uint64_t bytes) {
  const std::uint64_t given = std::min(granules.extent.bytes, round_up(bytes, granule()));
  const Tlsf::Extent last{.offset = granules.extent.end() - given, .bytes = given};
  for (View view = 0; view < views_.size(); ++view) {
    if (std::ranges::any_of(views_[view].runs, [&](const Tlsf::Extent& run) {
          return run.offset < last.end() && last.offset < run.end();
        })) {
      drop(view);
    }
  }
  unmap_dropped();
  for (std::uint64_t end = last.end(); end > last.offset; end -= granule()) {
    const Tlsf::Extent one{.offset = end - granule(), .bytes = granule()};
    blocks_.prepare_to_decommit(granules.block);
    reservation_.backend.unmap(at(one.offset, one.bytes));
    blocks_.decommit(granules.block, one);
    users_[one.offset / granule()] = 0;
    --whole_free_;
    stock_.give_back(handle_at(one.offset));
  }
  return given;
}

std::uint64_t LargeRegion::largest_free_block_bytes() const {
  return std::max(blocks_.largest_free_block_bytes(), maps_ ? free_granule_bytes() : 0);
}

}  // namespace vdnn
