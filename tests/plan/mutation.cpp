#include "plan/mutation.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace vdnn::testing {

namespace {

using Index = std::uint32_t;
using Order = std::vector<Index>;  // a new position: the old one

// What happens to a wait for something that has moved behind the one that waits.
enum class ForwardWaits : std::uint8_t { kKeep, kDrop };

Schedule rearranged(const Schedule& intact, const Order& order, ForwardWaits forward_waits) {
  std::vector<Index> position(intact.instructions.size(), kNone);
  for (Index to = 0; to < order.size(); ++to) {
    position[order[to]] = to;
  }
  Schedule result = intact;
  result.instructions.clear();
  for (const Index from : order) {
    Instruction instruction = intact.instructions[from];
    for (Wait& wait : instruction.waits) {
      wait.instruction = position[wait.instruction];
    }
    const auto me = static_cast<Index>(result.instructions.size());
    std::erase_if(instruction.waits, [&](const Wait& wait) {
      return wait.instruction == kNone ||
             (forward_waits == ForwardWaits::kDrop && wait.steps_ago == 0 && wait.instruction >= me);
    });
    result.instructions.push_back(std::move(instruction));
  }
  return result;
}

class Mutator {
 public:
  Mutator(const Tape& tape, const Schedule& intact, std::mt19937_64& random)
      : tape_(tape), intact_(intact), random_(random), order_(intact.instructions.size()) {
    std::iota(order_.begin(), order_.end(), 0U);
  }

  std::optional<Mutant> drop_wait() {
    const auto place = some_wait();
    if (!place) {
      return std::nullopt;
    }
    const auto [index, number] = *place;
    Schedule broken = intact_;
    auto& waits = broken.instructions[index].waits;
    const std::string what = name(index) + " no longer waits for " + name(waits[number].instruction);
    waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(number));
    return Mutant{std::move(broken), what};
  }

  std::optional<Mutant> change_steps_ago() {
    const auto place = some_wait();
    if (!place) {
      return std::nullopt;
    }
    const auto [index, number] = *place;
    Schedule broken = intact_;
    Wait& wait = broken.instructions[index].waits[number];
    wait.steps_ago = 1 - wait.steps_ago;
    return Mutant{std::move(broken), name(index) + " waits for " + name(wait.instruction) + " " +
                                         std::to_string(wait.steps_ago) + " steps ago"};
  }

  std::optional<Mutant> change_stream() {
    const Index index = below(order_.size());
    Schedule broken = intact_;
    StreamRole& stream = broken.instructions[index].stream;
    stream =
        static_cast<StreamRole>((static_cast<Index>(stream) + 1 + below(kStreamRoles - 1)) % kStreamRoles);
    return Mutant{std::move(broken), name(index) + " goes to stream " + vdnn::to_string(stream)};
  }

  std::optional<Mutant> swap() {
    const Index from = below(order_.size());
    const Index to = coin() ? below(order_.size()) : neighbour(from, 8);
    std::swap(order_[from], order_[to]);
    return moved(name(from) + " and " + name(to) + " swap places");
  }

  std::optional<Mutant> move_release_earlier() {
    const Index from = some(InstructionKind::kRelease);
    if (from == kNone || from == 0) {
      return std::nullopt;
    }
    const Index to = coin() ? below(from) : from - 1 - below(std::min(from, Index{8}));
    std::rotate(order_.begin() + to, order_.begin() + from, order_.begin() + from + 1);
    return moved(name(from) + " moves to " + std::to_string(to));
  }

  std::optional<Mutant> move_offload_later() {
    const Index from = some(InstructionKind::kOffload);
    if (from == kNone) {
      return std::nullopt;
    }
    const Index room = static_cast<Index>(order_.size()) - 1 - from;
    const Index to = from + 1 + below(coin() ? room : std::min(room, Index{8}));
    std::rotate(order_.begin() + from, order_.begin() + from + 1, order_.begin() + to + 1);
    return moved(name(from) + " moves to " + std::to_string(to));
  }

  std::optional<Mutant> remove(InstructionKind kind) {
    const Index index = some(kind);
    if (index == kNone) {
      return std::nullopt;
    }
    std::erase(order_, index);
    return Mutant{rearranged(intact_, order_, ForwardWaits::kKeep), name(index) + " is gone"};
  }

  // To the end of the list, where it works for the next step, or to its start, where it works on what the
  // step before has offloaded.
  std::optional<Mutant> move_prefetch_across_border() {
    const Index prefetch = some(InstructionKind::kPrefetch);
    if (prefetch == kNone) {
      return std::nullopt;
    }
    const Index allocation = allocation_of(intact_.instructions[prefetch].buffer);
    const bool to_end = coin();
    std::stable_partition(order_.begin(), order_.end(),
                          [&](Index index) { return (index == prefetch || index == allocation) != to_end; });
    Schedule source = intact_;
    for (Index index = 0; index < source.instructions.size(); ++index) {
      for (Wait& wait : source.instructions[index].waits) {
        const bool mine = index == prefetch;
        if (to_end ? wait.instruction == prefetch : mine) {
          wait.steps_ago = 1;
        }
      }
    }
    return Mutant{
        rearranged(source, order_, ForwardWaits::kKeep),
        name(prefetch) + (to_end ? " moves to the end of the step before" : " moves to the next step")};
  }

  std::optional<Mutant> retarget_operand() {
    Schedule broken = intact_;
    std::vector<std::pair<BufferId*, std::string>> operands;
    for (Index index = 0; index < broken.instructions.size(); ++index) {
      Instruction& it = broken.instructions[index];
      if (it.kind == InstructionKind::kAllocate || it.kind == InstructionKind::kRelease) {
        continue;
      }
      for (BufferId* operand : {&it.buffer, &it.host_buffer}) {
        operands.emplace_back(operand, name(index));
      }
      for (BufferId& operand : it.operands) {
        operands.emplace_back(&operand, name(index));
      }
    }
    std::erase_if(operands, [&](const auto& operand) { return twins(*operand.first).empty(); });
    if (operands.empty()) {
      return std::nullopt;
    }
    const auto& [operand, user] = operands[below(operands.size())];
    const BufferId before = *operand;
    const std::vector<BufferId> candidates = twins(before);
    *operand = candidates[below(candidates.size())];
    return Mutant{broken, user + " uses buffer " + std::to_string(*operand) + " '" +
                              intact_.buffers[*operand].name + "' instead of " + std::to_string(before)};
  }

 private:
  Index below(std::size_t bound) { return static_cast<Index>(random_() % bound); }
  bool coin() { return below(2) == 0; }
  Index neighbour(Index from, Index distance) {
    const Index last = static_cast<Index>(order_.size()) - 1;
    const Index lowest = from - std::min(from, distance);
    return lowest + below(std::min(last, from + distance) - lowest + 1);
  }

  std::string name(Index index) const {
    return "instruction " + std::to_string(index) + " (" + describe(tape_, intact_.instructions[index]) + ")";
  }

  Mutant moved(std::string what) {
    const bool drop = coin();
    return {rearranged(intact_, order_, drop ? ForwardWaits::kDrop : ForwardWaits::kKeep),
            std::move(what) + (drop ? ", less the waits that would point forward" : "")};
  }

  Index some(InstructionKind kind) {
    std::vector<Index> found;
    for (Index index = 0; index < intact_.instructions.size(); ++index) {
      if (intact_.instructions[index].kind == kind) {
        found.push_back(index);
      }
    }
    return found.empty() ? kNone : found[below(found.size())];
  }

  std::optional<std::pair<Index, std::size_t>> some_wait() {
    std::vector<std::pair<Index, std::size_t>> found;
    for (Index index = 0; index < intact_.instructions.size(); ++index) {
      for (std::size_t number = 0; number < intact_.instructions[index].waits.size(); ++number) {
        found.emplace_back(index, number);
      }
    }
    if (found.empty()) {
      return std::nullopt;
    }
    return found[below(found.size())];
  }

  Index allocation_of(BufferId buffer) const {
    const auto found = std::ranges::find_if(intact_.instructions, [&](const Instruction& it) {
      return it.kind == InstructionKind::kAllocate && it.buffer == buffer;
    });
    return static_cast<Index>(found - intact_.instructions.begin());
  }

  // Other buffers of the same size in the same space.
  std::vector<BufferId> twins(BufferId buffer) const {
    std::vector<BufferId> result;
    for (BufferId id = 0; buffer != kNone && id < intact_.buffers.size(); ++id) {
      if (id != buffer && intact_.buffers[id].bytes == intact_.buffers[buffer].bytes &&
          intact_.buffers[id].space == intact_.buffers[buffer].space) {
        result.push_back(id);
      }
    }
    return result;
  }

  const Tape& tape_;
  const Schedule& intact_;
  std::mt19937_64& random_;
  Order order_;
};

}  // namespace

std::string to_string(MutationKind kind) {
  constexpr std::array<const char*, kMutationKinds> kNames{"drop a wait",
                                                           "change a wait's step",
                                                           "change a stream",
                                                           "swap two instructions",
                                                           "move a release earlier",
                                                           "move an offload later",
                                                           "remove a prefetch",
                                                           "move a prefetch across the border",
                                                           "retarget an operand",
                                                           "drop an allocation",
                                                           "drop a release"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::optional<Mutant> mutate(const Tape& tape, const Schedule& intact, MutationKind kind,
                             std::mt19937_64& random) {
  Mutator mutator(tape, intact, random);
  switch (kind) {
    case MutationKind::kDropWait:
      return mutator.drop_wait();
    case MutationKind::kChangeStepsAgo:
      return mutator.change_steps_ago();
    case MutationKind::kChangeStream:
      return mutator.change_stream();
    case MutationKind::kSwap:
      return mutator.swap();
    case MutationKind::kMoveReleaseEarlier:
      return mutator.move_release_earlier();
    case MutationKind::kMoveOffloadLater:
      return mutator.move_offload_later();
    case MutationKind::kRemovePrefetch:
      return mutator.remove(InstructionKind::kPrefetch);
    case MutationKind::kMovePrefetchAcrossBorder:
      return mutator.move_prefetch_across_border();
    case MutationKind::kRetargetOperand:
      return mutator.retarget_operand();
    case MutationKind::kDropAllocate:
      return mutator.remove(InstructionKind::kAllocate);
    case MutationKind::kDropRelease:
      return mutator.remove(InstructionKind::kRelease);
  }
  return std::nullopt;
}

}  // namespace vdnn::testing
