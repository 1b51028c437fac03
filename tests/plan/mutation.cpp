#include "tests/plan/mutation.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

namespace vdnn::testing {

namespace {

using Index = std::uint32_t;
using Order = std::vector<Index>;  // for each new position, the old one

constexpr std::initializer_list<InstructionKind> kAnyKind{
    InstructionKind::kAllocate,   InstructionKind::kRelease,  InstructionKind::kLoad,
    InstructionKind::kLaunch,     InstructionKind::kOffload,  InstructionKind::kPrefetch,
    InstructionKind::kReadResult, InstructionKind::kRecompute};

// How to treat a wait for an instruction that now comes after the waiting one.
enum class ForwardWaits : std::uint8_t { kKeep, kDrop };

// Waits follow the instructions that they name. If an instruction is duplicated, they name the first one.
Schedule rearranged(const Schedule& source, const Order& order, ForwardWaits forward_waits) {
  std::vector<Index> position(source.instructions.size(), kNone);
  for (auto to = static_cast<Index>(order.size()); to-- > 0;) {
    position[order[to]] = to;
  }
  Schedule result = source;
  result.instructions.clear();
  for (const Index from : order) {
    Instruction instruction = source.instructions[from];
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

enum class MoveDirection : std::uint8_t { kEarlier, kLater };

class Mutator {
 public:
  Mutator(const Tape& tape, const Schedule& intact, Choices& choices)
      : tape_(tape), intact_(intact), choices_(choices), order_(intact.instructions.size()) {
    std::iota(order_.begin(), order_.end(), 0U);
  }

  using Result = std::optional<Mutant>;
  using WaitPlace = std::pair<Index, std::size_t>;  // an instruction and one of its waits

  Result drop_wait(std::uint32_t least_steps_ago) {
    const auto place = some_wait(least_steps_ago);
    if (!place) {
      return std::nullopt;
    }
    const auto [index, number] = *place;
    Schedule broken = intact_;
    auto& waits = broken.instructions[index].waits;
    std::string what = name(index) + " no longer waits for " + name(waits[number].instruction);
    waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(number));
    return Mutant{std::move(broken), std::move(what)};
  }

  Result change_steps_ago() {
    const auto place = some_wait(0);
    if (!place) {
      return std::nullopt;
    }
    return with_wait(*place, [](Wait& wait) { wait.steps_ago = 1 - wait.steps_ago; });
  }

  Result retarget_wait() {
    const auto place = some_wait(0);
    if (!place || order_.size() < 2) {
      return std::nullopt;
    }
    return with_wait(*place, [this](Wait& wait) { wait.instruction = other_index(wait.instruction); });
  }

  Result add_wait() {
    const Index index = any_index();
    Schedule broken = intact_;
    std::vector<Wait>& waits = broken.instructions[index].waits;
    waits.push_back({.instruction = choices_.between(0, last(), index), .steps_ago = choices_.below(2)});
    const WaitPlace added(index, waits.size() - 1);
    return waiting(std::move(broken), added);
  }

  Result change_stream() {
    const Index index = any_index();
    Schedule broken = intact_;
    StreamRole& stream = broken.instructions[index].stream;
    stream = static_cast<StreamRole>((static_cast<Index>(stream) + 1 + choices_.below(kStreamRoles - 1)) %
                                     kStreamRoles);
    const std::string role = vdnn::to_string(stream);
    return Mutant{std::move(broken), name(index) + " goes to stream " + role};
  }

  Result swap() {
    const Index from = any_index();
    if (from == last()) {
      return std::nullopt;
    }
    const Index to = choices_.between(from + 1, last(), from);
    std::swap(order_[from], order_[to]);
    return moved(name(from) + " and " + name(to) + " swap places");
  }

  Result move(std::initializer_list<InstructionKind> kinds, MoveDirection direction) {
    const Index from = some(kinds);
    const Index end = direction == MoveDirection::kEarlier ? 0 : last();
    if (from == kNone || from == end) {
      return std::nullopt;
    }
    const Index to = direction == MoveDirection::kEarlier ? choices_.between(0, from - 1, from)
                                                          : choices_.between(from + 1, last(), from);
    move(from, to);
    return moved(name(from) + " moves to " + std::to_string(to));
  }

  // The prefetch stays after its allocation.
  Result move_prefetch() {
    const Index prefetch = some({InstructionKind::kPrefetch});
    if (prefetch == kNone) {
      return std::nullopt;
    }
    const Index to = other_index(prefetch);
    const Index allocation = allocation_of(intact_.instructions[prefetch].buffer);
    move(prefetch, to);
    const bool together = choices_.coin();
    if (together) {
      std::erase(order_, allocation);
      order_.insert(std::ranges::find(order_, prefetch), allocation);
    }
    return moved(name(prefetch) + " moves to " + std::to_string(to) +
                 (together ? ", with its allocation" : ""));
  }

  // Moves a prefetch to the end of the list, where it fetches for the next step, or to the start, where it
  // fetches what the previous step offloaded.
  Result move_prefetch_across_border() {
    const Index prefetch = some({InstructionKind::kPrefetch});
    if (prefetch == kNone) {
      return std::nullopt;
    }
    const Index allocation = allocation_of(intact_.instructions[prefetch].buffer);
    const bool to_end = choices_.coin();
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

  Result remove(std::initializer_list<InstructionKind> kinds) {
    const Index index = some(kinds);
    if (index == kNone) {
      return std::nullopt;
    }
    std::erase(order_, index);
    return Mutant{rearranged(intact_, order_, ForwardWaits::kKeep), name(index) + " is gone"};
  }

  Result repeat() {
    const Index index = any_index();
    const Index to = choices_.between(index, last(), index) + 1;
    order_.insert(order_.begin() + to, index);
    return Mutant{rearranged(intact_, order_, ForwardWaits::kKeep),
                  name(index) + " is there again at " + std::to_string(to)};
  }

  Result retarget_operand() {
    return retarget([this](BufferId before) {
      std::vector<BufferId> twins = buffers_of(space(before));
      std::erase_if(twins, [&](BufferId id) {
        return id == before || intact_.buffers[id].bytes != intact_.buffers[before].bytes;
      });
      return twins;
    });
  }

  Result retarget_to_any() {
    return retarget([this](BufferId before) {
      std::vector<BufferId> all(intact_.buffers.size());
      std::iota(all.begin(), all.end(), 0U);
      std::erase(all, before);
      return all;
    });
  }

  Result wrong_host_buffer() {
    const Index index = some({InstructionKind::kOffload, InstructionKind::kPrefetch});
    if (index == kNone) {
      return std::nullopt;
    }
    return with_buffer(
        index, [](Instruction& it) -> BufferId& { return it.host_buffer; }, buffers_of(Space::kHost));
  }

  Result wrong_value() {
    const Index index = some({InstructionKind::kLoad, InstructionKind::kOffload, InstructionKind::kPrefetch,
                              InstructionKind::kReadResult});
    if (index == kNone) {
      return std::nullopt;
    }
    Schedule broken = intact_;
    ValueId& value = broken.instructions[index].value;
    const auto values = static_cast<Index>(tape_.values().size());
    value = (value + 1 + choices_.below(values - 1)) % values;
    std::string what = name(index) + " names " + tape_.value(value).name;
    return Mutant{std::move(broken), std::move(what)};
  }

  // Replaces the workspace by none or by any buffer on the device.
  Result wrong_workspace() {
    const Index index = some({InstructionKind::kLaunch});
    std::vector<BufferId> candidates = buffers_of(Space::kDevice);
    candidates.push_back(kNone);
    return with_buffer(
        index, [](Instruction& it) -> BufferId& { return it.operands.back(); }, std::move(candidates));
  }

  Result wrong_algorithm() {
    std::vector<OpId> candidates;
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      if (tape_.op(id).algorithms.size() > 1) {
        candidates.push_back(id);
      }
    }
    if (candidates.empty()) {
      return std::nullopt;
    }
    const OpId id = one_of(candidates);
    const auto count = static_cast<Index>(tape_.op(id).algorithms.size());
    Schedule broken = intact_;
    std::uint32_t& algorithm = broken.algorithms[id];
    algorithm = (algorithm + 1 + choices_.below(count - 1)) % count;
    std::string what = tape_.op(id).name + " takes algorithm " + tape_.op(id).algorithms[algorithm].name;
    return Mutant{std::move(broken), std::move(what)};
  }

  Result overwrite() {
    const Instruction& launch = intact_.instructions[some({InstructionKind::kLaunch})];
    const Op& op = tape_.op(launch.op);
    const auto reads = static_cast<Index>(op.reads.size());
    const auto writes = static_cast<Index>(op.writes.size());
    if (reads == 0 || writes == 0) {
      return std::nullopt;
    }
    const BufferId read = launch.operands[choices_.below(reads)];
    const BufferId write = launch.operands[reads + choices_.below(writes)];
    return read == write ? std::nullopt : Result(merged(read, write));
  }

  Result merge_buffers() {
    const auto count = static_cast<Index>(intact_.buffers.size());
    const BufferId one = choices_.below(count);
    if (one + 1 == count) {
      return std::nullopt;
    }
    const BufferId other = choices_.between(one + 1, count - 1, one);
    const bool other_is_larger = intact_.buffers[other].bytes > intact_.buffers[one].bytes;
    return other_is_larger ? merged(other, one) : merged(one, other);
  }

  Result move_place() {
    if (intact_.arena_bytes == 0) {
      return std::nullopt;
    }
    std::vector<BufferId> placed;
    for (BufferId id = 0; id < intact_.buffers.size(); ++id) {
      if (intact_.buffers[id].offset) {
        placed.push_back(id);
      }
    }
    const BufferId moved = one_of(placed);
    const BufferId to = one_of(placed);
    Schedule broken = intact_;
    broken.buffers[moved].offset = intact_.buffers[to].offset;
    std::string what = buffer_name(moved) + " lies where " + buffer_name(to) + " does";
    return Mutant{std::move(broken), std::move(what)};
  }

  Result read_earlier_life() {
    struct Read {
      Index index = 0;
      BufferId buffer = kNone;
      BufferId earlier = kNone;
    };
    std::vector<Read> reads;
    for (const LifePair& pair : successive_lives()) {
      for (Index index = pair.later.made; index < order_.size(); ++index) {
        const std::vector<BufferUse> all = uses(tape_, intact_.instructions[index]);
        if (std::ranges::any_of(all, [&](const BufferUse& use) {
              return !use.write && use.buffer == pair.later.buffer && use.value == pair.value;
            })) {
          reads.push_back({index, pair.later.buffer, pair.earlier.buffer});
        }
      }
    }
    if (reads.empty()) {
      return std::nullopt;
    }
    const Read& read = one_of(reads);
    Schedule broken = intact_;
    replace_buffer(broken.instructions[read.index], read.buffer, read.earlier);
    return Mutant{std::move(broken), name(read.index) + " uses " + buffer_name(read.earlier) +
                                         " instead of " + buffer_name(read.buffer)};
  }

  Result return_into_earlier_life() {
    const std::vector<LifePair> pairs = successive_lives();
    if (pairs.empty()) {
      return std::nullopt;
    }
    const auto& [value, earlier, later] = one_of(pairs);
    const bool with_readers = choices_.coin();
    Schedule source = intact_;
    for (Index index = later.made; index < (with_readers ? order_.size() : later.made + 1); ++index) {
      Instruction& it = source.instructions[index];
      if (it.kind == InstructionKind::kRelease && it.buffer == later.buffer) {
        std::erase(order_, index);
      } else {
        replace_buffer(it, later.buffer, earlier.buffer);
      }
    }
    if (with_readers) {
      std::erase(order_, allocation_of(later.buffer));
    }
    return Mutant{rearranged(source, order_, ForwardWaits::kKeep),
                  name(later.made) + " brings it into " + buffer_name(earlier.buffer) +
                      (with_readers ? ", where it is read" : "")};
  }

  Result release_other_life() {
    const std::vector<LifePair> pairs = successive_lives();
    if (pairs.empty()) {
      return std::nullopt;
    }
    const LifePair& pair = one_of(pairs);
    const bool earlier = choices_.coin();
    const BufferId named = earlier ? pair.earlier.buffer : pair.later.buffer;
    const Index release = release_of(earlier ? pair.later.buffer : pair.earlier.buffer);
    Schedule broken = intact_;
    broken.instructions[release].buffer = named;
    return Mutant{std::move(broken), name(release) + " releases " + buffer_name(named)};
  }

  Result end_life_early() {
    std::vector<BufferId> candidates;
    for (const LifePair& pair : successive_lives()) {
      candidates.push_back(pair.earlier.buffer);
      candidates.push_back(pair.later.buffer);
    }
    return free_early(std::move(candidates));
  }

  Result free_host_copy_early() {
    const std::vector<BufferId> copies = buffers_of(Space::kHost);
    std::vector<BufferId> fetched_again;
    std::ranges::copy_if(copies, std::back_inserter(fetched_again),
                         [&](BufferId id) { return users_of(id).size() > 2; });
    return free_early(fetched_again.empty() ? copies : fetched_again);
  }

  Result change_buffer() {
    const BufferId id = choices_.below(static_cast<Index>(intact_.buffers.size()));
    Schedule broken = intact_;
    Buffer& buffer = broken.buffers[id];
    std::string what = "buffer " + std::to_string(id) + " '" + buffer.name + "' ";
    switch (choices_.below(4)) {
      case 0:
        --buffer.bytes;
        what += "is a byte smaller";
        break;
      case 1:
        ++buffer.bytes;
        what += "is a byte larger";
        break;
      case 2:
        buffer.space = buffer.space == Space::kDevice ? Space::kHost : Space::kDevice;
        what += "lies in the other space";
        break;
      default:
        buffer.persistent = !buffer.persistent;
        what += buffer.persistent ? "is persistent" : "is persistent no more";
    }
    return Mutant{std::move(broken), std::move(what)};
  }

 private:
  Index last() const { return static_cast<Index>(order_.size()) - 1; }
  Index any_index() { return choices_.below(last() + 1); }
  Index other_index(Index than) {
    const Index index = choices_.between(0, last() - 1, than);
    return index < than ? index : index + 1;
  }
  template <class T>
  const T& one_of(const std::vector<T>& candidates) {
    return candidates[choices_.below(static_cast<Index>(candidates.size()))];
  }

  std::string name(Index index) const {
    return "instruction " + std::to_string(index) + " (" + describe(tape_, intact_.instructions[index]) + ")";
  }
  std::string buffer_name(BufferId id) const {
    return id == kNone ? "no buffer" : "buffer " + std::to_string(id) + " '" + intact_.buffers[id].name + "'";
  }

  // A value's time on the device, and the instruction that begins it.
  struct Life {
    BufferId buffer = kNone;
    Index made = 0;
  };
  struct LifePair {
    ValueId value = kNone;
    Life earlier;
    Life later;
  };

  std::vector<LifePair> successive_lives() const {
    std::vector<LifePair> pairs;
    std::vector<Life> latest(tape_.values().size());
    for (Index index = 0; index < order_.size(); ++index) {
      for (const BufferUse& use : uses(tape_, intact_.instructions[index])) {
        if (!use.write || use.value == kNone || intact_.buffers[use.buffer].persistent ||
            space(use.buffer) != Space::kDevice) {
          continue;
        }
        const Life earlier = std::exchange(latest[use.value], {.buffer = use.buffer, .made = index});
        if (earlier.buffer != kNone && earlier.buffer != use.buffer) {
          pairs.push_back({.value = use.value, .earlier = earlier, .later = latest[use.value]});
        }
      }
    }
    return pairs;
  }

  static void replace_buffer(Instruction& it, BufferId from, BufferId to) {
    std::ranges::replace(it.operands, from, to);
    it.buffer = it.buffer == from ? to : it.buffer;
    it.host_buffer = it.host_buffer == from ? to : it.host_buffer;
  }

  std::vector<Index> users_of(BufferId buffer) const {
    std::vector<Index> users;
    for (Index index = 0; index < order_.size(); ++index) {
      const std::vector<BufferUse> all = uses(tape_, intact_.instructions[index]);
      if (std::ranges::find(all, buffer, &BufferUse::buffer) != all.end()) {
        users.push_back(index);
      }
    }
    return users;
  }

  // Releases one of the buffers before its last user, but after all earlier users.
  Result free_early(std::vector<BufferId> candidates) {
    std::erase_if(candidates, [&](BufferId id) { return users_of(id).size() < 2; });
    if (candidates.empty()) {
      return std::nullopt;
    }
    const BufferId buffer = one_of(candidates);
    std::vector<Index> users = users_of(buffer);
    users.resize(1 + choices_.below(static_cast<Index>(users.size()) - 1));
    const Index release = release_of(buffer);
    Schedule source = intact_;
    source.instructions[release].waits.clear();
    for (const Index user : users) {
      source.instructions[release].waits.push_back({.instruction = user, .steps_ago = 0});
    }
    std::erase(order_, release);
    order_.insert(std::ranges::find(order_, users.back()) + 1, release);
    return Mutant{rearranged(source, order_, ForwardWaits::kKeep),
                  buffer_name(buffer) + " is released after " + name(users.back())};
  }

  void move(Index from, Index to) {
    const auto first = order_.begin() + std::min(from, to);
    const auto end = order_.begin() + std::max(from, to) + 1;
    std::rotate(first, from < to ? first + 1 : end - 1, end);
  }

  Mutant moved(std::string what) {
    const bool drop = choices_.coin();
    return {rearranged(intact_, order_, drop ? ForwardWaits::kDrop : ForwardWaits::kKeep),
            std::move(what) + (drop ? ", less the waits that would point forward" : "")};
  }

  Index some(std::initializer_list<InstructionKind> kinds) {
    std::vector<Index> found;
    for (Index index = 0; index < intact_.instructions.size(); ++index) {
      if (std::ranges::find(kinds, intact_.instructions[index].kind) != kinds.end()) {
        found.push_back(index);
      }
    }
    return found.empty() ? kNone : one_of(found);
  }

  std::optional<WaitPlace> some_wait(std::uint32_t least_steps_ago) {
    std::vector<WaitPlace> found;
    for (Index index = 0; index < intact_.instructions.size(); ++index) {
      const std::vector<Wait>& waits = intact_.instructions[index].waits;
      for (std::size_t number = 0; number < waits.size(); ++number) {
        if (waits[number].steps_ago >= least_steps_ago) {
          found.emplace_back(index, number);
        }
      }
    }
    return found.empty() ? std::nullopt : std::optional(one_of(found));
  }

  template <class Change>
  Mutant with_wait(const WaitPlace& place, const Change& change) {
    Schedule broken = intact_;
    change(broken.instructions[place.first].waits[place.second]);
    return waiting(std::move(broken), place);
  }

  Mutant waiting(Schedule broken, const WaitPlace& place) const {
    const auto [index, number] = place;
    const Wait wait = broken.instructions[index].waits[number];
    return {std::move(broken), name(index) + " waits for " + name(wait.instruction) + " " +
                                   std::to_string(wait.steps_ago) + " steps ago"};
  }

  Index allocation_of(BufferId buffer) const { return find(InstructionKind::kAllocate, buffer); }
  Index release_of(BufferId buffer) const { return find(InstructionKind::kRelease, buffer); }
  Index find(InstructionKind kind, BufferId buffer) const {
    const auto found = std::ranges::find_if(
        intact_.instructions, [&](const Instruction& it) { return it.kind == kind && it.buffer == buffer; });
    return static_cast<Index>(found - intact_.instructions.begin());
  }

  Space space(BufferId buffer) const { return intact_.buffers[buffer].space; }

  std::vector<BufferId> buffers_of(Space space) const {
    std::vector<BufferId> result;
    for (BufferId id = 0; id < intact_.buffers.size(); ++id) {
      if (intact_.buffers[id].space == space) {
        result.push_back(id);
      }
    }
    return result;
  }

  // Puts another one of `candidates` at the place in the instruction that `place` returns.
  template <class Place>
  Result with_buffer(Index index, const Place& place, std::vector<BufferId> candidates) {
    Schedule broken = intact_;
    BufferId& buffer = place(broken.instructions[index]);
    const BufferId before = buffer;
    std::erase(candidates, before);
    if (candidates.empty()) {
      return std::nullopt;
    }
    buffer = one_of(candidates);
    std::string what = name(index) + " uses " + buffer_name(buffer) + " instead of " + buffer_name(before);
    return Mutant{std::move(broken), std::move(what)};
  }

  // Replaces one buffer of one instruction, other than allocations and releases, by one of
  // candidates(buffer).
  template <class Candidates>
  Result retarget(const Candidates& candidates) {
    const Index index =
        some({InstructionKind::kLoad, InstructionKind::kLaunch, InstructionKind::kOffload,
              InstructionKind::kPrefetch, InstructionKind::kReadResult, InstructionKind::kRecompute});
    const auto operands = [](Instruction& it) {
      std::vector<BufferId*> result{&it.buffer, &it.host_buffer};
      for (BufferId& operand : it.operands) {
        result.push_back(&operand);
      }
      std::erase_if(result, [](const BufferId* operand) { return *operand == kNone; });
      return result;
    };
    Instruction it = intact_.instructions[index];
    const auto number = choices_.below(static_cast<Index>(operands(it).size()));
    return with_buffer(
        index, [&](Instruction& broken) -> BufferId& { return *operands(broken)[number]; },
        candidates(*operands(it)[number]));
  }

  // Moves everything from `other` into `kept`. The allocation of `kept` is then the earlier one of the two,
  // and its release the later one, after all uses of both.
  Mutant merged(BufferId kept, BufferId other) {
    if (intact_.buffers[other].persistent) {
      std::swap(kept, other);
    }
    Schedule source = intact_;
    std::vector<Index> allocations;
    std::vector<Index> releases;
    for (Index index = 0; index < source.instructions.size(); ++index) {
      Instruction& it = source.instructions[index];
      replace_buffer(it, other, kept);
      if (it.kind == InstructionKind::kAllocate && it.buffer == kept) {
        allocations.push_back(index);
      } else if (it.kind == InstructionKind::kRelease && it.buffer == kept) {
        releases.push_back(index);
      }
    }
    if (!source.buffers[kept].persistent) {
      std::vector<Wait>& waits = source.instructions[releases.back()].waits;
      const std::vector<Wait>& more = source.instructions[releases.front()].waits;
      waits.insert(waits.end(), more.begin(), more.end());
      allocations.erase(allocations.begin());
      releases.pop_back();
    }
    std::erase_if(order_, [&](Index index) {
      return std::ranges::find(allocations, index) != allocations.end() ||
             std::ranges::find(releases, index) != releases.end();
    });
    return {rearranged(source, order_, ForwardWaits::kKeep),
            buffer_name(other) + " lies in " + buffer_name(kept)};
  }

  const Tape& tape_;
  const Schedule& intact_;
  Choices& choices_;
  Order order_;
};

}  // namespace

std::string to_string(MutationKind kind) {
  constexpr std::array<const char*, kMutationKinds> kNames{"drop a wait",
                                                           "drop a wait across the border",
                                                           "change a wait's step",
                                                           "retarget a wait",
                                                           "add a wait",
                                                           "change a stream",
                                                           "swap two instructions",
                                                           "move an instruction earlier",
                                                           "move an instruction later",
                                                           "move a release earlier",
                                                           "move a release later",
                                                           "move an offload earlier",
                                                           "move an offload later",
                                                           "move a prefetch",
                                                           "move a prefetch across the border",
                                                           "read a result earlier",
                                                           "drop an allocation",
                                                           "drop a release",
                                                           "drop an offload",
                                                           "drop a prefetch",
                                                           "drop a launch, load or read",
                                                           "double an instruction",
                                                           "retarget an operand",
                                                           "retarget an operand to any buffer",
                                                           "another host buffer",
                                                           "another value",
                                                           "another workspace",
                                                           "another algorithm",
                                                           "overwrite a read",
                                                           "merge two buffers",
                                                           "change a buffer",
                                                           "move a place",
                                                           "read an earlier life",
                                                           "return into an earlier life",
                                                           "release another life",
                                                           "end a life early",
                                                           "free a host copy early"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::optional<Mutant> mutate(const Tape& tape, const Schedule& intact, MutationKind kind, Choices& choices) {
  Mutator mutator(tape, intact, choices);
  switch (kind) {
    case MutationKind::kDropWait:
      return mutator.drop_wait(0);
    case MutationKind::kDropWaitAcrossBorder:
      return mutator.drop_wait(1);
    case MutationKind::kChangeStepsAgo:
      return mutator.change_steps_ago();
    case MutationKind::kRetargetWait:
      return mutator.retarget_wait();
    case MutationKind::kAddWait:
      return mutator.add_wait();
    case MutationKind::kChangeStream:
      return mutator.change_stream();
    case MutationKind::kSwap:
      return mutator.swap();
    case MutationKind::kMoveAnyEarlier:
      return mutator.move(kAnyKind, MoveDirection::kEarlier);
    case MutationKind::kMoveAnyLater:
      return mutator.move(kAnyKind, MoveDirection::kLater);
    case MutationKind::kMoveReleaseEarlier:
      return mutator.move({InstructionKind::kRelease}, MoveDirection::kEarlier);
    case MutationKind::kMoveReleaseLater:
      return mutator.move({InstructionKind::kRelease}, MoveDirection::kLater);
    case MutationKind::kMoveOffloadEarlier:
      return mutator.move({InstructionKind::kOffload}, MoveDirection::kEarlier);
    case MutationKind::kMoveOffloadLater:
      return mutator.move({InstructionKind::kOffload}, MoveDirection::kLater);
    case MutationKind::kMovePrefetch:
      return mutator.move_prefetch();
    case MutationKind::kMovePrefetchAcrossBorder:
      return mutator.move_prefetch_across_border();
    case MutationKind::kMoveReadEarlier:
      return mutator.move({InstructionKind::kReadResult}, MoveDirection::kEarlier);
    case MutationKind::kDropAllocate:
      return mutator.remove({InstructionKind::kAllocate});
    case MutationKind::kDropRelease:
      return mutator.remove({InstructionKind::kRelease});
    case MutationKind::kDropOffload:
      return mutator.remove({InstructionKind::kOffload});
    case MutationKind::kDropPrefetch:
      return mutator.remove({InstructionKind::kPrefetch});
    case MutationKind::kDropWork:
      return mutator.remove({InstructionKind::kLaunch, InstructionKind::kLoad, InstructionKind::kReadResult,
                             InstructionKind::kRecompute});
    case MutationKind::kDouble:
      return mutator.repeat();
    case MutationKind::kRetargetOperand:
      return mutator.retarget_operand();
    case MutationKind::kRetargetToAny:
      return mutator.retarget_to_any();
    case MutationKind::kWrongHostBuffer:
      return mutator.wrong_host_buffer();
    case MutationKind::kWrongValue:
      return mutator.wrong_value();
    case MutationKind::kWrongWorkspace:
      return mutator.wrong_workspace();
    case MutationKind::kWrongAlgorithm:
      return mutator.wrong_algorithm();
    case MutationKind::kOverwrite:
      return mutator.overwrite();
    case MutationKind::kMergeBuffers:
      return mutator.merge_buffers();
    case MutationKind::kChangeBuffer:
      return mutator.change_buffer();
    case MutationKind::kMovePlace:
      return mutator.move_place();
    case MutationKind::kReadEarlierLife:
      return mutator.read_earlier_life();
    case MutationKind::kReturnIntoEarlierLife:
      return mutator.return_into_earlier_life();
    case MutationKind::kReleaseOtherLife:
      return mutator.release_other_life();
    case MutationKind::kEndLifeEarly:
      return mutator.end_life_early();
    case MutationKind::kFreeHostCopyEarly:
      return mutator.free_host_copy_early();
  }
  return std::nullopt;
}

}  // namespace vdnn::testing
