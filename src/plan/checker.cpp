#include "vdnn/checker.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "src/base/interval_map.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

using Clock =
    std::array<std::int64_t, kStreamRoles>;  // the last instruction known to be done, a stream; -1: none

constexpr std::int64_t kNever = -1;

// Something that happened to a buffer: what, where, and in which place of the stream's order.
struct Event {
  std::int64_t position = kNever;  // step * instructions + index
  std::size_t stream = 0;
};

struct Content {
  ValueId value = kNone;  // kNone: undefined
  std::uint64_t version = 0;
  friend bool operator==(const Content&, const Content&) = default;
};

struct BufferState {
  bool alive = false;
  Content content;
  Event write;  // the allocation counts as one
  std::vector<Event> reads;
};

// Bytes of the arena.
struct Place {
  BufferId tenant = kNone;
  BufferId previous = kNone;     // where there is no tenant
  std::vector<Event> last_uses;  // of `previous`
};

// How many steps are looked at: one that starts from nothing and one that follows it.
constexpr std::uint32_t kSteps = 2;
constexpr std::size_t kMostFindings = 20;

class Checker {
 public:
  Checker(const Tape& tape, const Schedule& schedule)
      : tape_(tape),
        schedule_(schedule),
        count_(static_cast<std::int64_t>(schedule.instructions.size())),
        buffers_(schedule.buffers.size()),
        made_(tape.values().size(), 0),
        writers_(tape.values().size()),
        clocks_(static_cast<std::size_t>(kSteps * count_)) {
    for (Clock& clock : streams_) {
      clock.fill(kNever);
    }
    for (OpId op = 0; op < tape.ops().size(); ++op) {
      for (const ValueId id : tape.op(op).writes) {
        writers_[id].push_back(op);
      }
    }
  }

  std::vector<std::string> run() {
    if (!check_form()) {
      return findings_;  // nothing else can be said of it
    }
    set_initial_state();
    for (step_ = 0; step_ < kSteps; ++step_) {
      launched_.assign(tape_.ops().size(), 0);
      loaded_.assign(tape_.values().size(), 0);
      results_read_.assign(tape_.values().size(), 0);
      for (index_ = 0; index_ < count_; ++index_) {
        visit(schedule_.instructions[static_cast<std::size_t>(index_)]);
      }
      check_end_of_step();
    }
    return findings_;
  }

 private:
  void find(const std::string& text) {
    if (findings_.size() < kMostFindings) {
      findings_.push_back(text);
    }
  }
  std::string here() const { return name(step_ * count_ + index_); }
  std::string name(std::int64_t position) const {
    if (position == kNever) {
      return "the start";
    }
    const Instruction& instruction = schedule_.instructions[static_cast<std::size_t>(position % count_)];
    return "instruction " + std::to_string(position % count_) + " (" + describe(tape_, instruction) +
           ", step " + std::to_string(position / count_) + ")";
  }
  std::string buffer_name(BufferId buffer) const { return "buffer '" + schedule_.buffers[buffer].name + "'"; }

  // --- form: numbers in range ------------------------------------------------------------------------------
  bool check_form() {
    if (schedule_.algorithms.size() != tape_.ops().size()) {
      find("the schedule has algorithms for " + std::to_string(schedule_.algorithms.size()) +
           " ops, the tape has " + std::to_string(tape_.ops().size()));
      return false;
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      if (schedule_.algorithms[id] >= tape_.op(id).algorithms.size()) {
        find(tape_.op(id).name + " has no algorithm " + std::to_string(schedule_.algorithms[id]));
      }
    }
    if (!findings_.empty()) {
      return false;  // which operands a launch has depends on them
    }
    for (index_ = 0; index_ < count_; ++index_) {
      check_form(schedule_.instructions[static_cast<std::size_t>(index_)]);
    }
    if (findings_.empty()) {
      check_persistent_places();
      check_places_in_arena();
    }
    return findings_.empty();
  }

  // Either the schedule brings the addresses of all buffers that it allocates on the device, or of none.
  void check_places_in_arena() {
    for (BufferId id = 0; id < schedule_.buffers.size(); ++id) {
      const Buffer& buffer = schedule_.buffers[id];
      const bool in_arena = schedule_.arena_bytes > 0 && buffer.space == Space::kDevice && !buffer.persistent;
      if (buffer.offset.has_value() != in_arena) {
        find(buffer_name(id) + (in_arena ? " has no place in the arena" : " has a place in an arena"));
      } else if (in_arena && (buffer.bytes > schedule_.arena_bytes ||
                              *buffer.offset > schedule_.arena_bytes - buffer.bytes)) {
        find(buffer_name(id) + " does not lie inside the arena");
      }
    }
  }

  // A persistent value has one place, which is the whole of one persistent buffer on the device, is nobody
  // else's, and is never moved: executors take it from where the parameters are kept.
  void check_persistent_places() {
    std::vector<BufferId> place(tape_.values().size(), kNone);
    std::vector<ValueId> owner(schedule_.buffers.size(), kNone);
    std::vector<bool> shared(schedule_.buffers.size(), false);
    for (index_ = 0; index_ < count_; ++index_) {
      for (const BufferUse& use : uses(tape_, schedule_.instructions[static_cast<std::size_t>(index_)])) {
        if (use.value == kNone || !tape_.value(use.value).persistent()) {
          shared[use.buffer] = true;
          continue;
        }
        const Buffer& buffer = schedule_.buffers[use.buffer];
        const bool fits = buffer.persistent && buffer.space == Space::kDevice &&
                          buffer.bytes == tape_.value(use.value).bytes;
        if (!fits || (place[use.value] != kNone && place[use.value] != use.buffer) ||
            (owner[use.buffer] != kNone && owner[use.buffer] != use.value)) {
          find(here() + " names " + tape_.value(use.value).name + " in " + buffer_name(use.buffer) +
               ", which is not its one place");
        }
        place[use.value] = use.buffer;
        owner[use.buffer] = use.value;
      }
    }
    for (BufferId id = 0; id < schedule_.buffers.size(); ++id) {
      if (owner[id] != kNone && shared[id]) {
        find(buffer_name(id) + " is the place of " + tape_.value(owner[id]).name +
             " and holds something else too");
      }
    }
  }

  void check_form(const Instruction& instruction) {
    const auto is_buffer = [&](BufferId id, Space space) {
      return id < schedule_.buffers.size() && schedule_.buffers[id].space == space;
    };
    bool right = false;
    switch (instruction.kind) {
      case InstructionKind::kAllocate:
      case InstructionKind::kRelease:
        right = instruction.buffer < schedule_.buffers.size();
        break;
      case InstructionKind::kLoad:
        right = instruction.value < tape_.values().size() && tape_.value(instruction.value).loaded() &&
                is_buffer(instruction.buffer, Space::kDevice);
        break;
      case InstructionKind::kReadResult:
        right = instruction.value < tape_.values().size() && is_result(instruction.value) &&
                is_buffer(instruction.buffer, Space::kDevice);
        break;
      case InstructionKind::kOffload:
      case InstructionKind::kPrefetch:
        right = instruction.value < tape_.values().size() && !tape_.value(instruction.value).persistent() &&
                is_buffer(instruction.buffer, Space::kDevice) &&
                is_buffer(instruction.host_buffer, Space::kHost);
        break;
      case InstructionKind::kLaunch:
      case InstructionKind::kRecompute:
        right = launch_has_form(instruction);
        break;
    }
    // Nothing else may stand in line with what other ranks wait for.
    right = right && (instruction.stream == StreamRole::kReduce) == is_collective(instruction);
    if (!right) {
      find(here() + " names what is not there");
      return;
    }
    for (const Wait& wait : instruction.waits) {
      check_form(wait);
    }
  }

  bool is_result(ValueId value) const {
    return std::ranges::find(tape_.results(), value) != tape_.results().end();
  }

  bool is_collective(const Instruction& instruction) const {
    return instruction.kind == InstructionKind::kLaunch && tape_.op(instruction.op).collective();
  }

  static bool in_place(const Op& op, const Instruction& instruction) {
    const auto writes = instruction.operands.begin() + static_cast<std::ptrdiff_t>(op.reads.size());
    return op.reads.size() == op.writes.size() &&
           std::equal(instruction.operands.begin(), writes, writes, instruction.operands.end() - 1);
  }

  bool launch_has_form(const Instruction& instruction) const {
    if (instruction.op >= tape_.ops().size()) {
      return false;
    }
    const Op& op = tape_.op(instruction.op);
    const std::size_t values = op.reads.size() + op.writes.size();
    if (instruction.operands.size() != values + 1) {
      return false;
    }
    // One stream computes: ops of one program share what they are built from (op_library.h).
    if (!op.collective() && instruction.stream != StreamRole::kCompute) {
      return false;
    }
    // Launched again, it would wait for ranks that are elsewhere.
    if (op.collective() && (instruction.kind != InstructionKind::kLaunch || !in_place(op, instruction))) {
      return false;
    }
    const BufferId workspace = instruction.operands.back();
    const bool wants_workspace = op.algorithms[schedule_.algorithms[instruction.op]].workspace_bytes > 0;
    if ((workspace != kNone) != wants_workspace) {
      return false;
    }
    const auto end = instruction.operands.end() - (workspace == kNone ? 1 : 0);
    return std::all_of(instruction.operands.begin(), end, [&](BufferId id) {
      return id < schedule_.buffers.size() && schedule_.buffers[id].space == Space::kDevice;
    });
  }

  void check_form(const Wait& wait) {
    const bool earlier =
        wait.steps_ago == 1 || (wait.steps_ago == 0 && static_cast<std::int64_t>(wait.instruction) < index_);
    if (wait.instruction >= schedule_.instructions.size() || !earlier) {
      find(here() + " waits for instruction " + std::to_string(wait.instruction) +
           ", which does not come before it");
    } else if (schedule_.instructions[wait.instruction].kind == InstructionKind::kRelease) {
      find(here() + " waits for a release, which is no work");
    }
  }

  // --- meaning ---------------------------------------------------------------------------------------------
  void set_initial_state() {
    for (std::size_t id = 0; id < buffers_.size(); ++id) {
      buffers_[id].alive = schedule_.buffers[id].persistent;
    }
    // Parameters and the optimizer's state are where the first instruction that names them expects them,
    // once.
    for (const Instruction& instruction : schedule_.instructions) {
      for (const BufferUse& use : uses(tape_, instruction)) {
        if (use.value != kNone && tape_.value(use.value).persistent() && made_[use.value] == 0) {
          made_[use.value] = 1;
          buffers_[use.buffer].content = {.value = use.value, .version = 1};
        }
      }
    }
  }

  Clock clock_before(const Instruction& me) const {
    Clock clock;
    clock.fill(kNever);
    if (me.kind != InstructionKind::kRelease) {
      clock = streams_[static_cast<std::size_t>(me.stream)];
    }
    for (const Wait& wait : me.waits) {
      if (wait.steps_ago > step_) {
        continue;
      }
      const std::int64_t other = (step_ - wait.steps_ago) * count_ + wait.instruction;
      const Clock& theirs = clocks_[static_cast<std::size_t>(other)];
      for (std::size_t stream = 0; stream < kStreamRoles; ++stream) {
        clock[stream] = std::max(clock[stream], theirs[stream]);
      }
    }
    return clock;
  }

  void visit(const Instruction& me) {
    Clock clock = clock_before(me);
    if (me.kind == InstructionKind::kRelease) {
      release(me.buffer, clock);
      return;
    }
    const std::int64_t position = step_ * count_ + index_;
    const auto stream = static_cast<std::size_t>(me.stream);
    if (me.kind == InstructionKind::kAllocate) {
      allocate(me.buffer, clock, {.position = position, .stream = stream});
    } else {
      access(me, clock, {.position = position, .stream = stream});
    }
    clock[stream] = position;
    clocks_[static_cast<std::size_t>(position)] = clock;
    streams_[stream] = clock;
  }

  static bool is_after(const Clock& clock, const Event& event) {
    return event.position == kNever || clock[event.stream] >= event.position;
  }

  void allocate(BufferId id, const Clock& clock, Event event) {
    BufferState& state = buffers_[id];
    if (state.alive) {
      find(here() + " allocates " + buffer_name(id) + ", which is allocated");
    }
    if (schedule_.buffers[id].offset) {
      take_place(id, clock);
    }
    state = {.alive = true, .content = {}, .write = event, .reads = {}};
  }

  AddressRange place(BufferId id) const {
    return {.begin = *schedule_.buffers[id].offset, .bytes = schedule_.buffers[id].bytes};
  }

  // Nobody may be there, and all that was done there must be done.
  void take_place(BufferId id, const Clock& clock) {
    places_.visit(place(id), [&](AddressRange, const Place* other) {
      if (other == nullptr) {
        return;
      }
      if (other->tenant != kNone) {
        find(here() + " allocates " + buffer_name(id) + " where " + buffer_name(other->tenant) + " lies");
      }
      for (const Event& event : other->last_uses) {
        if (!is_after(clock, event)) {
          find(here() + " takes the place of " + buffer_name(other->previous) + " and is not ordered after " +
               name(event.position));
        }
      }
    });
    places_.assign(place(id), {.tenant = id, .previous = kNone, .last_uses = {}});
  }

  void leave_place(BufferId id) {
    Place left{.tenant = kNone, .previous = id, .last_uses = buffers_[id].reads};
    left.last_uses.push_back(buffers_[id].write);
    places_.assign(place(id), std::move(left));
  }

  void release(BufferId id, const Clock& clock) {
    BufferState& state = buffers_[id];
    if (!state.alive || schedule_.buffers[id].persistent) {
      find(here() + " releases " + buffer_name(id) + ", which is not to be released");
    }
    require_ordered(id, clock, true);
    if (schedule_.buffers[id].offset) {
      leave_place(id);
    }
    state = {};
  }

  // Is an access to the buffer ordered after the last write, and a write after the reads too?
  void require_ordered(BufferId id, const Clock& clock, bool write) {
    const BufferState& state = buffers_[id];
    if (!is_after(clock, state.write)) {
      find(here() + " uses " + buffer_name(id) + " and is not ordered after " + name(state.write.position));
    }
    if (!write) {
      return;
    }
    for (const Event& read : state.reads) {
      if (!is_after(clock, read)) {
        find(here() + " changes " + buffer_name(id) + " and is not ordered after " + name(read.position));
      }
    }
  }

  void access(const Instruction& me, const Clock& clock, Event event) {
    const std::vector<BufferUse> all = uses(tape_, me);
    for (const BufferUse& use : all) {
      if (!buffers_[use.buffer].alive) {
        find(here() + " uses " + buffer_name(use.buffer) + ", which is not allocated");
      }
      require_ordered(use.buffer, clock, use.write);
      check_size(me, use);
    }
    for (const BufferUse& use : all) {
      if (!use.write) {
        read(me, use, event);
      }
    }
    for (const BufferUse& use : all) {
      if (use.write) {
        write(me, use, event);
      }
    }
    count(me);
    check_overlapping_operands(me, all);
  }

  void check_size(const Instruction& me, const BufferUse& use) {
    const std::uint64_t needed = use.value == kNone
                                     ? tape_.op(me.op).algorithms[schedule_.algorithms[me.op]].workspace_bytes
                                     : tape_.value(use.value).bytes;
    if (schedule_.buffers[use.buffer].bytes < needed) {
      find(here() + " needs " + std::to_string(needed) + " bytes, " + buffer_name(use.buffer) + " has " +
           std::to_string(schedule_.buffers[use.buffer].bytes));
    }
  }

  // Which version of a value the tape means at this instruction. Values are made once a step; persistent ones
  // have been made before the first, and once more by each op of the tape that rewrites them.
  std::uint64_t expected_version(const Instruction& me, ValueId id) const {
    if (!tape_.value(id).persistent()) {
      return step_ + 1;
    }
    const std::vector<OpId>& writers = writers_[id];
    const auto rewrites_before =
        is_launch(me.kind) ? std::ranges::count_if(writers, [&](OpId writer) { return writer < me.op; }) : 0;
    return 1 + step_ * writers.size() + static_cast<std::uint64_t>(rewrites_before);
  }

  void read(const Instruction& me, const BufferUse& use, Event event) {
    BufferState& state = buffers_[use.buffer];
    const Content expected{.value = use.value, .version = expected_version(me, use.value)};
    if (state.content.value != expected.value) {
      find(here() + " reads " + tape_.value(use.value).name + " from " + buffer_name(use.buffer) +
           ", which holds " +
           (state.content.value == kNone ? "nothing" : tape_.value(state.content.value).name));
    } else if (state.content != expected) {
      find(here() + " reads version " + std::to_string(state.content.version) + " of " +
           tape_.value(use.value).name + " and means version " + std::to_string(expected.version));
    }
    state.reads.push_back(event);
  }

  void write(const Instruction& me, const BufferUse& use, Event event) {
    BufferState& state = buffers_[use.buffer];
    state.write = event;
    state.reads.clear();
    state.content = {};
    if (use.value == kNone) {
      return;
    }
    const bool copy = me.kind == InstructionKind::kOffload || me.kind == InstructionKind::kPrefetch;
    if (me.kind == InstructionKind::kRecompute) {
      make_again(use);
      return;
    }
    const bool rewrite = me.kind == InstructionKind::kLaunch && tape_.value(use.value).persistent();
    state.content = {.value = use.value, .version = expected_version(me, use.value) + (rewrite ? 1 : 0)};
    if (!copy && !rewrite && ++made_[use.value] != step_ + 1) {
      find(here() + " makes " + tape_.value(use.value).name +
           ", which is made already in this step, or was "
           "not in the last");
    }
  }

  // The same version once more, of what has been made in this step.
  void make_again(const BufferUse& use) {
    if (tape_.value(use.value).persistent()) {
      find(here() + " makes " + tape_.value(use.value).name + " again, which lives from step to step");
    } else if (made_[use.value] != step_ + 1) {
      find(here() + " makes " + tape_.value(use.value).name + " again, which has not been made yet");
    }
    buffers_[use.buffer].content = {.value = use.value, .version = step_ + 1};
  }

  // A launch may have two operands in one buffer only where the op permits one to overwrite the other, or
  // where it is the same value.
  void check_overlapping_operands(const Instruction& me, const std::vector<BufferUse>& all) {
    if (!is_launch(me.kind)) {
      return;
    }
    const Op& op = tape_.op(me.op);
    for (std::size_t a = 0; a < all.size(); ++a) {
      for (std::size_t b = a + 1; b < all.size(); ++b) {
        if (all[a].buffer != all[b].buffer || all[a].value == all[b].value || !all[b].write) {
          continue;
        }
        const bool permitted = std::ranges::any_of(op.may_overwrite, [&](const Overwrite& overwrite) {
          return overwrite.read == a && overwrite.write + op.reads.size() == b;
        });
        if (!permitted) {
          find(here() + " has two operands in " + buffer_name(all[a].buffer));
        }
      }
    }
  }

  void count(const Instruction& me) {
    if (me.kind == InstructionKind::kLaunch) {
      ++launched_[me.op];
    } else if (me.kind == InstructionKind::kLoad) {
      ++loaded_[me.value];
    } else if (me.kind == InstructionKind::kReadResult) {
      ++results_read_[me.value];
    }
  }

  void check_end_of_step() {
    index_ = count_ - 1;
    const std::string step = " in step " + std::to_string(step_);
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      if (launched_[id] != 1) {
        find(tape_.op(id).name + " is launched " + std::to_string(launched_[id]) + " times" + step);
      }
    }
    for (const ValueId input : tape_.inputs()) {
      if (loaded_[input] != 1) {
        find(tape_.value(input).name + " is loaded " + std::to_string(loaded_[input]) + " times" + step);
      }
    }
    for (const ValueId result : tape_.results()) {
      if (results_read_[result] != 1) {
        find(tape_.value(result).name + " is read by the host " + std::to_string(results_read_[result]) +
             " times" + step);
      }
    }
    for (BufferId id = 0; id < buffers_.size(); ++id) {
      if (buffers_[id].alive && !schedule_.buffers[id].persistent) {
        find(buffer_name(id) + " is not released" + step);
      }
    }
  }

  const Tape& tape_;
  const Schedule& schedule_;
  const std::int64_t count_;
  std::vector<BufferState> buffers_;
  std::vector<std::uint64_t> made_;         // a value: how often
  std::vector<std::vector<OpId>> writers_;  // a value: the ops that make or rewrite it, in order
  std::vector<Clock> clocks_;               // a position: what is done when it is done
  std::array<Clock, kStreamRoles> streams_{};
  IntervalMap<Place> places_;
  std::vector<int> launched_;
  std::vector<int> loaded_;
  std::vector<int> results_read_;  // a value
  std::uint32_t step_ = 0;
  std::int64_t index_ = 0;
  std::vector<std::string> findings_;
};

}  // namespace

std::vector<std::string> check_schedule(const Tape& tape, const Schedule& schedule) {
  return Checker(tape, schedule).run();
}

void require_valid(const Tape& tape, const Schedule& schedule) {
  const std::vector<std::string> findings = check_schedule(tape, schedule);
  if (!findings.empty()) {
    throw ScheduleError(
        "the schedule of '" + tape.model() + "' is not right: " + findings.front() +
        (findings.size() > 1 ? " (and " + std::to_string(findings.size() - 1) + " more)" : ""));
  }
}

}  // namespace vdnn
