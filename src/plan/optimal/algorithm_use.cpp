#include "src/plan/optimal/algorithm_use.h"

#include <algorithm>

namespace vdnn::optimal {

const AlgorithmUse& AlgorithmChooser::choose(const Decisions& decisions, const Recomputations& recomputations,
                                             Room room) {
  find_residents(decisions, recomputations);
  find_free(recomputations, room.bytes);
  if (use_.shortages.empty()) {
    choose_each(decisions, room.bytes - room.soft_bytes);
    count_workspaces(recomputations);
  }
  return use_;
}

void AlgorithmChooser::find_residents(const Decisions& decisions, const Recomputations& recomputations) {
  const std::vector<Gap>& gaps = problem_.gaps();
  const std::size_t slots = problem_.slots();
  change_.assign(slots + 1, 0);
  for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
    if (decisions.fates[gap] != Fate::kKeep) {
      change_[gaps[gap].last_before + 1] -= static_cast<std::int64_t>(gaps[gap].freed_bytes);
      change_[recomputations.back[gap]] += static_cast<std::int64_t>(gaps[gap].freed_bytes);
    }
  }
  resident_.resize(slots);
  std::int64_t change = 0;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    change += change_[slot];
    resident_[slot] =
        static_cast<std::uint64_t>(static_cast<std::int64_t>(problem_.resident_bytes()[slot]) + change);
  }
}

// The bytes in use, without workspaces, while the op of `again` is launched again.
std::uint64_t AlgorithmChooser::bytes_before(const LaunchedAgain& again) const {
  return resident_[again.slot] - problem_.made_bytes(again.slot) +
         static_cast<std::uint64_t>(again.passing_bytes);
}

// All launches of an op use the same algorithm, so its workspace must fit at each of them.
void AlgorithmChooser::find_free(const Recomputations& recomputations, std::uint64_t bytes) {
  const std::size_t slots = problem_.slots();
  free_.resize(slots);
  use_.shortages.clear();
  auto again = recomputations.launches.begin();
  for (OpId slot = 0; slot < slots; ++slot) {
    std::uint64_t least = resident_[slot] + problem_.least_workspace(slot);
    free_[slot] = bytes - std::min(bytes, resident_[slot]);
    for (; again != recomputations.launches.end() && again->slot == slot; ++again) {
      const std::uint64_t before = bytes_before(*again);
      least = std::max(least, before + problem_.least_workspace(again->op));
      free_[again->op] = std::min(free_[again->op], bytes - std::min(bytes, before));
    }
    if (least > bytes) {
      use_.shortages.push_back({.slot = slot, .bytes = least - bytes});
    }
  }
}

void AlgorithmChooser::choose_each(const Decisions& decisions, std::uint64_t slack) {
  const std::size_t slots = problem_.slots();
  use_.stepped_down.assign(slots, false);
  use_.choice.resize(slots);
  for (OpId op = 0; op < slots; ++op) {
    const std::vector<Choice>& choices = problem_.choices(op);
    const std::uint64_t free = free_[op];
    const std::uint64_t free_without_slack = free - std::min(free, slack);
    const auto fits = [&](std::uint32_t choice) {
      return choices[choice].workspace_bytes <=
             (choice < problem_.last_choice(op) ? free_without_slack : free);
    };
    std::uint32_t choice = decisions.least_choice[op];
    for (; !fits(choice) && choice + 1 < choices.size(); ++choice) {
      use_.stepped_down[op] = true;
    }
    use_.choice[op] = choice;
  }
}

void AlgorithmChooser::count_workspaces(const Recomputations& recomputations) {
  const std::size_t slots = problem_.slots();
  const auto chosen = [this](OpId op) -> const Choice& { return problem_.choices(op)[use_.choice[op]]; };
  use_.seconds.resize(slots);
  use_.bytes.resize(slots);
  for (OpId slot = 0; slot < slots; ++slot) {
    use_.seconds[slot] = chosen(slot).seconds;
    use_.bytes[slot] = resident_[slot] + chosen(slot).workspace_bytes;
  }
  for (const LaunchedAgain& again : recomputations.launches) {
    use_.seconds[again.slot] += chosen(again.op).seconds;
    use_.bytes[again.slot] =
        std::max(use_.bytes[again.slot], bytes_before(again) + chosen(again.op).workspace_bytes);
  }
}

}  // namespace vdnn::optimal
