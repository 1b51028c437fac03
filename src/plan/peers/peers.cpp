#include "src/plan/peers/peers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "src/plan/peers/rotor.h"
#include "src/plan/readers.h"
#include "src/plan/recomputation.h"
#include "src/plan/schedule_builder.h"
#include "src/plan/waits.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

using peers::Block;
using peers::Saving;

constexpr std::array kAllPeers{Peer::kCheckpointBlocks, Peer::kCheckpointSqrt, Peer::kSaveOnCpu,
                               Peer::kOffloadInputs, Peer::kRotor};

// The largest number of stages of rotor's chain. The time of the dynamic program grows with the cube of their
// number.
constexpr std::size_t kMostStages = 64;

// A forward pass in stages, with the values of each stage that the backward pass reads.
class StagedTape {
 public:
  StagedTape(const Tape& tape, std::vector<Block> stages)
      : tape_(tape), stages_(std::move(stages)), stage_of_layer_(tape.layers().size(), stages_.size()) {
    for (OpId op = 0; op < tape.forward_ops(); ++op) {
      if (tape.op(op).layer) {
        std::size_t& stage = stage_of_layer_[*tape.op(op).layer];
        stage = std::min(stage, stage_of(op));
      }
    }
    find_entries_of_layers();
    find_values();
    find_entries_of_values();
  }

  std::size_t size() const { return stages_.size(); }
  // Values that the stage makes and the backward pass reads. Checkpointing drops them.
  const std::vector<ValueId>& inner(std::size_t stage) const { return inner_[stage]; }
  // Values that the stage makes, and that the backward pass and the next stage read.
  const std::vector<ValueId>& outputs(std::size_t stage) const { return outputs_[stage]; }
  // The values from which the inner values of the stage are recomputed.
  std::vector<ValueId> needed_for(std::size_t stage) const {
    std::vector<ValueId> missing = inner_[stage];
    std::vector<ValueId> needed;
    std::vector<bool> seen(tape_.values().size(), false);
    while (!missing.empty()) {
      const ValueId value = missing.back();
      missing.pop_back();
      for (const ValueId read : tape_.op(tape_.producer(value)).reads) {
        if (tape_.value(read).persistent() || seen[read]) {
          continue;
        }
        seen[read] = true;
        (is_there(read, entry_[stage]) ? needed : missing).push_back(read);
      }
    }
    return needed;
  }
  // The first op of the stage's backward pass.
  OpId entry(std::size_t stage) const { return entry_[stage]; }
  std::size_t stage_of(OpId forward_op) const {
    const auto after = std::ranges::upper_bound(stages_, forward_op, {}, &Block::begin);
    return static_cast<std::size_t>(after - stages_.begin()) - 1;
  }
  const Tape& tape() const { return tape_; }
  // The stage to whose backward pass the op belongs: the stage with the last entry at or before the op.
  std::size_t backward_stage_of(OpId op) const {
    std::size_t stage = size() - 1;
    while (stage > 0 && entry_[stage - 1] <= op) {
      --stage;
    }
    return stage;
  }

 private:
  void find_values() {
    inner_.resize(size());
    outputs_.resize(size());
    is_dropped_.assign(tape_.values().size(), false);
    for (ValueId value = 0; value < tape_.values().size(); ++value) {
      const OpId producer = tape_.producer(value);
      if (producer == kNone || producer >= tape_.forward_ops() || tape_.value(value).persistent() ||
          first_backward_reader(tape_, value) == kNone) {
        is_dropped_[value] = producer != kNone;
        continue;
      }
      const std::size_t stage = stage_of(producer);
      const OpId last = last_forward_reader(tape_, value);
      const std::size_t last_stage = last == kNone ? stage : stage_of(last);
      // Checkpointing keeps a value if a stage after the next one also reads it, or if it cannot be
      // recomputed.
      if (last_stage <= stage + 1 && may_be_made_again(value, entry_[stage])) {
        (last_stage > stage ? outputs_ : inner_)[stage].push_back(value);
        is_dropped_[value] = last_stage == stage;
      }
    }
  }

  bool is_there(ValueId value, OpId at) const { return !is_dropped_[value] && tape_.last_use(value) >= at; }

  // Whether the value can be made again from values that are on the device before op `at`.
  bool may_be_made_again(ValueId value, OpId at) const {
    const OpId producer = tape_.producer(value);
    return producer != kNone && may_run_again(tape_, producer) &&
           std::ranges::all_of(tape_.op(producer).reads, [this, at](ValueId read) {
             return tape_.value(read).persistent() || is_there(read, at) || may_be_made_again(read, at);
           });
  }

  void find_entries_of_layers() {
    entry_.assign(size(), static_cast<OpId>(tape_.ops().size()));
    for (OpId op = tape_.forward_ops(); op < tape_.ops().size(); ++op) {
      const auto& layer = tape_.op(op).layer;
      if (tape_.op(op).phase == Phase::kBackward && layer && stage_of_layer_[*layer] < size()) {
        OpId& entry = entry_[stage_of_layer_[*layer]];
        entry = std::min(entry, op);
      }
    }
    // A stage without a backward pass has the entry of the next stage.
    for (std::size_t stage = size() - 1; stage-- > 0;) {
      entry_[stage] = entry_[stage] == tape_.ops().size() ? entry_[stage + 1] : entry_[stage];
    }
  }

  void find_entries_of_values() {
    for (std::size_t stage = 0; stage < size(); ++stage) {
      for (const ValueId value : inner_[stage]) {
        entry_[stage] = std::min(entry_[stage], first_backward_reader(tape_, value));
      }
    }
  }

  const Tape& tape_;
  std::vector<Block> stages_;
  std::vector<std::size_t> stage_of_layer_;
  std::vector<std::vector<ValueId>> inner_;
  std::vector<std::vector<ValueId>> outputs_;
  std::vector<bool> is_dropped_;  // by value: whether checkpointing drops it until its stage's backward pass
  std::vector<OpId> entry_;
};

Plan plan_without_offloading(const Tape& tape, PlanOptions options) {
  options.policy = Policy::kOffloadNone;
  return make_plan(tape, options);
}

PlannedSchedule scheduled(const Tape& tape, Plan plan) {
  Schedule schedule = make_schedule(tape, plan);
  return {.plan = std::move(plan), .schedule = std::move(schedule)};
}

// --- checkpoints -------------------------------------------------------------------------------------------

// Every stage keeps its outputs. Every stage but the last is run again before its backward pass.
std::vector<Saving> checkpoints_of_all(std::size_t stages) {
  std::vector<Saving> savings;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    savings.push_back({.output = stages, .all = stage + 1 < stages ? stage : stages});
  }
  return savings;
}

Plan plan_checkpoints(const StagedTape& staged, Plan plan, const std::vector<Saving>& savings) {
  const auto make_again = [&](const std::vector<ValueId>& values, std::size_t sweep) {
    for (const ValueId value : values) {
      if (sweep < staged.size()) {
        plan.recomputations.push_back({.value = value, .with = staged.entry(sweep)});
      }
    }
  };
  for (std::size_t stage = 0; stage < staged.size(); ++stage) {
    make_again(staged.inner(stage), savings[stage].all);
    make_again(staged.outputs(stage), savings[stage].output);
  }
  return plan;
}

PlannedSchedule checkpoint(const Tape& tape, std::vector<Block> stages, const PlanOptions& options) {
  const StagedTape staged(tape, std::move(stages));
  return scheduled(tape, plan_checkpoints(staged, plan_without_offloading(tape, options),
                                          checkpoints_of_all(staged.size())));
}

std::size_t square_root(std::size_t blocks) {
  return static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(blocks))));
}

// --- offloading --------------------------------------------------------------------------------------------

// The first op that reads the value in a later stage than its producer's; kNone if there is none.
OpId first_reader_outside(const StagedTape& staged, ValueId value) {
  const Tape& tape = staged.tape();
  const OpId producer = tape.producer(value);
  for (const OpId reader : tape.readers(value)) {
    if (reader < tape.forward_ops() &&
        (producer == kNone || staged.stage_of(reader) != staged.stage_of(producer))) {
      return reader;
    }
  }
  return kNone;
}

// An input of a stage that the backward pass reads again is offloaded as soon as the first stage with this
// input reads it in the forward pass. It is fetched one stage before the backward pass of the last stage with
// this input.
std::vector<Transfer> transfers_of_inputs(const StagedTape& staged) {
  const Tape& tape = staged.tape();
  std::vector<OpId> back_with(tape.values().size(), kNone);
  for (std::size_t stage = 0; stage < staged.size(); ++stage) {
    const OpId ahead = staged.entry(std::min(stage + 1, staged.size() - 1));
    for (const ValueId value : staged.needed_for(stage)) {
      back_with[value] = std::min({back_with[value], ahead, staged.entry(stage)});
    }
  }
  std::vector<Transfer> transfers;
  for (ValueId value = 0; value < tape.values().size(); ++value) {
    const OpId first = first_reader_outside(staged, value);
    const OpId back = first_backward_reader(tape, value);
    if (tape.value(value).persistent() || tape.value(value).kind == ValueKind::kTarget || first == kNone ||
        back == kNone) {
      continue;
    }
    transfers.push_back({.value = value,
                         .offload_with = first,
                         .release_with = last_forward_reader(tape, value),
                         .prefetch_with = std::min(back_with[value], back)});
  }
  return transfers;
}

PlannedSchedule offload_inputs(const Tape& tape, const PlanOptions& options) {
  const StagedTape staged(tape, peers::find_blocks(tape));
  Plan plan =
      plan_checkpoints(staged, plan_without_offloading(tape, options), checkpoints_of_all(staged.size()));
  plan.transfers = transfers_of_inputs(staged);
  return scheduled(tape, std::move(plan));
}

// Offloads each value that the backward pass reads; the copy starts once the value is made. Fetches the value
// when it is read.
PlannedSchedule save_on_cpu(const Tape& tape, const PlanOptions& options) {
  Plan plan = plan_without_offloading(tape, options);
  for (ValueId value = 0; value < tape.values().size(); ++value) {
    const OpId producer = tape.producer(value);
    const OpId back = first_backward_reader(tape, value);
    const bool made = producer != kNone && producer < tape.forward_ops();
    if (tape.value(value).persistent() || back == kNone ||
        !(made || tape.value(value).kind == ValueKind::kInput)) {
      continue;
    }
    const OpId last = last_forward_reader(tape, value);
    const OpId saved = made ? producer : tape.readers(value).front();
    plan.transfers.push_back({.value = value,
                              .offload_with = saved,
                              .release_with = last == kNone ? saved : std::max(saved, last),
                              .prefetch_with = back});
  }
  Schedule schedule = build_layer_wise_schedule(tape, plan);
  for (Instruction& instruction : schedule.instructions) {
    const bool copies =
        instruction.stream == StreamRole::kOffload || instruction.stream == StreamRole::kPrefetch;
    if (copies && instruction.kind != InstructionKind::kReadResult) {
      instruction.stream = StreamRole::kCompute;
    }
  }
  derive_waits(tape, schedule);
  return {.plan = std::move(plan), .schedule = std::move(schedule)};
}

// --- rotor -------------------------------------------------------------------------------------------------

std::uint64_t bytes_of(const Tape& tape, const std::vector<ValueId>& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0},
                         [&](std::uint64_t sum, ValueId value) { return sum + tape.value(value).bytes; });
}

// Computes the figures of each stage for rotor. The memory of a stage's ops is the memory of the op that
// needs most, without values that are saved for the backward pass.
class StageMeter {
 public:
  StageMeter(const StagedTape& staged, const Plan& plan, const PlanCosts& costs)
      : staged_(staged), plan_(plan), costs_(costs) {}

  std::vector<peers::Stage> measure() {
    const Tape& tape = staged_.tape();
    std::vector<peers::Stage> chain(staged_.size());
    for (std::size_t stage = 0; stage < chain.size(); ++stage) {
      chain[stage].output_bytes = bytes_of(tape, staged_.outputs(stage));
      chain[stage].saved_bytes = chain[stage].output_bytes + bytes_of(tape, staged_.inner(stage));
    }
    std::uint64_t alive = 0;  // bytes of values that are not saved
    for (OpId op = 0; op < tape.ops().size(); ++op) {
      const double seconds = costs_.op_seconds[op][plan_.algorithms[op]];
      alive += unsaved_bytes(tape.op(op).writes, [](ValueId) { return true; });
      const std::uint64_t bytes = alive + tape.op(op).algorithms[plan_.algorithms[op]].workspace_bytes;
      if (op < tape.forward_ops()) {
        peers::Stage& stage = chain[staged_.stage_of(op)];
        stage.forward_seconds += seconds;
        stage.forward_bytes = std::max(stage.forward_bytes, bytes);
      } else {
        peers::Stage& stage = chain[staged_.backward_stage_of(op)];
        stage.backward_seconds += seconds;
        stage.backward_bytes = std::max(stage.backward_bytes, bytes);
      }
      alive -= unsaved_bytes(tape.op(op).writes, [&](ValueId value) { return tape.last_use(value) == op; });
      alive -= unsaved_bytes(tape.op(op).reads, [&](ValueId value) {
        return tape.producer(value) != kNone && tape.last_use(value) == op;
      });
    }
    return chain;
  }

 private:
  template <class Counts>
  std::uint64_t unsaved_bytes(const std::vector<ValueId>& values, const Counts& counts) const {
    const Tape& tape = staged_.tape();
    std::uint64_t bytes = 0;
    for (auto each = values.begin(); each != values.end(); ++each) {
      const bool forward = tape.producer(*each) != kNone && tape.producer(*each) < tape.forward_ops();
      const bool saved = forward && first_backward_reader(tape, *each) != kNone;
      const bool first = std::find(values.begin(), each, *each) == each;
      if (!tape.value(*each).persistent() && !saved && first && counts(*each)) {
        bytes += tape.value(*each).bytes;
      }
    }
    return bytes;
  }

  const StagedTape& staged_;
  const Plan& plan_;
  const PlanCosts& costs_;
};

// The bytes that suffice to save everything, if every size is rounded up to a slot.
std::uint64_t most_bytes(const std::vector<peers::Stage>& chain) {
  std::uint64_t saved = 0;
  std::uint64_t passing = 0;
  for (const peers::Stage& stage : chain) {
    saved += stage.saved_bytes;
    passing = std::max({passing, stage.forward_bytes, stage.backward_bytes});
  }
  static_assert(RotorSchedules::kLimits > kMostStages + 1);
  const std::size_t whole_slots = RotorSchedules::kLimits - chain.size() - 1;
  return (saved + passing) / whole_slots * RotorSchedules::kLimits + RotorSchedules::kLimits;
}

}  // namespace

std::span<const Peer> all_peers() {
  return kAllPeers;
}

std::string to_string(Peer peer) {
  switch (peer) {
    case Peer::kCheckpointBlocks:
      return "checkpoint-blocks";
    case Peer::kCheckpointSqrt:
      return "checkpoint-sqrt";
    case Peer::kSaveOnCpu:
      return "save-on-cpu";
    case Peer::kOffloadInputs:
      return "offload-inputs";
    case Peer::kRotor:
      return "rotor";
  }
  return "unknown";
}

PlannedSchedule make_peer_schedule(const Tape& tape, Peer peer, const PlanOptions& options) {
  switch (peer) {
    case Peer::kCheckpointBlocks:
      return checkpoint(tape, peers::find_blocks(tape), options);
    case Peer::kCheckpointSqrt: {
      const std::vector<Block> blocks = peers::find_blocks(tape);
      return checkpoint(tape, peers::join_blocks(blocks, square_root(blocks.size())), options);
    }
    case Peer::kSaveOnCpu:
      return save_on_cpu(tape, options);
    case Peer::kOffloadInputs:
      return offload_inputs(tape, options);
    case Peer::kRotor:
      break;
  }
  throw InvalidArgument("rotor: its schedule depends on a limit of memory (RotorSchedules)");
}

struct RotorSchedules::Impl {
  Impl(const Tape& tape, const PlanOptions& options, const PlanCosts& costs)
      : staged(tape, peers::join_blocks(peers::find_blocks(tape), kMostStages)),
        plan(plan_without_offloading(tape, options)),
        chain(StageMeter(staged, plan, costs).measure()),
        rotor(chain, most_bytes(chain), kLimits) {}

  StagedTape staged;
  Plan plan;
  std::vector<peers::Stage> chain;
  peers::Rotor rotor;
};

RotorSchedules::RotorSchedules(const Tape& tape, const PlanOptions& options, const PlanCosts& costs)
    : impl_(std::make_shared<const Impl>(tape, options, costs)) {}

std::optional<PlannedSchedule> RotorSchedules::within(std::size_t limit) const {
  const auto savings = impl_->rotor.savings(limit);
  if (!savings) {
    return std::nullopt;
  }
  return scheduled(impl_->staged.tape(), plan_checkpoints(impl_->staged, impl_->plan, *savings));
}

}  // namespace vdnn
