#include "src/plan/optimal/arrangement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/plan/placement.h"
#include "src/plan/schedule_builder.h"
#include "src/plan/waits.h"
#include "vdnn/size.h"

namespace vdnn::optimal {

namespace {

// The time that a value is on the host because of a transfer (plan.h). `out` and `back` are positions in
// `lifetimes_`: of the value's device memory before and after that time.
struct HostStay {
  std::size_t out = 0;   // this lifetime ends when the copy to the host is done
  std::size_t back = 0;  // this lifetime begins when the value is fetched
  OpId first_use = 0;    // of the lifetime `back`
  // The end of `out` and the begin of `back` according to the plan.
  std::uint32_t asked_end = 0;
  std::uint32_t asked_begin = 0;
};

// A buffer's name, and the number of earlier buffers with the same name.
using Key = std::pair<std::string, int>;

// Calls `visit(position, key)` for each of a schedule's lifetimes.
template <class Visit>
void visit_keys(const Schedule& schedule, std::span<const Lifetime> all, const Visit& visit) {
  std::map<std::string, int> seen;
  for (std::size_t each = 0; each < all.size(); ++each) {
    const std::string& name = schedule.buffers[all[each].buffer].name;
    visit(each, Key(name, seen[name]++));
  }
}

constexpr double kMostReserved = 1.02;  // times the most bytes that are alive at one time
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

// The lowest offset at which buffer `me` overlaps no buffer that is alive at the same time.
std::uint64_t lowest_free(std::span<const Lifetime> all, std::span<const std::uint64_t> offsets,
                          std::size_t me, std::uint64_t alignment) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
  for (std::size_t other = 0; other < all.size(); ++other) {
    const bool meet = all[me].begin < all[other].end && all[other].begin < all[me].end;
    if (other != me && meet && offsets[other] != kNowhere) {
      taken.emplace_back(offsets[other], offsets[other] + round_up(all[other].bytes, alignment));
    }
  }
  std::ranges::sort(taken);
  std::uint64_t offset = 0;
  for (const auto& [begin, end] : taken) {
    if (begin >= offset + all[me].bytes) {
      break;
    }
    offset = std::max(offset, end);
  }
  return offset;
}

// The schedule of a plan, with offsets like those of the schedule `before`. A buffer has the offset of the
// buffer of `before` with the same name and size, unless an earlier buffer that keeps its offset overlaps
// it. All other buffers have the lowest free offset.
struct SamePlaces {
  SamePlaces(const Problem& problem, const Plan& plan, const Schedule& before)
      : schedule(build_layer_wise_schedule(problem.tape(), plan, nullptr)), all(lifetimes(schedule)) {
    const std::uint64_t alignment = problem.costs().alignment_bytes;
    std::map<Key, const Buffer*> known;
    const std::vector<Lifetime> all_before = lifetimes(before);
    visit_keys(before, all_before, [&](std::size_t each, Key key) {
      known.emplace(std::move(key), &before.buffers[all_before[each].buffer]);
    });
    placement = {.offsets = std::vector<std::uint64_t>(all.size(), kNowhere), .bytes = 0};
    std::vector<std::size_t> alive;  // buffers that keep their offsets
    visit_keys(schedule, all, [&](std::size_t each, const Key& key) {
      std::erase_if(alive, [&](std::size_t other) { return all[other].end <= all[each].begin; });
      const auto same = known.find(key);
      if (same != known.end() && same->second->bytes == all[each].bytes &&
          is_free(alive, *same->second->offset, all[each].bytes)) {
        placement.offsets[each] = *same->second->offset;
        alive.push_back(each);
      } else {
        added.push_back(each);
      }
    });
    for (const std::size_t each : added) {
      placement.offsets[each] = lowest_free(all, placement.offsets, each, alignment);
    }
    for (std::size_t each = 0; each < all.size(); ++each) {
      placement.bytes =
          std::max(placement.bytes, placement.offsets[each] + round_up(all[each].bytes, alignment));
    }
  }

  // Whether none of the buffers `alive` is in these bytes.
  bool is_free(std::span<const std::size_t> alive, std::uint64_t offset, std::uint64_t bytes) const {
    return std::ranges::none_of(alive, [&](std::size_t other) {
      const std::uint64_t taken = placement.offsets[other];
      return offset < taken + all[other].bytes && taken < offset + bytes;
    });
  }

  Schedule schedule;
  std::vector<Lifetime> all;
  Placement placement;
  std::vector<std::size_t> added;  // positions in `all`
};

// The places of the buffers that are alive, in order of offset.
class TakenPlaces {
 public:
  TakenPlaces(const Schedule& schedule, std::uint64_t alignment)
      : schedule_(schedule), alignment_(alignment) {}

  void add(BufferId buffer) { places_.insert(place(buffer)); }
  // Returns false if the buffer has no place here.
  bool remove(BufferId buffer) {
    return buffer != kNone && schedule_.buffers[buffer].offset && places_.erase(place(buffer)) > 0;
  }
  // The largest stretch of free bytes below `most`. No place may extend beyond `most`.
  std::uint64_t largest_gap(std::uint64_t most) const {
    std::uint64_t largest = 0;
    std::uint64_t free = 0;
    for (const auto& [begin, end, buffer] : places_) {
      largest = std::max(largest, begin - std::min(begin, free));
      free = std::max(free, end);
    }
    return std::max(largest, most - std::min(most, free));
  }

 private:
  using Place = std::tuple<std::uint64_t, std::uint64_t, BufferId>;  // begin, end

  Place place(BufferId id) const {
    const Buffer& buffer = schedule_.buffers[id];
    return {*buffer.offset, *buffer.offset + round_up(buffer.bytes, alignment_), id};
  }

  const Schedule& schedule_;
  std::uint64_t alignment_;
  std::set<Place> places_;
};

class Arranger {
 public:
  Arranger(const Problem& problem, Plan& plan, NextInputs next, std::uint64_t goal, GiveWay give_way)
      : problem_(problem),
        plan_(plan),
        next_(next),
        goal_(goal),
        give_way_(give_way),
        alignment_(problem.costs().alignment_bytes) {}

  Schedule run(Placements& placements, std::uint64_t most) {
    build();
    if (give_way_.copies != GiveWay::Copies::kNone) {
      find_host_stays();
      soften();
    }
    look_ahead();
    Placement placement = placements.find(lifetimes_, alignment_, goal_);
    settle(lifetimes_, placement, alignment_);
    if (give_way_.copies != GiveWay::Copies::kNone && harden()) {
      const std::map<Key, std::uint64_t> offsets = by_name(placement);
      build();
      look_ahead();
      placement = pack(lifetimes_, in_order(offsets), alignment_);
    }
    assign(schedule_, lifetimes_, placement);
    if (schedule_.arena_bytes <= most) {
      derive_waits(problem_.tape(), schedule_);
    }
    return std::move(schedule_);
  }

 private:
  void build() {
    first_.clear();
    schedule_ = build_layer_wise_schedule(problem_.tape(), plan_, &first_);
    lifetimes_ = lifetimes(schedule_);
    if (!plan_.transfers.empty() && !give_way_.results) {
      keep_results();
    }
  }

  // Keeps the memory of small results until the end of the step. A result is copied to the host after all
  // earlier offloads, so the next user of its few bytes would wait for all these offloads. Leaves out results
  // that are offloaded.
  void keep_results() {
    std::vector<bool> result(schedule_.buffers.size(), false);
    std::vector<bool> offloaded(schedule_.buffers.size(), false);
    for (const Instruction& instruction : schedule_.instructions) {
      if (instruction.kind == InstructionKind::kReadResult) {
        result[instruction.buffer] = true;
      } else if (instruction.kind == InstructionKind::kOffload) {
        offloaded[instruction.buffer] = true;
      }
    }
    for (Lifetime& lifetime : lifetimes_) {
      if (result[lifetime.buffer] && !offloaded[lifetime.buffer] && lifetime.bytes <= alignment_) {
        lifetime.end = lifetime.soft_end = static_cast<std::uint32_t>(schedule_.instructions.size());
      }
    }
  }

  // Sets next_begin of this step's inputs, so that their places stay free and the next step's inputs can be
  // loaded early.
  void look_ahead() {
    std::vector<bool> input(schedule_.buffers.size(), false);
    for (const Instruction& instruction : schedule_.instructions) {
      if (instruction.kind == InstructionKind::kLoad) {
        input[instruction.buffer] = true;
      }
    }
    for (Lifetime& lifetime : lifetimes_) {
      if (input[lifetime.buffer] && lifetime.soft_end <= first_[next_.from]) {
        lifetime.next_begin = first_[next_.from];
        lifetime.next_is_firm = next_.firm;
      }
    }
  }

  // Finds the lifetimes before and after each transfer. A value's n-th transfer in order of time ends with
  // the n-th prefetch of the value.
  void find_host_stays() {
    std::vector<std::size_t> lifetime_of(schedule_.buffers.size(), 0);
    for (std::size_t each = 0; each < lifetimes_.size(); ++each) {
      lifetime_of[lifetimes_[each].buffer] = each;
    }
    std::vector<std::vector<HostStay>> by_value(problem_.tape().values().size());
    std::vector<BufferId> place(problem_.tape().values().size(), kNone);
    std::vector<OpId> first_use(schedule_.buffers.size(), kNone);
    OpId slot = 0;
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      const Instruction& instruction = schedule_.instructions[index];
      slot += first_[slot + 1] <= index ? 1 : 0;
      if (instruction.kind == InstructionKind::kPrefetch) {
        by_value[instruction.value].push_back(
            {.out = lifetime_of[place[instruction.value]], .back = lifetime_of[instruction.buffer]});
      }
      for (const BufferUse& use : uses(problem_.tape(), instruction)) {
        // A recomputation may also write a copy of a value that is already on the device.
        const bool copy = use.write && instruction.kind == InstructionKind::kRecompute;
        if (use.value != kNone && !copy && schedule_.buffers[use.buffer].space == Space::kDevice) {
          place[use.value] = use.buffer;
        }
      }
      for (const BufferId operand : instruction.operands) {
        if (operand != kNone && first_use[operand] == kNone) {
          first_use[operand] = slot;
        }
      }
    }
    std::vector<std::size_t> in_time(plan_.transfers.size());
    std::iota(in_time.begin(), in_time.end(), std::size_t{0});
    std::ranges::stable_sort(in_time, {},
                             [&](std::size_t each) { return plan_.transfers[each].prefetch_with; });
    std::vector<std::size_t> seen(by_value.size(), 0);
    host_stays_.resize(plan_.transfers.size());
    for (const std::size_t each : in_time) {
      const ValueId value = plan_.transfers[each].value;
      host_stays_[each] = by_value[value][seen[value]++];
      host_stays_[each].first_use = first_use[lifetimes_[host_stays_[each].back].buffer];
    }
  }

  const Gap& gap_of(const Transfer& transfer) const {
    return problem_.gaps()[problem_.gap_at(transfer.value, transfer.prefetch_with)];
  }

  // Shortens lifetimes to the least time that they may have. The lifetimes according to the plan become soft.
  void soften() {
    find_starts();
    for (std::size_t each = 0; each < plan_.transfers.size(); ++each) {
      const Transfer& transfer = plan_.transfers[each];
      const Gap& gap = gap_of(transfer);
      HostStay& stay = host_stays_[each];
      OpId left = gap.last_before;
      OpId fetched = stay.first_use;
      if (give_way_.copies == GiveWay::Copies::kQueues) {
        if (transfer.offload_with != kNone) {
          left = std::max(left, slot_at(starts_[transfer.offload_with + 1] + gap.offload_seconds));
        }
        fetched = std::min(fetched, slot_at(starts_[fetched] - gap.prefetch_seconds));
      }
      Lifetime& out = lifetimes_[stay.out];
      out.end = std::min(out.soft_end, first_[std::min<std::size_t>(left + 1, first_.size() - 1)]);
      stay.asked_end = out.soft_end;
      Lifetime& back = lifetimes_[stay.back];
      back.begin = std::max(back.soft_begin, first_[fetched]);
      stay.asked_begin = back.soft_begin;
    }
  }

  // Computes when each op would start if there were no copies, and when the step would end.
  void find_starts() {
    starts_.assign(1, 0);
    for (OpId op = 0; op < problem_.slots(); ++op) {
      starts_.push_back(starts_.back() + problem_.costs().op_seconds[op][plan_.algorithms[op]]);
    }
  }
  // The op that runs at `seconds`.
  OpId slot_at(double seconds) const {
    const auto behind = std::ranges::upper_bound(starts_, seconds) - starts_.begin();
    return behind == 0 ? 0 : std::min(static_cast<OpId>(behind - 1), static_cast<OpId>(problem_.slots() - 1));
  }

  // Changes the plan's transfers to the lives that the placement has granted. Returns false if none changes.
  bool harden() {
    bool changed = false;
    for (std::size_t each = 0; each < plan_.transfers.size(); ++each) {
      Transfer& transfer = plan_.transfers[each];
      const HostStay& stay = host_stays_[each];
      const std::uint32_t end = lifetimes_[stay.out].soft_end;
      if (end < stay.asked_end) {  // releases with the last op that has ended by then
        const auto behind = std::ranges::upper_bound(first_, end) - first_.begin();
        const Gap& gap = gap_of(transfer);
        transfer.release_with = std::max(gap.last_before, static_cast<OpId>(behind) - 2);
        changed = true;
      }
      const std::uint32_t begin = lifetimes_[stay.back].soft_begin;
      if (begin > stay.asked_begin) {
        transfer.prefetch_with = static_cast<OpId>(std::ranges::lower_bound(first_, begin) - first_.begin());
        changed = true;
      }
    }
    return changed;
  }

  std::map<Key, std::uint64_t> by_name(const Placement& placement) const {
    std::map<Key, std::uint64_t> offsets;
    visit_keys(schedule_, lifetimes_,
               [&](std::size_t each, Key key) { offsets.emplace(std::move(key), placement.offsets[each]); });
    return offsets;
  }
  std::vector<std::uint64_t> in_order(const std::map<Key, std::uint64_t>& offsets) const {
    std::vector<std::uint64_t> result(lifetimes_.size());
    visit_keys(schedule_, lifetimes_,
               [&](std::size_t each, const Key& key) { result[each] = offsets.at(key); });
    return result;
  }

  const Problem& problem_;
  Plan& plan_;
  NextInputs next_;
  std::uint64_t goal_;
  GiveWay give_way_;
  std::uint64_t alignment_;
  Schedule schedule_;
  std::vector<std::uint32_t> first_;  // by op: the index of its first instruction
  std::vector<double> starts_;
  std::vector<Lifetime> lifetimes_;
  std::vector<HostStay> host_stays_;  // by transfer
};

}  // namespace

std::uint64_t most_reserved_bytes(std::span<const Lifetime> lifetimes, std::uint64_t alignment) {
  return static_cast<std::uint64_t>(kMostReserved *
                                    static_cast<double>(most_live_bytes(lifetimes, alignment)));
}

std::vector<std::uint64_t> largest_places(const Schedule& schedule, std::uint64_t alignment,
                                          std::uint64_t most) {
  std::vector<std::uint64_t> result(schedule.algorithms.size(), most);
  TakenPlaces taken(schedule, alignment);
  for (const Instruction& instruction : schedule.instructions) {
    const bool placed = instruction.buffer != kNone && schedule.buffers[instruction.buffer].offset;
    if (instruction.kind == InstructionKind::kAllocate && placed) {
      taken.add(instruction.buffer);
    } else if (instruction.kind == InstructionKind::kRelease) {
      taken.remove(instruction.buffer);
    } else if (is_launch(instruction.kind)) {
      const bool has_workspace = taken.remove(instruction.workspace());
      std::uint64_t& place = result[instruction.op];
      place = std::min(place, taken.largest_gap(most));
      if (has_workspace) {
        taken.add(instruction.workspace());
      }
    }
  }
  return result;
}

std::vector<OpId> ops_without_place(const Problem& problem, const Plan& plan, const Schedule& before,
                                    std::uint64_t most) {
  const SamePlaces same(problem, plan, before);
  const std::vector<OpId> op_of = ops_of_workspaces(same.schedule);
  std::vector<OpId> result;
  for (const std::size_t each : same.added) {
    const Lifetime& one = same.all[each];
    if (same.placement.offsets[each] + one.bytes > most && op_of[one.buffer] != kNone) {
      result.push_back(op_of[one.buffer]);
    }
  }
  return result;
}

std::optional<Schedule> arrange_as_before(const Problem& problem, const Plan& plan, const Schedule& before,
                                          Placements& placements, std::uint64_t most) {
  const std::uint64_t alignment = problem.costs().alignment_bytes;
  SamePlaces same(problem, plan, before);
  if (most_live_bytes(same.all, alignment) > most) {
    return std::nullopt;
  }
  if (same.placement.bytes > most) {
    same.placement = placements.find(same.all, alignment, most);
  }
  if (same.placement.bytes > most) {
    return std::nullopt;
  }
  assign(same.schedule, same.all, same.placement);
  derive_waits(problem.tape(), same.schedule);
  return std::move(same.schedule);
}

std::vector<OpId> ops_of_workspaces(const Schedule& schedule) {
  std::vector<OpId> result(schedule.buffers.size(), kNone);
  for (const Instruction& instruction : schedule.instructions) {
    if (is_launch(instruction.kind) && instruction.operands.back() != kNone) {
      result[instruction.operands.back()] = instruction.op;
    }
  }
  return result;
}

Schedule arrange(const Problem& problem, Plan& plan, NextInputs next, std::uint64_t goal, GiveWay give_way,
                 Placements& placements, std::uint64_t most) {
  return Arranger(problem, plan, next, goal, give_way).run(placements, most);
}

}  // namespace vdnn::optimal
