#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "src/plan/lowering.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

// Decisions in the order in which they take effect; ops are lowered in ascending order.
template <class Decision>
class Agenda {
 public:
  Agenda(std::span<const Decision> decisions, OpId Decision::*when) : when_(when) {
    for (const Decision& decision : decisions) {
      sorted_.push_back(&decision);
    }
    std::ranges::stable_sort(sorted_, {}, [when](const Decision* decision) { return decision->*when; });
  }

  // Those of `op`. Asked for each op once, in ascending order.
  std::span<const Decision* const> of(OpId op) {
    const std::size_t begin = next_;
    while (next_ < sorted_.size() && sorted_[next_]->*when_ == op) {
      ++next_;
    }
    return std::span(sorted_).subspan(begin, next_ - begin);
  }

 private:
  OpId Decision::*when_;
  std::vector<const Decision*> sorted_;
  std::size_t next_ = 0;
};

// Of two prefetches that are issued together the one that is needed first goes first: a demand fetch must not
// queue behind what is fetched ahead.
std::vector<Transfer> by_need(const Tape& tape, std::vector<Transfer> transfers) {
  std::ranges::stable_sort(transfers, {}, [&tape](const Transfer& transfer) {
    const std::span<const OpId> readers = tape.readers(transfer.value);
    const auto found = std::ranges::lower_bound(readers, transfer.prefetch_with);
    return found == readers.end() ? kNone : *found;
  });
  return transfers;
}

class LayerWiseLowering : public Lowering {
 public:
  LayerWiseLowering(const Tape& tape, const Plan& plan)
      : Lowering(tape, plan),
        needed_(by_need(tape, plan.transfers)),
        offloads_(plan.transfers, &Transfer::offload_with),
        releases_(plan.transfers, &Transfer::release_with),
        prefetches_(needed_, &Transfer::prefetch_with),
        recomputations_(plan.recomputations, &Recomputation::with),
        host_(tape.values().size(), kNone),
        last_read_again_(tape.values().size(), kNone) {
    for (ValueId id = 0; id < tape.values().size(); ++id) {
      death_.push_back(tape.last_use(id));
    }
    for (const Recomputation& recomputation : plan.recomputations) {
      death_[recomputation.value] = last_use_before(recomputation);
    }
  }

  Schedule run(std::vector<std::uint32_t>* first_instructions) {
    const auto mark = [&] {
      if (first_instructions != nullptr) {
        first_instructions->push_back(static_cast<std::uint32_t>(schedule_.instructions.size()));
      }
    };
    place_persistent_values();
    for (const ValueId input : tape_.inputs()) {
      allocate_value(input, StreamRole::kLoad);
      emit_load(input);
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      mark();
      lower(id);
    }
    mark();
    return finish();
  }

 private:
  OpId last_use_before(const Recomputation& recomputation) const {
    const std::span<const OpId> readers = tape_.readers(recomputation.value);
    const auto found = std::ranges::lower_bound(readers, recomputation.with);
    return found == readers.begin() ? tape_.producer(recomputation.value) : *(found - 1);
  }

  BufferId allocate(std::string name, std::uint64_t bytes, Space space, StreamRole stream) {
    const BufferId buffer = add_buffer(std::move(name), bytes, space, false);
    emit({.kind = InstructionKind::kAllocate, .stream = stream, .buffer = buffer});
    return buffer;
  }

  void allocate_value(ValueId id, StreamRole stream) {
    location_[id] = allocate(tape_.value(id).name, tape_.value(id).bytes, Space::kDevice, stream);
  }

  BufferId allocate_workspace(OpId id) {
    return workspace_of(id) == 0 ? kNone
                                 : allocate(tape_.op(id).name + ".workspace", workspace_of(id),
                                            Space::kDevice, StreamRole::kCompute);
  }

  void release(BufferId buffer, StreamRole stream) {
    emit({.kind = InstructionKind::kRelease, .stream = stream, .buffer = buffer});
  }

  void lower(OpId id) {
    for (const Transfer* transfer : prefetches_.of(id)) {
      prefetch(*transfer);
    }
    recompute(id, recomputations_.of(id));
    // The copy starts beside the op: what it reads has been ready since its producer.
    const auto offloads = offloads_.of(id);
    for (const Transfer* transfer : offloads) {
      if (tape_.producer(transfer->value) != id) {
        offload(*transfer);
      }
    }
    launch(id);
    emit_read_results(id);
    for (const Transfer* transfer : offloads) {
      if (tape_.producer(transfer->value) == id) {
        offload(*transfer);
      }
    }
    for (const Transfer* transfer : releases_.of(id)) {
      release(require_place(location_, transfer->value, "released", id), StreamRole::kOffload);
      location_[transfer->value] = kNone;
    }
    release_dead(id);
  }

  // Where the value is. A plan that moves what is not there cannot be lowered.
  BufferId require_place(const std::vector<BufferId>& places, ValueId value, const char* what,
                         OpId with) const {
    if (places[value] == kNone) {
      throw InvalidArgument("the plan wants " + tape_.value(value).name + " to be " + what + " with " +
                            tape_.op(with).name + ", where it is not there");
    }
    return places[value];
  }

  void offload(const Transfer& transfer) {
    const Value& value = tape_.value(transfer.value);
    const BufferId device = require_place(location_, transfer.value, "offloaded", transfer.offload_with);
    const BufferId host = allocate(value.name + " (host)", value.bytes, Space::kHost, StreamRole::kOffload);
    host_[transfer.value] = host;
    emit({.kind = InstructionKind::kOffload,
          .stream = StreamRole::kOffload,
          .value = transfer.value,
          .buffer = device,
          .host_buffer = host});
  }

  void prefetch(const Transfer& transfer) {
    const Value& value = tape_.value(transfer.value);
    const BufferId host = require_place(host_, transfer.value, "fetched", transfer.prefetch_with);
    const BufferId buffer =
        allocate(value.name + " (prefetched)", value.bytes, Space::kDevice, StreamRole::kPrefetch);
    location_[transfer.value] = buffer;
    emit({.kind = InstructionKind::kPrefetch,
          .stream = StreamRole::kPrefetch,
          .value = transfer.value,
          .buffer = buffer,
          .host_buffer = host});
    release(host, StreamRole::kPrefetch);
    host_[transfer.value] = kNone;
  }

  void launch(OpId id) {
    place_writes(id, [this](ValueId value) { allocate_value(value, StreamRole::kCompute); });
    const BufferId workspace = allocate_workspace(id);
    emit_launch(id, workspace);
    if (workspace != kNone) {
      release(workspace, StreamRole::kCompute);
    }
  }

  // --- making values again ---------------------------------------------------------------------------------
  // Launches, in the tape's order, all ops that it takes to have the values before op `with`.
  void recompute(OpId with, std::span<const Recomputation* const> recomputations) {
    std::vector<ValueId> missing;
    for (const Recomputation* recomputation : recomputations) {
      if (location_[recomputation->value] == kNone) {
        missing.push_back(recomputation->value);
      }
    }
    const std::vector<OpId> producers = producers_of(std::move(missing), with);
    for (const OpId id : producers) {
      for (const ValueId read : tape_.op(id).reads) {
        last_read_again_[read] = id;
      }
    }
    for (const OpId id : producers) {
      launch_again(id, with);
    }
    for (const OpId id : producers) {
      for (const ValueId read : tape_.op(id).reads) {
        last_read_again_[read] = kNone;
      }
    }
  }

  // And of all that those read and that is not there, in ascending order.
  std::vector<OpId> producers_of(std::vector<ValueId> missing, OpId with) const {
    std::vector<OpId> producers;
    std::vector<bool> found(with, false);
    while (!missing.empty()) {
      const ValueId value = missing.back();
      missing.pop_back();
      const OpId producer = tape_.producer(value);
      if (host_[value] != kNone || producer == kNone || producer >= with || !may_run_again(tape_, producer)) {
        throw InvalidArgument("the plan wants " + tape_.value(value).name + " to be made again with " +
                              tape_.op(with).name + ", which cannot be");
      }
      if (found[producer]) {
        continue;
      }
      found[producer] = true;
      producers.push_back(producer);
      for (const ValueId read : tape_.op(producer).reads) {
        if (location_[read] == kNone) {
          missing.push_back(read);
        }
      }
    }
    std::ranges::sort(producers);
    return producers;
  }

  // Is it only there for others that are made again with `with`?
  bool is_passing(ValueId value, OpId with) const { return tape_.last_use(value) < with; }

  // Is it on the device or on the host, so that nobody needs another?
  bool is_there(ValueId value) const { return location_[value] != kNone || host_[value] != kNone; }

  void launch_again(OpId id, OpId with) {
    const Op& op = tape_.op(id);
    Instruction again{.kind = InstructionKind::kRecompute, .stream = StreamRole::kCompute, .op = id};
    for (const ValueId value : op.reads) {
      again.operands.push_back(location_[value]);
    }
    std::vector<BufferId> unused;  // copies of what is there already
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      const ValueId value = op.writes[write];
      const auto read = overwritten_read(tape_, id, write);
      const bool wanted = !is_there(value);
      if (wanted && read) {
        location_[value] = std::exchange(location_[op.reads[*read]], kNone);
        again.operands.push_back(location_[value]);
      } else {
        again.operands.push_back(allocate(tape_.value(value).name + " (recomputed)", tape_.value(value).bytes,
                                          Space::kDevice, StreamRole::kCompute));
        (wanted ? location_[value] : unused.emplace_back()) = again.operands.back();
      }
      if (wanted) {
        death_[value] = tape_.last_use(value);
      }
    }
    const BufferId workspace = allocate_workspace(id);
    again.operands.push_back(workspace);
    emit(std::move(again));
    if (workspace != kNone) {
      release(workspace, StreamRole::kCompute);
    }
    for (const BufferId buffer : unused) {
      release(buffer, StreamRole::kCompute);
    }
    for (const ValueId value : op.reads) {
      release_passing(value, id, with);
    }
    for (const ValueId value : op.writes) {
      release_passing(value, id, with);
    }
  }

  // After its last use among what is made again.
  void release_passing(ValueId value, OpId id, OpId with) {
    const OpId last = last_read_again_[value];
    if (!tape_.value(value).persistent() && location_[value] != kNone && is_passing(value, with) &&
        (last == kNone || last == id)) {
      release(location_[value], StreamRole::kCompute);
      location_[value] = kNone;
    }
  }

  // --- the end of values -----------------------------------------------------------------------------------
  // Releases what this op used last, unless its memory has been taken over by a value that lives on.
  void release_dead(OpId id) {
    const Op& op = tape_.op(id);
    for (const ValueId value : op.reads) {
      release_if_dead(value, id, is_taken_over(id, value));
    }
    for (const ValueId value : op.writes) {
      release_if_dead(value, id, false);
    }
  }

  bool is_taken_over(OpId id, ValueId value) const {
    const Op& op = tape_.op(id);
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      const auto read = overwritten_read(tape_, id, write);
      if (read && op.reads[*read] == value) {
        return true;
      }
    }
    return false;
  }

  void release_if_dead(ValueId value, OpId id, bool taken_over) {
    if (tape_.value(value).persistent() || death_[value] != id || location_[value] == kNone) {
      return;
    }
    if (!taken_over) {
      release(location_[value], StreamRole::kCompute);
    }
    location_[value] = kNone;
  }

  std::vector<Transfer> needed_;  // by the op that needs it first
  Agenda<Transfer> offloads_;
  Agenda<Transfer> releases_;
  Agenda<Transfer> prefetches_;
  Agenda<Recomputation> recomputations_;
  std::vector<OpId> death_;            // a value: the op after which its memory is given back
  std::vector<BufferId> host_;         // a value: where it lies on the host
  std::vector<OpId> last_read_again_;  // a value: the last of the ops that are launched again to read it
};

}  // namespace

Schedule lower_layer_wise(const Tape& tape, const Plan& plan,
                          std::vector<std::uint32_t>* first_instructions) {
  return LayerWiseLowering(tape, plan).run(first_instructions);
}

}  // namespace vdnn
