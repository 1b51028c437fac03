#include "tests/plan/oracle.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <span>

namespace vdnn::testing {

namespace {

using Term = Oracle::Term;
using Node = std::uint32_t;  // step * instructions + index
constexpr std::uint32_t kSteps = Oracle::kSteps;

constexpr std::uint64_t kLoadTag = 1;
constexpr std::uint64_t kInitialTag = 2;
constexpr std::uint64_t kUndefinedTag = 3;
constexpr std::uint64_t kGarbageTag = 4;
constexpr std::uint64_t kOpTag = 5;

// The finalizer of splitmix64 (Steele, Lea, Flood 2014).
Term mix(Term seed, std::uint64_t number) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15ULL * (number + 1);
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

Term term(std::uint64_t tag, std::uint64_t what, std::uint64_t when) {
  return mix(mix(tag, what), when);
}

Term output_term(OpId op, std::size_t output, std::span<const Term> inputs) {
  Term result = term(kOpTag, op, output);
  for (const Term input : inputs) {
    result = mix(result, input);
  }
  return result;
}

struct Place {
  BufferId buffer = kNone;
  ValueId value = kNone;  // kNone: workspace
  Space space = Space::kDevice;
};

// The accesses of an instruction.
struct Action {
  std::vector<Place> reads;
  std::vector<Place> writes;
};

Action action_of(const Tape& tape, const Instruction& it) {
  switch (it.kind) {
    case InstructionKind::kAllocate:
    case InstructionKind::kRelease:
      return {};
    case InstructionKind::kLoad:
      return {.reads = {}, .writes = {{it.buffer, it.value}}};
    case InstructionKind::kReadResult:
      return {.reads = {{it.buffer, it.value}}, .writes = {}};
    case InstructionKind::kOffload:
      return {.reads = {{it.buffer, it.value}}, .writes = {{it.host_buffer, it.value, Space::kHost}}};
    case InstructionKind::kPrefetch:
      return {.reads = {{it.host_buffer, it.value, Space::kHost}}, .writes = {{it.buffer, it.value}}};
    case InstructionKind::kLaunch:
    case InstructionKind::kRecompute:
      break;
  }
  const Op& op = tape.op(it.op);
  Action action;
  for (std::size_t i = 0; i < it.operands.size(); ++i) {
    if (i < op.reads.size()) {
      action.reads.push_back({it.operands[i], op.reads[i]});
    } else if (i < op.reads.size() + op.writes.size()) {
      action.writes.push_back({it.operands[i], op.writes[i - op.reads.size()]});
    } else if (it.operands[i] != kNone) {
      action.writes.push_back({it.operands[i], kNone});
    }
  }
  return action;
}

// For each buffer, the buffers that share bytes of the arena with it, itself included. Empty if the buffer
// has no place.
std::vector<std::vector<BufferId>> neighbours_in_arena(const Schedule& schedule) {
  std::vector<std::vector<BufferId>> neighbours(schedule.buffers.size());
  const auto overlap = [&](const Buffer& a, const Buffer& b) {
    return a.offset && b.offset && *a.offset < *b.offset + b.bytes && *b.offset < *a.offset + a.bytes;
  };
  for (BufferId a = 0; a < schedule.buffers.size(); ++a) {
    for (BufferId b = 0; b < schedule.buffers.size(); ++b) {
      if (overlap(schedule.buffers[a], schedule.buffers[b])) {
        neighbours[a].push_back(b);
      }
    }
  }
  return neighbours;
}

// True if two operands of the op are in one buffer without the op's permission.
bool overlaps_without_permission(const Op& op, const Action& action) {
  for (std::size_t write = 0; write < action.writes.size(); ++write) {
    for (std::size_t read = 0; read < action.reads.size(); ++read) {
      const bool permitted = std::ranges::any_of(op.may_overwrite, [&](const Overwrite& permission) {
        return permission.read == read && permission.write == write;
      });
      if (action.reads[read].buffer == action.writes[write].buffer &&
          action.reads[read].value != action.writes[write].value && !permitted) {
        return true;
      }
    }
    for (std::size_t other = 0; other < write; ++other) {
      if (action.writes[other].buffer == action.writes[write].buffer) {
        return true;
      }
    }
  }
  return false;
}

// --- schedules that are broken by definition -----------------------------------------------------

// True if each operand, the algorithm's workspace included, is in its space and in a large enough buffer.
bool operands_fit(const Tape& tape, const Schedule& schedule, const Instruction& it, const Action& action) {
  const bool launch = is_launch(it.kind);
  const std::uint64_t workspace =
      launch ? tape.op(it.op).algorithms[schedule.algorithms[it.op]].workspace_bytes : 0;
  const auto fits = [&](const Place& place) {
    const Buffer& buffer = schedule.buffers[place.buffer];
    const std::uint64_t bytes = place.value == kNone ? workspace : tape.value(place.value).bytes;
    return buffer.space == place.space && buffer.bytes >= bytes;
  };
  return (workspace == 0 || it.operands.back() != kNone) && std::ranges::all_of(action.reads, fits) &&
         std::ranges::all_of(action.writes, fits);
}

bool waits_are_possible(const std::vector<Instruction>& instructions) {
  for (std::size_t index = 0; index < instructions.size(); ++index) {
    for (const Wait& wait : instructions[index].waits) {
      if ((wait.steps_ago == 0 && wait.instruction >= index) ||
          instructions[wait.instruction].kind == InstructionKind::kRelease) {
        return false;
      }
    }
  }
  return true;
}

bool happens_once(const Tape& tape, const Schedule& schedule, const std::vector<Action>& actions) {
  std::vector<bool> used(schedule.buffers.size());
  for (const Action& action : actions) {
    for (const std::vector<Place>* places : {&action.reads, &action.writes}) {
      for (const Place& place : *places) {
        used[place.buffer] = true;
      }
    }
  }
  std::vector<int> launches(tape.ops().size());
  std::vector<int> loads(tape.values().size());
  std::vector<int> allocations(schedule.buffers.size());
  std::vector<int> releases(schedule.buffers.size());
  std::vector<int> results(tape.values().size());
  for (const Instruction& it : schedule.instructions) {
    switch (it.kind) {
      case InstructionKind::kLaunch:
        ++launches[it.op];
        break;
      case InstructionKind::kLoad:
        ++loads[it.value];
        break;
      case InstructionKind::kReadResult:
        ++results[it.value];
        break;
      case InstructionKind::kAllocate:
        ++allocations[it.buffer];
        break;
      case InstructionKind::kRelease:
        ++releases[it.buffer];
        break;
      case InstructionKind::kOffload:
      case InstructionKind::kPrefetch:
      case InstructionKind::kRecompute:
        break;
    }
  }
  const auto is_one = [](int count) { return count == 1; };
  for (BufferId id = 0; id < schedule.buffers.size(); ++id) {
    const int most = schedule.buffers[id].persistent ? 0 : 1;
    const int least = used[id] ? most : 0;
    if (allocations[id] != releases[id] || allocations[id] > most || allocations[id] < least) {
      return false;
    }
  }
  return std::ranges::all_of(tape.results(), [&](ValueId id) { return results[id] == 1; }) &&
         std::ranges::all_of(launches, is_one) &&
         std::ranges::all_of(tape.inputs(), [&](ValueId id) { return loads[id] == 1; });
}

// --- permitted orders ----------------------------------------------------------------------------

// The transitive order of nodes. The nodes of one stream are a chain, and nothing comes after a release. So
// the past of a node is known from one node per chain: the last one that comes before it (Jagadish 1990).
class PartialOrder {
 public:
  explicit PartialOrder(const std::vector<Instruction>& instructions)
      : instructions_(instructions),
        count_(static_cast<Node>(instructions.size())),
        past_(std::size_t{kSteps} * count_),
        direct_(std::size_t{kSteps} * count_) {
    Past last{};
    for (Node node = 0; node < size(); ++node) {
      const Instruction& it = instruction(node);
      if (is_release(node)) {
        add_allocation(node);
      } else {
        std::uint32_t& previous = last.at(chain(node));
        if (previous != 0) {
          add(previous - 1, node);
        }
        previous = node + 1;
      }
      for (const Wait& wait : it.waits) {
        if (node >= wait.steps_ago * count_) {
          add(node - node % count_ - wait.steps_ago * count_ + wait.instruction, node);
        }
      }
    }
  }

  Node size() const { return kSteps * count_; }
  bool is_before(Node first, Node second) const {
    return !is_release(first) && past_[second].at(chain(first)) > first;
  }
  bool are_ordered(Node a, Node b) const { return is_before(a, b) || is_before(b, a); }
  std::span<const Node> direct(Node node) const { return direct_[node]; }

 private:
  using Past =
      std::array<std::uint32_t, kStreamRoles>;  // per chain: 1 + its last node, or 0 if there is none

  const Instruction& instruction(Node node) const { return instructions_[node % count_]; }
  bool is_release(Node node) const { return instruction(node).kind == InstructionKind::kRelease; }
  std::size_t chain(Node node) const { return static_cast<std::size_t>(instruction(node).stream); }

  void add(Node first, Node second) {
    direct_[second].push_back(first);
    Past& past = past_[second];
    std::ranges::transform(past, past_[first], past.begin(),
                           [](std::uint32_t a, std::uint32_t b) { return std::max(a, b); });
    past.at(chain(first)) = std::max(past.at(chain(first)), first + 1);
  }

  void add_allocation(Node release) {
    for (Node node = release; node-- > release - release % count_;) {
      const Instruction& it = instruction(node);
      if (it.kind == InstructionKind::kAllocate && it.buffer == instruction(release).buffer) {
        add(node, release);
        return;
      }
    }
  }

  const std::vector<Instruction>& instructions_;
  Node count_;
  std::vector<Past> past_;
  std::vector<std::vector<Node>> direct_;
};

using Order = std::vector<Node>;

Order as_early_as_possible(const PartialOrder& partial, Node node) {
  Order order(partial.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_partition(order.begin(), order.end(),
                        [&](Node other) { return other == node || partial.is_before(other, node); });
  return order;
}

Order as_late_as_possible(const PartialOrder& partial, Node node) {
  Order order(partial.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_partition(order.begin(), order.end(),
                        [&](Node other) { return other != node && !partial.is_before(node, other); });
  return order;
}

Order random_order(const PartialOrder& partial, std::mt19937_64& random) {
  std::vector<std::vector<Node>> followers(partial.size());
  std::vector<std::size_t> missing(partial.size());
  Order ready;
  for (Node node = 0; node < partial.size(); ++node) {
    missing[node] = partial.direct(node).size();
    for (const Node previous : partial.direct(node)) {
      followers[previous].push_back(node);
    }
    if (missing[node] == 0) {
      ready.push_back(node);
    }
  }
  Order order;
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    order.push_back(ready.back());
    ready.pop_back();
    for (const Node next : followers[order.back()]) {
      if (--missing[next] == 0) {
        ready.push_back(next);
      }
    }
  }
  return order;
}

}  // namespace

// --- symbolic execution --------------------------------------------------------------------------

namespace {

using CellId = std::uint32_t;

// Numbers the memory of two steps: a persistent buffer is one cell, any other buffer is one cell per step.
// (A persistent buffer's second number is not used.)
class Cells {
 public:
  // `neighbours`: see neighbours_in_arena().
  Cells(const Schedule& schedule, const std::vector<std::vector<BufferId>>& neighbours)
      : schedule_(schedule), overlapping_(kSteps * schedule.buffers.size()) {
    for (BufferId buffer = 0; buffer < neighbours.size(); ++buffer) {
      for (std::uint32_t step = 0; step < kSteps; ++step) {
        const CellId cell = of(buffer, step);
        for (const BufferId other : neighbours[buffer]) {
          for (std::uint32_t each = 0; each < kSteps; ++each) {
            if (of(other, each) != cell) {
              overlapping_[cell].push_back(of(other, each));
            }
          }
        }
      }
    }
  }

  std::size_t size() const { return overlapping_.size(); }
  CellId of(BufferId buffer, std::uint32_t step) const {
    const auto count = static_cast<CellId>(schedule_.buffers.size());
    return schedule_.buffers[buffer].persistent ? buffer : step * count + buffer;
  }
  // The other cells that share bytes of the arena with the cell.
  std::span<const CellId> overlapping(CellId cell) const { return overlapping_[cell]; }

 private:
  const Schedule& schedule_;
  std::vector<std::vector<CellId>> overlapping_;
};

}  // namespace

// One run of two steps in a given order. The run stops at the first difference from the tape's meaning.
class SymbolicRun {
 public:
  SymbolicRun(const Oracle& oracle, const Schedule& schedule, const std::vector<Action>& actions,
              const Cells& cells)
      : oracle_(oracle),
        schedule_(schedule),
        actions_(actions),
        count_(static_cast<Node>(schedule.instructions.size())),
        cells_(cells),
        memory_(cells.size()) {
    for (BufferId id = 0; id < schedule.buffers.size(); ++id) {
      memory_[id] = {.live = schedule.buffers[id].persistent, .content = term(kUndefinedTag, id, 0)};
    }
    for (ValueId id = 0; id < oracle.tape_.values().size(); ++id) {
      if (oracle.home_[id] != kNone) {
        memory_[oracle.home_[id]].content = term(kInitialTag, id, 0);
      }
    }
  }

  // Returns the difference, or an empty string if the run computes what the tape means.
  std::string run(const Order& order) {
    for (const Node node : order) {
      const char* objection = execute(node);
      if (objection != nullptr) {
        return describe(oracle_.tape_, schedule_.instructions[node % count_]) + " (instruction " +
               std::to_string(node % count_) + ", step " + std::to_string(node / count_) + ") " + objection;
      }
    }
    for (ValueId id = 0; id < oracle_.home_.size(); ++id) {
      if (oracle_.home_[id] != kNone &&
          memory_[oracle_.home_[id]].content != oracle_.values_[kSteps - 1][id]) {
        return oracle_.tape_.value(id).name + " ends as something else";
      }
    }
    for (BufferId id = 0; id < memory_.size(); ++id) {
      const Buffer& buffer = schedule_.buffers[id % schedule_.buffers.size()];
      if (memory_[id].live && !buffer.persistent) {
        return "'" + buffer.name + "' is not released";
      }
    }
    return {};
  }

 private:
  struct Cell {
    bool live = false;
    // Whether its last write or allocation spoiled all overlapping cells, and none of them has been written
    // or allocated since.
    bool spoiled_others = false;
    Term content = 0;
  };

  Cell& cell(BufferId buffer, std::uint32_t step) { return memory_[cells_.of(buffer, step)]; }

  const char* execute(Node node) {
    const Instruction& it = schedule_.instructions[node % count_];
    const Action& action = actions_[node % count_];
    const std::uint32_t step = node / count_;
    if (it.kind == InstructionKind::kAllocate || it.kind == InstructionKind::kRelease) {
      return change_life(it, step);
    }
    inputs_.clear();
    for (const Place& place : action.reads) {
      const Cell& from = cell(place.buffer, step);
      if (!from.live) {
        return "reads memory that is not allocated";
      }
      inputs_.push_back(from.content);
    }
    if (!inputs_are_right(it, step)) {
      return "reads something else than the tape means";
    }
    for (const Place& place : action.writes) {
      if (!cell(place.buffer, step).live) {
        return "writes memory that is not allocated";
      }
    }
    write(it, action, step);
    return nullptr;
  }

  const char* change_life(const Instruction& it, std::uint32_t step) {
    Cell& target = cell(it.buffer, step);
    const bool allocate = it.kind == InstructionKind::kAllocate;
    if (target.live == allocate) {
      return allocate ? "allocates what is allocated" : "releases what is not allocated";
    }
    target = {.live = allocate, .content = term(kUndefinedTag, it.buffer, step)};
    if (allocate) {
      spoil_what_lies_there(cells_.of(it.buffer, step));
    }
    return nullptr;
  }

  // Spoils the contents of all other cells that share bytes of the arena with this cell.
  void spoil_what_lies_there(CellId writer) {
    if (memory_[writer].spoiled_others) {
      return;
    }
    const Term garbage = term(kGarbageTag, writer, 0);
    for (const CellId other : cells_.overlapping(writer)) {
      memory_[other].content = garbage + other;
      memory_[other].spoiled_others = false;
    }
    memory_[writer].spoiled_others = true;
  }

  bool inputs_are_right(const Instruction& it, std::uint32_t step) const {
    switch (it.kind) {
      case InstructionKind::kLaunch:
      case InstructionKind::kRecompute:
        return inputs_ == oracle_.op_reads_[step][it.op];
      case InstructionKind::kOffload:
      case InstructionKind::kPrefetch:
      case InstructionKind::kReadResult:
        return inputs_.front() == oracle_.values_[step][it.value];
      default:
        return inputs_.empty();
    }
  }

  void write(const Instruction& it, const Action& action, std::uint32_t step) {
    const bool launch = is_launch(it.kind);
    const bool garbage = launch && overlaps_without_permission(oracle_.tape_.op(it.op), action);
    for (std::size_t output = 0; output < action.writes.size(); ++output) {
      const Place& place = action.writes[output];
      const CellId written = cells_.of(place.buffer, step);
      spoil_what_lies_there(written);
      Term& content = memory_[written].content;
      if (garbage || place.value == kNone) {
        content = mix(term(kGarbageTag, it.op, step), output);
      } else if (launch) {
        content = output_term(it.op, output, inputs_);
      } else if (it.kind == InstructionKind::kLoad) {
        content = term(kLoadTag, place.value, step);
      } else {
        content = inputs_.front();  // copies keep the content
      }
    }
  }

  const Oracle& oracle_;
  const Schedule& schedule_;
  const std::vector<Action>& actions_;
  const Node count_;
  const Cells& cells_;
  std::vector<Cell> memory_;
  std::vector<Term> inputs_;
};

namespace {

// Two nodes conflict if they share a buffer, are not ordered, and one of them changes the buffer.
std::vector<bool> conflicting_nodes(const Schedule& schedule, const std::vector<Action>& actions,
                                    const PartialOrder& partial,
                                    const std::vector<std::vector<BufferId>>& neighbours) {
  struct Use {
    Node node = 0;
    bool change = false;
  };
  std::vector<bool> conflicting(partial.size());
  std::vector<std::vector<Use>> uses_of(kSteps * schedule.buffers.size());
  const auto count = schedule.instructions.size();
  const auto note = [&](BufferId buffer, Node node, bool change) {
    const auto compare_with = [&](std::size_t instance) {
      for (const Use& use : uses_of[instance]) {
        if ((use.change || change) && use.node != node && !partial.are_ordered(use.node, node)) {
          conflicting[use.node] = true;
          conflicting[node] = true;
        }
      }
    };
    const std::size_t instance =
        schedule.buffers[buffer].persistent ? buffer : node / count * schedule.buffers.size() + buffer;
    compare_with(instance);
    for (const BufferId other : neighbours[buffer]) {
      for (std::size_t step = 0; step < kSteps; ++step) {
        compare_with(step * schedule.buffers.size() + other);
      }
    }
    uses_of[instance].push_back({node, change});
  };
  for (Node node = 0; node < partial.size(); ++node) {
    const Instruction& it = schedule.instructions[node % count];
    if (it.kind == InstructionKind::kAllocate || it.kind == InstructionKind::kRelease) {
      note(it.buffer, node, true);
    }
    for (const Place& place : actions[node % count].reads) {
      note(place.buffer, node, false);
    }
    for (const Place& place : actions[node % count].writes) {
      note(place.buffer, node, true);
    }
  }
  return conflicting;
}

}  // namespace

// --- the oracle ----------------------------------------------------------------------------------

bool is_well_formed(const Tape& tape, const Schedule& schedule) {
  const auto is_buffer = [&](BufferId id) { return id < schedule.buffers.size(); };
  const auto is_in = [](std::span<const ValueId> values, ValueId id) {
    return std::ranges::find(values, id) != values.end();
  };
  return std::ranges::all_of(schedule.instructions, [&](const Instruction& it) {
    const bool waits = std::ranges::all_of(it.waits, [&](const Wait& wait) {
      return wait.instruction < schedule.instructions.size() && wait.steps_ago <= 1;
    });
    switch (it.kind) {
      case InstructionKind::kAllocate:
      case InstructionKind::kRelease:
        return waits && is_buffer(it.buffer);
      case InstructionKind::kLoad:
        return waits && is_buffer(it.buffer) && is_in(tape.inputs(), it.value);
      case InstructionKind::kReadResult:
        return waits && is_buffer(it.buffer) && is_in(tape.results(), it.value);
      case InstructionKind::kOffload:
      case InstructionKind::kPrefetch:
        return waits && is_buffer(it.buffer) && is_buffer(it.host_buffer) && it.value < tape.values().size();
      case InstructionKind::kLaunch:
      case InstructionKind::kRecompute:
        break;
    }
    const Op& op = tape.op(it.op);
    return waits && it.operands.size() == op.reads.size() + op.writes.size() + 1 &&
           std::all_of(it.operands.begin(), it.operands.end() - 1, is_buffer) &&
           (it.operands.back() == kNone || is_buffer(it.operands.back()));
  });
}

namespace {

// Follows the instructions in the order of the list. Reports a buffer that is allocated while its place is in
// use.
std::string wrong_place(const Tape& tape, const Schedule& schedule) {
  const std::vector<std::vector<BufferId>> neighbours = neighbours_in_arena(schedule);
  std::vector<bool> live(schedule.buffers.size(), false);
  for (const Instruction& it : schedule.instructions) {
    if (it.kind == InstructionKind::kRelease) {
      live[it.buffer] = false;
    } else if (it.kind == InstructionKind::kAllocate) {
      for (const BufferId other : neighbours[it.buffer]) {
        if (live[other]) {
          return describe(tape, it) + " of '" + schedule.buffers[it.buffer].name + "' finds '" +
                 schedule.buffers[other].name + "' in its place";
        }
      }
      live[it.buffer] = true;
    }
  }
  return {};
}

// True if a collective writes each operand to the buffer from which it reads the operand.
bool is_in_place(const Op& op, const Instruction& it) {
  for (std::size_t operand = 0; operand < op.writes.size(); ++operand) {
    if (it.operands[op.reads.size() + operand] != it.operands[operand]) {
      return false;
    }
  }
  return true;
}

std::string broken_stream_rule(const Tape& tape, const Instruction& it) {
  const bool launched = it.kind == InstructionKind::kLaunch;
  const bool collective = launched && tape.op(it.op).collective();
  if ((it.stream == StreamRole::kReduce) != collective) {
    return describe(tape, it) + (collective ? " is not where ranks meet" : " stands where ranks meet");
  }
  if (is_launch(it.kind) && !collective && it.stream != StreamRole::kCompute) {
    return describe(tape, it) + " is on another stream than launches are";
  }
  if (collective && !is_in_place(tape.op(it.op), it)) {
    return describe(tape, it) + " is not in place";
  }
  return {};
}

}  // namespace

std::string broken_rule_of_drivers(const Tape& tape, const Schedule& schedule) {
  for (const Instruction& it : schedule.instructions) {
    if (std::string broken = broken_stream_rule(tape, it); !broken.empty()) {
      return broken;
    }
    if (!is_launch(it.kind)) {
      continue;
    }
    const Algorithm& algorithm = tape.op(it.op).algorithms[schedule.algorithms[it.op]];
    if (it.operands.back() != kNone && algorithm.workspace_bytes == 0) {
      return describe(tape, it) + " has a workspace and wants none";
    }
    const Action action = action_of(tape, it);
    if (overlaps_without_permission(tape.op(it.op), action)) {
      return describe(tape, it) + " has operands in one place, which its op does not permit";
    }
    for (const std::vector<Place>& places : {action.reads, action.writes}) {
      for (const Place& place : places) {
        if (place.value != kNone && tape.value(place.value).persistent() &&
            schedule.buffers[place.buffer].bytes != tape.value(place.value).bytes) {
          return describe(tape, it) + " has " + tape.value(place.value).name + " in a buffer of another size";
        }
      }
    }
  }
  return wrong_place(tape, schedule);
}

Oracle::Oracle(const Tape& tape, const Schedule& intact) : tape_(tape), home_(tape.values().size(), kNone) {
  for (const Instruction& it : intact.instructions) {
    for (const Place& place : action_of(tape, it).reads) {
      if (tape.value(place.value).persistent() && home_[place.value] == kNone) {
        home_[place.value] = place.buffer;
      }
    }
  }
  std::vector<Term> values(tape.values().size());
  for (ValueId id = 0; id < values.size(); ++id) {
    values[id] = term(kInitialTag, id, 0);
  }
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    compute_step(step, values);
  }
}

// Interprets the tape itself, op by op.
void Oracle::compute_step(std::uint32_t step, std::vector<Term>& values) {
  for (const ValueId input : tape_.inputs()) {
    values[input] = term(kLoadTag, input, step);
  }
  for (OpId id = 0; id < tape_.ops().size(); ++id) {
    const Op& op = tape_.op(id);
    std::vector<Term> inputs;
    for (const ValueId read : op.reads) {
      inputs.push_back(values[read]);
    }
    for (std::size_t output = 0; output < op.writes.size(); ++output) {
      values[op.writes[output]] = output_term(id, output, inputs);
    }
    op_reads_.at(step).push_back(std::move(inputs));
  }
  values_.at(step) = values;
}

std::string Oracle::objection(const Schedule& broken, Exploration exploration, std::uint64_t seed,
                              std::uint32_t suspect) const {
  if (!is_well_formed(tape_, broken)) {
    return "something is named that is not there";
  }
  if (!waits_are_possible(broken.instructions)) {
    return "a wait points forward or at a release";
  }
  std::vector<Action> actions;
  for (const Instruction& it : broken.instructions) {
    actions.push_back(action_of(tape_, it));
    if (!operands_fit(tape_, broken, it, actions.back())) {
      return describe(tape_, it) + " has an operand that is too small or in the wrong space";
    }
  }
  for (const Buffer& buffer : broken.buffers) {
    if (buffer.offset && *buffer.offset + buffer.bytes > broken.arena_bytes) {
      return "'" + buffer.name + "' reaches beyond the arena";
    }
  }
  if (!happens_once(tape_, broken, actions)) {
    return "an op, a load, an allocation or a release happens not exactly once";
  }
  const std::vector<std::vector<BufferId>> neighbours = neighbours_in_arena(broken);
  const Cells cells(broken, neighbours);
  const auto run = [&](const Order& order) { return SymbolicRun(*this, broken, actions, cells).run(order); };
  const PartialOrder partial(broken.instructions);
  Order list(partial.size());
  std::iota(list.begin(), list.end(), 0U);
  if (std::string objection = run(list); !objection.empty()) {
    return objection + ", in the order of the list";
  }
  const bool everything = exploration == Exploration::kEverything;
  const std::vector<bool> conflicting = everything ? std::vector<bool>(partial.size(), true)
                                                   : conflicting_nodes(broken, actions, partial, neighbours);
  const auto name = [&](Node node) {
    return describe(tape_, broken.instructions[node % broken.instructions.size()]) + ", step " +
           std::to_string(node / broken.instructions.size());
  };
  for (Node each = 0; each < partial.size(); ++each) {
    const Node node = static_cast<Node>((suspect + each) % partial.size());
    if (!conflicting[node]) {
      continue;
    }
    if (std::string objection = run(as_early_as_possible(partial, node)); !objection.empty()) {
      return objection + ", with (" + name(node) + ") as early as possible";
    }
    if (std::string objection = run(as_late_as_possible(partial, node)); !objection.empty()) {
      return objection + ", with (" + name(node) + ") as late as possible";
    }
  }
  std::mt19937_64 random(seed);
  for (int order = 0; order < (everything ? 16 : 2); ++order) {
    if (std::string objection = run(random_order(partial, random)); !objection.empty()) {
      return objection + ", in a random order";
    }
  }
  return {};
}

}  // namespace vdnn::testing
