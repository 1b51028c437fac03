#include "src/plan/optimal/layout.h"

#include <algorithm>
#include <numeric>
#include <queue>

namespace vdnn::optimal {

namespace {

// Of its own time, a prefetch starts so much earlier than it must.
constexpr double kLead = 0.1;
// Of sums of some thousand ops in another order.
constexpr double kSumError = 1e-12;

}  // namespace

Layout::Layout(const Problem& problem)
    : problem_(problem),
      by_first_after_(problem.gaps().size()),
      by_last_before_(problem.gaps().size()),
      visited_(problem.slots(), 0),
      last_reader_(problem.tape().values().size(), kNone) {
  const std::vector<Gap>& gaps = problem.gaps();
  std::iota(by_first_after_.begin(), by_first_after_.end(), 0U);
  std::ranges::stable_sort(by_first_after_, {}, [&](std::uint32_t gap) { return gaps[gap].first_after; });
  std::iota(by_last_before_.begin(), by_last_before_.end(), 0U);
  std::ranges::stable_sort(by_last_before_, {}, [&](std::uint32_t gap) { return gaps[gap].last_before; });
}

Outcome Layout::evaluate(const Decisions& decisions, std::uint64_t bytes, double slack, double longest) {
  decisions_ = &decisions;
  bytes_ = bytes;
  soft_bytes_ = bytes - static_cast<std::uint64_t>(slack * static_cast<double>(bytes));
  longest_ = longest * (1 + kSumError);
  outcome_ = {};
  if (find_recomputations()) {
    find_memory();
    if (choose_algorithms()) {
      find_seconds();
    }
  }
  return outcome_;
}

// --- recomputations ----------------------------------------------------------------------------------------
bool Layout::find_recomputations() {
  const std::vector<Gap>& gaps = problem_.gaps();
  again_.clear();
  back_.assign(gaps.size(), kNone);
  read_again_.assign(gaps.size(), false);
  for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
    if (fate(gap) == Fate::kOffload) {
      back_[gap] = gaps[gap].first_after;
    }
  }
  for (const std::uint32_t gap : by_first_after_) {
    if (is_recomputed(fate(gap)) && back_[gap] == kNone && !recompute_at(gaps[gap].first_after, gap)) {
      return false;
    }
  }
  return true;
}

bool Layout::recompute_at(OpId slot, std::uint32_t gap) {
  const std::size_t first = again_.size();
  ++search_;
  if (!gather(slot, gap)) {
    outcome_.impossible_gap = gap;
    return false;
  }
  std::sort(again_.begin() + static_cast<std::ptrdiff_t>(first), again_.end(),
            [](const Again& a, const Again& b) { return a.op < b.op; });
  count_passing(slot, first);
  return true;
}

// All ops that it takes to have the value of the gap at the slot.
bool Layout::gather(OpId slot, std::uint32_t gap) {
  const Tape& tape = problem_.tape();
  stack_.assign(1, problem_.gaps()[gap].value);
  while (!stack_.empty()) {
    const ValueId value = stack_.back();
    stack_.pop_back();
    if (const std::uint32_t mine = problem_.gap_at(value, slot);
        mine != kNone && (fate(mine) == Fate::kRecompute || problem_.gaps()[mine].first_after == slot)) {
      back_[mine] = slot;
    }
    const OpId producer = tape.producer(value);
    if (producer == kNone || !problem_.relaunch(producer).possible) {
      return false;
    }
    if (visited_[producer] == search_) {
      continue;
    }
    visited_[producer] = search_;
    again_.push_back({.slot = slot, .op = producer});
    for (const ValueId read : problem_.relaunch(producer).reads) {
      if (!is_there(read, slot)) {
        stack_.push_back(read);
      }
    }
  }
  return true;
}

// Where it is on the host, it is fetched by then.
bool Layout::is_there(ValueId value, OpId slot) {
  if (problem_.tape().last_use(value) < slot) {
    return false;
  }
  const std::uint32_t gap = problem_.gap_at(value, slot);
  if (gap == kNone || fate(gap) == Fate::kKeep) {
    return true;
  }
  if (fate(gap) == Fate::kOffload) {
    back_[gap] = std::min(back_[gap], slot);
    read_again_[gap] = true;
    return true;
  }
  return back_[gap] <= slot;
}

// Is it recomputed at the slot for its own next use, too?
bool Layout::stays(ValueId value, OpId slot) const {
  const std::uint32_t gap = problem_.gap_at(value, slot);
  return gap != kNone && is_recomputed(fate(gap)) && back_[gap] == slot;
}

// Memory of what is recomputed at the slot, while each of these ops runs. What stays is counted from the slot
// on: until it is made, it takes none.
void Layout::count_passing(OpId slot, std::size_t first) {
  for (std::size_t each = first; each < again_.size(); ++each) {
    for (const ValueId read : problem_.relaunch(again_[each].op).reads) {
      last_reader_[read] = again_[each].op;
    }
  }
  std::int64_t alive = 0;
  std::int64_t staying = 0;
  for (std::size_t each = first; each < again_.size(); ++each) {
    const Relaunch& again = problem_.relaunch(again_[each].op);
    for (const Relaunch::Made& made : again.makes) {
      const std::int64_t bytes = problem_.storage_bytes(made.value);
      alive += made.overwrites == kNone ? bytes : 0;
      staying += stays(made.value, slot) ? bytes : 0;
    }
    again_[each].passing_bytes = alive;
    const auto release = [&](ValueId value) {
      alive -= stays(value, slot) ? 0 : problem_.storage_bytes(value);
    };
    for (const Relaunch::Made& made : again.makes) {
      if (last_reader_[made.value] == kNone) {
        release(made.value);
      }
    }
    for (const ValueId read : again.reads) {
      const OpId producer = problem_.tape().producer(read);
      const bool made_here = producer != kNone && visited_[producer] == search_;
      const bool is_overwritten = std::ranges::any_of(
          again.makes, [read](const Relaunch::Made& made) { return made.overwrites == read; });
      if (made_here && !is_overwritten && last_reader_[read] == again_[each].op) {
        release(read);
      }
    }
  }
  for (std::size_t each = first; each < again_.size(); ++each) {
    again_[each].passing_bytes -= staying;
    for (const ValueId read : problem_.relaunch(again_[each].op).reads) {
      last_reader_[read] = kNone;
    }
  }
}

// --- memory and algorithms ---------------------------------------------------------------------------------
void Layout::find_memory() {
  const std::vector<Gap>& gaps = problem_.gaps();
  const std::size_t slots = problem_.slots();
  scratch_.assign(slots + 1, 0);
  for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
    if (fate(gap) != Fate::kKeep) {
      scratch_[gaps[gap].last_before + 1] -= static_cast<std::int64_t>(gaps[gap].freed_bytes);
      scratch_[back_[gap]] += static_cast<std::int64_t>(gaps[gap].freed_bytes);
    }
  }
  needed_.resize(slots);
  std::int64_t change = 0;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    change += scratch_[slot];
    needed_[slot] =
        static_cast<std::uint64_t>(static_cast<std::int64_t>(problem_.resident_bytes()[slot]) + change);
  }
}

// What an op's workspace may take at most: wherever it is launched, it runs the same algorithm.
bool Layout::find_room() {
  const std::size_t slots = problem_.slots();
  room_.resize(slots);
  auto again = again_.begin();
  for (OpId slot = 0; slot < slots; ++slot) {
    std::uint64_t least = needed_[slot] + problem_.least_workspace(slot);
    room_[slot] = bytes_ - std::min(bytes_, needed_[slot]);
    for (; again != again_.end() && again->slot == slot; ++again) {
      const std::uint64_t before = bytes_before(*again);
      least = std::max(least, before + problem_.least_workspace(again->op));
      room_[again->op] = std::min(room_[again->op], bytes_ - std::min(bytes_, before));
    }
    if (least > bytes_) {
      outcome_.shortages.push_back({.slot = slot, .bytes = least - bytes_});
    }
  }
  return outcome_.shortages.empty();
}

// Afterwards `needed_` counts workspaces, and what is made again, too.
bool Layout::choose_algorithms() {
  if (!find_room()) {
    return false;
  }
  const std::size_t slots = problem_.slots();
  tight_.assign(slots, false);
  held_up_.clear();
  choice_.resize(slots);
  seconds_.resize(slots);
  for (OpId slot = 0; slot < slots; ++slot) {
    const std::vector<Choice>& choices = problem_.choices(slot);
    const std::uint64_t slack = std::min(room_[slot], bytes_ - soft_bytes_);
    choice_[slot] = decisions_->least_choice[slot];
    const auto fits = [&](std::uint32_t choice) {
      // No slack is worth an algorithm of the last resort.
      return choices[choice].workspace_bytes <=
             room_[slot] - (choice < problem_.last_choice(slot) ? slack : 0);
    };
    for (; !fits(choice_[slot]) && choice_[slot] + 1 < choices.size(); ++choice_[slot]) {
      note_tight(slot, false);
    }
    seconds_[slot] = chosen(slot).seconds;
  }
  std::vector<std::uint64_t>& with_workspace = room_;
  for (OpId slot = 0; slot < slots; ++slot) {
    with_workspace[slot] = needed_[slot] + chosen(slot).workspace_bytes;
  }
  for (const Again& again : again_) {
    seconds_[again.slot] += chosen(again.op).seconds;
    with_workspace[again.slot] =
        std::max(with_workspace[again.slot], bytes_before(again) + chosen(again.op).workspace_bytes);
  }
  needed_.swap(with_workspace);
  return true;
}

// While an input is in use until the end of its step, the next step's cannot be loaded into its place before.
// One that is offloaded leaves it: from the slot on after which nobody needs the memory, the load is hidden.
void Layout::make_room_for_next_inputs() {
  load_seconds_ = problem_.load_seconds();
  std::uint64_t bytes = 0;
  for (const ValueId input : problem_.tape().inputs()) {
    const auto [begin, end] = problem_.gaps_of(input);
    for (std::uint32_t gap = begin; gap < end; ++gap) {
      if (fate(gap) == Fate::kOffload) {
        bytes += problem_.gaps()[gap].freed_bytes;
        break;
      }
    }
  }
  OpId first = static_cast<OpId>(problem_.slots());
  while (bytes > 0 && first > 0 && load_seconds_ > 0 && needed_[first - 1] + bytes <= soft_bytes_) {
    --first;
    needed_[first] += bytes;
    load_seconds_ = std::max(0.0, load_seconds_ - seconds_[first]);
  }
  next_load_ = first < problem_.slots() ? first : problem_.load_slot();
}

// A value is copied as soon as it is made, once; or, where it was recomputed before it first leaves for the
// host, as soon as that is done.
void Layout::find_copies() {
  const std::vector<Gap>& gaps = problem_.gaps();
  copies_.clear();
  offloaded_.clear();
  for (const std::uint32_t gap : by_last_before_) {
    if (fate(gap) == Fate::kOffload) {
      offloaded_.push_back(gap);
    }
  }
  for (const std::uint32_t gap : offloaded_) {
    OpId made = gaps[gap].made;
    bool on_host = false;
    for (std::uint32_t earlier = problem_.gaps_of(gaps[gap].value).first; earlier < gap; ++earlier) {
      on_host = on_host || fate(earlier) == Fate::kOffload;
      made = is_recomputed(fate(earlier)) ? back_[earlier] : made;
    }
    if (!on_host) {
      copies_.push_back(
          {.slot = made, .gap = gap, .at_start = problem_.tape().producer(gaps[gap].value) == kNone});
    }
  }
  std::ranges::stable_sort(copies_, {}, [](const Copy& copy) { return std::pair(copy.slot, copy.gap); });
  for (const Copy& copy : copies_) {
    outcome_.host_bytes += problem_.tape().value(gaps[copy.gap].value).bytes;
  }
}

// --- what is short of memory -------------------------------------------------------------------------------
// The gaps whose values are recomputed at the slot, for their own next use or on the way to another.
std::vector<std::uint32_t> Layout::recomputed_at(OpId slot) const {
  std::vector<std::uint32_t> gaps;
  for (auto again = std::ranges::lower_bound(again_, slot, {}, &Again::slot);
       again != again_.end() && again->slot == slot; ++again) {
    for (const ValueId value : problem_.tape().op(again->op).writes) {
      const std::uint32_t gap = problem_.gap_at(value, slot);
      if (gap != kNone && is_recomputed(fate(gap))) {
        gaps.push_back(gap);
      }
    }
  }
  return gaps;
}

bool Layout::relieve(const std::vector<Shortage>& shortages, Decisions& decisions,
                     std::minstd_rand& random) const {
  bool any = false;
  for (const Shortage& shortage : shortages) {
    const std::vector<std::uint32_t> gaps = recomputed_at(shortage.slot);
    bool early = false;
    for (const std::uint32_t gap : gaps) {
      if (fate(gap) == Fate::kRecompute && back_[gap] == shortage.slot &&
          problem_.gaps()[gap].first_after > shortage.slot) {
        decisions.fates[gap] = Fate::kRemake;
        early = true;
      }
    }
    if (!early && !gaps.empty()) {
      decisions.fates[gaps[random() % gaps.size()]] = Fate::kOffload;
    }
    any = any || !gaps.empty();
  }
  return any;
}

// --- time --------------------------------------------------------------------------------------------------
void Layout::find_seconds() {
  outcome_.seconds = std::numeric_limits<double>::infinity();
  find_copies();
  all_seconds_ = std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
  if (takes_too_long(all_seconds_)) {
    return;
  }
  make_room_for_next_inputs();
  if (run_without_prefetches()) {
    place_prefetches();
    run();
  }
}

bool Layout::takes_too_long(double clock) const {
  return clock > longest_;
}

// Of what the slot's op, done at `clock`, has made, and of the inputs that it was the first to read.
void Layout::start_offloads(OpId slot, double clock, std::size_t& next_copy, double& link_free) {
  for (; next_copy < copies_.size() && copies_[next_copy].slot <= slot; ++next_copy) {
    const Copy& copy = copies_[next_copy];
    const Gap& gap = problem_.gaps()[copy.gap];
    link_free = std::max(link_free, copy.at_start ? start_[slot] : clock) + gap.offload_seconds;
    const std::uint32_t end = problem_.gaps_of(gap.value).second;
    std::fill(copied_.begin() + copy.gap, copied_.begin() + end, link_free);
  }
}

void Layout::note_tight(OpId slot, bool held_up) {
  tight_[slot] = true;
  if (held_up) {
    held_up_.push_back(slot);
  }
}

// Offloads, and when their memory is given back. False: it takes too long even so.
bool Layout::run_without_prefetches() {
  const std::vector<Gap>& gaps = problem_.gaps();
  const std::size_t slots = problem_.slots();
  copied_.assign(gaps.size(), 0);
  release_.assign(gaps.size(), kNone);
  forced_.assign(gaps.size(), false);
  start_.resize(slots);
  using Lingering = std::pair<double, std::uint32_t>;  // copied, gap
  std::priority_queue<Lingering, std::vector<Lingering>, std::greater<>> lingering;
  std::uint64_t lingering_bytes = 0;
  // Those that are to be fetched soon, and so must have left, whoever is copied before them.
  using Due = std::pair<OpId, std::uint32_t>;  // back, gap
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due;
  std::size_t next_copy = 0;
  std::size_t next_done = 0;
  double clock = load_seconds_;
  double rest = all_seconds_;
  double link = 0;
  for (OpId slot = 0; slot < slots; ++slot) {
    while (next_done < offloaded_.size() && gaps[offloaded_[next_done]].last_before < slot) {
      const std::uint32_t gap = offloaded_[next_done++];
      lingering.emplace(copied_[gap], gap);
      due.emplace(back_[gap], gap);
      lingering_bytes += gaps[gap].freed_bytes;
    }
    for (; !due.empty() && due.top().first <= slot + 1; due.pop()) {
      const std::uint32_t gap = due.top().second;
      if (copied_[gap] > clock) {
        forced_[gap] = true;
        clock = copied_[gap];
      }
    }
    while (!lingering.empty()) {
      const auto [copied, gap] = lingering.top();
      const bool needed = needed_[slot] + lingering_bytes > soft_bytes_;
      if (copied > clock && !needed) {
        break;
      }
      if (copied > clock) {
        forced_[gap] = true;
        note_tight(slot, true);
        clock = copied;
      }
      release_[gap] = slot - 1;
      lingering_bytes -= gaps[gap].freed_bytes;
      lingering.pop();
    }
    if (takes_too_long(clock + rest)) {
      return false;
    }
    needed_[slot] += lingering_bytes;
    start_[slot] = clock;
    clock += seconds_[slot];
    rest -= seconds_[slot];
    start_offloads(slot, clock, next_copy, link);
  }
  return true;
}

void Layout::place_prefetches() {
  const std::vector<Gap>& gaps = problem_.gaps();
  by_back_.clear();
  for (const std::uint32_t gap : by_first_after_) {
    if (fate(gap) == Fate::kOffload) {
      by_back_.push_back(gap);
    }
  }
  std::ranges::stable_sort(by_back_, {},
                           [&](std::uint32_t gap) { return std::pair(back_[gap], !read_again_[gap]); });
  prefetch_.assign(gaps.size(), kNone);
  double later = 1e300;
  for (auto each = by_back_.rbegin(); each != by_back_.rend(); ++each) {
    const std::uint32_t gap = *each;
    const double done = std::min(later, start_[back_[gap]]);
    later = done - (1 + kLead) * gaps[gap].prefetch_seconds;
    const auto behind = std::ranges::upper_bound(start_, later);
    const auto slot = behind == start_.begin() ? 0 : static_cast<OpId>(behind - start_.begin() - 1);
    prefetch_[gap] = std::min(back_[gap], std::max(slot, release_[gap] + 1));
  }
  std::vector<std::int64_t>& needed = scratch_;
  needed.resize(problem_.slots());
  std::ranges::transform(needed_, needed.begin(),
                         [](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); });
  tree_.assign(needed);
  OpId previous = 0;
  for (const std::uint32_t gap : by_back_) {
    OpId slot = std::max(prefetch_[gap], previous);
    const auto bytes = static_cast<std::int64_t>(gaps[gap].bytes);
    if (const auto full =
            tree_.last_above(slot, back_[gap], static_cast<std::int64_t>(soft_bytes_) - bytes)) {
      slot = static_cast<OpId>(*full) + 1;
      note_tight(static_cast<OpId>(*full), true);
    }
    tree_.raise(slot, back_[gap], bytes);
    prefetch_[gap] = slot;
    previous = slot;
  }
}

// How long a copy takes from `begin` when the other direction is busy for a while.
double Layout::copy_beside(double begin, double seconds, double seconds_both_ways, double other_until) const {
  if (other_until <= begin) {
    return seconds;
  }
  const double both = std::min(other_until - begin, seconds_both_ways);
  return both + seconds * (1 - both / seconds_both_ways);
}

void Layout::run() {
  const std::vector<Gap>& gaps = problem_.gaps();
  const PlanCosts& costs = problem_.costs();
  const double slower = costs.host_to_device / costs.host_to_device_both_ways;
  arrival_.assign(gaps.size(), 0);
  double clock = load_seconds_;
  double rest = all_seconds_;
  double to_host = 0;
  double to_device = clock;
  std::size_t next_copy = 0;
  std::size_t next_fetched = 0;
  std::size_t next_back = 0;
  // In order of release: only those that are forced hold anybody up.
  std::vector<std::uint32_t> held;
  for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
    if (fate(gap) == Fate::kOffload && forced_[gap]) {
      held.push_back(gap);
    }
  }
  std::ranges::stable_sort(held, {}, [&](std::uint32_t gap) { return release_[gap]; });
  std::size_t next_held = 0;
  for (OpId slot = 0; slot < problem_.slots(); ++slot) {
    for (; next_held < held.size() && release_[held[next_held]] < slot; ++next_held) {
      clock = std::max(clock, copied_[held[next_held]]);
    }
    for (; next_fetched < by_back_.size() && prefetch_[by_back_[next_fetched]] == slot; ++next_fetched) {
      const std::uint32_t gap = by_back_[next_fetched];
      const double begin = std::max({to_device, clock, copied_[gap]});
      to_device = begin + copy_beside(begin, gaps[gap].prefetch_seconds, slower * gaps[gap].prefetch_seconds,
                                      to_host);
      arrival_[gap] = to_device;
    }
    for (; next_back < by_back_.size() && back_[by_back_[next_back]] == slot; ++next_back) {
      const std::uint32_t gap = by_back_[next_back];
      const double recomputing = read_again_[gap] ? 0 : seconds_[slot] - chosen(slot).seconds;
      clock = std::max(clock, arrival_[gap] - recomputing);
    }
    if (takes_too_long(clock + rest)) {
      return;
    }
    start_[slot] = clock;
    clock += seconds_[slot];
    rest -= seconds_[slot];
    start_offloads(slot, clock, next_copy, to_host);
  }
  outcome_.seconds = clock;
}

// --- the plan ----------------------------------------------------------------------------------------------
void Layout::write(Plan& plan) const {
  const std::vector<Gap>& gaps = problem_.gaps();
  plan.algorithms.clear();
  for (OpId op = 0; op < problem_.slots(); ++op) {
    plan.algorithms.push_back(chosen(op).algorithm);
  }
  plan.transfers.clear();
  plan.recomputations.clear();
  std::vector<OpId> copied_with(gaps.size(), kNone);
  for (const Copy& copy : copies_) {
    copied_with[copy.gap] = copy.slot;
  }
  for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
    const ValueId value = gaps[gap].value;
    if (fate(gap) == Fate::kOffload) {
      plan.transfers.push_back({.value = value,
                                .offload_with = copied_with[gap],
                                .release_with = release_[gap],
                                .prefetch_with = prefetch_[gap]});
    } else if (is_recomputed(fate(gap))) {
      plan.recomputations.push_back({.value = value, .with = back_[gap]});
    }
  }
}

}  // namespace vdnn::optimal
