#include "allocator/granule_views.h"

#include <algorithm>
#include <string>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

namespace {

// The vectors that a change will append to have room, so that it cannot fail half way.
template <class T>
void make_room(std::vector<T>& vector) {
  if (vector.size() == vector.capacity()) {
    vector.reserve(std::max<std::size_t>(4, 2 * vector.size()));
  }
}

}  // namespace

std::vector<GranuleViews::Granule> GranuleViews::add_granules(std::size_t granules) {
  std::vector<Granule> added;
  added.reserve(granules);
  const std::size_t again = std::min(granules, gone_granules_.size());
  const std::size_t fresh = granules - again;
  // As many as there are may have to be remembered as gone.
  gone_granules_.reserve(granules_.size() + fresh);
  granules_.reserve(granules_.size() + fresh);
  for (std::size_t i = 0; i < again; ++i) {
    added.push_back(gone_granules_.back());
    gone_granules_.pop_back();
  }
  for (std::size_t i = 0; i < fresh; ++i) {
    added.push_back(static_cast<Granule>(granules_.size()));
    granules_.emplace_back();
  }
  for (const Granule granule : added) {
    granules_[granule].exists = true;
    granules_[granule].free = true;
  }
  granule_count_ += granules;
  free_count_ += granules;
  std::ranges::sort(added);
  return added;
}

std::size_t GranuleViews::missing(std::size_t granules) const {
  return granules - std::min(granules, free_count_);
}

std::optional<GranuleViews::Taken> GranuleViews::take(std::size_t granules) {
  if (granules == 0) {
    throw InvalidArgument("a view of no granules");
  }
  if (missing(granules) > 0) {
    return std::nullopt;
  }
  if (const std::optional<View> found = find(granules)) {
    return hand_out(*found, false);
  }
  const View made = make(granules);
  try {
    return hand_out(made, true);
  } catch (...) {
    drop(made);
    throw;
  }
}

void GranuleViews::give_back(View view, const Frontier& last_use) {
  if (!in_use(view)) {
    throw InvalidArgument("view " + std::to_string(view) + " is not in use");
  }
  ViewState& state = views_[view];
  // Before anything changes: a frontier of many streams lies on the heap.
  state.last_use = last_use.empty() ? state.handed_out_with : last_use;
  state.in_use = false;
  set_free(state, true);
  for (const View neighbour : state.neighbours) {
    --views_[neighbour].in_the_way;
  }
}

bool GranuleViews::in_use(View view) const {
  return view < views_.size() && views_[view].exists && views_[view].in_use;
}

std::span<const GranuleViews::Granule> GranuleViews::granules(View view) const {
  return existing(view).granules;
}

void GranuleViews::drop(View view) {
  if (existing(view).in_use) {
    throw InvalidArgument("view " + std::to_string(view) + " is in use");
  }
  ViewState state = std::exchange(views_[view], {});
  for (const Granule granule : state.granules) {
    std::erase(granules_[granule].views, view);
  }
  for (const View neighbour : state.neighbours) {
    std::erase(views_[neighbour].neighbours, view);
  }
  const auto same_size = by_size_.find(state.granules.size());
  std::erase(same_size->second, view);
  if (same_size->second.empty()) {
    by_size_.erase(same_size);
  }
  mapped_count_ -= state.granules.size();
  gone_views_.push_back(view);  // make() has seen to the room
}

const Frontier& GranuleViews::last_use(View view) const {
  return existing(view).last_use;
}

std::optional<GranuleViews::View> GranuleViews::coldest() const {
  std::optional<View> coldest;
  for (View view = 0; view < views_.size(); ++view) {
    if (views_[view].exists && !views_[view].in_use &&
        (!coldest || views_[view].taken < views_[*coldest].taken)) {
      coldest = view;
    }
  }
  return coldest;
}

std::vector<GranuleViews::View> GranuleViews::views_of(Granule granule) const {
  return granule < granules_.size() ? granules_[granule].views : std::vector<View>();
}

void GranuleViews::remove_granule(Granule granule) {
  if (granule >= granules_.size() || !granules_[granule].free || !granules_[granule].views.empty()) {
    throw InvalidArgument("granule " + std::to_string(granule) + " is not there, in use, or has views");
  }
  granules_[granule].exists = false;
  granules_[granule].free = false;
  gone_granules_.push_back(granule);  // add_granules() has seen to the room
  --granule_count_;
  --free_count_;
}

std::vector<GranuleViews::Granule> GranuleViews::free_granules(std::size_t at_most) const {
  std::vector<Granule> free;
  free.reserve(std::min(at_most, free_count_));
  for (Granule granule = 0; granule < granules_.size() && free.size() < at_most; ++granule) {
    if (granules_[granule].free) {
      free.push_back(granule);
    }
  }
  return free;
}

const GranuleViews::ViewState& GranuleViews::existing(View view) const {
  if (view >= views_.size() || !views_[view].exists) {
    throw InvalidArgument("there is no view " + std::to_string(view));
  }
  return views_[view];
}

std::optional<GranuleViews::View> GranuleViews::find(std::size_t granules) const {
  const auto same_size = by_size_.find(granules);
  if (same_size == by_size_.end()) {
    return std::nullopt;
  }
  const auto found = std::ranges::find_if(
      same_size->second, [&](View view) { return !views_[view].in_use && views_[view].in_the_way == 0; });
  return found == same_size->second.end() ? std::nullopt : std::optional(*found);
}

GranuleViews::View GranuleViews::make(std::size_t granules) {
  ViewState state{.exists = true, .granules = free_granules(granules)};
  state.neighbours = neighbours_of(state.granules);

  if (gone_views_.empty()) {
    gone_views_.reserve(views_.size() + 1);
    views_.emplace_back();
    gone_views_.push_back(static_cast<View>(views_.size() - 1));
  }
  for (const Granule granule : state.granules) {
    make_room(granules_[granule].views);
  }
  for (const View neighbour : state.neighbours) {
    make_room(views_[neighbour].neighbours);
  }
  std::vector<View>& same_size = by_size_[granules];
  make_room(same_size);

  // Nothing fails from here on.
  const View view = gone_views_.back();
  gone_views_.pop_back();
  for (const Granule granule : state.granules) {
    granules_[granule].views.push_back(view);
  }
  for (const View neighbour : state.neighbours) {
    views_[neighbour].neighbours.push_back(view);
  }
  same_size.push_back(view);
  mapped_count_ += granules;
  views_[view] = std::move(state);
  return view;
}

std::vector<GranuleViews::View> GranuleViews::neighbours_of(std::span<const Granule> granules) const {
  std::vector<bool> seen(views_.size());
  std::vector<View> neighbours;
  for (const Granule granule : granules) {
    for (const View view : granules_[granule].views) {
      if (!seen[view]) {
        seen[view] = true;
        neighbours.push_back(view);
      }
    }
  }
  return neighbours;
}

GranuleViews::Taken GranuleViews::hand_out(View view, bool made) {
  ViewState& state = views_[view];
  Frontier frontier = state.last_use;
  for (const View neighbour : state.neighbours) {
    frontier.join(views_[neighbour].last_use);
  }
  Taken taken{.view = view, .made = made, .frontier = frontier};
  state.handed_out_with = std::move(frontier);
  state.in_use = true;
  state.taken = ++clock_;
  set_free(state, false);
  for (const View neighbour : state.neighbours) {
    ++views_[neighbour].in_the_way;
  }
  return taken;
}

void GranuleViews::set_free(const ViewState& view, bool free) {
  for (const Granule granule : view.granules) {
    granules_[granule].free = free;
  }
  free_count_ = free ? free_count_ + view.granules.size() : free_count_ - view.granules.size();
}

}  // namespace vdnn
